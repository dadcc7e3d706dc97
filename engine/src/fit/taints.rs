//! `NodeUnschedulable` and `TaintToleration`: what keeps pods away from a node unless they tolerate it.

use muster_model::k8s::{Effect, Node, Taint, Toleration, TolerationOperator};

use super::Rejection;

/// The taint that a cordoned node is treated as having.
const CORDON_KEY: &str = "node.kubernetes.io/unschedulable";

/// Whether `toleration` covers `taint`.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.is_none_or(|effect| effect == taint.effect);
    let key = toleration.key.is_empty() || toleration.key == taint.key;
    let value = match toleration.operator {
        TolerationOperator::Equal => toleration.value == taint.value,
        TolerationOperator::Exists => true,
        TolerationOperator::Gt | TolerationOperator::Lt | TolerationOperator::Other => false,
    };
    effect && key && value
}

/// The first taint that keeps the pod from being placed and that none of `tolerations` covers.
pub fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    let keeps_out = |taint: &&Taint| matches!(taint.effect, Effect::NoSchedule | Effect::NoExecute);
    taints
        .iter()
        .filter(keeps_out)
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// Whether the pod may go to a cordoned node, whether or not that node carries the taint as well.
pub fn tolerates_cordon(tolerations: &[Toleration]) -> bool {
    let taint = Taint { key: CORDON_KEY.into(), value: Box::default(), effect: Effect::NoSchedule };
    tolerations.iter().any(|toleration| tolerates(toleration, &taint))
}

pub(super) fn check_cordon(tolerations: &[Toleration], node: &Node) -> Result<(), Rejection> {
    if node.spec.unschedulable && !tolerates_cordon(tolerations) {
        return Err(Rejection::unresolvable("node(s) were unschedulable"));
    }
    Ok(())
}

pub(super) fn check_taints(tolerations: &[Toleration], node: &Node) -> Result<(), Rejection> {
    match untolerated(&node.spec.taints, tolerations) {
        Some(_) => Err(Rejection::unresolvable("node(s) had untolerated taint(s)")),
        None => Ok(()),
    }
}
