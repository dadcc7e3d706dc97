//! Time that passes when somebody lets it: the one clock of a world, and the clocks that processes read.
//!
//! Whoever waits leaves a waker; [`Timeline::advance`] sets the time and wakes those whose time has come. A fuzz
//! run jumps from one instant to the next, a live demonstration follows the real clock with a factor: both call
//! the same function.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use async_trait::async_trait;
use muster_model::{Clock, Duration, Timestamp, steady::SteadyClock};

/// When worlds begin, unless told otherwise: a Monday.
pub const START: Timestamp = Timestamp::from_millis(1_767_571_200_000);

/// True time, in milliseconds since the world began.
#[derive(Debug)]
pub struct Timeline {
    start: Timestamp,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    now: u64,
    count: u64,
    timers: BTreeMap<(u64, u64), Waker>,
}

impl Timeline {
    pub fn new(start: Timestamp) -> Arc<Self> {
        Arc::new(Self { start, inner: Mutex::default() })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> Duration {
        Duration::from_millis(self.inner().now)
    }

    /// The wall clock that is right.
    pub fn wall(&self) -> Timestamp {
        self.start.saturating_add(self.now())
    }

    pub const fn start(&self) -> Timestamp {
        self.start
    }

    /// The next moment at which somebody wants to be woken.
    pub fn next(&self) -> Option<Duration> {
        self.inner().timers.first_key_value().map(|((at, _), _)| Duration::from_millis(*at))
    }

    /// Sets the time, which never goes back, and wakes everybody whose time has come, in order.
    pub fn advance(&self, to: Duration) {
        let mut due = Vec::new();
        {
            let mut inner = self.inner();
            inner.now = inner.now.max(to.millis());
            let now = inner.now;
            while let Some(first) = inner.timers.first_entry().filter(|first| first.key().0 <= now) {
                due.push(first.remove());
            }
        }
        for waker in due {
            waker.wake();
        }
    }

    /// Waits until the time has come.
    pub fn until(self: &Arc<Self>, at: Duration) -> Sleep {
        Sleep { line: Arc::clone(self), at: at.millis(), key: None }
    }
}

/// See [`Timeline::until`].
#[derive(Debug)]
pub struct Sleep {
    line: Arc<Timeline>,
    at: u64,
    key: Option<(u64, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let at = self.at;
        let old = self.key.take();
        let mut inner = self.line.inner();
        if inner.now >= at {
            if let Some(key) = old {
                inner.timers.remove(&key);
            }
            return Poll::Ready(());
        }
        let key = old.unwrap_or_else(|| {
            inner.count += 1;
            (at, inner.count)
        });
        inner.timers.insert(key, context.waker().clone());
        drop(inner);
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.line.inner().timers.remove(&key);
        }
    }
}

/// How a process's clocks differ from the truth.
#[derive(Debug, Clone, Copy)]
struct Skew {
    /// From here on, in true milliseconds.
    from: u64,
    /// What the monotonic clock said then.
    monotonic: u64,
    /// What the wall clock said then.
    wall: i64,
    /// Milliseconds that pass on both for one true one.
    rate: u64,
}

/// What the machine of one process shows: clocks that may jump and run fast, as real ones do.
#[derive(Debug)]
struct Hardware {
    line: Arc<Timeline>,
    skews: Mutex<Vec<Skew>>,
}

impl Hardware {
    fn new(line: Arc<Timeline>) -> Arc<Self> {
        let from = line.now().millis();
        let wall = line.wall().millis();
        // A monotonic clock starts anywhere; not at zero, so that nobody mistakes it for an age.
        let skew = Skew { from, monotonic: from + 1_000_000, wall, rate: 1 };
        Arc::new(Self { line, skews: Mutex::new(vec![skew]) })
    }

    fn skew_at(&self, at: u64) -> Skew {
        let skews = self.skews.lock().unwrap_or_else(PoisonError::into_inner);
        let place = skews.partition_point(|skew| skew.from <= at);
        skews[place.saturating_sub(1)]
    }

    fn was_never_wrong(&self) -> bool {
        self.skews.lock().unwrap_or_else(PoisonError::into_inner).len() == 1
    }

    fn wall_at(&self, at: Duration) -> Timestamp {
        let skew = self.skew_at(at.millis());
        let passed = at.millis().saturating_sub(skew.from).saturating_mul(skew.rate);
        Timestamp::from_millis(skew.wall.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX)))
    }

    fn monotonic_at(&self, at: Duration) -> Duration {
        let skew = self.skew_at(at.millis());
        let passed = at.millis().saturating_sub(skew.from).saturating_mul(skew.rate);
        Duration::from_millis(skew.monotonic + passed)
    }

    fn change(&self, change: impl FnOnce(&mut Skew)) {
        let now = self.line.now();
        let (wall, monotonic) = (self.wall_at(now).millis(), self.monotonic().millis());
        let mut skew = self.skew_at(now.millis());
        (skew.from, skew.wall, skew.monotonic) = (now.millis(), wall, monotonic);
        change(&mut skew);
        self.skews.lock().unwrap_or_else(PoisonError::into_inner).push(skew);
    }
}

#[async_trait]
impl Clock for Hardware {
    fn now(&self) -> Timestamp {
        self.wall_at(self.line.now())
    }

    fn monotonic(&self) -> Duration {
        self.monotonic_at(self.line.now())
    }

    async fn sleep(&self, length: Duration) {
        let now = self.line.now();
        let rate = self.skew_at(now.millis()).rate;
        // A timer may be late, never early.
        let length = Duration::from_millis(length.millis().div_ceil(rate));
        self.line.until(now.saturating_add(length)).await;
    }
}

/// The clock of one process as production wires it: the steady one, on hardware that may be wrong.
#[derive(Debug)]
pub struct ProcessClock {
    hardware: Arc<Hardware>,
    steady: SteadyClock,
}

impl ProcessClock {
    /// Clocks that are right.
    pub fn new(line: Arc<Timeline>) -> Arc<Self> {
        Self::off_by(line, 0)
    }

    /// Clocks of a machine whose wall clock is wrong by so many milliseconds when the process starts.
    pub fn off_by(line: Arc<Timeline>, millis: i64) -> Arc<Self> {
        let hardware = Hardware::new(line);
        if millis != 0 {
            hardware.change(|skew| skew.wall = skew.wall.saturating_add(millis));
        }
        let steady = SteadyClock::new(Arc::clone(&hardware) as _);
        Arc::new(Self { hardware, steady })
    }

    /// What this process would have noted at a true moment that has passed.
    pub fn wall_at(&self, at: Duration) -> Timestamp {
        let age = self.hardware.monotonic().saturating_sub(self.hardware.monotonic_at(at));
        self.steady.now().saturating_sub(age)
    }

    /// The same for many moments at once.
    pub(super) fn noted(&self) -> impl Fn(Duration) -> Timestamp + '_ {
        let (now, tick, truth) = (self.steady.now(), self.hardware.monotonic(), self.hardware.line.now());
        let even = self.hardware.was_never_wrong();
        move |at| {
            let then = || tick.saturating_sub(self.hardware.monotonic_at(at));
            now.saturating_sub(if even { truth.saturating_sub(at) } else { then() })
        }
    }

    /// The wall clock jumps by so many milliseconds; the monotonic one does not notice.
    pub fn jump(&self, millis: i64) {
        self.hardware.change(|skew| skew.wall = skew.wall.saturating_add(millis));
    }

    /// Both clocks run at this rate from now on.
    pub fn run_at(&self, rate: u64) {
        self.hardware.change(|skew| skew.rate = rate.max(1));
    }
}

#[async_trait]
impl Clock for ProcessClock {
    fn now(&self) -> Timestamp {
        self.steady.now()
    }

    fn monotonic(&self) -> Duration {
        self.hardware.monotonic()
    }

    async fn sleep(&self, length: Duration) {
        self.hardware.sleep(length).await;
    }
}

/// A clock whose short sleeps are longer: for upkeep that looks twice a second whether something is due. A day
/// has 170,000 half seconds, and nothing is due in nearly all of them.
#[derive(Debug)]
pub struct PatientClock {
    pub clock: Arc<dyn Clock>,
    pub least: Duration,
}

#[async_trait]
impl Clock for PatientClock {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    async fn sleep(&self, length: Duration) {
        self.clock.sleep(length.max(self.least)).await;
    }
}
