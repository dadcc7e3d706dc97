//! Which sessions are open, kept where a killed process cannot lose it.
//!
//! Session tables are small. A process that is killed cannot log out, so the place of its session is written
//! down and the next process ends it first. Only the session's path is kept: it is no secret, the token is.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;

/// Remembers one session's path per BMC. Losing an entry costs a session slot on the BMC until it expires.
#[async_trait]
pub trait Ledger: Send + Sync + fmt::Debug {
    async fn recall(&self, bmc: &str) -> Option<String>;
    async fn remember(&self, bmc: &str, session: &str);
    /// Forgets this session; one that another process has written down since stays.
    async fn forget(&self, bmc: &str, session: &str);
}

/// A ledger for processes that keep none.
#[derive(Debug, Default)]
pub struct MemoryLedger(Mutex<BTreeMap<String, String>>);

#[async_trait]
impl Ledger for MemoryLedger {
    async fn recall(&self, bmc: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(bmc).cloned()
    }

    async fn remember(&self, bmc: &str, session: &str) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.insert(bmc.to_owned(), session.to_owned());
    }

    async fn forget(&self, bmc: &str, session: &str) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.get(bmc).is_some_and(|known| known == session) {
            entries.remove(bmc);
        }
    }
}
