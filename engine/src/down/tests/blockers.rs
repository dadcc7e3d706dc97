//! OPS-U9: every reason that keeps a node is named, alone and in pairs.

use super::*;

/// What a plant changes: the snapshot, and the plan so far.
struct World {
    snapshot: Snapshot,
    plan: Plan,
}

/// Code, what it needs to stand alone, and the change.
type Plant = (&'static str, Needs, fn(&mut World));

/// What a plant speaks of; plants that speak of one thing differently cannot be planted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// The node has a pool that is known.
    Pool,
    /// It takes the pool away.
    NoPool,
    /// It sets how the node belongs to its pool.
    State,
}

fn on_a(world: &mut World, name: &str, metadata: &Value, spec: &Value) {
    world.snapshot.cluster.pods.push(pod_with(name, "a", "10m", metadata, spec));
}

fn annotate(world: &mut World, name: &str, annotation: &str, value: &str) {
    on_a(world, name, &json!({"annotations": {annotation: value}}), &json!({}));
}

fn owned(world: &mut World, name: &str, kind: &str, owner: &str) {
    on_a(
        world,
        name,
        &json!({"ownerReferences": [{"kind": kind, "name": owner, "controller": true}]}),
        &json!({}),
    );
}

fn budget(world: &mut World, app: &str, names: &[&str], allowed: i32) {
    on_a(world, &format!("{app}-pod"), &json!({"labels": {"app": app}}), &json!({}));
    for name in names {
        world.snapshot.cluster.budgets.push(from(json!({"metadata": {"name": name, "namespace": "d"},
            "spec": {"selector": {"matchLabels": {"app": app}}}, "status": {"disruptionsAllowed": allowed}})));
    }
}

fn node_a(world: &mut World) -> &mut Node {
    &mut world.snapshot.cluster.nodes[0]
}

fn member_a(world: &mut World) -> &mut Member {
    world.snapshot.members.get_mut("a").unwrap()
}

fn host_a(world: &mut World) -> &mut Host {
    if world.snapshot.hosts.is_empty() {
        member_a(world).host = Some("h".into());
        world.snapshot.hosts.push(Host { name: "h".into(), pool: "p".into(), ..Host::default() });
    }
    &mut world.snapshot.hosts[0]
}

fn demand(world: &mut World) -> &mut crate::snapshot::Demand {
    &mut world.snapshot.pools[0].demand
}

fn note(world: &mut World, annotation: &str) {
    let mut annotations: Vec<(String, String)> =
        node_a(world).metadata.annotations.iter().map(|(k, v)| (k.into(), v.into())).collect();
    annotations.push((annotation.into(), "true".into()));
    node_a(world).metadata.annotations = annotations.into_iter().collect();
}

const PLANTS: &[Plant] = &[
    ("notOurs", Needs::NoPool, |w| drop(w.snapshot.members.remove("a"))),
    ("unknownPool", Needs::NoPool, |w| {
        if let Some(member) = w.snapshot.members.get_mut("a") {
            member.pool = "lost".into();
        }
    }),
    ("frozen", Needs::Pool, |w| w.snapshot.pools[0].mode = Mode::Frozen),
    ("held", Needs::Nothing, |w| {
        let until = Some(time("2026-01-02T01:00:00Z"));
        let hold =
            Hold { scope: Scope::Node("a".into()), stops: Stops::Removal, why: "burn-in".into(), until };
        w.snapshot.holds.push(hold);
    }),
    ("unobserved", Needs::Nothing, |w| {
        w.snapshot
            .gaps
            .push(Gap { scope: Scope::Node("a".into()), why: "its pods could not be listed".into() });
    }),
    ("annotated", Needs::Nothing, |w| note(w, "cluster-autoscaler.kubernetes.io/scale-down-disabled")),
    ("annotated", Needs::Nothing, |w| note(w, "karpenter.sh/do-not-disrupt")),
    ("leaving", Needs::State, |w| member_a(w).state = MemberState::Leaving),
    ("upcoming", Needs::State, |w| member_a(w).state = MemberState::Upcoming { expected: time(NOW) }),
    ("notReady", Needs::Nothing, |w| {
        node_a(w).status.conditions = vec![from(json!({"type": "Ready", "status": "Unknown"}))].into();
    }),
    ("tooManyUnready", Needs::Nothing, |w| {
        for at in 0..5 {
            let mut broken = node(&format!("broken-{at}"), "4");
            broken.status.conditions = vec![from(json!({"type": "Ready", "status": "False"}))].into();
            w.snapshot.cluster.nodes.push(broken);
        }
    }),
    ("minimum", Needs::Pool, |w| w.snapshot.pools[0].min = 100),
    ("fixedSize", Needs::Pool, |w| w.snapshot.pools[0].fixed = Some(100)),
    ("growing", Needs::Pool, |w| {
        w.plan.new_nodes.push(NewNode {
            name: "x".into(),
            pool: "p".into(),
            template: "t".into(),
            ..NewNode::default()
        });
    }),
    ("needed", Needs::Nothing, |w| {
        w.snapshot.cluster.pods.push(pod("waits", "", "10m"));
        w.plan.placements.push(Placement { pod: key("waits"), on: Target::Node("a".into()) });
    }),
    ("trigger", Needs::Pool, |w| demand(w).trigger = Some(Trigger::Idle)),
    ("cooldown", Needs::Pool, |w| {
        w.snapshot.cluster.nodes[1].metadata.creation_timestamp = Some(time(MINUTE_AGO));
    }),
    ("young", Needs::Pool, |w| node_a(w).metadata.creation_timestamp = Some(time(MINUTE_AGO))),
    ("busy", Needs::Pool, |w| demand(w).scale_down_percent = Some(12)),
    ("notUnneededLongEnough", Needs::Pool, |w| member_a(w).unneeded_since = Some(time(MINUTE_AGO))),
    ("onTime", Needs::Pool, |w| {
        let host = host_a(w);
        (host.on_since, host.min_on_time) = (Some(time(MINUTE_AGO)), Duration::from_mins(10));
    }),
    ("lastThere", Needs::State, |w| {
        host_a(w).rack = Some("r1".into());
        w.snapshot.pools[0].keep_racks = 1;
    }),
    ("headroom", Needs::Pool, |w| w.snapshot.pools[0].headroom = from(json!({"cpu": "400"}))),
    ("highMark", Needs::Pool, |w| demand(w).target_memory_percent = Some(0)),
    ("notSafeToEvict", Needs::Nothing, |w| {
        annotate(w, "unsafe", "cluster-autoscaler.kubernetes.io/safe-to-evict", "false");
    }),
    ("waitsForCompletion", Needs::Nothing, |w| {
        annotate(w, "batch", "cluster-autoscaler.kubernetes.io/safe-to-evict", "on-completion");
    }),
    ("doNotDisrupt", Needs::Nothing, |w| annotate(w, "calm", "karpenter.sh/do-not-disrupt", "true")),
    ("unreplicated", Needs::Nothing, |w| on_a(w, "bare", &json!({"ownerReferences": []}), &json!({}))),
    ("controllerMissing", Needs::Nothing, |w| owned(w, "orphan", "ReplicaSet", "gone")),
    ("fewReplicas", Needs::Nothing, |w| {
        w.snapshot.drain.min_replicas = 2;
        w.snapshot.cluster.stateful_sets =
            vec![from(json!({"metadata": {"name": "db", "namespace": "d"}, "spec": {"replicas": 1}}))];
        owned(w, "db-0", "StatefulSet", "db");
    }),
    ("localStorage", Needs::Nothing, |w| {
        on_a(w, "scratch", &json!({}), &json!({"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}));
    }),
    ("systemPod", Needs::Nothing, |w| {
        let owner = json!([{"kind": "Custom", "name": "dns", "controller": true}]);
        on_a(w, "dns", &json!({"namespace": "kube-system", "ownerReferences": owner}), &json!({}));
    }),
    ("severalBudgets", Needs::Nothing, |w| budget(w, "twice", &["one", "two"], 5)),
    ("budget", Needs::Nothing, |w| budget(w, "strict", &["none"], 0)),
    ("noPlace", Needs::Nothing, |w| on_a(w, "picky", &json!({}), &json!({"nodeSelector": {"disk": "ssd"}}))),
];

fn cannot_meet(a: &Plant, b: &Plant) -> bool {
    let clash = |a: Needs, b: Needs| a == Needs::NoPool && b != Needs::Nothing;
    clash(a.1, b.1) || clash(b.1, a.1) || a.1 == Needs::State && b.1 == Needs::State
}

#[track_caller]
fn verdict(plants: &[&Plant]) -> (World, Verdict) {
    let mut world = World { snapshot: base(), plan: Plan::default() };
    for (_, _, plant) in plants {
        plant(&mut world);
    }
    let report = scale_down(&world.snapshot, &world.plan);
    assert!(report.removals.iter().all(|removal| &*removal.node != "a"), "a blocked node went");
    let verdict = report.verdict("a").unwrap().clone();
    assert_eq!(verdict.outcome, Outcome::Blocked);
    (world, verdict)
}

#[test]
fn ops_u9_each_reason_alone_is_the_only_one_named() {
    assert!(PLANTS.len() >= 18);
    for plant in PLANTS {
        let (_, verdict) = verdict(&[plant]);
        let codes: Vec<&str> = verdict.blockers.iter().map(Blocker::code).collect();
        assert_eq!(codes, [plant.0], "{:?}", verdict.blockers);
        assert!(!verdict.blockers[0].to_string().is_empty());
    }
}

#[test]
fn ops_u9_both_reasons_of_every_pair_are_named() {
    let mut pairs = 0;
    for (at, first) in PLANTS.iter().enumerate() {
        for second in PLANTS[at + 1..].iter().filter(|second| !cannot_meet(first, second)) {
            let (_, verdict) = verdict(&[first, second]);
            let mut codes: Vec<&str> = verdict.blockers.iter().map(Blocker::code).collect();
            let mut wanted = vec![first.0, second.0];
            codes.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(codes, wanted, "{:?}", verdict.blockers);
            pairs += 1;
        }
    }
    assert!(pairs > 450, "{pairs}");
}

#[test]
fn ops_u9_the_pod_the_budget_and_the_next_time_are_named() {
    #[track_caller]
    fn check(code: &str, text: &str, next: Option<&str>) {
        let plant = PLANTS.iter().find(|plant| plant.0 == code).unwrap();
        let (_, verdict) = verdict(&[plant]);
        assert_eq!(verdict.blockers[0].to_string(), text);
        assert_eq!(verdict.next, next.map(time));
        assert_eq!(verdict.unneeded, matches!(code, "cooldown" | "young" | "notUnneededLongEnough"));
    }
    check("budget", "budget d/none allows 0 disruptions, pod d/strict-pod needs one", None);
    check(
        "severalBudgets",
        "pod d/twice-pod is covered by 2 budgets (d/one, d/two), so it cannot be evicted",
        None,
    );
    check("localStorage", "pod d/scratch keeps volume v on the node", None);
    check("noPlace", "pod d/picky fits no other node: 2 do not match its selectors or have taints", None);
    check("held", "node a is held until 2026-01-02T01:00:00Z: burn-in", Some("2026-01-02T01:00:00Z"));
    check(
        "notUnneededLongEnough",
        "it is unneeded since 2026-01-01T23:59:00Z and has to be for 10m, until 2026-01-02T00:09:00Z",
        Some("2026-01-02T00:09:00Z"),
    );
    check(
        "cooldown",
        "pool p last grew 2026-01-01T23:59:00Z and rests for 10m, until 2026-01-02T00:09:00Z",
        Some("2026-01-02T00:09:00Z"),
    );
    check(
        "young",
        "it is there since 2026-01-01T23:59:00Z and stays at least 10m, until 2026-01-02T00:09:00Z",
        Some("2026-01-02T00:09:00Z"),
    );
    check("tooManyUnready", "5 of 8 nodes of the cluster are not ready: no removals until they are", None);
    check("minimum", "pool p has 3 ready nodes, its minimum is 100", None);
}
