//! Runs processes on a world, one thread, as fast as it goes, with the same trace for the same world.
//!
//! Tasks that were woken are polled in the order in which they were made; when none is ready, time jumps to the next instant at
//! which somebody wants to be woken or something happens. Nothing else makes time pass.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use muster_model::{
    Clock as _, ClusterId, Duration, Timestamp,
    host::{
        BareMetalNodeStatus, Phase,
        keys::{self, HostRecord},
    },
    store::{Store, StoreError},
};
use muster_store::memory::Memory;

use super::{
    What, World,
    process::{Manner, Process, Start, Task},
};

/// Commits that the store remembers: a watcher that is further behind reads everything again.
const HISTORY: usize = 2_000;

/// Tasks that were woken. Not in the order of the wakes: channels wake their receivers in any order.
#[derive(Debug, Default)]
struct Queue(Mutex<BTreeSet<u64>>);

impl Queue {
    fn push(&self, id: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    fn take(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug)]
struct Woken {
    id: u64,
    queued: AtomicBool,
    queue: Arc<Queue>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.queue.push(self.id);
        }
    }
}

struct Job {
    process: Option<usize>,
    task: Pin<Box<dyn Future<Output = ()> + Send>>,
    woken: Arc<Woken>,
}

/// A process, or the place of one that was killed.
#[derive(Debug)]
struct Place {
    process: Option<Process>,
    /// Stands still: what wakes it waits.
    paused: bool,
    waiting: Vec<u64>,
}

/// See the module.
pub struct Simulation {
    world: Arc<World>,
    store: Arc<dyn Store>,
    clusters: Vec<ClusterId>,
    queue: Arc<Queue>,
    jobs: BTreeMap<u64, Job>,
    count: u64,
    places: Vec<Place>,
    manner: Manner,
    /// By how much clocks are wrong now, as a process that starts finds them.
    pub(super) jumps: Vec<i64>,
    /// What strikes which process now.
    pub(super) struck: Vec<(What, usize)>,
    /// Pools by their place, and the bounds that they had before somebody edited them.
    pub(super) pools: Vec<String>,
    pub(super) bounds: BTreeMap<String, (u32, u32)>,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation")
            .field("jobs", &self.jobs.len())
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

impl Simulation {
    /// A world with a store and nobody in it.
    pub fn new(start: Timestamp, manner: Manner) -> Self {
        Self {
            world: World::new(start),
            store: Arc::new(Memory::new(HISTORY)),
            clusters: Vec::new(),
            queue: Arc::default(),
            jobs: BTreeMap::new(),
            count: 0,
            places: Vec::new(),
            manner,
            jumps: Vec::new(),
            struck: Vec::new(),
            pools: Vec::new(),
            bounds: BTreeMap::new(),
        }
    }

    pub const fn world(&self) -> &Arc<World> {
        &self.world
    }

    pub const fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The clusters that processes plan for, from the next start on.
    pub fn plan_for(&mut self, cluster: ClusterId) {
        self.clusters.push(cluster);
    }

    /// How processes run, from the next start on.
    pub fn set_manner(&mut self, manner: Manner) {
        self.manner = manner;
    }

    /// Starts a process and returns its number.
    pub async fn start(&mut self) -> Result<usize, StoreError> {
        let number = self.places.len();
        let name = format!("muster-{number}");
        let (process, tasks) = Process::start(&Start {
            world: &self.world,
            store: &self.store,
            name: &name,
            clusters: &self.clusters,
            manner: &self.manner,
            clock_off_by: self.jumps.iter().sum(),
        })
        .await?;
        self.struck.extend(self.jumps.iter().map(|millis| (What::ClockJump { millis: *millis }, number)));
        self.world.say(&format!("{name} starts"));
        self.places.push(Place { process: Some(process), paused: false, waiting: Vec::new() });
        for task in tasks {
            self.spawn(Some(number), task);
        }
        Ok(number)
    }

    /// Lets a task run beside those of a process, and end with it.
    pub fn attend(&mut self, number: usize, task: Task) {
        self.spawn(Some(number), task);
    }

    fn spawn(&mut self, process: Option<usize>, task: Task) -> u64 {
        self.count += 1;
        let woken =
            Arc::new(Woken { id: self.count, queued: AtomicBool::new(true), queue: Arc::clone(&self.queue) });
        self.queue.push(self.count);
        // Tokio's budget for one poll would never be renewed in here.
        let task = Box::pin(tokio::task::unconstrained(task));
        self.jobs.insert(self.count, Job { process, task, woken });
        self.count
    }

    pub fn process(&self, number: usize) -> Option<&Process> {
        self.places.get(number)?.process.as_ref()
    }

    pub fn processes(&self) -> impl Iterator<Item = (usize, &Process)> {
        self.places.iter().enumerate().filter_map(|(number, place)| Some((number, place.process.as_ref()?)))
    }

    /// The process that leads, if one does and knows it.
    pub fn leader(&self) -> Option<usize> {
        self.processes()
            .find(|(number, process)| process.leads() && !self.places[*number].paused)
            .map(|(number, _)| number)
    }

    /// Ends a process as `kill -9` does: nothing of it runs again.
    pub fn kill(&mut self, number: usize) {
        if let Some(place) = self.places.get_mut(number)
            && let Some(process) = place.process.take()
        {
            self.world.say(&format!("{} is killed", process.name));
            self.jobs.retain(|_, job| job.process != Some(number));
        }
    }

    /// Lets a process stand still, or go on.
    pub fn pause(&mut self, number: usize, paused: bool) {
        let Some(place) = self.places.get_mut(number) else { return };
        place.paused = paused;
        if let Some(process) = &place.process {
            self.world.say(&format!("{} {}", process.name, if paused { "stands still" } else { "goes on" }));
            let until = if paused { u64::MAX } else { self.world.now().millis() };
            self.world.state().judge.still_until.insert(process.name.to_string(), until);
        }
        if !paused {
            for id in std::mem::take(&mut place.waiting) {
                self.queue.push(id);
            }
        }
    }

    /// Polls whatever was woken, until nothing is: in rounds, and in the order of the tasks in each of them.
    fn settle(&mut self) {
        loop {
            let woken = self.queue.take();
            if woken.is_empty() {
                return;
            }
            for id in woken {
                self.poll(id);
            }
        }
    }

    fn poll(&mut self, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if let Some(place) = job.process.and_then(|number| self.places.get_mut(number))
            && place.paused
        {
            place.waiting.push(id);
            return;
        }
        job.woken.queued.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&job.woken));
        if job.task.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(()) {
            self.jobs.remove(&id);
        }
    }

    /// Goes to the next instant, at most to `limit`; `false` once that is reached.
    pub fn step(&mut self, limit: Duration) -> bool {
        self.settle();
        let next = self.world.next().unwrap_or(limit).min(limit);
        if next > self.world.now() || next < limit {
            self.world.step(next);
            self.settle();
            return true;
        }
        false
    }

    /// Runs until `to`. Wishes that only a runner can grant are granted by [`Simulation::grant`].
    pub async fn run_until(&mut self, to: Duration) -> Result<(), StoreError> {
        while self.step(to) {
            self.grant().await?;
        }
        Ok(())
    }

    pub async fn run_for(&mut self, length: Duration) -> Result<(), StoreError> {
        let to = self.world.now().saturating_add(length);
        self.run_until(to).await
    }

    /// Waits for something while the world goes on, for as long as `limit` of its time.
    pub fn block<T: Send + 'static>(
        &mut self,
        limit: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let done: Arc<Mutex<Option<T>>> = Arc::default();
        let told = Arc::clone(&done);
        self.spawn(
            None,
            Box::pin(async move {
                let value = work.await;
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            }),
        );
        let end = self.world.now().saturating_add(limit);
        loop {
            let more = self.step(end);
            if let Some(value) = done.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return Some(value);
            }
            if !more {
                return None;
            }
        }
    }

    /// Where a host stands, as stored.
    pub async fn phase(&self, host: &str) -> Result<Option<Phase>, StoreError> {
        Ok(self.status(host).await?.map(|status| status.phase))
    }

    pub async fn status(&self, host: &str) -> Result<Option<BareMetalNodeStatus>, StoreError> {
        let entry = self.store.get(&keys::host(host, HostRecord::Status)).await?;
        Ok(entry.and_then(|entry| serde_json::from_slice(&entry.value).ok()))
    }

    /// The wall clock that is right.
    pub fn wall(&self) -> Timestamp {
        self.world.timeline().wall()
    }

    /// Numbers of the processes that run.
    pub fn alive(&self) -> BTreeSet<usize> {
        self.processes().map(|(number, _)| number).collect()
    }

    /// What a process's clock shows.
    pub fn clock_of(&self, number: usize) -> Option<Timestamp> {
        self.process(number).map(|process| process.clock.now())
    }
}
