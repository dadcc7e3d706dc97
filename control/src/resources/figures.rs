//! What the loop has done, in numbers, for whoever scrapes them.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use muster_model::resource::ResourceKind;

use super::{mirror::Mirror, turn::Outcome};

/// Where the objects are kept, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: there is no home, or another process leads.
    Nowhere,
    /// There is a home, and it cannot be used now.
    Trouble,
    /// Both sides are followed.
    InStep,
}

/// Counters and gauges of this process. All of them are cheap to read.
#[derive(Debug, Default)]
pub struct Figures {
    place: AtomicU8,
    settled: AtomicU64,
    again: AtomicU64,
    refused: AtomicU64,
    waiting: AtomicU64,
    objects: [AtomicU64; ResourceKind::ALL.len()],
    unsynced: [AtomicU64; ResourceKind::ALL.len()],
}

/// The figures of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindFigures {
    pub kind: ResourceKind,
    pub objects: u64,
    /// Objects that say `Synced=False`.
    pub unsynced: u64,
}

impl Figures {
    pub fn place(&self) -> Place {
        match self.place.load(Relaxed) {
            0 => Place::Nowhere,
            1 => Place::Trouble,
            _ => Place::InStep,
        }
    }

    /// Turns by what became of them.
    pub fn turns(&self) -> [(&'static str, u64); 3] {
        [
            ("settled", self.settled.load(Relaxed)),
            ("again", self.again.load(Relaxed)),
            ("refused", self.refused.load(Relaxed)),
        ]
    }

    /// Records and objects that wait for a turn.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }

    pub fn kinds(&self) -> [KindFigures; ResourceKind::ALL.len()] {
        std::array::from_fn(|at| KindFigures {
            kind: ResourceKind::ALL[at],
            objects: self.objects[at].load(Relaxed),
            unsynced: self.unsynced[at].load(Relaxed),
        })
    }

    pub(super) fn set_place(&self, place: Place) {
        let code = match place {
            Place::Nowhere => 0,
            Place::Trouble => 1,
            Place::InStep => 2,
        };
        self.place.store(code, Relaxed);
        if place == Place::Nowhere {
            self.waiting.store(0, Relaxed);
            self.objects.iter().chain(&self.unsynced).for_each(|number| number.store(0, Relaxed));
        }
    }

    pub(super) fn count(&self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Done | Outcome::Then(_) => &self.settled,
            Outcome::Again(_) => &self.again,
            Outcome::Refused => &self.refused,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn look(&self, mirror: &Mirror, waiting: usize) {
        self.waiting.store(waiting as u64, Relaxed);
        for (at, kind) in ResourceKind::ALL.into_iter().enumerate() {
            let (objects, unsynced) = mirror.count(kind);
            self.objects[at].store(objects, Relaxed);
            self.unsynced[at].store(unsynced, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_model::resource::Resource;
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_counted_by_kind_and_by_whether_they_are_in_step() {
        let mut mirror = Mirror::default();
        for (name, synced) in [("a", Some("True")), ("b", Some("False")), ("c", None)] {
            let mut object = Resource::new(ResourceKind::NodePool, "team", name, json!({}));
            if let Some(word) = synced {
                object.status = json!({ "conditions": [{ "type": "Synced", "status": word }] });
            }
            mirror.put(object);
        }
        let figures = Figures::default();
        figures.set_place(Place::InStep);
        figures.look(&mirror, 4);
        for outcome in [Outcome::Done, Outcome::Again("x".into()), Outcome::Refused, Outcome::Done] {
            figures.count(&outcome);
        }
        let pools = figures.kinds().into_iter().find(|one| one.kind == ResourceKind::NodePool).unwrap();
        assert_eq!((pools.objects, pools.unsynced, figures.waiting()), (3, 1, 4));
        assert_eq!(figures.turns(), [("settled", 2), ("again", 1), ("refused", 1)]);
        figures.set_place(Place::Nowhere);
        assert_eq!((figures.place(), figures.waiting(), figures.kinds()[0].objects), (Place::Nowhere, 0, 0));
    }
}
