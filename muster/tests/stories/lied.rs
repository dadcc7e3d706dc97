//! OPS-R10 through the whole loop: twelve servers, each behind a BMC that lies, breaks or stalls in its own way while they
//! are to be switched off.

use std::{sync::Arc, time::Duration};

use muster_emulate::{
    Power,
    redfish::{Faults, RedfishBmc},
};
use serde_json::{Value, json};

use crate::lab::{Machines, Story};

/// What a server must come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is off, and said to be.
    Off,
    /// It is set aside, with a reason that says this.
    Aside(&'static str),
}

/// What each BMC does wrong, and where that leads.
fn modes(elsewhere: &str) -> [(&'static str, Faults, End); 12] {
    let say = |power: &str| Faults { say_power: Some(power.to_owned()), ..Faults::default() };
    let slow = muster_model::Duration::from_secs(60);
    let late = muster_model::Duration::from_secs(3);
    [
        ("says on, whatever is true", say("On"), End::Aside("")),
        ("leaves the power state out", Faults { omit_power: true, ..Faults::default() }, End::Aside("")),
        ("accepts, and does nothing", Faults { ignore_reset: true, ..Faults::default() }, End::Aside("")),
        ("does it later", Faults { late, ..Faults::default() }, End::Off),
        ("says on and off in turns", Faults { flip_flop: true, ..Faults::default() }, End::Aside("")),
        ("answers after a minute", Faults { delay: slow, ..Faults::default() }, End::Aside("")),
        ("ends in the middle", Faults { truncate: true, ..Faults::default() }, End::Aside("")),
        ("answers 500", Faults { status: Some(500), ..Faults::default() }, End::Aside("")),
        ("refuses the account", Faults { refuse_account: true, ..Faults::default() }, End::Aside("")),
        (
            "is another machine",
            Faults { say_serial: Some("OTHER".to_owned()), ..Faults::default() },
            End::Aside(""),
        ),
        (
            "sends us elsewhere",
            Faults { redirect: Some(elsewhere.to_owned()), ..Faults::default() },
            End::Aside(""),
        ),
        ("shows another key", Faults::default(), End::Aside("")),
    ]
}

fn is_on(bmc: &RedfishBmc) -> bool {
    bmc.systems[0].machine.power() != Power::Off
}

/// Where a server has come to, if it stays there.
fn end(host: &Value, bmc: &RedfishBmc) -> Option<(bool, String)> {
    let status = &host["status"];
    let reason = status["reason"].as_str().unwrap_or_default().to_owned();
    match status["state"].as_str()? {
        "off" if status["phase"] == "idle" => Some((!is_on(bmc), reason)),
        "error" => Some((false, reason)),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn ops_r10_twelve_bmcs_that_lie_end_at_rest_or_set_aside() {
    let machines = Machines { count: 12, ..Machines::default() };
    let story = Story::begin("lied", machines).await;
    let bmcs: Vec<Arc<RedfishBmc>> = story.bmcs();
    let pinned = r#"{"spec":{"tlsVerify":"pin"}}"#;
    story.muster(&["patch", "host", "lied-12", "--patch", pinned]);
    story
        .until("its key is seen", async || {
            story.host(12).await["status"]["bmcBlocked"]["seenKey"].as_str().map(|_| ())
        })
        .await;
    story.muster(&["approve", "host", "lied-12", "--yes"]);
    let limits = json!({ "spec": { "deadlines": { "graceDeadline": "200s", "forceOffDeadline": "200s",
        "forceOffAgain": "100s", "confirmOffDeadline": "200s" } } });
    for number in 1..=12 {
        story.muster(&["patch", "host", &format!("lied-{number}"), "--patch", &limits.to_string()]);
    }
    story.until_idle().await;
    story.deploy(12, &json!({"cpu": "3"}), &json!({}));
    story.until_running(12).await;

    let trap = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let modes = modes(&format!("https://{}/redfish/v1/", trap.local_addr().unwrap()));
    for ((_, faults, _), bmc) in modes.iter().zip(&bmcs) {
        bmc.set_faults(faults.clone());
    }
    bmcs[8].drop_sessions();
    bmcs[11].change_certificate().unwrap();
    story.scale(0);

    let ends = story
        .until_within(Duration::from_mins(15), "all have come to an end", async || {
            let mut ends = Vec::new();
            for (place, bmc) in bmcs.iter().enumerate() {
                let host = story.host(place + 1).await;
                // Off is said of a machine that is off, at every moment.
                let says_off = host["status"]["state"] == "off" || host["status"]["powerState"] == "off";
                assert!(
                    !(says_off && host["status"]["phase"] == "idle" && is_on(bmc)),
                    "{}: said to rest while it runs: {host:#}",
                    modes[place].0
                );
                ends.push(end(&host, bmc));
            }
            ends.iter().all(Option::is_some).then_some(ends)
        })
        .await;
    let mut wrong = Vec::new();
    for ((what, _, expected), found) in modes.iter().zip(ends) {
        let (off, reason) = found.expect("all are there");
        let right = match expected {
            End::Off => off,
            End::Aside(text) => !off && reason.contains(text) && !reason.is_empty(),
        };
        if !right {
            wrong.push(format!("a BMC that {what}: expected {expected:?}, found off {off}: {reason}"));
        }
        println!("{what}: off {off}: {reason}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let nobody = tokio::time::timeout(Duration::from_millis(1), trap.accept()).await;
    assert!(nobody.is_err(), "a redirect was followed");
}
