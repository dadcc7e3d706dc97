//! `NodeResourcesFit`: room for what the pod asks for.

use super::{Rejection, requests::Amounts};

/// Only resources that are asked for are checked, so that an overcommitted node still takes pods that do
/// not ask for what it lacks. The number of pods is always checked.
pub(super) fn check(request: &Amounts, used: &Amounts, capacity: &Amounts) -> Result<(), Rejection> {
    let mut reasons = Vec::new();
    if used.pods.saturating_add(1) > capacity.pods {
        reasons.push("Too many pods".to_owned());
    }
    let mut beyond_node = false;
    for (name, wanted) in request.entries() {
        let (held, all) = (amount(used, name), amount(capacity, name));
        if wanted > all.saturating_sub(held) {
            reasons.push(format!("Insufficient {name}"));
            beyond_node |= wanted > all;
        }
    }
    match (reasons.is_empty(), beyond_node) {
        (true, _) => Ok(()),
        (false, true) => Err(Rejection::unresolvable_for(reasons)),
        (false, false) => Err(Rejection::resolvable_for(reasons)),
    }
}

fn amount(amounts: &Amounts, name: &str) -> i64 {
    match name {
        "cpu" => amounts.milli_cpu,
        "memory" => amounts.memory,
        "ephemeral-storage" => amounts.ephemeral_storage,
        _ => amounts.scalar(name),
    }
}
