//! Many days on several threads: each thread lives one day at a time.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use muster_model::Duration;

use super::{
    fuzz::{self, Day, FuzzError, Outcome},
    process::Manner,
    trouble::Class,
};

/// A range of seeds, and how to live them.
#[derive(Debug, Clone)]
pub struct Fleet {
    pub first: u64,
    /// Not lived any more.
    pub end: u64,
    pub length: Duration,
    /// What the days are full of; a bit of everything if that is nothing.
    pub focus: Vec<Class>,
    /// Hosts of each site; drawn by lot if not given.
    pub size: Option<u64>,
    pub threads: usize,
    pub manner: Manner,
    /// Stops at the first broken invariant.
    pub stop_at_first: bool,
}

/// What became of all of them.
#[derive(Debug, Default)]
pub struct Result {
    /// In the order of the seeds.
    pub outcomes: Vec<Outcome>,
    pub errors: Vec<(u64, FuzzError)>,
}

/// Lives every day of the range; `each` is told of every outcome as it comes.
pub fn live(fleet: &Fleet, each: &(dyn Fn(&Outcome) + Sync)) -> Result {
    let next = AtomicU64::new(fleet.first);
    let stop = AtomicBool::new(false);
    let result = Mutex::new(Result::default());
    std::thread::scope(|scope| {
        for _ in 0..fleet.threads.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= fleet.end {
                        return;
                    }
                    let day = Day::full_of(seed, fleet.length, &fleet.focus, fleet.size);
                    let lived = on_one_thread(fuzz::live(&day, &fleet.manner, false));
                    let mut result = result.lock().unwrap_or_else(PoisonError::into_inner);
                    match lived {
                        Ok((outcome, _)) => {
                            each(&outcome);
                            if fleet.stop_at_first && !outcome.violations.is_empty() {
                                stop.store(true, Ordering::Relaxed);
                            }
                            result.outcomes.push(outcome);
                        }
                        Err(error) => result.errors.push((seed, error)),
                    }
                }
            });
        }
    });
    let mut result = result.into_inner().unwrap_or_else(PoisonError::into_inner);
    result.outcomes.sort_by_key(|outcome| outcome.seed);
    result
}

/// One day on this thread.
pub fn one(
    seed: u64,
    length: Duration,
    manner: &Manner,
    keep: bool,
) -> std::result::Result<(Outcome, Vec<String>), FuzzError> {
    let day = Day::new(seed, length);
    on_one_thread(fuzz::live(&day, manner, keep))
}

/// Runs work of a simulation to its end. Its time is its own; only what starts tasks needs a runtime.
pub fn on_one_thread<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without sockets needs nothing of the system");
    runtime.block_on(work)
}
