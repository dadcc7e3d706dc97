//! The store in one file, on redb: durable, for one process, nothing to set up.
//!
//! * One thread writes, in groups ([`writer`]); reads never wait for it.
//! * Present values, replaced values and commits are three tables; a read in the past merges two of them.
//!   History is bounded by commits and by bytes, and trimmed along with the writing and when idle.
//! * Every record has a checksum, compared at every read. What is believed at start is in [`files`].
//! * Nothing that redb or the disk does becomes a panic or a wrong answer: errors say what happened and
//!   what to do.

mod disk;
mod files;
mod lock;
mod pages;
mod record;
mod writer;

use std::{
    fmt, fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError, RwLock},
    thread,
};

use async_trait::async_trait;
use muster_model::{
    Timestamp,
    store::{
        Committed, Entry, List, Page, Revision, Store, StoreError, StoreStats, Txn, WatchStream, check_key,
    },
};
use redb::{Database, ReadTransaction, ReadableDatabase};
use tokio::sync::{mpsc, oneshot};

pub use disk::Faults;
pub use lock::Holder;
pub use writer::HistoryLimits;

use crate::feed::{self, Feed, FeedLimits, History, HistoryFuture};
use disk::{Trouble, guarded};
use files::Files;
use pages::Miss;
use writer::{Job, Writer};

/// Commits that may wait for the writer before callers have to wait to queue up.
const QUEUE: usize = 4096;

/// How to open an embedded store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who opens it, for the message to the next one who tries.
    pub holder: Holder,
    /// Memory for pages of the file.
    pub cache_bytes: usize,
    pub history: HistoryLimits,
    /// Decides over each write, in tests.
    pub faults: Option<Arc<dyn Faults>>,
}

impl Options {
    pub fn new(command: impl Into<String>, now: Timestamp) -> Self {
        Self {
            holder: Holder::this_process(command, now),
            // The upper levels of the trees and the hot leaves of some 100,000 objects; the rest is in the
            // kernel's cache.
            cache_bytes: 48 << 20,
            history: HistoryLimits::default(),
            faults: None,
        }
    }
}

/// See the module.
pub struct Embedded {
    shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

/// What readers, watchers and the writer have in common.
struct Shared {
    /// How errors call this store: its directory.
    name: String,
    files: Files,
    /// The open file, or why there is none.
    database: RwLock<Result<Database, Trouble>>,
    feed: Arc<Feed>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl Shared {
    /// Reads at one moment.
    fn read<T, E: From<Trouble>>(&self, work: impl FnOnce(&ReadTransaction) -> Result<T, E>) -> Result<T, E> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let database = database.as_ref().map_err(Clone::clone)?;
        guarded(|| {
            let txn = database.begin_read()?;
            Ok(work(&txn))
        })?
    }

    fn miss(&self, asked: Revision, miss: Miss) -> StoreError {
        match miss {
            Miss::Compacted { oldest } => StoreError::Compacted { asked, oldest },
            Miss::Future { current } => StoreError::Future { asked, current },
            Miss::Trouble(trouble) => trouble.error(&self.name),
        }
    }
}

impl Embedded {
    /// Opens the store in `dir`, creating both where they do not exist. Blocks while the file is checked.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        let dir = dir.as_ref().to_path_buf();
        let name = dir.display().to_string();
        fs::create_dir_all(&dir).map_err(|error| Trouble::from(error).error(&name))?;
        let lock = lock::Lock::take(&dir, &name, &options.holder)?;
        let files = Files {
            dir,
            cache_bytes: options.cache_bytes,
            faults: options.faults,
            header_touched: Arc::default(),
        };
        let database = files.open(&name)?;
        let state =
            guarded(|| pages::state(&database.begin_read()?)).map_err(|trouble| trouble.error(&name))?;
        let shared = Arc::new(Shared {
            name,
            files: files.clone(),
            database: RwLock::new(Ok(database)),
            feed: Arc::new(Feed::new(state.revision, FeedLimits::default())),
        });
        let (jobs, queue) = mpsc::channel(QUEUE);
        let writer =
            Writer { shared: Arc::clone(&shared), files, limits: options.history, jobs: queue, lock };
        let thread = thread::Builder::new()
            .name("muster-store".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| Trouble::from(error).error(&shared.name))?;
        Ok(Self { shared, jobs, thread: Mutex::new(Some(thread)) })
    }

    async fn ask<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Job,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(job(reply)).await.map_err(|_| Trouble::closed().error(&self.shared.name))?;
        // Without an answer the writer ended before it came to this job, or died of a bug on the way.
        answer.await.map_err(|_| StoreError::Ambiguous {
            store: self.shared.name.clone(),
            why: "it stopped before it answered".to_owned(),
        })?
    }

    fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!(store = %self.shared.name, "the store's writer ended with a panic");
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // With the last sender gone the writer finishes what is queued and leaves the file clean.
        let (jobs, _) = mpsc::channel(1);
        self.jobs = jobs;
        self.join();
    }
}

#[async_trait]
impl Store for Embedded {
    /// Runs in place: a few microseconds, a page from the disk at worst.
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        check_key(key)?;
        self.shared
            .read(|txn| pages::get(txn, key))
            .map_err(|trouble: Trouble| trouble.error(&self.shared.name))
    }

    /// In place as well: callers ask for a page of objects at most.
    async fn get_all(&self, keys: &[String]) -> Result<Vec<Option<Entry>>, StoreError> {
        keys.iter().try_for_each(|key| check_key(key))?;
        self.shared
            .read(|txn| pages::get_all(txn, keys))
            .map_err(|trouble: Trouble| trouble.error(&self.shared.name))
    }

    async fn list(&self, list: List) -> Result<Page, StoreError> {
        let shared = Arc::clone(&self.shared);
        blocking(&self.shared.name, move || {
            let asked = list.at.unwrap_or_default();
            shared.read(|txn| pages::list(txn, &list)).map_err(|miss| shared.miss(asked, miss))
        })
        .await
    }

    async fn commit(&self, txn: Txn) -> Result<Committed, StoreError> {
        txn.check()?;
        self.ask(|reply| Job::Commit { txn, reply }).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError> {
        let state =
            self.shared.read(pages::state).map_err(|trouble: Trouble| trouble.error(&self.shared.name))?;
        if after > state.revision {
            return Err(StoreError::Future { asked: after, current: state.revision });
        }
        if after < state.oldest {
            return Err(StoreError::Compacted { asked: after, oldest: state.oldest });
        }
        let (feed, history) = (Arc::clone(&self.shared.feed), Arc::clone(&self.shared));
        Ok(feed::follow(self.shared.name.clone(), feed, history, prefix, after))
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        let state =
            self.shared.read(pages::state).map_err(|trouble: Trouble| trouble.error(&self.shared.name))?;
        Ok(state.revision)
    }

    async fn compact(&self, before: Revision) -> Result<(), StoreError> {
        self.ask(|reply| Job::Compact { before, reply }).await
    }

    async fn stats(&self) -> Result<StoreStats, StoreError> {
        let read = self.shared.read(|txn| Ok::<_, Trouble>((pages::state(txn)?, pages::keys(txn)?)));
        let (state, keys) = read.map_err(|trouble| trouble.error(&self.shared.name))?;
        let bytes = fs::metadata(self.shared.files.data()).map_or(0, |data| data.len());
        let (revision, oldest) = (state.revision, state.oldest);
        Ok(StoreStats { kind: "embedded".to_owned(), revision, oldest, keys, bytes })
    }

    async fn advance(&self, past: Revision) -> Result<bool, StoreError> {
        self.ask(|reply| Job::Advance { past, reply }).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.ask(|reply| Job::Close { reply }).await?;
        // The writer answers as its last act.
        self.join();
        Ok(())
    }
}

async fn blocking<T: Send + 'static>(
    store: &str,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(StoreError::Unavailable { store: store.to_owned(), why: format!("a read was not run: {error}") })
    })
}

impl History for Shared {
    fn commits_after(&self, after: Revision) -> HistoryFuture<'_> {
        // A chunk is a few hundred records, most of them in the cache: milliseconds at worst.
        let answer =
            self.read(|txn| pages::commits_after(txn, after)).map_err(|miss: Miss| self.miss(after, miss));
        Box::pin(std::future::ready(answer))
    }
}
