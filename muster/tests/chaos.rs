//! Faults of the whole: leaders that are stopped and go on, processes that are killed, an etcd that loses members.
//!
//! `make test` runs a sample; `make chaos` runs all of it (`MUSTER_CHAOS=all`).
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "chaos/etcd.rs"]
mod etcd;
#[path = "chaos/failpoints.rs"]
mod failpoints;
#[path = "chaos/leaders.rs"]
mod leaders;
#[path = "chaos/metal.rs"]
mod metal;
#[path = "chaos/nodes.rs"]
mod nodes;
#[path = "chaos/process.rs"]
mod process;
#[path = "chaos/quorum.rs"]
mod quorum;
#[path = "chaos/sessions.rs"]
mod sessions;
#[path = "chaos/wire.rs"]
mod wire;
#[path = "chaos/witness.rs"]
mod witness;

/// Whether everything is asked for, and not the sample.
#[allow(clippy::disallowed_methods, reason = "the test harness is its own rim")]
fn everything() -> bool {
    std::env::var("MUSTER_CHAOS").is_ok_and(|value| value == "all")
}

/// What the points must contain that processes die at, to look at some of them alone.
#[allow(clippy::disallowed_methods, reason = "the test harness is its own rim")]
fn only() -> Option<String> {
    std::env::var("MUSTER_CHAOS_POINT").ok()
}

#[allow(clippy::disallowed_methods, reason = "a test waits for other processes here")]
async fn pause(millis: u64) {
    tokio::time::sleep(std::time::Duration::from_millis(millis)).await;
}

/// Waits until something holds, for as long as a slow machine may take.
#[track_caller]
fn eventually<'a>(what: &'a str, mut holds: impl AsyncFnMut() -> bool + 'a) -> impl Future<Output = ()> + 'a {
    let place = std::panic::Location::caller();
    async move {
        for _ in 0..1_500 {
            if holds().await {
                return;
            }
            pause(100).await;
        }
        panic!("{place}: {what} did not come");
    }
}
