//! What can be said about a host.

use super::{Cause, Code};
use crate::snapshot::{Health, Host, HostState, Scope, Snapshot, Stops};

/// Whether the host may be started, or taken over where it already runs without a node.
pub(super) fn is_usable(snapshot: &Snapshot, host: &Host) -> bool {
    refusal(snapshot, host).is_none()
}

/// Why the host may not be started now.
pub(super) fn refusal(snapshot: &Snapshot, host: &Host) -> Option<Cause> {
    let object = format!("baremetalnodes/{}", host.name);
    let name = &host.name;
    let say = |code: Code, field: &str, observed: &str, text: String| {
        Some(
            Cause::new(code, object.clone(), field)
                .found(observed, "a host that may be started")
                .saying(text),
        )
    };
    if let Some(node) = &host.node {
        return say(
            Code::HostInUse,
            "status.kubernetesNode",
            node,
            format!("host {name} already runs node {node}"),
        );
    }
    let state = match host.state {
        HostState::Off | HostState::On => None,
        HostState::Ready => Some((Code::HostInUse, "ready", "it already runs a node")),
        HostState::Waking => Some((Code::HostInUse, "powering-on", "it is starting already")),
        HostState::Leaving => Some((Code::HostLeaving, "draining", "it is being drained or switched off")),
        HostState::Failed => Some((Code::HostFailed, "error", "it is quarantined")),
        HostState::Maintenance => Some((Code::HostMaintenance, "maintenance", "it is in maintenance")),
        HostState::Unknown => {
            Some((Code::HostUnknown, "unknown", "its state is unknown; unknown is not off"))
        }
    };
    if let Some((code, observed, why)) = state {
        let failures = match (code, host.recent_failures) {
            (Code::HostFailed, 1) => " after 1 failure in the last day".to_owned(),
            (Code::HostFailed, 2..) => format!(" after {} failures in the last day", host.recent_failures),
            _ => String::new(),
        };
        let watts = if host.is_not_known_off() && host.max_milliwatts > 0 {
            let watts = super::amount::watts(host.max_milliwatts);
            format!("; it counts {watts} because nobody knows that it is off")
        } else {
            String::new()
        };
        return say(code, "status.state", observed, format!("host {name}: {why}{failures}{watts}"));
    }
    if let Health::Critical(reading) = &host.health {
        return say(
            Code::HostCritical,
            "status.health",
            reading,
            format!("host {name} reports {reading}: never started"),
        );
    }
    if let Some(until) = host.backoff_until.filter(|until| snapshot.now < *until) {
        let text = match host.recent_failures {
            0 => format!("host {name} was switched a short while ago and rests until {until}"),
            1 => format!("host {name} failed once in the last day and rests until {until}"),
            many => format!("host {name} failed {many} times in the last day and rests until {until}"),
        };
        return say(Code::HostBackoff, "status.retryAt", "resting", text)
            .map(|cause| cause.until(Some(until)));
    }
    let hold = snapshot.hold(&[Scope::Host(host.name.clone())], Stops::Growth)?;
    let until =
        hold.until.map_or_else(|| "until further notice".to_owned(), |until| format!("until {until}"));
    say(Code::Held, "spec.hold", &hold.why, format!("host {name} is held {until}: {}", hold.why))
        .map(|cause| cause.until(hold.until))
}
