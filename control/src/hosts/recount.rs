//! A second look at the pods of a node before any of them is taken away, past every cache.
//!
//! A cache that lost pods shows nodes that are empty and are not. Whatever is decided on it, nothing is evicted and no
//! power goes while the API server itself has pods on the node that the view does not show.

use muster_engine::lifecycle::{HostState, NodeView, PodsView};
use muster_model::{
    Known, Timestamp,
    host::{BareMetalNodeSpec, Phase},
};

use super::{
    evidence::{Cluster, Sight},
    nodes::{self, Indexed, Kept},
    turn::Shared,
};

/// Asks the API server, in the phases that lead to evictions and to power-off. Once a drain is under way it is asked
/// again only when the view says that all pods are gone.
pub(super) async fn recount(
    shared: &Shared,
    name: &str,
    spec: &BareMetalNodeSpec,
    state: Option<&HostState>,
    cluster: &Cluster,
) -> Option<Result<PodsView, String>> {
    let status = &state?.status;
    let phase = status.phase;
    let sight = cluster.sight()?;
    let index = &sight.index;
    let node = node_name(index, shared, name, spec, status.kubernetes_node.as_deref())?;
    let now = shared.clock.now();
    let due = match phase {
        Phase::Cordoned | Phase::Drained => true,
        Phase::Evicting => nodes::pods_seen(index, &node, Kept::default(), None, now).total() == 0,
        _ => false,
    };
    if !due {
        return None;
    }
    ask_about(shared, sight, &node).await
}

/// What the API server itself says of the pods on a host's node; `None` where there never was a node or is nobody to ask.
pub(super) async fn ask(
    shared: &Shared,
    name: &str,
    spec: &BareMetalNodeSpec,
    known: Option<&str>,
    sight: &Sight,
) -> Option<Result<PodsView, String>> {
    let node = node_name(&sight.index, shared, name, spec, known)?;
    ask_about(shared, sight, &node).await
}

async fn ask_about(shared: &Shared, sight: &Sight, node: &str) -> Option<Result<PodsView, String>> {
    match sight.port.pods_on(node).await {
        Ok(None) => None,
        Ok(Some(pods)) => Some(Ok(nodes::count(pods.iter(), Kept::default(), shared.clock.now()))),
        Err(error) => Some(Err(error.to_string())),
    }
}

/// The node of a host, as it is shown or was `known` last: an old copy may show none, and who was bound to one that was deleted may
/// run there still.
fn node_name(
    index: &Indexed,
    shared: &Shared,
    name: &str,
    spec: &BareMetalNodeSpec,
    known: Option<&str>,
) -> Option<String> {
    match nodes::seen(name, spec, &shared.around.dress(&spec.pool), index).ok()? {
        NodeView::Present(node) => Some(node.name),
        NodeView::Absent => known.map(str::to_owned),
    }
}

/// What may be believed of the pods of a node.
pub(super) fn compared(
    mut seen: PodsView,
    recount: Option<&Result<PodsView, String>>,
    at: Timestamp,
    now: Timestamp,
) -> Known<PodsView> {
    match recount {
        Some(Err(why)) => return Known::Unknown { why: why.clone(), since: now },
        Some(Ok(counted)) if counted.total() > seen.total() => {
            let (more, shown) = (counted.total(), seen.total());
            let why = format!("the API server has {more} pods there, and our view shows {shown} of them");
            seen.guarded.get_or_insert(why);
        }
        None | Some(Ok(_)) => {}
    }
    Known::Value { value: seen, at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_r5_pods_that_the_view_lost_guard_their_node() {
        #[track_caller]
        fn check(shown: u32, counted: Option<Result<u32, &str>>, guarded: Option<bool>) {
            let at = Timestamp::from_millis(1_000);
            let view = |evictable| PodsView { evictable, ..PodsView::default() };
            let counted = counted.map(|one| one.map(view).map_err(str::to_owned));
            let found = compared(view(shown), counted.as_ref(), at, at);
            let found = match found {
                Known::Value { value, .. } => Some(value.guarded.is_some()),
                Known::Unknown { .. } => None,
            };
            assert_eq!(found, guarded);
        }
        // In the view, by the API server => guarded, or not known at all.
        check(2, None, Some(false));
        check(2, Some(Ok(2)), Some(false));
        check(2, Some(Ok(1)), Some(false)); // one has just ended
        check(1, Some(Ok(2)), Some(true));
        check(0, Some(Ok(1)), Some(true));
        check(0, Some(Err("no answer")), None);
    }
}
