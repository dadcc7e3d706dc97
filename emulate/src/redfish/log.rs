//! The event log of a system, and the resources that show it.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use muster_model::Timestamp;
use serde_json::{Value, json};

use super::{
    Faults,
    resources::{collection, link, resource},
};

/// Entries that a log has room for; then the oldest go.
const ROOM: usize = 200;

/// What was written down, oldest first.
#[derive(Debug, Default)]
pub(super) struct Log(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    written: u64,
    kept: VecDeque<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    number: u64,
    at: Timestamp,
    severity: String,
    message: String,
}

impl Log {
    pub(super) fn add(&self, at: Timestamp, severity: &str, message: &str) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.written += 1;
        let number = entries.written;
        entries.kept.push_back(Entry { number, at, severity: severity.into(), message: message.into() });
        if entries.kept.len() > ROOM {
            entries.kept.pop_front();
        }
    }

    fn shown(&self, faults: &Faults) -> Vec<Entry> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Entry> = entries.kept.iter().cloned().collect();
        if faults.log_unsorted {
            all.sort_by_key(|entry| (entry.number % 3, entry.number));
        }
        all
    }

    /// Whatever lies under the `LogServices` of `owner`: that of events, and two that are none.
    pub(super) fn resource(
        &self,
        owner: &str,
        rest: &[&str],
        query: Option<&str>,
        faults: &Faults,
    ) -> Option<Value> {
        let path = format!("{owner}/LogServices");
        match rest {
            [] => {
                let members = ["Audit", "Old", "SEL"].map(|id| link(format!("{path}/{id}"))).to_vec();
                Some(collection(&path, "LogService", "Log Services", members))
            }
            ["Audit"] => Some(service(&path, "Audit", "Audit Log", "Event", true)),
            ["Old"] => Some(service(&path, "Old", "System Event Log", "SEL", false)),
            ["SEL"] => Some(service(&path, "SEL", "System Event Log", "SEL", true)),
            ["SEL", "Entries"] => Some(self.list(&format!("{path}/SEL/Entries"), query, faults)),
            ["SEL", "Entries", id] => {
                let shown = self.shown(faults);
                let found = shown.iter().find(|one| one.number.to_string() == *id)?;
                Some(found.resource(&format!("{path}/SEL/Entries"), faults))
            }
            // Who is asked for these has been taken for the wrong one.
            [service @ ("Audit" | "Old"), "Entries"] => {
                let entry =
                    json!({ "Id": "1", "Created": "2099-01-01T00:00:00Z", "Message": "not this log" });
                Some(collection(&format!("{path}/{service}/Entries"), "LogEntry", "Entries", vec![entry]))
            }
            _ => None,
        }
    }

    fn list(&self, path: &str, query: Option<&str>, faults: &Faults) -> Value {
        let all = self.shown(faults);
        let skip = query.and_then(|query| query.strip_prefix("$skip=")?.parse().ok()).unwrap_or(0);
        let size = if faults.log_page == 0 { usize::MAX } else { faults.log_page as usize };
        let members = all.iter().skip(skip).take(size).map(|entry| {
            let link = link(format!("{path}/{}", entry.number));
            if faults.log_links { link } else { entry.resource(path, faults) }
        });
        let mut list = collection(path, "LogEntry", "Entries", members.collect());
        list["Members@odata.count"] = json!(all.len());
        let next = skip.saturating_add(size);
        if next < all.len() {
            list["Members@odata.nextLink"] = json!(format!("{path}?$skip={next}"));
        }
        list
    }
}

impl Entry {
    fn resource(&self, list: &str, faults: &Faults) -> Value {
        let mut fields = json!({ "EntryType": "SEL", "Severity": self.severity, "Message": self.message });
        if !faults.log_without_time {
            fields["Created"] = json!(self.at.to_string());
        }
        resource(&format!("{list}/{}", self.number), "#LogEntry.v1_15_0.LogEntry", "Log Entry", fields)
    }
}

fn service(path: &str, id: &str, name: &str, kind: &str, enabled: bool) -> Value {
    let path = format!("{path}/{id}");
    let entries = link(format!("{path}/Entries"));
    let fields = json!({ "LogEntryType": kind, "ServiceEnabled": enabled, "Entries": entries });
    resource(&path, "#LogService.v1_5_0.LogService", name, fields)
}
