//! That the audit log is complete: its chain holds, and what a machine was told stands in it from before it was told.

use std::{path::Path, process::Command};

use muster_control::audit::{self, Outcome, Query};
use muster_model::Timestamp;

/// Everything that a machine was told, by the name that the audit log has for it.
pub(crate) type Deeds = Vec<(Timestamp, &'static str)>;

/// The audit log's name for what a BMC accepted.
fn verb(deed: &str) -> &'static str {
    match deed {
        "On" | "ForceOn" | "PushPowerButton" => "power-on",
        "GracefulShutdown" => "graceful-off",
        "ForceOff" => "force-off",
        "PowerCycle" | "ForceRestart" => "power-cycle",
        "Manager.Reset" => "reset-bmc",
        "Boot" => "set-boot",
        other => panic!("nobody should ask for {other}"),
    }
}

pub(crate) fn deeds(bmc: &muster_emulate::redfish::RedfishBmc) -> Deeds {
    bmc.deeds().iter().map(|(at, deed)| (*at, verb(deed))).collect()
}

/// Panics unless the log in this data directory tells of every deed to the host from before it was done. A process died
/// once: one call at most has no outcome.
#[track_caller]
pub(crate) fn tells(data: &Path, host: &str, deeds: &Deeds, what: &str) {
    let verified = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["audit", "verify", "--data-dir", data.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&verified.stdout) + String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success(), "{what}: {said}");
    let query = Query { object: Some(format!("hosts/{host}")), ..Query::default() };
    let lines = audit::list(&data.join("audit"), &query).unwrap();
    let calls: Vec<_> = lines.iter().filter(|line| line.event.power.is_some()).collect();
    let begun = |verb: &str, until: Timestamp| {
        let one =
            |event: &audit::Event| event.verb == verb && event.outcome == Outcome::Begun && event.at <= until;
        calls.iter().filter(|line| one(&line.event)).count()
    };
    for (place, (at, verb)) in deeds.iter().enumerate() {
        let same = deeds[..=place].iter().filter(|(_, one)| one == verb).count();
        // One call may try several ways to write the boot device.
        let least = if *verb == "set-boot" { 1 } else { same };
        assert!(begun(verb, *at) >= least, "{what}: {verb} at {at} is not in the log: {calls:#?}");
    }
    let count =
        |begun: bool| calls.iter().filter(|line| (line.event.outcome == Outcome::Begun) == begun).count();
    assert!(count(true) - count(false) <= 1, "{what}: one process died: {calls:#?}");
}
