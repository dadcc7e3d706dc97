//! `spec.autoscaling.schedules`: other bounds during windows of time.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{MAX_NODES, cron::Cron};
use crate::{
    Duration, Timestamp,
    field::{FieldError, Findings, GoDuration, Object},
};

/// Longest window: five weeks, so that a monthly one can last the month.
const MAX_WINDOW: Duration = Duration::from_hours(24 * 35);
/// Windows that follow each other without a gap and are joined when the end is looked for.
const MAX_JOINED: usize = 64;

/// A window that opens by cron, in the time of a place, and closes after a while or by cron.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Five cron fields: when the window opens.
    pub start: Cron,
    /// How long it stays open; or `end`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<GoDuration>,
    /// Five cron fields: when the window closes; or `duration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Cron>,
    /// An IANA name; UTC when it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_nodes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<u32>,
}

impl Schedule {
    /// The name, or the place in the list.
    pub fn label(&self, index: usize) -> String {
        self.name.clone().unwrap_or_else(|| format!("schedules[{index}]"))
    }

    /// `None` for a zone that was known when the schedule was stored and is no more: then no window opens.
    fn zone(&self) -> Option<jiff::tz::TimeZone> {
        jiff::tz::TimeZone::get(self.time_zone.as_deref().unwrap_or("UTC")).ok()
    }

    /// Whether the window is open at `now`. A window includes its first moment and not its last.
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.zone().and_then(|zone| self.closes(now, &zone)).is_some_and(|closes| now < closes)
    }

    /// When the window that opened last before `now` closes or closed.
    fn closes(&self, now: Timestamp, zone: &jiff::tz::TimeZone) -> Option<Timestamp> {
        let (shown, opened) = self.start.last_civil(now, zone)?;
        match (&self.duration, &self.end) {
            (Some(length), _) => Some(opened.saturating_add(length.get())),
            (None, Some(end)) => {
                // By the calendar: clocks that go forward may open and close it at one moment, in this order.
                Some(end.next_after_civil(shown, zone).unwrap_or(Timestamp::from_millis(i64::MAX)))
            }
            (None, None) => None,
        }
    }

    /// The next moment after `now` at which the window opens or closes; `None` when it never does again.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let zone = self.zone()?;
        let Some(mut closes) = self.closes(now, &zone).filter(|closes| now < *closes) else {
            return self.start.next_after(now, &zone);
        };
        let mut after = now;
        for _ in 0..MAX_JOINED {
            match self.start.next_after(after, &zone) {
                Some(opens) if opens <= closes => {
                    after = opens;
                    closes = self.closes(opens, &zone).unwrap_or(closes).max(closes);
                }
                _ => return (closes.millis() < i64::MAX).then_some(closes),
            }
        }
        Some(after) // open for a long time to come: look again then
    }

    pub(super) fn read(item: &Value, path: String, findings: &mut Findings) -> Option<Self> {
        let mut object = Object::read(item, path, findings)?;
        let o = &mut object;
        let name = o.text("name", 63, findings).map(str::to_owned);
        let start = read_cron(o, "start", findings);
        let duration = o.duration("duration", MAX_WINDOW, findings);
        let end = read_cron(o, "end", findings);
        let time_zone = read_zone(o, findings);
        let min_nodes = o.count("minNodes", 0..=MAX_NODES, findings);
        let max_nodes = o.count("maxNodes", 1..=MAX_NODES, findings);
        if o.get("start").is_none() {
            findings.push(
                FieldError::new(o.at("start"), "is required")
                    .allowed("five cron fields, like \"0 8 * * MON-FRI\""),
            );
        }
        match (o.get("duration"), o.get("end")) {
            (None, None) => findings.push(
                FieldError::new(o.at("duration"), "is required")
                    .hint("or give end: when the window closes, as cron"),
            ),
            (Some(_), Some(end)) => findings
                .push(FieldError::new(o.at("end"), "must be left out when duration is given").found(end)),
            _ => {}
        }
        if duration.as_ref().is_some_and(|length| length.get() < Duration::from_mins(1)) {
            findings.push(
                FieldError::new(o.at("duration"), "must be at least a minute")
                    .allowed(format!("1m to {MAX_WINDOW}")),
            );
        }
        if o.get("minNodes").is_none() && o.get("maxNodes").is_none() {
            findings.push(
                FieldError::new(o.at("minNodes"), "is required")
                    .hint("a schedule sets minNodes, maxNodes or both"),
            );
        }
        object.finish(findings);
        Some(Self { name, start: start?, duration, end, time_zone, min_nodes, max_nodes })
    }
}

fn read_cron(o: &mut Object<'_>, name: &'static str, findings: &mut Findings) -> Option<Cron> {
    let text = o.text(name, 200, findings)?;
    match Cron::parse(text) {
        Ok(cron) => Some(cron),
        Err(error) => {
            findings.push(
                FieldError::new(o.at(name), error.to_string())
                    .found_text(text)
                    .allowed("minute hour day-of-month month day-of-week, like \"0 8 * * MON-FRI\""),
            );
            None
        }
    }
}

fn read_zone(o: &mut Object<'_>, findings: &mut Findings) -> Option<String> {
    let name = o.text("timeZone", 100, findings)?;
    if jiff::tz::TimeZone::get(name).is_ok() {
        return Some(name.to_owned());
    }
    let known: Vec<String> = jiff::tz::db().available().map(|zone| zone.to_string()).collect();
    let mut error = FieldError::new(o.at("timeZone"), "is not a time zone")
        .found_text(name)
        .allowed("an IANA name like Europe/Berlin");
    if let Some(near) = crate::suggest::nearest(name, known.iter().map(String::as_str)) {
        error = error.hint(format!("did you mean {near}?"));
    }
    findings.push(error);
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn schedule(value: Value) -> Schedule {
        let mut findings = Findings::new();
        let mut value = value;
        value["minNodes"] = json!(1);
        let schedule = Schedule::read(&value, "s".to_owned(), &mut findings);
        findings.result_of(schedule).unwrap().value
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[track_caller]
    fn check(schedule: &Schedule, now: &str, active: bool, next: &str) {
        assert_eq!(schedule.is_active(time(now)), active, "{now}");
        assert_eq!(schedule.next_change(time(now)).map(|at| at.to_string()).as_deref(), Some(next), "{now}");
    }

    #[test]
    fn a_window_opens_and_closes() {
        let day =
            schedule(json!({"start": "0 8 * * MON-FRI", "duration": "10h", "timeZone": "Europe/Berlin"}));
        // 2025-10-17 is a Friday, in summer time.
        check(&day, "2025-10-17T05:59:59Z", false, "2025-10-17T06:00:00Z");
        check(&day, "2025-10-17T06:00:00Z", true, "2025-10-17T16:00:00Z");
        check(&day, "2025-10-17T15:59:59Z", true, "2025-10-17T16:00:00Z");
        check(&day, "2025-10-17T16:00:00Z", false, "2025-10-20T06:00:00Z");
        check(&day, "2025-10-25T12:00:00Z", false, "2025-10-27T07:00:00Z"); // winter time by then
    }

    #[test]
    fn a_window_may_close_by_cron() {
        let night =
            schedule(json!({"start": "0 22 * * *", "end": "0 6 * * *", "timeZone": "America/New_York"}));
        check(&night, "2025-07-01T01:59:00Z", false, "2025-07-01T02:00:00Z");
        check(&night, "2025-07-01T02:00:00Z", true, "2025-07-01T10:00:00Z");
        // The night in which clocks go forward is an hour shorter.
        check(&night, "2025-03-09T04:00:00Z", true, "2025-03-09T10:00:00Z");
        check(&night, "2025-03-09T10:00:00Z", false, "2025-03-10T02:00:00Z");
    }

    /// A window that lies in the hour that clocks leave out does not open; one that ends there the next day does.
    #[test]
    fn a_window_in_the_hour_that_is_left_out_is_empty() {
        let berlin = |start: &str, end: &str| {
            schedule(json!({"start": start, "end": end, "timeZone": "Europe/Berlin"}))
        };
        let hour = berlin("0 2 * * *", "0 3 * * *");
        check(&hour, "2025-03-29T01:30:00Z", true, "2025-03-29T02:00:00Z");
        check(&hour, "2025-03-30T01:00:00Z", false, "2025-03-31T00:00:00Z"); // 2:00 and 3:00 are one moment
        check(&hour, "2025-03-31T00:30:00Z", true, "2025-03-31T01:00:00Z");
        check(&hour, "2025-10-26T00:30:00Z", true, "2025-10-26T02:00:00Z"); // twice two o'clock
        let inside = berlin("15 2 * * *", "45 2 * * *");
        check(&inside, "2025-03-30T01:00:00Z", false, "2025-03-31T00:15:00Z");
        let over = berlin("30 2 * * *", "15 2 * * *");
        check(&over, "2025-03-30T12:00:00Z", true, "2025-03-31T00:15:00Z");
        let later = berlin("30 2 * * *", "30 3 * * *");
        check(&later, "2025-03-30T01:15:00Z", true, "2025-03-30T01:30:00Z");
    }

    #[test]
    fn windows_that_touch_are_one() {
        let days = schedule(json!({"start": "0 0 * * SAT,SUN", "duration": "24h"}));
        check(&days, "2025-10-18T12:00:00Z", true, "2025-10-20T00:00:00Z");
        let always = schedule(json!({"start": "@hourly", "duration": "1h"}));
        assert!(always.is_active(time("2025-10-18T12:34:00Z")));
        assert!(always.next_change(time("2025-10-18T12:34:00Z")).is_some());
    }

    #[test]
    fn a_zone_that_is_gone_opens_no_window() {
        let lost: Schedule =
            serde_json::from_value(json!({"start": "* * * * *", "duration": "1h", "timeZone": "Mars/Base"}))
                .unwrap();
        assert!(!lost.is_active(time("2025-10-18T12:00:00Z")));
        assert_eq!(lost.next_change(time("2025-10-18T12:00:00Z")), None);
    }

    proptest! {
        #[test]
        fn nothing_changes_before_the_next_change(
            seconds in 1_700_000_000_i64..1_800_000_000,
            (hour, weekday, length) in (0..24, 0..7, 1..160_u32),
            zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
        ) {
            let start = format!("30 {hour} * * {weekday}");
            let window = schedule(json!({"start": start, "duration": format!("{length}h"), "timeZone": zone}));
            let now = Timestamp::from_millis(seconds * 1000);
            let next = window.next_change(now).unwrap();
            prop_assert!(next > now);
            let before = Timestamp::from_millis(next.millis() - 1);
            prop_assert_eq!(window.is_active(before), window.is_active(now));
            prop_assert_ne!(window.is_active(next), window.is_active(now));
        }
    }
}
