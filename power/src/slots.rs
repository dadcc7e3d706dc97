//! What a driver remembers per BMC, and the lock that keeps calls to one at a time.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

/// One lock per address that is connected to, however records spell it. Bounded by the inventory.
#[derive(Debug, Default)]
pub(crate) struct Slots<M>(Mutex<HashMap<SocketAddr, Arc<tokio::sync::Mutex<M>>>>);

impl<M: Default> Slots<M> {
    pub(crate) fn slot(&self, socket: SocketAddr) -> Arc<tokio::sync::Mutex<M>> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(socket).or_default())
    }

    pub(crate) fn all(&self) -> Vec<Arc<tokio::sync::Mutex<M>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Everything that nobody is using any more.
    pub(crate) fn take_idle(&mut self) -> Vec<M> {
        let slots = std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        slots.into_values().filter_map(Arc::into_inner).map(tokio::sync::Mutex::into_inner).collect()
    }
}

/// An account, by credential name and version. One that was refused is not tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub credential: String,
    pub version: String,
}
