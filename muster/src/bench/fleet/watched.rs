//! The Redfish driver with a stopwatch: when each host was read, and when it was told to switch on.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use async_trait::async_trait;
use muster_model::power::{
    Abilities, Accepted, Bmc, BootOverride, DriverKind, Identity, Leave, LogEntry, Order, Power, PowerAction,
    PowerError, Reading, Sensors,
};
use muster_power::redfish::Redfish;

use crate::bench::time;

#[derive(Debug, Default)]
pub(super) struct Times {
    /// Every reading that began, by host.
    pub(super) reads: HashMap<String, Vec<Instant>>,
    /// The first power-on that was sent, by host.
    pub(super) ons: HashMap<String, Instant>,
}

/// See the module. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    inner: Redfish,
    times: Arc<Mutex<Times>>,
}

impl Watched {
    pub(super) fn new(inner: Redfish) -> Self {
        Self { inner, times: Arc::default() }
    }

    /// What was seen since the last time that somebody asked.
    pub(super) fn take(&self) -> Times {
        std::mem::take(&mut *self.times.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&Times) -> T) -> T {
        look(&self.times.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Power for Watched {
    fn driver(&self) -> DriverKind {
        self.inner.driver()
    }

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    async fn read(&self, bmc: &Bmc) -> Result<Reading, PowerError> {
        let now = time::now();
        {
            let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
            times.reads.entry(bmc.host.clone()).or_default().push(now);
        }
        self.inner.read(bmc).await
    }

    async fn request(&self, bmc: &Bmc, order: Order, leave: &Leave) -> Result<Accepted, PowerError> {
        let done = self.inner.request(bmc, order, leave).await;
        if order.action == PowerAction::On && matches!(done, Ok(Accepted::Sent { .. })) {
            let now = time::now();
            let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
            times.ons.entry(bmc.host.clone()).or_insert(now);
        }
        done
    }

    async fn set_boot(
        &self,
        bmc: &Bmc,
        boot: BootOverride,
        leave: &Leave,
    ) -> Result<BootOverride, PowerError> {
        self.inner.set_boot(bmc, boot, leave).await
    }

    async fn sensors(&self, bmc: &Bmc) -> Result<Sensors, PowerError> {
        self.inner.sensors(bmc).await
    }

    async fn identify(&self, bmc: &Bmc) -> Result<Identity, PowerError> {
        self.inner.identify(bmc).await
    }

    async fn log_tail(&self, bmc: &Bmc, most: usize) -> Result<Vec<LogEntry>, PowerError> {
        self.inner.log_tail(bmc, most).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
