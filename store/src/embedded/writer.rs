//! The one thread that writes.
//!
//! Commits queue up while the thread waits for the disk; it then takes all of them into one redb
//! transaction, each judged in order against what those before it wrote, each with a revision of its own.
//! One fsync makes them durable, and only then does anyone hear of them. So the more writers there are, the
//! less each costs.
//!
//! When the disk fails in the middle, the file is opened again as after a crash, and what it then holds is
//! the answer.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use muster_model::store::{Change, Committed, Entry, Revision, StoreError, Txn, Write};
use redb::{Database, ReadableTable, Table, WriteTransaction};
use tokio::sync::{mpsc, oneshot};

use super::{
    Shared,
    disk::{Trouble, guarded},
    files::Files,
    lock::Lock,
    pages::{self, HISTORY, META, PRESENT, STATE, VERSIONS},
    record::{PastChange, PastCommit, State, Version},
};
use crate::feed::Commit;

/// Commits in one fsync, at most: bounds how long the first of them waits for the last.
const MAX_BATCH: usize = 1024;
/// Bytes in one fsync, at most, for the same reason and to bound memory.
const MAX_BATCH_BYTES: usize = 16 << 20;
/// Commits of history that one transaction forgets beside its work. More than it adds (see `trim`), so that
/// the history comes back within its bounds; few enough that nobody notices.
const TRIM_STEP: usize = 64;
/// The same when nothing else is to be done.
const TRIM_IDLE: usize = 2000;

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

#[derive(Debug)]
pub(super) enum Job {
    Commit { txn: Txn, reply: Reply<Committed> },
    Compact { before: Revision, reply: Reply<()> },
    Advance { past: Revision, reply: Reply<bool> },
    Close { reply: Reply<()> },
}

/// How much history is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    pub commits: u64,
    pub bytes: u64,
}

impl Default for HistoryLimits {
    /// Hours of a busy control plane: 100,000 commits, 256 MiB.
    fn default() -> Self {
        Self { commits: 100_000, bytes: 256 << 20 }
    }
}

pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) files: Files,
    pub(super) limits: HistoryLimits,
    pub(super) jobs: mpsc::Receiver<Job>,
    pub(super) lock: Lock,
}

/// What to do next.
enum Next {
    Job(Job),
    /// Nothing just now: history may be trimmed meanwhile.
    Idle,
    /// Nobody is left to give anything to do.
    End,
}

struct Waiting {
    txn: Txn,
    reply: Reply<Committed>,
}

impl Writer {
    /// Works until the store is closed or dropped, then leaves everything clean.
    pub(super) fn run(mut self) {
        let mut idle_work = true;
        let mut closing = None;
        loop {
            let job = match self.next(idle_work) {
                Next::Job(job) => job,
                Next::Idle => {
                    idle_work = self.trim_idle();
                    continue;
                }
                Next::End => break,
            };
            idle_work = true;
            let mut batch = Vec::new();
            if let Some(other) = self.collect(job, &mut batch) {
                self.commit(batch);
                match other {
                    Job::Close { reply } => {
                        closing = Some(reply);
                        break;
                    }
                    other => self.other(other),
                }
            } else {
                self.commit(batch);
            }
        }
        self.jobs.close();
        let outcome = self.stop();
        if let Some(reply) = closing {
            let _ = reply.send(outcome); // whoever asked may have gone
        }
    }

    fn next(&mut self, idle_work: bool) -> Next {
        if idle_work {
            return match self.jobs.try_recv() {
                Ok(job) => Next::Job(job),
                Err(mpsc::error::TryRecvError::Empty) => Next::Idle,
                Err(mpsc::error::TryRecvError::Disconnected) => Next::End,
            };
        }
        self.jobs.blocking_recv().map_or(Next::End, Next::Job)
    }

    /// Takes all commits that are waiting, up to the first other job, which is returned.
    fn collect(&mut self, first: Job, batch: &mut Vec<Waiting>) -> Option<Job> {
        let mut bytes = 0;
        let mut job = first;
        loop {
            match job {
                Job::Commit { txn, reply } => {
                    bytes += txn.writes.iter().map(size).sum::<usize>();
                    batch.push(Waiting { txn, reply });
                }
                other => return Some(other),
            }
            if batch.len() >= MAX_BATCH || bytes >= MAX_BATCH_BYTES {
                return None;
            }
            job = self.jobs.try_recv().ok()?;
        }
    }

    fn commit(&self, batch: Vec<Waiting>) {
        if batch.is_empty() {
            return;
        }
        let txns: Vec<&Txn> = batch.iter().map(|waiting| &waiting.txn).collect();
        match self.write(|tables, state| self.apply_all(&txns, tables, state)) {
            Ok(applied) => {
                let mut commits = Vec::new();
                let mut answers = Vec::new();
                for (answer, commit) in applied {
                    commits.extend(commit);
                    answers.push(answer.map_err(|trouble| trouble.error(&self.shared.name)));
                }
                self.shared.feed.publish(commits);
                for (waiting, answer) in batch.into_iter().zip(answers) {
                    let _ = waiting.reply.send(answer); // whoever asked may have gone; it is committed
                }
            }
            Err(failed) => {
                for waiting in batch {
                    let _ = waiting.reply.send(Err(failed.error(&self.shared.name)));
                }
            }
        }
    }

    fn apply_all(
        &self,
        txns: &[&Txn],
        tables: &mut Tables<'_>,
        state: &mut State,
    ) -> Result<Vec<Applied>, Trouble> {
        let mut applied = Vec::with_capacity(txns.len());
        for txn in txns {
            match tables.judge(txn) {
                Ok(Verdict::Refused { failed, found }) => {
                    applied.push((Ok(Committed::Refused { failed, found }), None));
                }
                Ok(Verdict::Holds { before }) => {
                    let commit = tables.apply(txn, before, state)?;
                    applied.push((Ok(Committed::Done { revision: state.revision }), commit.map(Arc::new)));
                }
                // A damaged record concerns only the commit that touches it; nothing was written for it.
                Err(Trouble::Damaged(why)) => applied.push((Err(Trouble::Damaged(why)), None)),
                Err(trouble) => return Err(trouble),
            }
        }
        tables.trim(state, self.limits, TRIM_STEP + 2 * txns.len())?;
        Ok(applied)
    }

    fn other(&self, job: Job) {
        match job {
            Job::Compact { before, reply } => {
                let outcome = self.write(|_, state| {
                    if before <= state.revision {
                        state.oldest = state.oldest.max(before);
                    }
                    Ok(state.revision)
                });
                let _ = reply.send(match outcome {
                    Ok(current) if before > current => Err(StoreError::Future { asked: before, current }),
                    Ok(_) => Ok(()),
                    Err(failed) => Err(failed.error(&self.shared.name)),
                });
            }
            Job::Advance { past, reply } => {
                let outcome = self.write(|_, state| {
                    let moved = past > state.revision;
                    if moved {
                        state.revision = past;
                        state.oldest = past;
                    }
                    Ok(moved)
                });
                if matches!(outcome, Ok(true)) {
                    self.shared.feed.jump(past);
                }
                let _ = reply.send(outcome.map(|_| true).map_err(|failed| failed.error(&self.shared.name)));
            }
            Job::Commit { .. } | Job::Close { .. } => {
                unreachable!("commits are collected, closing ends the loop")
            }
        }
    }

    /// Forgets some history that is out of bounds; whether there is more.
    fn trim_idle(&self) -> bool {
        let due = self.shared.read(|txn| self.overdue(&pages::state(txn)?, txn));
        if !matches!(due, Ok(true)) {
            return false;
        }
        self.write(|tables, state| tables.trim(state, self.limits, TRIM_IDLE)).is_ok_and(|more| more)
    }

    fn overdue(&self, state: &State, txn: &redb::ReadTransaction) -> Result<bool, Trouble> {
        let first = txn.open_table(HISTORY)?.first()?.map(|(revision, _)| Revision(revision.value()));
        Ok(first.is_some_and(|first| out_of_bounds(first, state, self.limits)))
    }

    /// One durable transaction. When the disk fails, what the file holds afterwards decides.
    fn write<T>(
        &self,
        work: impl FnOnce(&mut Tables<'_>, &mut State) -> Result<T, Trouble>,
    ) -> Result<T, Failed> {
        self.revive().map_err(Failed::NotDone)?;
        let mut target = None;
        self.files.header_touched.store(false, Ordering::SeqCst);
        let outcome = {
            let database = self.shared.database.read().unwrap_or_else(PoisonError::into_inner);
            let database = match &*database {
                Ok(database) => database,
                Err(trouble) => return Err(Failed::NotDone(trouble.clone())),
            };
            transact(database, work, &mut target)
        };
        match outcome {
            Ok(value) => Ok(value),
            Err(Stage::Writing(trouble)) => {
                tracing::error!(store = %self.shared.name, code = "write", "the store could not write: {trouble:?}");
                if !matches!(trouble, Trouble::Damaged(_)) {
                    self.reopen();
                }
                Err(Failed::NotDone(trouble))
            }
            Err(Stage::Committing(trouble, value)) => {
                tracing::error!(store = %self.shared.name, code = "commit", "the store could not commit: {trouble:?}");
                let undecided = self.files.header_touched.load(Ordering::SeqCst);
                self.reopen();
                match self.shared.read(pages::state) {
                    // Nobody else writes, so the state is the one that was to be committed, or an older one.
                    Ok(state) if Some(state) == target => Ok(value),
                    Ok(_) => Err(Failed::NotDone(trouble)),
                    Err(_) if !undecided => Err(Failed::NotDone(trouble)),
                    Err(_) => Err(Failed::Unknown(trouble)),
                }
            }
        }
    }

    /// Opens the file if an earlier failure closed it.
    fn revive(&self) -> Result<(), Trouble> {
        let broken = {
            let database = self.shared.database.read().unwrap_or_else(PoisonError::into_inner);
            database.as_ref().err().cloned()
        };
        match broken {
            None => Ok(()),
            Some(damaged @ Trouble::Damaged(_)) => Err(damaged),
            Some(_) => {
                self.reopen();
                let database = self.shared.database.read().unwrap_or_else(PoisonError::into_inner);
                database.as_ref().map(|_| ()).map_err(Clone::clone)
            }
        }
    }

    /// Lets redb drop a file that failed under it, and recover it as after a crash.
    fn reopen(&self) {
        let mut database = self.shared.database.write().unwrap_or_else(PoisonError::into_inner);
        let failed = std::mem::replace(&mut *database, Err(Trouble::closed()));
        let _ = guarded(|| {
            drop(failed); // redb may stumble over its own failure once more; what counts is the file
            Ok(())
        });
        *database = self.files.database();
        if let Err(trouble) = &*database {
            tracing::error!(store = %self.shared.name, "the store could not be opened again: {trouble:?}");
        }
    }

    fn stop(self) -> Result<(), StoreError> {
        self.shared.feed.close("it was closed");
        let was = {
            let mut database = self.shared.database.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *database, Err(Trouble::closed()))
        };
        let outcome = match was {
            Ok(database) => {
                let whole = guarded(|| {
                    drop(database);
                    Ok(())
                });
                whole.and_then(|()| self.files.leave_clean_marker())
            }
            Err(trouble) => Err(trouble),
        };
        self.lock.release();
        outcome.map_err(|trouble| trouble.error(&self.shared.name))
    }
}

/// Why a transaction was not acknowledged.
#[derive(Debug)]
enum Failed {
    NotDone(Trouble),
    Unknown(Trouble),
}

impl Failed {
    fn error(&self, store: &str) -> StoreError {
        match self {
            Self::NotDone(trouble) => trouble.error(store),
            Self::Unknown(trouble) => StoreError::Ambiguous {
                store: store.to_owned(),
                why: format!("the disk failed while it was made durable ({})", trouble.error(store)),
            },
        }
    }
}

enum Stage<T> {
    Writing(Trouble),
    Committing(Trouble, T),
}

fn transact<T>(
    database: &Database,
    work: impl FnOnce(&mut Tables<'_>, &mut State) -> Result<T, Trouble>,
    target: &mut Option<State>,
) -> Result<T, Stage<T>> {
    let prepared = guarded(|| {
        let txn = database.begin_write()?;
        let value = {
            let mut tables = Tables::open(&txn)?;
            let mut state = tables.state()?;
            let before = state;
            let value = work(&mut tables, &mut state)?;
            if state != before {
                tables.meta.insert(STATE, state.encode().as_slice())?;
                *target = Some(state);
            }
            (value, state != before)
        };
        Ok((txn, value))
    });
    let (txn, (value, changed)) = prepared.map_err(Stage::Writing)?;
    if !changed {
        return match guarded(|| Ok(txn.abort()?)) {
            Ok(()) => Ok(value),
            Err(trouble) => Err(Stage::Writing(trouble)),
        };
    }
    match guarded(|| Ok(txn.commit()?)) {
        Ok(()) => Ok(value),
        Err(trouble) => Err(Stage::Committing(trouble, value)),
    }
}

type Applied = (Result<Committed, Trouble>, Option<Arc<Commit>>);

enum Verdict {
    /// The comparisons hold; the entries that the writes will replace, in their order.
    Holds {
        before: Vec<Option<Entry>>,
    },
    Refused {
        failed: usize,
        found: Option<Entry>,
    },
}

pub(super) struct Tables<'t> {
    present: Table<'t, &'static [u8], &'static [u8]>,
    versions: Table<'t, (&'static [u8], u64), &'static [u8]>,
    history: Table<'t, u64, &'static [u8]>,
    meta: Table<'t, &'static str, &'static [u8]>,
}

impl<'t> Tables<'t> {
    fn open(txn: &'t WriteTransaction) -> Result<Self, Trouble> {
        Ok(Self {
            present: txn.open_table(PRESENT)?,
            versions: txn.open_table(VERSIONS)?,
            history: txn.open_table(HISTORY)?,
            meta: txn.open_table(META)?,
        })
    }

    fn state(&self) -> Result<State, Trouble> {
        let record = self.meta.get(STATE)?.ok_or_else(|| Trouble::damaged("its state record is missing"))?;
        Ok(State::decode(record.value())?)
    }

    fn get(&self, key: &str) -> Result<Option<Entry>, Trouble> {
        let Some(record) = self.present.get(key.as_bytes())? else { return Ok(None) };
        Ok(Some(Version::decode(key.as_bytes(), record.value())?.entry))
    }

    /// Reads all that a transaction depends on, and writes nothing.
    fn judge(&self, txn: &Txn) -> Result<Verdict, Trouble> {
        for (failed, compare) in txn.compares.iter().enumerate() {
            let found = self.get(&compare.key)?;
            if !compare.expect.holds(found.as_ref()) {
                return Ok(Verdict::Refused { failed, found });
            }
        }
        let before = txn.writes.iter().map(|write| self.get(write.key())).collect::<Result<_, _>>()?;
        Ok(Verdict::Holds { before })
    }

    fn apply(
        &mut self,
        txn: &Txn,
        before: Vec<Option<Entry>>,
        state: &mut State,
    ) -> Result<Option<Commit>, Trouble> {
        let revision = Revision(state.revision.0 + 1);
        let mut changes = Vec::new();
        let mut past = Vec::new();
        for (write, before) in txn.writes.iter().zip(before) {
            let entry = match write {
                Write::Put { key, value } => Some(Entry {
                    key: key.clone(),
                    value: value.clone(),
                    created: before.as_ref().map_or(revision, |entry| entry.created),
                    modified: revision,
                }),
                Write::Delete { .. } if before.is_none() => continue,
                Write::Delete { .. } => None,
            };
            let key = write.key();
            past.push(PastChange {
                key: key.to_owned(),
                deleted: entry.is_none(),
                replaced: before.as_ref().map(|entry| entry.modified),
            });
            if let Some(before) = before {
                let modified = before.modified.0;
                let record = Version { entry: before, superseded: revision }.encode();
                state.bytes += record.len() as u64;
                self.versions.insert((key.as_bytes(), modified), record.as_slice())?;
            }
            match &entry {
                Some(entry) => {
                    let record = Version { entry: entry.clone(), superseded: Revision::ZERO }.encode();
                    self.present.insert(key.as_bytes(), record.as_slice())?;
                }
                None => {
                    self.present.remove(key.as_bytes())?;
                }
            }
            changes.push(Change { revision, key: key.to_owned(), entry });
        }
        if changes.is_empty() {
            return Ok(None);
        }
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        past.sort_by(|a, b| a.key.cmp(&b.key));
        let record = PastCommit { changes: past }.encode(revision);
        state.bytes += record.len() as u64;
        state.commits += 1;
        state.revision = revision;
        self.history.insert(revision.0, record.as_slice())?;
        Ok(Some(Commit { revision, changes }))
    }

    /// Forgets up to `budget` commits that are out of bounds, oldest first; whether there are more.
    fn trim(&mut self, state: &mut State, limits: HistoryLimits, budget: usize) -> Result<bool, Trouble> {
        for _ in 0..budget {
            let Some(first) = self.history.first()?.map(|(revision, _)| Revision(revision.value())) else {
                return Ok(false);
            };
            if !out_of_bounds(first, state, limits) {
                return Ok(false);
            }
            let past = {
                let record = self.history.remove(first.0)?.ok_or_else(|| {
                    Trouble::damaged(format!("commit {first} was listed in its history and is not there"))
                })?;
                state.bytes = state.bytes.saturating_sub(record.value().len() as u64);
                PastCommit::decode(first, record.value())?
            };
            for change in past.changes {
                let Some(replaced) = change.replaced else { continue };
                if let Some(record) = self.versions.remove((change.key.as_bytes(), replaced.0))? {
                    state.bytes = state.bytes.saturating_sub(record.value().len() as u64);
                }
            }
            state.commits = state.commits.saturating_sub(1);
            state.oldest = state.oldest.max(first);
        }
        Ok(true)
    }
}

/// Whether the oldest commit in the history has to go. The newest always stays.
fn out_of_bounds(first: Revision, state: &State, limits: HistoryLimits) -> bool {
    first <= state.oldest
        || (state.commits > 1 && (state.commits > limits.commits || state.bytes > limits.bytes))
}

fn size(write: &Write) -> usize {
    match write {
        Write::Put { key, value } => key.len() + value.len(),
        Write::Delete { key } => key.len(),
    }
}
