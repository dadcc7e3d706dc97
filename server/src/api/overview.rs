//! `GET /api/v1/overview`: the whole on one page, the worst first.

use std::{collections::BTreeMap, sync::Arc};

use axum::{http::StatusCode, response::Response};
use muster_control::{
    inventory::Host,
    registry::{Kind, Subject},
};
use muster_model::{
    ClusterId, Duration, Known, Timestamp,
    host::{BareMetalNodeStatus, Phase, PublicPower, State},
    identity::Resource,
};
use serde_json::{Value, json};

use super::{Call, energy, part::Part, pending, reply};
use crate::error::ApiError;

/// Things that need somebody, and operations, that are listed; the counts say how many there are.
const MOST: usize = 50;
/// A BMC that has been silent for longer needs somebody.
const SILENT: Duration = Duration::from_mins(2);

/// `GET /api/v1/overview`
pub async fn read(call: Call) -> Result<Response, ApiError> {
    call.check_list(Resource::NodePools)?;
    let mut query = call.query()?;
    let part = Part::read(&call, &mut query).await?;
    query.finish()?;
    let now = call.app.clock.now();
    let mut hosts = call.inventory().hosts(&call.host_filter())?;
    hosts.retain(|host| host.pool().map_or(part.cluster().is_none(), |pool| part.has_pool(pool)));
    let waiting = pending::waiting(&call, part.cluster()).await?;
    let mut attention: Vec<(u8, Value)> = Vec::new();
    attention.extend(alike(hosts.iter().filter_map(|host| trouble(host, now)).collect()));
    // `None` means that nobody can see any pod.
    let (mut pods, mut hopeless): (Option<usize>, usize) = (None, 0);
    for one in &waiting {
        let Some(groups) = &one.groups else { continue };
        let count = |helped: bool| -> usize {
            groups.iter().filter(|group| group.helped == helped).map(|group| group.count).sum()
        };
        pods = Some(pods.unwrap_or(0) + count(true) + count(false));
        hopeless += count(false);
        for group in groups.iter().filter(|group| !group.helped) {
            attention.push((
                1,
                json!({ "kind": "pods", "subject": format!("{} in {}", plural(group.count, "pod"), one.name),
                    "line": group.headline, "since": group.oldest, "link": "/pending", "pods": group.count,
                    "command": format!("muster explain pod {}", group.example) }),
            ));
        }
    }
    pools_in_trouble(&call, &part, &mut attention);
    planners_in_trouble(&call, &part, &mut attention);
    attention.sort_by_key(|(rank, _)| *rank);
    let mut by_state: BTreeMap<State, usize> = BTreeMap::new();
    let mut held = 0;
    for host in &hosts {
        *by_state.entry(host.state()).or_default() += 1;
        held += usize::from(host.readable().is_some_and(|spec| spec.hold.is_some()));
    }
    let on =
        |host: &&Arc<Host>| host.status.as_ref().is_some_and(|status| status.power_state == PublicPower::On);
    let drawn = energy::drawn(&hosts);
    let operations = operations(&call, &part, &hosts).await?;
    let answer = json!({
        "at": now,
        "revision": call.app.registry.revision().max(call.inventory().revision()).to_string(),
        "freeze": *call.app.registry.freeze(),
        "pending": { "pods": pods, "hopeless": hopeless,
            "unseen_clusters": waiting.iter().filter(|one| one.groups.is_none()).count() },
        "hosts": { "total": hosts.len(), "on": hosts.iter().filter(on).count(), "held": held, "by_state": by_state },
        "milliwatts": drawn.milliwatts,
        "unmetered": drawn.unmetered,
        "declared": drawn.declared,
        "saved_today": energy::saved_lately(&call, &part, now).await?,
        "attention_total": attention.len(),
        "attention": attention.into_iter().take(MOST).map(|(_, one)| one).collect::<Vec<_>>(),
        "operations_total": operations.len(),
        "operations": operations.into_iter().take(MOST).collect::<Vec<_>>(),
    });
    Ok(reply::value(StatusCode::OK, &answer))
}

pub(super) fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// What is wrong with one host.
struct Trouble {
    rank: u8,
    host: String,
    /// Without the host's name, so that hosts with the same trouble are told together.
    says: String,
    since: Option<Timestamp>,
    command: String,
}

/// One line for each trouble: a rack without power is one thing to see to, not forty.
fn alike(all: Vec<Trouble>) -> Vec<(u8, Value)> {
    let mut groups: BTreeMap<(u8, String), Vec<Trouble>> = BTreeMap::new();
    for one in all {
        groups.entry((one.rank, one.says.clone())).or_default().push(one);
    }
    let lines = groups.into_iter().map(|((rank, says), hosts)| {
        let since = hosts.iter().filter_map(|one| one.since).min();
        let names: Vec<&str> = hosts.iter().map(|one| one.host.as_str()).collect();
        let value = match &hosts[..] {
            [one] => json!({ "kind": "host", "subject": one.host, "line": format!("{} {says}", one.host),
                "since": since, "link": format!("/hosts/{}", one.host), "command": one.command, "hosts": 1 }),
            _ => json!({ "kind": "host", "subject": names.join(", "), "since": since, "link": "/racks?state=error",
                "line": format!("{} hosts: each {says}", hosts.len()), "command": hosts[0].command,
                "hosts": hosts.len() }),
        };
        (rank, value)
    });
    lines.collect()
}

/// ` after 3 failures, the last: powered on, but no node joined within 15m`, where it has failed.
fn failures(status: &BareMetalNodeStatus) -> Option<String> {
    let last = status.failures.last()?;
    Some(match status.failures.len() {
        1 => format!(" after a failure: {}", last.message),
        many => format!(" after {many} failures, the last: {}", last.message),
    })
}

/// What is wrong with a host that a person should know.
fn trouble(host: &Host, now: Timestamp) -> Option<Trouble> {
    let name = &*host.name;
    let entry = |rank: u8, says: String, since: Option<Timestamp>, command: String| {
        Some(Trouble { rank, host: name.to_owned(), says, since, command })
    };
    if let Some(aside) = host.set_aside() {
        let line = format!("is set aside: {}", aside.reason);
        return entry(0, line, None, format!("muster describe host {name}"));
    }
    let spec = host.readable()?;
    let status = host.status.as_deref()?;
    if spec.admin != muster_model::host::Admin::default() {
        return None; // a person has it
    }
    let explain = || format!("muster explain host {name}");
    if let Some(blocked) = &status.bmc_blocked {
        let remedy = blocked.remedy(name, spec);
        let rank = u8::from(status.state != State::Error);
        return entry(rank, remedy.says, Some(blocked.since), remedy.command);
    }
    if status.state == State::Error {
        let (line, command) = match status.phase {
            Phase::Quarantined => (
                format!(
                    "is quarantined{}",
                    failures(status).unwrap_or_else(|| format!(": {}", status.reason))
                ),
                format!("muster acknowledge host {name} --reason 'what was done'"),
            ),
            _ => (format!("failed: {}", status.reason), explain()),
        };
        let rank = if status.phase == Phase::Quarantined { 0 } else { 2 };
        return entry(rank, line, Some(status.state_since), command);
    }
    if let Some(since) = status.overdue_since {
        let line = format!("takes longer than it may: {}", status.reason);
        return entry(2, line, Some(since), explain());
    }
    if matches!(status.phase, Phase::Lost | Phase::Degraded) {
        let line = format!("is {}: {}", status.phase.as_str(), status.reason);
        return entry(1, line, Some(status.phase_since), explain());
    }
    match &status.power {
        Known::Unknown { why, since } if now.since(*since) > SILENT => {
            entry(2, format!("may be on or off, nobody knows: {why}"), Some(*since), explain())
        }
        _ => None,
    }
}

fn pools_in_trouble(call: &Call, part: &Part, attention: &mut Vec<(u8, Value)>) {
    call.app.registry.each(Kind::Pool, |pool| {
        let shown = call.sees(&pool.project) && part.has_cluster(ClusterId::from(pool.cluster));
        if !shown || pool.deleting || pool.health != "Unhealthy" {
            return;
        }
        let line = format!("pool {} has failed", pool.name);
        attention.push((
            1,
            json!({ "kind": "pool", "subject": pool.name, "line": line, "link": format!("/pools/{}", pool.id),
                "command": format!("muster describe pool {}", pool.name) }),
        ));
    });
}

fn planners_in_trouble(call: &Call, part: &Part, attention: &mut Vec<(u8, Value)>) {
    for live in call.app.explain.board().all() {
        if !call.sees(&live.project) || !part.has_cluster(live.cluster_id) {
            continue;
        }
        if let Some(waiting) = &live.waiting {
            attention.push((
                1,
                json!({ "kind": "cluster", "subject": live.cluster_name, "since": live.turn_at, "link": "/decisions",
                    "line": format!("cluster {} is not planned: {waiting}", live.cluster_name),
                    "command": format!("muster describe cluster {}", live.cluster_name) }),
            ));
        }
    }
}

/// What is under way: on hosts as their records tell it, on pools as their open operations do.
async fn operations(call: &Call, part: &Part, hosts: &[Arc<Host>]) -> Result<Vec<Value>, ApiError> {
    let mut all: Vec<(Timestamp, Value)> = Vec::new();
    for host in hosts {
        let (Some(op), Some(status)) = (&host.op, &host.status) else { continue };
        let deadline = status.deadline.or(op.boot_deadline).or(op.drain_deadline);
        all.push((
            op.started,
            json!({ "id": op.id, "kind": op.kind.as_str(), "subject": &*host.name,
                "link": format!("/hosts/{}", host.name), "state": status.phase.as_str(), "message": status.reason,
                "started_at": op.started, "deadline": deadline, "reason": op.reason }),
        ));
    }
    for operation in call.app.registry.open_operations().await? {
        let Subject::Pool { nodepool_id, cluster_id, nodepool_name, target_nodes, .. } = &operation.subject
        else {
            continue;
        };
        if !call.sees(&operation.project) || !part.has_cluster(ClusterId::from(*cluster_id)) {
            continue;
        }
        all.push((
            operation.created_at,
            json!({ "id": operation.id, "kind": operation.kind, "subject": nodepool_name,
                "link": format!("/pools/{nodepool_id}"), "state": operation.state, "message": operation.message,
                "started_at": operation.created_at, "reason": format!("to {target_nodes} by {}", operation.created_by) }),
        ));
    }
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, value)| value).collect())
}
