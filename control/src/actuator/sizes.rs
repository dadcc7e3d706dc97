//! Sizes of pools that others provision.

use std::collections::BTreeMap;

use muster_engine::{Plan, Snapshot, plan::Source, snapshot::MemberState};
use muster_model::store::Fence;

use super::{ActError, Wish};
use crate::{
    journal::{Decision, Effect},
    planner::Parts,
    registry::{PoolWord, Said},
    snapshot::{Asked, Inputs, Memory, memory::PROVISION_DEADLINE},
};

/// A pool and the size that a plan gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) pool: String,
    pub(super) nodes: u32,
    pub(super) more: u32,
    pub(super) leaving: Vec<String>,
}

/// The sizes that a plan changes. Absolute numbers, so that repeating one changes nothing.
pub(super) fn of(inputs: &Inputs, snapshot: &Snapshot, plan: &Plan) -> Vec<Size> {
    let mut changes: BTreeMap<String, (u32, Vec<String>)> = BTreeMap::new();
    for new in plan.new_nodes.iter().filter(|new| matches!(new.source, Source::Bought { .. })) {
        changes.entry(new.pool.to_string()).or_default().0 += 1;
    }
    for removal in &plan.removals {
        if let Some(member) = snapshot.members.get(&removal.node).filter(|member| member.host.is_none()) {
            changes.entry(member.pool.to_string()).or_default().1.push(removal.node.to_string());
        }
    }
    let staying = |pool: &str| {
        let members = snapshot.members.values();
        let stays =
            members.filter(|member| *member.pool == *pool && member.state != MemberState::Leaving).count();
        u32::try_from(stays).unwrap_or(u32::MAX)
    };
    changes
        .into_iter()
        .map(|(pool, (more, leaving))| {
            let gone = u32::try_from(leaving.len()).unwrap_or(u32::MAX);
            let nodes = staying(&pool).saturating_add(more).saturating_sub(gone);
            // Nodes that do not carry the pool's label are not counted, and never a reason to ask for fewer.
            let desired = inputs.pool_named(&pool).map_or(0, |input| input.desired);
            let nodes = if leaving.is_empty() { nodes.max(desired) } else { nodes };
            Size { pool, nodes, more, leaving }
        })
        .collect()
}

/// Makes the size visible, and starts the clock that makes silence visible.
pub(super) async fn write(
    parts: &Parts,
    fence: &Fence,
    inputs: &Inputs,
    size: &Size,
    decision: &Decision,
    memory: &mut Memory,
) -> Result<Result<Vec<Effect>, String>, ActError> {
    let Some(pool) = inputs.pool_named(&size.pool) else {
        return Ok(Err(format!("pool {} is gone", size.pool)));
    };
    let mut going = memory.asked.get(&size.pool).map(|old| old.leaving.clone()).unwrap_or_default();
    going.extend(size.leaving.iter().cloned());
    going.retain(|name| inputs.observed.has_node(name));
    going.sort();
    going.dedup();
    let word = PoolWord { desired: Some(size.nodes), leaving: Some(going), ..PoolWord::default() };
    match parts.registry.say(fence, pool.object.id.uuid(), &word, inputs.now).await? {
        Said::Written | Said::AlreadySo => {}
        Said::Gone => return Ok(Err(format!("pool {} is gone", size.pool))),
        Said::NotLeading => return Err(ActError::NotLeading { decision: decision.id.to_string() }),
    }
    if let Some(provisioner) = parts.provisioners.get(&pool.object.spec.platform.kind) {
        let wish = Wish {
            cluster: inputs.cluster.id,
            pool: &pool.object,
            nodes: size.nodes,
            leaving: &size.leaving,
            decision: decision.id.as_str(),
        };
        if let Err(why) = provisioner.size(&wish).await {
            return Ok(Err(format!("pool {}: {why}", size.pool)));
        }
    }
    let now = inputs.now;
    let mut leaving = memory.asked.get(&size.pool).map(|old| old.leaving.clone()).unwrap_or_default();
    leaving.extend(size.leaving.iter().cloned());
    leaving.sort();
    leaving.dedup();
    let asked = Asked {
        nodes: size.nodes,
        at: now,
        deadline: now.saturating_add(PROVISION_DEADLINE),
        decision: decision.id.to_string(),
        leaving,
    };
    memory.asked.insert(size.pool.clone(), asked);
    let times = if size.more > 0 { &mut memory.grown_at } else { &mut memory.shrunk_at };
    times.insert(size.pool.clone(), now);
    Ok(Ok(vec![Effect {
        what: "desired_nodes".to_owned(),
        object: format!("nodepools/{}", pool.object.id),
        text: format!("{} nodes are wanted", size.nodes),
    }]))
}
