//! OPS-R8: what a clock that is set, runs fast or stands still does to a cool-down that is under way.
//!
//! Times are stored as points on a wall clock and judged by `model::steady`, which follows a clock that was set by one part in a
//! hundred. A cool-down of 15 minutes, the longest by default, is wrong by 9 s then: less than the interval between two looks of
//! the planner at a quiet cluster. That is what the row allows.
//!
//! Where it cannot hold: a machine both of whose clocks run fast (no process can tell: the wait is right on that machine's
//! clock), a process that does not run when the wait ends (the wait ends when it runs again), and a process that starts with a
//! clock that is wrong: what it finds in the store was stamped by another clock. With a clock that was set back the waits begin
//! again. One that was set ahead takes the difference for a time without a leader, which counts for nobody
//! (`engine::lifecycle::mend`, `Memory::without`): the wait ends no earlier than it should, and later by what passed without one.

use muster_model::{
    Duration,
    host::{Phase, State},
};
use muster_sim::world::START;
use muster_sim::world::{
    What, Workload, fleet::on_one_thread, process::Manner, simulation::Simulation, site::PoolSetting,
};

use super::{furnish, now, unharmed};

/// Between two looks of the planner at a cluster in which nothing happens (`planner::turn::REGULAR`), and with them the error
/// that a cool-down may have.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long after the beginning of the cool-down the clock goes wrong.
const LEAD_IN: Duration = Duration::from_mins(2);
const HOUR: i64 = 3_600_000;

/// The cool-down that decides when the host goes.
#[derive(Debug, Clone, Copy)]
enum Wait {
    /// `scaleDownDelay`, 10 minutes, of a host that has served for long.
    Unneeded,
    /// `minOnTime`, 10 minutes, of a host that was needed for a moment.
    MinimumOn,
}

/// What becomes of the process whose clock went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    LivesOn,
    /// Killed; the next one starts with that clock.
    Restarts,
}

/// Two hosts serve and one is no longer needed; the leader's clock meets `what`. How long the wait was in true time.
async fn waits(wait: Wait, what: Option<&What>, then: Then) -> Duration {
    let mut pool = PoolSetting::metal("web", 0, 2);
    if matches!(wait, Wait::MinimumOn) {
        pool.spec["autoscaling"]["scaleDownDelay"] = "10s".into();
    }
    // As in production: a look at least every ten seconds.
    let mut simulation = Simulation::new(START, Manner::default());
    furnish(&mut simulation, 2, pool, 1).await;
    simulation.world().add_workload(Workload::deployment("shop", 2, 5_000));
    while simulation.world().running() < 2 {
        simulation.run_for(Duration::from_secs(1)).await.unwrap();
    }
    if matches!(wait, Wait::Unneeded) {
        simulation.run_for(Duration::from_mins(30)).await.unwrap();
    }
    simulation.world().set_replicas("shop", 1);
    let began = simulation.world().now();
    simulation.run_for(LEAD_IN).await.unwrap();
    if let Some(what) = what {
        let lasts =
            if *what == What::PauseLeader { Duration::from_mins(10) } else { Duration::from_hours(5) };
        now(&simulation, lasts, what.clone());
    }
    if then == Then::Restarts {
        simulation.run_for(Duration::from_secs(5)).await.unwrap();
        now(&simulation, Duration::from_secs(5), What::KillLeader);
    }
    loop {
        simulation.run_for(Duration::from_millis(500)).await.unwrap();
        let mut gone = false;
        for host in ["h0", "h1"] {
            let phase = simulation.phase(host).await.unwrap().unwrap_or(Phase::Serving);
            gone |= phase.state() == State::Draining;
        }
        let length = simulation.world().now().saturating_sub(began);
        if gone {
            unharmed(&simulation);
            return length;
        }
        assert!(length < Duration::from_hours(2), "{wait:?} {what:?}: it never goes");
    }
}

/// A clock that is set while a cool-down is under way neither ends it early nor late by more than an interval.
#[test]
fn ops_r8_a_cool_down_ends_when_it_should_whatever_the_clock_says() {
    for wait in [Wait::Unneeded, Wait::MinimumOn] {
        let right = on_one_thread(waits(wait, None, Then::LivesOn));
        for millis in [HOUR, -HOUR, 365 * 24 * HOUR, -365 * 24 * HOUR] {
            let found = on_one_thread(waits(wait, Some(&What::ClockJump { millis }), Then::LivesOn));
            let apart = Duration::from_millis(found.millis().abs_diff(right.millis()));
            assert!(apart <= INTERVAL, "{wait:?}, clock set by {millis} ms: {found} instead of {right}");
        }
    }
}

/// A process that starts with a clock that was set back finds times that lie ahead: its waits begin again, and end.
#[test]
fn ops_r8_a_cool_down_ends_for_a_process_that_starts_with_a_clock_that_was_set_back() {
    for wait in [Wait::Unneeded, Wait::MinimumOn] {
        let right = on_one_thread(waits(wait, None, Then::LivesOn));
        for millis in [-HOUR, -365 * 24 * HOUR] {
            let found = on_one_thread(waits(wait, Some(&What::ClockJump { millis }), Then::Restarts));
            // It begins again after the death of the first process and the time that its lease takes to run out.
            let latest = right.saturating_add(LEAD_IN).saturating_add(Duration::from_mins(1));
            let earliest = right.saturating_sub(INTERVAL);
            assert!(
                found >= earliest && found <= latest,
                "{wait:?}, set by {millis} ms: {found}, not {earliest} to {latest}"
            );
        }
    }
}

/// A process that starts with a clock that was set ahead takes no wait for over.
#[test]
fn ops_r8_a_cool_down_does_not_end_early_for_a_process_that_starts_with_a_clock_that_was_set_ahead() {
    for wait in [Wait::Unneeded, Wait::MinimumOn] {
        let right = on_one_thread(waits(wait, None, Then::LivesOn));
        for millis in [HOUR, 365 * 24 * HOUR] {
            let found = on_one_thread(waits(wait, Some(&What::ClockJump { millis }), Then::Restarts));
            let latest = right.saturating_add(Duration::from_mins(1)).saturating_add(INTERVAL);
            let earliest = right.saturating_sub(INTERVAL);
            assert!(
                found >= earliest && found <= latest,
                "{wait:?}, set by {millis} ms: {found}, not {earliest} to {latest}"
            );
        }
    }
}

/// A machine that was suspended: the wait is over when it goes on, and not ten minutes later.
#[test]
fn ops_r8_a_cool_down_that_ended_in_a_suspend_is_over_when_it_goes_on() {
    for wait in [Wait::Unneeded, Wait::MinimumOn] {
        let right = on_one_thread(waits(wait, None, Then::LivesOn));
        let found = on_one_thread(waits(wait, Some(&What::PauseLeader), Then::LivesOn));
        let resumed = LEAD_IN.saturating_add(Duration::from_mins(10));
        let latest = right.max(resumed).saturating_add(INTERVAL);
        assert!(found >= right && found <= latest, "{wait:?}: {found}, not {right} to {latest}");
    }
}

/// Both clocks of a machine run at three times the speed: on them the wait has its length, and the truth is not to be had.
#[test]
fn ops_r8_a_cool_down_on_a_machine_that_is_fast_has_its_length_on_that_machine() {
    const RATE: u64 = 3;
    for wait in [Wait::Unneeded, Wait::MinimumOn] {
        let right = on_one_thread(waits(wait, None, Then::LivesOn));
        let found = on_one_thread(waits(wait, Some(&What::ClockRate { rate: RATE }), Then::LivesOn));
        let shown = LEAD_IN.millis() + found.saturating_sub(LEAD_IN).millis() * RATE;
        let apart = Duration::from_millis(shown.abs_diff(right.millis()));
        assert!(apart <= INTERVAL, "{wait:?}: {found}, which it took for {shown} ms, instead of {right}");
    }
}
