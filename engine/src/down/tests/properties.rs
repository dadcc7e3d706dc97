//! Random clusters: every plan passes the audit, and the order of the input does not matter.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A random pod, by small numbers.
#[derive(Debug, Clone)]
struct Draft {
    app: u8,
    node: u8,
    cpu: u8,
    kind: u8,
}

fn draft_pod(at: usize, draft: &Draft, nodes: usize) -> Pod {
    let app = format!("app-{}", draft.app % 4);
    let selector = json!({"matchLabels": {"app": app}});
    let term = |key: &str| json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector, "topologyKey": key}]});
    let zone = "topology.kubernetes.io/zone";
    let spread = |key: &str| json!([{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]);
    let spec = match draft.kind % 10 {
        0 => json!({"affinity": {"podAntiAffinity": term("kubernetes.io/hostname")}}),
        1 => json!({"affinity": {"podAffinity": term(zone)}}),
        2 => json!({"topologySpreadConstraints": spread(zone)}),
        3 => json!({"topologySpreadConstraints": spread("kubernetes.io/hostname")}),
        4 => json!({"nodeSelector": {zone: "z-0"}}),
        _ => json!({}),
    };
    let metadata = match draft.kind % 14 {
        10 => {
            json!({"labels": {"app": app}, "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}})
        }
        11 => {
            json!({"labels": {"app": app}, "ownerReferences": [{"kind": "DaemonSet", "name": "ds", "controller": true}]})
        }
        12 => json!({"labels": {"app": app}, "deletionTimestamp": HOUR_AGO}),
        _ => json!({"labels": {"app": app}}),
    };
    let cpu = format!("{}m", 100 * (1 + u32::from(draft.cpu % 12)));
    pod_with(&format!("pod-{at}"), &format!("n-{}", usize::from(draft.node) % nodes), &cpu, &metadata, &spec)
}

fn cluster(nodes: usize, min: u32, budget: i32, pods: &[Draft]) -> Snapshot {
    let mut snapshot = base();
    snapshot.cluster.nodes.clear();
    snapshot.members.clear();
    snapshot.pools[0].min = min;
    snapshot.pools[0].demand.scale_down_percent = None;
    let mut other = Pool { name: "q".into(), max: 100, ..Pool::default() };
    other.templates = snapshot.pools[0].templates.clone();
    snapshot.pools.push(other);
    for at in 0..nodes {
        let name = format!("n-{at}");
        let mut made = node(&name, ["2", "4", "8"][at % 3]);
        made.metadata.labels.insert("topology.kubernetes.io/zone", format!("z-{}", at % 2).into());
        snapshot.cluster.nodes.push(made);
        let price = [2, 4, 8][at % 3] * 1_000_000;
        let pool = if at % 4 == 0 { "q" } else { "p" };
        let member = Member { price, host: Some(name.as_str().into()), ..member(pool) };
        snapshot.hosts.push(Host {
            name: name.as_str().into(),
            pool: pool.into(),
            rack: Some(format!("r-{}", at % 3).into()),
            state: HostState::Ready,
            node: Some(name.as_str().into()),
            health: if at == 5 { Health::Critical("fan 0 rpm".into()) } else { Health::Good },
            ..Host::default()
        });
        snapshot.members.insert(name.into(), member);
    }
    snapshot.pools[0].keep_racks = min % 4;
    snapshot.pools[0].keep_zones = min % 3;
    snapshot.cluster.pods = pods.iter().enumerate().map(|(at, draft)| draft_pod(at, draft, nodes)).collect();
    snapshot.cluster.budgets = vec![from(json!({"metadata": {"name": "b", "namespace": "d"},
        "spec": {"selector": {"matchLabels": {"app": "app-0"}}}, "status": {"disruptionsAllowed": budget}}))];
    snapshot
}

fn drafts() -> impl Strategy<Value = Vec<Draft>> {
    let draft = (any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>());
    prop::collection::vec(draft.prop_map(|(app, node, cpu, kind)| Draft { app, node, cpu, kind }), 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn every_plan_passes_the_audit_and_keeps_its_bounds(
        nodes in 1_usize..12, min in 0_u32..4, budget in 0_i32..4, pods in drafts(),
    ) {
        let snapshot = cluster(nodes, min, budget, &pods);
        let report = scale_down(&snapshot, &Plan::default());
        let plan = Plan { removals: report.removals.clone(), ..Plan::default() };
        let findings = audit(&snapshot, &plan);
        prop_assert!(findings.is_empty(), "{findings:?}");
        prop_assert_eq!(report.verdicts.len(), nodes);
        for verdict in &report.verdicts {
            let goes = report.removals.iter().any(|removal| removal.node == verdict.node);
            let outcome = matches!(verdict.outcome, Outcome::Empty | Outcome::Drained | Outcome::Replaced);
            prop_assert_eq!(goes, outcome);
            prop_assert_eq!(verdict.outcome == Outcome::Blocked, !verdict.blockers.is_empty());
        }
        let drawn = plan.removals.iter().flat_map(|removal| &removal.moves)
            .filter(|step| snapshot.cluster.pods.iter().any(|pod| pod.key() == step.pod && pod.metadata.labels.text("app") == Some("app-0")))
            .count();
        prop_assert!(i32::try_from(drawn).unwrap() <= budget);
        for pool in &snapshot.pools {
            let of = |name: &str| snapshot.members[name].pool == pool.name;
            let had = snapshot.members.keys().filter(|name| of(name)).count();
            let gone = plan.removals.iter().filter(|removal| of(&removal.node)).count();
            prop_assert!(gone == 0 || had - gone >= pool.min as usize);
        }
    }

    #[test]
    fn growth_and_removals_of_one_plan_pass_the_audit_together(
        nodes in 1_usize..8, pods in drafts(), waiting in drafts(), price in 1_i64..9,
    ) {
        let mut snapshot = cluster(nodes, 0, 3, &pods);
        for pool in &mut snapshot.pools {
            let mut templates = pool.templates.clone();
            templates[0].offerings = vec![crate::snapshot::Offering { price: price * 1_000_000, ..Default::default() }];
            pool.templates = templates;
        }
        for (at, draft) in waiting.iter().take(usize::try_from(price).unwrap() % 4 * 3).enumerate() {
            let mut pod = draft_pod(1000 + at, draft, nodes);
            if !pod.is_terminating() && pod.metadata.controller().is_some_and(|owner| &*owner.kind != "DaemonSet") {
                Arc::make_mut(&mut pod.spec).node_name = None;
                pod.status = muster_model::k8s::PodStatus::default();
                snapshot.cluster.pods.push(pod);
            }
        }
        let mut plan = crate::plan::scale_up(&snapshot).plan;
        let report = complete(&snapshot, &mut plan);
        let findings = audit(&snapshot, &plan);
        prop_assert!(findings.is_empty(), "{findings:?} {report:?}");
    }

    /// What goes is not called up again to keep room free.
    #[test]
    fn removals_leave_the_room_that_growth_would_keep(
        nodes in 1_usize..10, pods in drafts(), spare in (0_u32..3, 0_u32..4, 1_u32..5), sum in 0_u32..9, closed in 0_usize..10,
    ) {
        let mut snapshot = cluster(nodes, 0, 3, &pods);
        snapshot.hosts.clear();
        for pool in &mut snapshot.pools {
            let (nodes, pods, cpu) = spare;
            pool.spare = Spare { nodes, pods, shape: from(json!({"cpu": cpu.to_string()})) };
            pool.headroom = from(json!({"cpu": sum.to_string()}));
        }
        if let Some(node) = snapshot.cluster.nodes.get_mut(closed) {
            node.spec.unschedulable = true;
        }
        let before = rules::short_of_room(&snapshot);
        let report = scale_down(&snapshot, &Plan::default());
        let after = rules::short_of_room(&rules::carried_out(&snapshot, &report.removals));
        prop_assert!(after.iter().all(|pool| before.contains(pool)), "{before:?} {after:?} {report:?}");
    }

    #[test]
    fn every_witness_is_a_plan_that_the_audit_accepts(nodes in 1_usize..8, pods in drafts()) {
        let snapshot = cluster(nodes, 0, 3, &pods);
        let report = scale_down(&snapshot, &Plan::default());
        for verdict in report.verdicts.iter().filter(|verdict| verdict.blockers.is_empty()) {
            let moves = verdict.movements(&snapshot).map(|step| Placement { pod: step.pod, on: Target::Node(step.to) });
            let removal = Removal { node: verdict.node.clone(), moves: moves.collect() };
            let findings = audit(&snapshot, &Plan { removals: vec![removal], ..Plan::default() });
            prop_assert!(findings.is_empty(), "{} {findings:?}", verdict.node);
        }
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(
        nodes in 1_usize..10, pods in drafts(), turn in 0_usize..40,
    ) {
        let snapshot = cluster(nodes, 1, 2, &pods);
        let first = scale_down(&snapshot, &Plan::default());
        prop_assert_eq!(&first, &scale_down(&snapshot, &Plan::default()));
        let mut turned = snapshot.clone();
        turned.cluster.nodes.rotate_left(turn % nodes);
        if !pods.is_empty() {
            turned.cluster.pods.rotate_left(turn % pods.len());
        }
        turned.cluster.pods.reverse();
        let second = scale_down(&turned, &Plan::default());
        prop_assert_eq!(&first.removals, &second.removals);
        let named = |report: &Report, snapshot: &Snapshot| -> BTreeMap<Arc<str>, (Vec<Blocker>, Vec<Movement>)> {
            let entry = |v: &Verdict| (v.node.clone(), (v.blockers.clone(), v.movements(snapshot).collect()));
            report.verdicts.iter().map(entry).collect()
        };
        prop_assert_eq!(named(&first, &snapshot), named(&second, &turned));
    }
}
