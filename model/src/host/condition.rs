//! Conditions of a host: what is true of it beside its state, since when, and why.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

pub use crate::condition::ConditionStatus;

/// What a host can report. Each but `Ready` and `BMCReachable` is a trouble when it is `True`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConditionType {
    /// Serves pods.
    Ready,
    #[serde(rename = "BMCReachable")]
    BmcReachable,
    /// The account, certificate or identity of the BMC is refused, and nothing calls it any more.
    #[serde(rename = "BMCBlocked")]
    BmcBlocked,
    /// Its certificate is not checked or its traffic is not encrypted, by the host's own choice.
    #[serde(rename = "BMCUnverified")]
    BmcUnverified,
    /// `turning-on` or `turning-off` for longer than a machine takes.
    #[serde(rename = "BMCStuck")]
    BmcStuck,
    /// The BMC says off while the kubelet keeps renewing its lease.
    PowerReadingDisagrees,
    UnexpectedOff,
    UnexpectedOn,
    /// The node does not report, and nothing proves that the machine is off.
    NodeLost,
    /// The drain was given up.
    DrainBlocked,
    /// It cannot be switched off by force, and it does not go off on request.
    CannotForceOff,
    BootFailed,
    Quarantined,
    Held,
    Maintenance,
    /// It has been in its phase for longer than the phase may take.
    Overdue,
    Deleting,
    /// Kept out of use although it is on, because its pool is at its maximum.
    Surplus,
    /// It was asked to go on or was seen on, and nobody knows that it is off: its watts stay taken.
    OffNotProved,
    /// Its drivers only say what they would do: it is read and never switched.
    DryRun,
    /// Its pool only gives advice: it is read, and nothing is done to it that no person asked for.
    AdviseOnly,
}

impl ConditionType {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::BmcReachable => "BMCReachable",
            Self::BmcBlocked => "BMCBlocked",
            Self::BmcUnverified => "BMCUnverified",
            Self::BmcStuck => "BMCStuck",
            Self::PowerReadingDisagrees => "PowerReadingDisagrees",
            Self::UnexpectedOff => "UnexpectedOff",
            Self::UnexpectedOn => "UnexpectedOn",
            Self::NodeLost => "NodeLost",
            Self::DrainBlocked => "DrainBlocked",
            Self::CannotForceOff => "CannotForceOff",
            Self::BootFailed => "BootFailed",
            Self::Quarantined => "Quarantined",
            Self::Held => "Held",
            Self::Maintenance => "Maintenance",
            Self::Overdue => "Overdue",
            Self::Deleting => "Deleting",
            Self::Surplus => "Surplus",
            Self::OffNotProved => "OffNotProved",
            Self::DryRun => "DryRun",
            Self::AdviseOnly => "AdviseOnly",
        }
    }
}

/// One condition with the six fields that Kubernetes readers expect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostCondition {
    #[serde(rename = "type")]
    pub kind: ConditionType,
    pub status: ConditionStatus,
    /// One word in `CamelCase`, for programs.
    pub reason: String,
    /// One sentence, for people.
    pub message: String,
    /// Moves only when `status` does.
    pub last_transition_time: Timestamp,
    pub observed_generation: u64,
}

/// Sets `wanted` in a list that stays ordered by type, keeping the transition time of an equal status.
pub fn set_condition(conditions: &mut Vec<HostCondition>, wanted: HostCondition) {
    match conditions.binary_search_by_key(&wanted.kind, |one| one.kind) {
        Ok(found) => {
            let old = &mut conditions[found];
            let kept = if old.status == wanted.status {
                old.last_transition_time
            } else {
                wanted.last_transition_time
            };
            *old = HostCondition { last_transition_time: kept, ..wanted };
        }
        Err(place) => conditions.insert(place, wanted),
    }
}

/// The condition of this type, if it was ever set.
pub fn find_condition(conditions: &[HostCondition], kind: ConditionType) -> Option<&HostCondition> {
    conditions.iter().find(|one| one.kind == kind)
}

/// Whether the condition is `True`.
pub fn is_true(conditions: &[HostCondition], kind: ConditionType) -> bool {
    find_condition(conditions, kind).is_some_and(|one| one.status == ConditionStatus::True)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(kind: ConditionType, status: ConditionStatus, at: i64) -> HostCondition {
        HostCondition {
            kind,
            status,
            reason: "Because".into(),
            message: format!("set at {at}"),
            last_transition_time: Timestamp::from_millis(at),
            observed_generation: 1,
        }
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let mut all = Vec::new();
        set_condition(&mut all, condition(ConditionType::Held, ConditionStatus::True, 5));
        set_condition(&mut all, condition(ConditionType::Ready, ConditionStatus::False, 6));
        set_condition(&mut all, condition(ConditionType::Held, ConditionStatus::True, 9));
        assert_eq!(find_condition(&all, ConditionType::Held).unwrap().last_transition_time.millis(), 5);
        assert_eq!(find_condition(&all, ConditionType::Held).unwrap().message, "set at 9");
        set_condition(&mut all, condition(ConditionType::Held, ConditionStatus::False, 12));
        assert_eq!(find_condition(&all, ConditionType::Held).unwrap().last_transition_time.millis(), 12);
        assert!(all.windows(2).all(|pair| pair[0].kind < pair[1].kind), "ordered, one of each");
    }

    #[test]
    fn a_condition_has_the_six_fields() {
        let text = serde_json::to_value(condition(ConditionType::BmcReachable, ConditionStatus::True, 0));
        let text = text.unwrap();
        let mut fields: Vec<_> = text.as_object().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(
            fields,
            ["lastTransitionTime", "message", "observedGeneration", "reason", "status", "type"]
        );
        assert_eq!(text["type"], ConditionType::BmcReachable.as_str());
    }
}
