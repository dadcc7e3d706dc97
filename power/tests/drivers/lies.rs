//! BMCs that lie, break and stall (OPS-R10), and the driver's part of the scenarios BM-7.n.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use muster_emulate::redfish::{Faults, Fleet, Layout, RedfishBmc};
use muster_model::{
    Clock, Duration, Timestamp,
    host::OnReset,
    power::{
        Accepted, Advice, Bmc, BootMode, BootOverride, BootTarget, Fault, Leave, Order, Power, PowerAction,
        PowerError, PowerState, Trust,
    },
};
use muster_power::{
    Limits,
    redfish::{Redfish, Setup},
};

use crate::support::{Vault, clock, read_until, redfish, redfish_host, redfish_host_trusting, setup};

const ON: Order = Order::first(PowerAction::On);
const FORCE: Order = Order::first(PowerAction::ForceOff);

const fn on_by(on: OnReset) -> Order {
    Order { action: PowerAction::On, on }
}

/// One emulated machine that runs, with its record and a driver.
struct Lab {
    fleet: Fleet,
    driver: Redfish,
    host: Bmc,
}

impl Lab {
    async fn new() -> Self {
        let fleet = Fleet::start(&Layout::default(), clock()).await.unwrap();
        let bmc = fleet.first();
        let mut host = redfish_host(&bmc.url());
        host.expect.serial = Some(bmc.systems[0].serial.clone());
        Self { driver: redfish(&Vault::with("lab", "admin", "emulated")), host, fleet }
    }

    async fn running() -> Self {
        let lab = Self::new().await;
        lab.bmc().systems[0].machine.switch_on();
        lab.bmc().systems[0].machine.until(|seen| seen.running).await;
        lab
    }

    fn bmc(&self) -> &Arc<RedfishBmc> {
        self.fleet.first()
    }

    fn is_really_on(&self) -> bool {
        self.bmc().systems[0].machine.look().running
    }

    async fn read(&self) -> Result<PowerState, PowerError> {
        self.driver.read(&self.host).await.map(|reading| reading.state)
    }
}

/// A fault on a running machine must never come out as "off"; afterwards the driver must recover by itself.
async fn never_off(faults: Faults, expected: &str) {
    let lab = Lab::running().await;
    assert_eq!(lab.read().await.unwrap(), PowerState::On, "before {faults:?}");
    lab.bmc().set_faults(faults.clone());
    for _ in 0..3 {
        let found = match lab.read().await {
            Ok(PowerState::Unknown { .. }) => "unknown",
            Ok(state) => panic!("{faults:?} was read as {state}"),
            Err(error) => error.code(),
        };
        assert_eq!(found, expected, "{faults:?}");
        // Nor does anyone get a machine switched through a BMC in this state.
        let refused = lab.driver.request(&lab.host, FORCE, &Leave::unlimited()).await;
        assert!(refused.is_err(), "{faults:?}: {refused:?}");
    }
    assert!(lab.is_really_on(), "{faults:?}");
    lab.bmc().set_faults(Faults::default());
    assert_eq!(lab.read().await.unwrap(), PowerState::On, "after {faults:?}");
}

#[tokio::test]
async fn ops_r10_01_a_wrong_state_is_reported_as_said_and_is_one_signal_only() {
    // The driver cannot know better than the BMC; what it says is marked with time and driver, and a second
    // reading and the kubelet's lease decide. What the driver must not do: act on it by itself.
    let lab = Lab::running().await;
    lab.bmc().set_faults(Faults { say_power: Some("Off".into()), ..Faults::default() });
    let reading = lab.driver.read(&lab.host).await.unwrap();
    assert_eq!(reading.state, PowerState::Off);
    assert_eq!(
        lab.driver.request(&lab.host, FORCE, &Leave::unlimited()).await.unwrap(),
        Accepted::AlreadyThere
    );
    assert!(lab.bmc().counters().resets.is_empty());
    for odd in ["Paused", "Reset", "Unknown", "off", ""] {
        lab.bmc().set_faults(Faults { say_power: Some(odd.into()), ..Faults::default() });
        assert!(!lab.read().await.unwrap().is_known(), "{odd:?}");
    }
}

#[tokio::test]
async fn ops_r10_02_a_missing_field_is_unknown() {
    never_off(Faults { omit_power: true, ..Faults::default() }, "unknown").await;
}

#[tokio::test]
async fn ops_r10_03_accepted_without_effect_is_not_done() {
    let lab = Lab::new().await;
    lab.bmc().set_faults(Faults { ignore_reset: true, ..Faults::default() });
    assert!(matches!(
        lab.driver.request(&lab.host, ON, &Leave::unlimited()).await.unwrap(),
        Accepted::Sent { .. }
    ));
    assert_eq!(lab.read().await.unwrap(), PowerState::Off, "accepted is not on");
    // The next attempts ask for other reset types.
    for on in [OnReset::ForceOn, OnReset::PushPowerButton] {
        let _ = lab.driver.request(&lab.host, on_by(on), &Leave::unlimited()).await.unwrap();
    }
    assert_eq!(lab.bmc().counters().resets, ["On", "ForceOn", "PushPowerButton"]);
}

#[tokio::test]
async fn ops_r10_04_late_success_is_seen_by_reading() {
    let lab = Lab::new().await;
    lab.bmc().set_faults(Faults { late: Duration::from_secs(5), ..Faults::default() });
    let _ = lab.driver.request(&lab.host, ON, &Leave::unlimited()).await.unwrap();
    let seen = read_until(&lab.driver, &lab.host, &PowerState::On).await;
    assert_eq!(seen.first(), Some(&PowerState::Off), "it was not on at first: {seen:?}");
    assert_eq!(lab.bmc().counters().resets.len(), 1);
}

#[tokio::test]
async fn ops_r10_05_flip_flop_is_reported_as_it_flips() {
    let lab = Lab::running().await;
    lab.bmc().set_faults(Faults { flip_flop: true, ..Faults::default() });
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(lab.read().await.unwrap());
    }
    // No two readings in a row agree, so that no rule of two readings can be met.
    assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "{seen:?}");
}

#[tokio::test]
async fn ops_r10_06_slow_is_silent_and_holds_nobody_else_up() {
    let fleet = Fleet::start(&Layout { bmcs: 2, ..Layout::default() }, clock()).await.unwrap();
    let [slow, quick] = [0, 1].map(|index| fleet.bmcs().nth(index).unwrap().clone());
    let vault = Vault::with("lab", "admin", "emulated");
    let limits = Limits { total: Duration::from_secs(8), ..Limits::default() };
    let driver = Redfish::new(muster_power::redfish::Setup { limits, ..setup(&vault) });
    slow.set_faults(Faults { delay: Duration::from_secs(60), ..Faults::default() });
    let slow_host = redfish_host(&slow.url());
    let quick_host = redfish_host(&quick.url());
    let stalled = tokio::spawn({
        let (driver, host) = (driver.clone(), slow_host.clone());
        async move { driver.read(&host).await }
    });
    // The other host is served again and again while the slow one is still waited for.
    let mut served = 0;
    while !stalled.is_finished() {
        driver.read(&quick_host).await.unwrap();
        served += 1;
    }
    let error = stalled.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "POWER_SILENT", "{error}");
    assert!(served > 3, "only {served} readings beside the slow one");
    assert_eq!(slow.counters().in_flight_peak, 1);
}

#[tokio::test]
async fn ops_r10_07_truncated_json_is_malformed() {
    never_off(Faults { truncate: true, ..Faults::default() }, "POWER_MALFORMED_ANSWER").await;
}

#[tokio::test]
async fn ops_r10_08_500_is_an_error() {
    never_off(Faults { status: Some(500), ..Faults::default() }, "POWER_REFUSED").await;
    // A reset that is answered with 500 may have happened: it says so, and is not sent again by itself.
    let lab = Lab::new().await;
    assert_eq!(lab.read().await.unwrap(), PowerState::Off);
    lab.bmc().set_faults(Faults { swallow_reset_answer: true, ..Faults::default() });
    let vault = Vault::with("lab", "admin", "emulated");
    let limits = Limits { total: Duration::from_secs(5), ..Limits::default() };
    let hasty = Redfish::new(muster_power::redfish::Setup { limits, ..setup(&vault) });
    let error = hasty.request(&lab.host, ON, &Leave::unlimited()).await.unwrap_err();
    assert_eq!((error.code(), error.advice()), ("POWER_OUTCOME_UNKNOWN", Advice::ReadFirst), "{error}");
    assert_eq!(lab.bmc().counters().resets, ["On"]);
}

#[tokio::test]
async fn ops_r10_09_and_bm_7_9_a_refused_account_stops_at_once() {
    let lab = Lab::running().await;
    let vault = Vault::with("lab", "admin", "emulated");
    let driver = redfish(&vault);
    assert_eq!(driver.read(&lab.host).await.unwrap().state, PowerState::On);
    lab.bmc().set_password("changed");
    for _ in 0..20 {
        let error = driver.read(&lab.host).await.unwrap_err();
        assert_eq!(error.code(), "POWER_DENIED", "{error}");
        assert_eq!(error.advice(), Advice::Person);
    }
    let counters = lab.bmc().counters();
    assert!(counters.refused_logins <= 2, "at most two attempts: {counters:?}");
    // A new version of the credential is tried at once.
    vault.set("lab", "admin", "changed");
    assert_eq!(driver.read(&lab.host).await.unwrap().state, PowerState::On);

    // The same by basic authentication: one refusal, and no more.
    let basic = Lab::running().await;
    basic.bmc().set_faults(Faults { session_limit: Some(0), refuse_account: true, ..Faults::default() });
    for _ in 0..5 {
        assert_eq!(basic.read().await.unwrap_err().code(), "POWER_DENIED");
    }
    assert_eq!(basic.bmc().counters().refused_logins, 1);
}

#[tokio::test]
async fn ops_r10_10_a_wrong_serial_number_is_another_machine() {
    never_off(Faults { say_serial: Some("OTHER".into()), ..Faults::default() }, "POWER_WRONG_HOST").await;
}

#[tokio::test]
async fn ops_r10_11_a_redirect_is_not_followed() {
    let trap = Fleet::start(&Layout::default(), clock()).await.unwrap();
    let place = format!("{}/redfish/v1/", trap.first().url());
    never_off(Faults { redirect: Some(place), ..Faults::default() }, "POWER_MALFORMED_ANSWER").await;
    assert_eq!(trap.first().counters().connections, 0);
}

#[tokio::test]
async fn ops_r10_12_a_changed_certificate_gets_no_secret() {
    let fleet = Fleet::start(&Layout { tls: true, ..Layout::default() }, clock()).await.unwrap();
    let bmc = fleet.first();
    let vault = Vault::with("lab", "admin", "emulated");
    let driver = redfish(&vault);
    let error = driver.read(&redfish_host_trusting(&bmc.url(), Trust::default())).await.unwrap_err();
    let Fault::Unapproved { found } = error.fault else { panic!("{error}") };
    let host = redfish_host_trusting(&bmc.url(), Trust::Pin { pin: Some(found) });
    assert_eq!(driver.read(&host).await.unwrap().state, PowerState::Off);
    let before = bmc.counters().credentials_seen;
    bmc.change_certificate().unwrap();
    for _ in 0..3 {
        let error = driver.read(&host).await.unwrap_err();
        assert_eq!(
            (error.code(), error.advice()),
            ("POWER_UNTRUSTED_CERTIFICATE", Advice::Person),
            "{error}"
        );
    }
    assert_eq!(bmc.counters().credentials_seen, before, "zero credential bytes after the change");
}

#[tokio::test]
async fn odd_answers_are_errors_and_never_a_state() {
    for (faults, code) in [
        (Faults { oversize: true, ..Faults::default() }, "POWER_MALFORMED_ANSWER"),
        (Faults { deep: true, ..Faults::default() }, "POWER_MALFORMED_ANSWER"),
        (Faults { html_403: true, ..Faults::default() }, "POWER_DENIED"),
        (Faults { status: Some(503), ..Faults::default() }, "POWER_BUSY"),
    ] {
        never_off(faults, code).await;
    }
    let lab = Lab::running().await;
    lab.bmc().set_faults(Faults { password_change: true, ..Faults::default() });
    assert_eq!(lab.read().await.unwrap_err().code(), "POWER_PASSWORD_CHANGE_REQUIRED");
}

#[tokio::test]
async fn bm_7_5_an_operating_system_that_ignores_acpi_stays_on_until_it_is_forced() {
    let lab = Lab::running().await;
    lab.bmc().set_faults(Faults { ignore_acpi: true, ..Faults::default() });
    let _ = lab
        .driver
        .request(&lab.host, Order::first(PowerAction::GracefulOff), &Leave::unlimited())
        .await
        .unwrap();
    assert_eq!(lab.read().await.unwrap(), PowerState::On);
    let _ = lab.driver.request(&lab.host, FORCE, &Leave::unlimited()).await.unwrap();
    read_until(&lab.driver, &lab.host, &PowerState::Off).await;
    assert_eq!(lab.bmc().counters().resets, ["GracefulShutdown", "ForceOff"]);
}

#[tokio::test]
async fn bm_7_8_an_unreachable_bmc_is_told_apart_from_a_silent_one() {
    let vault = Vault::with("lab", "admin", "emulated");
    let port = crate::support::peers::free_tcp_port();
    let error = redfish(&vault).read(&redfish_host(&format!("http://127.0.0.1:{port}"))).await.unwrap_err();
    assert_eq!((error.code(), error.advice()), ("POWER_UNREACHABLE", Advice::Later), "{error}");
    let lab = Lab::new().await;
    lab.bmc().set_faults(Faults { silent: true, ..Faults::default() });
    let limits = Limits { total: Duration::from_millis(700), ..Limits::default() };
    let hasty = Redfish::new(muster_power::redfish::Setup { limits, ..setup(&vault) });
    let error = hasty.read(&lab.host).await.unwrap_err();
    assert_eq!((error.code(), error.advice()), ("POWER_SILENT", Advice::Later), "{error}");
}

#[tokio::test]
async fn a_stuck_or_busy_bmc_says_so() {
    let lab = Lab::new().await;
    lab.bmc().set_faults(Faults { stuck_powering_on: true, ..Faults::default() });
    let _ = lab.driver.request(&lab.host, ON, &Leave::unlimited()).await.unwrap();
    assert_eq!(lab.read().await.unwrap(), PowerState::PoweringOn);
    // Powering on is not answered with another On.
    assert_eq!(lab.driver.request(&lab.host, ON, &Leave::unlimited()).await.unwrap(), Accepted::AlreadyThere);
    assert_eq!(lab.bmc().counters().resets, ["On"]);

    let lab = Lab::running().await;
    lab.bmc().set_faults(Faults { conflict_after_off: Duration::from_secs(60), ..Faults::default() });
    let _ = lab.driver.request(&lab.host, FORCE, &Leave::unlimited()).await.unwrap();
    let error = lab.driver.request(&lab.host, ON, &Leave::unlimited()).await.unwrap_err();
    assert_eq!(error.code(), "POWER_REFUSED", "only some vendors mean busy by this: {error}");
    lab.bmc().set_faults(Faults::default());
    let _ = lab.driver.request(&lab.host, ON, &Leave::unlimited()).await.unwrap();
    read_until(&lab.driver, &lab.host, &PowerState::On).await;
}

#[tokio::test]
async fn reset_types_come_from_the_bmc() {
    for faults in [
        Faults { action_info: true, ..Faults::default() },
        Faults { task: true, ..Faults::default() },
        Faults { session_limit: Some(0), ..Faults::default() },
    ] {
        let lab = Lab::new().await;
        lab.bmc().set_faults(faults.clone());
        let _ = lab
            .driver
            .request(&lab.host, ON, &Leave::unlimited())
            .await
            .unwrap_or_else(|error| panic!("{faults:?}: {error}"));
        read_until(&lab.driver, &lab.host, &PowerState::On).await;
    }
    let lab = Lab::new().await;
    let types = Some(vec!["Nmi".to_owned()]);
    lab.bmc().set_faults(Faults { reset_types: types, action_info: true, ..Faults::default() });
    let error = lab.driver.request(&lab.host, ON, &Leave::unlimited()).await.unwrap_err();
    assert_eq!(error.code(), "POWER_UNSUPPORTED", "{error}");
    assert!(error.to_string().contains("Nmi"), "{error}");
    lab.bmc().set_faults(Faults { task: true, task_fails: true, ..Faults::default() });
    let error = lab.driver.request(&lab.host, ON, &Leave::unlimited()).await.unwrap_err();
    assert_eq!(error.code(), "POWER_REFUSED", "{error}");
    assert!(error.to_string().contains("power sequencer"), "{error}");
}

/// The button toggles: it is pressed when it was asked for, and a BMC without the way that was asked for is sent nothing.
#[tokio::test]
async fn the_button_is_never_pressed_in_place_of_what_was_asked_for() {
    let lab = Lab::new().await;
    let offers = |types: &[&str]| {
        let types = types.iter().map(ToString::to_string).collect();
        lab.bmc().set_faults(Faults { reset_types: Some(types), ..Faults::default() });
    };
    let ask = async |on| lab.driver.request(&lab.host, on_by(on), &Leave::unlimited()).await;
    for (offered, on) in [
        (&["On", "PushPowerButton"][..], OnReset::ForceOn),
        (&["PushPowerButton"], OnReset::On),
        (&["PushPowerButton"], OnReset::ForceOn),
        (&["On", "ForceOn"], OnReset::PushPowerButton),
    ] {
        offers(offered);
        let error = ask(on).await.unwrap_err();
        assert_eq!((error.code(), error.advice()), ("POWER_UNSUPPORTED", Advice::OtherDriver), "{error}");
        assert!(error.to_string().contains(&offered.join(", ")), "{error}");
    }
    assert!(lab.bmc().counters().resets.is_empty(), "{:?}", lab.bmc().counters());
    offers(&["PushPowerButton"]);
    assert!(matches!(ask(OnReset::PushPowerButton).await, Ok(Accepted::Sent { .. })));
    read_until(&lab.driver, &lab.host, &PowerState::On).await;
    // The driver looks before it presses, and a machine that is on is left alone.
    assert_eq!(ask(OnReset::PushPowerButton).await.unwrap(), Accepted::AlreadyThere);
    assert_eq!(lab.bmc().counters().resets, ["PushPowerButton"]);
    lab.bmc().systems[0].machine.press_button();
    assert_eq!(
        lab.read().await.unwrap(),
        PowerState::Off,
        "before a system runs, the button takes the power"
    );
}

/// A reset that was accepted is under way, whatever becomes of the resource that watches it.
#[tokio::test]
async fn a_task_that_cannot_be_watched_has_not_failed() {
    let graceful = Order::first(PowerAction::GracefulOff);
    for status in [400, 403, 404, 405, 410, 500, 502, 503, 504] {
        let lab = Lab::running().await;
        lab.bmc().set_faults(Faults { task: true, task_status: Some(status), ..Faults::default() });
        let sent = lab.driver.request(&lab.host, graceful, &Leave::unlimited()).await;
        assert!(matches!(sent, Ok(Accepted::Sent { .. })), "{status}: {sent:?}");
        assert_eq!(lab.bmc().counters().task_polls, 1, "{status}");
    }
}

/// Each look at its clock finds five seconds gone, as with a BMC that is slow with every answer.
#[derive(Debug, Default)]
struct SlowTime(AtomicU64);

#[async_trait]
impl Clock for SlowTime {
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.fetch_add(5, Ordering::Relaxed))
    }

    async fn sleep(&self, _: Duration) {}
}

#[tokio::test]
async fn a_task_is_watched_for_a_time_and_not_for_a_number_of_answers() {
    let lab = Lab::new().await;
    lab.bmc().set_faults(Faults { task: true, task_hangs: true, ..Faults::default() });
    let vault = Vault::with("lab", "admin", "emulated");
    let driver = Redfish::new(Setup { clock: Arc::new(SlowTime::default()), ..setup(&vault) });
    let sent = driver.request(&lab.host, ON, &Leave::unlimited()).await;
    assert!(matches!(sent, Ok(Accepted::Sent { .. })), "{sent:?}");
    let polls = lab.bmc().counters().task_polls;
    assert!((1..=4).contains(&polls), "{polls} answers of 5 s and more do not fit into 20 s");
}

#[tokio::test]
async fn a_slow_machine_says_at_least_who_it_is() {
    let lab = Lab::new().await;
    let vault = Vault::with("lab", "admin", "emulated");
    let driver = Redfish::new(Setup { clock: Arc::new(SlowTime::default()), ..setup(&vault) });
    let identity = driver.identify(&lab.host).await.unwrap();
    assert_eq!(identity.serial.as_ref(), Some(&lab.bmc().systems[0].serial));
    assert!(
        identity.uuid.is_some() && identity.gpus.is_empty(),
        "there was no time for its parts: {identity:?}"
    );
}

#[tokio::test]
async fn a_full_session_table_is_met_with_basic_authentication() {
    let lab = Lab::new().await;
    lab.bmc().set_faults(Faults { session_limit: Some(1), ..Faults::default() });
    let other = redfish(&Vault::with("lab", "admin", "emulated"));
    other.read(&lab.host).await.unwrap();
    assert_eq!(lab.read().await.unwrap(), PowerState::Off);
    let counters = lab.bmc().counters();
    assert_eq!((counters.sessions, counters.logins), (1, 2), "{counters:?}");
    lab.read().await.unwrap();
    assert_eq!(lab.bmc().counters().logins, 2, "a full table is not knocked at on every poll");
}

#[tokio::test]
async fn bm_7_27_boot_overrides_climb_the_ladder_and_are_read_back() {
    let pxe = BootOverride { target: BootTarget::Pxe, mode: None, once: true, url: None };
    for faults in
        [Faults { require_etag: true, ..Faults::default() }, Faults { ami_boot: true, ..Faults::default() }]
    {
        let lab = Lab::new().await;
        lab.bmc().set_faults(faults.clone());
        let kept = lab
            .driver
            .set_boot(&lab.host, pxe.clone(), &Leave::unlimited())
            .await
            .unwrap_or_else(|error| panic!("{faults:?}: {error}"));
        assert_eq!((kept.target, kept.once), (BootTarget::Pxe, true), "{faults:?}");
    }
    let lab = Lab::new().await;
    lab.bmc().set_faults(Faults { ignore_boot: true, ..Faults::default() });
    let error = lab.driver.set_boot(&lab.host, pxe.clone(), &Leave::unlimited()).await.unwrap_err();
    assert_eq!(error.code(), "POWER_BOOT_OVERRIDE_IGNORED", "{error}");
    lab.bmc().set_faults(Faults { no_boot: true, ..Faults::default() });
    assert_eq!(
        lab.driver.set_boot(&lab.host, pxe.clone(), &Leave::unlimited()).await.unwrap_err().code(),
        "POWER_UNSUPPORTED"
    );
}

#[tokio::test]
async fn an_image_for_a_boot_by_http_is_set_with_the_target_and_read_back() {
    let url = "http://boot.example/x.efi";
    let http =
        BootOverride { target: BootTarget::UefiHttp, mode: None, once: true, url: Some(url.to_owned()) };
    for faults in [Faults::default(), Faults { ami_boot: true, ..Faults::default() }] {
        let lab = Lab::new().await;
        lab.bmc().set_faults(faults.clone());
        let kept = lab.driver.set_boot(&lab.host, http.clone(), &Leave::unlimited()).await;
        let kept = kept.unwrap_or_else(|error| panic!("{faults:?}: {error}"));
        assert_eq!((kept.target, kept.url.as_deref()), (BootTarget::UefiHttp, Some(url)), "{faults:?}");
        assert_eq!(lab.bmc().counters().boot_writes, 1, "in one write");
    }
    let lab = Lab::new().await;
    lab.bmc().set_faults(Faults { ignore_http_uri: true, ..Faults::default() });
    let error = lab.driver.set_boot(&lab.host, http, &Leave::unlimited()).await.unwrap_err();
    assert_eq!(error.code(), "POWER_BOOT_OVERRIDE_IGNORED", "{error}");
    assert!(error.to_string().contains(url), "{error}");
}

/// The connection breaks after the request was taken: nobody says whether it was carried out, and nobody asks again.
#[tokio::test]
async fn a_reset_whose_answer_is_cut_off_is_of_unknown_outcome() {
    let lab = Lab::running().await;
    lab.bmc().set_faults(Faults { drop_reset_answer: true, ..Faults::default() });
    let graceful = Order::first(PowerAction::GracefulOff);
    let error = lab.driver.request(&lab.host, graceful, &Leave::unlimited()).await.unwrap_err();
    assert_eq!((error.code(), error.advice()), ("POWER_OUTCOME_UNKNOWN", Advice::ReadFirst), "{error}");
    assert_eq!(lab.bmc().counters().resets, ["GracefulShutdown"]);
    read_until(&lab.driver, &lab.host, &PowerState::Off).await;
}

/// Silence about who it is, where it was said before, is neither another machine nor a proof.
#[tokio::test]
async fn a_machine_that_says_nothing_of_itself_while_it_is_off_is_not_another_one() {
    let lab = Lab::new().await;
    lab.bmc().set_faults(Faults { blank_when_off: true, ..Faults::default() });
    assert_eq!(lab.read().await.unwrap(), PowerState::Off);
    let off = lab.driver.request(&lab.host, FORCE, &Leave::unlimited()).await;
    assert_eq!(off.unwrap(), Accepted::AlreadyThere, "nothing is switched, so nothing has to be proved");
    let cycle = Order::first(PowerAction::Cycle);
    let error = lab.driver.request(&lab.host, cycle, &Leave::unlimited()).await.unwrap_err();
    assert_eq!((error.code(), error.advice()), ("POWER_UNIDENTIFIED", Advice::Later), "{error}");
    let pxe = BootOverride { target: BootTarget::Pxe, mode: None, once: true, url: None };
    let error = lab.driver.set_boot(&lab.host, pxe, &Leave::unlimited()).await.unwrap_err();
    assert_eq!(error.code(), "POWER_UNIDENTIFIED", "{error}");
    let counters = lab.bmc().counters();
    assert_eq!((counters.resets.len(), counters.boot_writes), (0, 0), "{counters:?}");
    // On, it says who it is, and may be switched.
    let _ = lab.driver.request(&lab.host, ON, &Leave::unlimited()).await.unwrap();
    read_until(&lab.driver, &lab.host, &PowerState::On).await;
    assert!(lab.driver.request(&lab.host, FORCE, &Leave::unlimited()).await.is_ok());
}

#[tokio::test]
async fn a_boot_mode_is_not_demanded_of_a_bmc_that_has_none() {
    let lab = Lab::new().await;
    lab.bmc().set_faults(Faults { no_boot_mode: true, ..Faults::default() });
    let mode = Some(BootMode::Uefi);
    let boot = BootOverride { target: BootTarget::Pxe, mode, once: true, url: None };
    let kept = lab.driver.set_boot(&lab.host, boot, &Leave::unlimited()).await.unwrap();
    assert_eq!((kept.target, kept.mode), (BootTarget::Pxe, None), "and it says that the mode was not set");
}

/// "Not now" is told from "no" by what each vendor calls it, for boot settings as for resets.
#[tokio::test]
async fn a_vendor_s_word_for_busy_is_busy_and_another_s_is_not() {
    let pxe = BootOverride { target: BootTarget::Pxe, mode: None, once: true, url: None };
    for (maker, code) in [("HPE", "POWER_BUSY"), ("Muster", "POWER_REFUSED")] {
        let lab = Lab::new().await;
        lab.bmc().set_faults(Faults {
            say_manufacturer: Some(maker.into()),
            refuse_boot: Some("iLO.2.14.UnableToModifyDuringSystemPOST".into()),
            ..Faults::default()
        });
        let error = lab.driver.set_boot(&lab.host, pxe.clone(), &Leave::unlimited()).await.unwrap_err();
        assert_eq!(error.code(), code, "{maker}: {error}");
    }
    let lab = Lab::running().await;
    lab.bmc().set_faults(Faults {
        say_manufacturer: Some("Dell Inc.".into()),
        conflict_after_off: Duration::from_mins(1),
        ..Faults::default()
    });
    let _ = lab.driver.request(&lab.host, FORCE, &Leave::unlimited()).await.unwrap();
    let error = lab.driver.request(&lab.host, ON, &Leave::unlimited()).await.unwrap_err();
    assert_eq!((error.code(), error.advice()), ("POWER_BUSY", Advice::Later), "{error}");
}

/// What a vendor's BMC offers and does badly is not used.
#[tokio::test]
async fn a_reset_that_does_harm_is_avoided() {
    let lab = Lab::running().await;
    let types = Some(vec!["GracefulRestart".to_owned(), "ForceRestart".to_owned()]);
    lab.bmc().set_faults(Faults {
        say_manufacturer: Some("Lenovo".into()),
        reset_types: types,
        ..Faults::default()
    });
    let _ =
        lab.driver.request(&lab.host, Order::first(PowerAction::Reset), &Leave::unlimited()).await.unwrap();
    assert_eq!(lab.bmc().counters().resets, ["ForceRestart"]);
}

/// Boot settings that apply at the next reset show in the settings resource alone until then.
#[tokio::test]
async fn a_boot_setting_for_the_next_reset_is_read_back_where_it_was_written() {
    let pxe = BootOverride { target: BootTarget::Pxe, mode: None, once: true, url: None };
    let lab = Lab::new().await;
    lab.bmc().set_faults(Faults { ami_boot: true, boot_at_reset: true, ..Faults::default() });
    let kept = lab.driver.set_boot(&lab.host, pxe.clone(), &Leave::unlimited()).await.unwrap();
    assert_eq!((kept.target, kept.once), (BootTarget::Pxe, true));
    let system = &lab.bmc().systems[0];
    assert_eq!(system.boot_target(), "None", "not yet");
    let _ = lab.driver.request(&lab.host, ON, &Leave::unlimited()).await.unwrap();
    assert_eq!(system.boot_target(), "Pxe");
    // What is forgotten there as well was ignored.
    let lab = Lab::new().await;
    lab.bmc().set_faults(Faults {
        ami_boot: true,
        boot_at_reset: true,
        ignore_boot: true,
        ..Faults::default()
    });
    let error = lab.driver.set_boot(&lab.host, pxe, &Leave::unlimited()).await.unwrap_err();
    assert_eq!(error.code(), "POWER_BOOT_OVERRIDE_IGNORED", "{error}");
}

#[tokio::test]
async fn a_weak_etag_is_sent_as_a_strong_one() {
    let lab = Lab::new().await;
    lab.bmc().set_faults(Faults { weak_etag: true, ..Faults::default() });
    let pxe = BootOverride { target: BootTarget::Pxe, mode: None, once: true, url: None };
    let kept = lab.driver.set_boot(&lab.host, pxe, &Leave::unlimited()).await.unwrap();
    assert_eq!(kept.target, BootTarget::Pxe);
}

#[tokio::test]
async fn sensors_and_identity_leave_out_what_is_not_there() {
    let lab = Lab::new().await;
    let off = lab.driver.sensors(&lab.host).await.unwrap();
    assert_eq!(off.milliwatts.value(), None, "null is not zero watts: {off:?}");
    assert_eq!(off.temperatures.len(), 1, "absent and null sensors are no readings: {off:?}");
    let lab = Lab::running().await;
    let on = lab.driver.sensors(&lab.host).await.unwrap();
    assert_eq!(on.milliwatts.value(), Some(&212_500));
    let inlet = on.temperatures.iter().find(|sensor| sensor.name == "Inlet").unwrap();
    assert_eq!(
        (inlet.millicelsius, inlet.warning_at, inlet.critical_at),
        (23_000, Some(38_000), Some(42_000))
    );
    let identity = lab.driver.identify(&lab.host).await.unwrap();
    let system = &lab.bmc().systems[0];
    assert_eq!(identity.serial.as_ref(), Some(&system.serial));
    assert_eq!(identity.macs, [system.mac.parse().unwrap()]);
    assert_eq!(
        (identity.cpu_sockets, identity.cpu_cores, identity.cpu_threads),
        (Some(2), Some(64), Some(128))
    );
    assert_eq!(identity.memory_bytes, Some(512 << 30));
    assert_eq!(identity.gpus, ["Emulated GPU"]);
}

/// A BMC that is stuck is restarted; the machine goes on, and no session is left.
#[tokio::test]
async fn a_bmc_is_restarted_and_its_machine_goes_on() {
    use muster_emulate::redfish::{Fleet, Layout};
    use muster_model::power::{Accepted, Power as _};
    let fleet = Fleet::start(&Layout::default(), crate::support::clock()).await.unwrap();
    let bmc = fleet.first();
    bmc.systems[0].machine.switch_on();
    let vault = crate::support::Vault::with("lab", "admin", "emulated");
    let driver = muster_power::redfish::Redfish::new(crate::support::setup(&vault));
    let host = crate::support::redfish_host(&bmc.url());
    let sent = driver.restart_bmc(&host, &Leave::unlimited()).await.unwrap();
    assert_eq!(sent, Accepted::Sent { how: "BMC GracefulRestart".into() });
    let counters = bmc.counters();
    assert_eq!((counters.restarts, counters.sessions, counters.resets.len()), (1, 0, 0), "{counters:?}");
    assert!(driver.read(&host).await.unwrap().state.is_known(), "a new session is made");
}
