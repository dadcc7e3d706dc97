//! One word about a host, for lists and filters.

use crate::status::Health;

use super::{BareMetalNodeStatus, ConditionType, Phase, State, is_true};

/// Conditions that make a host worth a look although it may still serve.
const TROUBLES: [ConditionType; 13] = [
    ConditionType::BmcBlocked,
    ConditionType::BmcStuck,
    ConditionType::PowerReadingDisagrees,
    ConditionType::UnexpectedOff,
    ConditionType::UnexpectedOn,
    ConditionType::NodeLost,
    ConditionType::DrainBlocked,
    ConditionType::CannotForceOff,
    ConditionType::BootFailed,
    ConditionType::Quarantined,
    ConditionType::Overdue,
    ConditionType::Surplus,
    ConditionType::OffNotProved,
];

/// How a host fares. A host that nobody has looked at is unknown, not healthy.
pub fn health(status: Option<&BareMetalNodeStatus>) -> Health {
    let Some(status) = status else { return Health::Unknown };
    match (status.state, status.phase) {
        (State::Error, _) => Health::Unhealthy,
        (_, Phase::Enrolling) => Health::Unknown,
        (_, Phase::Degraded | Phase::Lost) => Health::Degraded,
        _ if TROUBLES.iter().any(|trouble| is_true(&status.conditions, *trouble)) => Health::Degraded,
        _ => Health::Healthy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Timestamp,
        host::{ConditionStatus, HostCondition, set_condition},
    };

    #[test]
    fn one_word_follows_from_phase_and_conditions() {
        #[track_caller]
        fn check(phase: Phase, trouble: Option<ConditionType>, expected: Health) {
            let mut status = BareMetalNodeStatus::enrolling(Timestamp::EPOCH);
            (status.phase, status.state) = (phase, phase.state());
            if let Some(kind) = trouble {
                let condition = HostCondition {
                    kind,
                    status: ConditionStatus::True,
                    reason: "Test".into(),
                    message: String::new(),
                    last_transition_time: Timestamp::EPOCH,
                    observed_generation: 1,
                };
                set_condition(&mut status.conditions, condition);
            }
            assert_eq!(health(Some(&status)), expected, "{phase}");
        }
        check(Phase::Enrolling, None, Health::Unknown);
        check(Phase::Idle, None, Health::Healthy);
        check(Phase::Serving, Some(ConditionType::Held), Health::Healthy);
        check(Phase::Serving, Some(ConditionType::BmcBlocked), Health::Degraded);
        check(Phase::Degraded, None, Health::Degraded);
        check(Phase::Quarantined, None, Health::Unhealthy);
        assert_eq!(health(None), Health::Unknown);
    }
}
