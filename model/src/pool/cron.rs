//! Times that repeat, in cron's five fields, evaluated in the civil time of a zone.
//!
//! When clocks go forward, a time that does not exist is taken as the first moment after the gap. When they
//! go back, a time that occurs twice is taken once, at its first occurrence. So the order of civil times is
//! kept, and every window opens once.

use std::fmt;

use jiff::{
    civil::{Date, DateTime, Time},
    tz::{AmbiguousOffset, TimeZone},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use crate::Timestamp;

/// The longest wait between two days that any cron line can name: 29 February across a century year.
const MAX_DAYS: usize = 366 * 8 + 3;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CronError {
    #[error("has {found} fields and needs 5")]
    Fields { found: usize },
    #[error(
        "has the {field} {found:?}, which is not valid; allowed: {low} to {high}, lists, ranges, steps and *"
    )]
    Field { field: &'static str, found: String, low: u8, high: u8 },
    #[error("never happens: no month has such a day")]
    Never,
}

/// A line of five fields, kept with its text.
#[derive(Clone)]
pub struct Cron {
    text: String,
    minutes: u64,
    hours: u32,
    days: u32,
    months: u16,
    weekdays: u8,
    /// Day of month and day of week are both given: either is enough, as in every cron.
    either_day: bool,
}

impl Cron {
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let line = match text.trim() {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            line => line,
        };
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(CronError::Fields { found: fields.len() });
        };
        let minutes = mask(minute, &Field { name: "minute", low: 0, high: 59, words: &[] })?;
        let hours = mask(hour, &Field { name: "hour", low: 0, high: 23, words: &[] })?;
        let days = mask(day, &Field { name: "day of month", low: 1, high: 31, words: &[] })?;
        let months = mask(month, &Field { name: "month", low: 1, high: 12, words: &MONTHS })?;
        let weekdays = mask(weekday, &Field { name: "day of week", low: 0, high: 7, words: &WEEKDAYS })?;
        let open = |field: &str| field.starts_with(['*', '?']);
        let cron = Self {
            text: text.to_owned(),
            minutes,
            hours: narrow(hours),
            days: narrow(days),
            months: narrow(months),
            weekdays: narrow((weekdays | weekdays >> 7) & 0x7f), // 7 is Sunday too
            either_day: !open(day) && !open(weekday),
        };
        let far = Date::constant(2000, 1, 1);
        cron.next_date(far, MAX_DAYS).map(|_| cron).ok_or(CronError::Never)
    }

    /// The first time after `now`.
    pub fn next_after(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        // A day early, because a gap moves times forward and never by a whole day but for zones that
        // crossed the date line.
        let mut date = civil(now, zone)?.date().yesterday().ok()?.yesterday().ok()?;
        for _ in 0..8 {
            date = self.next_date(date, MAX_DAYS)?;
            let found = self
                .times()
                .map(|time| instant(DateTime::from_parts(date, time), zone))
                .find_map(|at| at.filter(|at| *at > now));
            if found.is_some() {
                return found;
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// The first time that a calendar shows after `time`. Of two that a gap moves to one moment, one comes after the other.
    pub fn next_after_civil(&self, time: DateTime, zone: &TimeZone) -> Option<Timestamp> {
        let date = self.next_date(time.date(), MAX_DAYS)?;
        let at = |date: Date| self.times().map(move |clock| DateTime::from_parts(date, clock));
        let found = at(date).find(|at| *at > time);
        let found = found.or_else(|| at(self.next_date(date.tomorrow().ok()?, MAX_DAYS)?).next())?;
        instant(found, zone)
    }

    /// The last time at or before `now`.
    pub fn last_at_or_before(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        self.last_civil(now, zone).map(|(_, at)| at)
    }

    /// The last time at or before `now`, as a calendar shows it and as the moment that it stands for.
    pub fn last_civil(&self, now: Timestamp, zone: &TimeZone) -> Option<(DateTime, Timestamp)> {
        let mut date = civil(now, zone)?.date().tomorrow().ok()?;
        for _ in 0..8 {
            date = self.last_date(date, MAX_DAYS)?;
            let found = self
                .times()
                .rev()
                .map(|time| DateTime::from_parts(date, time))
                .find_map(|time| Some((time, instant(time, zone).filter(|at| *at <= now)?)));
            if found.is_some() {
                return found;
            }
            date = date.yesterday().ok()?;
        }
        None
    }

    fn matches_date(&self, date: Date) -> bool {
        let bit = |mask: u32, index: i8| mask >> index & 1 == 1;
        let day = bit(self.days, date.day());
        let weekday = bit(u32::from(self.weekdays), date.weekday().to_sunday_zero_offset());
        bit(u32::from(self.months), date.month())
            && if self.either_day { day || weekday } else { day && weekday }
    }

    fn next_date(&self, from: Date, limit: usize) -> Option<Date> {
        std::iter::successors(Some(from), |date| date.tomorrow().ok())
            .take(limit)
            .find(|d| self.matches_date(*d))
    }

    fn last_date(&self, from: Date, limit: usize) -> Option<Date> {
        std::iter::successors(Some(from), |date| date.yesterday().ok())
            .take(limit)
            .find(|d| self.matches_date(*d))
    }

    /// The times of a day, in order.
    fn times(&self) -> impl DoubleEndedIterator<Item = Time> + '_ {
        (0..24_i8).filter(|hour| self.hours >> hour & 1 == 1).flat_map(move |hour| {
            let minutes = (0..60_i8).filter(move |minute| self.minutes >> minute & 1 == 1);
            minutes.map(move |minute| Time::constant(hour, minute, 0, 0))
        })
    }
}

fn civil(now: Timestamp, zone: &TimeZone) -> Option<DateTime> {
    jiff::Timestamp::from_millisecond(now.millis()).ok().map(|at| zone.to_datetime(at))
}

/// The moment that a civil time stands for; see the module for gaps and repeats.
fn instant(time: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(time);
    let at = match ambiguous.offset() {
        AmbiguousOffset::Gap { after, .. } => {
            // Read with the later offset, the time lies before the change; the change is the next one.
            let before = after.to_timestamp(time).ok()?;
            zone.following(before).next().map(|change| change.timestamp())?
        }
        _ => ambiguous.earlier().ok()?,
    };
    Some(Timestamp::from_millis(at.as_millisecond()))
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

struct Field {
    name: &'static str,
    low: u8,
    high: u8,
    /// Words for values, the first one for `low`.
    words: &'static [&'static str],
}

/// The values that a field names, as bits.
fn mask(text: &str, field: &Field) -> Result<u64, CronError> {
    let wrong =
        || CronError::Field { field: field.name, found: text.to_owned(), low: field.low, high: field.high };
    let number = |word: &str| -> Option<u8> {
        let plain = !word.is_empty() && word.len() <= 2 && word.bytes().all(|b| b.is_ascii_digit());
        if plain {
            return word.parse().ok().filter(|number| (field.low..=field.high).contains(number));
        }
        let index = field.words.iter().position(|known| known.eq_ignore_ascii_case(word))?;
        u8::try_from(index).ok().map(|index| index + field.low)
    };
    let mut bits = 0_u64;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            None => (part, None),
            Some((range, step)) => {
                let digits = step.len() <= 3 && step.bytes().all(|b| b.is_ascii_digit());
                let step = step.parse::<usize>().ok().filter(|step| digits && *step > 0).ok_or_else(wrong)?;
                (range, Some(step))
            }
        };
        let (first, last) = if matches!(range, "*" | "?") {
            // 7 is another word for Sunday, not an eighth day that a step could land on.
            (field.low, if field.name == "day of week" { 6 } else { field.high })
        } else if let Some((first, last)) = range.split_once('-') {
            (number(first).ok_or_else(wrong)?, number(last).ok_or_else(wrong)?)
        } else {
            let first = number(range).ok_or_else(wrong)?;
            (first, if step.is_some() { field.high } else { first })
        };
        if first > last {
            return Err(wrong());
        }
        for value in (first..=last).step_by(step.unwrap_or(1)) {
            bits |= 1 << value;
        }
    }
    Ok(bits)
}

/// The low bits of a mask; the ranges of the fields leave the others empty.
fn narrow<T: TryFrom<u64>>(bits: u64) -> T {
    T::try_from(bits).unwrap_or_else(|_| unreachable!("a field sets no bit above its highest value"))
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Cron {}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({:?})", self.text)
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Cron {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Cron {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(|error| de::Error::custom(format!("the schedule {text:?} {error}")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn zone(name: &str) -> TimeZone {
        TimeZone::get(name).unwrap()
    }

    #[track_caller]
    fn check(line: &str, place: &str, after: &str, next: &[&str]) {
        let (cron, zone) = (Cron::parse(line).unwrap(), zone(place));
        let mut now: Timestamp = after.parse().unwrap();
        for expected in next {
            now = cron.next_after(now, &zone).unwrap();
            assert_eq!(now.to_string(), *expected, "{line} in {place}");
            assert_eq!(cron.last_at_or_before(now, &zone), Some(now));
        }
    }

    #[test]
    fn lines_name_times() {
        let utc = "UTC";
        check(
            "0 8 * * MON-FRI",
            utc,
            "2025-10-17T08:00:00Z",
            &["2025-10-20T08:00:00Z", "2025-10-21T08:00:00Z"],
        );
        check(
            "*/20 23 * * *",
            utc,
            "2025-10-17T23:30:00Z",
            &["2025-10-17T23:40:00Z", "2025-10-18T23:00:00Z"],
        );
        check("5/25 * * * *", utc, "2025-10-17T23:31:00Z", &["2025-10-17T23:55:00Z", "2025-10-18T00:05:00Z"]);
        check("0 0 29 2 *", utc, "2096-03-01T00:00:00Z", &["2104-02-29T00:00:00Z"]); // 2100 has none
        check(
            "0 0 1,15 * sun",
            utc,
            "2025-11-01T00:00:00Z",
            &["2025-11-02T00:00:00Z", "2025-11-09T00:00:00Z", "2025-11-15T00:00:00Z"],
        );
        check("0 0 * * 7", utc, "2025-11-01T00:00:00Z", &["2025-11-02T00:00:00Z"]);
        check("0 0 * * 5-7", utc, "2025-11-01T00:00:00Z", &["2025-11-02T00:00:00Z", "2025-11-07T00:00:00Z"]);
        check("0 0 */10 * MON", utc, "2025-11-01T00:00:00Z", &["2025-12-01T00:00:00Z"]); // an open day field: both must hold
        check("@monthly", utc, "2025-11-01T00:00:00Z", &["2025-12-01T00:00:00Z"]);
        check("0 9 * jan-mar *", "Asia/Tokyo", "2025-11-01T00:00:00Z", &["2026-01-01T00:00:00Z"]);
    }

    #[test]
    fn clock_changes_neither_lose_nor_double_a_time() {
        // Forward: 02:30 does not exist and is taken at the change, 03:00 summer time.
        check(
            "30 2 * * *",
            "Europe/Berlin",
            "2025-03-29T12:00:00Z",
            &["2025-03-30T01:00:00Z", "2025-03-31T00:30:00Z"],
        );
        // Back: 02:30 happens twice and is taken once.
        check(
            "30 2 * * *",
            "Europe/Berlin",
            "2025-10-25T12:00:00Z",
            &["2025-10-26T00:30:00Z", "2025-10-27T01:30:00Z"],
        );
        // Half an hour on Lord Howe Island.
        check(
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2025-10-04T00:00:00Z",
            &["2025-10-04T15:30:00Z", "2025-10-05T15:15:00Z"],
        );
        // Samoa left out a whole day.
        check(
            "0 12 * * *",
            "Pacific/Apia",
            "2011-12-29T22:30:00Z",
            &["2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"],
        );
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for line in [
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * 32 * *",
            "* * * 13 *",
            "* * * * 8",
            "*/0 * * * *",
            "5-1 * * * *",
            "a * * * *",
            "1, * * * *",
            "-1 * * * *",
            "1-2-3 * * * *",
            "* * 30 2 *",
            "* * 31 4,6 *",
            "@reboot",
            "ü * * * *",
            "1/ * * * *",
        ] {
            assert!(Cron::parse(line).is_err(), "{line:?} was accepted");
        }
    }

    proptest! {
        #[test]
        fn next_and_last_agree_with_every_minute(
            minutes in 28_000_000_i64..30_000_000,
            line in ("(\\*|0|7|15,45|\\*/13)", "(\\*|0|2|1-3|\\*/5|23)", "(\\*|1|28-31)", "(\\*|2,3,10)", "(\\*|0|1-5)")
                .prop_map(|(a, b, c, d, e)| format!("{a} {b} {c} {d} {e}")),
            place in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"]),
        ) {
            let (cron, zone) = (Cron::parse(&line).unwrap(), zone(place));
            let now = Timestamp::from_millis(minutes * 60_000);
            let next = cron.next_after(now, &zone).unwrap();
            prop_assert!(next > now);
            prop_assert_eq!(cron.last_at_or_before(next, &zone), Some(next));
            // Nothing lies between: the last one before the next is not after now.
            let before = Timestamp::from_millis(next.millis() - 1);
            prop_assert!(cron.last_at_or_before(before, &zone).is_none_or(|last| last <= now));
            // Walking by minutes through civil time finds no earlier one, away from clock changes.
            for minute in 1..(next.since(now).millis() / 60_000).min(3000) {
                let at = Timestamp::from_millis(now.millis() + i64::try_from(minute).unwrap() * 60_000);
                let local = civil(at, &zone).unwrap();
                let named = cron.matches_date(local.date()) && cron.times().any(|time| time == local.time());
                prop_assert!(!named || instant(local, &zone) != Some(at), "{line} {place} {at}");
            }
        }
    }
}
