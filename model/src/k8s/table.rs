//! Small maps with text keys, as sorted arrays: labels, selectors, resource lists.

use std::{fmt, marker::PhantomData};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Quantity;

/// A map that is small, read often and iterated in the order of its keys. `null` reads as empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Table<V>(Box<[(Box<str>, V)]>);

/// `metadata.labels`, `nodeSelector`, `matchLabels`.
pub type Labels = Table<Box<str>>;

/// Amounts by resource name: `requests`, `limits`, `allocatable`, `overhead`.
pub type ResourceList = Table<Quantity>;

impl<V> Table<V> {
    pub fn get(&self, key: &str) -> Option<&V> {
        let at = self.0.binary_search_by(|(name, _)| (**name).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    pub fn contains(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order of the keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &V)> + ExactSizeIterator {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    /// Sets one entry. Copies the table: meant for building, not for hot paths.
    pub fn insert(&mut self, key: &str, value: V) {
        match self.0.binary_search_by(|(name, _)| (**name).cmp(key)) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => {
                let mut entries = std::mem::take(&mut self.0).into_vec();
                entries.insert(at, (key.into(), value));
                self.0 = entries.into_boxed_slice();
            }
        }
    }
}

impl Labels {
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key).map(|value| &**value)
    }
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self(Box::default())
    }
}

/// The last of several entries with one key wins, as in JSON.
impl<K: Into<Box<str>>, V> FromIterator<(K, V)> for Table<V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut entries: Vec<(Box<str>, V)> =
            entries.into_iter().map(|(key, value)| (key.into(), value)).collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        Self(entries.into_boxed_slice())
    }
}

impl<V: Serialize> Serialize for Table<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, V: Deserialize<'de> + Default> Deserialize<'de> for Table<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TableVisitor(PhantomData))
    }
}

struct TableVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de> + Default> de::Visitor<'de> for TableVisitor<V> {
    type Value = Table<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Table<V>, A::Error> {
        let mut entries = Vec::with_capacity(map.size_hint().unwrap_or(0));
        while let Some((key, value)) = map.next_entry::<Box<str>, Option<V>>()? {
            entries.push((key, value.unwrap_or_default()));
        }
        Ok(entries.into_iter().collect())
    }

    fn visit_unit<E: de::Error>(self) -> Result<Table<V>, E> {
        Ok(Table::default())
    }

    fn visit_none<E: de::Error>(self) -> Result<Table<V>, E> {
        Ok(Table::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_equal_keys_wins_and_keys_are_sorted() {
        let table: Table<i32> = [("b", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5)].into_iter().collect();
        assert_eq!(table.iter().collect::<Vec<_>>(), [("a", &4), ("b", &5)]);
    }

    #[test]
    fn null_is_empty_and_a_null_value_is_its_zero() {
        let table: Labels = serde_json::from_str("null").unwrap();
        assert!(table.is_empty());
        let table: ResourceList = serde_json::from_str(r#"{"cpu":null,"memory":"1Ki","pods":3}"#).unwrap();
        assert_eq!(table.get("cpu").copied(), Some(Quantity::ZERO));
        assert_eq!(table.get("memory").map(|amount| amount.value()), Some(1024));
        assert_eq!(table.get("pods").map(|amount| amount.value()), Some(3));
    }

    #[test]
    fn insert_keeps_the_order() {
        let mut labels = Labels::default();
        for key in ["m", "a", "z", "m"] {
            labels.insert(key, key.into());
        }
        assert_eq!(labels.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["a", "m", "z"]);
    }
}
