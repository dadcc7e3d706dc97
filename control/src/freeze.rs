//! Whether anything may act.
//!
//! Two things stop every action: people, with `muster freeze`, and a store that was restored from something
//! older than the world. The first stands in `/baremetal/global/config`, the second is the mark at
//! `/muster/restored`. Loops ask [`state`] before they act, and act only when [`Freeze::may_act`] says so.
//!
//! The mark of a restore goes away by itself once the world was observed again: when every controller whose
//! report was restored has reported since, and something was written about every restored host since. Both are
//! seen by revisions, not by clocks. A person who knows better lifts it with `muster unfreeze`.

use muster_model::{
    Timestamp,
    host::{FreezeMode, GlobalConfig, keys as hosts},
    restored::{RESTORED_KEY, Restored},
    store::{Committed, Entry, Expect, List, Revision, Store, StoreError, Txn},
};
use serde::Serialize;
use thiserror::Error;

use crate::registry::keys;

/// Compare-and-set tries of one change of the settings.
const MAX_TRIES: usize = 16;
/// What is still waited for is named up to this many; the count says how many there are.
pub const NAMED: usize = 20;

/// Whether anything may act, and why not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Freeze {
    pub mode: FreezeMode,
    /// One sentence; empty when nothing is frozen.
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The store was restored, and the world has not been observed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restored: Option<Restored>,
}

impl Freeze {
    /// Whether loops may carry decisions out. While everything is to be woken, only waking is an action.
    pub fn may_act(&self) -> bool {
        self.mode == FreezeMode::None
    }

    /// Whether every host is to be woken, whatever was decided.
    pub fn wakes_all(&self) -> bool {
        self.mode == FreezeMode::AllOn
    }

    fn unsure(reason: String) -> Self {
        Self { mode: FreezeMode::Frozen, reason, ..Self::default() }
    }
}

#[derive(Debug, Error)]
pub enum FreezeError {
    #[error("the settings at {} cannot be read, so they are not changed: {why}", hosts::GLOBAL_CONFIG)]
    Settings { why: String },
    #[error("the settings are being changed by many at once; try again")]
    Busy,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Whether anything may act. When that cannot be found out, nothing may.
pub async fn state(store: &dyn Store) -> Freeze {
    match futures::future::try_join(store.get(hosts::GLOBAL_CONFIG), store.get(RESTORED_KEY)).await {
        Ok((config, restored)) => judge(config.as_ref(), restored.as_ref()),
        Err(error) => Freeze::unsure(format!("whether anything is frozen cannot be read: {error}")),
    }
}

/// What the two records mean. Pure.
fn judge(config: Option<&Entry>, restored: Option<&Entry>) -> Freeze {
    let restored = restored.map(|entry| serde_json::from_slice::<Restored>(&entry.value));
    let (restored, unreadable) = match restored {
        Some(Err(error)) => (None, Some(format!("the mark at {RESTORED_KEY} cannot be read: {error}"))),
        Some(Ok(restored)) => (Some(restored), None),
        None => (None, None),
    };
    let config = match config.map(|entry| serde_json::from_slice::<GlobalConfig>(&entry.value)) {
        None => GlobalConfig::default(),
        Some(Ok(config)) => config,
        Some(Err(error)) => {
            let reason = format!("the settings at {} cannot be read: {error}", hosts::GLOBAL_CONFIG);
            return Freeze { restored, ..Freeze::unsure(reason) };
        }
    };
    if config.freeze != FreezeMode::None {
        return Freeze {
            mode: config.freeze,
            reason: config.freeze_reason.unwrap_or_else(|| "no reason was given".to_owned()),
            by: config.freeze_by,
            since: config.freeze_since,
            restored,
        };
    }
    if let Some(reason) = unreadable {
        return Freeze::unsure(reason);
    }
    match restored {
        Some(restored) => Freeze {
            mode: FreezeMode::Frozen,
            reason: format!("{}; nothing acts until the world was observed again", restored.why()),
            by: None,
            since: Some(restored.imported),
            restored: Some(restored),
        },
        None => Freeze::default(),
    }
}

/// Freezes, wakes everything, or lets Muster act again. Letting it act also takes the mark of a restore away.
pub async fn set(
    store: &dyn Store,
    mode: FreezeMode,
    reason: Option<String>,
    by: &str,
    now: Timestamp,
) -> Result<(Freeze, Revision), FreezeError> {
    for _ in 0..MAX_TRIES {
        let entry = store.get(hosts::GLOBAL_CONFIG).await?;
        let mut config = match &entry {
            None => GlobalConfig::default(),
            Some(entry) => serde_json::from_slice(&entry.value)
                .map_err(|error| FreezeError::Settings { why: error.to_string() })?,
        };
        let frozen = mode != FreezeMode::None;
        config.freeze = mode;
        config.freeze_reason = reason.clone().filter(|_| frozen);
        config.freeze_by = frozen.then(|| by.to_owned());
        config.freeze_since = frozen.then_some(now);
        let expect = entry.map_or(Expect::Absent, |entry| Expect::Modified(entry.modified));
        let value = serde_json::to_vec(&config).expect("settings have text keys and whole numbers only");
        let mut txn = Txn::new().expect(hosts::GLOBAL_CONFIG, expect).put(hosts::GLOBAL_CONFIG, value);
        if !frozen {
            txn = txn.delete(RESTORED_KEY);
        }
        if let Committed::Done { revision } = store.commit(txn).await? {
            return Ok((state(store).await, revision));
        }
    }
    Err(FreezeError::Busy)
}

/// What has not been heard of since a restore.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Waiting {
    pub count: usize,
    /// The first few, as keys of the store: reports of controllers, hosts.
    pub first: Vec<String>,
}

/// What is still waited for after a restore; `None` when there is no mark of one.
pub async fn waiting(store: &dyn Store) -> Result<Option<Waiting>, StoreError> {
    let Some(mark) = store.get(RESTORED_KEY).await? else { return Ok(None) };
    let mut waiting = Waiting::default();
    let mut note = |what: String| {
        waiting.count += 1;
        if waiting.first.len() < NAMED {
            waiting.first.push(what);
        }
    };
    List::prefix(keys::REPORTS)
        .each(store, |entry| {
            if entry.modified <= mark.modified {
                note(entry.key.clone());
            }
        })
        .await?;
    // A host was heard of when its loop wrote anything about it.
    let mut host: Option<(String, bool)> = None;
    let mut unheard = Vec::new();
    List::prefix(hosts::NODES)
        .each(store, |entry| {
            let Some(hosts::Key::Host { host: name, record }) = hosts::parse(&entry.key) else { return };
            let heard = entry.modified > mark.modified
                && matches!(
                    record,
                    hosts::HostRecord::Status | hosts::HostRecord::Metrics | hosts::HostRecord::Op
                );
            match &mut host {
                Some((known, seen)) if known == name => *seen |= heard,
                _ => unheard.extend(host.replace((name.to_owned(), heard)).filter(|(_, seen)| !seen)),
            }
        })
        .await?;
    unheard.extend(host.filter(|(_, seen)| !seen));
    for (name, _) in unheard {
        note(hosts::host_prefix(&name));
    }
    Ok(Some(waiting))
}

/// Takes the mark of a restore away once nothing is waited for. `true` when it did.
pub async fn lift_when_observed(store: &dyn Store) -> Result<bool, StoreError> {
    let Some(mark) = store.get(RESTORED_KEY).await? else { return Ok(false) };
    if waiting(store).await?.is_none_or(|waiting| waiting.count > 0) {
        return Ok(false);
    }
    let txn = Txn::new().expect(RESTORED_KEY, Expect::Modified(mark.modified)).delete(RESTORED_KEY);
    Ok(matches!(store.commit(txn).await?, Committed::Done { .. }))
}

/// Marks a store that is behind what had been seen of it: it was restored from something older.
pub async fn mark_when_behind(store: &dyn Store, seen: Revision, now: Timestamp) -> Result<bool, StoreError> {
    let revision = store.revision().await?;
    if revision >= seen {
        return Ok(false);
    }
    let mark = Restored { revision, exported: now, imported: now, sha256: String::new(), behind: Some(seen) };
    let value = serde_json::to_vec(&mark).expect("it is plain data");
    // Refused: there is a mark already, which says the same.
    let txn = Txn::new().expect(RESTORED_KEY, Expect::Absent).put(RESTORED_KEY, value);
    let _ = store.commit(txn).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: &str) -> Entry {
        Entry { key: "k".into(), value: value.to_owned().into(), created: Revision(1), modified: Revision(1) }
    }

    #[test]
    fn what_the_records_mean() {
        #[track_caller]
        fn check(config: Option<&str>, restored: Option<&str>, mode: FreezeMode, reason: &str) {
            let found = judge(config.map(entry).as_ref(), restored.map(entry).as_ref());
            assert_eq!(found.mode, mode, "{found:?}");
            assert!(found.reason.contains(reason), "{found:?}");
            assert_eq!(found.may_act(), mode == FreezeMode::None);
        }
        let mark = r#"{"revision":7,"exported":"2025-10-17T10:00:00Z","imported":"2025-10-18T10:00:00Z","sha256":"00"}"#;
        check(None, None, FreezeMode::None, "");
        check(Some("{}"), None, FreezeMode::None, "");
        check(Some(r#"{"freeze":"frozen","freezeReason":"storm"}"#), None, FreezeMode::Frozen, "storm");
        check(Some(r#"{"freeze":"all-on"}"#), Some(mark), FreezeMode::AllOn, "no reason");
        check(None, Some(mark), FreezeMode::Frozen, "restored");
        check(None, Some("{"), FreezeMode::Frozen, "cannot be read");
        check(Some("{\"freze\":1}"), None, FreezeMode::Frozen, "cannot be read");
    }
}
