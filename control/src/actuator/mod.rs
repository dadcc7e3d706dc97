//! Carries out journaled decisions: each is handed to its platform.
//!
//! * Bare metal: the host's intent is written, and its loop does the rest.
//! * Pools that others provision: the size that is wanted goes into `status.desired_nodes`, where controllers see
//!   it on their watch, with a deadline that makes silence visible. Whoever provisions for Muster itself (Cluster
//!   API, brought hosts) may be a [`Provisioner`] and is told directly.
//!
//! Everything is written with the leader's fence and compared with what was read; repeating a decision is
//! harmless. What only advises is skipped here, whatever the plan says.

mod intents;
mod link;
mod report;
mod sizes;

use std::{borrow::Cow, collections::BTreeSet, fmt};

use async_trait::async_trait;
use muster_engine::{
    Plan, Snapshot,
    plan::{Removal, Target},
    snapshot::Mode,
};
use muster_model::{ClusterId, NodePool, host::Switch, store::Fence};
use thiserror::Error;

use crate::{
    journal::{Decision, Effect, Outcome, OutcomeState},
    planner::Parts,
    registry::RegistryError,
    snapshot::{Inputs, Memory, wakes},
};

pub use link::{LINK_CONTROLLER, Link, report_link, report_waiting};
pub use report::{CONTROLLER, report};

/// Somebody who makes nodes for a pool when told how many.
#[async_trait]
pub trait Provisioner: Send + Sync + fmt::Debug {
    /// Called after the size was stored, and again with every later decision. Safe to repeat.
    async fn size(&self, wish: &Wish<'_>) -> Result<(), String>;
}

/// The size that a pool is to have.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'w> {
    pub cluster: ClusterId,
    pub pool: &'w NodePool,
    pub nodes: u32,
    /// Nodes that are to go, by name.
    pub leaving: &'w [String],
    pub decision: &'w str,
}

/// Why a decision could not be carried out.
#[derive(Debug, Error)]
pub enum ActError {
    #[error("decision {decision} is not carried out: this process no longer leads")]
    NotLeading { decision: String },
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl From<muster_model::store::StoreError> for ActError {
    fn from(error: muster_model::store::StoreError) -> Self {
        Self::Registry(RegistryError::Store(error))
    }
}

/// Carries out what the plan does in pools that may act. `snapshot` is fresh and the plan was judged by it.
pub async fn act(
    parts: &Parts,
    fence: &Fence,
    inputs: &Inputs,
    snapshot: &Snapshot,
    plan: &Plan,
    decision: &Decision,
    memory: &mut Memory,
) -> Result<Outcome, ActError> {
    let acts = |pool: &str| snapshot.pool(pool).is_some_and(|pool| pool.mode == Mode::Act);
    let (mut effects, mut refused) = (Vec::new(), Vec::new());
    let plan = &*begun(plan);
    for wish in intents::wishes(snapshot, plan, decision).into_iter().filter(|wish| acts(&wish.pool)) {
        match intents::write(parts, fence, inputs, &wish, decision).await? {
            intents::Written::Done => {
                let word = wish.want;
                let times = match word {
                    Switch::On => &mut memory.grown_at,
                    Switch::Off => &mut memory.shrunk_at,
                };
                times.insert(wish.pool.clone(), inputs.now);
                if word == Switch::On && !wish.for_pods.is_empty() {
                    let pods = wish.for_pods.iter().collect();
                    let demands = wakes::demands(snapshot, &pods);
                    wakes::note(&mut memory.wakes, &wish.pool, &wish.host, demands, inputs.now);
                }
                effects.push(Effect {
                    what: "intent".to_owned(),
                    object: format!("hosts/{}", wish.host),
                    text: format!("{word}: {}", wish.reason),
                });
            }
            intents::Written::AlreadySo => {}
            intents::Written::Changed(why) => refused.push(why),
        }
    }
    let sizes = sizes::of(inputs, snapshot, plan);
    for size in sizes.iter().filter(|size| acts(&size.pool)) {
        let effect = sizes::write(parts, fence, inputs, size, decision, memory).await?;
        match effect {
            Ok(effect) => effects.extend(effect),
            Err(why) => refused.push(why),
        }
    }
    Ok(outcome(inputs, effects, refused))
}

/// What is begun of a plan: a node whose pods go to nodes that are not there yet stays until a plan finds them there.
fn begun(plan: &Plan) -> Cow<'_, Plan> {
    let waits = |removal: &Removal| removal.moves.iter().any(|step| matches!(step.on, Target::New(_)));
    if !plan.removals.iter().any(waits) {
        return Cow::Borrowed(plan);
    }
    let mut begun = plan.clone();
    begun.removals.retain(|removal| !waits(removal));
    Cow::Owned(begun)
}

fn outcome(inputs: &Inputs, effects: Vec<Effect>, refused: Vec<String>) -> Outcome {
    let objects: BTreeSet<&str> = effects.iter().map(|effect| effect.object.as_str()).collect();
    let done = objects.len();
    let told = match done {
        1 => "1 object was told".to_owned(),
        many => format!("{many} objects were told"),
    };
    let (state, text) = match refused.first() {
        None => (OutcomeState::Acted, told),
        Some(first) if done == 0 => (OutcomeState::Failed, format!("nobody could be told: {first}")),
        Some(first) => (OutcomeState::Acted, format!("{told}, {} could not be: {first}", refused.len())),
    };
    Outcome { state, at: inputs.now, text, effects }
}
