//! Acceptance rows of the lifecycle, with the production loop.

use muster_model::{
    Clock as _,
    host::{
        BlockCause, ConditionType, DriverKind, DriverSpec, OnReset, Phase, Switch, find_condition, is_true,
    },
    power::{Health, LogEntry, Pin, PowerAction, Warning},
};

use crate::world::World;

#[tokio::test(start_paused = true)]
async fn bm_7_1_one_power_on_and_one_event_per_transition() {
    let world = World::new().await;
    world.idle("h1").await;
    world.pass(130).await;
    let before = world.events("h1").await.total;
    world.want("h1", Switch::On, "i-1").await;
    world.until("h1", Phase::Serving, 300).await;
    let state = world.outside.state();
    assert_eq!((state.count("h1", PowerAction::On), state.calls.len()), (1, 1), "{:?}", state.calls);
    drop(state);
    let events = world.events("h1").await;
    let phases: Vec<_> =
        events.events.iter().filter(|one| one.number > before).map(|one| one.to.as_str()).collect();
    assert_eq!(phases[..3], ["reserved", "preparing-boot", "power-requested"], "{phases:?}");
    assert_eq!(phases.last(), Some(&"serving"));
    let mut once = phases.clone();
    once.dedup();
    assert_eq!(once, phases, "one event for each transition");
    // The node is dressed: our labels, no startup taint.
    world.pass(10).await;
    assert_eq!(world.outside.state().taints("h1"), Vec::<String>::new());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn bm_7_3_a_budget_holds_the_drain_until_its_deadline_and_power_stays() {
    let world = World::new().await;
    world.serving("h1").await;
    world.pod("web-1", "h1", 10);
    world.outside.state().budget = Some("PodDisruptionBudget default/web".into());
    world.want("h1", Switch::Off, "i-off").await;
    world.until("h1", Phase::Evicting, 30).await;
    assert!(world.outside.state().cordon("h1").0);
    world.pass(600).await;
    let tried = world.outside.state().evictions;
    assert!(tried > 50, "{tried} evictions were asked for");
    world.until("h1", Phase::Serving, 400).await;
    world.pass(5).await;
    let status = world.status("h1").await;
    assert!(status.reason.contains("PodDisruptionBudget default/web"), "{}", status.reason);
    assert!(is_true(&status.conditions, ConditionType::DrainBlocked));
    let state = world.outside.state();
    assert_eq!(state.cordon("h1"), (false, None));
    assert_eq!((state.calls.len(), state.machines["h1"].on), (1, true), "only the first power-on");
}

#[tokio::test(start_paused = true)]
async fn bm_7_4_shutdown_waits_for_the_pod_that_takes_forty_seconds() {
    let world = World::new().await;
    world.serving("h1").await;
    world.pod("web-1", "h1", 40);
    world.want("h1", Switch::Off, "i-off").await;
    world.until("h1", Phase::Evicting, 30).await;
    let deleted = loop {
        if let Some(at) = world.outside.state().pods.first().and_then(|pod| pod.deleted_at) {
            break at;
        }
        world.pass(1).await;
    };
    world.until("h1", Phase::Idle, 300).await;
    let state = world.outside.state();
    let (at, ..) =
        state.calls.iter().find(|call| call.3.action == PowerAction::GracefulOff).expect("asked to stop");
    assert!(at.since(deleted).millis() >= 40_000, "{deleted} {at}");
    assert_eq!(state.count("h1", PowerAction::ForceOff), 0);
    assert_eq!(state.taints("h1"), ["muster.dev/off"]);
}

#[tokio::test(start_paused = true)]
async fn bm_7_5_an_os_that_ignores_acpi_is_forced_off_once() {
    let world = World::new().await;
    world.serving("h1").await;
    world.outside.state().machines.get_mut("h1").unwrap().ignores_acpi = true;
    world.want("h1", Switch::Off, "i-off").await;
    world.until("h1", Phase::ForcingOff, 400).await;
    world.until("h1", Phase::Idle, 200).await;
    let state = world.outside.state();
    assert_eq!(
        (state.count("h1", PowerAction::GracefulOff), state.count("h1", PowerAction::ForceOff)),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn bm_7_8_a_silent_bmc_gives_its_claim_back_and_backs_off() {
    let world = World::new().await;
    world.idle("h1").await;
    world.pass(130).await;
    world.outside.state().machines.get_mut("h1").unwrap().silent.insert("redfish");
    let tried = world.outside.state().reads;
    world.want("h1", Switch::On, "i-1").await;
    world.until("h1", Phase::Backoff, 200).await;
    let tried = world.outside.state().reads - tried;
    assert!((3..=5).contains(&tried), "{tried} attempts to reach it");
    assert_eq!(world.intent("h1").await, None, "the pool may take another host now");
    let first = world.status("h1").await;
    assert_eq!((first.failures.len(), world.outside.state().calls.len()), (1, 0));
    // Refused so far; from the second wait on nothing comes back at all.
    let (mut times, mut tried) = (vec![first.retry_at.unwrap()], world.outside.state().reads);
    while times.len() < 6 {
        world.pass(5).await;
        let next = world.status("h1").await.retry_at.unwrap();
        if times.last() == Some(&next) {
            continue;
        }
        times.push(next);
        // Looks of every minute or so beside them.
        let (reads, minutes) =
            (world.outside.state().reads, (next.since(times[times.len() - 2])).millis() / 60_000);
        let most = u32::try_from(minutes).unwrap() + 4;
        assert!(reads - tried <= most, "{} attempts in {minutes} min", reads - tried);
        tried = reads;
        if times.len() == 3 {
            let mut state = world.outside.state();
            let machine = state.machines.get_mut("h1").unwrap();
            machine.silent.clear();
            machine.latency = muster_model::Duration::from_hours(24);
        }
    }
    let waits: Vec<_> = times.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "delays grow: {waits:?}");
    world.outside.state().machines.get_mut("h1").unwrap().latency = muster_model::Duration::from_millis(20);
    world.until("h1", Phase::Idle, 6_000).await;
}

#[tokio::test(start_paused = true)]
async fn bm_7_9_a_refused_account_stops_all_calls_until_its_next_version() {
    let world = World::new().await;
    world.register("h1", |_| {}).await;
    world.outside.state().machines.get_mut("h1").unwrap().denies = true;
    world.until("h1", Phase::Quarantined, 60).await;
    let reads = world.outside.state().reads;
    assert!(reads <= 2, "{reads} logins");
    world.pass(3_600).await;
    assert_eq!(world.outside.state().reads, reads, "nothing calls it any more");
    let status = world.status("h1").await;
    assert_eq!(status.bmc_blocked.as_ref().map(|one| one.cause.as_str()), Some("CredentialsRefused"));
    // The rotation itself wakes the hosts that use it; nobody touches their records.
    world.outside.state().credential_version = 2;
    world.pass(5).await;
    assert!(world.outside.state().reads > reads, "asked again long before the next poll");
    world.until("h1", Phase::Idle, 60).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_nobody_approved_waits_for_its_pin_and_a_changed_key_is_another_matter() {
    let world = World::new().await;
    world.register("h1", |_| {}).await;
    let (first, second) = (Pin([1; 32]), Pin([2; 32]));
    world.outside.state().machines.get_mut("h1").unwrap().key = Some(first);
    world.until("h1", Phase::Quarantined, 60).await;
    let reads = world.outside.state().reads;
    world.pass(3_600).await;
    assert_eq!(world.outside.state().reads, reads, "nothing calls it any more");
    let blocked = world.status("h1").await.bmc_blocked.unwrap();
    assert_eq!((blocked.cause, blocked.seen_key), (BlockCause::KeyNotApproved, Some(first)));
    assert!(
        blocked.message.contains(&format!("muster approve host h1 --pin {first}")),
        "{}",
        blocked.message
    );
    world.respec("h1", |spec| assert!(spec.approve(0, first))).await;
    world.until("h1", Phase::Idle, 120).await;
    // Another key is no first contact, and nothing is approved by itself.
    world.outside.state().machines.get_mut("h1").unwrap().key = Some(second);
    world.until("h1", Phase::Quarantined, 600).await;
    let blocked = world.status("h1").await.bmc_blocked.unwrap();
    assert_eq!((blocked.cause, blocked.seen_key), (BlockCause::CertificateMismatch, Some(second)));
    world.pass(3_600).await;
    assert_eq!(world.status("h1").await.phase, Phase::Quarantined);
    world.respec("h1", |spec| assert!(spec.approve(0, second))).await;
    world.until("h1", Phase::Idle, 120).await;
}

#[tokio::test(start_paused = true)]
async fn hosts_that_are_talked_to_without_a_check_are_counted_by_how() {
    let world = World::new().await;
    for (name, warning) in [
        ("h1", Some(Warning::InsecureTls)),
        ("h2", Some(Warning::PlainHttp)),
        ("h3", Some(Warning::PlainHttp)),
        ("h4", None),
    ] {
        world.register(name, |_| {}).await;
        world.outside.state().machines.get_mut(name).unwrap().unverified = warning;
    }
    for name in ["h1", "h2", "h3", "h4"] {
        world.until(name, Phase::Idle, 120).await;
    }
    let counted = |world: &World| world.host_loop.figures().unverified.into_iter().collect::<Vec<_>>();
    assert_eq!(counted(&world), [("insecure-tls", 1), ("plain-http", 2)]);
    world.outside.state().machines.get_mut("h1").unwrap().unverified = None;
    world.pass(600).await;
    assert_eq!(counted(&world), [("plain-http", 2)]);
}

/// A world in which `h1` can be reached in two ways.
async fn by_redfish_or_ipmi() -> World {
    let world = World::new().await;
    world
        .register("h1", |spec| {
            spec.drivers = vec![DriverSpec::new(DriverKind::Redfish), DriverSpec::new(DriverKind::Ipmi)];
        })
        .await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_refusal_behind_a_silent_driver_stops_all_calls_too() {
    let world = by_redfish_or_ipmi().await;
    let mut state = world.outside.state();
    let machine = state.machines.get_mut("h1").unwrap();
    machine.denies = true;
    machine.silent.insert("redfish");
    drop(state);
    world.until("h1", Phase::Quarantined, 60).await;
    let status = world.status("h1").await;
    assert_eq!(status.bmc_blocked.map(|one| one.cause), Some(BlockCause::CredentialsRefused));
}

/// A first driver that is out of reach keeps nobody from learning who the machine is.
#[tokio::test(start_paused = true)]
async fn the_driver_that_answers_says_who_the_machine_is() {
    let world = by_redfish_or_ipmi().await;
    {
        let mut state = world.outside.state();
        let machine = state.machines.get_mut("h1").unwrap();
        machine.silent.insert("redfish");
        machine.uuid = Some("a1234567-89ab-cdef-a123-456789abcdef".into());
    }
    world.until("h1", Phase::Idle, 120).await;
    let identity = world.status("h1").await.identity;
    assert!(identity.is_some_and(|known| known.uuid.is_some()));
}

#[tokio::test(start_paused = true)]
async fn bm_7_10_power_on_without_effect_goes_up_the_ladder() {
    let world = by_redfish_or_ipmi().await;
    world.until("h1", Phase::Idle, 120).await;
    world.pass(130).await;
    let ignores = ["redfish", "ipmi"].into_iter().collect();
    world.outside.state().machines.get_mut("h1").unwrap().ignores_on = ignores;
    world.want("h1", Switch::On, "i-1").await;
    world.until("h1", Phase::Backoff, 600).await;
    let state = world.outside.state();
    let ways: Vec<_> =
        state.calls.iter().map(|(_, _, driver, order)| (driver.to_string(), order.on)).collect();
    let way = |driver: &str, on| (driver.to_owned(), on);
    let (on, force) = (OnReset::On, OnReset::ForceOn);
    assert_eq!(ways, [way("redfish", on), way("redfish", force), way("ipmi", on)]);
    drop(state);
    assert_eq!(world.intent("h1").await, None);
}

/// Magic packets go to the MAC address that somebody set, whatever the machine says of its ports.
#[tokio::test(start_paused = true)]
async fn cba_an_explicit_mac_wins_over_what_the_machine_reports() {
    let world = World::new().await;
    let set: muster_model::host::MacAddress = "02:00:00:00:00:01".parse().unwrap();
    world
        .register("h1", |spec| {
            let mut wol = DriverSpec::new(DriverKind::Wol);
            wol.settings.insert("broadcast".into(), "10.0.0.255".into());
            // Its BMC reads and reports another MAC, and cannot switch it on.
            (spec.drivers, spec.mac_address) = (vec![wol, DriverSpec::new(DriverKind::Redfish)], Some(set));
        })
        .await;
    world.until("h1", Phase::Idle, 120).await;
    let serial = world.status("h1").await.identity.and_then(|identity| identity.serial);
    assert!(serial.is_some(), "the machine was asked who it is");
    world.pass(130).await;
    world.want("h1", Switch::On, "i-1").await;
    world.until("h1", Phase::Serving, 300).await;
    let packets = world.outside.state().packets.clone();
    assert!(!packets.is_empty() && packets.iter().all(|mac| mac.0 == set.bytes()), "{packets:?}");
}

/// IPMI knows no serial number. The UUID that it tells is learnt, and whoever else answers later is not switched off.
#[tokio::test(start_paused = true)]
async fn ops_f15_a_machine_that_tells_a_uuid_alone_is_told_from_another() {
    let world = World::new().await;
    let only_ipmi = |spec: &mut muster_model::host::BareMetalNodeSpec| {
        spec.drivers = vec![DriverSpec::new(DriverKind::Ipmi)];
    };
    world.register("h1", only_ipmi).await;
    let becomes = |uuid: &str| {
        let mut state = world.outside.state();
        let machine = state.machines.get_mut("h1").unwrap();
        (machine.serial, machine.uuid) = (None, Some(uuid.to_owned()));
    };
    becomes("07070707-0000-0000-0000-000000000001");
    world.until("h1", Phase::Idle, 120).await;
    world.pass(130).await;
    world.want("h1", Switch::On, "i-1").await;
    world.until("h1", Phase::Serving, 300).await;
    let known = world.status("h1").await.identity.and_then(|identity| identity.uuid);
    assert_eq!(known.as_deref(), Some("07070707-0000-0000-0000-000000000001"));

    becomes("07070707-0000-0000-0000-000000000002"); // a cable was swapped
    world.pass(3_600).await;
    world.want("h1", Switch::Off, "i-2").await;
    world.pass(1_800).await;
    let blocked = world.status("h1").await.bmc_blocked.expect("another machine answers");
    assert_eq!(blocked.cause, muster_model::host::BlockCause::IdentityChanged);
    let offs: Vec<_> =
        world.outside.state().calls.iter().filter(|(.., order)| order.action.interrupts()).cloned().collect();
    assert!(offs.is_empty(), "{offs:?}");

    // A person says that it is right: the machine that answers now is the one that is known.
    let (by, reason, at) =
        ("ops".into(), "it was replaced".into(), muster_model::Clock::now(&*world.outside.clock));
    world
        .respec("h1", |spec| {
            spec.acknowledgement = Some(muster_model::host::Acknowledgement { by, reason, at });
        })
        .await;
    world.pass(600).await;
    let status = world.status("h1").await;
    assert_eq!(status.bmc_blocked, None);
    let known = status.identity.and_then(|identity| identity.uuid);
    assert_eq!(known.as_deref(), Some("07070707-0000-0000-0000-000000000002"));
}

/// Nothing reads the power of a host that packets wake. What its node proves counts, at the watts that were declared.
#[tokio::test(start_paused = true)]
async fn bm_7_30_a_host_without_a_bmc_uses_what_was_declared_while_it_serves() {
    let world = World::new().await;
    world
        .register("h1", |spec| {
            let mut wol = DriverSpec::new(DriverKind::Wol);
            wol.settings.insert("broadcast".into(), "10.0.0.255".into());
            spec.power_interface = muster_model::host::PowerInterface::Wol;
            (spec.mgmt_address, spec.mac_address) = (None, Some("02:00:00:00:00:01".parse().unwrap()));
            spec.drivers = vec![wol, DriverSpec::new(DriverKind::Agent)];
            spec.idle_watts = Some(180);
        })
        .await;
    let now = world.outside.clock.now();
    {
        let mut state = world.outside.state();
        let machine = state.machines.get_mut("h1").unwrap();
        (machine.on, machine.turned_at) = (true, now);
    }
    world.until("h1", Phase::Serving, 600).await;
    world.pass(3_600).await;
    let key = muster_model::host::keys::host("h1", muster_model::host::keys::HostRecord::Metrics);
    let metrics: muster_model::host::HostMetrics = world.read(&key).await.expect("metrics");
    assert!((170_000..=190_000).contains(&metrics.used_milliwatt_hours), "{metrics:?}");
    assert_eq!(metrics.watts_by, Some(muster_model::host::WattsBy::Declared));
}

/// A host that is only read: what would be done to it is written down, and neither it nor its node is touched.
#[tokio::test(start_paused = true)]
async fn bm_7_30_a_host_of_the_driver_dry_run_says_what_it_would_do() {
    let world = World::new().await;
    let only_read = |spec: &mut muster_model::host::BareMetalNodeSpec| {
        spec.drivers = vec![DriverSpec::new(DriverKind::DryRun)];
    };
    world.register("h1", only_read).await;
    world.until("h1", Phase::Idle, 120).await;
    world.pass(130).await;
    world.want("h1", Switch::On, "i-1").await;
    world.pass(2_000).await;
    let status = world.status("h1").await;
    assert_eq!((status.phase, status.failures.len(), status.starts.len()), (Phase::Idle, 0, 0));
    let told = find_condition(&status.conditions, ConditionType::DryRun).unwrap();
    assert_eq!(told.reason, "WouldPowerOn");
    assert!(told.message.contains("would power on: decision d-1"), "{}", told.message);
    assert_eq!(world.intent("h1").await, None, "the pool looks elsewhere");
    let events = world.events("h1").await.events;
    let lines = events.iter().filter(|event| event.message.starts_with("dry-run: would power on"));
    assert_eq!(lines.count(), 1, "{events:#?}");
    // Somebody switches it on, and it serves. It is not stood down.
    let now = world.outside.clock.now();
    let mut state = world.outside.state();
    let machine = state.machines.get_mut("h1").unwrap();
    (machine.on, machine.turned_at) = (true, now);
    drop(state);
    world.until("h1", Phase::Serving, 300).await;
    world.pod("web-1", "h1", 10);
    world.pass(1_000).await;
    world.want("h1", Switch::Off, "i-off").await;
    world.pass(2_000).await;
    let status = world.status("h1").await;
    assert_eq!(status.phase, Phase::Serving);
    let told = find_condition(&status.conditions, ConditionType::DryRun).unwrap();
    assert_eq!(told.reason, "WouldStandDown");
    assert!(told.message.contains("0 pods are evicted: decision d-1"), "{}", told.message);
    let state = world.outside.state();
    assert_eq!((state.calls.len(), state.evictions, state.cordon("h1")), (0, 0, (false, None)));
}

#[tokio::test(start_paused = true)]
async fn bm_7_11_a_hung_boot_is_recorded_and_forced_off() {
    let world = World::new().await;
    world.idle("h1").await;
    world.pass(130).await;
    let entry = |number: u32| LogEntry {
        at: (number != 2).then(|| world.outside.clock.now()),
        severity: if number == 1 { Health::Critical } else { Health::Ok },
        message: format!("entry {number}"),
    };
    let (log, now) = ((1..=9).map(entry).collect(), world.outside.clock.now());
    let mut state = world.outside.state();
    let machine = state.machines.get_mut("h1").unwrap();
    (machine.boot, machine.log) = (None, Some(log));
    drop(state);
    world.want("h1", Switch::On, "i-1").await;
    world.until("h1", Phase::ForcingOff, 1_100).await;
    assert_eq!(world.intent("h1").await, None, "released when the boot failed, not when it is off");
    world.until("h1", Phase::Backoff, 600).await;
    let (status, events) = (world.status("h1").await, world.events("h1").await);
    assert_eq!(status.failures.len(), 1);
    let told = events.events.iter().any(|event| event.message.starts_with("evidence: power on"));
    assert!(told, "{:#?}", events.events);
    // What the machine wrote down about it, newest first.
    let logs: Vec<_> = events.events.iter().filter(|one| one.message.starts_with("evidence: log")).collect();
    let expected = format!(
        "evidence: log {now} critical: entry 1; (no time) entry 2; {now} entry 3; {now} entry 4; {now} entry 5"
    );
    assert_eq!(logs.iter().map(|one| &*one.message).collect::<Vec<_>>(), [expected]);
    let state = world.outside.state();
    assert_eq!((state.count("h1", PowerAction::ForceOff), state.most_in_flight), (1, 1));
}

/// Evidence is for people: a log that does not come, or is refused, changes nothing about what is done.
#[tokio::test(start_paused = true)]
async fn bm_7_11_a_log_that_cannot_be_read_is_said_and_holds_nothing_up() {
    let world = World::new().await;
    world.idle("h1").await;
    world.pass(130).await;
    let mut state = world.outside.state();
    let machine = state.machines.get_mut("h1").unwrap();
    (machine.boot, machine.log) = (None, None);
    drop(state);
    world.want("h1", Switch::On, "i-1").await;
    world.until("h1", Phase::Stopping, 1_100).await;
    assert_eq!(world.intent("h1").await, None, "its claim is not held for the log");
    world.until("h1", Phase::ForcingOff, 30).await;
    world.until("h1", Phase::Backoff, 600).await;
    let events = world.events("h1").await.events;
    let told = events.iter().filter(|one| one.message.starts_with("evidence: log not readable: BMC"));
    assert_eq!(told.count(), 1, "{events:#?}");
    let state = world.outside.state();
    assert_eq!((state.count("h1", PowerAction::ForceOff), state.machines["h1"].on), (1, false));
}

#[tokio::test(start_paused = true)]
async fn bm_7_13_a_bmc_that_says_off_while_the_kubelet_lives_is_not_believed() {
    let world = World::new().await;
    world.serving("h1").await;
    world.pod("web-1", "h1", 10);
    world.outside.state().machines.get_mut("h1").unwrap().lies_off.insert("redfish");
    world.pass(400).await;
    let status = world.status("h1").await;
    assert_eq!(status.phase, Phase::Serving);
    assert!(is_true(&status.conditions, ConditionType::PowerReadingDisagrees));
    let state = world.outside.state();
    assert_eq!((state.evictions, state.calls.len()), (0, 1));
}

/// BM-7.13 with a second driver, which is asked once: whether it says on, says off too or says nothing.
#[tokio::test(start_paused = true)]
async fn bm_7_13_a_second_driver_is_asked_once_and_changes_no_reading() {
    for told in ["; ipmi says on", "; ipmi says off", "; ipmi gives no answer"] {
        let world = World::new().await;
        world
            .register("h1", |spec| {
                spec.drivers = vec![DriverSpec::new(DriverKind::Redfish), DriverSpec::new(DriverKind::Ipmi)];
            })
            .await;
        world.until("h1", Phase::Idle, 120).await;
        world.pass(130).await;
        world.want("h1", Switch::On, "i-on").await;
        world.until("h1", Phase::Serving, 300).await;
        world.pass(700).await;
        world.pod("web-1", "h1", 10);
        {
            let mut state = world.outside.state();
            let machine = state.machines.get_mut("h1").unwrap();
            machine.lies_off.insert("redfish");
            match told {
                "; ipmi says off" => machine.lies_off.extend(["ipmi"]),
                "; ipmi gives no answer" => machine.silent.extend(["ipmi"]),
                _ => {}
            }
        }
        world.pass(200).await;
        let (events, asked) = (world.events("h1").await.total, world.outside.state().reads_by("ipmi"));
        assert_eq!(asked, 1, "{told}");
        // A plan that wants it gone waits for as long as nobody knows.
        world.want("h1", Switch::Off, "i-off").await;
        for second in 0..600 {
            world.pass(1).await;
            let status = world.status("h1").await;
            let found = find_condition(&status.conditions, ConditionType::PowerReadingDisagrees).unwrap();
            assert_eq!(found.status, muster_model::host::ConditionStatus::True, "after {second}s");
            assert!(found.message.ends_with(told), "{}", found.message);
            assert_eq!(
                (status.phase, status.power_state.as_str()),
                (Phase::Serving, "off"),
                "after {second}s"
            );
        }
        assert_eq!(world.events("h1").await.total, events, "nothing goes back and forth");
        let state = world.outside.state();
        assert_eq!((state.evictions, state.calls.len(), state.reads_by("ipmi")), (0, 1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn bm_7_15_a_host_that_a_person_switched_off_is_left_alone_until_acknowledged() {
    let world = World::new().await;
    world.serving("h1").await;
    {
        let now = muster_model::Clock::now(&*world.outside.clock);
        let mut state = world.outside.state();
        let machine = state.machines.get_mut("h1").unwrap();
        (machine.on, machine.turned_at) = (false, now);
    }
    world.until("h1", Phase::Idle, 150).await;
    let status = world.status("h1").await;
    assert!(is_true(&status.conditions, ConditionType::UnexpectedOff));
    assert_eq!(world.intent("h1").await, None, "its pool may take another");
    world.want("h1", Switch::On, "i-2").await;
    world.pass(1_800).await;
    assert_eq!(world.outside.state().calls.len(), 1, "not switched on again");
    let at = muster_model::Clock::now(&*world.outside.clock);
    world
        .respec("h1", |spec| {
            let (by, reason) = ("ann".into(), "fan replaced".into());
            spec.acknowledgement = Some(muster_model::host::Acknowledgement { by, reason, at });
        })
        .await;
    world.until("h1", Phase::Serving, 300).await;
}

#[tokio::test(start_paused = true)]
async fn bm_7_20_without_a_lease_nothing_is_sent_and_writes_are_refused() {
    let world = World::new().await;
    world.idle("h1").await;
    world.pass(130).await;
    // Somebody else leads now, and this process does not know it.
    world.put(world.fence.key.clone(), "another").await;
    world.want("h1", Switch::On, "i-1").await;
    world.pass(300).await;
    assert_eq!(world.outside.state().calls.len(), 0);
    assert_eq!(world.phase("h1").await, Some(Phase::Idle));
    // And with too little of a lease left.
    let (outside, store) = world.kill().await;
    let world = World::on(outside, store, muster_control::hosts::failpoint::Failpoints::default()).await;
    let soon = muster_model::Clock::monotonic(&*world.outside.clock)
        .saturating_add(muster_model::Duration::from_secs(20));
    world.lead.set(Some((world.fence.clone(), soon)));
    world.pass(60).await;
    assert_eq!(world.outside.state().calls.len(), 0, "20s are less than a call and its margin");
}

#[tokio::test(start_paused = true)]
async fn bm_7_24_25_a_host_without_a_bmc_wakes_by_packet_and_is_never_called_off_in_error() {
    let world = World::new().await;
    world
        .register("h1", |spec| {
            spec.power_interface = muster_model::host::PowerInterface::Wol;
            (spec.mgmt_address, spec.mac_address) = (None, Some("02:00:00:00:00:01".parse().unwrap()));
            let mut wol = DriverSpec::new(DriverKind::Wol);
            wol.settings.insert("broadcast".into(), "10.0.0.255".into());
            spec.drivers = vec![wol, DriverSpec::new(DriverKind::Agent)];
        })
        .await;
    world.until("h1", Phase::Idle, 200).await;
    world.pass(130).await;
    world.want("h1", Switch::On, "i-1").await;
    world.until("h1", Phase::Serving, 300).await;
    let bursts = world.outside.state().count("h1", PowerAction::On);
    assert!((2..=5).contains(&bursts), "repeated every 30s until it joins: {bursts}");
    // Its agent takes the token, the network falls silent, and that is off.
    world.pass(700).await;
    world.want("h1", Switch::Off, "i-off").await;
    world.until("h1", Phase::Idle, 300).await;
    world.pass(900).await;
    world.want("h1", Switch::On, "i-3").await;
    world.until("h1", Phase::Serving, 300).await;
    // Its kernel hangs: it never says goodbye, and nothing can force it.
    world.pass(700).await;
    world.outside.state().machines.get_mut("h1").unwrap().ignores_acpi = true;
    world.want("h1", Switch::Off, "i-2").await;
    world.until("h1", Phase::Backoff, 600).await;
    assert!(is_true(&world.status("h1").await.conditions, ConditionType::CannotForceOff));
}

#[tokio::test(start_paused = true)]
async fn the_second_driver_is_remembered_for_a_while_and_the_first_comes_back() {
    let world = by_redfish_or_ipmi().await;
    world.until("h1", Phase::Idle, 120).await;
    world.pass(130).await;
    world.outside.state().machines.get_mut("h1").unwrap().silent.insert("redfish");
    world.want("h1", Switch::On, "i-1").await;
    world.until("h1", Phase::Serving, 300).await;
    let fallback = world.status("h1").await.driver_fallback.expect("remembered");
    assert_eq!((fallback.index, fallback.driver), (1, DriverKind::Ipmi));
    assert!(fallback.reason.contains("no route"), "{}", fallback.reason);
    let drivers: Vec<_> = world.outside.state().calls.iter().map(|call| call.2.to_string()).collect();
    assert_eq!(drivers, ["ipmi"], "the power call takes the way that answers");
    world.outside.state().machines.get_mut("h1").unwrap().silent.clear();
    world.pass(500).await;
    assert_eq!(world.status("h1").await.driver_fallback, None);
}

/// It boots from there again and again, and somebody should know why.
#[tokio::test(start_paused = true)]
async fn a_boot_device_that_stays_for_every_boot_is_in_the_history() {
    for keeps in [false, true] {
        let world = World::new().await;
        world.register("h1", |spec| spec.boot_profile = Some("pxe-once".into())).await;
        world.outside.state().machines.get_mut("h1").unwrap().keeps_boot = keeps;
        world.until("h1", Phase::Idle, 120).await;
        world.pass(130).await;
        world.want("h1", Switch::On, "i-on").await;
        world.until("h1", Phase::Serving, 300).await;
        let events = world.events("h1").await.events;
        let told = events.iter().filter(|event| event.message.contains("for every boot")).count();
        assert_eq!(told, usize::from(keeps), "{events:?}");
    }
}

/// A BMC that cannot do what a host needs, with another driver behind it that can.
#[tokio::test(start_paused = true)]
async fn a_driver_that_is_not_able_leaves_it_to_the_next() {
    for second in [DriverKind::Ipmi, DriverKind::Agent] {
        let world = World::new().await;
        world
            .register("h1", |spec| {
                let third = DriverSpec::new(DriverKind::Ipmi);
                spec.drivers = vec![DriverSpec::new(DriverKind::Redfish), DriverSpec::new(second)];
                spec.drivers.extend((second != DriverKind::Ipmi).then_some(third));
                spec.boot_profile = Some("pxe-once".into());
            })
            .await;
        {
            let mut state = world.outside.state();
            let unable = &mut state.machines.get_mut("h1").unwrap().unable;
            unable.extend([("redfish", "graceful-off"), ("redfish", "boot")]);
        }
        world.until("h1", Phase::Idle, 120).await;
        world.pass(130).await;
        world.want("h1", Switch::On, "i-on").await;
        world.until("h1", Phase::Serving, 300).await;
        let status = world.status("h1").await;
        assert_eq!(status.failures, [], "no strike for what a driver cannot do");
        assert_eq!(world.outside.state().boots, [muster_model::power::DriverKind::Ipmi]);
        world.pass(700).await;
        world.want("h1", Switch::Off, "i-off").await;
        world.until("h1", Phase::Idle, 300).await;
        let state = world.outside.state();
        let ways: Vec<_> =
            state.calls.iter().map(|(_, _, by, order)| format!("{by} {}", order.action)).collect();
        assert_eq!(ways, ["redfish on".to_owned(), format!("{second} graceful-off")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_by_hand_holds_and_maintenance_stops_everything() {
    let world = World::new().await;
    world.idle("h1").await;
    world.respec("h1", |spec| spec.power_state = Some(Switch::On)).await;
    world.until("h1", Phase::Serving, 300).await;
    world.want("h1", Switch::Off, "i-off").await;
    world.pass(1_200).await;
    assert_eq!(world.phase("h1").await, Some(Phase::Serving), "a person outranks the autoscaler");
    world
        .respec("h1", |spec| {
            spec.power_state = None;
            spec.admin = muster_model::host::Admin::Maintenance;
        })
        .await;
    world.pass(1_200).await;
    assert_eq!(world.phase("h1").await, Some(Phase::Serving), "nothing acts under maintenance");
    world.respec("h1", |spec| spec.admin = muster_model::host::Admin::Normal).await;
    world.pass(1_200).await;
    assert_eq!(world.phase("h1").await, Some(Phase::Serving), "the planner wanted it 40 minutes ago");
    world.want("h1", Switch::Off, "i-off-again").await;
    world.until("h1", Phase::Idle, 300).await;
}

#[tokio::test(start_paused = true)]
async fn a_freeze_stops_every_effect_at_once() {
    let world = World::new().await;
    world.serving("h1").await;
    world.pod("web-1", "h1", 10);
    let global = |freeze: &str| serde_json::json!({ "freeze": freeze });
    world.put(muster_model::host::keys::GLOBAL_CONFIG.into(), global("frozen")).await;
    world.want("h1", Switch::Off, "i-off").await;
    world.pass(600).await;
    let state = world.outside.state();
    assert_eq!((state.evictions, state.calls.len(), state.cordon("h1")), (0, 1, (false, None)));
    drop(state);
    world.put(muster_model::host::keys::GLOBAL_CONFIG.into(), global("none")).await;
    // The planner wanted it before the freeze and does not count on it any more: it asks again if it still can go.
    world.pass(600).await;
    assert_eq!((world.phase("h1").await, world.outside.state().evictions), (Some(Phase::Serving), 0));
    world.want("h1", Switch::Off, "i-off-again").await;
    world.until("h1", Phase::Idle, 300).await;
}

/// A self-test of ten minutes is slow, not dead: nothing fails before its deadline.
#[tokio::test(start_paused = true)]
async fn bmctl_a_boot_of_ten_minutes_is_no_failure() {
    let world = World::new().await;
    world.idle("h1").await;
    world.pass(130).await;
    world.outside.state().machines.get_mut("h1").unwrap().boot = Some(muster_model::Duration::from_mins(10));
    world.want("h1", Switch::On, "i-1").await;
    world.until("h1", Phase::Serving, 900).await;
    assert_eq!(world.outside.state().calls.len(), 1, "one power-on and nothing else");
    let told = world.events("h1").await.events;
    assert!(told.iter().all(|event| !event.message.contains("failed")), "{told:#?}");
}

/// What a BMC says of a boot is written down when it changes, and what it said of an earlier boot counts for nothing.
#[tokio::test(start_paused = true)]
async fn the_boot_progress_of_a_bmc_is_kept_with_its_time() {
    let world = World::new().await;
    world.idle("h1").await;
    world.pass(130).await;
    world.outside.state().machines.get_mut("h1").unwrap().stage = Some("memory-test");
    assert_eq!(world.status("h1").await.boot_progress, None, "a machine that is off does not boot");
    let told = async |stage: &str, id: &str| {
        let begun = world.outside.clock.now();
        world.want("h1", Switch::On, id).await;
        let mut progress = None;
        for _ in 0..120 {
            world.pass(1).await;
            progress = world.status("h1").await.boot_progress.filter(|one| one.at >= begun);
            if progress.as_ref().is_some_and(|one| one.stage == stage) {
                break;
            }
        }
        progress.map(|one| (one.stage, one.driver, one.at))
    };
    let first = told("memory-test", "i-1").await.expect("the first stage");
    assert_eq!((first.0.as_str(), first.1), ("memory-test", DriverKind::Redfish));
    world.pass(30).await;
    let again = world.status("h1").await.boot_progress.unwrap();
    assert_eq!(again.at, first.2, "the same is not written again");
    world.until("h1", Phase::Serving, 300).await;
    world.pass(700).await;
    world.want("h1", Switch::Off, "i-2").await;
    world.until("h1", Phase::Idle, 300).await;
    let before = world.status("h1").await.boot_progress.unwrap();
    world.pass(900).await;
    assert_eq!(world.status("h1").await.boot_progress.as_ref(), Some(&before));
    // The next boot begins anew, though its first stage may be the one that was told last.
    world.outside.state().machines.get_mut("h1").unwrap().stage = Some("os-running");
    let second = told("os-running", "i-3").await.expect("the stage of this boot");
    assert!(second.2 > before.at);
}

/// Drift row 7: a machine that somebody else switched on while its pool was at its maximum stays cordoned and is no part of the
/// pool; when another leaves, it is adopted.
#[tokio::test(start_paused = true)]
async fn a_surplus_host_is_adopted_when_its_pool_has_room() {
    let world = World::new().await;
    for name in ["h1", "h2", "h3"] {
        world.serving(name).await;
    }
    world.idle("h4").await;
    world.pass(130).await;
    world.outside.state().pool_max = Some(3);
    {
        let now = muster_model::Clock::now(&*world.outside.clock);
        let mut state = world.outside.state();
        let machine = state.machines.get_mut("h4").unwrap();
        (machine.on, machine.turned_at, machine.boots) = (true, now, machine.boots + 1);
    }
    world.until("h4", Phase::Degraded, 600).await;
    world.pass(600).await;
    assert!(is_true(&world.status("h4").await.conditions, ConditionType::Surplus));
    assert_eq!(world.phase("h4").await, Some(Phase::Degraded), "three serve, and three may");
    assert!(world.outside.state().cordon("h4").0);
    world.want("h1", Switch::Off, "i-off").await;
    world.until("h1", Phase::Idle, 300).await;
    world.until("h4", Phase::Serving, 120).await;
    world.pass(60).await;
    let status = world.status("h4").await;
    assert!(!is_true(&status.conditions, ConditionType::Surplus));
    assert!(!world.outside.state().cordon("h4").0, "it takes pods");
}
