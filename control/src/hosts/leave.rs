//! Whether a power call may leave at this moment: asked before it is prepared, and by its driver right before each request
//! or packet that changes the machine.

use std::sync::{Arc, PoisonError};

use muster_engine::lifecycle::Freeze;
use muster_model::{host::Admin, power::Leave};

use super::{evidence, perform::Scene};

/// While this process leads as it did when the state was stored, for long enough, and nothing is frozen and nobody works
/// on the machine.
pub(super) fn of(scene: &Scene<'_>) -> Leave {
    let (lead, fence) = (Arc::clone(&scene.shared.lead), scene.lead.fence.clone());
    let (request, margin) = (scene.limits.call, scene.limits.lease_margin);
    let (book, around) = (Arc::clone(&scene.shared.book), Arc::clone(&scene.shared.around));
    let name = Arc::clone(scene.name);
    Leave::new(move || {
        match lead.now() {
            Some(tenure) if tenure.fence != fence => {
                return Err("this process leads anew, in another epoch than it was asked for in".to_owned());
            }
            Some(tenure) if tenure.left < request.saturating_add(margin) => {
                let left = tenure.left;
                return Err(format!("{left} are left of the leader's lease, too little for a request"));
            }
            Some(_) => {}
            None => return Err("this process no longer leads".to_owned()),
        }
        let book = book.lock().unwrap_or_else(PoisonError::into_inner);
        if evidence::freeze(book.global.freeze, around.freeze()) == Freeze::Frozen {
            return Err("everything is frozen".to_owned());
        }
        match book.hosts.get(&name).and_then(|record| record.spec.as_deref()).map(|spec| spec.admin) {
            Some(Admin::Normal) => Ok(request),
            Some(admin @ (Admin::Maintenance | Admin::Disabled)) => {
                Err(format!("the host is in {} now", admin.as_str()))
            }
            None => Err("the host's record is gone".to_owned()),
        }
    })
}
