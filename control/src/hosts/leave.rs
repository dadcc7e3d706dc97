//! Whether something may be done to a host at this moment. For a power call it is asked before it is prepared, and by its
//! driver right before each request or packet that changes the machine.

use std::sync::{Arc, PoisonError};

use muster_engine::lifecycle::Freeze;
use muster_model::{
    Duration,
    host::{Admin, FreezeMode, by_hand},
    power::Leave,
    store::Fence,
};

use super::{around::Around, book::Book, evidence, perform::Scene};
use crate::lead::Lead;

/// While this process leads as it did when the state was stored, for long enough, and nothing is frozen, nobody works
/// on the machine and its pool does more than to give advice.
pub(super) fn of(scene: &Scene<'_>) -> Leave {
    let (lead, fence) = (Arc::clone(&scene.shared.lead), scene.lead.fence.clone());
    let (request, margin) = (scene.limits.call, scene.limits.lease_margin);
    let (book, around) = (Arc::clone(&scene.shared.book), Arc::clone(&scene.shared.around));
    let name = Arc::clone(scene.name);
    let pool = (!is_asked_for(scene)).then(|| scene.spec.pool.clone());
    Leave::new(move || {
        leads(&lead, &fence, request.saturating_add(margin))?;
        let book = book.lock().unwrap_or_else(PoisonError::into_inner);
        moves(&book, &*around)?;
        acts(&*around, pool.as_ref())?;
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
    let around = &*scene.shared.around;
    moves(&scene.shared.book(), around)?;
    acts(around, (!is_asked_for(scene)).then_some(&scene.spec.pool))
}

/// Whether a person asked for what is under way, or wants something of the host: that is done in every pool.
fn is_asked_for(scene: &Scene<'_>) -> bool {
    let spec = scene.spec;
    let op = scene.op.is_some_and(|op| op.cause.is_by_hand());
    let wish = by_hand(spec.power_state, spec.hold.as_ref(), scene.shared.clock.now()).is_some();
    let all_on = scene.shared.book().global.freeze == FreezeMode::AllOn
        || scene.shared.around.freeze() == FreezeMode::AllOn;
    op || wish || spec.deletion.is_some() || all_on || scene.ended_by_hand
}

/// `pool`: whose word counts; nobody's where a person asked.
fn acts(around: &dyn Around, pool: Option<&String>) -> Result<(), String> {
    match pool.and_then(|pool| around.advice(pool)) {
        Some(advice) => Err(advice.why),
        None => Ok(()),
    }
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
