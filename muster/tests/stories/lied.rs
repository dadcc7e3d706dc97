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
    /// It cannot be proved off: it is set aside, and says so.
    Aside,
    /// Nobody knows enough to take it away: it serves on.
    Kept,
}

/// What each BMC does wrong, and where that leads.
fn modes(elsewhere: &str) -> [(&'static str, Faults, End); 12] {
    let none = Faults::default;
    let slow = muster_model::Duration::from_secs(60);
    let late = muster_model::Duration::from_secs(3);
    [
        ("says on, whatever is true", Faults { say_power: Some("On".to_owned()), ..none() }, End::Aside),
        ("leaves the power state out", Faults { omit_power: true, ..none() }, End::Kept),
        ("accepts, and does nothing", Faults { ignore_reset: true, ..none() }, End::Aside),
        ("does it later", Faults { late, ..none() }, End::Off),
        ("says on and off in turns", Faults { flip_flop: true, ..none() }, End::Aside),
        ("answers after a minute", Faults { delay: slow, ..none() }, End::Kept),
        ("ends in the middle", Faults { truncate: true, ..none() }, End::Kept),
        ("answers 500", Faults { status: Some(500), ..none() }, End::Kept),
        ("refuses the account", Faults { refuse_account: true, ..none() }, End::Kept),
        ("is another machine", Faults { say_serial: Some("OTHER".to_owned()), ..none() }, End::Kept),
        ("sends us elsewhere", Faults { redirect: Some(elsewhere.to_owned()), ..none() }, End::Kept),
        ("shows another key", none(), End::Kept),
    ]
}

fn is_on(bmc: &RedfishBmc) -> bool {
    bmc.systems[0].machine.power() != Power::Off
}

/// Where a server has come to, and why.
fn end(host: &Value, bmc: &RedfishBmc) -> Option<End> {
    let status = &host["status"];
    let reason = status["reason"].as_str().unwrap_or_default();
    match status["state"].as_str()? {
        "off" if status["phase"] == "idle" => Some(End::Off),
        "error" if reason.contains("did not prove it off") => Some(End::Aside),
        "ready" if status["powerState"] == "unknown" && bmc.counters().resets == ["On"] => Some(End::Kept),
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

    let looked = async || {
        let mut hosts = Vec::new();
        for (place, bmc) in bmcs.iter().enumerate() {
            let host = story.host(place + 1).await;
            // Rest is said of a machine that is off, at every moment.
            let rests = host["status"]["phase"] == "idle";
            assert!(!rests || !is_on(bmc), "a BMC that {}: {host:#}", modes[place].0);
            hosts.push(host);
        }
        hosts
    };
    story
        .until_within(Duration::from_mins(10), "every one has come to its end", async || {
            let hosts = looked().await;
            let mut all = hosts.iter().zip(&bmcs).zip(&modes);
            all.all(|((host, bmc), mode)| end(host, bmc) == Some(mode.2)).then_some(())
        })
        .await;
    // They stay there.
    story.until_looked().await;
    for ((host, bmc), (what, _, expected)) in looked().await.iter().zip(&bmcs).zip(&modes) {
        assert_eq!(end(host, bmc), Some(*expected), "a BMC that {what}: {host:#}");
    }
    for (number, cause) in [(9, "CredentialsRefused"), (10, "IdentityChanged"), (12, "CertificateMismatch")] {
        let host = story.host(number).await;
        assert_eq!(host["status"]["bmcBlocked"]["cause"], cause, "{host:#}");
    }
    let nobody = tokio::time::timeout(Duration::from_millis(1), trap.accept()).await;
    assert!(nobody.is_err(), "a redirect was followed");
}
