//! What a machine counts for in the watts of its rack. The planner and the host loop ask the same function, so that
//! neither grants what the other refuses.

use serde::{Deserialize, Serialize};

use super::{Admin, BareMetalNodeStatus, Phase, PublicPower};

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Draw {
    /// Off was proved, nothing has asked it to go on since, and nothing shows that it is on.
    Rests,
    /// It is on, on its way up, or on its way down.
    Takes,
    /// Nobody knows that it is off: it may draw what it can.
    NotKnownOff,
    /// A person works on it and may switch it on at any time.
    InHands,
}

impl Draw {
    /// What a machine counts for. The public `powerState` is what a BMC last said and no proof of off: it may be a lie,
    /// a single reading, or missing.
    pub const fn of(admin: Admin, status: Option<&BareMetalNodeStatus>) -> Self {
        let Some(status) = status else { return Self::NotKnownOff };
        let proved = match status.phase {
            Phase::Reserved
            | Phase::PreparingBoot
            | Phase::PowerRequested
            | Phase::Powered
            | Phase::Booting
            | Phase::Joining
            | Phase::Serving
            | Phase::Degraded
            | Phase::Lost
            | Phase::Cordoned
            | Phase::Evicting
            | Phase::Drained
            | Phase::Stopping
            | Phase::ForcingOff => return Self::Takes,
            Phase::Enrolling | Phase::Idle | Phase::ConfirmingOff | Phase::Backoff | Phase::Quarantined => {
                status.off_proved_at.is_some()
            }
        };
        match (status.power_state, admin) {
            (PublicPower::On, _) => Self::Takes,
            (PublicPower::Off | PublicPower::Unknown, _) if !proved => Self::NotKnownOff,
            (PublicPower::Off | PublicPower::Unknown, Admin::Normal) => Self::Rests,
            (PublicPower::Off | PublicPower::Unknown, Admin::Maintenance | Admin::Disabled) => Self::InHands,
        }
    }

    /// Whether its watts are taken.
    pub const fn counts(self) -> bool {
        match self {
            Self::Rests => false,
            Self::Takes | Self::NotKnownOff | Self::InHands => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    /// Unknown is never off, and one reading of a BMC is no proof.
    #[test]
    fn a_machine_counts_unless_its_off_is_proved() {
        use Phase::{
            Backoff, ConfirmingOff, Enrolling, Idle, PowerRequested, Quarantined, Serving, Stopping,
        };
        use PublicPower::{Off, On, Unknown};
        #[track_caller]
        fn check(phase: Phase, power: PublicPower, proved: bool, admin: Admin, expected: Draw) {
            let mut status = BareMetalNodeStatus::enrolling(Timestamp::EPOCH);
            (status.phase, status.state, status.power_state) = (phase, phase.state(), power);
            status.off_proved_at = proved.then_some(Timestamp::EPOCH);
            assert_eq!(Draw::of(admin, Some(&status)), expected, "{phase} {power:?} {proved} {admin:?}");
        }
        let normal = Admin::Normal;
        // phase, what its BMC says, whether off is proved, whose it is => what it counts for
        check(Idle, Off, true, normal, Draw::Rests);
        check(Idle, Unknown, true, normal, Draw::Rests); // its BMC is away, nobody asked for power since
        check(Idle, Unknown, false, normal, Draw::NotKnownOff); // woken by hand, then silent
        check(Idle, On, true, normal, Draw::Takes);
        check(ConfirmingOff, Off, true, normal, Draw::Rests);
        check(Backoff, Unknown, false, normal, Draw::NotKnownOff); // was sent packets, shows no sign of life
        check(Backoff, Off, false, normal, Draw::NotKnownOff); // one reading of a BMC that was asked for on
        check(Backoff, Off, true, normal, Draw::Rests);
        check(Quarantined, Unknown, false, normal, Draw::NotKnownOff);
        check(Quarantined, Unknown, true, normal, Draw::Rests); // its account is refused, it was off before
        check(Enrolling, Unknown, false, normal, Draw::NotKnownOff);
        check(Serving, Off, false, normal, Draw::Takes); // the BMC lies, its kubelet renews
        check(Stopping, Off, false, normal, Draw::Takes);
        check(PowerRequested, Off, false, normal, Draw::Takes);
        check(Idle, Off, true, Admin::Maintenance, Draw::InHands);
        check(Idle, Off, true, Admin::Disabled, Draw::InHands);
        check(Backoff, Unknown, false, Admin::Maintenance, Draw::NotKnownOff);
        assert_eq!(Draw::of(normal, None), Draw::NotKnownOff, "nobody has looked at it");
    }
}
