//! BM-7.30: planner and host loop together, in a pool that only gives advice.

use std::sync::Arc;

use muster_control::{
    journal::{DecisionFilter, Journal, OutcomeState},
    registry::Kind,
};
use muster_model::{
    Duration,
    host::{ConditionType, Phase, is_true},
    store::Txn,
};
use muster_sim::world::{
    Outage, What, Workload,
    fleet::on_one_thread,
    simulation::Simulation,
    site::{self, PoolSetting},
};
use serde_json::{Value, json};

use super::{metal, now, unharmed};

/// What a person says with `muster enable pool` and `muster disable pool`.
async fn set_mode(simulation: &Simulation, mode: &str) {
    let key = Kind::Pool.object(site::pool_id(0));
    let entry = simulation.store().get(&key).await.unwrap().unwrap();
    let mut object: Value = serde_json::from_slice(&entry.value).unwrap();
    object["spec"]["mode"] = json!(mode);
    let _ =
        simulation.store().commit(Txn::new().put(&key, serde_json::to_vec(&object).unwrap())).await.unwrap();
}

/// What was done to nodes and pods since.
fn acts_since(simulation: &Simulation, seen: u64) -> Vec<String> {
    let verbs = [
        ": cordon ",
        ": uncordon ",
        ": evict ",
        ": label ",
        ": add a taint to ",
        ": remove a taint from ",
        ": delete ",
    ];
    let (_, mut lines) = simulation.world().lines_after(seen);
    lines.retain(|line| verbs.iter().any(|verb| line.contains(verb)));
    lines
}

/// How many decisions were only advice, and what they would have done.
async fn advised(simulation: &Simulation) -> Vec<String> {
    let journal = Journal::new(Arc::clone(simulation.store()));
    let page = journal.list(site::cluster_id(), &DecisionFilter::default(), None, 100).await.unwrap();
    let mine = page.decisions.iter().filter(|one| one.outcome.state == OutcomeState::Advised);
    mine.flat_map(|one| &one.actions).map(|one| format!("{:?}", one.kind)).collect()
}

/// A host to wake (scenario 1), a host to remove whose pod a budget keeps (3) and a pressed button (15): decided, shown, and
/// nothing reaches a BMC or the API server. Once the pool may act, everything is done.
#[test]
fn bm_7_30_in_a_pool_that_advises_everything_is_seen_and_nothing_is_done() {
    on_one_thread(async {
        let mut simulation = metal(4, PoolSetting::metal("web", 1, 4), 1).await;
        let world = Arc::clone(simulation.world());
        world.keep_all_lines();
        let mut shop = Workload::deployment("shop", 2, 5_000);
        shop.min_available = Some(1);
        world.add_workload(shop);
        simulation.run_for(Duration::from_mins(20)).await.unwrap();
        assert_eq!(world.running(), 2, "{}", world.lines().join("\n"));

        set_mode(&simulation, "advise").await;
        simulation.run_for(Duration::from_secs(5)).await.unwrap();
        let (seen, _) = world.lines_after(0);
        let calls = || (world.power_ons(None), world.power_offs(None), world.evictions());
        let before = calls();
        world.set_replicas("shop", 3);
        simulation.run_for(Duration::from_mins(10)).await.unwrap();
        assert_eq!((world.pending(), calls()), (1, before), "scenario 1");
        let woken = advised(&simulation).await;
        assert!(woken.contains(&"Wake".to_owned()), "{woken:?}");

        world.set_replicas("shop", 1);
        now(&simulation, Duration::from_hours(2), What::Outage(Outage::BudgetsClosed));
        simulation.run_for(Duration::from_hours(1)).await.unwrap();
        assert_eq!(calls(), before, "scenario 3");
        let serving = world.nodes_of("shop").first().cloned().expect("a node with the last pod");
        world.press(&serving, false);
        simulation.run_for(Duration::from_mins(3)).await.unwrap();
        let status = simulation.status(&serving).await.unwrap().unwrap();
        assert!(is_true(&status.conditions, ConditionType::UnexpectedOff), "{status:?}");
        assert!(is_true(&status.conditions, ConditionType::AdviseOnly), "{status:?}");
        assert_eq!(status.phase, Phase::Idle);
        simulation.run_for(Duration::from_hours(3)).await.unwrap();
        assert_eq!((calls(), acts_since(&simulation, seen)), (before, Vec::new()), "scenario 15");

        set_mode(&simulation, "active").await;
        world.set_replicas("shop", 3);
        simulation.run_for(Duration::from_mins(10)).await.unwrap();
        assert_eq!(world.running(), 3, "{}", world.lines().join("\n"));
        unharmed(&simulation);
    });
}
