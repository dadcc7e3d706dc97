//! What our own loops say about pools: sizes, conditions and the bare-metal view, in the manner of any controller.

use muster_engine::{
    Plan, Snapshot,
    snapshot::{MemberState, Mode, Scope},
};
use muster_model::{
    Duration, Known, Timestamp,
    condition::{Condition, ConditionStatus},
    pool::{OnNoData, ScaleDirection},
    store::Fence,
};
use serde_json::json;

use super::{ActError, Link};
use crate::{
    registry::{NODE_AGES, OwnReport, PoolWord, Registry, Said},
    snapshot::{Built, Inputs, Observed, PoolInput},
};

/// The name under which our own loops report on bare-metal pools.
pub const CONTROLLER: &str = "muster-baremetal";

/// Nodes whose age a report tells: with eight characters each it stays within 2 KB.
const MOST_AGES: usize = 250;
/// In milliseconds.
const MINUTE: u64 = 60_000;

/// Reports on every pool of the cluster. Writes only what changed.
pub async fn report(
    registry: &Registry,
    fence: &Fence,
    inputs: &Inputs,
    built: &Built,
    plan: &Plan,
    link: &Link,
) -> Result<(), ActError> {
    for pool in &inputs.pools {
        let word = word(inputs, built, plan, pool, link);
        match registry.say(fence, pool.object.id.uuid(), &word, inputs.now).await {
            Ok(Said::Written | Said::AlreadySo | Said::Gone) => {}
            Ok(Said::NotLeading) => return Err(ActError::NotLeading { decision: "of a report".to_owned() }),
            // Somebody else changes this pool all the time; the others are reported on all the same.
            Err(crate::registry::RegistryError::Busy) => {
                tracing::warn!(pool = pool.name(), "a pool is changed too often to be reported on");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// What is said about one pool. The bare-metal view of its hosts is the inventory's to write.
fn word(inputs: &Inputs, built: &Built, plan: &Plan, pool: &PoolInput, link: &Link) -> PoolWord {
    let sizes = Sizes::of(&built.snapshot, plan, pool);
    let mut word =
        PoolWord { conditions: conditions(inputs, built, plan, pool, &sizes, link), ..PoolWord::default() };
    if pool.is_bare_metal() {
        let desired = if sizes.acts { sizes.after } else { sizes.staying };
        word.desired = Some(desired);
        word.report = Some(own_report(inputs, &built.snapshot, pool, desired, &sizes));
    } else {
        // What was asked for and has not gone yet; a plan that is only advice asks for nothing.
        let asked =
            inputs.memory.asked.get(pool.name()).map(|asked| asked.leaving.clone()).unwrap_or_default();
        let mut leaving: Vec<String> = asked
            .into_iter()
            .filter(|name| built.snapshot.members.contains_key(name.as_str()))
            .chain(going(&built.snapshot, pool))
            .collect();
        leaving.sort();
        leaving.dedup();
        word.leaving = Some(leaving);
    }
    word
}

/// How large a pool is and will be.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    staying: u32,
    ready: u32,
    upcoming: u32,
    leaving: u32,
    new: u32,
    removed: u32,
    /// With the plan carried out.
    after: u32,
    acts: bool,
}

impl Sizes {
    fn of(snapshot: &Snapshot, plan: &Plan, pool: &PoolInput) -> Self {
        let ours = |name: &str| *name == *pool.name();
        let members = || snapshot.members.values().filter(|member| ours(&member.pool));
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let staying = count(members().filter(|member| member.state != MemberState::Leaving).count());
        let new = count(plan.new_nodes.iter().filter(|new| ours(&new.pool)).count());
        let gone = |node: &str| snapshot.members.get(node).is_some_and(|member| ours(&member.pool));
        let removed = count(plan.removals.iter().filter(|removal| gone(&removal.node)).count());
        let upcoming = |state: MemberState| matches!(state, MemberState::Upcoming { .. });
        Self {
            staying,
            ready: count(members().filter(|member| member.state == MemberState::Ready).count()),
            upcoming: count(members().filter(|member| upcoming(member.state)).count()),
            leaving: count(members().filter(|member| member.state == MemberState::Leaving).count()),
            new,
            removed,
            after: staying.saturating_add(new).saturating_sub(removed),
            acts: snapshot.pool(pool.name()).is_some_and(|pool| pool.mode == Mode::Act),
        }
    }
}

fn conditions(
    inputs: &Inputs,
    built: &Built,
    plan: &Plan,
    pool: &PoolInput,
    sizes: &Sizes,
    link: &Link,
) -> Vec<Condition> {
    let make = |kind: &str, status: bool, reason: &str, message: String| {
        condition(
            inputs.now,
            pool,
            kind,
            if status { ConditionStatus::True } else { ConditionStatus::False },
            reason,
            message,
        )
    };
    let incomplete = built.incomplete.iter().find(|(name, _)| name == pool.name());
    let mut all = vec![match incomplete {
        Some((_, why)) => make("Planned", false, "TemplateIncomplete", why.clone()),
        None if !sizes.acts => {
            let text = "decisions are recorded and shown, 0 are carried out; `muster enable` lets them act";
            make("Planned", true, "AdviseOnly", text.to_owned())
        }
        None => make("Planned", true, "Active", "decisions are carried out".to_owned()),
    }];
    all.push(link.condition(pool, inputs.now));
    let growing = sizes.upcoming + if sizes.acts { sizes.new } else { 0 };
    all.push(make(
        "ScalingUp",
        growing > 0,
        if growing > 0 { "NodesComing" } else { "NothingToAdd" },
        many(growing, "is on its way", "are on their way"),
    ));
    let shrinking = sizes.leaving + if sizes.acts { sizes.removed } else { 0 };
    let names: Vec<&str> = leaving(&built.snapshot, plan, pool).into_iter().take(10).collect();
    let list = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    all.push(make(
        "ScalingDown",
        shrinking > 0,
        if shrinking > 0 { "NodesLeaving" } else { "NothingToRemove" },
        many(shrinking, "is leaving", "are leaving") + &list,
    ));
    all.extend(metrics(inputs, pool));
    all.extend(provisioned(inputs, pool, sizes));
    let hold = built.snapshot.hold(&[Scope::Pool(pool.name().into())], muster_engine::snapshot::Stops::Both);
    let here = |name: &std::sync::Arc<str>| **name == *pool.name();
    let resting = built.snapshot.spent.iter().find(|spent| spent.pools.iter().any(here));
    let frozen = hold.filter(|hold| hold.scope == Scope::Everything);
    all.extend(resting.map(|spent| {
        let until = spent.until.map(|until| format!("; nothing more is woken for them until {until}"));
        make("GrowthPaused", true, "WokenInVain", format!("{}{}", spent.why, until.unwrap_or_default()))
    }));
    all.push(match frozen {
        Some(hold) => make("Paused", true, "Frozen", hold.why.to_string()),
        None => make("Paused", false, "NotFrozen", "0 freezes are in force".to_owned()),
    });
    all
}

/// `1 node is leaving`, `3 nodes are leaving`.
fn many(count: u32, one: &str, more: &str) -> String {
    if count == 1 { format!("1 node {one}") } else { format!("{count} nodes {more}") }
}

fn condition(
    now: Timestamp,
    pool: &PoolInput,
    kind: &str,
    status: ConditionStatus,
    reason: &str,
    message: String,
) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message,
        last_transition_time: now,
        observed_generation: Some(pool.object.generation),
        severity: None,
    }
}

/// Nodes of the pool that are on their way out.
fn going<'s>(snapshot: &'s Snapshot, pool: &PoolInput) -> impl Iterator<Item = String> + 's {
    let pool = pool.name().to_owned();
    let members = snapshot.members.iter();
    members
        .filter(move |(_, member)| *member.pool == *pool && member.state == MemberState::Leaving)
        .map(|(name, _)| name.to_string())
}

fn leaving<'s>(snapshot: &'s Snapshot, plan: &'s Plan, pool: &PoolInput) -> Vec<&'s str> {
    let going = snapshot
        .members
        .iter()
        .filter(|(_, member)| *member.pool == *pool.name() && member.state == MemberState::Leaving);
    let planned = plan.removals.iter().filter(|removal| {
        snapshot.members.get(&removal.node).is_some_and(|member| *member.pool == *pool.name())
    });
    going.map(|(name, _)| &**name).chain(planned.map(|removal| &*removal.node)).collect()
}

/// Whether the pool's triggers can be answered; pools without triggers say nothing.
fn metrics(inputs: &Inputs, pool: &PoolInput) -> Option<Condition> {
    if pool.triggers.is_empty() {
        return None;
    }
    let unknown: Vec<&str> = pool
        .triggers
        .iter()
        .filter_map(|one| match &one.finding {
            Known::Unknown { why, .. } => Some(why.as_str()),
            Known::Value { .. } => None,
        })
        .collect();
    let all = pool.triggers.len();
    Some(match unknown.first() {
        None => {
            let text = format!("{all} of {all} triggers are known");
            condition(inputs.now, pool, "MetricsAvailable", ConditionStatus::True, "AllKnown", text)
        }
        Some(first) => {
            // One for more nodes that is to be ignored holds nothing back; one for fewer has to say yes.
            let holds = pool.triggers.iter().any(|one| {
                let trigger = &one.trigger;
                let asked =
                    trigger.on_no_data() == OnNoData::Hold || trigger.scale_direction == ScaleDirection::Down;
                asked && one.finding.value().is_none()
            });
            let effect =
                if holds { "so that nothing is removed" } else { "and are ignored as `onNoData` says" };
            let text = format!("{} of {all} triggers are unknown, {effect}: {first}", unknown.len());
            condition(
                inputs.now,
                pool,
                "MetricsAvailable",
                ConditionStatus::False,
                "MetricsUnavailable",
                text,
            )
        }
    })
}

/// Whether those who provision the pool have heard what was asked.
fn provisioned(inputs: &Inputs, pool: &PoolInput, sizes: &Sizes) -> Option<Condition> {
    let asked = inputs.memory.asked.get(pool.name()).filter(|_| !pool.is_bare_metal())?;
    let there = sizes.staying - sizes.upcoming.min(sizes.staying);
    let make =
        |status, reason: &str, text: String| condition(inputs.now, pool, "Provisioned", status, reason, text);
    Some(if there >= asked.nodes {
        make(ConditionStatus::True, "SizeReached", format!("{there} of {} nodes are there", asked.nodes))
    } else if inputs.now < asked.deadline {
        let text = format!(
            "{there} of {} nodes are there; decision {} waits until {}",
            asked.nodes, asked.decision, asked.deadline
        );
        make(ConditionStatus::Unknown, "Waiting", text)
    } else {
        let text = format!(
            "{there} of {} nodes are there; nobody made the others by {}: does a controller watch this pool?",
            asked.nodes, asked.deadline
        );
        make(ConditionStatus::False, "ProvisionerSilent", text)
    })
}

/// The report of a controller of bare metal.
fn own_report(
    inputs: &Inputs,
    snapshot: &Snapshot,
    pool: &PoolInput,
    desired: u32,
    sizes: &Sizes,
) -> OwnReport {
    let reached = sizes.ready >= desired && sizes.leaving == 0;
    let make = |kind: &str, status: bool, reason: &str, message: String| {
        let status = if status { ConditionStatus::True } else { ConditionStatus::False };
        condition(inputs.now, pool, kind, status, reason, message)
    };
    let mut text = format!("{} of {} nodes are ready", sizes.ready, desired);
    let mut at_work: Vec<String> = Vec::new();
    if sizes.upcoming > 0 {
        at_work.push(format!("{} on the way", sizes.upcoming));
    }
    if sizes.leaving > 0 {
        at_work.push(format!("{} leaving", sizes.leaving));
    }
    let progress = match at_work.join(", ") {
        words if words.is_empty() => make("Progressing", false, "Settled", "0 nodes come or go".to_owned()),
        words => {
            text = format!("{text}, {words}");
            make("Progressing", true, "NodesComeAndGo", words)
        }
    };
    let reason = match reached {
        true => "AllNodesReady",
        false if sizes.ready >= desired => "NodesLeaving",
        false => "NodesMissing",
    };
    let mut conditions = vec![make("Available", reached, reason, text), progress];
    if pool.object.deleted_at.is_some() {
        let left = sizes.staying + sizes.leaving;
        let gone = left == 0;
        let reason = if gone { "Deleted" } else { "HostsStillServe" };
        conditions.push(make("Deleted", gone, reason, format!("{left} hosts still serve the pool")));
    }
    OwnReport {
        controller: CONTROLLER,
        conditions,
        metadata: json!({
            "platform": "baremetal",
            "active_nodes": sizes.ready,
            "desired_nodes": desired,
            "current_nodes": sizes.staying - sizes.upcoming.min(sizes.staying) + sizes.leaving,
            "ready_nodes": sizes.ready,
            "pending_nodes": sizes.upcoming,
            NODE_AGES: node_ages(inputs, snapshot, pool),
        }),
    }
}

/// How long the nodes of a pool have been registered, the oldest first, in whole minutes.
fn node_ages(inputs: &Inputs, snapshot: &Snapshot, pool: &PoolInput) -> String {
    let Observed::View(view) = &inputs.observed else { return String::new() };
    let ours = |name: &str| snapshot.members.get(name).is_some_and(|member| *member.pool == *pool.name());
    let nodes = view.objects.nodes.iter().filter(|node| ours(node.name()));
    let mut ages: Vec<u64> = nodes
        .filter_map(|node| Some(inputs.now.since(node.metadata.creation_timestamp?).millis() / MINUTE))
        .collect();
    ages.sort_unstable_by(|a, b| b.cmp(a));
    let shown = ages.iter().take(MOST_AGES).map(|minutes| Duration::from_mins(*minutes).to_string());
    shown.collect::<Vec<_>>().join(",")
}
