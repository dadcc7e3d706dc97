//! What holds for every state and every evidence, and for every way to die.

use muster_engine::lifecycle::{
    Advice, AgentView, BootNeed, BootProgress, Cordon, Deletion, DriverView, Effect, EffectKind, Evidence,
    Freeze, Goodbye, Hello, HostState, Leadership, NodeSeen, NodeView, Outcome, Performed, PodsView, Repeat,
    Step, TroubleClass, step,
};
use muster_model::{
    Duration, Known, Timestamp,
    host::{
        Acknowledgement, Admin, BlockCause, ConditionType, DriverKind, Hold, HostPolicy, NodeAtOff, OnReset,
        OnUnexpectedOff, OnUnexpectedOn, OpKind, PendingEffect, Permission, Phase, Power, PowerAction,
        PowerCall, PowerReading, Presence, PresenceReading, Quarantine, Switch, TestStage, is_true,
    },
};
use proptest::prelude::*;

use crate::world::{Crash, World, at, evidence, host, intent, known, node, settings, trouble, unknown};

const NOW: i64 = 10_000;

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![NOW - 5000..NOW + 200, NOW - 100..NOW + 10, Just(NOW)]
}

fn maybe_time() -> impl Strategy<Value = Option<Timestamp>> {
    proptest::option::of(time().prop_map(at))
}

fn power() -> impl Strategy<Value = Power> {
    prop_oneof![Just(Power::On), Just(Power::Off), Just(Power::TurningOn), Just(Power::TurningOff)]
}

fn call() -> impl Strategy<Value = PowerCall> {
    let driver = 0_usize..3;
    prop_oneof![
        driver.clone().prop_map(|driver| PowerCall::SetBoot { driver }),
        driver.clone().prop_map(|driver| PowerCall::PowerOn { driver, reset: OnReset::On }),
        driver.clone().prop_map(|driver| PowerCall::PowerOn { driver, reset: OnReset::PushPowerButton }),
        driver.clone().prop_map(|driver| PowerCall::WolBurst { driver }),
        driver.clone().prop_map(|driver| PowerCall::GracefulOff { driver }),
        driver.clone().prop_map(|driver| PowerCall::ForceOff { driver }),
        driver.prop_map(|driver| PowerCall::PowerCycle { driver }),
    ]
}

prop_compose! {
    fn any_state()(
        phase in 0_usize..19, keep_op in any::<bool>(), extra_op in any::<bool>(),
        op_kind in 0_u8..4, attempts in 0_u32..5, force_offs in 0_u32..4, flags in any::<[bool; 6]>(),
        op_times in [maybe_time(), maybe_time(), maybe_time(), maybe_time(), maybe_time(), maybe_time()],
        pending in proptest::option::of((call(), time())), failed in any::<bool>(), stage in 0_usize..5,
        since in time(), deadline in maybe_time(), reading in proptest::option::of((power(), time())),
        presence in proptest::option::of((any::<bool>(), time())),
        stamps in [maybe_time(), maybe_time(), maybe_time(), maybe_time(), maybe_time(), maybe_time(), maybe_time(), maybe_time()],
        more in [maybe_time(), maybe_time(), maybe_time(), maybe_time()],
        action in proptest::option::of((0_usize..4, time())),
        boots in any::<[bool; 3]>(), starts in 0_usize..4, blocked in any::<bool>(), quarantine in any::<bool>(),
    ) -> HostState {
        let mut state = host(Phase::ALL[phase]);
        if extra_op {
            state.op.get_or_insert_with(|| host(Phase::Stopping).op.expect("an operation"));
        }
        if !keep_op && !extra_op {
            state.op = None;
        }
        if let Some(op) = state.op.as_mut() {
            op.kind = [OpKind::On, OpKind::Off, OpKind::Cycle, OpKind::SelfTest][usize::from(op_kind)];
            (op.attempts, op.force_offs) = (attempts, force_offs);
            [op.boot_set, op.os_seen, op.adopted, op.cancelling, op.released, op.cycled] = flags;
            [op.boot_deadline, op.drain_deadline, op.power_requested_at, op.last_sent_at, op.asked_off_at, op.stage_deadline] = op_times;
            op.failed = failed.then(|| "NeverJoined".to_owned());
            op.stage = [None, Some(TestStage::PowerOn), Some(TestStage::Boot), Some(TestStage::PowerOff), Some(TestStage::ForceOff)][stage];
            op.pending = pending.map(|(call, when)| PendingEffect { seq: 1, call, at: at(when), before: None });
            op.effects = 1;
        }
        let status = &mut state.status;
        status.phase_since = at(since);
        status.deadline = deadline;
        status.power = reading.map_or_else(|| unknown(at(NOW)), |(power, since)| {
            known(PowerReading { power, driver: DriverKind::Redfish, since: at(since) }, at(since))
        });
        status.presence = presence.map(|(answers, since)| PresenceReading {
            presence: if answers { Presence::Answers } else { Presence::Silent }, since: at(since),
        });
        [status.off_proved_at, status.serving_since, status.off_since, status.not_ready_since, status.retry_at,
         status.held_until, status.unexpected_on_since, status.drain_retry_at] = stamps;
        [status.paused_since, status.wake_proved_at, status.boot_time, status.acknowledged] = more;
        if let Some((action, when)) = action {
            status.last_power_action = Some([PowerAction::On, PowerAction::GracefulOff, PowerAction::ForceOff, PowerAction::Cycle][action]);
            status.power_action_time = Some(at(when));
        }
        status.boot_id_at_off = boots[0].then(|| "boot-1".to_owned());
        status.cordoned_by = boots[1].then(|| "h1-1".to_owned());
        status.bmc_reachable = boots[2];
        status.starts = (0..starts).map(|n| at(NOW - 4000 * i64::try_from(n).expect("small"))).rev().collect();
        if blocked {
            status.bmc_blocked = Some(muster_model::host::BmcBlocked {
                cause: BlockCause::CredentialsRefused, message: "401".into(), since: at(0), credential_version: 1, driver: None,
                seen_key: None,
            });
        }
        if quarantine {
            status.quarantine = Some(Quarantine { since: at(0), reason: "NeverJoined".into(), probation_at: at(NOW - 1), failed_tests: 1 });
        }
        state
    }
}

fn any_node() -> impl Strategy<Value = Known<NodeView>> {
    let seen = (any::<[bool; 5]>(), proptest::option::of(time()), 0_usize..3, any::<bool>(), time())
        .prop_map(|(flags, lease, cordon, boot, when)| {
            let node = NodeSeen {
                boot_id: Some(if boot { "boot-1" } else { "boot-2" }.to_owned()),
                ready: flags[0],
                lease_renewed: lease.map(at),
                cordon: [Cordon::None, Cordon::Ours { op: "h1-1".into() }, Cordon::Foreign][cordon].clone(),
                startup_taint: flags[1],
                off_taint: flags[2],
                out_of_service: flags[3],
                missing: flags[4].then(|| "nvidia.com/gpu".to_owned()),
                ..node(at(NOW))
            };
            known(NodeView::Present(node), at(when))
        });
    prop_oneof![3 => seen, 1 => time().prop_map(|when| known(NodeView::Absent, at(when))), 1 => Just(unknown(at(NOW)))]
}

fn any_pods() -> impl Strategy<Value = Known<PodsView>> {
    prop_oneof![
        2 => Just(known(PodsView::default(), at(NOW))),
        2 => (0_u32..3, 0_u32..3, 0_u32..2, time()).prop_map(|(evictable, terminating, protected, when)| {
            known(PodsView { evictable, terminating, protected, ..PodsView::default() }, at(when))
        }),
        1 => Just(known(PodsView { guarded: Some("etcd".into()), ..PodsView::default() }, at(NOW))),
        1 => Just(unknown(at(NOW))),
    ]
}

prop_compose! {
    fn any_evidence()(
        drivers in proptest::collection::vec(0_usize..6, 0..4), policy in any::<[bool; 6]>(), choices in [0_usize..3, 0..2, 0..3, 0..3, 0..4, 0..6],
        hold in proptest::option::of(maybe_time()), manual in 0_usize..3, ack in maybe_time(), want in 0_usize..3,
        reading in proptest::option::of((power(), time())), bmc in 0_usize..4, presence in proptest::option::of((any::<bool>(), time())),
        hello in maybe_time(), goodbye in maybe_time(), progress in proptest::option::of((any::<bool>(), time())),
        node in any_node(), pods in any_pods(), pool in any::<[bool; 2]>(), pend in 0_u32..4, lease in 0_u64..80,
    ) -> Evidence {
        let mut seen = evidence(at(NOW));
        let kinds = [DriverKind::Redfish, DriverKind::Ipmi, DriverKind::Wol, DriverKind::Agent, DriverKind::Webhook, DriverKind::DryRun];
        let allow = |yes: bool| if yes { Permission::Allowed } else { Permission::Refused };
        seen.settings.drivers = drivers.iter().map(|kind| DriverView::full(kinds[*kind])).collect();
        seen.settings.policy = HostPolicy {
            on_unexpected_off: [OnUnexpectedOff::Hold, OnUnexpectedOff::Restart, OnUnexpectedOff::Adopt][choices[0]],
            on_unexpected_on: [OnUnexpectedOn::Adopt, OnUnexpectedOn::EnforceOff][choices[1]],
            node_at_off: [NodeAtOff::KeepTainted, NodeAtOff::Delete, NodeAtOff::Leave][choices[2]],
            on_node_deleted: if policy[4] { muster_model::host::OnNodeDeleted::StandDown } else { muster_model::host::OnNodeDeleted::Wait },
            force_off: allow(policy[0]), cycle_lost: allow(policy[1]), out_of_service: allow(policy[2]), reset_bmc: allow(policy[3]),
            quarantine_after: 1 + u32::from(policy[4]) * 2, max_cycles_per_day: 3,
        };
        seen.settings.boot = if policy[5] { BootNeed::Profile } else { BootNeed::AsItIs };
        seen.settings.admin = [Admin::Normal, Admin::Normal, Admin::Maintenance][choices[3]];
        seen.deletion = [Deletion::None, Deletion::Requested, Deletion::RequestedWithPowerOff, Deletion::Forced][if choices[4] == 3 { choices[0] } else { 0 }];
        seen.freeze = [Freeze::None, Freeze::None, Freeze::None, Freeze::None, Freeze::AllOn, Freeze::Frozen][choices[5]];
        seen.settings.hold = hold.map(|until| Hold { by: "ann".into(), reason: "disk".into(), until });
        seen.settings.manual = [None, Some(Switch::On), Some(Switch::Off)][manual];
        seen.settings.acknowledgement = ack.map(|at| Acknowledgement { by: "ann".into(), reason: "seen".into(), at });
        seen.intent = match want { 0 => None, 1 => intent(Switch::On, "i-9"), _ => intent(Switch::Off, "i-9") };
        seen.leadership = Leadership::Leader { epoch: 9, lease_left: Duration::from_secs(lease) };
        seen.power = reading.map_or_else(|| unknown(at(NOW)), |(power, when)| crate::world::seen_power(power, at(when)));
        seen.bmc = match bmc {
            0 => seen.bmc,
            1 => trouble(TroubleClass::Unreachable, 3, at(NOW)),
            2 => trouble(TroubleClass::NotTried, 0, at(NOW)),
            _ => trouble(TroubleClass::Blocked(BlockCause::CertificateMismatch), 1, at(NOW)),
        };
        seen.presence = presence.map_or_else(|| unknown(at(NOW)), |(answers, when)| known(if answers { Presence::Answers } else { Presence::Silent }, at(when)));
        seen.agent = AgentView {
            hello: hello.map(|at| Hello { boot_id: "boot-2".into(), at }),
            goodbye: goodbye.map(|at| Goodbye { op: "h1-1".into(), at }),
        };
        seen.boot_progress = progress.map(|(os, when)| BootProgress { stage: "POST".into(), os, at: at(when) });
        (seen.node, seen.pods) = (node, pods);
        (seen.pool.below_max, seen.pool.last_there) = (pool[0], pool[1].then(|| "zone z1".into()));
        seen.pool.would_pend = if pend == 3 { unknown(at(NOW)) } else { known(pend, at(NOW)) };
        seen
    }
}

fn readable(seen: &Evidence) -> bool {
    seen.settings.drivers.iter().any(|driver| driver.abilities.read_power)
}

fn is_old(when: Timestamp) -> bool {
    at(NOW).since(when) > Duration::from_mins(3)
}

/// Rules that no step may break, written without the machine's own helpers.
fn check(state: &HostState, seen: &Evidence, done: &Step) -> Result<(), TestCaseError> {
    prop_assert!(done.reason.contains(|c: char| c.is_ascii_digit()), "no number: {}", done.reason);
    prop_assert_eq!(done.state.status.state, done.state.status.phase.state());
    let calls: Vec<_> = done
        .effects
        .iter()
        .filter_map(|effect| match effect.kind {
            EffectKind::Power(call) => Some((call, effect)),
            _ => None,
        })
        .collect();
    prop_assert!(calls.len() <= 1, "one call at a time: {:?}", calls);
    for (call, effect) in &calls {
        prop_assert_eq!(effect.repeat == Repeat::AtMostOnce, !call.is_repeatable());
        prop_assert_eq!(seen.freeze == Freeze::Frozen, false);
        prop_assert_eq!(seen.settings.admin, Admin::Normal);
        if call.is_off() {
            let Known::Value { value: pods, at: when } = &seen.pods else {
                return Err(TestCaseError::fail(format!("{call:?} with unknown pods")));
            };
            prop_assert!(pods.total() == 0 && !is_old(*when), "{:?} with {:?}", call, pods);
            prop_assert!(pods.guarded.is_none(), "{:?} with {:?}", call, pods);
        }
        let switches = !matches!(call, PowerCall::SetBoot { .. } | PowerCall::ResetBmc { .. });
        if switches && readable(seen) {
            let Known::Value { value, at: when } = &seen.power else {
                return Err(TestCaseError::fail(format!("{call:?} with unknown power")));
            };
            prop_assert!(!is_old(*when), "{:?} on an old reading", call);
            let wanted = if call.is_off() { Power::On } else { Power::Off };
            let hangs = matches!(call, PowerCall::ForceOff { .. }) && value.power == Power::TurningOff;
            prop_assert!(hangs || value.power == wanted, "{:?} at {}", call, value.power);
            prop_assert!(effect.expects == Some(value.power) || effect.expects.is_none(), "{:?}", effect);
        }
        if !call.is_repeatable() && !matches!(call, PowerCall::ResetBmc { .. }) {
            // It has a number that its operation never had: nothing is sent again under an old one.
            let reference = effect.op.as_ref().expect("a power call belongs to an operation");
            let used = state.op.as_ref().filter(|op| op.id == reference.id).map_or(0, |op| op.effects);
            prop_assert!(
                reference.seq.is_some_and(|seq| seq > used),
                "{:?} sent again under its number",
                call
            );
        }
    }
    // One that nobody has asked to wake goes back to where it was.
    let asked = state.op.as_ref().is_some_and(|op| op.power_requested_at.is_some());
    let was_off = match state.phase() {
        Phase::Idle | Phase::Reserved => true,
        Phase::PreparingBoot => !asked,
        _ => false,
    };
    if done.state.phase() == Phase::Idle && !was_off {
        let lease_silent = match &seen.node {
            Known::Value { value: NodeView::Absent, at: when } => !is_old(*when),
            Known::Value { value: NodeView::Present(node), at: when } => {
                !is_old(*when)
                    && node.lease_renewed.is_none_or(|renewed| when.since(renewed) > Duration::from_secs(40))
            }
            Known::Unknown { .. } => false,
        };
        prop_assert!(lease_silent, "idle with a live or unknown lease: {}", done.reason);
        // Proved off before, and asked for nothing since: whoever is to say that it is on has to look there.
        let by_others = state.phase() == Phase::Backoff
            && state.status.off_since.is_some()
            && is_true(&done.state.status.conditions, ConditionType::UnexpectedOn);
        if by_others {
            prop_assert!(calls.is_empty(), "{:?}", calls);
        } else if readable(seen) {
            let off = matches!(&seen.power, Known::Value { value, at: when } if value.power == Power::Off && !is_old(*when));
            prop_assert!(off, "idle without a reading of off: {}", done.reason);
        } else {
            let silent = matches!(&seen.presence, Known::Value { value: Presence::Silent, .. });
            prop_assert!(silent, "idle while it may answer: {}", done.reason);
        }
    }
    if done.effects.iter().any(|effect| effect.kind == EffectKind::OutOfServiceTaint) {
        let off = matches!(&seen.power, Known::Value { value, .. } if value.power == Power::Off);
        prop_assert!(!readable(seen) || off, "taint without proof: {}", done.reason);
    }
    Ok(())
}

/// The generators are large: they get a stack of their own.
fn with_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(test).expect("a thread");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Total, deterministic, and never against the rules, on any state and evidence.
#[test]
fn any_state_and_evidence() {
    with_stack(|| {
        proptest!(ProptestConfig::with_cases(3000), |(state in any_state(), seen in any_evidence())| {
            let done = step(&state, &seen, at(NOW));
            prop_assert_eq!(&step(&state, &seen, at(NOW)), &done);
            check(&state, &seen, &done)?;
            // What is stored can be read back.
            let text = serde_json::to_string(&done.state).expect("a state is JSON");
            prop_assert_eq!(serde_json::from_str::<HostState>(&text).expect("and back"), done.state);
        });
    });
}

/// Whoever does not lead does nothing, and what is frozen has no effect.
#[test]
fn no_effects_without_leave() {
    with_stack(|| {
        proptest!(ProptestConfig::with_cases(1000), |(state in any_state(), seen in any_evidence())| {
            let mut seen = seen;
            seen.freeze = Freeze::Frozen;
            prop_assert_eq!(step(&state, &seen, at(NOW)).effects, vec![]);
            seen.leadership = Leadership::Follower;
            let done = step(&state, &seen, at(NOW));
            prop_assert_eq!((done.state, done.effects), (state, vec![]));
        });
    });
}

/// BM-7.30: in a pool that only gives advice nothing is switched, and no node is changed, unless a person asked.
#[test]
fn advice_alone_has_no_effects() {
    with_stack(|| {
        proptest!(ProptestConfig::with_cases(3000), |(state in any_state(), seen in any_evidence())| {
            let (mut state, mut seen) = (state, seen);
            let advice = Advice { why: "its pool 1 advises".into(), remedy: "muster enable pool 1".into() };
            seen.pool.advice = Some(advice);
            (seen.freeze, seen.deletion, seen.settings.manual) = (Freeze::None, Deletion::None, None);
            if let Some(op) = state.op.as_mut().filter(|op| op.cause.is_by_hand()) {
                op.cause = muster_model::host::Cause::Drift;
            }
            let done = step(&state, &seen, at(NOW));
            check(&state, &seen, &done)?;
            let acts = |one: &Effect| matches!(one.kind, EffectKind::Power(_) | EffectKind::Reserve) || one.kind.changes_node();
            prop_assert!(!done.effects.iter().any(acts), "{:?}: {}", done.effects, done.reason);
            let begun = |state: &HostState| state.op.as_ref().map(|op| op.id.clone());
            prop_assert!(begun(&done.state).is_none() || begun(&done.state) == begun(&state), "{}", done.reason);
        });
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// Under silence every phase with a deadline is left, and nothing is switched.
    #[test]
    fn silence_ends_every_wait(phase in 0_usize..19, want in 0_usize..3) {
        let phase = Phase::ALL[phase];
        let mut state = host(phase);
        let rests = matches!(
            phase,
            Phase::Serving | Phase::Degraded | Phase::Idle | Phase::Backoff | Phase::Quarantined
        );
        state.status.deadline = (!rests).then(|| at(600));
        let (mut now, mut left) = (0, false);
        while now < 40_000 {
            let mut seen = evidence(at(now));
            seen.settings = settings();
            seen.power = unknown(at(now));
            seen.bmc = trouble(TroubleClass::Unreachable, 2, at(now));
            // A lost host waits for its cluster: while that is silent, nobody knows whether its node came back.
            seen.node = match state.phase() {
                Phase::Lost => known(NodeView::Absent, at(now)),
                _ => unknown(at(now)),
            };
            seen.pods = unknown(at(now));
            seen.pool.would_pend = unknown(at(now));
            seen.intent = match want { 0 => None, 1 => intent(Switch::On, "i-1"), _ => intent(Switch::Off, "i-1") };
            let done = step(&state, &seen, at(now));
            let switched = done.effects.iter().any(|effect| matches!(effect.kind, EffectKind::Power(_)));
            prop_assert!(!switched, "{}: {}", phase, done.reason);
            left |= done.state.phase() != phase;
            state = done.state;
            now += 30;
        }
        // Serving has no deadline to keep; error and rest are where waits end.
        prop_assert!(left || rests, "{} was never left", phase);
        let stable = state.status.deadline.is_none() || matches!(state.phase(), Phase::Serving | Phase::Degraded | Phase::Idle | Phase::Quarantined);
        prop_assert!(stable, "{} ended in {}", phase, state.phase());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Dying anywhere, once or often, sends no call twice that must not be, and still ends well.
    #[test]
    fn crashes_at_any_point(on in any::<bool>(), crashes in proptest::collection::vec((1_u32..14, 0_usize..3), 1..4)) {
        let mut world = if on { World::idle() } else { World::serving() };
        let (want, goal) = if on { (Switch::On, Phase::Serving) } else { (Switch::Off, Phase::Idle) };
        world.want(want, "i-1");
        let mut crashes = crashes.into_iter();
        for _ in 0..400 {
            if world.crash.is_none_or(|(when, _)| when < world.steps) {
                if world.crash.is_some() {
                    world.seen.performed = Performed::Nothing;
                }
                world.crash = crashes.next().map(|(gap, point)| {
                    (world.steps + gap, [Crash::Unstored, Crash::Unperformed, Crash::Unreported][point])
                });
            }
            world.run(5);
            let done = world.state.phase() == goal;
            if done {
                break;
            }
        }
        prop_assert_eq!(world.state.phase(), goal, "{:?}", world.reasons.last());
        // The machine was switched on once or not at all, whatever died.
        prop_assert_eq!(world.count("power-on"), usize::from(on), "{:?}", world.calls);
        prop_assert_eq!(world.machine.boots, 1);
        let mut once: Vec<_> = world.calls.iter().filter(|(_, _, _, call)| !call.is_repeatable()).map(|(_, op, seq, _)| (op, seq)).collect();
        let all = once.len();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), all);
        // Power was never taken while pods were there.
        prop_assert!(on || world.pods.total() == 0);
        if world.state.phase() == Phase::Serving {
            world.run(30);
            let node = world.node.as_ref().expect("a node");
            prop_assert!(!node.startup_taint && node.cordon == Cordon::None && node.labels_complete);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A press of the button toggles and a power cycle cuts what runs: whoever dies wherever, neither is sent twice
    /// for the same operation and number, and there is one of them to begin with.
    #[test]
    fn what_must_not_be_repeated_is_sent_once(button in any::<bool>(), crashes in proptest::collection::vec((1_u32..10, 0_usize..3), 0..4)) {
        let mut world = if button { World::idle() } else { World::serving() };
        if button {
            // Its BMC knows no other way.
            world.seen.settings.drivers.truncate(1);
            world.machine.offers = Some(vec![OnReset::PushPowerButton]);
            world.want(Switch::On, "i-1");
        } else {
            world.seen.settings.policy.cycle_lost = Permission::Allowed;
            world.pods.evictable = 0;
            world.machine.boot_secs = None; // its system hangs
        }
        let mut crashes = crashes.into_iter();
        for _ in 0..120 {
            if world.crash.is_none_or(|(when, _)| when < world.steps) {
                if world.crash.is_some() {
                    world.seen.performed = Performed::Nothing;
                }
                world.crash = crashes.next().map(|(gap, point)| {
                    (world.steps + gap, [Crash::Unstored, Crash::Unperformed, Crash::Unreported][point])
                });
            }
            world.run(5);
        }
        let once: Vec<_> = world.calls.iter().filter(|(_, _, _, call)| !call.is_repeatable()).collect();
        let mut numbers: Vec<_> = once.iter().map(|(_, op, seq, _)| (op.clone(), *seq)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        prop_assert_eq!(numbers.len(), once.len(), "{:?}", world.calls);
        if button {
            prop_assert!(once.len() <= 2 && world.machine.boots <= 1 + u32::from(once.len() > 1), "{:?}", world.calls);
        }
    }
}

/// The property above is about something: without a crash there is exactly one such call.
#[test]
fn a_button_is_pressed_and_a_lost_machine_is_cycled() {
    let mut world = World::idle();
    world.seen.settings.drivers.truncate(1);
    world.seen.settings.drivers[0].on_resets = vec![OnReset::PushPowerButton];
    world.want(Switch::On, "i-1").until(Phase::Serving, 400);
    let presses = world.calls.iter().filter(|(_, _, _, call)| !call.is_repeatable()).count();
    assert_eq!((presses, world.machine.boots), (1, 1), "{:?}", world.calls);

    let mut world = World::serving();
    world.seen.settings.policy.cycle_lost = Permission::Allowed;
    world.pods.evictable = 0;
    world.machine.boot_secs = None;
    world.run(600);
    let cycles =
        world.calls.iter().filter(|(_, _, _, call)| matches!(call, PowerCall::PowerCycle { .. })).count();
    assert_eq!(cycles, 1, "{:?}", world.calls);
}

#[test]
fn outcomes_that_nobody_asked_for_change_nothing() {
    let state = host(Phase::Serving);
    let mut seen = evidence(at(0));
    seen.power = crate::world::seen_power(Power::On, at(0));
    seen.node = known(NodeView::Present(node(at(0))), at(0));
    let before = step(&state, &seen, at(0));
    seen.performed = Performed::Ended { op: "other".into(), seq: 9, outcome: Outcome::Accepted };
    assert_eq!(step(&state, &seen, at(0)), before);
}
