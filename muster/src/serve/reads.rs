//! What a dry run reads through: whichever driver a machine's endpoint is for.

use async_trait::async_trait;
use muster_model::power::{
    Abilities, Accepted, Bmc, DriverKind, Fault, Identity, Leave, LogEntry, Order, Power, PowerError,
    Reading, Sensors,
};
use muster_power::{ipmi::Ipmi, redfish::Redfish};

/// Reads by Redfish or IPMI; changes nothing, because nobody asks it to.
#[derive(Debug)]
pub(super) struct Reads {
    pub(super) redfish: Redfish,
    pub(super) ipmi: Ipmi,
}

impl Reads {
    fn of(&self, bmc: &Bmc) -> Result<&dyn Power, PowerError> {
        match bmc.driver() {
            DriverKind::Redfish => Ok(&self.redfish),
            DriverKind::Ipmi => Ok(&self.ipmi),
            other => Err(PowerError::new(bmc, Fault::unsupported("reading in a dry run", other))),
        }
    }
}

#[async_trait]
impl Power for Reads {
    fn driver(&self) -> DriverKind {
        DriverKind::DryRun
    }

    fn abilities(&self) -> Abilities {
        self.redfish.abilities()
    }

    async fn read(&self, bmc: &Bmc) -> Result<Reading, PowerError> {
        self.of(bmc)?.read(bmc).await
    }

    async fn request(&self, bmc: &Bmc, order: Order, _leave: &Leave) -> Result<Accepted, PowerError> {
        Err(PowerError::new(bmc, Fault::unsupported(order.action.to_string(), DriverKind::DryRun)))
    }

    async fn sensors(&self, bmc: &Bmc) -> Result<Sensors, PowerError> {
        self.of(bmc)?.sensors(bmc).await
    }

    async fn identify(&self, bmc: &Bmc) -> Result<Identity, PowerError> {
        self.of(bmc)?.identify(bmc).await
    }
    async fn log_tail(&self, bmc: &Bmc, most: usize) -> Result<Vec<LogEntry>, PowerError> {
        self.of(bmc)?.log_tail(bmc, most).await
    }
}
