//! Power by hand: a person wants a host on, off, or off and on again.
//!
//! The wish is the spec's `powerState` with a hold, so that the autoscaler keeps away and the host loop carries it
//! out like any other. Each wish is an operation, whose end is read from the host's status. A cycle is two wishes,
//! one after the other; the stage is stored, so that another process goes on with it.

use muster_model::{
    Timestamp,
    host::{Admin, BareMetalNodeSpec, Draw, Hold, ManualPower, Phase, PublicPower, State, Switch},
    store::{Committed, Entry, Expect, List, Revision, Txn},
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
    /// What was written with the wish: under another hold it is somebody else's turn. A record of an earlier version has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
}

impl PowerOrder {
    /// What took the order's place.
    fn superseded(&self, spec: &BareMetalNodeSpec) -> Option<String> {
        if spec.power_state != Some(self.stage) {
            let wanted = spec.power_state.map_or("nothing".to_owned(), |switch| switch.to_string());
            return Some(format!("{wanted} was asked for meanwhile"));
        }
        if self.hold.is_none() || self.hold == spec.hold {
            return None;
        }
        Some(match &spec.hold {
            Some(hold) => format!("its hold was replaced meanwhile: held by {}: {}", hold.by, hold.reason),
            None => "its hold was taken away meanwhile".to_owned(),
        })
    }
}

/// A wish of a person.
#[derive(Debug, Clone)]
pub struct ManualRequest {
    pub action: ManualPower,
    pub reason: String,
    pub until: Option<Timestamp>,
}

impl Inventory {
    /// Writes the wish with its hold, and the operation that stands for it; those that it takes the place of end with it.
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
        let earlier = self.open_on(name, context.now).await?;
        let make = |before: &BareMetalNodeSpec| Operation {
            id,
            kind: format!("power-{}", request.action),
            project: project.to_owned(),
            subject: Subject::Host {
                host: name.to_owned(),
                reason: request.reason.clone(),
                power: Some(ordered(request.action, stage, &hold, before, &earlier)),
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
            begin(txn, &operation, &earlier)
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
            let txn = begin(Txn::new(), &operation, &earlier);
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
        let open = self.open_operations().await?;
        let on_hosts = open.into_iter().filter(|(_, operation)| operation.host().is_some());
        self.shared.open_power().extend(on_hosts.map(|(_, operation)| operation.id));
        Ok(())
    }

    async fn open_operations(&self) -> Result<Vec<(Revision, Operation)>, InventoryError> {
        let mut found = Vec::new();
        let take = |entry: Entry| {
            let read = decode_operation(&entry).ok().filter(|operation| !operation.done);
            found.extend(read.map(|operation| (entry.modified, operation)));
        };
        List::prefix(keys::OPERATIONS).each(&*self.shared.store, take).await?;
        Ok(found)
    }

    /// The orders that are under way for a host. Without a wish in force there are none, and nothing is read.
    async fn open_on(&self, name: &str, now: Timestamp) -> Result<Vec<Earlier>, InventoryError> {
        let host = self.host(name);
        if host.as_deref().and_then(Host::readable).is_none_or(|spec| spec.manual(now).is_none()) {
            return Ok(Vec::new());
        }
        let open = self.open_operations().await?.into_iter();
        Ok(open
            .filter_map(|(version, operation)| match operation.subject.clone() {
                Subject::Host { host, power: Some(order), .. } if host == name => {
                    Some(Earlier { version, operation, order })
                }
                _ => None,
            })
            .collect())
    }

    /// Brings every open operation on a host up to date.
    pub(super) async fn settle_power(&self) -> Result<(), InventoryError> {
        let open: Vec<Uuid> = self.shared.open_power().iter().copied().collect();
        for id in open {
            match self.settle_one(id).await {
                // Somebody was faster: the next look sees what they did.
                Ok(()) | Err(InventoryError::Busy) => {}
                Err(error @ (InventoryError::Store(_) | InventoryError::Stalled)) => return Err(error),
                Err(error) => tracing::warn!(operation = %id, %error, "a request for power goes no further"),
            }
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
        if !self.shared.caught_up(entry.modified).await {
            return Ok(());
        }
        let now = self.shared.clock.now();
        let host = self.host(&name);
        let verdict = verdict(&operation, &order, host.as_deref(), now);
        let expect = Expect::Modified(entry.modified);
        let context =
            WriteContext { actor: operation.created_by.clone(), now, dry_run: false, idempotency: None };
        let (power_state, hold) = match verdict {
            Verdict::Wait => return Ok(()),
            Verdict::Next => {
                let next = PowerOrder { stage: Switch::On, ..order.clone() };
                if let Subject::Host { power, .. } = &mut operation.subject {
                    *power = Some(next);
                }
                "it is off; waiting until it is on again".clone_into(&mut operation.message);
                (Some(Switch::On), None)
            }
            Verdict::End(state, message) => {
                operation.end(state, message, now);
                if order.action != ManualPower::Cycle || state != OperationState::Succeeded {
                    return self.store_end(&operation, &key, expect).await;
                }
                (order.power_state_before, Some(order.hold_before.clone()))
            }
        };
        let change = |host: &Host| {
            let mut spec = in_use(host)?.clone();
            if order.superseded(&spec).is_some() {
                return Err(InventoryError::Busy);
            }
            spec.power_state = power_state;
            spec.hold = hold.clone().unwrap_or(spec.hold);
            Ok((spec, Vec::new()))
        };
        // Whoever else has settled it meanwhile has changed its record.
        let attach = |txn: Txn, _: &BareMetalNodeSpec| txn.expect(&key, expect).put(&key, encode(&operation));
        let act = Act::new(Act::POWER);
        let written = self.update(&context, act, &name, &|_| true, change, attach).await?;
        if !written.changed {
            return self.store_end(&operation, &key, expect).await;
        }
        if operation.done {
            self.shared.open_power().remove(&id);
        }
        Ok(())
    }

    /// Stores an operation whose host stays as it is.
    async fn store_end(
        &self,
        operation: &Operation,
        key: &str,
        expect: Expect,
    ) -> Result<(), InventoryError> {
        let txn = Txn::new().expect(key, expect).put(key, encode(operation));
        if let Committed::Done { .. } = self.shared.store.commit(txn).await?
            && operation.done
        {
            self.shared.open_power().remove(&operation.id);
        }
        Ok(())
    }
}

/// An order that a new one takes the place of.
struct Earlier {
    version: Revision,
    operation: Operation,
    order: PowerOrder,
}

/// What a request orders. A cycle that was under way has put its own wish into the spec: what stood there before is what
/// stood before that cycle.
fn ordered(
    action: ManualPower,
    stage: Switch,
    hold: &Hold,
    before: &BareMetalNodeSpec,
    earlier: &[Earlier],
) -> PowerOrder {
    let cycle = earlier
        .iter()
        .map(|one| &one.order)
        .find(|order| order.action == ManualPower::Cycle && order.superseded(before).is_none());
    let (power_state_before, hold_before) = cycle.map_or_else(
        || (before.power_state, before.hold.clone()),
        |cycle| (cycle.power_state_before, cycle.hold_before.clone()),
    );
    PowerOrder { action, stage, power_state_before, hold_before, hold: Some(hold.clone()) }
}

/// Adds an operation, and the end of those before it: the wish may read the same as theirs.
fn begin(txn: Txn, operation: &Operation, earlier: &[Earlier]) -> Txn {
    let key = keys::operation(operation.id);
    let txn = txn.expect(&key, Expect::Absent).put(&key, encode(operation));
    earlier.iter().fold(txn, |txn, one| {
        let (key, mut ended) = (keys::operation(one.operation.id), one.operation.clone());
        let by = format!("{} was asked for meanwhile", operation.kind);
        ended.end(OperationState::Superseded, by, operation.created_at);
        txn.expect(&key, Expect::Modified(one.version)).put(&key, encode(&ended))
    })
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
fn verdict(operation: &Operation, order: &PowerOrder, host: Option<&Host>, now: Timestamp) -> Verdict {
    let Some((host, spec)) = host.and_then(|host| Some((host, host.accepted()?))) else {
        return Verdict::End(OperationState::Failed, "the host was deleted or set aside".into());
    };
    if let Some(message) = order.superseded(spec) {
        return Verdict::End(OperationState::Superseded, message);
    }
    match (progress(operation, order, host, spec), spec.manual(now)) {
        // Nothing carries it any further.
        (Verdict::Wait | Verdict::Next, None) => Verdict::End(
            OperationState::Failed,
            format!("its hold lapsed while it was waiting until the host is {}", order.stage),
        ),
        (verdict, _) => verdict,
    }
}

/// How far the wish in the spec is.
fn progress(operation: &Operation, order: &PowerOrder, host: &Host, spec: &BareMetalNodeSpec) -> Verdict {
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
    fn an_order_of_an_earlier_version_is_under_no_hold_of_its_own() {
        let order: PowerOrder =
            serde_json::from_value(json!({"action": "cycle", "stage": "off", "holdBefore": null})).unwrap();
        let mut spec = BareMetalNodeSpec::new("p", muster_model::host::PowerInterface::Redfish);
        spec.power_state = Some(Switch::Off);
        spec.hold = Some(Hold { by: "ann".into(), reason: "stuck".into(), until: None });
        assert_eq!((order.hold.as_ref(), order.superseded(&spec)), (None, None));
    }

    #[test]
    fn an_operation_ends_by_what_the_status_says() {
        #[track_caller]
        fn check(action: ManualPower, stage: Switch, host: Option<Host>, expected: Verdict) {
            let order = PowerOrder { action, stage, power_state_before: None, hold_before: None, hold: None };
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
            assert_eq!(verdict(&operation, &order, host.as_ref(), Timestamp::from_millis(9)), expected);
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
