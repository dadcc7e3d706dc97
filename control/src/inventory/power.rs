//! Power by hand: a person wants a host on, off, or off and on again.
//!
//! The wish is the spec's `powerState` with a hold, so that the autoscaler keeps away and the host loop carries it
//! out like any other. Each wish is an operation, whose end is read from the host's status. A cycle is two wishes,
//! one after the other; the stage is stored, so that another process goes on with it.

use muster_model::{
    Timestamp,
    host::{Admin, BareMetalNodeSpec, Draw, Hold, ManualPower, Phase, PublicPower, State, Switch},
    store::{Committed, Expect, List, Txn},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Act, Host, HostWritten, Inventory, InventoryError, encode};
use crate::registry::{Guard, Operation, OperationState, Subject, WriteContext, decode_operation, keys};

/// What an operation on a host wants, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PowerOrder {
    pub action: ManualPower,
    /// What is wanted now; a cycle wants off first.
    pub stage: Switch,
    /// What stood in the spec before, to be put back after a cycle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_state_before: Option<Switch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_before: Option<Hold>,
}

/// A wish of a person.
#[derive(Debug, Clone)]
pub struct ManualRequest {
    pub action: ManualPower,
    pub reason: String,
    pub until: Option<Timestamp>,
}

impl Inventory {
    /// Writes the wish with its hold, and the operation that stands for it.
    pub async fn power(
        &self,
        context: &WriteContext,
        name: &str,
        precondition: Guard<'_>,
        request: &ManualRequest,
        project: &str,
    ) -> Result<(HostWritten, Operation), InventoryError> {
        let stage = match request.action {
            ManualPower::On => Switch::On,
            ManualPower::Off | ManualPower::Cycle => Switch::Off,
        };
        let hold = Hold { by: context.actor.clone(), reason: request.reason.clone(), until: request.until };
        let id = Uuid::now_v7();
        let make = |before: &BareMetalNodeSpec| Operation {
            id,
            kind: format!("power-{}", request.action),
            project: project.to_owned(),
            subject: Subject::Host {
                host: name.to_owned(),
                reason: request.reason.clone(),
                power: Some(PowerOrder {
                    action: request.action,
                    stage,
                    power_state_before: before.power_state,
                    hold_before: before.hold.clone(),
                }),
                operation: None,
                phase: None,
            },
            state: OperationState::Running,
            done: false,
            message: format!("waiting until the host is {stage}"),
            created_at: context.now,
            created_by: context.actor.clone(),
            finished_at: None,
        };
        let before = std::sync::Mutex::new(None);
        let change = |host: &Host| {
            let spec = in_use(host)?;
            if let Some(held) = spec.hold.as_ref().filter(|held| held.is_active(context.now))
                && held.by != context.actor
            {
                return Err(InventoryError::Held {
                    name: name.to_owned(),
                    by: held.by.clone(),
                    reason: held.reason.clone(),
                });
            }
            *before.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(spec.clone());
            let mut spec = spec.clone();
            spec.power_state = Some(stage);
            spec.hold = Some(hold.clone());
            Ok((spec, Vec::new()))
        };
        let taken = || before.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let attach = |txn: Txn, after: &BareMetalNodeSpec| {
            let operation = make(taken().as_ref().unwrap_or(after));
            let key = keys::operation(id);
            txn.expect(&key, Expect::Absent).put(&key, encode(&operation))
        };
        let written = self
            .update(
                context,
                Act::new(Act::POWER).because(&request.reason),
                name,
                precondition,
                change,
                attach,
            )
            .await?;
        let operation = make(&taken().ok_or(InventoryError::Busy)?);
        if !written.changed && !context.dry_run {
            let key = keys::operation(id);
            let txn = Txn::new().expect(&key, Expect::Absent).put(&key, encode(&operation));
            if let Committed::Refused { .. } = self.shared.store.commit(txn).await? {
                return Err(InventoryError::Busy);
            }
        }
        if !context.dry_run {
            self.shared.open_power().insert(id);
            self.shared.dirty.notify_one();
        }
        Ok((written, operation))
    }

    /// Finds the operations on hosts that are not over, after a start.
    pub(super) async fn load_power(&self) -> Result<(), InventoryError> {
        let mut after = None;
        loop {
            let page = self.shared.store.list(List { after, ..List::prefix(keys::OPERATIONS) }).await?;
            after = page.entries.last().map(|entry| entry.key.clone());
            let open = page.entries.iter().filter_map(|entry| decode_operation(entry).ok());
            self.shared.open_power().extend(
                open.filter(|operation| !operation.done && operation.host().is_some()).map(|one| one.id),
            );
            if !page.more || after.is_none() {
                return Ok(());
            }
        }
    }

    /// Brings every open operation on a host up to date.
    pub(super) async fn settle_power(&self) -> Result<(), InventoryError> {
        let open: Vec<Uuid> = self.shared.open_power().iter().copied().collect();
        for id in open {
            self.settle_one(id).await?;
        }
        Ok(())
    }

    async fn settle_one(&self, id: Uuid) -> Result<(), InventoryError> {
        let key = keys::operation(id);
        let Some(entry) = self.shared.store.get(&key).await? else {
            self.shared.open_power().remove(&id);
            return Ok(());
        };
        let Ok(mut operation) = decode_operation(&entry) else { return Ok(()) };
        let Subject::Host { host: name, power: Some(order), .. } = operation.subject.clone() else {
            self.shared.open_power().remove(&id);
            return Ok(());
        };
        if operation.done {
            self.shared.open_power().remove(&id);
            return Ok(());
        }
        let now = self.shared.clock.now();
        let host = self.host(&name);
        let verdict = verdict(&operation, &order, host.as_deref());
        let expect = Expect::Modified(entry.modified);
        let context =
            WriteContext { actor: operation.created_by.clone(), now, dry_run: false, idempotency: None };
        match verdict {
            Verdict::Wait => Ok(()),
            Verdict::Next => {
                let next = PowerOrder { stage: Switch::On, ..order };
                if let Subject::Host { power, .. } = &mut operation.subject {
                    *power = Some(next);
                }
                "it is off; waiting until it is on again".clone_into(&mut operation.message);
                let change = |host: &Host| {
                    let mut spec = in_use(host)?.clone();
                    spec.power_state = Some(Switch::On);
                    Ok((spec, Vec::new()))
                };
                let attach =
                    |txn: Txn, _: &BareMetalNodeSpec| txn.expect(&key, expect).put(&key, encode(&operation));
                self.update(&context, Act::new(Act::POWER), &name, &|_| true, change, attach).await.map(drop)
            }
            Verdict::End(state, message) => {
                operation.state = state;
                operation.message = message;
                operation.done = true;
                operation.finished_at = Some(now);
                let restore = order.action == ManualPower::Cycle && state == OperationState::Succeeded;
                if restore && host.is_some() {
                    let change = |host: &Host| {
                        let mut spec = in_use(host)?.clone();
                        spec.power_state = order.power_state_before;
                        spec.hold.clone_from(&order.hold_before);
                        Ok((spec, Vec::new()))
                    };
                    self.update(&context, Act::new(Act::POWER), &name, &|_| true, change, |txn, _| txn)
                        .await?;
                }
                let txn = Txn::new().expect(&key, expect).put(&key, encode(&operation));
                if let Committed::Done { .. } = self.shared.store.commit(txn).await? {
                    self.shared.open_power().remove(&id);
                }
                Ok(())
            }
        }
    }
}

/// The spec of a host that can be worked with.
pub(super) fn in_use(host: &Host) -> Result<&BareMetalNodeSpec, InventoryError> {
    match host.set_aside() {
        None => host.readable().map(|spec| &**spec).ok_or(InventoryError::NotFound { kind: "BareMetalNode" }),
        Some(aside) => Err(InventoryError::SetAside { name: host.name.to_string(), why: aside.reason }),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Wait,
    /// The first half of a cycle is done.
    Next,
    End(OperationState, String),
}

/// How an operation stands, given its host. Pure.
fn verdict(operation: &Operation, order: &PowerOrder, host: Option<&Host>) -> Verdict {
    let Some((host, spec)) = host.and_then(|host| Some((host, host.accepted()?))) else {
        return Verdict::End(OperationState::Failed, "the host was deleted or set aside".into());
    };
    if spec.power_state != Some(order.stage) {
        let wanted = spec.power_state.map_or("nothing".to_owned(), |switch| switch.to_string());
        let message = format!("{wanted} was asked for meanwhile");
        return Verdict::End(OperationState::Superseded, message);
    }
    let Some(status) = &host.status else { return Verdict::Wait };
    if status.state == State::Error && status.state_since > operation.created_at {
        let why = status.last_error.clone().unwrap_or_else(|| status.reason.clone());
        return Verdict::End(OperationState::Failed, why);
    }
    // The loop must have seen the wish: before that, its status speaks of the time before.
    if status.observed_generation < host.version().0 || host.op.is_some() {
        return Verdict::Wait;
    }
    let reached = match order.stage {
        // Where no driver reads power, a node that serves proves on, and only a proof of off proves off.
        Switch::On => status.power_state == PublicPower::On || status.phase == Phase::Serving,
        Switch::Off => status.phase == Phase::Idle && Draw::of(Admin::Normal, Some(status)) == Draw::Rests,
    };
    match (reached, order.action, order.stage) {
        (false, _, stage) if spec.is_dry_run() => {
            let told = format!("dry-run is its only driver: it would be switched {stage}, and nothing was");
            Verdict::End(OperationState::Succeeded, told)
        }
        (false, _, _) => Verdict::Wait,
        (true, ManualPower::Cycle, Switch::Off) => Verdict::Next,
        (true, _, stage) => Verdict::End(OperationState::Succeeded, format!("the host is {stage}")),
    }
}

#[cfg(test)]
mod tests {
    use muster_model::{
        host::{BareMetalNodeStatus, keys::HostRecord},
        store::{Entry, Revision},
    };
    use serde_json::json;

    use super::*;

    fn host(power_state: Option<&str>, status: Option<(Phase, PublicPower, u64)>) -> Host {
        let mut host = Host::new("a");
        let entry = |value: String| Entry {
            key: String::new(),
            value: value.into(),
            created: Revision(5),
            modified: Revision(5),
        };
        let mut spec = json!({"powerInterface": "redfish", "pool": "p", "mgmtAddress": "10.0.0.1"});
        spec["powerState"] = json!(power_state);
        host.take(HostRecord::Spec, Some(&entry(spec.to_string())), Revision(5));
        if let Some((phase, power, observed)) = status {
            let mut status = BareMetalNodeStatus::enrolling(Timestamp::from_millis(9));
            (status.phase, status.state, status.power_state) = (phase, phase.state(), power);
            status.off_proved_at = (power != PublicPower::On).then_some(Timestamp::EPOCH);
            status.observed_generation = observed;
            status.last_error = Some("it did not boot".into());
            let text = serde_json::to_string(&status).unwrap();
            host.take(HostRecord::Status, Some(&entry(text)), Revision(6));
        }
        host
    }

    #[test]
    fn an_operation_ends_by_what_the_status_says() {
        #[track_caller]
        fn check(action: ManualPower, stage: Switch, host: Option<Host>, expected: Verdict) {
            let order = PowerOrder { action, stage, power_state_before: None, hold_before: None };
            let operation = Operation {
                id: Uuid::nil(),
                kind: String::new(),
                project: String::new(),
                subject: Subject::Host {
                    host: "a".into(),
                    reason: String::new(),
                    power: None,
                    operation: None,
                    phase: None,
                },
                state: OperationState::Running,
                done: false,
                message: String::new(),
                created_at: Timestamp::from_millis(5),
                created_by: String::new(),
                finished_at: None,
            };
            assert_eq!(verdict(&operation, &order, host.as_ref()), expected);
        }
        use ManualPower::{Cycle, Off, On};
        let end = |state, text: &str| Verdict::End(state, text.into());
        let succeeded = |text| end(OperationState::Succeeded, text);
        check(On, Switch::On, Some(host(Some("on"), None)), Verdict::Wait);
        let stale = host(Some("on"), Some((Phase::Serving, PublicPower::On, 4)));
        check(On, Switch::On, Some(stale), Verdict::Wait);
        let on = || host(Some("on"), Some((Phase::Serving, PublicPower::On, 5)));
        check(On, Switch::On, Some(on()), succeeded("the host is on"));
        check(Cycle, Switch::On, Some(on()), succeeded("the host is on"));
        let off = || host(Some("off"), Some((Phase::Idle, PublicPower::Off, 5)));
        check(Off, Switch::Off, Some(off()), succeeded("the host is off"));
        check(Cycle, Switch::Off, Some(off()), Verdict::Next);
        // Without a BMC nobody reads power.
        let unread = |wish, phase| host(Some(wish), Some((phase, PublicPower::Unknown, 5)));
        check(On, Switch::On, Some(unread("on", Phase::Serving)), succeeded("the host is on"));
        check(Off, Switch::Off, Some(unread("off", Phase::Idle)), succeeded("the host is off"));
        check(Off, Switch::Off, Some(unread("off", Phase::Stopping)), Verdict::Wait);
        check(On, Switch::On, Some(off()), end(OperationState::Superseded, "off was asked for meanwhile"));
        let broken = host(Some("on"), Some((Phase::Backoff, PublicPower::Unknown, 5)));
        check(On, Switch::On, Some(broken), end(OperationState::Failed, "it did not boot"));
        // A driver that only says what it would do has said it.
        let mut pretends = host(Some("on"), None);
        let entry = |value: String| Entry {
            key: String::new(),
            value: value.into(),
            created: Revision(5),
            modified: Revision(5),
        };
        let spec = json!({"powerInterface": "redfish", "pool": "p", "mgmtAddress": "10.0.0.1", "powerState": "on",
            "drivers": [{"kind": "dry-run"}]});
        pretends.take(HostRecord::Spec, Some(&entry(spec.to_string())), Revision(5));
        pretends.status = off().status.clone();
        let told = "dry-run is its only driver: it would be switched on, and nothing was";
        check(On, Switch::On, Some(pretends), succeeded(told));
        check(On, Switch::On, None, end(OperationState::Failed, "the host was deleted or set aside"));
    }
}
