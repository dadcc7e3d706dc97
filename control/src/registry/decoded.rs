//! Values that our own loops read over and over: pools, clusters, their statuses and reports.
//!
//! The store is asked every time. What is spared is only the work of making a value of its bytes, and only while they
//! are the very bytes that the value was made of: revisions alone would not do, as a store that was restored counts
//! some of them twice. Two generations bound the size, as in the cache of rendered objects.

use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use muster_model::store::Entry;

/// Values per generation: with 10 KB each, at most 20 MB in both.
const GENERATION: usize = 1_024;

/// A value, and what it was made of.
#[derive(Debug, Clone)]
struct Made {
    of: Bytes,
    value: Arc<dyn Any + Send + Sync>,
}

#[derive(Debug, Default)]
pub(super) struct Decoded(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<String, Made, foldhash::fast::RandomState>,
    old: HashMap<String, Made, foldhash::fast::RandomState>,
}

impl Decoded {
    /// The value of an entry: the one that is known, or what `make` makes of it.
    pub(super) fn get<T: Send + Sync + 'static, E>(
        &self,
        entry: &Entry,
        make: impl FnOnce(&Entry) -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        if let Some(value) = self.lock().get(entry) {
            return Ok(value);
        }
        let value = Arc::new(make(entry)?);
        let made = Made { of: entry.value.clone(), value: Arc::clone(&value) as _ };
        self.lock().put(entry.key.clone(), made);
        Ok(value)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn get<T: Send + Sync + 'static>(&mut self, entry: &Entry) -> Option<Arc<T>> {
        let made = if let Some(made) = self.young.get(&entry.key) {
            made.clone()
        } else {
            let made = self.old.get(&entry.key)?.clone();
            self.put(entry.key.clone(), made.clone());
            made
        };
        if made.of != entry.value {
            return None;
        }
        made.value.downcast().ok()
    }

    fn put(&mut self, key: String, made: Made) {
        if self.young.len() >= GENERATION && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, made);
    }
}

#[cfg(test)]
mod tests {
    use muster_model::store::Revision;

    use super::*;

    fn entry(key: &str, value: &str) -> Entry {
        let revision = Revision(7);
        Entry {
            key: key.to_owned(),
            value: Bytes::copy_from_slice(value.as_bytes()),
            created: revision,
            modified: revision,
        }
    }

    fn number(entry: &Entry) -> Result<u64, String> {
        let text = std::str::from_utf8(&entry.value).map_err(|error| error.to_string())?;
        text.parse().map_err(|error| format!("{text}: {error}"))
    }

    #[test]
    fn a_value_is_made_once_for_the_same_bytes_and_anew_for_others() {
        let decoded = Decoded::default();
        let first = decoded.get(&entry("a", "1"), number).unwrap();
        let again = decoded.get(&entry("a", "1"), |_| Err("made twice".to_owned())).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        // The revision is the same, as after a restore of the store.
        assert_eq!(*decoded.get(&entry("a", "2"), number).unwrap(), 2);
        assert_eq!(*decoded.get(&entry("b", "1"), number).unwrap(), 1);
        assert!(decoded.get(&entry("a", "x"), number).is_err());
        let text = decoded.get(&entry("a", "2"), |_| Ok::<_, String>("two".to_owned())).unwrap();
        assert_eq!(*text, "two", "a value of another type is no answer");
    }

    #[test]
    fn the_size_is_bounded_and_what_is_asked_for_stays() {
        let decoded = Decoded::default();
        let kept = decoded.get(&entry("kept", "1"), number).unwrap();
        for other in 0..5_000 {
            drop(decoded.get(&entry(&other.to_string(), "1"), number).unwrap());
            let still = decoded.get(&entry("kept", "1"), |_| Err("made twice".to_owned())).unwrap();
            assert!(Arc::ptr_eq(&kept, &still));
        }
        let generations = decoded.lock();
        assert!(generations.young.len() + generations.old.len() <= 2 * GENERATION);
    }
}
