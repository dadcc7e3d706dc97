//! Puts the inventory together: the index, the credentials, and whatever asks BMCs.

use std::{path::Path, path::PathBuf, sync::Arc};

use anyhow::{Context, anyhow};
use async_trait::async_trait;
use muster_control::{
    hosts::Transcripts,
    inventory::{Inventory, Prober, Vault, VaultKey},
};
use muster_model::{
    Clock,
    power::{Bmc, DriverKind, Fault, Identity, Power, PowerError},
    store::Store,
};
use muster_power::{
    Limits,
    address::{AddressRules, Cidr},
    ipmi::Ipmi,
    redfish::{Ledger, Redfish, Setup},
};

use super::{hosts::StoreLedger, own::Own};
use crate::config::Settings;

/// File of the key that credentials are sealed with, in the data directory unless the settings name another.
const KEY_FILE: &str = "credentials.key";

/// The inventory's parts.
pub(super) struct Parts {
    pub(super) inventory: Arc<Inventory>,
    pub(super) vault: Arc<Vault>,
    pub(super) prober: Arc<dyn Prober>,
    pub(super) rules: Arc<AddressRules>,
    /// Keeps the control plane's own addresses out of those rules.
    pub(super) own: Arc<Own>,
    /// Shared with the host loop: one call at a time to each BMC, whoever asks.
    pub(super) redfish: Redfish,
    pub(super) ipmi: Ipmi,
    /// What was said to BMCs.
    pub(super) transcripts: Arc<Transcripts>,
}

pub(super) async fn open(
    settings: &Settings,
    data_dir: &Path,
    store: Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Parts> {
    let rules = Arc::new(rules(settings)?);
    let ledger = Arc::new(StoreLedger(Arc::clone(&store)));
    let inventory = Inventory::open(store, Arc::clone(clock)).await.context("cannot load the inventory")?;
    let own = Own::open(settings, rules.own.clone(), Arc::clone(&inventory), clock).await;
    let key_file =
        settings.optional("credentials.key-file").map_or_else(|| data_dir.join(KEY_FILE), PathBuf::from);
    let key = VaultKey::open(&key_file).context("cannot open the key of the credentials")?;
    let vault = Arc::new(Vault::new(Arc::clone(&inventory), key));
    let drivers = Drivers::new(Arc::clone(&rules), Arc::clone(&vault), Arc::clone(clock), ledger);
    let (redfish, ipmi) = (drivers.redfish.clone(), drivers.ipmi.clone());
    let transcripts = Arc::new(Transcripts::kept_in(data_dir));
    Ok(Parts { inventory, vault, prober: Arc::new(drivers), rules, own, redfish, ipmi, transcripts })
}

/// Which addresses may be called as BMCs.
pub(super) fn rules(settings: &Settings) -> anyhow::Result<AddressRules> {
    let list = |path: &str| -> Vec<String> {
        settings
            .text(path)
            .split(',')
            .map(str::trim)
            .filter(|one| !one.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let allow = list("bmc.allow")
        .iter()
        .map(|block| block.parse::<Cidr>().map_err(|why| anyhow!("bmc.allow: {why}")))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let ports = list("bmc.ports")
        .iter()
        .map(|port| match port.parse::<u16>() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(anyhow!("bmc.ports: {port:?} is no port; write numbers from 1 to 65535, like 443,8443")),
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let plain_http = settings.parsed("bmc.plain-http")?;
    Ok(AddressRules { allow, ports, plain_http, ..AddressRules::default() })
}

/// The drivers that can say what a machine is.
#[derive(Debug)]
struct Drivers {
    redfish: Redfish,
    ipmi: Ipmi,
}

impl Drivers {
    fn new(
        rules: Arc<AddressRules>,
        vault: Arc<Vault>,
        clock: Arc<dyn Clock>,
        ledger: Arc<dyn Ledger>,
    ) -> Self {
        let redfish = Redfish::new(Setup {
            rules: Arc::clone(&rules),
            credentials: Arc::clone(&vault) as _,
            clock: Arc::clone(&clock),
            limits: Limits::default(),
            ledger,
        });
        Self { redfish, ipmi: Ipmi::new(rules, vault, clock) }
    }
}

#[async_trait]
impl Prober for Drivers {
    async fn identify(&self, bmc: &Bmc) -> Result<Identity, PowerError> {
        let found = match bmc.driver() {
            DriverKind::Redfish => self.redfish.identify(bmc).await,
            DriverKind::Ipmi => self.ipmi.identify(bmc).await,
            other => Err(PowerError::new(bmc, Fault::unsupported("identity", other))),
        };
        // One question, asked by a person: no session stays behind for it. Those of the host loop stay.
        self.redfish.close_one(bmc).await;
        found
    }
}
