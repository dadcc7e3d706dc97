//! Labels, each kept once however many objects carry it.
//!
//! A hundred thousand pools with twenty labels each carry two million; most of them are the same few thousand. An object
//! holds one thin pointer for each.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashSet},
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use foldhash::fast::RandomState;

/// Stands between key and value. No label that passes the door contains it.
const BETWEEN: char = '\0';

/// A key with its value.
#[derive(Clone)]
pub struct Label {
    text: Box<str>,
    key_bytes: u32,
}

impl Label {
    pub fn key(&self) -> &str {
        &self.text[..self.key_bytes as usize]
    }

    pub fn value(&self) -> &str {
        &self.text[self.key_bytes as usize + BETWEEN.len_utf8()..]
    }

    /// What a label with this key and value is found under.
    pub(super) fn text(key: &str, value: &str) -> String {
        let mut text = String::with_capacity(key.len() + value.len() + 1);
        text.push_str(key);
        text.push(BETWEEN);
        text.push_str(value);
        text
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key(), self.value())
    }
}

impl PartialEq for Label {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Label {}

impl Hash for Label {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// A label that is found by its text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Shared(pub(super) Arc<Label>);

impl Borrow<str> for Shared {
    fn borrow(&self) -> &str {
        &self.0.text
    }
}

/// The labels of one object, by key. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels(Arc<[Arc<Label>]>);

impl Default for Labels {
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

impl Labels {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|label| label.key() == key).map(|label| label.value())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Label>> {
        self.0.iter()
    }
}

/// All labels that anything carries.
#[derive(Debug, Default)]
pub(super) struct Interner {
    known: HashSet<Shared, RandomState>,
    /// Where a text is put together before it is looked up.
    scratch: String,
}

impl Interner {
    pub(super) fn labels(&mut self, labels: &BTreeMap<&str, &str>) -> Labels {
        if labels.is_empty() {
            return Labels::default();
        }
        Labels(labels.iter().map(|(key, value)| self.label(key, value)).collect())
    }

    fn label(&mut self, key: &str, value: &str) -> Arc<Label> {
        self.scratch.clear();
        self.scratch.push_str(key);
        self.scratch.push(BETWEEN);
        self.scratch.push_str(value);
        if let Some(Shared(known)) = self.known.get(self.scratch.as_str()) {
            return Arc::clone(known);
        }
        // Labels of deleted objects are dropped once nothing else holds them.
        if self.known.len() > 4_096 && self.known.len().is_power_of_two() {
            self.known.retain(|label| Arc::strong_count(&label.0) > 1);
        }
        let key_bytes = u32::try_from(key.len()).expect("a stored object has at most a few megabytes");
        let label = Arc::new(Label { text: self.scratch.as_str().into(), key_bytes });
        self.known.insert(Shared(Arc::clone(&label)));
        label
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Labels {
    fn from(labels: [(&str, &str); N]) -> Self {
        Interner::default().labels(&labels.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_labels_are_kept_once_and_unused_ones_forgotten() {
        let mut interner = Interner::default();
        let first = interner.labels(&BTreeMap::from([("a", "1"), ("b", "")]));
        let second = interner.labels(&BTreeMap::from([("a", "1"), ("ab", "1")]));
        assert!(Arc::ptr_eq(&first.0[0], &second.0[0]));
        assert_eq!((first.get("a"), first.get("b"), first.get("c")), (Some("1"), Some(""), None));
        assert_eq!(format!("{second:?}"), "Labels([a=1, ab=1])");
        for number in 0..100_000 {
            drop(interner.labels(&BTreeMap::from([("serial", number.to_string().as_str())])));
        }
        assert!(interner.known.len() < 10_000, "{} are kept", interner.known.len());
        assert_eq!(interner.labels(&BTreeMap::from([("a", "1")])).get("a"), Some("1"));
    }
}
