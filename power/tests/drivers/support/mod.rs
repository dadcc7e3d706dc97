//! What the tests of drivers share: a fixed set of credentials, rules for loopback, waiting, the conformance suite.
#![allow(unreachable_pub, reason = "shared inside one test binary")]

pub mod conformance;
pub mod peers;

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use muster_emulate::RealClock;
use muster_model::{
    Clock, Duration,
    power::{
        Bmc, Credential, CredentialError, Credentials, Endpoint, Expected, Power, PowerState, RedfishAuth,
        Secret, Trust,
    },
};
use muster_power::{
    Limits,
    address::AddressRules,
    redfish::{Ledger, MemoryLedger, Redfish, Setup},
};

/// Credentials that a test can change.
#[derive(Debug, Default)]
pub struct Vault(Mutex<BTreeMap<String, Credential>>);

impl Vault {
    pub fn with(name: &str, user: &str, password: &str) -> Arc<Self> {
        let vault = Arc::new(Self::default());
        vault.set(name, user, password);
        vault
    }

    pub fn set(&self, name: &str, user: &str, password: &str) {
        let mut entries = self.0.lock().unwrap();
        let version = entries.get(name).map_or(0, |old| old.version.parse::<u32>().unwrap()) + 1;
        let entry =
            Credential { user: user.into(), password: Secret::new(password), version: version.to_string() };
        entries.insert(name.into(), entry);
    }
}

#[async_trait]
impl Credentials for Vault {
    async fn credential(&self, name: &str) -> Result<Credential, CredentialError> {
        let found = self.0.lock().unwrap().get(name).cloned();
        found.ok_or_else(|| CredentialError::Unusable { name: name.into(), why: "it does not exist".into() })
    }
}

pub fn clock() -> Arc<dyn Clock> {
    Arc::new(RealClock::default())
}

pub fn loopback_rules() -> Arc<AddressRules> {
    Arc::new(AddressRules {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        plain_http: true,
        ..AddressRules::default()
    })
}

pub fn setup(vault: &Arc<Vault>) -> Setup {
    Setup {
        rules: loopback_rules(),
        credentials: Arc::clone(vault) as Arc<dyn Credentials>,
        clock: clock(),
        limits: Limits::default(),
        ledger: Arc::new(MemoryLedger::default()) as Arc<dyn Ledger>,
    }
}

pub fn redfish(vault: &Arc<Vault>) -> Redfish {
    Redfish::new(setup(vault))
}

/// A record of a Redfish host, with the credential `lab`.
pub fn redfish_host(url: &str) -> Bmc {
    redfish_host_trusting(url, Trust::Insecure)
}

pub fn redfish_host_trusting(url: &str, trust: Trust) -> Bmc {
    Bmc {
        host: "n1".into(),
        endpoint: Endpoint::Redfish { url: url.into(), system: None, trust, auth: RedfishAuth::Auto },
        credential: Some("lab".into()),
        expect: Expected::default(),
    }
}

/// The machine is slow and shared: a limit only ends a test that would hang.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_mins(1);

/// Fails the test when `what` takes longer than anyone would wait.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} never happened"))
}

/// Reads until the machine is in `wanted`, and returns every state that was seen on the way.
pub async fn read_until(power: &dyn Power, bmc: &Bmc, wanted: &PowerState) -> Vec<PowerState> {
    let clock = clock();
    let mut seen = Vec::new();
    within(&format!("power {wanted}"), async {
        loop {
            let state = power.read(bmc).await.unwrap_or_else(|error| panic!("{error}")).state;
            if seen.last() != Some(&state) {
                seen.push(state.clone());
            }
            if state == *wanted {
                break;
            }
            clock.sleep(Duration::from_millis(60)).await;
        }
    })
    .await;
    seen
}

/// Waits until `holds`.
pub async fn eventually(what: &str, holds: &(dyn Fn() -> bool + Sync)) {
    let clock = clock();
    within(what, async {
        while !holds() {
            clock.sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
