//! Limits across hosts, the cost of quiet hosts, and operations as a resource.

use muster_control::{
    hosts::{Withdrawal, cancel, operation_id},
    inventory::{HostChanges, keys::changes},
    registry::{Operation, OperationState},
};
use muster_model::{
    Clock as _, Duration,
    host::{
        ConditionType, DriverKind, DriverSpec, HostMetrics, Phase, PoolHostConfig, Switch, find_condition,
        keys::{self, HostRecord, PoolRecord},
    },
    power::PowerAction,
    rack::Rack,
};

use crate::world::World;

#[tokio::test(start_paused = true)]
async fn ops_r15_forty_hosts_at_once_stay_within_every_limit() {
    let world = World::new().await;
    let rack = Rack { watt_cap: Some(2_000), start_limit: 3, ..Rack::new("r1") };
    world.outside.state().racks.insert("r1".into(), rack);
    for number in 0..40 {
        let rack = if number < 10 { "r1" } else { "r2" };
        world
            .register(&format!("h{number}"), |spec| {
                spec.rack = Some(rack.into());
                spec.max_watts = Some(300);
            })
            .await;
    }
    for number in 0..40 {
        world.until(&format!("h{number}"), Phase::Idle, 200).await;
    }
    world.pass(130).await;
    for number in 0..40 {
        world.want(&format!("h{number}"), Switch::On, &format!("i-{number}")).await;
    }
    world.pass(4).await;
    let mut waiting = 0;
    for number in 0..40 {
        waiting += u32::from(world.status(&format!("h{number}")).await.reason.starts_with("waits: "));
    }
    assert!(waiting > 20, "{waiting} hosts say what they wait for");
    world.pass(900).await;
    let state = world.outside.state();
    let mut starts: Vec<_> = state.calls.iter().map(|(at, ..)| at.millis()).collect();
    starts.sort_unstable();
    // Two in a second, and a call takes its time: three may land in one.
    assert!(starts.windows(5).all(|five| five[4] - five[0] >= 1_000), "{starts:?}");
    let on = |range: std::ops::Range<u32>| range.filter(|n| state.machines[&format!("h{n}")].on).count();
    assert_eq!(on(0..10), 6, "six times 300 W are within 2000 W");
    assert_eq!(on(10..40), 30);
    drop(state);
    let mut reasons = Vec::new();
    for number in 0..10 {
        let status = world.status(&format!("h{number}")).await;
        if status.phase == Phase::Idle {
            reasons.push(status.reason);
        }
    }
    let text = "waits: rack r1 may draw 2000 W, 1800 W are taken and it may take 300 W more";
    assert!(reasons.iter().all(|reason| reason == text) && reasons.len() == 4, "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn quiet_hosts_are_polled_evenly_and_not_written() {
    let world = World::new().await;
    for number in 0..60 {
        world.register(&format!("h{number}"), |_| {}).await;
    }
    for number in 0..60 {
        world.until(&format!("h{number}"), Phase::Idle, 200).await;
    }
    world.pass(600).await;
    let status = |number: u32| keys::host(&format!("h{number}"), HostRecord::Status);
    let mut before = Vec::new();
    for number in 0..60 {
        before.push(world.store.get(&status(number)).await.unwrap().unwrap().modified);
    }
    let reads = world.outside.state().reads;
    world.pass(3_000).await;
    for number in 0..60 {
        let after = world.store.get(&status(number)).await.unwrap().unwrap().modified;
        assert_eq!(after, before[usize::try_from(number).unwrap()], "h{number} was written");
    }
    let polled = world.outside.state().reads - reads;
    assert!((540..=720).contains(&polled), "60 hosts, ten polls each: {polled}");
    assert_eq!(world.outside.state().most_in_flight, 1, "one call per BMC");
    let metrics: HostMetrics = world.read(&keys::host("h7", HostRecord::Metrics)).await.expect("metrics");
    assert!(world.outside.clock.now().since(metrics.at) <= Duration::from_secs(330));
}

#[tokio::test(start_paused = true)]
async fn cba_one_slow_bmc_keeps_nobody_waiting() {
    let world = World::new().await;
    for number in 0..20 {
        world.idle(&format!("h{number}")).await;
    }
    world.pass(130).await;
    world.outside.state().machines.get_mut("h0").unwrap().latency = Duration::from_secs(29);
    world.want("h0", Switch::On, "i-0").await;
    world.want("h1", Switch::On, "i-1").await;
    let asked = world.outside.clock.now();
    while world.outside.state().count("h1", PowerAction::On) == 0 {
        world.pass(1).await;
        assert!(world.outside.clock.now().since(asked) < Duration::from_secs(5), "h1 waits for h0");
    }
}

#[tokio::test(start_paused = true)]
async fn operations_are_listed_ended_and_cancelled() {
    let world = World::new().await;
    world.idle("h1").await;
    world.pass(130).await;
    world.want("h1", Switch::On, "i-1").await;
    world.until("h1", Phase::Powered, 60).await;
    let op = world.op("h1").await.unwrap();
    let key = muster_control::registry::keys::operation(operation_id(&op.id));
    let shown: Operation = world.read(&key).await.expect("an operation");
    assert_eq!(
        (shown.kind.as_str(), shown.state, shown.host()),
        ("power-on", OperationState::Running, Some("h1"))
    );
    // Withdrawn in the middle of the boot: the machine goes off again, and the operation says so.
    let at = world.outside.clock.now();
    let withdrawal = Withdrawal { by: "ann", at, reason: Some("the job was called off") };
    cancel(&*world.store, &shown, &withdrawal).await.unwrap();
    let told: HostChanges = world.read(&changes("h1")).await.unwrap();
    let said = told.changes.last().map(|one| (one.by.as_str(), one.verb.as_str(), one.message.clone()));
    let words = format!("operation {} is withdrawn: the job was called off", op.id);
    assert_eq!(said, Some(("ann", "cancel", words)));
    world.until("h1", Phase::Idle, 700).await;
    let ended: Operation = world.read(&key).await.unwrap();
    assert!(ended.done && ended.finished_at.is_some(), "{ended:?}");
    assert!(!world.outside.state().machines["h1"].on);
    let error = cancel(&*world.store, &ended, &withdrawal).await.unwrap_err();
    assert_eq!(error.code(), "NOT_FOUND");
    // Woken again and let go: it succeeds.
    world.pass(900).await;
    world.want("h1", Switch::On, "i-2").await;
    world.until("h1", Phase::Powered, 60).await;
    let op = world.op("h1").await.unwrap();
    world.until("h1", Phase::Serving, 300).await;
    let done: Operation =
        world.read(&muster_control::registry::keys::operation(operation_id(&op.id))).await.unwrap();
    assert_eq!((done.state, done.done), (OperationState::Succeeded, true));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_spec_takes_the_records_with_it_and_touches_nothing() {
    let world = World::new().await;
    world.serving("h1").await;
    let txn = muster_model::store::Txn::new().delete(keys::host("h1", HostRecord::Spec));
    let _ = world.store.commit(txn).await.unwrap();
    world.pass(30).await;
    let left: Vec<_> = world.keys().await.into_iter().filter(|key| key.contains("/h1/")).collect();
    assert_eq!(left, Vec::<String>::new());
    let state = world.outside.state();
    assert!(state.machines["h1"].on && state.calls.len() == 1);
}

/// Demand like the teeth of a saw, six hours long: no machine is worn out by it.
#[tokio::test(start_paused = true)]
async fn ops_r15_a_sawtooth_does_not_wear_machines_out() {
    let world = World::new().await;
    let cap = 3;
    let global = serde_json::json!({ "policy": { "maxCyclesPerDay": cap } });
    world.put(keys::GLOBAL_CONFIG.into(), global).await;
    for name in ["h1", "h2"] {
        world.idle(name).await;
    }
    for tooth in 0..18 {
        let want = if tooth % 2 == 0 { Switch::On } else { Switch::Off };
        for name in ["h1", "h2"] {
            world.want(name, want, &format!("i-{tooth}-{name}")).await;
        }
        world.pass(1_200).await;
    }
    for name in ["h1", "h2"] {
        let starts = world.outside.state().count(name, PowerAction::On);
        assert!((2..=cap).contains(&starts), "{name} was started {starts} times");
    }
}

/// Machines whose system hangs after each boot, in pools that allow a power cycle: they wait for their turn among all power
/// operations, and none is worn out by it.
#[tokio::test(start_paused = true)]
async fn ops_r15_power_cycles_of_lost_nodes_keep_to_the_limits() {
    let world = World::new().await;
    for name in ["h1", "h2"] {
        world.register(name, |spec| spec.pool = format!("pool-of-{name}")).await;
        world.until(name, Phase::Idle, 120).await;
        world.pass(130).await;
        world.want(name, Switch::On, &format!("i-{name}")).await;
        world.until(name, Phase::Serving, 300).await;
    }
    world.pass(1_000).await;
    let limits = serde_json::json!({
        "policy": { "cycleLost": "allowed", "maxCyclesPerDay": 3 }, "maxPowerOperations": 1,
    });
    world.put(keys::GLOBAL_CONFIG.into(), limits).await;
    let hang = |boot: Option<Duration>| {
        let mut state = world.outside.state();
        state.machines.values_mut().for_each(|machine| machine.boot = boot);
    };
    let cycles = || {
        let state = world.outside.state();
        ["h1", "h2"].map(|name| state.count(name, PowerAction::Cycle))
    };
    hang(None);
    for name in ["h1", "h2"] {
        world.until(name, Phase::Lost, 300).await;
    }
    world.pass(30).await;
    assert_eq!(cycles().iter().sum::<usize>(), 1, "one at a time");
    let waits = if cycles()[0] == 0 { "h1" } else { "h2" };
    assert_eq!(world.status(waits).await.reason, "waits: 1 of 1 power operations under way");
    // Each boot helps for a while. The first start and two cycles are three.
    for _ in 0..4 {
        hang(Some(Duration::from_secs(90)));
        world.pass(1_000).await;
        hang(None);
        world.pass(900).await;
    }
    assert_eq!(cycles(), [2, 2]);
    let status = world.status("h1").await;
    let text =
        "its node does not report; 0 power cycles: it was switched on 3 times in 24h, and 3 is the limit";
    let told = find_condition(&status.conditions, ConditionType::NodeLost).map(|one| one.message.as_str());
    assert_eq!(told, Some(text));
}

/// Two hundred at once, in ten racks that may draw what eighteen of their twenty hosts draw: starts keep their pace, and every rack
/// its cap, at every moment. Those that do not fit wait and say why.
#[tokio::test(start_paused = true)]
async fn ops_r15_two_hundred_hosts_at_once_keep_the_pace() {
    let world = World::new().await;
    let global = serde_json::json!({ "maxPowerOperations": 200, "maxPowerOperationsPerRack": 200 });
    world.put(keys::GLOBAL_CONFIG.into(), global).await;
    let rack_of = |number: usize| format!("r{}", number % 10);
    for rack in (0..10).map(rack_of) {
        let made = Rack { watt_cap: Some(18 * 300 + 299), start_limit: 200, ..Rack::new(&rack) };
        world.outside.state().racks.insert(rack, made);
    }
    for number in 0..200 {
        let name = format!("h{number}");
        world.register(&name, |spec| (spec.max_watts, spec.rack) = (Some(300), Some(rack_of(number)))).await;
    }
    for number in 0..200 {
        world.until(&format!("h{number}"), Phase::Idle, 400).await;
    }
    world.pass(130).await;
    for number in 0..200 {
        world.want(&format!("h{number}"), Switch::On, &format!("i-{number}")).await;
    }
    let on_in = |rack: usize| {
        let state = world.outside.state();
        (0..20).filter(|row| state.machines[&format!("h{}", row * 10 + rack)].on).count()
    };
    for _ in 0..240 {
        world.pass(1).await;
        assert!((0..10).all(|rack| on_in(rack) <= 18), "{:?}", (0..10).map(on_in).collect::<Vec<_>>());
    }
    assert_eq!((0..10).map(on_in).collect::<Vec<_>>(), [18; 10]);
    {
        let state = world.outside.state();
        let mut starts: Vec<_> = state.calls.iter().map(|(at, ..)| at.millis()).collect();
        starts.sort_unstable();
        assert_eq!(starts.len(), 180);
        assert!(starts.windows(5).all(|five| five[4] - five[0] >= 1_000), "{starts:?}");
        assert!(state.most_in_flight <= 1, "one call at a time to each BMC");
    }
    let (mut waiting, mut serving) = (Vec::new(), Vec::new());
    for name in (0..20).map(|row| format!("h{}", row * 10)) {
        let status = world.status(&name).await;
        let told = "waits: rack r0 may draw 5699 W, 5400 W are taken and it may take 300 W more";
        match status.phase {
            Phase::Serving => serving.push(name),
            _ if status.reason == told => waiting.push(name),
            phase => panic!("{name} is {phase}: {}", status.reason),
        }
    }
    assert_eq!((serving.len(), waiting.len()), (18, 2));
}

/// A pool that asks for spread keeps the last host of a zone, whoever says in which zone it stands, unless it has more hosts than it
/// may have.
#[tokio::test(start_paused = true)]
async fn the_last_host_of_a_zone_or_rack_stays_while_its_pool_asks_for_spread() {
    let world = World::new().await;
    let spread =
        |zones: bool| PoolHostConfig { rack_spread: !zones, zone_spread: zones, ..Default::default() };
    let config = keys::pool("gpu", PoolRecord::Config);
    world.put(config.clone(), spread(true)).await;
    let rack = Rack { zone: Some("north".into()), ..Rack::new("r1") };
    world.outside.state().racks.insert("r1".into(), rack);
    for (name, rack, zone) in [("h1", "r1", None), ("h2", "r2", Some("north")), ("h3", "r2", Some("south"))] {
        world.serving(name).await;
        world
            .respec(name, |spec| (spec.rack, spec.zone) = (Some(rack.into()), zone.map(str::to_owned)))
            .await;
    }
    world.want("h3", Switch::Off, "i-3").await;
    world.pass(600).await;
    assert_eq!(world.phase("h3").await, Some(Phase::Serving), "the last in zone south");
    world.want("h1", Switch::Off, "i-1").await;
    world.until("h1", Phase::Idle, 300).await; // h2 is left in zone north
    world.want("h2", Switch::Off, "i-2").await;
    world.pass(600).await;
    assert_eq!(world.phase("h2").await, Some(Phase::Serving), "the last in zone north");
    world.put(config.clone(), spread(false)).await;
    // As the planner does, which asks again for what was not taken up within five minutes.
    let ask_again = async |round: u32| {
        for name in ["h2", "h3"] {
            world.want(name, Switch::Off, &format!("{name}-{round}")).await;
        }
    };
    ask_again(1).await;
    let (two, three) = loop {
        world.pass(10).await;
        let phases = (world.phase("h2").await, world.phase("h3").await);
        if phases.0 == Some(Phase::Idle) || phases.1 == Some(Phase::Idle) {
            break phases;
        }
    };
    assert_ne!(two, three, "both stand in rack r2, which keeps one of them");
    world.pass(600).await;
    assert_eq!((world.phase("h2").await, world.phase("h3").await), (two, three));
    world.outside.state().pool_max = Some(0);
    ask_again(2).await;
    world.until("h2", Phase::Idle, 300).await;
    world.until("h3", Phase::Idle, 300).await;
}

/// Servers of one chassis behind one BMC: it gets a moment between the conversations for one and for another, whether they
/// are polls or operations, and each of them comes to its turn.
#[tokio::test(start_paused = true)]
async fn conversations_with_one_bmc_for_several_hosts_lie_apart() {
    for (driver, least) in [(DriverKind::Redfish, 1_000), (DriverKind::Ipmi, 5_000)] {
        let world = World::new().await;
        let names = ["h1", "h2", "h3", "h4"];
        for name in names {
            world
                .register(name, |spec| {
                    spec.mgmt_address = Some("10.0.9.9".parse().unwrap());
                    spec.drivers = vec![DriverSpec::new(driver)];
                })
                .await;
        }
        for name in names {
            world.until(name, Phase::Idle, 300).await;
        }
        world.pass(130).await;
        for (number, name) in names.into_iter().enumerate() {
            world.want(name, Switch::On, &format!("i-{number}")).await;
        }
        for name in names {
            world.until(name, Phase::Serving, 600).await;
        }
        world.pass(700).await;
        for (number, name) in names.into_iter().enumerate() {
            world.want(name, Switch::Off, &format!("o-{number}")).await;
        }
        for name in names {
            world.until(name, Phase::Idle, 900).await;
        }
        let state = world.outside.state();
        let near = state
            .travels
            .windows(2)
            .find(|two| two[0].1 != two[1].1 && two[1].0.since(two[0].0) < Duration::from_millis(least));
        assert_eq!(near, None, "{driver}: two hosts within {least} ms");
    }
}

/// A BMC that serves one host is as quick as it can be: nothing that is asked for waits.
#[tokio::test(start_paused = true)]
async fn an_operation_of_a_host_with_its_own_bmc_waits_for_no_spacing() {
    for driver in [DriverKind::Redfish, DriverKind::Ipmi] {
        let world = World::new().await;
        world.register("h1", |spec| spec.drivers = vec![DriverSpec::new(driver)]).await;
        world.until("h1", Phase::Idle, 120).await;
        world.pass(130).await;
        // Right behind a poll.
        let reads = world.outside.state().reads;
        while world.outside.state().reads == reads {
            world.outside.clock.sleep(Duration::from_millis(50)).await;
        }
        let asked = world.outside.clock.now();
        world.want("h1", Switch::On, "i-1").await;
        while world.outside.state().count("h1", PowerAction::On) == 0 {
            world.outside.clock.sleep(Duration::from_millis(50)).await;
            let took = world.outside.clock.now().since(asked);
            assert!(took <= Duration::from_secs(1), "{driver}: not switched on after {took}");
        }
    }
}

/// Its rack has no watts for it to be switched on again: it rests, whatever was known of it when it went off.
#[tokio::test(start_paused = true)]
async fn a_restart_keeps_to_the_limits_across_hosts() {
    for lost in [false, true] {
        let world = World::new().await;
        world.serving("h1").await;
        world.pass(1_000).await; // it may be started again as far as its own limits go
        world.outside.state().racks.insert("r1".into(), Rack { watt_cap: Some(500), ..Rack::new("r1") });
        world.respec("h1", |spec| spec.rack = Some("r1".into())).await;
        let config = serde_json::json!({ "policy": { "onUnexpectedOff": "restart" } });
        world.put(keys::pool("gpu", PoolRecord::Config), config).await;
        let blind = |world: &World, blind: bool| {
            let mut state = world.outside.state();
            let machine = state.machines.get_mut("h1").unwrap();
            machine.silent = if blind { ["redfish"].into() } else { [].into() };
        };
        {
            let now = world.outside.clock.now();
            let mut state = world.outside.state();
            let machine = state.machines.get_mut("h1").unwrap();
            (machine.on, machine.turned_at) = (false, now);
        }
        if lost {
            blind(&world, true);
            world.until("h1", Phase::Lost, 900).await;
            blind(&world, false);
        }
        world.until("h1", Phase::Idle, 600).await;
        let told: Vec<_> = world.events("h1").await.events.into_iter().map(|event| event.message).collect();
        let why = "it is not switched on again now: waits: ";
        assert!(told.iter().any(|text| text.contains(why)), "{told:#?}");
        world.pass(3_600).await;
        assert_eq!(
            world.outside.state().count("h1", PowerAction::On),
            1,
            "lost {lost}: only the first start"
        );
        assert_eq!(world.intent("h1").await, None, "its pool takes another");
    }
}
