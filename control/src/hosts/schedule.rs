//! The scheduler: whose turn it is, how many at once, and what wakes whom. One future, no tasks.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex},
};

use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, OptionFuture},
    stream::FuturesUnordered,
};
use muster_model::{
    Clock, Duration,
    host::{BareMetalNodeSpec, FreezeMode, keys},
    observe::ClusterPort,
    store::{Change, Entry, Fence, List, Revision, Store, StoreError, WatchEvent, WatchStream},
};
use tokio_util::sync::CancellationToken;

use super::{
    around::Around,
    book::{Book, Touched},
    energy,
    failpoint::Failpoints,
    figures::{Counters, Figures, HostFigure},
    gate::Gate,
    nodes,
    pace::Pace,
    turn::{Memo, Next, Shared, Trigger, turn},
    ways::{Drivers, access_version, bmc_key},
    witness::Witness,
};
use crate::lead::Lead;

/// Turns under way at once. Each waits for a BMC most of the time; a third of 5,000 that hang for 30 s still
/// leave room for the others.
const MAX_TURNS: usize = 256;
/// Of these, polls: operations always find a place.
const MAX_POLLS: usize = 192;
/// Entries per page when the inventory is loaded.
const LOAD_PAGE: usize = 1_000;
/// First and longest pause after the store did not answer.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(5);
/// Between two writes of metrics.
const FLUSH: Duration = Duration::from_secs(15);
/// Between two looks at what a cluster's changes mean for its hosts.
const CLUSTER_PAUSE: Duration = Duration::from_secs(1);
/// Between looks at leadership that ran out, and at what nobody tells the loop of.
const GLANCE: Duration = Duration::from_secs(1);
/// Over which time hosts with an operation under way are taken up after a start.
const TAKE_UP: Duration = Duration::from_millis(500);

/// What the loop works with.
#[derive(Debug)]
pub struct Setup {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub lead: Arc<Lead>,
    pub drivers: Drivers,
    pub around: Arc<dyn Around>,
    /// Where power calls are written down before they are made.
    pub witness: Arc<dyn Witness>,
    /// Divides every time limit and pause; 1 in production.
    pub time_factor: u32,
    /// How long a fresh leadership lasts without a renewal; calls are kept within it.
    pub renew_deadline: Duration,
    /// How long between two renewals.
    pub renew_every: Duration,
    pub failpoints: Failpoints,
}

/// See the module.
#[derive(Debug)]
pub struct HostLoop {
    shared: Arc<Shared>,
}

impl HostLoop {
    pub fn new(setup: Setup) -> Self {
        let room = setup.renew_deadline.saturating_sub(setup.renew_every).saturating_sub(setup.renew_every);
        Self {
            shared: Arc::new(Shared {
                store: setup.store,
                clock: setup.clock,
                lead: setup.lead,
                drivers: setup.drivers,
                around: setup.around,
                witness: setup.witness,
                pace: Pace { factor: setup.time_factor },
                lease_room: room,
                failpoints: setup.failpoints,
                counters: Counters::default(),
                book: Arc::default(),
                gate: Mutex::new(Gate::default()),
                views: Mutex::default(),
                metrics: Mutex::default(),
            }),
        }
    }

    /// Numbers for a scrape.
    pub fn figures(&self) -> Figures {
        self.shared.figures()
    }

    /// A row for every host.
    pub fn host_figures(&self) -> Vec<HostFigure> {
        self.shared.host_figures()
    }

    /// Runs until `stop`, then waits for the turns under way and ends the drivers' sessions.
    pub async fn run(&self, stop: CancellationToken) {
        let mut pause = RETRY_FIRST;
        loop {
            let mut run = Run::new(Arc::clone(&self.shared));
            let ended = run.follow(&stop, &mut pause).await;
            run.drain().await;
            match ended {
                Ok(()) => break,
                Err(error) => {
                    tracing::warn!(code = error.code(), %error, "the host loop lost the store; it begins again");
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.shared.clock.sleep(pause) => {}
            }
            pause = Duration::from_millis((pause.millis() * 2).min(RETRY_LONGEST.millis()));
        }
        self.shared.drivers.close().await;
    }
}

/// One host as the scheduler sees it.
#[derive(Debug)]
struct Slot {
    bmc: Arc<str>,
    /// What its BMC needs between two conversations.
    spacing: Duration,
    /// Taken out while its turn is under way.
    memo: Option<Memo>,
    due: Duration,
    /// Something happened to it that its next turn has to look at.
    news: bool,
    queued: bool,
    digest: u64,
    /// The way to its BMC, with the version of its account, as it was last looked at.
    access: u64,
}

/// When a BMC was last talked to, and for which host.
#[derive(Debug)]
struct Spoken {
    at: Duration,
    host: Arc<str>,
}

/// The host whose turn comes next at a BMC, so that another one that is busy does not keep it waiting for ever.
#[derive(Debug)]
struct Claim {
    host: Arc<str>,
    until: Duration,
}

type TurnFuture = BoxFuture<'static, (Arc<str>, Memo, Next)>;
type ClusterChange = BoxFuture<'static, (Arc<str>, Arc<dyn ClusterPort>)>;

/// The loop between two losses of the store.
struct Run {
    shared: Arc<Shared>,
    slots: BTreeMap<Arc<str>, Slot>,
    /// By monotonic time; an entry that does not say its slot's time is stale.
    timers: BinaryHeap<Reverse<(Duration, u64, Arc<str>)>>,
    count: u64,
    urgent: VecDeque<Arc<str>>,
    polls: VecDeque<Arc<str>>,
    turns: FuturesUnordered<TurnFuture>,
    polling: HashSet<Arc<str>>,
    /// BMCs that are talked to now, and when the others were last.
    busy: HashSet<Arc<str>>,
    spoken: HashMap<Arc<str>, Spoken>,
    claims: HashMap<Arc<str>, Claim>,
    changes: FuturesUnordered<ClusterChange>,
    watched: HashMap<Arc<str>, (Arc<dyn ClusterPort>, u64)>,
    fence: Option<Fence>,
    /// What stopped everything when it was last looked at.
    freeze: FreezeMode,
    /// What [`Around::credentials_changed`] said last.
    credentials: u64,
    /// What [`Around::advice_changed`] said last.
    advice: u64,
    next_flush: Duration,
}

impl Run {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            slots: BTreeMap::new(),
            timers: BinaryHeap::new(),
            count: 0,
            urgent: VecDeque::new(),
            polls: VecDeque::new(),
            turns: FuturesUnordered::new(),
            polling: HashSet::new(),
            busy: HashSet::new(),
            spoken: HashMap::new(),
            claims: HashMap::new(),
            changes: FuturesUnordered::new(),
            watched: HashMap::new(),
            fence: None,
            freeze: FreezeMode::None,
            credentials: 0,
            advice: 0,
            next_flush: Duration::ZERO,
        }
    }

    /// Follows the store until it is lost or `stop`.
    async fn follow(&mut self, stop: &CancellationToken, pause: &mut Duration) -> Result<(), StoreError> {
        let from = self.load().await?;
        let mut watch: WatchStream = self.shared.store.watch(keys::ROOT, from).await?;
        *pause = RETRY_FIRST;
        let mut hands = self.shared.lead.subscribe();
        let mut around = self.shared.around.news();
        loop {
            self.take_over().await?;
            self.note_freeze();
            self.note_credentials();
            self.note_advice();
            self.start_turns();
            self.watch_clusters();
            self.keep_books().await?;
            let leads = self.fence.is_some() || hands.borrow().is_some();
            let wait = self.until_next(leads, around.is_some());
            let clock = Arc::clone(&self.shared.clock);
            let turns: OptionFuture<_> = (!self.turns.is_empty()).then(|| self.turns.next()).into();
            let news: OptionFuture<_> = (!self.changes.is_empty()).then(|| self.changes.next()).into();
            let stir: OptionFuture<_> = around.as_mut().map(tokio::sync::watch::Receiver::changed).into();
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                _ = hands.changed() => {}
                Some(Ok(())) = stir => {}
                event = watch.next() => match event {
                    Some(event) => self.apply(event?),
                    None => return Err(StoreError::Unavailable {
                        store: "of the inventory".into(),
                        why: "its watch ended".into(),
                    }),
                },
                Some(Some(done)) = turns => self.ended(done),
                Some(Some((cluster, port))) = news => self.cluster_changed(&cluster, &port),
                () = pause_for(&*clock, wait) => {}
            }
        }
    }

    /// Lets the turns under way finish: a power call that was sent is remembered.
    async fn drain(&mut self) {
        while let Some(done) = self.turns.next().await {
            self.ended(done);
        }
        if let Some(lead) = self.shared.lead.now()
            && let Err(error) = energy::flush(&self.shared, &lead).await
        {
            tracing::warn!(%error, "the last metrics of hosts were not written");
        }
    }

    /// Reads the whole inventory at one revision.
    async fn load(&mut self) -> Result<Revision, StoreError> {
        let mut book = Book::default();
        let take = |entry: Entry| {
            let (revision, key) = (entry.modified, entry.key.clone());
            let _ = book.apply(&Change { revision, key, entry: Some(entry) });
        };
        let list = List { limit: LOAD_PAGE, ..List::prefix(keys::ROOT) };
        let revision = list.each(&*self.shared.store, take).await?;
        book.revision = revision;
        tracing::info!(hosts = book.hosts.len(), %revision, "loaded the inventory");
        *self.shared.book() = book;
        self.fence = None;
        Ok(revision)
    }

    /// Notices a change of leadership. A new leader reads everything afresh before it acts.
    async fn take_over(&mut self) -> Result<(), StoreError> {
        let now = self.shared.lead.now().map(|lead| lead.fence);
        if now == self.fence {
            return Ok(());
        }
        if now.is_some() && self.shared.book().revision < now.as_ref().map_or(Revision::ZERO, |one| one.epoch)
        {
            let revision = self.shared.book().revision;
            let loaded = self.load().await?;
            tracing::debug!(before = %revision, after = %loaded, "read afresh as the new leader");
        }
        self.fence.clone_from(&now);
        self.freeze = self.shared.around.freeze();
        self.slots.retain(|_, slot| slot.memo.is_none()); // those under way come back by themselves
        self.timers.clear();
        self.urgent.clear();
        self.polls.clear();
        self.claims.clear();
        if now.is_some() {
            let names: Vec<Arc<str>> = self.shared.book().hosts.keys().cloned().collect();
            self.shared.gate().take_over(self.shared.clock.monotonic());
            for name in names {
                self.enter(&name);
            }
        }
        Ok(())
    }

    /// Gives a host its place in the polls' interval, or takes up what is under way.
    fn enter(&mut self, name: &Arc<str>) {
        let Some(record) = self.shared.book().hosts.get(name).cloned() else { return };
        let pace = self.shared.pace;
        let phase = record.status.as_ref().map(|status| status.phase);
        let under_way = record.op.is_some() || phase.is_none() || record.intent.is_some();
        let offset = match phase {
            Some(phase) if !under_way => {
                let poll = pace.poll(phase, None, 0).min(pace.scaled(Duration::from_secs(60)));
                Pace::offset(name, poll)
            }
            _ => Pace::offset(name, TAKE_UP),
        };
        let bmc = record.spec.as_ref().map_or_else(|| name.to_string(), |spec| bmc_key(spec, name));
        let drivers = record.spec.as_ref().map(|spec| spec.effective_drivers()).unwrap_or_default();
        let spacing = pace.spacing(&drivers);
        let access = record.spec.as_ref().map_or(0, |spec| self.access(spec));
        let slot = self.slots.entry(Arc::clone(name)).or_insert_with(|| Slot {
            bmc: Arc::from(bmc.as_str()),
            spacing,
            memo: Some(Memo::default()),
            due: Duration::ZERO,
            news: false,
            queued: false,
            digest: 0,
            access,
        });
        slot.spacing = spacing;
        if slot.memo.is_some() {
            slot.bmc = Arc::from(bmc.as_str()); // one that is under way gets its new BMC when it comes back
        }
        self.due_in(name, offset);
    }

    fn due_in(&mut self, name: &Arc<str>, length: Duration) {
        let due = self.shared.clock.monotonic().saturating_add(length);
        if let Some(slot) = self.slots.get_mut(name) {
            slot.due = due;
            self.count += 1;
            self.timers.push(Reverse((due, self.count, Arc::clone(name))));
        }
    }

    /// Something was said about a host: its turn comes now.
    fn wake(&mut self, name: &Arc<str>) {
        if self.fence.is_none() {
            return;
        }
        if !self.slots.contains_key(name) {
            self.enter(name);
        }
        if let Some(slot) = self.slots.get_mut(name) {
            slot.news = true;
            if slot.memo.is_some() {
                self.due_in(name, Duration::ZERO);
            }
        }
    }

    fn apply(&mut self, event: WatchEvent) {
        let changes = match event {
            WatchEvent::Changes(changes) => changes,
            WatchEvent::Progress(revision) => {
                let mut book = self.shared.book();
                book.revision = book.revision.max(revision);
                return;
            }
        };
        let touched: Vec<Touched> = {
            let mut book = self.shared.book();
            changes.iter().map(|change| book.apply(change)).collect()
        };
        for touched in touched {
            match touched {
                Touched::Nothing => {}
                Touched::Host(name) => {
                    self.respell(&name);
                    self.wake(&name);
                }
                Touched::Pool(pool) => {
                    let of_pool =
                        |record: &super::Record| record.spec.as_ref().is_some_and(|spec| spec.pool == pool);
                    let names: Vec<_> = self
                        .shared
                        .book()
                        .hosts
                        .iter()
                        .filter(|(_, record)| of_pool(record))
                        .map(|(name, _)| Arc::clone(name))
                        .collect();
                    for name in &names {
                        self.wake(name);
                    }
                }
                Touched::All => {
                    let names: Vec<_> = self.shared.book().hosts.keys().cloned().collect();
                    for name in &names {
                        self.wake(name);
                    }
                }
            }
        }
    }

    /// A freeze that begins or ends outside of the inventory concerns every host: what waited for its end goes on now
    /// and not with the next poll.
    fn note_freeze(&mut self) {
        let freeze = self.shared.around.freeze();
        if std::mem::replace(&mut self.freeze, freeze) != freeze {
            let names: Vec<_> = self.shared.book().hosts.keys().cloned().collect();
            for name in &names {
                self.wake(name);
            }
        }
    }

    /// A pool that may act from now on, or only gives advice, is looked at now and not with the next poll.
    fn note_advice(&mut self) {
        let changed = self.shared.around.advice_changed();
        let before = std::mem::replace(&mut self.advice, changed);
        // What is learned of pools for the first time is no change.
        if before == changed || before == 0 {
            return;
        }
        let names: Vec<_> = self.shared.book().hosts.keys().cloned().collect();
        for name in &names {
            self.wake(name);
        }
    }

    fn access(&self, spec: &BareMetalNodeSpec) -> u64 {
        access_version(spec, |credential| self.shared.around.credential_version(credential))
    }

    /// A credential that was rotated wakes the hosts that use it: one that was refused is tried with the new value now
    /// and not with the next poll (BM-7.9).
    fn note_credentials(&mut self) {
        let changed = self.shared.around.credentials_changed();
        let before = std::mem::replace(&mut self.credentials, changed);
        if before == changed || self.fence.is_none() {
            return;
        }
        let specs: Vec<_> = {
            let book = self.shared.book();
            let spec_of = |name: &Arc<str>| book.hosts.get(name).and_then(|record| record.spec.clone());
            self.slots.keys().filter_map(|name| Some((Arc::clone(name), spec_of(name)?))).collect()
        };
        for (name, spec) in specs {
            let access = self.access(&spec);
            let Some(slot) = self.slots.get_mut(&name) else { continue };
            // What is learned of credentials for the first time is no rotation.
            if std::mem::replace(&mut slot.access, access) != access && before != 0 {
                self.wake(&name);
            }
        }
    }

    /// A host's BMC may have another address now, and be spoken to in another way.
    fn respell(&mut self, name: &Arc<str>) {
        let book = self.shared.book();
        let spec = book.hosts.get(name).and_then(|record| record.spec.clone());
        if let (Some(spec), Some(slot)) = (spec, self.slots.get_mut(name)) {
            let bmc = bmc_key(&spec, name);
            slot.spacing = self.shared.pace.spacing(&spec.effective_drivers());
            if *slot.bmc != *bmc && slot.memo.is_some() {
                slot.bmc = Arc::from(bmc.as_str());
            }
        }
    }

    /// Puts everything that is due into the queues, and takes from them what may run.
    fn start_turns(&mut self) {
        if self.fence.is_none() {
            return;
        }
        let now = self.shared.clock.monotonic();
        while let Some(Reverse((due, _, name))) = self.timers.peek().cloned() {
            if due > now {
                break;
            }
            self.timers.pop();
            let Some(slot) = self.slots.get_mut(&name) else { continue };
            if slot.due != due || slot.memo.is_none() || slot.queued {
                continue;
            }
            slot.queued = true;
            let urgent = slot.news || self.shared.book().hosts.get(&name).is_some_and(|one| one.op.is_some());
            if urgent { self.urgent.push_back(name) } else { self.polls.push_back(name) }
        }
        for _ in 0..self.urgent.len() {
            if self.turns.len() >= MAX_TURNS {
                return;
            }
            let Some(name) = self.urgent.pop_front() else { break };
            self.start(name, false, now);
        }
        for _ in 0..self.polls.len() {
            if self.turns.len() >= MAX_TURNS || self.polling.len() >= MAX_POLLS {
                return;
            }
            let Some(name) = self.polls.pop_front() else { break };
            self.start(name, true, now);
        }
    }

    /// Starts a host's turn, unless its BMC is talked to for another host or has just been.
    fn start(&mut self, name: Arc<str>, poll: bool, now: Duration) {
        let Some(slot) = self.slots.get_mut(&name) else { return };
        slot.queued = false;
        let (bmc, spacing) = (Arc::clone(&slot.bmc), slot.spacing);
        if let Some(wait) = self.too_early(&name, &bmc, spacing, poll, now) {
            self.due_in(&name, wait);
            return;
        }
        let Some(slot) = self.slots.get_mut(&name) else { return };
        let Some(mut memo) = slot.memo.take() else { return };
        if self.claims.get(&bmc).is_some_and(|claim| claim.host == name) {
            self.claims.remove(&bmc);
        }
        let trigger = if std::mem::take(&mut slot.news) { Trigger::News } else { Trigger::Time };
        self.busy.insert(Arc::clone(&slot.bmc));
        if poll {
            self.polling.insert(Arc::clone(&name));
        }
        self.shared.counters.turned();
        let shared = Arc::clone(&self.shared);
        self.turns.push(
            async move {
                let next = turn(&shared, &name, &mut memo, trigger).await;
                (name, memo, next)
            }
            .boxed(),
        );
    }

    /// How long a host has to wait for its BMC: until the turn there of another host is over, and then for as long as the
    /// BMC needs. Operations of one host follow one another without a pause.
    fn too_early(
        &mut self,
        name: &Arc<str>,
        bmc: &Arc<str>,
        spacing: Duration,
        poll: bool,
        now: Duration,
    ) -> Option<Duration> {
        let busy = self.busy.contains(bmc).then(|| self.shared.pace.scaled(Duration::from_millis(100)));
        let apart = self.spoken.get(bmc).filter(|last| poll || last.host != *name);
        let left = apart.map(|last| last.at.saturating_add(spacing).saturating_sub(now));
        let claim = self.claims.get(bmc).filter(|claim| now < claim.until);
        let wait = match (busy.or(left.filter(|left| *left > Duration::ZERO)), claim) {
            (None, Some(claim)) if claim.host != *name => self.shared.pace.scaled(Duration::from_millis(100)),
            (None, _) => return None,
            (Some(wait), _) => wait,
        };
        let another = self.spoken.get(bmc).is_some_and(|last| last.host != *name);
        if claim.is_none_or(|claim| claim.host == *name) && another {
            let until = now.saturating_add(wait).saturating_add(spacing);
            self.claims.insert(Arc::clone(bmc), Claim { host: Arc::clone(name), until });
        }
        Some(wait)
    }

    fn ended(&mut self, (name, mut memo, next): (Arc<str>, Memo, Next)) {
        self.polling.remove(&name);
        let now = self.shared.clock.monotonic();
        let Some(slot) = self.slots.get_mut(&name) else { return };
        // As it was when the turn began: its address may be another one by now.
        let bmc = Arc::clone(&slot.bmc);
        self.busy.remove(&bmc);
        if std::mem::take(&mut memo.spoke) {
            let host = Arc::clone(&name);
            self.spoken.insert(Arc::clone(&bmc), Spoken { at: now, host });
        }
        slot.memo = Some(memo);
        let news = slot.news;
        self.respell(&name);
        match next {
            Next::Never => {
                self.spoken.remove(&bmc);
                self.slots.remove(&name);
            }
            Next::In(_) if news => self.due_in(&name, Duration::ZERO),
            Next::In(length) => self.due_in(&name, length),
        }
    }

    /// Sees to it that every connected cluster is watched for changes.
    fn watch_clusters(&mut self) {
        for (name, port) in &*self.shared.around.clusters() {
            // A connection that is made anew is another port of the same name; the old one may stay silent for good.
            if self.watched.get(name).is_some_and(|(known, _)| Arc::ptr_eq(known, port)) {
                continue;
            }
            self.watched.insert(Arc::clone(name), (Arc::clone(port), 0));
            self.await_cluster(Arc::clone(name), Arc::clone(port), 0, Duration::ZERO);
        }
    }

    fn await_cluster(&mut self, name: Arc<str>, port: Arc<dyn ClusterPort>, seen: u64, pause: Duration) {
        let clock = Arc::clone(&self.shared.clock);
        self.changes.push(
            async move {
                if pause > Duration::ZERO {
                    clock.sleep(pause).await;
                }
                port.changed(seen).await;
                (name, port)
            }
            .boxed(),
        );
    }

    /// Wakes the hosts of a cluster whose nodes or pods are not as they were.
    fn cluster_changed(&mut self, cluster: &Arc<str>, changed: &Arc<dyn ClusterPort>) {
        let Some((port, _)) = self.watched.get(cluster).cloned() else { return };
        if !Arc::ptr_eq(&port, changed) {
            return;
        }
        let pause = self.shared.pace.scaled(CLUSTER_PAUSE);
        let number = port.number();
        let Ok(view) = port.view() else {
            self.await_cluster(Arc::clone(cluster), port, number, pause);
            return;
        };
        let number = view.number;
        let index = self.shared.indexed(cluster, view);
        let mut homes: HashMap<String, bool> = HashMap::new();
        let changed: Vec<Arc<str>> = {
            let book = self.shared.book();
            let mut here = |pool: &str| {
                *homes.entry(pool.to_owned()).or_insert_with(|| {
                    matches!(self.shared.around.home(pool), super::Home::Cluster { name, .. } if name == *cluster)
                })
            };
            self.slots
                .iter_mut()
                .filter_map(|(name, slot)| {
                    let record = book.hosts.get(name)?;
                    let joined =
                        record.status.as_ref().and_then(|status| status.kubernetes_cluster.as_deref());
                    let mut is_here =
                        |pool: &str| joined.map_or_else(|| here(pool), |joined| *joined == **cluster);
                    let spec = record.spec.as_ref().filter(|spec| is_here(&spec.pool))?;
                    let digest = nodes::digest(name, spec, &self.shared.around.dress(&spec.pool), &index);
                    (std::mem::replace(&mut slot.digest, digest) != digest).then(|| Arc::clone(name))
                })
                .collect()
        };
        for name in &changed {
            self.wake(name);
        }
        self.watched.insert(Arc::clone(cluster), (Arc::clone(&port), number));
        self.await_cluster(Arc::clone(cluster), port, number, pause);
    }

    /// Writes metrics when their time has come.
    async fn keep_books(&mut self) -> Result<(), StoreError> {
        let Some(lead) = self.shared.lead.now().filter(|lead| Some(&lead.fence) == self.fence.as_ref())
        else {
            return Ok(());
        };
        let now = self.shared.clock.monotonic();
        if now >= self.next_flush {
            self.next_flush = now.saturating_add(self.shared.pace.scaled(FLUSH));
            energy::flush(&self.shared, &lead).await?;
        }
        Ok(())
    }

    /// How long nothing is due; `None` for a process that does not lead, which is told when it does. With `told`, so is
    /// whatever is to be known beside the inventory.
    fn until_next(&self, leads: bool, told: bool) -> Option<Duration> {
        if !leads {
            return None;
        }
        let now = self.shared.clock.monotonic();
        let timer = self.timers.peek().map(|Reverse((due, _, _))| *due);
        let books = self.fence.as_ref().map(|_| self.next_flush);
        // Leadership may run out in silence.
        let left = self.shared.lead.now().map_or(GLANCE, |lead| if told { lead.left } else { GLANCE });
        let next = [timer, books].into_iter().flatten().fold(now.saturating_add(left), Duration::min);
        Some(next.saturating_sub(now).max(Duration::from_millis(1)))
    }
}

/// Waits so long, or for good.
async fn pause_for(clock: &dyn Clock, wait: Option<Duration>) {
    match wait {
        Some(wait) => clock.sleep(wait).await,
        None => std::future::pending().await,
    }
}
