//! Everything that a step may look at, gathered from the book, the last look at the machine, and around.

use std::sync::Arc;

use muster_engine::lifecycle::{
    self, AgentView, BmcTrouble, Deletion, Evidence, Freeze, Leadership, NodeSeen, NodeView, PodsView,
    PoolView, Settings, Surroundings, TroubleClass,
};
use muster_model::{
    Duration, Known, Timestamp,
    host::{
        BareMetalNodeSpec, BareMetalNodeStatus, DeletionMode, FreezeMode, HostOp, Phase, PoolHostConfig,
        Presence,
    },
    observe::ClusterPort,
};

use super::{
    around::{Dress, Home, PoolSays},
    book::{Book, Record, Spot},
    nodes::{self, Indexed, Kept},
    recount,
    turn::{Memo, Shared},
    ways::access_version,
};
use crate::lead::Tenure;

/// The cluster side of a host at one moment.
#[derive(Debug)]
pub(super) enum Cluster {
    /// No cluster has its pool, and no node of it is anywhere.
    Nowhere,
    Unknown(String),
    Seen(Sight),
}

/// What a cluster shows now, and how to act on it.
#[derive(Debug)]
pub(super) struct Sight {
    pub name: Arc<str>,
    pub port: Arc<dyn ClusterPort>,
    pub index: Arc<Indexed>,
    /// Its pool is another cluster's, or nobody's: its node is still here.
    pub away: bool,
}

impl Cluster {
    pub(super) fn sight(&self) -> Option<&Sight> {
        match self {
            Self::Seen(sight) => Some(sight),
            Self::Nowhere | Self::Unknown(_) => None,
        }
    }

    pub(super) fn index(&self) -> Option<&Arc<Indexed>> {
        self.sight().map(|sight| &sight.index)
    }
}

/// The cluster of the host's pool as it is now. A pool may be deleted or renamed, and a host moved to another one: its node
/// stays where it joined, and so does what runs there.
pub(super) fn cluster_of(
    shared: &Shared,
    host: &str,
    spec: &BareMetalNodeSpec,
    status: Option<&BareMetalNodeStatus>,
    silence: Duration,
) -> Cluster {
    let joined = status.and_then(|status| Some((status.kubernetes_cluster.as_deref()?, status)));
    match (shared.around.home(&spec.pool), joined) {
        (Home::Nowhere, None) => Cluster::Nowhere,
        (Home::Nowhere, Some((joined, status))) => away(shared, host, joined, status),
        (Home::Unconnected { why }, _) => Cluster::Unknown(why),
        (Home::Cluster { name, port }, joined) => match (sight(shared, &name, port, false), joined) {
            // The object of a time when it served there may have stayed behind: only a kubelet that is alive says that it
            // is back.
            (Cluster::Seen(sight), Some((joined, status)))
                if *joined != *name && !sight.index.is_alive(host, spec, silence) =>
            {
                away(shared, host, joined, status)
            }
            (seen, _) => seen,
        },
    }
}

fn sight(shared: &Shared, name: &Arc<str>, port: Arc<dyn ClusterPort>, away: bool) -> Cluster {
    match port.view() {
        Err(not_synced) => Cluster::Unknown(format!("cluster {name}: {not_synced}")),
        Ok(view) => {
            let index = shared.indexed(name, view);
            Cluster::Seen(Sight { name: Arc::clone(name), port, index, away })
        }
    }
}

/// The cluster in which its node was last seen alive, which is not that of its pool.
fn away(shared: &Shared, host: &str, joined: &str, status: &BareMetalNodeStatus) -> Cluster {
    let clusters = shared.around.clusters();
    if let Some((name, port)) = clusters.iter().find(|(name, _)| **name == *joined) {
        return sight(shared, name, Arc::clone(port), true);
    }
    let node = status.kubernetes_node.as_deref().unwrap_or(host);
    Cluster::Unknown(format!(
        "node {node} was last seen in cluster {joined}, to which 0 connections are open; give the host's pool back to that \
         cluster, or say that nothing there needs it: muster acknowledge host {host}"
    ))
}

/// What holds for a host: its spec over its pool's settings over the global ones. A call takes no longer
/// than the leader's lease allows for, whatever the settings say.
pub(super) fn settings(shared: &Shared, record: &Record, spec: &BareMetalNodeSpec, book: &Book) -> Settings {
    let around = Surroundings {
        generation: record.generation(),
        credential_version: access_version(spec, |name| shared.around.credential_version(name)),
        time_factor: shared.pace.factor,
    };
    let pool = pool_settings(shared, &spec.pool, book);
    let mut settings = lifecycle::settings(spec, pool.as_deref(), &book.global, around);
    let margin = settings.limits.lease_margin;
    let room = shared.lease_room.saturating_sub(margin).max(Duration::from_millis(1));
    settings.limits.call = settings.limits.call.min(room);
    settings
}

/// What a pool says of its hosts, if it says anything.
pub(super) fn pool_settings(shared: &Shared, pool: &str, book: &Book) -> Option<Arc<PoolHostConfig>> {
    match shared.around.pool_says(pool) {
        PoolSays::Unasked => book.pools.get(pool).cloned().map(Arc::new),
        PoolSays::Nothing => None,
        PoolSays::This(config) => Some(config),
    }
}

/// What is known at this moment.
#[allow(clippy::too_many_arguments, reason = "each is a source of its own")]
pub(super) fn gather(
    shared: &Shared,
    name: &str,
    record: &Record,
    spec: &BareMetalNodeSpec,
    memo: &Memo,
    cluster: &Cluster,
    lead: &Tenure,
    settings: Settings,
    now: Timestamp,
) -> Evidence {
    let book = shared.book();
    let (power, bmc, progress) = match &memo.looked {
        Some(looked) => (looked.power.clone(), looked.bmc.clone(), looked.progress.clone()),
        None => (
            Known::Unknown { why: "not read yet".into(), since: now },
            Known::Unknown {
                why: BmcTrouble {
                    class: TroubleClass::NotTried,
                    message: "not read yet".into(),
                    attempts: 0,
                    credential_version: settings.credential_version,
                    driver: None,
                    key: None,
                },
                since: now,
            },
            None,
        ),
    };
    let reported = shared.around.boot_report(name);
    let boot_progress = match (progress, reported) {
        (Some(own), Some(told)) => Some(if told.at > own.at { told } else { own }),
        (own, told) => own.or(told),
    };
    let dress = shared.around.dress(&spec.pool);
    let known = record.status.as_deref().and_then(|status| status.kubernetes_node.as_deref());
    let kept = Kept::of(shared, &spec.pool, record.op.as_deref());
    let (node, pods) = if let Some(why) = old_copy(name, spec, cluster, settings.limits.lease_silence) {
        let why = why.to_string();
        (Known::Unknown { why: why.clone(), since: now }, Known::Unknown { why, since: now })
    } else {
        node_and_pods(name, spec, &dress, known, kept, memo, cluster, now)
    };
    let would_pend = would_pend(name, spec, record, cluster, &pods, now);
    let readable = settings.drivers.iter().any(|driver| driver.abilities.read_power);
    let presence = if readable { unread(now) } else { shared.around.presence(name, now) };
    Evidence {
        pool: pool_view(shared, name, spec, would_pend, &book),
        settings,
        intent: record.intent.as_deref().cloned(),
        leadership: Leadership::Leader { epoch: lead.fence.epoch.0, lease_left: lead.left },
        unattended: if memo.taken_over { Duration::ZERO } else { shared.lead.unattended() },
        freeze: freeze(book.global.freeze, shared.around.freeze()),
        deletion: if record.spec.is_none() { Deletion::Forced } else { deletion(spec) },
        power,
        second: memo.second,
        bmc,
        presence,
        agent: agent(shared.around.agent(name), record.op.as_deref()),
        boot_progress,
        node,
        pods,
        performed: memo.performed.clone(),
    }
}

/// The stricter of what the settings say and what the rest of the process knows.
pub(super) const fn freeze(settings: FreezeMode, told: FreezeMode) -> Freeze {
    match (settings, told) {
        (FreezeMode::Frozen, _) | (_, FreezeMode::Frozen) => Freeze::Frozen,
        (FreezeMode::AllOn, _) | (_, FreezeMode::AllOn) => Freeze::AllOn,
        (FreezeMode::None, FreezeMode::None) => Freeze::None,
    }
}

/// What the spec says about going away.
fn deletion(spec: &BareMetalNodeSpec) -> Deletion {
    match spec.deletion.as_ref().map(|deletion| deletion.mode) {
        None => Deletion::None,
        Some(DeletionMode::Keep) => Deletion::Requested,
        Some(DeletionMode::PowerOff) => Deletion::RequestedWithPowerOff,
        Some(DeletionMode::Force) => Deletion::Forced,
    }
}

/// An agent that took a token since this operation asked for it took the token of this operation.
fn agent(mut view: AgentView, op: Option<&HostOp>) -> AgentView {
    let asked = op.and_then(|op| Some((op.asked_off_at?, op)));
    match (&mut view.goodbye, asked) {
        (Some(goodbye), Some((asked, op))) if goodbye.at >= asked => goodbye.op.clone_from(&op.id),
        (goodbye, _) => *goodbye = None,
    }
    view
}

fn unread(now: Timestamp) -> Known<Presence> {
    Known::Unknown { why: "its power can be read".into(), since: now }
}

/// That the cluster is shown as it was before what has been seen, and this node not alive: it may be all the same, and may have
/// joined since. A kubelet that is seen to renew is there, whatever else is old.
fn old_copy(name: &str, spec: &BareMetalNodeSpec, cluster: &Cluster, silence: Duration) -> Option<Arc<str>> {
    let Cluster::Seen(Sight { index, .. }) = cluster else { return None };
    index.view.behind.clone().filter(|_| !index.is_alive(name, spec, silence))
}

#[allow(clippy::too_many_arguments, reason = "each is a source of its own")]
fn node_and_pods(
    name: &str,
    spec: &BareMetalNodeSpec,
    dress: &Dress,
    gone: Option<&str>,
    kept: Kept,
    memo: &Memo,
    cluster: &Cluster,
    now: Timestamp,
) -> (Known<NodeView>, Known<PodsView>) {
    match cluster {
        Cluster::Nowhere => (
            Known::Value { value: NodeView::Absent, at: now },
            Known::Value { value: PodsView::default(), at: now },
        ),
        Cluster::Unknown(why) => {
            (Known::Unknown { why: why.clone(), since: now }, Known::Unknown { why: why.clone(), since: now })
        }
        Cluster::Seen(Sight { name: cluster, index, away, .. }) => {
            let at = index.view.fresh_at;
            let node = match nodes::seen(name, spec, dress, index) {
                Ok(NodeView::Present(node)) => NodeView::Present(NodeSeen {
                    cluster: Some(cluster.to_string()),
                    // What its new pool puts on nodes is for the cluster of that pool.
                    labels_complete: node.labels_complete || *away,
                    ..node
                }),
                Ok(NodeView::Absent) => NodeView::Absent,
                Err(ambiguous) => {
                    let why = ambiguous.to_string();
                    return (
                        Known::Unknown { why: why.clone(), since: now },
                        Known::Unknown { why, since: now },
                    );
                }
            };
            let pods = match &node {
                // Whoever is bound to a node that somebody deleted may still run there, and what is guarded is so without one.
                NodeView::Absent => match gone {
                    Some(gone) => nodes::pods_seen(index, gone, kept, memo.blocked_by.as_deref(), now),
                    None => PodsView {
                        guarded: index.view.guard_of(nodes::named(name, spec)).map(ToString::to_string),
                        ..PodsView::default()
                    },
                },
                NodeView::Present(node) => {
                    nodes::pods_seen(index, &node.name, kept, memo.blocked_by.as_deref(), now)
                }
            };
            // A pod that is seen is there; one that is not seen may be there all the same.
            let pods = match &index.doubt {
                Some(why) if pods.total() == 0 && pods.guarded.is_none() => {
                    Known::Unknown { why: why.clone(), since: at }
                }
                _ => recount::compared(pods, memo.recount.as_ref(), at, now),
            };
            (Known::Value { value: node, at }, pods)
        }
    }
}

/// How many pods would have no place without the host. Asked when the last one has left its node: it is the whole of the
/// scheduler's question.
fn would_pend(
    name: &str,
    spec: &BareMetalNodeSpec,
    record: &Record,
    cluster: &Cluster,
    pods: &Known<PodsView>,
    now: Timestamp,
) -> Known<u32> {
    let evicting = record.status.as_deref().is_some_and(|status| status.phase == Phase::Evicting);
    let drained = matches!(pods, Known::Value { value, .. } if value.total() == 0);
    // What a person asked for is not weighed against demand.
    let op = record.op.as_deref().filter(|op| evicting && drained && op.cause.is_automatic());
    match (op, cluster) {
        (None, _) | (_, Cluster::Nowhere) => Known::Value { value: 0, at: now },
        (_, Cluster::Unknown(why)) => Known::Unknown { why: why.clone(), since: now },
        (Some(op), Cluster::Seen(Sight { index, .. })) => {
            let node = index.clear_node(name, spec);
            Known::Value { value: index.would_return(node, op.started), at: index.view.fresh_at }
        }
    }
}

fn pool_view(
    shared: &Shared,
    name: &str,
    spec: &BareMetalNodeSpec,
    would_pend: Known<u32>,
    book: &Book,
) -> PoolView {
    let max = shared.around.pool_max(&spec.pool);
    PoolView {
        below_max: max.is_none_or(|max| book.pool_up(&spec.pool) < max),
        last_there: last_there(shared, spec, book, max),
        would_pend,
        repairs_stopped: book.repairs_stopped(name, &spec.pool),
        advice: shared.around.advice(&spec.pool),
    }
}

/// The rack or zone in which the host is the last that serves, if its pool asks for spread. A pool above its maximum gives nodes
/// up all the same, as the planner says.
fn last_there(shared: &Shared, spec: &BareMetalNodeSpec, book: &Book, max: Option<u32>) -> Option<String> {
    let config = pool_settings(shared, &spec.pool, book)?;
    if max.is_some_and(|max| book.pool_up(&spec.pool) > max) {
        return None;
    }
    let alone = |there: &dyn Fn(&Spot) -> bool| book.ready_where(&spec.pool, there) <= 1;
    let rack = spec.rack.as_deref().filter(|_| config.rack_spread);
    if let Some(rack) = rack.filter(|rack| alone(&|spot| spot.rack.as_deref() == Some(*rack))) {
        return Some(format!("rack {rack}"));
    }
    let zone_of = |zone: Option<&str>, rack: Option<&str>| {
        zone.map(str::to_owned).or_else(|| shared.around.rack(rack?)?.zone)
    };
    let zone = zone_of(spec.zone.as_deref(), spec.rack.as_deref()).filter(|_| config.zone_spread)?;
    let same = |spot: &Spot| zone_of(spot.zone.as_deref(), spot.rack.as_deref()).as_ref() == Some(&zone);
    alone(&same).then(|| format!("zone {zone}"))
}
