//! What a planner's triggers answer. They are asked together and beside the looks: a look waits for them for a moment, and
//! a silent server costs it no more than that, whatever the number of triggers.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, Either, select},
    stream::FuturesUnordered,
};
use muster_model::{
    Clock, Duration, Known, Timestamp,
    pool::Trigger,
    trigger::{Finding, Triggers},
};

/// Triggers are asked at most this often: as often as Prometheus usually scrapes. An answer counts for as long.
pub(super) const INTERVAL: Duration = Duration::from_secs(15);
/// An answer counts for so much longer while the next one is on its way: a server that takes some seconds each time would make a
/// trigger unknown and known in turns. Within two intervals silence is told all the same.
const LATE: Duration = Duration::from_secs(5);
/// How long a look waits for all its triggers together: more than twice what six quick queries each take, and short enough for
/// pods that wait to have their host two looks later.
const PATIENCE: Duration = Duration::from_secs(2);
/// A question without an answer is dropped: what six queries with the default `prometheus.timeout` may take.
const GIVE_UP: Duration = Duration::from_mins(1);
/// Questions at once: Prometheus answers 20 at a time by default, and a few are left to people.
const AT_ONCE: usize = 16;

/// Whose trigger it is and what it asks, and its number in the pool.
pub(super) type Place = (String, usize);

/// Who answers, and by which clock the waiting is measured.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) triggers: Arc<dyn Triggers>,
    pub(super) clock: Arc<dyn Clock>,
}

/// Whether something was learnt that a plan can depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Heard {
    /// Everybody who was asked has answered as before.
    TheSame,
    Otherwise,
}

/// What a trigger last answered, and when by the monotonic clock.
#[derive(Debug)]
struct Answer {
    trigger: Trigger,
    at: Duration,
    finding: Known<Finding>,
}

impl Answer {
    fn is_old(&self, clock: &dyn Clock) -> bool {
        clock.monotonic().saturating_sub(self.at) >= INTERVAL
    }

    fn is_unknown(&self) -> bool {
        matches!(self.finding, Known::Unknown { .. })
    }
}

type Asking = FuturesUnordered<BoxFuture<'static, (Place, Trigger, Known<Finding>)>>;

/// The answers of one planner's triggers.
#[derive(Default)]
pub(super) struct Answers {
    known: BTreeMap<Place, Answer>,
    /// Asked, and not answered yet: the form of the trigger that is wanted now, and when it was.
    open: BTreeMap<Place, (Trigger, Timestamp)>,
    /// Those of them whose turn has not come.
    waiting: VecDeque<(Place, Trigger, Timestamp)>,
    /// The others. The lock is never taken: it lets a planner be shared between threads.
    asking: Mutex<Asking>,
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers")
            .field("known", &self.known)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

impl Answers {
    /// Asks those triggers that are due and waits a moment for the answers. What is not answered by then is unknown until
    /// it is; what was unknown before is not waited for at all. `wanted` are all triggers that there are.
    pub(super) async fn look(&mut self, source: &Source, wanted: &BTreeMap<Place, Trigger>, now: Timestamp) {
        self.known.retain(|place, _| wanted.contains_key(place));
        for (place, trigger) in wanted {
            if self.is_due(source, place, trigger) {
                self.ask(place, trigger, now);
            }
        }
        let missing = {
            let gather = std::pin::pin!(async {
                let _ = self.all(source).now_or_never();
                while wanted.iter().any(|(place, trigger)| self.is_missed(source, place, trigger)) {
                    if self.one(source).await.is_none() {
                        break;
                    }
                }
            });
            matches!(select(gather, source.clock.sleep(PATIENCE)).await, Either::Right(_))
        };
        if missing {
            for (place, trigger) in wanted {
                if self.is_missed(source, place, trigger) && !self.still_counts(source, place, trigger) {
                    let why = format!("there was no answer within {PATIENCE}; it is still waited for");
                    let (at, finding) = (source.clock.monotonic(), Known::Unknown { why, since: now });
                    self.known.insert(place.clone(), Answer { trigger: trigger.clone(), at, finding });
                }
            }
        }
    }

    /// What is known of a trigger since the last look. What was said of an older form of it is not known of this one.
    pub(super) fn finding(&self, place: &Place, trigger: &Trigger) -> Option<Known<Finding>> {
        let answer = self.known.get(place).filter(|answer| answer.trigger == *trigger)?;
        Some(answer.finding.clone())
    }

    /// Asks again what is due, without a look.
    pub(super) fn ask_again(&mut self, source: &Source, now: Timestamp) {
        let old = self.known.iter().filter(|(_, answer)| answer.is_old(&*source.clock));
        let old = old.filter(|(place, _)| !self.open.contains_key(*place));
        let due: Vec<_> = old.map(|(place, answer)| (place.clone(), answer.trigger.clone())).collect();
        for (place, trigger) in due {
            self.ask(&place, &trigger, now);
        }
    }

    /// Waits for whoever was asked: until there is another answer than before, or until all have answered.
    pub(super) async fn heard(&mut self, source: &Source) -> Heard {
        loop {
            match self.one(source).await {
                Some(Heard::Otherwise) => return Heard::Otherwise,
                Some(Heard::TheSame) if !self.open.is_empty() => {}
                Some(Heard::TheSame) => return Heard::TheSame,
                None => std::future::pending().await,
            }
        }
    }

    /// In how long the first answer is too old, of those that nobody was asked for since.
    pub(super) fn due_in(&self, clock: &dyn Clock) -> Option<Duration> {
        let now = clock.monotonic();
        let closed = self.known.iter().filter(|(place, _)| !self.open.contains_key(*place));
        closed.map(|(_, answer)| answer.at.saturating_add(INTERVAL).saturating_sub(now)).min()
    }

    fn is_due(&self, source: &Source, place: &Place, trigger: &Trigger) -> bool {
        let known = self.known.get(place);
        known.is_none_or(|answer| answer.trigger != *trigger || answer.is_old(&*source.clock))
    }

    /// Answered before, and not long ago.
    fn still_counts(&self, source: &Source, place: &Place, trigger: &Trigger) -> bool {
        let until = |answer: &Answer| answer.at.saturating_add(INTERVAL).saturating_add(LATE);
        let known = self.known.get(place).filter(|answer| answer.trigger == *trigger);
        known.is_some_and(|answer| source.clock.monotonic() < until(answer))
    }

    /// Due, and not known to be unknown: only for those a look waits.
    fn is_missed(&self, source: &Source, place: &Place, trigger: &Trigger) -> bool {
        let unknown =
            self.known.get(place).is_some_and(|answer| answer.is_unknown() && answer.trigger == *trigger);
        !unknown && self.is_due(source, place, trigger)
    }

    fn ask(&mut self, place: &Place, trigger: &Trigger, now: Timestamp) {
        // One that was edited is asked anew when its older form is answered.
        if self.open.insert(place.clone(), (trigger.clone(), now)).is_none() {
            self.waiting.push_back((place.clone(), trigger.clone(), now));
        }
    }

    async fn all(&mut self, source: &Source) {
        while self.one(source).await.is_some() {}
    }

    /// The next answer; `None` if nobody is asked anything.
    async fn one(&mut self, source: &Source) -> Option<Heard> {
        let asking = self.asking.get_mut().unwrap_or_else(PoisonError::into_inner);
        while asking.len() < AT_ONCE
            && let Some(question) = self.waiting.pop_front()
        {
            asking.push(Box::pin(put(source.clone(), question)));
        }
        let (place, trigger, finding) = asking.next().await?;
        if let Some((wanted, now)) = self.open.remove(&place).filter(|(wanted, _)| *wanted != trigger) {
            self.ask(&place, &wanted, now);
            return Some(Heard::TheSame);
        }
        Some(self.note(source, place, trigger, finding))
    }

    fn note(
        &mut self,
        source: &Source,
        place: Place,
        trigger: Trigger,
        mut finding: Known<Finding>,
    ) -> Heard {
        let before = self.known.remove(&place);
        let fires = |known: &Known<Finding>| known.value().map(|one| one.fires);
        let heard = match &before {
            Some(before) if fires(&before.finding) == fires(&finding) => Heard::TheSame,
            Some(_) | None => Heard::Otherwise,
        };
        if let (Known::Unknown { since, .. }, Some(Known::Unknown { since: first, .. })) =
            (&mut finding, before.as_ref().map(|before| &before.finding))
        {
            *since = (*since).min(*first);
        }
        self.known.insert(place, Answer { trigger, at: source.clock.monotonic(), finding });
        heard
    }
}

/// Asks one trigger, and does not wait for ever.
async fn put(
    source: Source,
    (place, trigger, now): (Place, Trigger, Timestamp),
) -> (Place, Trigger, Known<Finding>) {
    let finding = match select(source.triggers.evaluate(&trigger, now), source.clock.sleep(GIVE_UP)).await {
        Either::Left((finding, _)) => finding,
        Either::Right(_) => {
            Known::Unknown { why: format!("there was no answer within {GIVE_UP}"), since: now }
        }
    };
    (place, trigger, finding)
}
