//! Rendered objects that were asked for lately.
//!
//! An entry is only served while the index still has the two revisions that it was made from, so there
//! is nothing to invalidate. Two generations bound the size: when the young one is full it becomes the
//! old one, and what nobody asks for again falls out with the next turn.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use muster_model::{identity::Secrets, store::Revision};
use uuid::Uuid;

/// Entries per generation: with 2.5 KB each, at most 20 MiB in both.
const GENERATION: usize = 4_096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rendered {
    pub(super) version: Revision,
    pub(super) status_version: Revision,
    pub(super) text: Bytes,
}

/// Which rendering: how much of its secrets it shows.
pub(super) type Key = (Uuid, Secrets);

#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: BTreeMap<Key, Rendered>,
    old: BTreeMap<Key, Rendered>,
}

impl Cache {
    pub(super) fn get(&self, key: Key, version: Revision, status_version: Revision) -> Option<Bytes> {
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |found: &&Rendered| found.version == version && found.status_version == status_version;
        if let Some(found) = generations.young.get(&key).filter(fits) {
            return Some(found.text.clone());
        }
        let found = generations.old.get(&key).filter(fits)?.clone();
        let text = found.text.clone();
        generations.put(key, found);
        Some(text)
    }

    pub(super) fn put(&self, key: Key, rendered: Rendered) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(key, rendered);
    }
}

impl Generations {
    fn put(&mut self, key: Key, rendered: Rendered) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, rendered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_present_rendering_is_served_and_the_size_is_bounded() {
        let cache = Cache::default();
        let rendered = |version| Rendered {
            version: Revision(version),
            status_version: Revision(1),
            text: Bytes::from_static(b"{}"),
        };
        let key = |number| (Uuid::from_u128(number), Secrets::All);
        cache.put(key(1), rendered(7));
        assert!(cache.get(key(1), Revision(7), Revision(1)).is_some());
        assert!(cache.get(key(1), Revision(8), Revision(1)).is_none());
        assert!(cache.get(key(1), Revision(7), Revision(2)).is_none());
        assert!(cache.get((Uuid::from_u128(1), Secrets::Hidden), Revision(7), Revision(1)).is_none());
        for number in 0..20_000 {
            cache.put(key(number), rendered(7));
            assert!(cache.get(key(42.min(number)), Revision(7), Revision(1)).is_some(), "asked for often");
        }
        let generations = cache.0.lock().unwrap();
        assert!(generations.young.len() + generations.old.len() <= 2 * GENERATION);
    }
}
