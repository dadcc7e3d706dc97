//! Whether something may be done to a host at this moment. For a power call it is asked before it is prepared, and by its
//! driver right before each request or packet that changes the machine.

use std::sync::{Arc, PoisonError};

use muster_engine::lifecycle::Freeze;
use muster_model::{Duration, host::Admin, power::Leave, store::Fence};

use super::{around::Around, book::Book, evidence, perform::Scene};
use crate::lead::Lead;

/// While this process leads as it did when the state was stored, for long enough, and nothing is frozen and nobody works
/// on the machine.
pub(super) fn of(scene: &Scene<'_>) -> Leave {
    let (lead, fence) = (Arc::clone(&scene.shared.lead), scene.lead.fence.clone());
    let (request, margin) = (scene.limits.call, scene.limits.lease_margin);
    let (book, around) = (Arc::clone(&scene.shared.book), Arc::clone(&scene.shared.around));
    let name = Arc::clone(scene.name);
    Leave::new(move || {
        leads(&lead, &fence, request.saturating_add(margin))?;
        let book = book.lock().unwrap_or_else(PoisonError::into_inner);
        moves(&book, &*around)?;
        match book.hosts.get(&name).and_then(|record| record.spec.as_deref()).map(|spec| spec.admin) {
            Some(Admin::Normal) => Ok(request),
            Some(admin @ (Admin::Maintenance | Admin::Disabled)) => {
                Err(format!("the host is in {} now", admin.as_str()))
            }
            None => Err("the host's record is gone".to_owned()),
        }
    })
}

/// The same for a change of the host's node. It is asked for again until it is seen, so that one too few does no harm; one
/// that is late may fall on a machine which another process has woken meanwhile.
pub(super) fn to_change_its_node(scene: &Scene<'_>) -> Result<(), String> {
    let needed = scene.limits.call.saturating_add(scene.limits.lease_margin);
    leads(&scene.shared.lead, &scene.lead.fence, needed)?;
    moves(&scene.shared.book(), &*scene.shared.around)
}

fn leads(lead: &Lead, fence: &Fence, needed: Duration) -> Result<(), String> {
    match lead.now() {
        Some(tenure) if tenure.fence != *fence => {
            Err("this process leads anew, in another epoch than it was asked for in".to_owned())
        }
        Some(tenure) if tenure.left < needed => {
            let left = tenure.left;
            Err(format!("{left} are left of the leader's lease, too little for a request"))
        }
        Some(_) => Ok(()),
        None => Err("this process no longer leads".to_owned()),
    }
}

fn moves(book: &Book, around: &dyn Around) -> Result<(), String> {
    if evidence::freeze(book.global.freeze, around.freeze()) == Freeze::Frozen {
        return Err("everything is frozen".to_owned());
    }
    Ok(())
}
