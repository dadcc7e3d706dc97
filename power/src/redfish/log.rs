//! The end of a machine's event log.
//!
//! A BMC has several logs, sorts them as it likes, and pages them or not. What is read is bounded, and what cannot be
//! read is left out: a log is evidence for people, and nothing is decided by it.

use std::{cmp::Reverse, collections::VecDeque};

use muster_model::{
    Duration, Timestamp,
    power::{DriverKind, Expected, Fault, Health, LogEntry, shown},
};
use serde_json::Value;

use super::conversation::{Conversation, follow, link, links};

/// How long one answer may take. Whoever waits for a log wants to switch the machine next.
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// After so long nothing more is asked for: two slow answers.
const ENOUGH: Duration = Duration::from_secs(10);
/// Log services that are looked at; the most that were seen on one machine are seven.
const MAX_SERVICES: usize = 8;
/// Managers of one machine: its BMC, and perhaps that of its enclosure.
const MAX_MANAGERS: usize = 2;
/// Pages that are read: with jumps two are enough, and without them this is some hundred entries.
const MAX_PAGES: usize = 4;
/// Most entries that are given out.
const MAX_ENTRIES: usize = 20;
/// Longest text that may be a time.
const MAX_TIME: usize = 40;
/// Times before 1987 count from the start of a BMC that has not set its clock, as in IPMI.
const CLOCK_NOT_SET: Timestamp = Timestamp::from_millis(0x2000_0000 * 1000);

impl Conversation<'_> {
    pub(super) async fn log_tail(
        &mut self,
        path: &str,
        expect: &Expected,
        most: usize,
    ) -> Result<Vec<LogEntry>, Fault> {
        let most = most.min(MAX_ENTRIES);
        let until = self.setup.clock.monotonic().saturating_add(ENOUGH);
        let (system, _) = self.system(path, expect).await?;
        let mut place = self.event_log(&system, until).await?;
        for manager in links(&system, "/Links/ManagedBy")?.into_iter().take(MAX_MANAGERS) {
            if place.is_none()
                && let Some(manager) = self.get_if_there(&manager, "the manager").await?
            {
                place = self.event_log(&manager, until).await?;
            }
        }
        let place =
            place.ok_or_else(|| Fault::unsupported("a read of its event log", DriverKind::Redfish))?;
        let pages = self.log_pages(place, most, until).await?;
        Ok(newest(self.log_entries(pages, until).await?, most))
    }

    /// Where the entries of the owner's event log are.
    async fn event_log(&mut self, owner: &Value, until: Duration) -> Result<Option<String>, Fault> {
        let Some(services) = link(owner, "/LogServices")? else { return Ok(None) };
        let Some(services) = self.get_if_there(&services, "its logs").await? else { return Ok(None) };
        let mut best: Option<(u8, String)> = None;
        for service in links(&services, "/Members")?.into_iter().take(MAX_SERVICES) {
            if self.setup.clock.monotonic() >= until {
                return Err(Fault::Silent { limit: ENOUGH });
            }
            let Some(service) = self.get_if_there(&service, "a log").await? else { continue };
            if let (Some(rank), Some(entries)) = (rank(&service), link(&service, "/Entries")?)
                && best.as_ref().is_none_or(|(other, _)| rank < *other)
            {
                best = Some((rank, entries));
            }
        }
        Ok(best.map(|(_, entries)| entries))
    }

    /// What the log lists, or at least what it lists at its two ends.
    async fn log_pages(&mut self, place: String, most: usize, until: Duration) -> Result<Pages, Fault> {
        let (mut pages, mut next) = (Pages::default(), Some(place));
        for number in 0..MAX_PAGES {
            let Some(place) = next.take() else { break };
            let page = match self.get(&place, "its event log").await {
                Ok((page, _)) => page,
                Err(fault) if number == 0 => return Err(fault),
                Err(_) => break,
            };
            if self.setup.clock.monotonic() < until {
                next = next_page(&page, most)?;
            }
            pages.take(&page, most);
        }
        Ok(pages)
    }

    /// The entries themselves. Where the log is a list of links, those at its two ends are followed.
    async fn log_entries(&mut self, pages: Pages, until: Duration) -> Result<Vec<Numbered>, Fault> {
        let Pages { mut entries, first, last } = pages;
        for path in first.iter().chain(&last) {
            if self.setup.clock.monotonic() >= until {
                break;
            }
            match self.get_if_there(&follow(path)?, "an entry of its event log").await {
                Ok(entry) => entries.extend(entry.as_ref().and_then(numbered)),
                Err(fault) if entries.is_empty() => return Err(fault),
                Err(_) => break,
            }
        }
        Ok(entries)
    }
}

/// What is kept of the pages of a log: a page is large, and there are several.
#[derive(Debug, Default)]
struct Pages {
    entries: Vec<Numbered>,
    /// Links to entries, from the two ends of the list.
    first: Vec<String>,
    last: VecDeque<String>,
}

impl Pages {
    fn take(&mut self, page: &Value, most: usize) {
        for member in page.get("Members").and_then(Value::as_array).into_iter().flatten() {
            if member.get("Created").is_some() || member.get("Message").is_some() {
                self.entries.extend(numbered(member));
            } else if let Some(path) = member.get("@odata.id").and_then(Value::as_str) {
                self.link(path, most);
            }
        }
        keep_newest(&mut self.entries, most);
    }

    fn link(&mut self, path: &str, most: usize) {
        if self.first.len() < most {
            self.first.push(path.to_owned());
            return;
        }
        self.last.push_back(path.to_owned());
        if self.last.len() > most {
            self.last.pop_front();
        }
    }
}

/// An entry with its number in the log, which orders what has no time.
#[derive(Debug)]
struct Numbered {
    number: Option<u64>,
    entry: LogEntry,
}

/// Logs are sorted either way, or not at all. What has no time comes last.
fn newest(mut entries: Vec<Numbered>, most: usize) -> Vec<LogEntry> {
    keep_newest(&mut entries, most);
    entries.into_iter().map(|one| one.entry).collect()
}

fn keep_newest(entries: &mut Vec<Numbered>, most: usize) {
    entries.sort_by_key(|one| Reverse((one.entry.at, one.number)));
    entries.truncate(most);
}

/// How well a service fits, 0 the best; `None` for one that is off or about something else.
fn rank(service: &Value) -> Option<u8> {
    const OTHERS: [&str; 5] = ["audit", "security", "dump", "postcode", "post code"];
    let text = |field: &str| service.get(field).and_then(Value::as_str).unwrap_or_default().to_lowercase();
    let state = service.pointer("/Status/State").and_then(Value::as_str);
    let off = service.get("ServiceEnabled") == Some(&Value::Bool(false))
        || matches!(state, Some("Disabled" | "Absent"));
    let (id, name) = (text("Id"), text("Name"));
    if off || OTHERS.iter().any(|other| id.contains(other) || name.contains(other)) {
        return None;
    }
    match text("LogEntryType").as_str() {
        "sel" => Some(0),
        "event" => Some(1),
        "multiple" => Some(2),
        "" => Some(3), // old firmware does not say
        _ => None,
    }
}

/// The page to read after this one. A BMC whose own link counts with `$skip` can be asked for the end of its log; what
/// others make of that is not known, so their pages are taken in turn.
fn next_page(page: &Value, most: usize) -> Result<Option<String>, Fault> {
    let Some(next) = page.get("Members@odata.nextLink").and_then(Value::as_str) else { return Ok(None) };
    let next = follow(next)?;
    let count = page.get("Members@odata.count").and_then(Value::as_u64);
    let (Some((before, skipped)), Some(count)) = (next.split_once("skip="), count) else {
        return Ok(Some(next));
    };
    let digits = skipped.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = skipped.split_at(digits);
    let Ok(number) = number.parse::<u64>() else { return Ok(Some(next)) };
    let end = count.saturating_sub(u64::try_from(most).unwrap_or(u64::MAX));
    follow(&format!("{before}skip={}{rest}", number.max(end))).map(Some)
}

fn numbered(entry: &Value) -> Option<Numbered> {
    let entry = entry.as_object()?;
    let text = |field: &str| {
        entry.get(field).and_then(Value::as_str).map(str::trim).filter(|found| !found.is_empty())
    };
    let message = ["Message", "MessageId", "Description", "Name"].into_iter().find_map(text);
    let severity = match text("Severity") {
        Some("OK") => Health::Ok,
        Some("Warning") => Health::Warning,
        Some("Critical") => Health::Critical,
        _ => Health::NotReported,
    };
    Some(Numbered {
        number: text("Id").and_then(|id| id.parse().ok()),
        entry: LogEntry {
            at: text("Created").and_then(time),
            severity,
            message: shown(message.unwrap_or("(no text)")).to_string(),
        },
    })
}

/// A time by a clock that was set. Some firmware leaves the zone out and means UTC.
fn time(text: &str) -> Option<Timestamp> {
    let text = Some(text).filter(|text| text.len() <= MAX_TIME)?;
    let at: Timestamp = text.parse().or_else(|_| format!("{text}Z").parse()).ok()?;
    (at > CLOCK_NOT_SET).then_some(at)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_log_of_events_is_told_from_the_others() {
        #[track_caller]
        fn check(service: Value, expected: Option<u8>) {
            assert_eq!(rank(&service), expected, "{service}");
        }
        check(json!({"Id": "Sel", "LogEntryType": "SEL", "ServiceEnabled": true}), Some(0));
        check(json!({"Id": "EventLog", "LogEntryType": "Event"}), Some(1));
        check(json!({"Id": "Log1", "LogEntryType": "Multiple"}), Some(2));
        check(json!({"Id": "IML", "Name": "Integrated Management Log"}), Some(3));
        check(json!({"Id": "Sel", "LogEntryType": "SEL", "ServiceEnabled": false}), None);
        check(json!({"Id": "Sel", "LogEntryType": "SEL", "Status": {"State": "Disabled"}}), None);
        check(json!({"Id": "AuditLog", "LogEntryType": "Event"}), None);
        check(json!({"Id": "SL", "Name": "Security Log"}), None);
        check(json!({"Id": "PostCodes", "LogEntryType": "Multiple"}), None);
        check(json!({"Id": "CXL", "LogEntryType": "CXL"}), None);
        check(json!([]), Some(3)); // it has no entries either
    }

    #[test]
    fn an_entry_keeps_what_it_has() {
        #[track_caller]
        fn check(entry: Value, expected: &str) {
            assert_eq!(numbered(&entry).unwrap().entry.to_string(), expected, "{entry}");
        }
        let full =
            json!({"Created": "2026-02-03T04:05:06+01:00", "Severity": "Critical", "Message": "a\u{7}b"});
        check(full, "2026-02-03T03:05:06Z critical: a\\u{7}b");
        check(json!({"Created": "2026-02-03T04:05:06", "Message": "x"}), "2026-02-03T04:05:06Z x");
        check(json!({"Created": "1970-01-01T00:10:00Z", "Message": "x"}), "(no time) x");
        check(json!({"Created": 7, "Severity": [], "Message": null, "MessageId": "M.1"}), "(no time) M.1");
        check(json!({"Created": "soon", "Message": "  "}), "(no time) (no text)");
        let long = json!({"Created": "9".repeat(5_000), "Message": "y".repeat(5_000)});
        let found = numbered(&long).unwrap().entry;
        assert!(found.at.is_none() && found.message.chars().count() <= 201, "{found}");
        assert!(numbered(&json!("text")).is_none());
    }

    #[test]
    fn time_orders_before_numbers_do() {
        let entry = |id: &str, second: Option<u32>| {
            let at = second.map(|second| format!("2026-01-01T00:00:{second:02}Z"));
            numbered(&json!({"Id": id, "Created": at, "Message": id})).unwrap()
        };
        let all = vec![
            entry("7", None),
            entry("1", Some(30)),
            entry("x", Some(40)),
            entry("3", Some(20)),
            entry("8", None),
            entry("2", Some(30)),
        ];
        let order: Vec<String> = newest(all, 5).into_iter().map(|one| one.message).collect();
        assert_eq!(order, ["x", "2", "1", "3", "8"]);
    }

    #[test]
    fn of_a_page_only_its_ends_and_its_newest_stay() {
        let inline = |number: u32| json!({"Id": number.to_string(), "Message": number.to_string()});
        let linked = |number: u32| json!({"@odata.id": format!("/log/{number}")});
        let mut pages = Pages::default();
        for start in [0, 1_000, 2_000] {
            let members: Vec<Value> =
                (start..start + 1_000).flat_map(|one| [inline(one), linked(one)]).collect();
            pages.take(&json!({ "Members": members }), 2);
            assert_eq!((pages.entries.len(), pages.first.len(), pages.last.len()), (2, 2, 2));
        }
        assert_eq!(pages.first, ["/log/0", "/log/1"]);
        assert_eq!(pages.last, ["/log/2998", "/log/2999"]);
        let newest: Vec<String> = newest(pages.entries, 2).into_iter().map(|one| one.message).collect();
        assert_eq!(newest, ["2999", "2998"]);
    }

    #[test]
    fn only_a_bmc_that_counts_by_itself_is_asked_for_the_end() {
        #[track_caller]
        fn check(next: &str, count: Value, expected: Option<&str>) {
            let page = json!({"Members@odata.nextLink": next, "Members@odata.count": count});
            assert_eq!(next_page(&page, 5).ok().flatten().as_deref(), expected, "{page}");
        }
        check("/log?$skip=50", json!(900), Some("/log?$skip=895"));
        check("/log?$skip=50&$top=50", json!(900), Some("/log?$skip=895&$top=50"));
        check("/log?$skip=50", json!(52), Some("/log?$skip=50"));
        check("/log?$skip=50", json!(3), Some("/log?$skip=50"));
        check("/log?$skip=50", json!("many"), Some("/log?$skip=50"));
        check("/log?$skip=", json!(900), Some("/log?$skip="));
        check("/log?page=2", json!(900), Some("/log?page=2"));
        check("http://elsewhere/log?$skip=50", json!(900), None);
        assert_eq!(next_page(&json!({}), 5).unwrap(), None);
    }
}
