//! How long everything about a host may take: defaults, overrides and time factors.

use serde::{Deserialize, Serialize};

use crate::Duration;

/// No phase of a machine takes longer.
pub const MAX_DEADLINE: Duration = Duration::from_hours(24 * 7);

/// Whether a limit can be kept at all: with none, every call and every phase has failed before it began.
pub fn is_deadline(length: Duration) -> bool {
    length > Duration::ZERO && length <= MAX_DEADLINE
}

/// Declares [`Limits`] with defaults and [`LimitOverrides`] with the same fields, all optional.
macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident = $wire:literal, $default:expr;)+) => {
        /// Time limits that hold for one host.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Limits { $($(#[$doc])* pub $name: Duration),+ }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default),+ }
            }
        }

        /// Limits that a pool or a host sets for itself. What is absent comes from the level above.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct LimitOverrides {
            $($(#[$doc])*
            #[serde(rename = $wire, skip_serializing_if = "Option::is_none")]
            pub $name: Option<Duration>),+
        }

        impl LimitOverrides {
            /// Names as they are written, in the order of the documentation.
            pub const NAMES: &'static [&'static str] = &[$($wire),+];

            pub fn is_empty(&self) -> bool {
                $(self.$name.is_none())&&+
            }

            /// Sets a limit by the name it is written with; `false` for a name that does not exist.
            pub fn set(&mut self, name: &str, value: Duration) -> bool {
                match name {
                    $($wire => self.$name = Some(value),)+
                    _ => return false,
                }
                true
            }

            /// What is set, by name.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, Duration)> {
                [$(self.$name.map(|value| ($wire, value))),+].into_iter().flatten()
            }
        }

        impl Limits {
            /// These limits with `overrides` on top.
            #[must_use]
            pub fn with(&self, overrides: &LimitOverrides) -> Self {
                Self { $($name: overrides.$name.unwrap_or(self.$name)),+ }
            }

            /// Every limit divided by `factor`, at least a millisecond: for tests that wait for real.
            #[must_use]
            pub fn shortened(&self, factor: u32) -> Self {
                let shorten = |length: Duration| {
                    Duration::from_millis((length.millis() / u64::from(factor.max(1))).max(1))
                };
                Self { $($name: shorten(self.$name)),+ }
            }
        }
    };
}

limits! {
    /// From registration to the first successful probe.
    enrol = "enrolDeadline", Duration::from_mins(5);
    /// From the claim to the first work on it.
    reserve = "reserveDeadline", Duration::from_secs(60);
    /// Setting the boot device and reading it back.
    prepare = "prepareDeadline", Duration::from_mins(3);
    /// From a power-on request to a reading that confirms it.
    power_confirm = "powerConfirmDeadline", Duration::from_secs(120);
    /// From power to a node. Progress does not extend it.
    boot = "bootDeadline", Duration::from_mins(15);
    /// From the node's first sign to Ready.
    join = "joinDeadline", Duration::from_mins(5);
    /// A boot that is cancelled with less than this left is allowed to finish.
    nearly_booted = "nearlyBooted", Duration::from_mins(2);
    /// How long a node may be `NotReady` before it counts as lost.
    not_ready = "notReadyDeadline", Duration::from_mins(2);
    /// How long a lost node may take to come back.
    lost = "lostDeadline", Duration::from_mins(15);
    /// From the cordon's request to the API server showing it.
    cordon = "cordonDeadline", Duration::from_secs(60);
    /// From the cordon to the last pod gone.
    drain = "drainDeadline", Duration::from_mins(15);
    /// After a drain that was given up, before the next one.
    drain_retry = "drainRetryDelay", Duration::from_mins(10);
    /// What the operating system gets to shut down.
    grace = "graceDeadline", Duration::from_secs(300);
    /// Between two forced power-offs.
    force_again = "forceOffAgain", Duration::from_secs(60);
    /// From the first forced power-off to giving up.
    force_off = "forceOffDeadline", Duration::from_secs(120);
    /// From the proof of off to rest.
    confirm_off = "confirmOffDeadline", Duration::from_secs(120);
    /// Two readings of off that are this far apart count as off.
    off_apart = "offDebounce", Duration::from_secs(20);
    /// A kubelet renews its lease every 10 s; after this much silence it has stopped.
    lease_silence = "leaseSilence", Duration::from_secs(40);
    /// How old a reading may be before it counts as unknown: three polls.
    stale = "staleAfter", Duration::from_mins(3);
    /// `turning-on` and `turning-off` beyond this are a stuck BMC.
    stuck = "bmcStuckAfter", Duration::from_mins(5);
    /// Between opposite power actions on one host.
    opposite = "oppositeActionDelay", Duration::from_secs(60);
    /// Between two power-ons of one host.
    cycle_interval = "minPowerCycleInterval", Duration::from_mins(15);
    /// A node serves at least this long before the autoscaler takes it away.
    min_on = "minOnTime", Duration::from_mins(10);
    /// A host rests at least this long before the autoscaler wakes it.
    min_off = "minOffTime", Duration::from_mins(2);
    /// How long a host that a person switched off is left alone.
    hold_after_off = "unexpectedOffHold", Duration::from_hours(1);
    /// How long a host that a person switched on is left alone.
    leave_on = "unexpectedOnDelay", Duration::from_mins(30);
    /// Between bursts of magic packets.
    wol_repeat = "wolRepeat", Duration::from_secs(30);
    /// The first backoff; each further one doubles.
    backoff = "backoffBase", Duration::from_mins(1);
    backoff_cap = "backoffCap", Duration::from_hours(8);
    /// Failures within this window count together.
    failure_window = "failureWindow", Duration::from_hours(24);
    /// From quarantine to the first self-test.
    probation = "probationDelay", Duration::from_hours(24);
    /// The longest a single call to a BMC takes.
    call = "callTimeout", Duration::from_secs(30);
    /// What must be left of the leader's lease beyond a call's limit.
    lease_margin = "leaseMargin", Duration::from_secs(5);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_documented_ones() {
        let limits = Limits::default();
        assert_eq!(
            (limits.boot, limits.join, limits.drain, limits.grace, limits.power_confirm),
            (
                Duration::from_mins(15),
                Duration::from_mins(5),
                Duration::from_mins(15),
                Duration::from_secs(300),
                Duration::from_secs(120)
            )
        );
        assert_eq!(limits.cycle_interval, Duration::from_mins(15));
        assert_eq!((limits.backoff, limits.backoff_cap), (Duration::from_mins(1), Duration::from_hours(8)));
    }

    #[test]
    fn overrides_win_and_factors_never_reach_zero() {
        let mut overrides = LimitOverrides::default();
        assert!(overrides.set("bootDeadline", Duration::from_mins(40)));
        assert!(!overrides.set("bootDeadlne", Duration::from_mins(40)));
        let limits = Limits::default().with(&overrides);
        assert_eq!(limits.boot, Duration::from_mins(40));
        assert_eq!(limits.join, Limits::default().join);
        assert_eq!(limits.shortened(60).boot, Duration::from_secs(40));
        assert_eq!(limits.shortened(u32::MAX).join, Duration::from_millis(1));
        assert_eq!(serde_json::to_string(&overrides).unwrap(), r#"{"bootDeadline":"40m"}"#);
        assert!(serde_json::from_str::<LimitOverrides>(r#"{"boot":"40m"}"#).is_err());
    }
}
