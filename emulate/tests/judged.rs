//! The RMCP+ emulator judged by clients that others wrote: ipmitool and ipmipower.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, process::Stdio, sync::Arc};

use muster_emulate::{
    Machine, Power, RealClock, Timing,
    ipmi::{Account, Level, RmcpBmc},
};
use muster_model::Clock;
use tokio::process::Command;

async fn bmc() -> RmcpBmc {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
    let machine = Machine::new(Arc::clone(&clock), Timing::default());
    let account = |user: &str, level| Account { user: user.into(), password: "secret".into(), level };
    let accounts = vec![account("admin", Level::Administrator), account("watcher", Level::User)];
    RmcpBmc::start("127.0.0.1:0".parse().unwrap(), accounts, [7; 16], machine, clock).await.unwrap()
}

/// Makes sure that the clients are installed.
async fn installed() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/bmc/install.sh");
    let output = Command::new(script).arg("ipmi").stdin(Stdio::null()).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn run(program: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let output = tokio::time::timeout(std::time::Duration::from_mins(2), command.output())
        .await
        .unwrap_or_else(|_| panic!("{program} {arguments:?} hangs"))
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

async fn ipmitool(
    bmc: &RmcpBmc,
    user: &str,
    password: &str,
    suite: &[&str],
    what: &[&str],
) -> (bool, String) {
    let port = bmc.address.port().to_string();
    let base =
        ["-I", "lanplus", "-H", "127.0.0.1", "-p", &port, "-U", user, "-P", password, "-N", "10", "-R", "3"];
    run("ipmitool", &[&base[..], suite, what].concat()).await
}

#[tokio::test]
async fn ipmitool_switches_with_both_suites() {
    installed().await;
    let bmc = bmc().await;
    for suite in [&["-C", "3"][..], &["-C", "17"][..], &[]] {
        let (ok, text) = ipmitool(&bmc, "admin", "secret", suite, &["chassis", "power", "status"]).await;
        assert!(ok && text.contains("Chassis Power is off"), "{suite:?}: {text}");
        let (ok, text) = ipmitool(&bmc, "admin", "secret", suite, &["chassis", "power", "on"]).await;
        assert!(ok, "{suite:?}: {text}");
        bmc.machine.until(|seen| seen.power == Power::On).await;
        let (_, text) = ipmitool(&bmc, "admin", "secret", suite, &["chassis", "power", "status"]).await;
        assert!(text.contains("Chassis Power is on"), "{suite:?}: {text}");
        bmc.machine.until(|seen| seen.running).await;
        let (ok, text) = ipmitool(&bmc, "admin", "secret", suite, &["chassis", "power", "soft"]).await;
        assert!(ok, "{suite:?}: {text}");
        bmc.machine.until(|seen| seen.power == Power::Off).await;
    }
    let counters = bmc.counters();
    assert_eq!(counters.sessions, 0, "ipmitool closes its sessions and we end them: {counters:?}");
    assert_eq!(counters.refused, 0);
}

#[tokio::test]
async fn ipmitool_reads_boot_devices_guid_and_watts() {
    installed().await;
    let bmc = bmc().await;
    let (ok, text) = ipmitool(&bmc, "admin", "secret", &["-C", "17"], &["chassis", "bootdev", "pxe"]).await;
    assert!(ok, "{text}");
    let (_, text) =
        ipmitool(&bmc, "admin", "secret", &["-C", "17"], &["chassis", "bootparam", "get", "5"]).await;
    assert!(text.contains("Boot Flag Valid") && text.contains("Force PXE"), "{text}");
    bmc.machine.switch_on();
    bmc.machine.until(|seen| seen.power == Power::On).await;
    let (ok, text) = ipmitool(&bmc, "admin", "secret", &["-C", "3"], &["dcmi", "power", "reading"]).await;
    assert!(ok && text.contains("187 Watts"), "{text}");
    let (ok, text) = ipmitool(&bmc, "admin", "secret", &["-C", "3"], &["mc", "guid"]).await;
    assert!(ok && text.contains("07070707"), "{text}");
}

#[tokio::test]
async fn ipmitool_is_refused_what_it_may_not() {
    installed().await;
    let bmc = bmc().await;
    let status = ["chassis", "power", "status"];
    for (user, password, suite) in [
        ("admin", "wrong", "3"),
        ("admin", "wrong", "17"),
        ("nobody", "secret", "3"),
        ("admin", "secret", "0"),
    ] {
        let (ok, text) = ipmitool(&bmc, user, password, &["-C", suite], &status).await;
        assert!(!ok, "{user} {password} suite {suite}: {text}");
    }
    let (ok, text) =
        ipmitool(&bmc, "watcher", "secret", &["-C", "3", "-L", "USER"], &["chassis", "power", "on"]).await;
    assert!(!ok && text.contains("nsufficient privilege"), "{text}");
    assert_eq!(bmc.machine.power(), Power::Off);
}

#[tokio::test]
async fn ipmipower_switches_with_both_suites() {
    installed().await;
    let bmc = bmc().await;
    let host = bmc.address.to_string();
    for suite in ["3", "17"] {
        let base = ["-D", "LAN_2_0", "-I", suite, "-h", &host, "-u", "admin", "-p", "secret"];
        let (ok, text) = run("ipmipower", &[&base[..], &["-s"]].concat()).await;
        assert!(ok && text.contains(": off"), "{suite}: {text}");
        let (ok, text) = run("ipmipower", &[&base[..], &["-n"]].concat()).await;
        assert!(ok && text.contains(": ok"), "{suite}: {text}");
        bmc.machine.until(|seen| seen.power == Power::On).await;
        let (ok, text) = run("ipmipower", &[&base[..], &["-f"]].concat()).await;
        assert!(ok && text.contains(": ok"), "{suite}: {text}");
        bmc.machine.until(|seen| seen.power == Power::Off).await;
    }
}
