//! Puts the inventory together: the index, the credentials, and whatever asks BMCs.

use std::{path::Path, path::PathBuf, sync::Arc};

use anyhow::{Context, anyhow};
use async_trait::async_trait;
use muster_control::{
    hosts::Transcripts,
    inventory::{Inventory, Prober, Vault, VaultKey},
    lead::Lead,
};
use muster_model::{
    Clock,
    host::unique,
    power::{Bmc, DriverKind, Endpoint, Fault, Identity, Power, PowerError},
    store::Store,
};
use muster_power::{
    Limits,
    address::{AddressRules, Cidr},
    ipmi::Ipmi,
    redfish::{Redfish, Setup},
};

use super::{hosts::StoreLedger, own::Own};
use crate::config::Settings;

/// File of the key that credentials are sealed with, in the data directory unless the settings name another.
const KEY_FILE: &str = "credentials.key";

/// The inventory's parts.
pub(super) struct Parts {
    pub(super) inventory: Arc<Inventory>,
    pub(super) vault: Arc<Vault>,
    /// The one leadership of this process.
    pub(super) lead: Arc<Lead>,
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
    let lead = Lead::new(Arc::clone(clock));
    let ledger = Arc::new(StoreLedger { store: Arc::clone(&store), lead: Arc::clone(&lead) });
    let inventory = Inventory::open(store, Arc::clone(clock)).await.context("cannot load the inventory")?;
    let own = Own::open(settings, rules.own.clone(), Arc::clone(&inventory), clock).await;
    let key_file =
        settings.optional("credentials.key-file").map_or_else(|| data_dir.join(KEY_FILE), PathBuf::from);
    let key = VaultKey::open(&key_file).context("cannot open the key of the credentials")?;
    let vault = Arc::new(Vault::new(Arc::clone(&inventory), key));
    let drivers = Drivers {
        redfish: Redfish::new(Setup {
            rules: Arc::clone(&rules),
            credentials: Arc::clone(&vault) as _,
            clock: Arc::clone(clock),
            limits: Limits::default(),
            ledger,
        }),
        ipmi: Ipmi::new(Arc::clone(&rules), Arc::clone(&vault) as _, Arc::clone(clock)),
        inventory: Arc::clone(&inventory),
        lead: Arc::clone(&lead),
    };
    let (redfish, ipmi) = (drivers.redfish.clone(), drivers.ipmi.clone());
    let transcripts = Arc::new(Transcripts::kept_in(data_dir));
    Ok(Parts { inventory, vault, lead, prober: Arc::new(drivers), rules, own, redfish, ipmi, transcripts })
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
    inventory: Arc<Inventory>,
    lead: Arc<Lead>,
}

impl Drivers {
    /// A registered BMC has one process that speaks to it, in turn: the one that leads. The host that it belongs to, if
    /// that is another process.
    fn belongs_to(&self, bmc: &Bmc) -> Option<String> {
        if self.lead.now().is_some() {
            return None;
        }
        let wanted = place_of(bmc)?;
        let mut owner = None;
        self.inventory.each(|host| {
            let there = host.readable().is_some_and(|spec| unique::bmcs(spec).contains(&wanted));
            owner = owner.take().or_else(|| there.then(|| host.name.to_string()));
        });
        owner
    }
}

/// Where a BMC answers, in the one spelling of the inventory.
fn place_of(bmc: &Bmc) -> Option<String> {
    let (address, usual) = match &bmc.endpoint {
        Endpoint::Redfish { url, .. } => {
            let (scheme, authority) = url.split_once("://")?;
            (authority, if scheme == "http" { 80 } else { 443 })
        }
        Endpoint::Ipmi { address, .. } => (address.as_str(), 623),
        Endpoint::Wol { .. } | Endpoint::Agent | Endpoint::Webhook { .. } | Endpoint::DryRun => return None,
    };
    Some(unique::place(&address.parse().ok()?, None, usual))
}

#[async_trait]
impl Prober for Drivers {
    async fn identify(&self, bmc: &Bmc) -> Result<Identity, PowerError> {
        if let Some(host) = self.belongs_to(bmc) {
            let why = format!(
                "it is the BMC of host {host}, to which only the leading process speaks, and this one does not lead; look at \
                 the host, or ask the one that leads"
            );
            return Err(PowerError::new(bmc, Fault::NotAsked { why }));
        }
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

#[cfg(test)]
mod tests {
    use muster_model::power::{CipherSuite, Expected, Privilege, RedfishAuth, Trust};

    use super::*;

    #[test]
    fn a_bmc_has_one_place_however_it_is_spelt() {
        let bmc =
            |endpoint| Bmc { host: String::new(), endpoint, credential: None, expect: Expected::default() };
        let redfish = |url: &str| {
            let (trust, auth) = (Trust::default(), RedfishAuth::default());
            place_of(&bmc(Endpoint::Redfish { url: url.into(), system: None, trust, auth }))
        };
        let ipmi = |address: &str| {
            let (suite, privilege) = (CipherSuite::default(), Privilege::default());
            place_of(&bmc(Endpoint::Ipmi { address: address.into(), suite, privilege }))
        };
        assert_eq!(redfish("https://10.0.0.5").as_deref(), Some("10.0.0.5"));
        assert_eq!(redfish("https://10.0.0.5:443"), ipmi("10.0.0.5:623"));
        assert_eq!(redfish("http://[2001:db8::1]:8080").as_deref(), Some("[2001:db8::1]:8080"));
    }
}
