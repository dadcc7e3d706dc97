//! Loaded state plans as the snapshot does, after any number of changes.

use std::sync::Arc;

use muster_model::k8s::Pod;
use serde_json::{Value, json};

use super::{ZONE, add_node, pod, pool, template};
use crate::{
    Snapshot, audit,
    plan::{Explain, Loaded, scale_up},
};

/// A small generator, so that a failing case is one number.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits fit") % sides
    }
}

fn rules(kind: usize) -> Value {
    let selector = json!({"matchLabels": {"app": "a"}});
    match kind {
        0 => json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]}),
        1 => json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            [{"labelSelector": selector, "topologyKey": super::HOSTNAME}]}}}),
        2 => json!({"volumes": [{"name": "d", "gcePersistentDisk": {"pdName": "d1"}}]}),
        _ => json!({}),
    }
}

fn random_pod(dice: &mut Dice, number: usize) -> Pod {
    let name = format!("{}-{number}", ["a", "b"][dice.roll(2)]);
    pod(&name, ["100m", "500m", "1"][dice.roll(3)], rules(dice.roll(6)))
}

#[test]
fn plans_on_loaded_state_equal_plans_on_the_snapshot() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let mut snapshot = Snapshot {
            pools: vec![pool("p", 6, vec![template("m", 4, &["a", "b"], 1_000)])],
            ..Snapshot::default()
        };
        for at in 0..3 {
            add_node(&mut snapshot, &format!("n{at}"), "p", ["a", "b"][at % 2], 4);
        }
        let mut loaded = Loaded::new(snapshot.clone());
        for number in 0..24 {
            let mut next = random_pod(&mut dice, number);
            if dice.roll(2) == 0 {
                let node = format!("n{}", dice.roll(4)); // n3 is not known
                Arc::make_mut(&mut next.spec).node_name = Some(node.into());
            }
            loaded.add(next.clone());
            snapshot.cluster.pods.push(next);
            if dice.roll(4) == 0 {
                let gone = snapshot.cluster.pods.remove(dice.roll(snapshot.cluster.pods.len()));
                let key = gone.key();
                let found = match &gone.spec.node_name {
                    Some(_) => loaded.remove(&key.namespace, &key.name),
                    None => loaded.remove_pending(&key),
                };
                assert!(found, "{key}");
                assert!(!loaded.remove(&key.namespace, &key.name));
            }
        }
        let bound = snapshot.cluster.pods.iter().filter(|pod| pod.spec.node_name.is_some()).count();
        assert_eq!(loaded.bound(), bound);
        let decision = loaded.scale_up(Explain::Yes);
        assert_eq!(decision, scale_up(&snapshot), "seed {seed}");
        let findings = audit(&snapshot, &decision.plan);
        assert!(findings.is_empty(), "seed {seed}: {findings}");
    }
}

#[test]
fn names_of_pods_that_went_are_given_back() {
    let mut snapshot = Snapshot::default();
    add_node(&mut snapshot, "n", "p", "a", 4);
    let mut loaded = Loaded::new(snapshot);
    for number in 0..5_000 {
        let mut next = pod(&format!("a-{number}"), "1m", json!({}));
        Arc::make_mut(&mut next.spec).node_name = Some("n".into());
        loaded.add(next);
        if number > 10 {
            assert!(loaded.remove("default", &format!("a-{}", number - 10)));
        }
    }
    assert_eq!((loaded.bound(), loaded.classes()), (11, 1));
    assert!(loaded.arena() < 10_000);
}
