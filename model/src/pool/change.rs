//! What a new spec changes, and whether nodes have to be replaced for it.
//!
//! | what changes | how it takes effect |
//! |---|---|
//! | `nodeCount`, `autoscaling`, `mode`, `management`, `template` | in place: nodes stay |
//! | `labels` and `taints`, in any block | in place: written onto the nodes that exist |
//! | zones, `pool`, `selector` of a platform's block | in place: only which machines come next |
//! | everything else in a platform's block, `release` | by replacing nodes, as `management` says |

use serde::Serialize;
use serde_json::Value;

use super::PoolSpec;
use crate::{
    field::choice,
    patch::{Difference, diff},
    platform::platform,
};

choice! {
    pub enum Effect("an effect") {
        /// Nodes that exist stay as they are or are changed while they run.
        InPlace = "in-place",
        /// Nodes are replaced one after the other.
        Rolls = "rolls",
    }
}

/// One place of the spec that changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SpecChange {
    #[serde(flatten)]
    pub difference: Difference,
    pub effect: Effect,
}

/// Fields of a platform's block that nodes need not be replaced for.
const IN_PLACE: [&str; 6] = ["labels", "taints", "zones", "availabilityZones", "pool", "selector"];

/// Everything that differs between two specs, with paths from `spec`. Secrets are not shown.
pub fn changes(old: &PoolSpec, new: &PoolSpec) -> Vec<SpecChange> {
    let shown = |spec: &PoolSpec| {
        let mut spec = spec.clone();
        spec.redact();
        serde_json::json!({ "spec": spec })
    };
    let mut found: Vec<SpecChange> = diff(&shown(old), &shown(new))
        .into_iter()
        .map(|difference| SpecChange { effect: effect(&difference.path), difference })
        .collect();
    for name in platform(new.platform.kind).secrets() {
        let (Some(before), Some(after)) = (old.platform.field(name), new.platform.field(name)) else {
            continue;
        };
        if before != after {
            let hidden = Some(Value::String(super::REDACTED.to_owned()));
            let path = format!("spec.platform.{}.{name}", new.platform.kind);
            let difference = Difference { path, old: hidden.clone(), new: hidden };
            found.push(SpecChange { difference, effect: Effect::Rolls });
        }
    }
    found
}

fn effect(path: &str) -> Effect {
    let mut steps = path.split(['.', '[']).skip(1);
    match steps.next() {
        Some("release") => Effect::Rolls,
        Some("platform") => match steps.nth(1) {
            Some(field) if IN_PLACE.contains(&field) => Effect::InPlace,
            _ => Effect::Rolls,
        },
        _ => Effect::InPlace,
    }
}
