//! Tables over [`build`]: what goes in, what a decision may look at.

use std::sync::Arc;

use muster_engine::snapshot::{HostState, MemberState, Mode, Scope, Stops, Trigger};
use muster_model::{
    Duration, Known, NodePool, Timestamp,
    catalogue::Catalogue,
    cluster::Cluster,
    host::{
        BareMetalNodeSpec, BareMetalNodeStatus, FreezeMode, GlobalConfig, Intent, Phase, PoolHostConfig,
        Switch,
    },
    k8s::{Node, Objects},
    observe::{ClusterView, SetAside},
    pool::PoolContext,
    rack::Rack,
    store::Revision,
    trigger::Finding,
};
use serde_json::{Value, json};

use super::{Asked, Built, HostInput, Inputs, Memory, Observed, PoolInput, TriggerInput, build};

fn at(text: &str) -> Timestamp {
    format!("2026-11-16T{text}Z").parse().unwrap()
}

fn now() -> Timestamp {
    at("02:00:00")
}

fn inputs() -> Inputs {
    let id = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
    let body = json!({"name": "lab", "spec": {"platform": {"type": "baremetal"}}});
    let cluster = Cluster::parse_create(&body).unwrap().value;
    Inputs {
        time_factor: 1,
        now: now(),
        cluster: cluster.into_cluster(id, "lab".parse().unwrap(), "test".into(), now()).into(),
        observed: Observed::View(ClusterView { fresh_at: now(), ..ClusterView::default() }),
        pools: Vec::new(),
        unreadable_pools: Vec::new(),
        hosts: Vec::new(),
        racks: Vec::new(),
        global: GlobalConfig::default(),
        freeze: crate::freeze::Freeze::default(),
        global_fault: None,
        catalogue: std::borrow::Cow::Borrowed(Catalogue::shipped()),
        memory: Memory::default(),
        set_aside: Vec::new(),
    }
}

fn pool(name: &str, spec: Value) -> PoolInput {
    let body = json!({"name": name, "cluster_id": "550e8400-e29b-41d4-a716-446655440000", "spec": spec});
    let draft = NodePool::parse_create(&body, &PoolContext::default()).unwrap().value;
    let id = "123e4567-e89b-12d3-a456-426614174000".parse().unwrap();
    PoolInput {
        object: draft.into_pool(id, "lab".parse().unwrap(), "test".into(), now()).into(),
        desired: 0,
        current: None,
        requested: None,
        triggers: Vec::new(),
        host_config: PoolHostConfig::default(),
    }
}

fn metal() -> PoolInput {
    pool(
        "web",
        json!({"platform": {"type": "baremetal"}, "autoscaling": {"enabled": true, "minNodes": 1, "maxNodes": 4}}),
    )
}

fn host(name: &str, phase: Phase, change: impl FnOnce(&mut HostInput)) -> Arc<HostInput> {
    let body = json!({"powerInterface": "redfish", "mgmtAddress": "10.0.0.7", "bmcCredentials": "c", "pool": "web",
        "resources": {"cpu": "8", "memory": "32Gi"}});
    let mut status = BareMetalNodeStatus::enrolling(at("00:00:00"));
    (status.phase, status.state) = (phase, phase.state());
    status.off_proved_at = (phase == Phase::Idle).then(|| at("00:00:00"));
    let mut input = HostInput {
        name: name.into(),
        spec: Ok(BareMetalNodeSpec::read(&body, "spec").unwrap().value),
        status: Some(Ok(status)),
        op: None,
        intent: None,
        metrics: None,
        spec_version: Revision(1),
        intent_version: None,
    };
    change(&mut input);
    Arc::new(input)
}

fn spec(input: &mut HostInput) -> &mut BareMetalNodeSpec {
    input.spec.as_mut().unwrap()
}

fn status(input: &mut HostInput) -> &mut BareMetalNodeStatus {
    input.status.as_mut().unwrap().as_mut().unwrap()
}

/// Somebody switched it on while its pool was full.
fn surplus(input: &mut HostInput) {
    let condition = json!({"type": "Surplus", "status": "True", "reason": "PoolAtMaximum", "message": "",
        "lastTransitionTime": at("01:00:00"), "observedGeneration": 1});
    status(input).conditions = vec![serde_json::from_value(condition).unwrap()];
}

fn intent(want: Switch, at: Timestamp) -> Intent {
    Intent {
        id: "d/h".into(),
        want,
        pool: "web".into(),
        decision: "d".into(),
        reason: "1 pod".into(),
        epoch: 1,
        at,
        spread_weighed: false,
    }
}

fn with_hosts(hosts: Vec<Arc<HostInput>>) -> Built {
    build(&Inputs { pools: vec![metal()], hosts, ..inputs() })
}

fn node(name: &str, ready: bool) -> Node {
    serde_json::from_value(json!({"metadata": {"name": name},
        "status": {"allocatable": {"cpu": "8", "memory": "30Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}}))
    .unwrap()
}

#[test]
fn a_host_stands_where_its_records_say() {
    #[track_caller]
    fn check(phase: Phase, change: impl FnOnce(&mut HostInput), state: HostState) {
        let built = with_hosts(vec![host("h", phase, change)]);
        assert_eq!(built.snapshot.hosts[0].state, state, "{phase}");
    }
    let fresh = at("01:59:00");
    check(Phase::Idle, |_| {}, HostState::Off);
    check(Phase::Idle, |h| status(h).off_proved_at = None, HostState::On); // woken in vain: its watts are taken
    check(Phase::Enrolling, |_| {}, HostState::Unknown);
    check(Phase::Reserved, |_| {}, HostState::Waking);
    check(Phase::Booting, |_| {}, HostState::Waking);
    check(Phase::Serving, |_| {}, HostState::Ready);
    check(Phase::Lost, |_| {}, HostState::Ready);
    check(Phase::Evicting, |_| {}, HostState::Leaving);
    check(Phase::Backoff, |_| {}, HostState::Failed);
    check(Phase::Quarantined, |_| {}, HostState::Failed);
    check(Phase::Idle, |h| h.status = None, HostState::Unknown);
    check(Phase::Idle, |h| h.status = Some(Err("not JSON".into())), HostState::Unknown);
    check(Phase::Serving, |h| spec(h).admin = muster_model::host::Admin::Maintenance, HostState::Maintenance);
    // What was asked and is not yet taken up counts, unless it is spent or was ignored for too long.
    check(Phase::Idle, |h| h.intent = Some(intent(Switch::On, fresh)), HostState::Waking);
    check(Phase::Serving, |h| h.intent = Some(intent(Switch::Off, fresh)), HostState::Leaving);
    check(Phase::Idle, |h| h.intent = Some(intent(Switch::On, at("01:00:00"))), HostState::Off);
    check(
        Phase::Idle,
        |h| {
            h.intent = Some(intent(Switch::On, fresh));
            status(h).spent_intent = Some("d/h".into());
        },
        HostState::Off,
    );
}

#[test]
fn people_and_doubts_hold_hosts() {
    #[track_caller]
    fn check(phase: Phase, change: impl FnOnce(&mut HostInput), stops: Stops, why: &str) {
        let built = with_hosts(vec![host("h", phase, change)]);
        let found: Vec<_> = built.snapshot.holds.iter().map(|hold| (hold.stops, &*hold.why)).collect();
        assert!(
            found.iter().any(|(s, w)| *s == stops && w.contains(why)),
            "wanted {stops:?} {why}: {found:?}"
        );
    }
    let hold = |until| {
        move |h: &mut HostInput| {
            spec(h).hold =
                Some(muster_model::host::Hold { by: "ann".into(), reason: "new disks".into(), until });
        }
    };
    check(Phase::Idle, hold(None), Stops::Both, "held by ann: new disks");
    check(Phase::Idle, hold(Some(at("03:00:00"))), Stops::Both, "new disks");
    check(Phase::Idle, |h| spec(h).power_state = Some(Switch::Off), Stops::Both, "by hand");
    check(Phase::Serving, |h| spec(h).power_state = Some(Switch::On), Stops::Removal, "by hand");
    check(
        Phase::Idle,
        |h| status(h).held_until = Some(at("02:30:00")),
        Stops::Growth,
        "a person switched it off",
    );
    let despite = |h: &mut HostInput| status(h).unexpected_off_despite = Some("ann: burn-in".into());
    check(Phase::Idle, despite, Stops::Growth, "although it was wanted on (ann: burn-in)");
    let by_others = |h: &mut HostInput| status(h).unexpected_on_since = Some(at("01:31:00"));
    check(Phase::Idle, by_others, Stops::Growth, "somebody else switched it on");
    let long_ago = |h: &mut HostInput| status(h).unexpected_on_since = Some(at("01:29:00"));
    assert!(with_hosts(vec![host("h", Phase::Idle, long_ago)]).snapshot.holds.is_empty());
    check(Phase::Degraded, |_| {}, Stops::Removal, "BMC does not answer");
    let surplus = |h: &mut HostInput| {
        status(h).bmc_reachable = true;
        surplus(h);
    };
    check(Phase::Degraded, surplus, Stops::Removal, "its pool is at its maximum");
    check(Phase::Serving, |h| status(h).drain_retry_at = Some(at("02:01:00")), Stops::Removal, "given up");
    check(
        Phase::Idle,
        |h| h.intent = Some(intent(Switch::On, at("01:53:00"))),
        Stops::Growth,
        "not taken up within 5m",
    );
    // A hold that has lapsed is none, and the wish that came with it is over.
    for wish in [None, Some(Switch::On), Some(Switch::Off)] {
        let lapsed = |h: &mut HostInput| {
            hold(Some(at("01:00:00")))(h);
            spec(h).power_state = wish;
        };
        assert_eq!(with_hosts(vec![host("h", Phase::Idle, lapsed)]).snapshot.holds, []);
    }
}

/// The planner prefers no host that its loop would never let start.
#[test]
fn nobody_starts_in_a_rack_with_a_cap_while_watts_there_are_not_known() {
    #[track_caller]
    fn check(cap: Option<u32>, phase: Phase, watts: [Option<u32>; 2], why: [Option<&str>; 2]) {
        let one = |name: &str, phase, watts| {
            host(name, phase, |h| (spec(h).rack, spec(h).max_watts) = (Some("r1".into()), watts))
        };
        let hosts = vec![one("a", phase, watts[0]), one("b", Phase::Idle, watts[1])];
        let rack = muster_model::rack::Rack { watt_cap: cap, ..muster_model::rack::Rack::new("r1") };
        let built = build(&Inputs { pools: vec![metal()], hosts, racks: vec![rack], ..inputs() });
        let scope = |name: &str| [Scope::Host(name.into())];
        let found = ["a", "b"].map(|name| built.snapshot.hold(&scope(name), Stops::Growth));
        for (found, why) in found.iter().zip(why) {
            assert_eq!(found.is_some(), why.is_some(), "{found:?}");
            assert!(why.is_none_or(|why| found.unwrap().why.contains(why)), "{found:?}");
        }
    }
    let own = Some("rack r1 may draw 900 W, and its maxWatts is not known");
    let beside = Some("1 of the hosts that draw there have no maxWatts, a first");
    check(Some(900), Phase::Idle, [Some(300), Some(300)], [None, None]);
    check(Some(900), Phase::Idle, [None, Some(300)], [own, None]); // it is off, and stays so
    check(Some(900), Phase::Serving, [None, Some(300)], [own, beside]);
    check(Some(900), Phase::Reserved, [None, Some(300)], [own, beside]);
    check(Some(900), Phase::Serving, [None, None], [own, own]);
    check(None, Phase::Serving, [None, None], [None, None]);
}

#[test]
fn hosts_rest_between_cycles() {
    #[track_caller]
    fn check(change: impl FnOnce(&mut HostInput), until: Option<&str>) {
        let built = with_hosts(vec![host("h", Phase::Idle, change)]);
        assert_eq!(built.snapshot.hosts[0].backoff_until, until.map(at));
    }
    check(|_| {}, None);
    check(|h| status(h).off_since = Some(at("01:59:30")), Some("02:01:30")); // two minutes off
    check(|h| status(h).starts = vec![at("01:50:00")], Some("02:05:00")); // fifteen between starts
    check(|h| status(h).retry_at = Some(at("02:20:00")), Some("02:20:00"));
    check(|h| status(h).off_since = Some(at("01:00:00")), None);
}

#[test]
fn members_follow_nodes_and_hosts() {
    let serving = |name: &str| {
        let name = name.to_owned();
        host(&name.clone(), Phase::Serving, move |h| status(h).kubernetes_node = Some(name))
    };
    let off = host("off", Phase::Idle, |h| status(h).kubernetes_node = Some("off".into()));
    let hosts = vec![serving("a"), serving("b"), serving("lost"), off, host("new", Phase::Booting, |_| {})];
    let objects = Objects {
        nodes: vec![node("a", true), node("b", false), node("off", false), node("foreign", true)],
        ..Objects::default()
    };
    let view = ClusterView { fresh_at: now(), objects: Arc::new(objects), ..ClusterView::default() };
    let built = build(&Inputs { pools: vec![metal()], hosts, observed: Observed::View(view), ..inputs() });
    let snapshot = &built.snapshot;
    let state = |name: &str| snapshot.members.get(name).map(|member| member.state);
    assert_eq!(state("a"), Some(MemberState::Ready));
    assert_eq!(state("b"), Some(MemberState::Unready));
    assert_eq!(state("lost"), Some(MemberState::Unready)); // serves, and its node is gone
    assert!(matches!(state("new"), Some(MemberState::Upcoming { .. })));
    assert_eq!((state("off"), state("foreign")), (None, None));
    let names: Vec<&str> = snapshot.cluster.nodes.iter().map(Node::name).collect();
    assert_eq!(names, ["a", "b", "foreign", "new"], "the kept node of a machine that is off is not there");
    let coming = snapshot.cluster.nodes.iter().find(|node| node.name() == "new").unwrap();
    assert_eq!(coming.metadata.labels.text("nodepool"), Some("web"));
    assert!(coming.status.allocatable.contains("cpu"));
}

#[test]
fn a_host_that_a_person_added_to_a_full_pool_is_marked() {
    let built = |view: bool| {
        let hosts = vec![
            host("a", Phase::Serving, |h| status(h).kubernetes_node = Some("a".into())),
            host("extra", Phase::Degraded, |h| {
                status(h).kubernetes_node = Some("extra".into());
                status(h).bmc_reachable = true;
                surplus(h);
            }),
        ];
        let objects = Objects { nodes: vec![node("a", true), node("extra", true)], ..Objects::default() };
        let seen = ClusterView { fresh_at: now(), objects: Arc::new(objects), ..ClusterView::default() };
        let observed = if view { Observed::View(seen) } else { Observed::NotConnected };
        build(&Inputs { pools: vec![metal()], hosts, observed, ..inputs() })
    };
    for view in [true, false] {
        let snapshot = built(view).snapshot;
        let marked = |name: &str| snapshot.members.get(name).map(|member| member.surplus);
        assert_eq!((marked("a"), marked("extra")), (Some(false), Some(true)), "{view}");
    }
}

#[test]
fn what_is_not_known_is_a_gap_and_nothing_else() {
    #[track_caller]
    fn check(change: impl FnOnce(&mut Inputs), scope: &Scope, why: &str) {
        let mut inputs = Inputs { pools: vec![metal()], ..inputs() };
        change(&mut inputs);
        let built = build(&inputs);
        let found = &built.snapshot.gaps;
        assert!(
            found.iter().any(|gap| gap.scope == *scope && gap.why.contains(why)),
            "wanted {why}: {found:?}"
        );
        assert_eq!(built.snapshot.holds, []);
    }
    check(|i| i.observed = Observed::NotConnected, &Scope::Everything, "no connection");
    let view = |change: fn(&mut ClusterView)| {
        move |i: &mut Inputs| {
            let mut view = ClusterView { fresh_at: now(), ..ClusterView::default() };
            change(&mut view);
            i.observed = Observed::View(view);
        }
    };
    check(view(|v| v.fresh_at = at("01:57:59")), &Scope::Everything, "2m1s old");
    check(
        view(|v| {
            let one = SetAside {
                kind: "Pod".into(),
                namespace: "a".into(),
                name: "b".into(),
                why: "x".into(),
                since: now(),
                node: None,
            };
            v.set_aside = [one].into();
        }),
        &Scope::Everything,
        "1 objects cannot be read",
    );
    check(|i| i.global_fault = Some("lowMark".into()), &Scope::Everything, "lowMark");
    check(|i| i.unreadable_pools = vec![("gpu".into(), "not JSON".into())], &Scope::Everything, "pool gpu");
    check(
        |i| i.hosts = vec![host("h", Phase::Idle, |h| h.spec = Err("bad mac".into()))],
        &Scope::Host("h".into()),
        "bad mac",
    );
    check(
        |i| i.hosts = vec![host("h", Phase::Idle, |h| h.status = None)],
        &Scope::Host("h".into()),
        "looked at",
    );
}

#[test]
fn triggers_ask_for_more_agree_to_less_or_hold() {
    #[track_caller]
    fn check(findings: Vec<(&str, Known<Finding>)>, expected: Option<Trigger>, gaps: usize) {
        let triggers: Vec<Value> = findings
            .iter()
            .map(|(direction, _)| json!({"metricQuery": "q", "threshold": 1, "duration": "1m", "scaleDirection": direction}))
            .collect();
        let mut input = pool(
            "web",
            json!({"platform": {"type": "baremetal"}, "autoscaling": {
                "enabled": true, "minNodes": 1, "maxNodes": 4, "triggers": triggers}}),
        );
        let specs = input.object.spec.autoscaling.as_ref().unwrap().triggers().to_vec();
        input.triggers = specs
            .into_iter()
            .zip(findings)
            .map(|(trigger, (_, finding))| TriggerInput { trigger, finding })
            .collect();
        let built = build(&Inputs { pools: vec![input], ..inputs() });
        assert_eq!(built.snapshot.pools[0].demand.trigger, expected);
        assert_eq!(built.snapshot.gaps.len(), gaps, "{:?}", built.snapshot.gaps);
    }
    let finding =
        |fires| Known::Value { value: Finding { fires, value: "1".into(), why: "x".into() }, at: now() };
    let unknown = || Known::Unknown { why: "503".to_owned(), since: now() };
    check(vec![], None, 0);
    check(vec![("up", finding(true))], Some(Trigger::Up), 0);
    check(vec![("up", finding(false))], None, 0); // a quiet trigger for more does not keep what is idle
    check(vec![("down", finding(true))], Some(Trigger::Down), 0);
    check(vec![("down", finding(false))], Some(Trigger::Idle), 0);
    check(vec![("down", finding(true)), ("down", finding(false))], Some(Trigger::Idle), 0);
    check(vec![("up", finding(true)), ("down", finding(true))], Some(Trigger::Up), 0);
    check(vec![("up", unknown())], None, 1);
    check(vec![("down", finding(true)), ("down", unknown())], Some(Trigger::Idle), 1);
}

/// The node that a trigger called up shows in its metric only after a while: nobody calls up a second one for it, and the
/// pool is looked at again when the time is over.
#[test]
fn a_trigger_gives_its_metric_the_time_to_show_the_last_node() {
    #[track_caller]
    fn check(durations: &[(&str, bool)], settles: Duration, until: Option<&str>, observed: &Observed) {
        let triggers: Vec<Value> = durations
            .iter()
            .map(|(duration, _)| json!({"metricQuery": "q", "threshold": 1, "duration": duration, "scaleDirection": "up"}))
            .collect();
        let mut input = pool(
            "web",
            json!({"platform": {"type": "baremetal"}, "autoscaling": {
                "enabled": true, "minNodes": 1, "maxNodes": 4, "triggers": triggers}}),
        );
        let specs = input.object.spec.autoscaling.as_ref().unwrap().triggers().to_vec();
        let finding = |fires| Finding { fires, value: "1".into(), why: "x".into() };
        let found = durations.iter().map(|(_, fires)| Known::Value { value: finding(*fires), at: now() });
        input.triggers = specs
            .into_iter()
            .zip(found)
            .map(|(trigger, finding)| TriggerInput { trigger, finding })
            .collect();
        let came = host("a", Phase::Serving, |h| {
            status(h).kubernetes_node = Some("a".into());
            status(h).serving_since = Some(at("01:59:30"));
        });
        let observed = observed.clone();
        let built = build(&Inputs { pools: vec![input], hosts: vec![came], observed, ..inputs() });
        let pool = &built.snapshot.pools[0];
        assert_eq!(pool.demand.trigger_settles, settles);
        let wait = muster_engine::down::unsettled(&built.snapshot, pool).map(|wait| wait.until);
        assert_eq!(wait, until.map(at));
        assert!(wait.is_none_or(|wait| built.next.is_some_and(|next| next <= wait)), "{:?}", built.next);
    }
    let objects = Objects { nodes: vec![node("a", true)], ..Objects::default() };
    let view = ClusterView { fresh_at: now(), objects: Arc::new(objects), ..ClusterView::default() };
    for observed in [Observed::View(view), Observed::NotConnected] {
        check(&[("5m", true)], Duration::from_mins(5), Some("02:04:30"), &observed);
        check(&[("5s", true)], Duration::from_mins(1), Some("02:00:30"), &observed); // a scrape takes its time
        check(&[("5m", true), ("2m", true)], Duration::from_mins(2), Some("02:01:30"), &observed);
        check(&[("5m", true), ("2m", false)], Duration::from_mins(5), Some("02:04:30"), &observed);
        check(&[("5m", false)], Duration::ZERO, None, &observed);
    }
}

#[test]
fn bounds_are_those_of_this_moment() {
    #[track_caller]
    fn check(spec: Value, requested: Option<u32>, expected: (u32, u32, Option<u32>)) {
        let input = PoolInput { requested, ..pool("web", spec) };
        let built = build(&Inputs { pools: vec![input], ..inputs() });
        let pool = &built.snapshot.pools[0];
        assert_eq!((pool.min, pool.max, pool.fixed), expected);
    }
    let metal = json!({"type": "baremetal"});
    let auto = |extra: Value| {
        let mut block = json!({"enabled": true, "minNodes": 1, "maxNodes": 4});
        muster_model::patch::merge_patch(&mut block, &extra);
        json!({"platform": metal, "autoscaling": block})
    };
    check(json!({"platform": metal, "nodeCount": 3}), None, (3, 3, Some(3)));
    check(auto(json!({})), None, (1, 4, None));
    check(auto(json!({})), Some(3), (3, 3, None)); // a person's request is reached first
    check(auto(json!({})), Some(9), (4, 4, None)); // and never leaves the bounds
}

#[test]
fn modes_freezes_and_wishes() {
    let mut inputs = Inputs { pools: vec![metal()], ..inputs() };
    assert_eq!(build(&inputs).snapshot.pools[0].mode, Mode::Advise); // nobody has said that it may act
    Arc::make_mut(&mut inputs.cluster).spec.mode = Some(muster_model::pool::Mode::Active);
    assert_eq!(build(&inputs).snapshot.pools[0].mode, Mode::Act);
    Arc::make_mut(&mut inputs.pools[0].object).spec.mode = Some(muster_model::pool::Mode::Advise);
    assert_eq!(build(&inputs).snapshot.pools[0].mode, Mode::Advise);
    inputs.freeze.mode = FreezeMode::Frozen;
    let held = build(&inputs).snapshot.holds.clone();
    assert_eq!((held[0].scope.clone(), held[0].stops), (Scope::Everything, Stops::Both));
}

#[test]
fn nodes_that_were_asked_for_count_until_their_deadline() {
    let cloud = pool(
        "web",
        json!({"platform": {"type": "gcp", "gcp": {"machineType": "n1-standard-4"}},
            "autoscaling": {"enabled": true, "minNodes": 0, "maxNodes": 5}}),
    );
    let asked = Asked {
        nodes: 2,
        at: at("01:50:00"),
        deadline: at("02:05:00"),
        decision: "d-1".into(),
        leaving: Vec::new(),
    };
    let mut inputs = Inputs { pools: vec![cloud], ..inputs() };
    inputs.memory.asked.insert("web".into(), asked);
    let coming = build(&inputs);
    assert_eq!(coming.snapshot.members.len(), 2);
    assert_eq!(coming.next, Some(at("02:05:00")));
    assert_eq!(coming.stale_at, Some(at("02:02:00")), "the view grows stale before the deadline");
    inputs.now = at("02:05:00");
    let late = build(&inputs);
    assert_eq!(late.snapshot.members.len(), 0);
    let offering = &late.snapshot.pools[0].templates[0].offerings[0];
    assert_eq!(offering.unavailable_until, Some(at("02:15:00")));
    inputs.now = at("02:15:00");
    assert_eq!(build(&inputs).snapshot.pools[0].templates[0].offerings[0].unavailable_until, None);
}

#[test]
fn a_pool_that_grew_rests() {
    let mut inputs = Inputs { pools: vec![metal()], ..inputs() };
    inputs.memory.grown_at.insert("web".into(), at("01:55:00"));
    let built = build(&inputs);
    let hold = &built.snapshot.holds[0];
    assert_eq!((hold.stops, hold.until), (Stops::Removal, Some(at("02:05:00"))));
    inputs.now = now().saturating_add(Duration::from_mins(5));
    assert_eq!(build(&inputs).snapshot.holds, []);
}

#[test]
fn equal_inputs_give_equal_snapshots_whatever_the_order_of_hosts() {
    let hosts = || vec![host("a", Phase::Idle, |_| {}), host("b", Phase::Idle, |_| {})];
    let (one, two) = (with_hosts(hosts()), with_hosts(hosts()));
    assert_eq!(one, two);
    assert_eq!(one.snapshot.pools[0].templates.len(), 1, "hosts that are alike share a template");
    let text = serde_json::to_vec(&one.snapshot).unwrap();
    assert_eq!(serde_json::from_slice::<muster_engine::Snapshot>(&text).unwrap(), *one.snapshot);
}

#[test]
fn headroom_is_nodes_or_pods_to_spare() {
    #[track_caller]
    fn check(headroom: &Value, nodes: u32, pods: u32, cpu: Option<&str>) {
        let auto = json!({"enabled": true, "minNodes": 1, "maxNodes": 4, "headroom": headroom});
        let pool = pool("web", json!({"platform": {"type": "baremetal"}, "autoscaling": auto}));
        let built = build(&Inputs { pools: vec![pool], ..inputs() });
        let spare = &built.snapshot.pools[0].spare;
        assert_eq!((spare.nodes, spare.pods), (nodes, pods));
        assert_eq!(spare.shape.get("cpu").map(ToString::to_string).as_deref(), cpu);
        assert!(built.snapshot.pools[0].headroom.is_empty());
    }
    check(&json!({"nodes": 2}), 2, 0, None);
    check(&json!({"pods": 3, "resources": {"cpu": "500m", "memory": "1Gi"}}), 0, 3, Some("500m"));
}

#[test]
fn pods_that_run_all_or_none_are_a_group() {
    let pod = |name: &str| -> muster_model::k8s::Pod {
        let labels = json!({"scheduling.x-k8s.io/pod-group": "train"});
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ml", "labels": labels}}))
            .unwrap()
    };
    let objects = Objects { pods: vec![pod("b"), pod("a")], ..Objects::default() };
    let view = ClusterView { fresh_at: now(), objects: Arc::new(objects), ..ClusterView::default() };
    let built = build(&Inputs { observed: Observed::View(view), ..inputs() });
    let groups: Vec<(&str, usize, u32)> =
        built.snapshot.groups.iter().map(|group| (&*group.name, group.pods.len(), group.min)).collect();
    assert_eq!(groups, [("ml/train", 2, 2)]);
}

/// OPS-F22: where Muster or its store runs nothing is planned away, and the reason is told.
#[test]
fn ops_f22_guarded_nodes_are_held() {
    let guarded = [("a".into(), "Muster itself runs there".into())].into_iter().collect();
    let view = ClusterView { fresh_at: now(), guarded: Arc::new(guarded), ..ClusterView::default() };
    let built = build(&Inputs { observed: Observed::View(view), ..inputs() });
    let holds: Vec<(&Scope, Stops, &str)> =
        built.snapshot.holds.iter().map(|hold| (&hold.scope, hold.stops, &*hold.why)).collect();
    assert_eq!(holds, [(&Scope::Node("a".into()), Stops::Removal, "Muster itself runs there")]);
}

/// Otherwise a pod is placed on the one of them, and the audit looks at the other.
#[test]
fn a_node_that_has_registered_before_its_host_is_seen_to_serve_is_there_once() {
    let mut node = node("a", false);
    node.spec.taints =
        serde_json::from_value(json!([{"key": "muster.dev/startup", "effect": "NoSchedule"}])).unwrap();
    let objects = Arc::new(Objects { nodes: vec![node], ..Objects::default() });
    let observed = Observed::View(ClusterView { fresh_at: now(), objects, ..ClusterView::default() });
    let booting = host("a", Phase::Booting, |_| {});
    let built = build(&Inputs { pools: vec![metal()], hosts: vec![booting], observed, ..inputs() });
    let nodes = &built.snapshot.cluster.nodes;
    let found: Vec<(&str, bool)> =
        nodes.iter().map(|node| (node.name(), node.spec.taints.is_empty())).collect();
    assert_eq!(found, [("a", true)]);
    let member = &built.snapshot.members["a"];
    assert!(matches!(member.state, MemberState::Upcoming { .. }), "{member:?}");
}

#[test]
fn a_node_that_has_just_come_has_room_before_our_taints_are_gone() {
    #[track_caller]
    fn check(since: &str, ready: bool, tainted: bool) {
        let mut node = node("a", ready);
        let taints = ["muster.dev/startup", "muster.dev/off", "node.kubernetes.io/not-ready"]
            .map(|key| json!({"key": key, "effect": "NoSchedule"}));
        node.spec.taints = serde_json::from_value(json!(taints)).unwrap();
        node.spec.unschedulable = true;
        node.metadata.annotations.insert(muster_model::observe::CORDON_MARK, "op-1".into());
        let serving = host("a", Phase::Serving, |host| {
            status(host).kubernetes_node = Some("a".into());
            status(host).serving_since = Some(at(since));
        });
        let objects = Arc::new(Objects { nodes: vec![node], ..Objects::default() });
        let observed = Observed::View(ClusterView { fresh_at: now(), objects, ..ClusterView::default() });
        let built = build(&Inputs { pools: vec![metal()], hosts: vec![serving], observed, ..inputs() });
        let node = &built.snapshot.cluster.nodes[0];
        assert_eq!(!node.spec.taints.is_empty(), tainted, "{since}");
        assert_eq!(node.spec.unschedulable, tainted, "{since}: our own cordon goes");
        assert_eq!(
            node.metadata.labels.contains("nodepool"),
            !tainted,
            "{since}: a pod may ask for its pool"
        );
        let state = &built.snapshot.members["a"].state;
        match (ready, tainted) {
            (true, _) => assert!(matches!(state, MemberState::Ready), "{since}: {state:?}"),
            (false, false) => assert!(matches!(state, MemberState::Upcoming { .. }), "{since}: {state:?}"),
            (false, true) => assert!(matches!(state, MemberState::Unready), "{since}: {state:?}"),
        }
    }
    for ready in [true, false] {
        check("01:59:59", ready, false); // not ready: the view is older than what the host loop saw
        check("01:58:01", ready, false);
        check("01:58:00", ready, true); // nobody took them off: what is there counts
    }
}

/// OPS-R4: after three hosts that were woken for the pods of one controller and took none, no more are woken for those.
#[test]
fn ops_r4_a_demand_that_never_lands_rests_and_others_do_not() {
    const SERVING: [Phase; 3] = [Phase::Serving; 3];
    #[track_caller]
    fn check(
        hosts: [Phase; 3],
        pods: Vec<muster_model::k8s::Pod>,
        change: impl FnOnce(&mut Inputs),
        spent: &[&str],
        until: Option<&str>,
    ) {
        let names = ["a", "b", "c"];
        let mut inputs = Inputs { pools: vec![metal()], ..inputs() };
        inputs.hosts = names
            .into_iter()
            .zip(hosts)
            .map(|(name, phase)| host(name, phase, |host| status(host).kubernetes_node = Some(name.into())))
            .collect();
        let objects = Objects { nodes: vec![node("a", true)], pods, ..Objects::default() };
        inputs.observed = Observed::View(ClusterView {
            fresh_at: now(),
            objects: Arc::new(objects),
            ..ClusterView::default()
        });
        for (name, woken) in names.into_iter().zip(["01:30:00", "01:32:00", "01:34:00"]) {
            let bad = std::collections::BTreeSet::from(["d/ReplicaSet/bad".to_owned()]);
            super::wakes::note(&mut inputs.memory.wakes, "web", name, bad, at(woken));
        }
        change(&mut inputs);
        let built = build(&inputs);
        let found: Vec<&str> =
            built.snapshot.spent.iter().flat_map(|spent| spent.pods.iter().map(|pod| &*pod.name)).collect();
        assert_eq!(found, spent, "{hosts:?}");
        let first = built.snapshot.spent.first();
        assert_eq!(first.and_then(|spent| spent.until), until.map(at), "{hosts:?}");
        if let Some(first) = first {
            assert!(
                first.why.contains("3 hosts (a, b, c)") && first.why.contains("d/ReplicaSet/bad"),
                "{first:?}"
            );
        }
        assert!(built.snapshot.holds.is_empty(), "its pool goes on");
    }
    let owned = |name: &str, owner: &str, on: Option<&str>| {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true});
        let pod = json!({"metadata": {"name": name, "namespace": "d", "ownerReferences": [owner]},
            "spec": {"nodeName": on}, "status": {"phase": if on.is_some() { "Running" } else { "Pending" }}});
        serde_json::from_value::<muster_model::k8s::Pod>(pod).unwrap()
    };
    let waiting =
        || vec![owned("bad-1", "bad", None), owned("bad-2", "bad", None), owned("good-1", "good", None)];
    check(SERVING, waiting(), |_| {}, &["bad-1", "bad-2"], Some("02:34:00"));
    check(
        [Phase::Serving, Phase::Quarantined, Phase::Idle],
        waiting(),
        |_| {},
        &["bad-1", "bad-2"],
        Some("02:34:00"),
    );
    check([Phase::Serving, Phase::Serving, Phase::Booting], waiting(), |_| {}, &[], None); // it may yet bear fruit
    check(SERVING, waiting(), |inputs| inputs.now = at("02:34:00"), &[], None); // it has rested
    check(SERVING, vec![owned("good-1", "good", None)], |_| {}, &[], None); // nobody waits
    let landed = || vec![owned("bad-1", "bad", Some("a")), owned("bad-2", "bad", None)];
    check(SERVING, landed(), |_| {}, &[], None);
    // Another's pod there is no fruit.
    let beside = || vec![owned("good-1", "good", Some("a")), owned("bad-2", "bad", None)];
    check(SERVING, beside(), |_| {}, &["bad-2"], Some("02:34:00"));
}

/// A trial with a time factor shortens what the planner waits for as it shortens what the host loop waits for.
#[test]
fn a_time_factor_reaches_the_rest_between_off_and_on() {
    #[track_caller]
    fn check(time_factor: u32, until: Option<&str>) {
        let mut inputs = Inputs { pools: vec![metal()], time_factor, ..inputs() };
        inputs.hosts = vec![host("a", Phase::Idle, |host| status(host).off_since = Some(at("01:59:00")))];
        assert_eq!(build(&inputs).snapshot.hosts[0].backoff_until, until.map(at), "{time_factor}");
    }
    check(1, Some("02:01:00")); // two minutes
    check(20, None); // six seconds
}

/// What a pool says about racks and zones reaches the planner as the number of those that have a node of it.
#[test]
fn a_pool_that_spreads_keeps_a_node_in_every_rack_and_zone_that_has_one() {
    #[track_caller]
    fn check(rack_spread: bool, zone_spread: bool, kept: (u32, u32)) {
        let mut pool = metal();
        (pool.host_config.rack_spread, pool.host_config.zone_spread) = (rack_spread, zone_spread);
        let stands = |name: &str, phase: Phase, rack: &str, zone: Option<&str>| {
            host(name, phase, |host| {
                status(host).kubernetes_node = Some(name.into());
                (spec(host).rack, spec(host).zone) = (Some(rack.into()), zone.map(Into::into));
            })
        };
        let hosts = vec![
            stands("a", Phase::Serving, "r1", Some("north")),
            stands("b", Phase::Serving, "r2", Some("north")),
            stands("c", Phase::Serving, "r3", None), // its rack says which zone
            stands("d", Phase::Idle, "r4", Some("east")), // has no node
        ];
        let nodes = ["a", "b", "c"].map(|name| node(name, true)).into();
        let objects = Arc::new(Objects { nodes, ..Objects::default() });
        let observed = Observed::View(ClusterView { fresh_at: now(), objects, ..ClusterView::default() });
        let racks = vec![Rack { zone: Some("south".into()), ..Rack::new("r3") }];
        let built = build(&Inputs { pools: vec![pool], hosts, observed, racks, ..inputs() });
        let found = &built.snapshot.pools[0];
        assert_eq!((found.keep_racks, found.keep_zones), kept);
    }
    check(false, false, (0, 0));
    check(true, false, (3, 0));
    check(false, true, (0, 2));
    check(true, true, (3, 2));
}

/// What holds for all hosts holds for a pool of them that says nothing itself, and for no other pool.
#[test]
fn the_settings_of_all_hosts_reach_the_pools_of_servers() {
    #[track_caller]
    fn check(pool: PoolInput, global: &Value, marks: (u32, u32, u32)) {
        let global: GlobalConfig = serde_json::from_value(global.clone()).unwrap();
        assert_eq!(global.faults(), Vec::<String>::new());
        let built = build(&Inputs { pools: vec![pool], global, ..inputs() });
        let demand = &built.snapshot.pools[0].demand;
        let found = (demand.target_cpu_percent, demand.target_memory_percent, demand.scale_down_percent);
        assert_eq!(found, (Some(marks.0), Some(marks.1), Some(marks.2)));
    }
    let block =
        json!({"enabled": true, "maxNodes": 4, "targetMemoryUtilization": 90, "scaleDownUtilization": 40});
    let own = || pool("web", json!({"platform": {"type": "baremetal"}, "autoscaling": block}));
    let cloud = || {
        let auto = json!({"enabled": true, "maxNodes": 4});
        pool(
            "web",
            json!({"platform": {"type": "aws", "aws": {"instanceType": "m5.large"}}, "autoscaling": auto}),
        )
    };
    let (nothing, both) = (json!({}), json!({"highMarkPercent": 60, "lowMarkPercent": 35}));
    check(metal(), &nothing, (70, 80, 30));
    check(metal(), &both, (60, 60, 35));
    check(metal(), &json!({"highMarkPercent": 45}), (45, 45, 25)); // the usual low mark would be too near
    check(metal(), &json!({"lowMarkPercent": 10}), (70, 80, 10));
    check(own(), &nothing, (70, 90, 40));
    check(own(), &json!({"highMarkPercent": 50, "lowMarkPercent": 5}), (50, 90, 30));
    check(cloud(), &both, (70, 80, 30));
    // And how often one host may be started in a day.
    let mut global = GlobalConfig::default();
    global.policy.max_cycles_per_day = 2;
    let resting = |most: Option<u32>| {
        let mut pool = metal();
        pool.host_config.policy.max_cycles_per_day = most;
        let starts = || vec![at("00:10:00"), at("00:40:00")];
        let hosts = vec![host("h", Phase::Idle, |host| status(host).starts = starts())];
        let built = build(&Inputs { pools: vec![pool], hosts, global: global.clone(), ..inputs() });
        built.snapshot.hosts[0].backoff_until.is_some()
    };
    assert_eq!((resting(None), resting(Some(3))), (true, false));
}
