//! A driver that writes down what would be done, and does nothing.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use muster_model::{
    Clock, Timestamp,
    power::{
        Abilities, Accepted, Bmc, BootOverride, DriverKind, Identity, Leave, LogEntry, Order, Power,
        PowerAction, PowerError, Reading, Sensors,
    },
};

/// Most records that are kept; older ones go first.
const MAX_RECORDS: usize = 1_000;

/// Something that was asked for and not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WouldDo {
    pub at: Timestamp,
    pub host: String,
    pub what: String,
}

/// Reads through to another driver and keeps every change to itself.
#[derive(Debug)]
pub struct DryRun {
    reads: Arc<dyn Power>,
    clock: Arc<dyn Clock>,
    records: Mutex<Vec<WouldDo>>,
}

impl DryRun {
    pub fn new(reads: Arc<dyn Power>, clock: Arc<dyn Clock>) -> Self {
        Self { reads, clock, records: Mutex::default() }
    }

    pub fn records(&self) -> Vec<WouldDo> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, bmc: &Bmc, what: String) {
        tracing::info!(host = bmc.host, driver = "dry-run", what, "would do");
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if records.len() >= MAX_RECORDS {
            records.remove(0);
        }
        records.push(WouldDo { at: self.clock.now(), host: bmc.host.clone(), what });
    }
}

#[async_trait]
impl Power for DryRun {
    fn driver(&self) -> DriverKind {
        DriverKind::DryRun
    }

    fn abilities(&self) -> Abilities {
        use PowerAction::{Cycle, ForceOff, GracefulOff, On, Reset};
        let actions = Abilities::actions([On, GracefulOff, ForceOff, Cycle, Reset]).actions;
        Abilities { actions, boot: true, ..self.reads.abilities() }
    }

    async fn read(&self, bmc: &Bmc) -> Result<Reading, PowerError> {
        self.reads.read(bmc).await
    }

    async fn request(&self, bmc: &Bmc, order: Order, _leave: &Leave) -> Result<Accepted, PowerError> {
        self.record(bmc, format!("power {}", order.action));
        Ok(Accepted::Sent { how: "nothing (dry run)".into() })
    }

    async fn set_boot(
        &self,
        bmc: &Bmc,
        boot: BootOverride,
        _leave: &Leave,
    ) -> Result<BootOverride, PowerError> {
        self.record(bmc, format!("boot from {:?}", boot.target));
        Ok(boot)
    }

    async fn sensors(&self, bmc: &Bmc) -> Result<Sensors, PowerError> {
        self.reads.sensors(bmc).await
    }

    async fn identify(&self, bmc: &Bmc) -> Result<Identity, PowerError> {
        self.reads.identify(bmc).await
    }

    async fn log_tail(&self, bmc: &Bmc, most: usize) -> Result<Vec<LogEntry>, PowerError> {
        self.reads.log_tail(bmc, most).await
    }

    async fn restart_bmc(&self, bmc: &Bmc, _leave: &Leave) -> Result<Accepted, PowerError> {
        self.record(bmc, "restart its BMC".to_owned());
        Ok(Accepted::Sent { how: "nothing (dry run)".into() })
    }

    async fn close(&self) {
        self.reads.close().await;
    }
}
