//! `OPS-R12`: `kill -9` at a point of the host loop, and the next process goes on.
//!
//! The binary that tests build stops at the point that `FAILPOINT` names and says so; the test kills it there. The
//! points that need a cluster are passed by the tests of `muster-control`, which stop at all of them in memory.

use std::{collections::BTreeSet, sync::Arc};

use futures::{StreamExt as _, stream};
use muster_emulate::{
    Power, RealClock, Timing,
    redfish::{Faults, Fleet, Layout, RedfishBmc},
};
use muster_model::Duration;
use serde_json::json;

use super::{eventually, everything, pause, process::Server};

/// What happens to the host while the process dies, and how many power-ons that takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Story {
    /// Registered, on, off by force after a shutdown that nobody listens to.
    UpAndDown,
    /// Power is taken and given back.
    Cycle,
    /// The records are deleted.
    Deleted,
}

const SAMPLE: [(&str, Story); 8] = [
    ("write/enrol/after", Story::UpAndDown),
    ("write/begin/before", Story::UpAndDown),
    ("write/begin/after", Story::UpAndDown),
    ("effect/power-on/before", Story::UpAndDown),
    ("effect/power-on/after", Story::UpAndDown),
    ("effect/force-off/before", Story::UpAndDown),
    ("effect/force-off/after", Story::UpAndDown),
    ("write/end/before", Story::UpAndDown),
];

/// Every point that a host without a cluster comes by.
fn all() -> Vec<(String, Story)> {
    let up = [
        "write/enrol",
        "write/observe",
        "write/move",
        "write/begin",
        "write/announce",
        "write/settle",
        "write/end",
        "write/metrics",
        "effect/probe",
        "effect/set-boot",
        "effect/power-on",
        "effect/graceful-off",
        "effect/force-off",
    ];
    let up = up.into_iter().map(|point| (point, Story::UpAndDown));
    let rest = [("effect/power-cycle", Story::Cycle), ("write/forget", Story::Deleted)];
    up.chain(rest)
        .flat_map(|(point, story)| ["before", "after"].map(|side| (format!("{point}/{side}"), story)))
        .collect()
}

/// Points that need a cluster, a machine without a BMC, or a BMC that is stuck. The tests of `muster-control` die there.
const ELSEWHERE: [&str; 12] = [
    "wol-burst",
    "reset-bmc",
    "cordon",
    "uncordon",
    "evict",
    "label",
    "remove-startup-taint",
    "taint-off",
    "remove-off-taint",
    "delete-node",
    "taint-out-of-service",
    "remove-out-of-service-taint",
];

#[test]
fn ops_r12_no_point_is_forgotten() {
    let elsewhere = ELSEWHERE
        .into_iter()
        .flat_map(|effect| ["before", "after"].map(|side| format!("effect/{effect}/{side}")));
    let mut known: Vec<String> = all().into_iter().map(|(point, _)| point).chain(elsewhere).collect();
    let mut points = muster_control::hosts::failpoint::names();
    known.sort();
    points.sort();
    assert_eq!(known, points);
}

/// Registers the host unless that has been done.
async fn enrol(server: &Server, bmc: &RedfishBmc) {
    if server.get("/api/v1/hosts/h").await["name"].is_string() {
        return;
    }
    let profile = json!({ "name": "net", "spec": { "target": "pxe" } });
    let _ = server.try_send("POST", "/api/v1/boot-profiles", Some(&profile)).await;
    server.register("h", bmc.address, json!({ "bootProfile": "net", "idleWatts": 100 })).await;
}

/// Drives the host to where the story ends. Asking again is harmless: it is what a person would do.
async fn drive(server: &Server, story: Story, bmc: &RedfishBmc, wanted: &mut &'static str) -> bool {
    if *wanted == "idle" {
        enrol(server, bmc).await;
    }
    let phase = server.phase("h").await;
    let ask = async |action: &str| {
        let body = json!({ "action": action, "reason": "a test" });
        let _ = server.try_send("POST", "/api/v1/hosts/h/power", Some(&body)).await;
    };
    let is_on = matches!(phase.as_str(), "powered" | "booting");
    match (*wanted, story) {
        ("idle", _) if phase == "idle" => {
            *wanted = "on";
            ask("on").await;
        }
        ("on", Story::UpAndDown) if is_on => {
            *wanted = "off";
            ask("off").await;
        }
        ("on", Story::Cycle) if is_on => {
            *wanted = "off";
            ask("cycle").await;
        }
        ("on", Story::Deleted) if is_on => {
            *wanted = "gone";
            let _ = server.try_send("DELETE", "/api/v1/hosts/h?force=true", None).await;
        }
        ("off", Story::UpAndDown) => return phase == "idle",
        ("off", Story::Cycle) => {
            return is_on && bmc.counters().resets.iter().any(|one| one.contains("Cycle"));
        }
        ("gone", _) => return phase.is_empty(),
        _ => {}
    }
    false
}

async fn dies_at(point: &str, story: Story) {
    let clock = Arc::new(RealClock::default());
    let timing = Timing { boot: Duration::from_hours(1), ..Timing::default() };
    let fleet = Fleet::start(&Layout { timing, tls: true, ..Layout::default() }, clock).await.unwrap();
    let bmc = fleet.first();
    bmc.set_faults(Faults { ignore_acpi: true, ..Faults::default() });
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data, directory.path(), &[], &[("FAILPOINT", point)]);
    server.account().await;
    let mut wanted = "idle";
    eventually(&format!("the point {point}"), async || {
        drive(&server, story, bmc, &mut wanted).await;
        server.said().contains("failpoint reached")
    })
    .await;
    drop(server); // kill -9
    let server = Server::start(&data, directory.path(), &[], &[]);
    let mut done = false;
    for _ in 0..2_400 {
        done = drive(&server, story, bmc, &mut wanted).await;
        if done {
            break;
        }
        pause(100).await;
    }
    if !done {
        let host = server.get("/api/v1/hosts/h").await;
        panic!("{story:?} does not end after {point}; wanted {wanted}: {host:#}\n{}", server.said());
    }
    let counters = bmc.counters();
    let ons = counters.resets.iter().filter(|one| *one == "On").count();
    assert_eq!(ons, 1, "{point}: {:?}", counters.resets);
    if story == Story::UpAndDown {
        assert_eq!(bmc.systems[0].machine.power(), Power::Off, "{point}");
    }
    assert!(counters.sessions_peak <= 1 && counters.in_flight_peak <= 1, "{point}: {counters:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_r12_killed_at_a_point_the_next_process_goes_on() {
    let points: Vec<(String, Story)> = if everything() {
        all()
    } else {
        SAMPLE.iter().map(|(point, story)| ((*point).to_owned(), *story)).collect()
    };
    let names: BTreeSet<_> = muster_control::hosts::failpoint::names().into_iter().collect();
    for (point, _) in &points {
        assert!(names.contains(point), "{point} is no point of the loop");
    }
    // A dead leader's lease takes its time to run out; several wait for it at once.
    stream::iter(points)
        .map(|(point, story)| async move { dies_at(&point, story).await })
        .buffer_unordered(8)
        .collect::<()>()
        .await;
}
