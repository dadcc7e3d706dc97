//! `BM-7.19`: etcd loses its leader in the middle of a power-on, and then its majority.

use std::sync::Arc;

use muster_emulate::{
    Power, RealClock, Timing,
    redfish::{Faults, Fleet, Layout},
};
use muster_model::Duration;
use serde_json::json;

use super::{etcd::Etcd, eventually, pause, process::Server};

#[tokio::test(flavor = "multi_thread")]
async fn bm_7_19_etcd_loses_its_leader_and_then_its_majority() {
    let clock = Arc::new(RealClock::default());
    let timing = Timing { boot: Duration::from_hours(1), ..Timing::default() };
    let fleet =
        Fleet::start(&Layout { bmcs: 2, timing, tls: true, ..Layout::default() }, clock).await.unwrap();
    let [first, second] = [0, 1].map(|at| fleet.bmcs().nth(at).unwrap());
    let etcd = Etcd::three().await;
    let directory = tempfile::tempdir().unwrap();
    let store = etcd.store();
    let server = Server::start(&directory.path().join("a"), directory.path(), &["--store", &store], &[]);
    server.account().await;
    server.register("h0", first.address, json!({})).await;
    server.register("h1", second.address, json!({})).await;
    for name in ["h0", "h1"] {
        server.until(name, &["idle"]).await;
    }

    // Its leader dies while the BMC is being called.
    // Well within the second and a half that a call may take here: what is under way then is given up, and the next
    // attempt is another one.
    first.set_faults(Faults { delay: Duration::from_millis(300), ..Faults::default() });
    server.power("h0", "on").await;
    eventually("a call", async || first.counters().in_flight > 0 && server.phase("h0").await != "idle").await;
    let dead = etcd.leading().await;
    etcd.kill(dead);
    etcd.leading().await;
    first.set_faults(Faults::default());
    server.until("h0", &["powered", "booting"]).await;
    assert_eq!(first.counters().resets, ["On"], "neither lost nor twice");
    etcd.start(dead);

    // On is accepted and ignored, so that a second attempt is due; the majority is lost before it.
    second.set_faults(Faults { ignore_reset: true, ..Faults::default() });
    server.power("h1", "on").await;
    eventually("the first attempt", async || !second.counters().resets.is_empty()).await;
    for at in [0, 1] {
        etcd.kill(at);
    }
    let sent = second.counters().resets.len();
    // The next attempt would be due after six seconds, and the lease runs out after nineteen.
    pause(25_000).await;
    assert_eq!(second.counters().resets.len(), sent, "nothing is sent while the store is lost");
    assert!(!server.leads().await, "and nobody leads");
    second.set_faults(Faults::default());
    for at in [0, 1] {
        etcd.start(at);
    }
    server.until("h1", &["powered", "booting"]).await;
    assert_eq!(second.systems[0].machine.power(), Power::On);
}
