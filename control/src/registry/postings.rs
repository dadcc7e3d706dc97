//! Which rows carry which labels, so that a selector looks at what matches instead of at every object.
//!
//! A row is a number here, its slot. For every label there is the set of slots that have it: a short list, or one bit for
//! each slot once a list would be larger than that.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use foldhash::fast::RandomState;

use super::{
    filter::{LabelSelector, Rule},
    labels::{Label, Labels, Shared},
};

/// A set of slots, one bit each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    fn place(slot: u32) -> (usize, u64) {
        (slot as usize / 64, 1 << (slot % 64))
    }

    fn set(&mut self, slot: u32) {
        let (word, bit) = Self::place(slot);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    fn clear(&mut self, slot: u32) {
        let (word, bit) = Self::place(slot);
        if let Some(word) = self.0.get_mut(word) {
            *word &= !bit;
        }
    }

    pub(super) fn has(&self, slot: u32) -> bool {
        let (word, bit) = Self::place(slot);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    fn keep(&mut self, other: &Self) {
        for (place, word) in self.0.iter_mut().enumerate() {
            *word &= other.0.get(place).copied().unwrap_or(0);
        }
    }

    fn take(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= !other;
        }
    }
}

/// A list is kept up to this length whatever the number of slots: 256 bytes.
const SHORT: usize = 64;

/// The slots of one label. Many labels are on one object only, so that case takes no memory of its own.
#[derive(Debug)]
enum Slots {
    One(u32),
    /// Ascending.
    List(Vec<u32>),
    Bits(Box<Counted>),
}

#[derive(Debug)]
struct Counted {
    bits: Bits,
    count: usize,
}

impl Slots {
    fn insert(&mut self, slot: u32) {
        match self {
            Self::One(only) if *only == slot => {}
            Self::One(only) => *self = Self::List(vec![slot.min(*only), slot.max(*only)]),
            Self::List(list) => {
                if let Err(place) = list.binary_search(&slot) {
                    list.insert(place, slot);
                }
                let highest = list.last().copied().unwrap_or(0) as usize;
                // 32 bits for each entry of a list, one for each slot otherwise.
                if list.len() > SHORT && list.len() * 32 > highest {
                    let count = list.len();
                    *self = Self::Bits(Box::new(Counted { bits: list.iter().copied().collect(), count }));
                }
            }
            Self::Bits(counted) => {
                counted.count += usize::from(!counted.bits.has(slot));
                counted.bits.set(slot);
            }
        }
    }

    fn remove(&mut self, slot: u32) {
        match self {
            Self::One(only) if *only == slot => *self = Self::default(),
            Self::One(_) => {}
            Self::List(list) => {
                if let Ok(place) = list.binary_search(&slot) {
                    list.remove(place);
                }
            }
            Self::Bits(counted) => {
                counted.count -= usize::from(counted.bits.has(slot));
                counted.bits.clear(slot);
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::One(_) => false,
            Self::List(list) => list.is_empty(),
            Self::Bits(counted) => counted.count == 0,
        }
    }

    fn add_to(&self, all: &mut Bits) {
        match self {
            Self::One(only) => all.set(*only),
            Self::List(list) => list.iter().for_each(|slot| all.set(*slot)),
            Self::Bits(counted) => all.add(&counted.bits),
        }
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

/// The labels of a table's rows.
#[derive(Debug, Default)]
pub(super) struct Postings {
    /// Slots that have the key, with whatever value.
    keys: HashMap<Box<str>, Slots, RandomState>,
    labels: HashMap<Shared, Slots, RandomState>,
}

impl Postings {
    pub(super) fn add(&mut self, slot: u32, labels: &Labels) {
        for label in labels.iter() {
            match self.keys.get_mut(label.key()) {
                Some(slots) => slots.insert(slot),
                None => drop(self.keys.insert(label.key().into(), Slots::One(slot))),
            }
            match self.labels.entry(Shared(Arc::clone(label))) {
                Entry::Occupied(mut slots) => slots.get_mut().insert(slot),
                Entry::Vacant(place) => drop(place.insert(Slots::One(slot))),
            }
        }
    }

    pub(super) fn remove(&mut self, slot: u32, labels: &Labels) {
        for label in labels.iter() {
            if let Some(slots) = self.keys.get_mut(label.key()) {
                slots.remove(slot);
                if slots.is_empty() {
                    self.keys.remove(label.key());
                }
            }
            if let Entry::Occupied(mut slots) = self.labels.entry(Shared(Arc::clone(label))) {
                slots.get_mut().remove(slot);
                if slots.get().is_empty() {
                    slots.remove();
                }
            }
        }
    }

    /// The slots that a selector wants, out of `live`; `None` when it wants all of them.
    pub(super) fn select(&self, selector: &LabelSelector, live: impl Fn() -> Bits) -> Option<Bits> {
        let mut wanted: Option<Bits> = None;
        for test in selector.tests() {
            let mut found = Bits::default();
            match &test.rule {
                Rule::In(values) | Rule::NotIn(values) => values
                    .iter()
                    .filter_map(|value| self.labels.get(Label::text(&test.key, value).as_str()))
                    .for_each(|slots| slots.add_to(&mut found)),
                Rule::Exists | Rule::Absent => {
                    self.keys.get(test.key.as_str()).into_iter().for_each(|slots| slots.add_to(&mut found));
                }
            }
            match (&test.rule, &mut wanted) {
                (Rule::In(_) | Rule::Exists, None) => wanted = Some(found),
                (Rule::In(_) | Rule::Exists, Some(wanted)) => wanted.keep(&found),
                (Rule::NotIn(_) | Rule::Absent, wanted) => wanted.get_or_insert_with(&live).take(&found),
            }
        }
        wanted
    }
}

impl FromIterator<u32> for Bits {
    fn from_iter<I: IntoIterator<Item = u32>>(slots: I) -> Self {
        let mut bits = Self::default();
        slots.into_iter().for_each(|slot| bits.set(slot));
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_the_same_as_a_list_and_as_bits() {
        let mut slots = Slots::default();
        for slot in (0..1_000).rev() {
            slots.insert(slot * 3 % 1_000);
            slots.insert(slot * 3 % 1_000);
        }
        assert!(matches!(&slots, Slots::Bits(counted) if counted.count == 1_000));
        (0..1_000).for_each(|slot| slots.remove(slot));
        assert!(slots.is_empty());
        let mut sparse = Slots::default();
        (0..100).for_each(|slot| sparse.insert(slot * 10_000));
        assert!(matches!(&sparse, Slots::List(list) if list.is_sorted() && list.len() == 100));
        sparse.remove(20_000);
        let mut bits = Bits::default();
        sparse.add_to(&mut bits);
        assert!(bits.has(10_000) && !bits.has(20_000) && !bits.has(5_000_000));
    }

    #[test]
    fn labels_that_nobody_has_any_more_are_forgotten() {
        let mut postings = Postings::default();
        let both = Labels::from([("a", "1"), ("b", "2")]);
        postings.add(7, &both);
        postings.add(8, &Labels::from([("a", "1")]));
        postings.remove(7, &both);
        assert_eq!((postings.keys.len(), postings.labels.len()), (1, 1));
        postings.remove(8, &both);
        assert!(postings.keys.is_empty() && postings.labels.is_empty());
    }
}
