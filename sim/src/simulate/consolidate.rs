//! Could the cluster run on fewer machines? What could be, not what is done now.

use muster_engine::Snapshot;
use muster_model::Duration;

/// Takes away what only says "not yet" or "not so full": delays, marks and triggers. Bounds, holds and everything
/// that pods say stay. A disruption budget that allows something now allows more once moved pods run again.
pub(super) fn relax(snapshot: &mut Snapshot) -> Option<String> {
    for pool in &mut snapshot.pools {
        let demand = &mut pool.demand;
        demand.scale_down_delay = Duration::ZERO;
        demand.scale_down_percent = None;
        demand.target_cpu_percent = None;
        demand.target_memory_percent = None;
        demand.trigger = None;
    }
    for host in &mut snapshot.hosts {
        host.min_on_time = Duration::ZERO;
    }
    let mut rounds = 0;
    for budget in &mut snapshot.cluster.budgets {
        let current = budget.status.observed_generation >= budget.metadata.generation;
        if current && budget.status.disruptions_allowed.is_some_and(|allowed| allowed > 0) {
            rounds += 1;
            budget.status.disruptions_allowed = Some(i32::MAX);
        }
    }
    let budgets = if rounds == 1 {
        "1 disruption budget allows".to_owned()
    } else {
        format!("{rounds} disruption budgets allow")
    };
    (rounds > 0).then(|| format!("{budgets} moves a few at a time; the removals may take several rounds"))
}
