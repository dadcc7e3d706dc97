//! How a write is carried out once, although the network may swallow the answer.
//!
//! Every transaction is tied to a *slot*, a small key under the reserved prefix that belongs to this process
//! and to one transaction at a time. The transaction compares the slot's revision and rewrites the slot with
//! a number of its own, in the same commit. So:
//!
//! * it can be carried out at most once, however often it is sent, and however late a copy arrives: after the
//!   first time the slot has another revision;
//! * when no answer came it is simply sent again, to another member if need be. Either it is carried out now,
//!   or the slot shows that it was, and at which revision;
//! * a copy sent after an open attempt that is refused by its own comparisons seals the slot: so
//!   what was reported as refused cannot happen later.
//!
//! A transaction that changes nothing leaves its slot alone, and so takes no revision.
//!
//! Slots are removed when the store is closed. Those of a process that crashed are removed by any other that
//! has seen them unchanged for [`Options::sweep_every`](super::Options): it needs no clock but its own. If it
//! removes a slot of a process that was only idle, that costs the owner one more attempt.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use muster_model::store::{RESERVED, Revision};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Transactions under way at once; more wait their turn. Well beyond what etcd makes faster.
const SLOTS: usize = 128;

/// This process's slots.
#[derive(Debug)]
pub(super) struct Slots {
    /// The prefix of all slots, with the store's root.
    pub(super) all: String,
    /// The prefix of this process's.
    pub(super) own: String,
    free: Mutex<Vec<Slot>>,
    made: AtomicU64,
    tokens: AtomicU64,
    turn: Semaphore,
}

/// One slot. Whoever has it may use it; one that is dropped is not used again.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: String,
    /// Its revision as last seen; `None` before it exists.
    pub(super) revision: Option<Revision>,
}

impl Slots {
    pub(super) fn new(root: &str) -> Self {
        let all = format!("{root}{RESERVED}slots/");
        let own = format!("{all}{}/", uuid::Uuid::new_v4().simple());
        Self {
            all,
            own,
            free: Mutex::new(Vec::new()),
            made: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            turn: Semaphore::new(SLOTS),
        }
    }

    /// A slot for one transaction. Hold the permit as long as the slot.
    pub(super) async fn take(&self) -> (Slot, SemaphorePermit<'_>) {
        let permit = self.turn.acquire().await.expect("the semaphore is never closed");
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let slot = free.unwrap_or_else(|| {
            let number = self.made.fetch_add(1, Ordering::Relaxed);
            Slot { key: format!("{}{number}", self.own), revision: None }
        });
        (slot, permit)
    }

    /// Gives a slot back whose revision is certain.
    pub(super) fn give_back(&self, slot: Slot) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
    }

    /// What a transaction writes into its slot: unlike what any other of this process wrote.
    pub(super) fn token(&self) -> String {
        self.tokens.fetch_add(1, Ordering::Relaxed).to_string()
    }
}
