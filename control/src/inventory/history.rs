//! The story of a host: what its loop recorded, and what people and tools changed.

use muster_model::{
    Timestamp,
    host::{
        BootReport, EventRing,
        keys::{self, HostRecord},
    },
    store::{Committed, Expect, Txn},
};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{
    Inventory, InventoryError, encode,
    events::{InventoryEvent, MAX_EVENTS},
    keys as own,
};

/// One thing that happened to a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HistoryEntry {
    pub at: Timestamp,
    /// `lifecycle` for what the host loop did, `inventory` for changes of its record.
    pub source: &'static str,
    pub by: String,
    /// The rule of the transition table, or the verb.
    pub what: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    pub count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Until when the phase that begins here may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

impl Inventory {
    /// Everything that is remembered about a host, oldest first. Changes outlive the host itself; those that were made while
    /// the name was another project's are shown to `visible` projects alone.
    pub async fn history(
        &self,
        name: &str,
        visible: impl Fn(Option<&str>) -> bool,
    ) -> Result<Vec<HistoryEntry>, InventoryError> {
        let key = keys::host(name, HostRecord::Events);
        let entry = self.shared.store.get(&key).await?;
        let ring: EventRing = match entry {
            Some(entry) => serde_json::from_slice(&entry.value)
                .map_err(|source| InventoryError::Damaged { key, source })?,
            None => EventRing::default(),
        };
        let mut story: Vec<HistoryEntry> = ring
            .events
            .into_iter()
            .map(|event| HistoryEntry {
                at: event.last_at.unwrap_or(event.at),
                source: "lifecycle",
                by: "muster".to_owned(),
                what: event.rule,
                message: event.message,
                from: Some(event.from.to_string()),
                to: Some(event.to.to_string()),
                count: event.count,
                operation: event.operation,
                deadline: event.deadline,
            })
            .collect();
        let mut changes = self.changes(name).await?.changes;
        changes.retain(|change| visible(change.project.as_deref()));
        story.extend(changes.into_iter().map(|change| HistoryEntry {
            at: change.at,
            source: "inventory",
            by: change.by,
            what: change.verb,
            message: change.message,
            from: None,
            to: None,
            count: 1,
            operation: None,
            deadline: None,
        }));
        story.sort_by_key(|entry| entry.at);
        Ok(story)
    }

    /// What the inventory noticed or did by itself, oldest first.
    pub async fn events(&self) -> Result<Vec<InventoryEvent>, InventoryError> {
        let entry = self.shared.store.get(own::EVENTS).await?;
        Ok(entry.and_then(|entry| serde_json::from_slice(&entry.value).ok()).unwrap_or_default())
    }

    /// Adds an event. The same event at the end of the list is not repeated.
    pub(super) async fn tell(&self, event: InventoryEvent) -> Result<(), InventoryError> {
        for _ in 0..super::change::MAX_TRIES {
            let entry = self.shared.store.get(own::EVENTS).await?;
            let mut events: Vec<InventoryEvent> = entry
                .as_ref()
                .and_then(|entry| serde_json::from_slice(&entry.value).ok())
                .unwrap_or_default();
            let same = |known: &InventoryEvent| {
                (&known.object, &known.reason, &known.message)
                    == (&event.object, &event.reason, &event.message)
            };
            if events.iter().rev().find(|known| known.object == event.object).is_some_and(same) {
                return Ok(());
            }
            events.push(event.clone());
            let surplus = events.len().saturating_sub(MAX_EVENTS);
            events.drain(..surplus);
            let expect = entry.map_or(Expect::Absent, |entry| Expect::Modified(entry.modified));
            let txn = Txn::new().expect(own::EVENTS, expect).put(own::EVENTS, encode(&events));
            if let Committed::Done { .. } = self.shared.store.commit(txn).await? {
                let InventoryEvent { reason, object, message, .. } = &event;
                tracing::warn!(object, reason, message, "the inventory acted on a foreign write");
                return Ok(());
            }
        }
        Err(InventoryError::Busy)
    }

    /// Notes how far a host's boot has come.
    pub async fn report_boot(&self, name: &str, report: &BootReport) -> Result<(), InventoryError> {
        if self.host(name).is_none() {
            return Err(InventoryError::NotFound { kind: "BareMetalNode" });
        }
        let txn = Txn::new()
            .expect(keys::host(name, HostRecord::Spec), Expect::Present)
            .put(keys::boot_progress(name), encode(report));
        match self.shared.store.commit(txn).await? {
            Committed::Done { .. } => Ok(()),
            Committed::Refused { .. } => Err(InventoryError::NotFound { kind: "BareMetalNode" }),
        }
    }

    /// The last report on a host's boot.
    pub async fn boot_report(&self, name: &str) -> Result<Option<BootReport>, InventoryError> {
        let key = keys::boot_progress(name);
        let entry = self.shared.store.get(&key).await?;
        entry
            .map(|entry| serde_json::from_slice(&entry.value))
            .transpose()
            .map_err(|source| InventoryError::Damaged { key, source })
    }

    /// Makes `token` the one that reports on this host's boot; only its digest is stored.
    pub async fn set_boot_token(&self, name: &str, token: &str) -> Result<(), InventoryError> {
        let txn = Txn::new()
            .expect(keys::host(name, HostRecord::Spec), Expect::Present)
            .put(own::boot_token(name), encode(&token_digest(name, token)));
        match self.shared.store.commit(txn).await? {
            Committed::Done { .. } => Ok(()),
            Committed::Refused { .. } => Err(InventoryError::NotFound { kind: "BareMetalNode" }),
        }
    }

    /// Whether `token` is the one of this host.
    pub async fn is_boot_token(&self, name: &str, token: &str) -> Result<bool, InventoryError> {
        let Some(entry) = self.shared.store.get(&own::boot_token(name)).await? else { return Ok(false) };
        // Digests are compared, so that the time it takes says nothing about the token.
        Ok(serde_json::from_slice::<String>(&entry.value)
            .is_ok_and(|known| known == token_digest(name, token)))
    }
}

fn token_digest(name: &str, token: &str) -> String {
    hex::encode(Sha256::digest(format!("{name}\n{token}").as_bytes()))
}
