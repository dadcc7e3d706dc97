//! Could the cluster run on fewer machines? What could be, not what is done now.

use muster_engine::Snapshot;
use muster_model::Duration;

/// Takes away what only says "not yet" or "not so full": delays, marks and triggers. Bounds, holds, budgets and
/// everything that pods say stay.
pub(super) fn relax(snapshot: &mut Snapshot) {
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
}
