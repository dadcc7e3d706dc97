//! The changes of the recent past, for watches: kept in memory as long as there is room, and read again
//! from the store's history when a watch resumes from before that.

use std::{collections::VecDeque, sync::Arc};

use muster_model::store::Revision;
use uuid::Uuid;

use super::{index::Summary, keys::Kind};

/// Events kept in memory: with their summaries shared with the index this is a few MiB, and at 1,000
/// changes a second still sixteen seconds for a slow reader.
const MAX_EVENTS: usize = 16_384;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change of one object.
#[derive(Debug)]
pub struct Event {
    pub revision: Revision,
    pub kind: Kind,
    pub id: Uuid,
    pub change: Change,
    /// What the index knew before and knows after. A deleted object has no `after`.
    pub before: Option<Arc<Summary>>,
    pub after: Option<Arc<Summary>>,
    /// The object's text, made once for all who watch, for each degree of [`Secrets`].
    pub(super) texts: [tokio::sync::OnceCell<Option<bytes::Bytes>>; 3],
}

impl Event {
    pub(super) fn new(
        revision: Revision,
        kind: Kind,
        id: Uuid,
        before: Option<Arc<Summary>>,
        after: Option<Arc<Summary>>,
    ) -> Self {
        let change = match (&before, &after) {
            (None, _) => Change::Added,
            (_, None) => Change::Deleted,
            _ => Change::Modified,
        };
        Self { revision, kind, id, change, before, after, texts: Default::default() }
    }
}

/// Recent events in order.
#[derive(Debug, Default)]
pub(super) struct Ring {
    events: VecDeque<Arc<Event>>,
    /// Every event after this revision is here.
    start: Revision,
}

impl Ring {
    /// Forgets everything: the feed had to begin anew at `revision`.
    pub(super) fn restart(&mut self, revision: Revision) {
        self.events.clear();
        self.start = revision;
    }

    pub(super) fn push(&mut self, event: Arc<Event>) {
        self.events.push_back(event);
        // A commit's events stay or go together, so that `start` never lies inside a commit.
        while self.events.len() > MAX_EVENTS {
            let Some(gone) = self.events.pop_front() else { break };
            self.start = gone.revision;
            while self.events.front().is_some_and(|next| next.revision == gone.revision) {
                self.events.pop_front();
            }
        }
    }

    pub(super) fn start(&self) -> Revision {
        self.start
    }

    /// At most `limit` events after `cursor`, never ending inside a commit; `None` when the ring does not
    /// reach back that far.
    pub(super) fn after(&self, cursor: Revision, limit: usize) -> Option<Vec<Arc<Event>>> {
        if cursor < self.start {
            return None;
        }
        let from = self.events.partition_point(|event| event.revision <= cursor);
        let mut taken: Vec<Arc<Event>> = Vec::new();
        for event in self.events.range(from..) {
            if taken.len() >= limit && taken.last().is_some_and(|last| last.revision != event.revision) {
                break;
            }
            taken.push(Arc::clone(event));
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(revision: u64) -> Arc<Event> {
        Arc::new(Event::new(
            Revision(revision),
            Kind::Pool,
            Uuid::from_u128(u128::from(revision)),
            None,
            None,
        ))
    }

    #[test]
    fn a_reader_gets_everything_after_its_place_in_whole_commits() {
        let mut ring = Ring::default();
        ring.restart(Revision(10));
        for revision in [11, 12, 12, 12, 15] {
            ring.push(event(revision));
        }
        let after = |cursor, limit| {
            ring.after(Revision(cursor), limit)
                .map(|events| events.iter().map(|event| event.revision.0).collect::<Vec<_>>())
        };
        assert_eq!(after(10, 100), Some(vec![11, 12, 12, 12, 15]));
        assert_eq!(after(11, 1), Some(vec![12, 12, 12]));
        assert_eq!(after(12, 100), Some(vec![15]));
        assert_eq!(after(15, 100), Some(vec![]));
        assert_eq!(after(9, 100), None, "before the ring's reach");
    }

    #[test]
    fn the_ring_is_bounded_and_knows_what_it_forgot() {
        let mut ring = Ring::default();
        for revision in 1..=(MAX_EVENTS as u64 + 100) {
            ring.push(event(revision));
        }
        assert_eq!(ring.start(), Revision(100));
        assert!(ring.after(Revision(99), 10).is_none());
        assert_eq!(ring.after(Revision(100), 1).unwrap()[0].revision, Revision(101));
    }
}
