//! Switching: which reset type to send, and what the answer means.

use muster_model::{
    Duration,
    host::OnReset,
    power::{Accepted, DriverKind, Expected, Fault, Order, PowerAction, PowerState, shown},
};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    conversation::{Conversation, follow, links, local, message_ids, refusal},
    system::{power_state, prove},
};
use crate::http::Answer;

/// How often a task monitor is asked, and for how long: 20 s fit into the time limit of every phase that waits for
/// it. A longer task is left to be confirmed by reading.
const TASK_PAUSE: Duration = Duration::from_secs(1);
const TASK_WATCH: Duration = Duration::from_secs(20);

impl Conversation<'_> {
    /// Reads, checks that this is the right machine and not there yet, and sends the reset type that fits.
    pub(super) async fn reset(
        &mut self,
        path: &str,
        expect: &Expected,
        order: Order,
    ) -> Result<Accepted, Fault> {
        let (system, _) = self.system(path, expect).await?;
        let state = power_state(&system);
        if order.action.is_met_by(&state) {
            return Ok(Accepted::AlreadyThere);
        }
        if order.action.interrupts() {
            prove(&system, expect)?;
        }
        if let PowerState::Unknown { why } = state {
            return Err(Fault::malformed(
                "its power state",
                format!("{why}; nothing is switched on a guess"),
            ));
        }
        let (target, allowed) = self.reset_action(path, &system).await?;
        let kind = pick(order, allowed.as_deref(), &self.memory.quirks.avoid).ok_or_else(|| {
            let offered = allowed.map(|list| list.join(", ")).unwrap_or_default();
            let asked = match order.action {
                PowerAction::On => order.on.as_str().to_owned(),
                action => action.to_string(),
            };
            Fault::unsupported(format!("{asked} (it offers: {})", shown(&offered)), DriverKind::Redfish)
        })?;
        if kind == OnReset::PushPowerButton.as_str() {
            // The button toggles: one wrong reading would switch the machine off.
            let (again, _) = self.system(path, expect).await?;
            if power_state(&again) != PowerState::Off {
                return Ok(Accepted::AlreadyThere);
            }
        }
        self.post_reset(path, expect, order.action, &target, kind).await
    }

    /// Restarts the BMC that manages this system. The session ends first: the BMC would forget or, worse, keep it.
    pub(super) async fn restart_bmc(&mut self, path: &str, expect: &Expected) -> Result<Accepted, Fault> {
        let (system, _) = self.system(path, expect).await?;
        prove(&system, expect)?;
        let managers = links(&system, "/Links/ManagedBy")?;
        let Some(manager) = managers.first() else {
            return Err(Fault::unsupported(
                "a restart of the BMC (no manager is named)",
                DriverKind::Redfish,
            ));
        };
        let (found, _) = self.get(manager, "its manager").await?;
        let action = found.pointer("/Actions/#Manager.Reset");
        let target = match action.and_then(|action| action.get("target")).and_then(Value::as_str) {
            Some(target) => follow(target)?,
            None => return Err(Fault::unsupported("a restart of the BMC", DriverKind::Redfish)),
        };
        let offered: Vec<&str> = action
            .and_then(|action| action.get("ResetType@Redfish.AllowableValues")?.as_array())
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let known = ["GracefulRestart", "ForceRestart"];
        let kind = known.into_iter().find(|kind| offered.contains(kind)).unwrap_or(known[0]);
        let asked = format!("BMC {kind}");
        let body = json!({ "ResetType": kind });
        match self.call(Method::POST, &target, Some(&body), None).await {
            // A BMC that restarts at once may not live to answer.
            Ok(answer) if !(200..=299).contains(&answer.status) => return Err(refusal(&asked, &answer)),
            Err(failed) if !failed.sent => return Err(failed.fault),
            Ok(_) | Err(_) => {}
        }
        self.end_session().await;
        Ok(Accepted::Sent { how: asked })
    }

    /// Where resets are sent and which ones are offered, if the BMC says so.
    async fn reset_action(
        &mut self,
        path: &str,
        system: &Value,
    ) -> Result<(String, Option<Vec<String>>), Fault> {
        const ACTION: &str = "/Actions/#ComputerSystem.Reset";
        let action = system.pointer(ACTION);
        let field = |name: &str| action.and_then(|action| action.get(name));
        let target = match field("target").and_then(Value::as_str) {
            Some(target) => follow(target)?,
            None => format!("{}/Actions/ComputerSystem.Reset", path.trim_end_matches('/')),
        };
        let words = |list: &Value| -> Option<Vec<String>> {
            Some(list.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        };
        if let Some(allowed) = field("ResetType@Redfish.AllowableValues").and_then(words) {
            return Ok((target, Some(allowed)));
        }
        let Some(info) = field("@Redfish.ActionInfo").and_then(Value::as_str) else {
            return Ok((target, None));
        };
        let info = self.get_if_there(&follow(info)?, "the reset action's description").await?;
        let parameters = info.as_ref().and_then(|info| info.get("Parameters")?.as_array());
        let reset = parameters.and_then(|list| {
            list.iter().find(|entry| entry.get("Name").and_then(Value::as_str) == Some("ResetType"))
        });
        Ok((target, reset.and_then(|entry| entry.get("AllowableValues")).and_then(words)))
    }

    async fn post_reset(
        &mut self,
        path: &str,
        expect: &Expected,
        action: PowerAction,
        target: &str,
        kind: &str,
    ) -> Result<Accepted, Fault> {
        let asked = format!("reset {kind}");
        let answer = match self.call(Method::POST, target, Some(&json!({ "ResetType": kind })), None).await {
            Ok(answer) => answer,
            Err(failed) if failed.sent => {
                return Err(Fault::OutcomeUnknown { action: asked, why: failed.fault.to_string() });
            }
            Err(failed) => return Err(failed.fault),
        };
        match answer.status {
            202 => self.watch_task(&answer, &asked).await?,
            200..=299 => {}
            400 | 409 | 412 | 503 => {
                let is_busy = self.is_busy(&answer) || answer.status == 503;
                let (system, _) = self.system(path, expect).await?;
                if action.is_met_by(&power_state(&system)) {
                    return Ok(Accepted::AlreadyThere); // some refuse to do what is already done
                }
                return Err(if is_busy { busy(&asked, &answer) } else { refusal(&asked, &answer) });
            }
            500 | 502 | 504 => {
                let why = refusal(&asked, &answer).to_string();
                return Err(Fault::OutcomeUnknown { action: asked, why });
            }
            _ => return Err(refusal(&asked, &answer)),
        }
        Ok(Accepted::Sent { how: kind.to_owned() })
    }

    /// Whether an answer says "not now" rather than "no", as this vendor puts it.
    pub(super) fn is_busy(&self, answer: &Answer) -> bool {
        let ids = message_ids(answer);
        self.memory.quirks.busy.iter().any(|mark| ids.iter().any(|id| id.ends_with(mark.as_str())))
    }

    /// Follows a task until it ends or the patience for it does. A task that says that it failed is a refusal.
    async fn watch_task(&mut self, accepted: &Answer, asked: &str) -> Result<(), Fault> {
        let Some(monitor) = accepted.header("location").and_then(local) else {
            return Ok(()); // nothing to follow: reading the power state tells
        };
        // It was accepted: whatever the monitor does not tell is told by reading.
        let until = self.now().saturating_add(TASK_WATCH);
        self.until = Some(until);
        while self.now() < until {
            let Ok(answer) = self.call(Method::GET, &monitor, None, None).await else { break };
            match answer.status {
                202 => self.setup.clock.sleep(TASK_PAUSE).await,
                200..=299 => return task_verdict(&answer, asked),
                _ => break, // finished monitors vanish, and others fail
            }
        }
        Ok(())
    }
}

/// What a BMC that is not ready said.
pub(super) fn busy(asked: &str, answer: &Answer) -> Fault {
    match refusal(asked, answer) {
        Fault::Refused { answer, .. } => Fault::Busy { why: answer },
        fault => fault,
    }
}

fn task_verdict(answer: &Answer, asked: &str) -> Result<(), Fault> {
    let Ok(task) = answer.json("a task") else { return Ok(()) };
    let state = task.get("TaskState").and_then(Value::as_str).unwrap_or_default();
    let failed = matches!(state, "Exception" | "Killed" | "Cancelled")
        || task.get("TaskStatus").and_then(Value::as_str) == Some("Critical");
    if !failed {
        return Ok(());
    }
    let message = task.pointer("/Messages/0/Message").and_then(Value::as_str).unwrap_or(state);
    let answer = format!("its task failed: {}", shown(message));
    Err(Fault::Refused { asked: asked.to_owned(), answer })
}

/// The reset type to send. One for power on is taken as it was asked for, or not at all: the caller has announced it, and
/// whether it may be sent again hangs on it. For the rest the first that is offered does.
fn pick(order: Order, allowed: Option<&[String]>, avoid: &[String]) -> Option<&'static str> {
    let known: &[&str] = match order.action {
        PowerAction::On => &[order.on.as_str()],
        PowerAction::GracefulOff => &["GracefulShutdown"],
        PowerAction::ForceOff => &["ForceOff"],
        PowerAction::Cycle => &["PowerCycle", "ForceRestart"],
        PowerAction::Reset => &["ForceRestart", "GracefulRestart"],
    };
    let offered = |kind: &&&'static str| {
        !avoid.iter().any(|bad| bad == **kind)
            && match allowed {
                Some(list) => list.iter().any(|entry| entry == **kind),
                None => **kind != OnReset::PushPowerButton.as_str(), // a toggle is not sent on a guess
            }
    };
    known.iter().find(offered).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_sent_or_nothing() {
        #[track_caller]
        fn check(
            action: PowerAction,
            on: OnReset,
            allowed: Option<&str>,
            avoid: &str,
            expected: Option<&str>,
        ) {
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let allowed = allowed.map(words);
            let got = pick(Order { action, on }, allowed.as_deref(), &words(avoid));
            assert_eq!(got, expected, "{action} {} {allowed:?} without {avoid}", on.as_str());
        }
        use OnReset::{ForceOn, PushPowerButton};
        use PowerAction::{Cycle, ForceOff, On, Reset};
        let all = Some("On ForceOn PushPowerButton");
        check(On, OnReset::On, all, "", Some("On"));
        check(On, ForceOn, all, "", Some("ForceOn"));
        check(On, PushPowerButton, all, "", Some("PushPowerButton"));
        // The button toggles: it never stands in for what may be repeated.
        check(On, ForceOn, Some("On PushPowerButton"), "", None);
        check(On, OnReset::On, Some("PushPowerButton"), "", None);
        check(On, OnReset::On, Some("ForceOn"), "", None);
        check(On, ForceOn, None, "", Some("ForceOn"));
        check(On, PushPowerButton, None, "", None); // never a toggle on a guess
        check(ForceOff, OnReset::On, None, "", Some("ForceOff"));
        check(Cycle, OnReset::On, Some("ForceRestart"), "", Some("ForceRestart"));
        check(
            Reset,
            OnReset::On,
            Some("ForceRestart GracefulRestart"),
            "ForceRestart",
            Some("GracefulRestart"),
        );
    }
}
