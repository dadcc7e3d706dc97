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

use super::hosts::StoreLedger;
use crate::config::Settings;

/// File of the key that credentials are sealed with, in the data directory unless the settings name another.
const KEY_FILE: &str = "credentials.key";

/// The inventory's parts.
pub(super) struct Parts {
    pub(super) inventory: Arc<Inventory>,
    pub(super) vault: Arc<Vault>,
    pub(super) prober: Arc<dyn Prober>,
    pub(super) rules: Arc<AddressRules>,
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
    let key_file =
        settings.optional("credentials.key-file").map_or_else(|| data_dir.join(KEY_FILE), PathBuf::from);
    let key = VaultKey::open(&key_file).context("cannot open the key of the credentials")?;
    let vault = Arc::new(Vault::new(Arc::clone(&inventory), key));
    let drivers = Drivers::new(Arc::clone(&rules), Arc::clone(&vault), Arc::clone(clock), ledger);
    let (redfish, ipmi) = (drivers.redfish.clone(), drivers.ipmi.clone());
    let transcripts = Arc::new(Transcripts::kept_in(data_dir));
    Ok(Parts { inventory, vault, prober: Arc::new(drivers), rules, redfish, ipmi, transcripts })
}

/// Which addresses may be called as BMCs.
pub(super) fn rules(settings: &Settings) -> anyhow::Result<AddressRules> {
    let allow = settings
        .text("bmc.allow")
        .split(',')
        .map(str::trim)
        .filter(|block| !block.is_empty())
        .map(|block| block.parse::<Cidr>().map_err(|why| anyhow!("bmc.allow: {why}")))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let plain_http = settings.parsed("bmc.plain-http")?;
    let own = settings.text("listen").parse().into_iter().collect();
    Ok(AddressRules { allow, plain_http, own, ..AddressRules::default() })
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
        // One question, asked by a person: no session stays behind for it.
        self.redfish.close().await;
        found
    }
}
