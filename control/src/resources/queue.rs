//! Whose turn it is: everything once, nothing twice at the same time, and what failed again after a while.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use muster_model::{
    Duration,
    resource::{ObjectKey, ResourceKind},
};

/// The first wait after a failure: somebody else's write is usually seen by then.
const SHORTEST: Duration = Duration::from_millis(200);
/// The longest wait. What was refused for something that others can put right is looked at this often, too.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// What a turn is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Work {
    /// A record of the store and its object.
    Record(ResourceKind, String),
    /// An object that has no record yet.
    Stray(ObjectKey),
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    ready: VecDeque<Work>,
    queued: HashSet<Work>,
    running: HashSet<Work>,
    /// Asked for while it ran.
    again: HashSet<Work>,
    later: BTreeSet<(Duration, Work)>,
    /// When each of `later` is due.
    due: HashMap<Work, Duration>,
    failures: HashMap<Work, u32>,
}

impl Queue {
    /// As soon as possible.
    pub(super) fn push(&mut self, work: Work) {
        if let Some(at) = self.due.remove(&work) {
            self.later.remove(&(at, work.clone()));
        }
        if self.running.contains(&work) {
            self.again.insert(work);
        } else if self.queued.insert(work.clone()) {
            self.ready.push_back(work);
        }
    }

    /// At `at` on the monotonic clock, unless it is due before.
    pub(super) fn push_at(&mut self, work: Work, at: Duration) {
        if self.queued.contains(&work) || self.due.get(&work).is_some_and(|due| *due <= at) {
            return;
        }
        if let Some(old) = self.due.insert(work.clone(), at) {
            self.later.remove(&(old, work.clone()));
        }
        self.later.insert((at, work));
    }

    /// The next one to begin with, if any.
    pub(super) fn pop(&mut self, now: Duration) -> Option<Work> {
        while let Some((at, work)) = self.later.first().cloned() {
            if at > now {
                break;
            }
            self.later.remove(&(at, work.clone()));
            self.due.remove(&work);
            self.push(work);
        }
        let work = self.ready.pop_front()?;
        self.queued.remove(&work);
        self.running.insert(work.clone());
        Some(work)
    }

    /// Everything that waits for a turn, now or later.
    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.later.len()
    }

    /// When something falls due, if anything waits.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.later.first().map(|(at, _)| *at)
    }

    /// A turn is over, and nothing is left to do.
    pub(super) fn done(&mut self, work: &Work) {
        self.failures.remove(work);
        self.finish(work);
    }

    /// A turn is over, and has to be taken again; how often it has failed in a row.
    pub(super) fn failed(&mut self, work: &Work, now: Duration) -> u32 {
        let failures = self.failures.entry(work.clone()).or_default();
        let wait = SHORTEST.millis().saturating_mul(1 << (*failures).min(16)).min(LONGEST.millis());
        *failures += 1;
        let count = *failures;
        self.finish(work);
        self.push_at(work.clone(), now.saturating_add(Duration::from_millis(wait)));
        count
    }

    fn finish(&mut self, work: &Work) {
        self.running.remove(work);
        if self.again.remove(work) {
            self.push(work.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(id: &str) -> Work {
        Work::Record(ResourceKind::NodePool, id.to_owned())
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn everything_once_and_nothing_twice_at_a_time() {
        let mut queue = Queue::default();
        queue.push(work("a"));
        queue.push(work("a"));
        queue.push(work("b"));
        assert_eq!(queue.pop(at(0)), Some(work("a")));
        queue.push(work("a"));
        assert_eq!(queue.pop(at(0)), Some(work("b")));
        assert_eq!(queue.pop(at(0)), None);
        queue.done(&work("a"));
        assert_eq!(queue.pop(at(0)), Some(work("a")));
        queue.done(&work("a"));
        queue.done(&work("b"));
        assert_eq!((queue.pop(at(0)), queue.next_due()), (None, None));
    }

    #[test]
    fn failures_wait_longer_each_time() {
        let mut queue = Queue::default();
        let mut waits = Vec::new();
        queue.push(work("a"));
        for _ in 0..10 {
            let now = queue.next_due().unwrap_or(Duration::ZERO);
            assert_eq!(queue.pop(now), Some(work("a")));
            queue.failed(&work("a"), now);
            waits.push(queue.next_due().unwrap().saturating_sub(now).millis());
        }
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        // News do not wait.
        queue.push(work("a"));
        assert_eq!(queue.next_due(), None);
        assert_eq!(queue.pop(Duration::ZERO), Some(work("a")));
    }

    #[test]
    fn the_earlier_time_counts() {
        let mut queue = Queue::default();
        queue.push_at(work("a"), at(5));
        queue.push_at(work("a"), at(9));
        assert_eq!(queue.next_due(), Some(at(5)));
        queue.push_at(work("a"), at(2));
        assert_eq!(queue.next_due(), Some(at(2)));
        assert_eq!(queue.pop(at(1)), None);
        assert_eq!(queue.pop(at(2)), Some(work("a")));
    }
}
