//! Reasons alone and in pairs, plans that the audit accepts, and the order of reasons.

use std::sync::Arc;

use muster_model::{
    Duration, Timestamp,
    k8s::{Node, Pod, PodKey},
};
use serde_json::{Value, json};

use super::*;
use crate::{
    audit::audit,
    plan::NewNode,
    snapshot::{
        Gap, Health, Hold, Host, HostState, Member, MemberState, Mode, Pool, PowerLimits, Scope, Spare,
        Stops, Template, Trigger,
    },
};

mod blockers;
mod properties;
mod rules;

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

const NOW: &str = "2026-01-02T00:00:00Z";
const YESTERDAY: &str = "2026-01-01T00:00:00Z";
const HOUR_AGO: &str = "2026-01-01T23:00:00Z";
const MINUTE_AGO: &str = "2026-01-01T23:59:00Z";

fn node(name: &str, cpu: &str) -> Node {
    from(
        json!({"metadata": {"name": name, "creationTimestamp": YESTERDAY, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "20"}}}),
    )
}

fn pod(name: &str, on: &str, cpu: &str) -> Pod {
    pod_with(name, on, cpu, &json!({}), &json!({}))
}

fn pod_with(name: &str, on: &str, cpu: &str, metadata: &Value, spec: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "d", "labels": {"app": name},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "rs", "controller": true}]},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}]},
        "status": {"phase": "Running"}});
    if !on.is_empty() {
        pod["spec"]["nodeName"] = json!(on);
    }
    for (key, value) in metadata.as_object().unwrap() {
        pod["metadata"][key] = value.clone();
    }
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    from(pod)
}

fn member(pool: &str) -> Member {
    Member {
        pool: pool.into(),
        template: "t".into(),
        price: 1_000_000,
        unneeded_since: Some(time(HOUR_AGO)),
        ..Member::default()
    }
}

/// Three nodes of one pool; `a` is nearly empty and could go.
fn base() -> Snapshot {
    let mut snapshot = Snapshot { now: time(NOW), ..Snapshot::default() };
    let mut pool = Pool { name: "p".into(), max: 1000, ..Pool::default() };
    pool.demand.scale_down_delay = Duration::from_mins(10);
    pool.demand.scale_down_percent = Some(50);
    pool.templates =
        vec![Template { name: "t".into(), node: Arc::new(node("t", "4")), ..Template::default() }];
    snapshot.pools = vec![pool];
    for name in ["a", "b", "c"] {
        snapshot.cluster.nodes.push(node(name, "4"));
        snapshot.members.insert(name.into(), member("p"));
    }
    snapshot.cluster.pods = vec![pod("a-1", "a", "500m"), pod("b-1", "b", "2"), pod("c-1", "c", "2")];
    snapshot.cluster.replica_sets =
        vec![from(json!({"metadata": {"name": "rs", "namespace": "d"}, "spec": {"replicas": 5}}))];
    snapshot
}

fn key(name: &str) -> PodKey {
    PodKey { namespace: "d".into(), name: name.into() }
}

/// What goes, in order, with every move as `pod>node`; the audit has accepted it.
#[track_caller]
fn removed(snapshot: &Snapshot) -> Vec<String> {
    let report = scale_down(snapshot, &Plan::default());
    let plan = Plan { removals: report.removals.clone(), unplaced: pending(snapshot), ..Plan::default() };
    let findings = audit(snapshot, &plan);
    assert!(findings.is_empty(), "{findings:?}");
    let moves = |removal: &Removal| {
        let moves = removal.moves.iter().map(|step| match &step.on {
            Target::Node(to) => format!(" {}>{to}", step.pod.name),
            Target::New(to) => format!(" {}>new {to}", step.pod.name),
        });
        format!("{}{}", removal.node, moves.collect::<String>())
    };
    report.removals.iter().map(moves).collect()
}

fn pending(snapshot: &Snapshot) -> Vec<PodKey> {
    snapshot.cluster.pods.iter().filter(|pod| pod.is_pending()).map(Pod::key).collect()
}

#[test]
fn a_drainable_node_goes_and_says_where_its_pods_go() {
    let snapshot = base();
    assert_eq!(removed(&snapshot), ["a a-1>b"]);
    let report = scale_down(&snapshot, &Plan::default());
    let verdict = report.verdict("a").unwrap();
    assert_eq!(verdict.outcome, Outcome::Drained);
    let movements: Vec<Movement> = verdict.movements(&snapshot).collect();
    assert_eq!(movements, [Movement { pod: key("a-1"), to: "b".into() }]);
    assert_eq!((verdict.usage.percent(), &*verdict.usage.top().unwrap().resource), (12, "cpu"));
    let busy = report.verdict("b").unwrap();
    assert_eq!(busy.blockers.iter().map(Blocker::code).collect::<Vec<_>>(), ["busy"]);
    assert_eq!(busy.blockers[0].to_string(), "cpu is 50 % requested (2000 of 4000), the mark is 50 %");
}

#[test]
fn an_empty_node_goes_without_a_move_even_with_daemons() {
    let mut snapshot = base();
    let daemon = json!({"ownerReferences": [{"kind": "DaemonSet", "name": "ds", "controller": true}]});
    snapshot.cluster.pods[0] = pod_with("ds-1", "a", "3", &daemon, &json!({}));
    assert_eq!(removed(&snapshot), ["a"]);
    assert_eq!(scale_down(&snapshot, &Plan::default()).verdict("a").unwrap().outcome, Outcome::Empty);
}

#[test]
fn the_pool_minimum_is_one_bound_for_the_whole_plan() {
    let mut snapshot = base();
    snapshot.pools[0].demand.scale_down_percent = None;
    snapshot.cluster.pods = vec![pod("x", "a", "100m"), pod("y", "b", "100m"), pod("z", "c", "100m")];
    assert_eq!(removed(&snapshot).len(), 2);
    snapshot.pools[0].min = 2;
    assert_eq!(removed(&snapshot).len(), 1);
    snapshot.pools[0].min = 3;
    assert!(removed(&snapshot).is_empty());
    // One that is on its way may never come, and does not stand in for one that is there.
    snapshot.pools[0].min = 2;
    let expected = snapshot.now;
    snapshot.members.get_mut("c").unwrap().state = MemberState::Upcoming { expected };
    assert!(removed(&snapshot).is_empty());
}

#[test]
fn budgets_are_one_account_over_all_removals() {
    let mut snapshot = base();
    snapshot.pools[0].demand.scale_down_percent = None;
    let labels = json!({"labels": {"app": "web"}});
    let web = |name: &str, on: &str| pod_with(name, on, "100m", &labels, &json!({}));
    let pinned = json!({"annotations": {"karpenter.sh/do-not-disrupt": "true"}});
    let stays = pod_with("z", "c", "1", &pinned, &json!({}));
    snapshot.cluster.pods = vec![web("w-1", "a"), web("w-2", "b"), stays];
    let budget = |allowed: i32| {
        from(json!({"metadata": {"name": "b", "namespace": "d"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}}, "status": {"disruptionsAllowed": allowed}}))
    };
    snapshot.cluster.budgets = vec![budget(2)];
    assert_eq!(removed(&snapshot).len(), 2);
    snapshot.cluster.budgets = vec![budget(1)];
    assert_eq!(removed(&snapshot).len(), 1);
    let report = scale_down(&snapshot, &Plan::default());
    let kept = report
        .verdicts
        .iter()
        .filter(|v| matches!(v.outcome, Outcome::Kept(Kept::BudgetSpent { .. })))
        .count();
    assert_eq!(kept, 1, "{report:?}");
    snapshot.cluster.budgets = vec![budget(0)];
    assert!(removed(&snapshot).is_empty());
}

#[test]
fn a_pool_above_its_size_sheds_busy_nodes_but_only_the_surplus() {
    let mut snapshot = base();
    snapshot.pools[0].fixed = Some(2);
    snapshot.pools[0].demand.scale_down_percent = Some(1);
    for member in snapshot.members.values_mut() {
        member.unneeded_since = None;
    }
    assert_eq!(removed(&snapshot).len(), 1);
    snapshot.pools[0].fixed = None;
    snapshot.pools[0].max = 2;
    assert_eq!(removed(&snapshot).len(), 1);
    snapshot.pools[0].max = 3;
    assert!(removed(&snapshot).is_empty());
}

/// Somebody switched `d` on while the pool was full: it is held and cordoned, and nobody goes in its place.
#[test]
fn no_node_goes_for_one_that_a_person_added_to_a_full_pool() {
    let mut snapshot = base();
    snapshot.pools[0].max = 3;
    snapshot.cluster.pods[0] = pod("a-1", "a", "2");
    let mut extra = node("d", "4");
    extra.spec.unschedulable = true;
    snapshot.cluster.nodes.push(extra);
    snapshot.members.insert("d".into(), Member { surplus: true, ..member("p") });
    snapshot.holds = vec![Hold {
        scope: Scope::Node("d".into()),
        stops: Stops::Removal,
        why: "it stays cordoned until there is room".into(),
        until: None,
    }];
    assert!(removed(&snapshot).is_empty());
    snapshot.pools[0].min = 3;
    snapshot.cluster.pods[0] = pod("a-1", "a", "500m");
    assert!(removed(&snapshot).is_empty(), "a node without new pods is none of the least that serve");
    snapshot.pools[0].min = 0;
    snapshot.pools[0].max = 2;
    assert_eq!(removed(&snapshot).len(), 1, "the person who lowers the size is followed all the same");
}

#[test]
fn failing_hardware_is_the_first_to_stand_down() {
    let mut snapshot = base();
    snapshot.limits.max_removals = Some(1);
    snapshot.hosts = vec![Host {
        name: "h".into(),
        pool: "p".into(),
        template: "t".into(),
        state: HostState::Ready,
        node: Some("b".into()),
        health: Health::Critical("inlet 52 °C, limit 45 °C".into()),
        ..Host::default()
    }];
    snapshot.members.get_mut("b").unwrap().host = Some("h".into());
    snapshot.members.get_mut("b").unwrap().unneeded_since = None;
    snapshot.cluster.pods[2] = pod("c-1", "c", "500m");
    assert_eq!(removed(&snapshot), ["b b-1>c"]); // half full and needed until now, yet first
}

/// The next plan does not begin anew: what is going already counts, in all and in its rack.
#[test]
fn nodes_that_are_going_leave_less_room_for_others() {
    #[track_caller]
    fn check(all: Option<u32>, rack: Option<u32>, goes: usize, why: &str) {
        let mut snapshot = base();
        snapshot.cluster.pods = vec![pod("c-1", "c", "500m")];
        snapshot.limits.max_removals = all;
        let limits = PowerLimits { leaving: rack, ..PowerLimits::default() };
        snapshot.limits.racks.insert("r1".into(), limits);
        let host = |name: &str, state: HostState| Host {
            name: name.into(),
            pool: "p".into(),
            template: "t".into(),
            rack: Some("r1".into()),
            state,
            ..Host::default()
        };
        snapshot.hosts.push(host("gone", HostState::Leaving));
        for name in ["a", "b", "c"] {
            snapshot.hosts.push(Host { node: Some(name.into()), ..host(name, HostState::Ready) });
            snapshot.members.get_mut(name).unwrap().host = Some(name.into());
        }
        assert_eq!(removed(&snapshot).len(), goes, "{all:?} {rack:?}");
        let report = scale_down(&snapshot, &Plan::default());
        let kept = report.verdicts.iter().find_map(|verdict| match &verdict.outcome {
            Outcome::Kept(kept @ Kept::MaxRemovals { .. }) => Some(format!("{kept:?}")),
            _ => None,
        });
        assert_eq!(kept.unwrap_or_default(), why);
    }
    check(None, None, 2, "");
    check(Some(4), Some(4), 2, "");
    check(Some(1), None, 0, "MaxRemovals { rack: None, going: 1, planned: 0, max: 1 }");
    check(Some(2), None, 1, "MaxRemovals { rack: None, going: 1, planned: 1, max: 2 }");
    check(Some(9), Some(1), 0, "MaxRemovals { rack: Some(\"r1\"), going: 1, planned: 0, max: 1 }");
    check(Some(9), Some(2), 1, "MaxRemovals { rack: Some(\"r1\"), going: 1, planned: 1, max: 2 }");
}

#[test]
fn pending_pods_of_the_plan_keep_their_room_and_their_node() {
    let mut snapshot = base();
    snapshot.cluster.pods.push(pod("new", "", "1"));
    let placement =
        |on: Target| Plan { placements: vec![Placement { pod: key("new"), on }], ..Plan::default() };
    let onto = |name: &str| scale_down(&snapshot, &placement(Target::Node(name.into())));
    assert!(onto("a").removals.is_empty());
    assert_eq!(onto("a").verdict("a").unwrap().blockers, [Blocker::Needed { pods: 1 }]);
    assert_eq!(onto("b").removals.len(), 1);
    let mut plan = placement(Target::New(0));
    plan.new_nodes =
        vec![NewNode { name: "x".into(), pool: "p".into(), template: "t".into(), ..NewNode::default() }];
    let report = scale_down(&snapshot, &plan);
    assert_eq!(report.verdict("a").unwrap().blockers, [Blocker::Growing { pool: "p".into(), nodes: 1 }]);
}

#[test]
fn what_is_not_known_never_lowers_capacity() {
    let mut snapshot = base();
    snapshot.hosts = vec![Host { name: "h".into(), pool: "p".into(), ..Host::default() }];
    snapshot.members.get_mut("a").unwrap().host = Some("h".into());
    assert_eq!(removed(&snapshot).len(), 1);
    let elsewhere = [Scope::Pool("q".into()), Scope::Node("b".into()), Scope::Host("x".into())];
    let here = [Scope::Everything, Scope::Pool("p".into()), Scope::Node("a".into()), Scope::Host("h".into())];
    for (scopes, gone) in [(&elsewhere[..], 1), (&here[..], 0)] {
        for scope in scopes {
            let mut blind = snapshot.clone();
            blind.gaps = vec![Gap { scope: scope.clone(), why: "the trigger gave no answer".into() }];
            assert_eq!(removed(&blind).len(), gone, "{scope:?}");
            let mut held = snapshot.clone();
            let until = Some(time("2026-01-02T00:00:01Z"));
            held.holds = vec![Hold { scope: scope.clone(), stops: Stops::Both, why: "audit".into(), until }];
            assert_eq!(removed(&held).len(), gone, "{scope:?}");
            held.holds[0].stops = Stops::Growth;
            assert_eq!(removed(&held).len(), 1, "a hold on growth lets nodes go");
            held.holds[0] = Hold { stops: Stops::Both, until: Some(time(NOW)), ..held.holds[0].clone() };
            assert_eq!(removed(&held).len(), 1, "a hold that has lapsed");
        }
    }
}

#[test]
fn no_pods_at_all_is_not_believed() {
    let mut snapshot = base();
    snapshot.cluster.pods.clear();
    assert!(removed(&snapshot).is_empty());
    let report = scale_down(&snapshot, &Plan::default());
    assert!(report.verdicts.iter().all(|verdict| verdict.blockers == [Blocker::NoPodsSeen { nodes: 3 }]));
}

#[test]
fn volumes_hold_pods_where_their_disks_are() {
    let mut snapshot = base();
    let claim = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
    snapshot.cluster.pods[0] = pod_with("a-1", "a", "500m", &json!({}), &claim);
    snapshot.cluster.claims = vec![from(json!({"metadata": {"name": "c", "namespace": "d",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "pv", "accessModes": ["ReadWriteOnce"]}, "status": {"phase": "Bound"}}))];
    let volume = |host: &str| {
        from(json!({"metadata": {"name": "pv"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "claimRef": {"name": "c", "namespace": "d"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a", host]}]}]}}}}))
    };
    snapshot.cluster.volumes = vec![volume("a")];
    assert!(removed(&snapshot).is_empty());
    let report = scale_down(&snapshot, &Plan::default());
    let volumes = Refused { why: Refusal::Volumes, nodes: 2 };
    assert_eq!(
        report.verdict("a").unwrap().blockers,
        [Blocker::NoPlace { pod: key("a-1"), refused: vec![volumes] }]
    );
    snapshot.cluster.volumes = vec![volume("b")];
    assert_eq!(removed(&snapshot), ["a a-1>b"]);
}

#[test]
fn a_resized_pod_holds_what_it_was_granted() {
    let mut snapshot = base();
    snapshot.cluster.pods[2] = pod("c-1", "c", "3900m");
    assert_eq!(removed(&snapshot), ["a a-1>b"]);
    let status = json!({"phase": "Running", "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "3800m"},
        "resources": {"requests": {"cpu": "3800m"}}}]});
    snapshot.cluster.pods[1].status = from(status);
    assert!(removed(&snapshot).is_empty()); // b has but 200m left, whatever its pod asks for
}

#[test]
fn an_unready_node_takes_nothing_in() {
    let mut snapshot = base();
    snapshot.members.get_mut("b").unwrap().state = MemberState::Unready;
    assert_eq!(removed(&snapshot), ["a a-1>c"]);
    snapshot.members.get_mut("c").unwrap().state = MemberState::Upcoming { expected: time(NOW) };
    assert!(removed(&snapshot).is_empty());
    let report = scale_down(&snapshot, &Plan::default());
    let refused = vec![Refused { why: Refusal::NoReceiver, nodes: 2 }];
    assert_eq!(report.verdict("a").unwrap().blockers, [Blocker::NoPlace { pod: key("a-1"), refused }]);
}

#[test]
fn a_removal_never_takes_the_pool_above_its_high_mark() {
    let mut snapshot = base();
    snapshot.pools[0].demand.target_cpu_percent = Some(56);
    // 4.5 of 12 cpu are used; of 8 that would be 56.25 %.
    assert!(removed(&snapshot).is_empty());
    snapshot.pools[0].demand.target_cpu_percent = Some(57);
    assert_eq!(removed(&snapshot).len(), 1);
}

#[test]
fn a_node_that_is_too_large_is_replaced_by_a_cheaper_one_if_nothing_can_just_go() {
    let mut snapshot = base();
    snapshot.pools[0].demand.scale_down_percent = None;
    snapshot.cluster.pods = vec![pod("a-1", "a", "2"), pod("b-1", "b", "3"), pod("c-1", "c", "3")];
    let offering = |price: i64| crate::snapshot::Offering { price, ..Default::default() };
    let small = Template {
        name: "s".into(),
        node: Arc::new(node("s", "2")),
        offerings: vec![offering(600_000)],
        ..Template::default()
    };
    snapshot.pools[0].templates.push(small);
    let report = scale_down(&snapshot, &Plan::default());
    let plan =
        Plan { new_nodes: report.new_nodes.clone(), removals: report.removals.clone(), ..Plan::default() };
    assert!(audit(&snapshot, &plan).is_empty());
    assert_eq!((plan.new_nodes.len(), plan.removals.len()), (1, 1), "{report:?}");
    assert_eq!((&*plan.removals[0].node, &plan.removals[0].moves[0].on), ("a", &Target::New(0)));
    assert_eq!(report.verdict("a").unwrap().outcome, Outcome::Replaced);
    // One that saves next to nothing is not worth the move.
    snapshot.pools[0].templates[1].offerings[0].price = 960_000;
    assert!(scale_down(&snapshot, &Plan::default()).removals.is_empty());
    // Nor may it pass the bounds that always hold.
    snapshot.pools[0].templates[1].offerings[0].price = 600_000;
    snapshot.pools[0].max = 3;
    assert!(scale_down(&snapshot, &Plan::default()).removals.is_empty());
}

#[test]
fn a_pool_grows_by_one_step_for_its_trigger_or_its_high_mark() {
    #[track_caller]
    fn check(change: impl Fn(&mut Snapshot), new: usize) {
        let mut snapshot = base();
        snapshot.pools[0].templates[0].offerings = vec![crate::snapshot::Offering::default()];
        change(&mut snapshot);
        let plan = crate::plan::scale_up(&snapshot).plan;
        assert!(audit(&snapshot, &plan).is_empty());
        assert_eq!(plan.new_nodes.len(), new);
    }
    // 4.5 of 12 cpu are asked for.
    let high = |snapshot: &mut Snapshot, mark: u32, since: &str| {
        let demand = &mut snapshot.pools[0].demand;
        demand.target_cpu_percent = Some(mark);
        demand.scale_up_delay = Duration::from_mins(5);
        demand.high_since = Some(time(since));
    };
    check(|_| {}, 0);
    check(|s| high(s, 37, HOUR_AGO), 1);
    check(|s| high(s, 38, HOUR_AGO), 0); // not above it
    check(|s| high(s, 37, MINUTE_AGO), 0); // not for long enough
    check(
        |s| {
            high(s, 37, HOUR_AGO);
            s.pools[0].fixed = Some(3);
        },
        0,
    );
    check(
        |s| {
            high(s, 37, HOUR_AGO);
            s.pools[0].max = 3;
        },
        0,
    );
    check(
        |s| {
            high(s, 37, HOUR_AGO);
            s.cluster.pods.push(pod("waits", "", "3900m"));
        },
        1,
    ); // one node serves both
    check(|s| s.pools[0].demand.trigger = Some(Trigger::Up), 1);
    check(|s| s.pools[0].demand.trigger = Some(Trigger::Idle), 0);
    check(
        |s| {
            s.pools[0].demand.trigger = Some(Trigger::Up);
            s.members.get_mut("a").unwrap().state = MemberState::Upcoming { expected: time(NOW) };
        },
        0,
    ); // the last step is still on its way
}
