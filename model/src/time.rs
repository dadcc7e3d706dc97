//! Points in time and lengths of time, in whole milliseconds.
//!
//! Times travel as RFC 3339 in UTC, durations as Go writes them (`1h30m`, `250ms`). Reading a clock is
//! the business of [`crate::Clock`].

use std::{fmt, str::FromStr};

use thiserror::Error;

use crate::field::serde_as_text;

/// A point in time: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// A length of time in milliseconds, never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TimeError {
    #[error("{found:?} is not an RFC 3339 time; write it like 2025-10-17T10:00:00Z")]
    Timestamp { found: String },
    #[error("{found:?} is not a duration; write it like 90s, 10m or 1h30m")]
    Duration { found: String },
}

impl Timestamp {
    pub const EPOCH: Self = Self(0);

    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Time that has passed from `earlier` to `self`; zero when `earlier` lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    pub fn saturating_add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(length.0).unwrap_or(i64::MAX)))
    }

    pub fn saturating_sub(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(length.0).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // jiff covers years -9999..=9999; a time outside is clamped rather than failing to print.
        let clamped = self.0.clamp(-377_705_023_201_000, 253_402_207_200_999);
        match jiff::Timestamp::from_millisecond(clamped) {
            Ok(time) => write!(f, "{time}"),
            Err(_) => write!(f, "{clamped}ms"),
        }
    }
}

impl FromStr for Timestamp {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<jiff::Timestamp>()
            .map(|time| Self(time.as_millisecond()))
            .map_err(|_| TimeError::Timestamp { found: text.to_owned() })
    }
}

impl Duration {
    pub const ZERO: Self = Self(0);

    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    pub const fn from_mins(mins: u64) -> Self {
        Self::from_secs(mins.saturating_mul(60))
    }

    pub const fn from_hours(hours: u64) -> Self {
        Self::from_mins(hours.saturating_mul(60))
    }

    pub const fn millis(self) -> u64 {
        self.0
    }

    pub const fn as_std(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }

    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<std::time::Duration> for Duration {
    fn from(length: std::time::Duration) -> Self {
        Self(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Duration {
    /// As Go prints it, without zero parts at the end: `1h30m`, `45s`, `1.5s`, `250ms`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return write!(f, "0s");
        }
        if self.0 < 1000 {
            return write!(f, "{}ms", self.0);
        }
        let (hours, minutes) = (self.0 / 3_600_000, self.0 / 60_000 % 60);
        let (seconds, millis) = (self.0 / 1000 % 60, self.0 % 1000);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        match (seconds, millis) {
            (0, 0) => Ok(()),
            (_, 0) => write!(f, "{seconds}s"),
            _ => write!(f, "{seconds}.{}s", format!("{millis:03}").trim_end_matches('0')),
        }
    }
}

impl FromStr for Duration {
    type Err = TimeError;

    /// Reads what Go's `time.ParseDuration` reads, refuses negative lengths, and rounds up to a
    /// millisecond.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || TimeError::Duration { found: text.to_owned() };
        let mut rest = text.strip_prefix('+').unwrap_or(text);
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(wrong());
        }
        let mut nanos: u128 = 0;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
            let (number, tail) = rest.split_at(digits);
            let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
            let (unit, next) = tail.split_at(unit_end);
            let unit_nanos: u128 = match unit {
                "ns" => 1,
                "us" | "µs" | "μs" => 1_000,
                "ms" => 1_000_000,
                "s" => 1_000_000_000,
                "m" => 60_000_000_000,
                "h" => 3_600_000_000_000,
                _ => return Err(wrong()),
            };
            nanos = nanos.checked_add(scaled(number, unit_nanos).ok_or_else(wrong)?).ok_or_else(wrong)?;
            rest = next;
        }
        u64::try_from(nanos.div_ceil(1_000_000)).map(Self).map_err(|_| wrong())
    }
}

/// `number` (digits with at most one point) times `unit`, exact to the unit's last nanosecond.
fn scaled(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.chars() {
        place /= 10;
        total = total.checked_add(u128::from(digit.to_digit(10)?) * place)?;
    }
    Some(total)
}

serde_as_text!(Timestamp);
serde_as_text!(Duration);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_print_as_go_does() {
        #[track_caller]
        fn check(text: &str, millis: u64, printed: &str) {
            let length: Duration = text.parse().unwrap();
            assert_eq!((length.millis(), length.to_string().as_str()), (millis, printed), "{text}");
        }
        check("0", 0, "0s");
        check("10m", 600_000, "10m");
        check("1h30m", 5_400_000, "1h30m");
        check("1.5h", 5_400_000, "1h30m");
        check("1.5s", 1_500, "1.5s");
        check("250ms", 250, "250ms");
        check("1ns", 1, "1ms"); // a delay is never shortened by rounding
        check("90s", 90_000, "1m30s");
        check("+5s", 5_000, "5s");
    }

    #[test]
    fn what_is_not_a_duration_is_refused() {
        for text in ["", "5", "s", "-5s", "1d", "1..5s", ".s", "1s ", "99999999999999999999h", "１s"] {
            assert!(text.parse::<Duration>().is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn timestamps_are_rfc_3339_in_utc() {
        let time: Timestamp = "2025-10-17T12:30:00.5+02:00".parse().unwrap();
        assert_eq!(time.to_string(), "2025-10-17T10:30:00.5Z");
        assert!("yesterday".parse::<Timestamp>().is_err());
        assert!(!Timestamp::from_millis(i64::MAX).to_string().is_empty());
    }

    #[test]
    fn time_passed_is_never_negative() {
        let (early, late) = (Timestamp::from_millis(5), Timestamp::from_millis(12));
        assert_eq!(late.since(early), Duration::from_millis(7));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(
            Timestamp::from_millis(i64::MAX).since(Timestamp::from_millis(-1)).millis(),
            i64::MAX as u64
        );
    }
}
