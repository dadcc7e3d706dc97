//! Answers the agents on hosts: checks their signatures, keeps what they said, hands out power-off tokens.

use std::sync::Arc;

use async_trait::async_trait;
use muster_control::{
    hosts::{AgentDesk, Agents, DeskError},
    inventory::{Inventory, Vault},
    lead::Lead,
};
use muster_engine::lifecycle::{AgentView, Hello as Seen};
use muster_model::{
    Clock, Duration, Known, Secret, Timestamp,
    host::{
        AgentGoodbye, DriverKind, Presence,
        keys::{self, HostRecord},
    },
    power::Credentials as _,
    store::{Committed, Expect, Store, StoreError, Txn},
};
use muster_power::agent::{AgentHub, Distrust, HELLO_EVERY, Hello, Taken};
use serde_json::{Value, json};

/// An agent that has missed this many hellos is silent.
const MISSED: u64 = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) hub: Arc<AgentHub>,
    pub(super) inventory: Arc<Inventory>,
    pub(super) vault: Arc<Vault>,
    pub(super) lead: Arc<Lead>,
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Desk {
    /// The key that the agent of a host signs with.
    async fn key(&self, host: &str) -> Result<Secret, DeskError> {
        let distrust = |why: String| DeskError::Distrusted { host: host.to_owned(), why };
        let record = self.inventory.host(host).ok_or_else(|| distrust("no such host".into()))?;
        let spec = record.accepted().ok_or_else(|| distrust("its record cannot be used".into()))?;
        let drivers = spec.effective_drivers();
        let driver = drivers
            .iter()
            .find(|driver| driver.kind == DriverKind::Agent)
            .ok_or_else(|| distrust("it has no driver agent".into()))?;
        let name = spec
            .credential(Some(driver))
            .ok_or_else(|| distrust("its driver agent names no credential".into()))?;
        let credential = self.vault.credential(&name).await.map_err(|error| distrust(error.to_string()))?;
        Ok(credential.password)
    }

    /// A boot that is heard again has not ended, whatever its agent said of it.
    async fn take_back(&self, host: &str, boot: &str) -> Result<(), StoreError> {
        let key = keys::agent_goodbye(host);
        let Some(entry) = self.store.get(&key).await? else { return Ok(()) };
        let said: Option<AgentGoodbye> = serde_json::from_slice(&entry.value).ok();
        if said.is_none_or(|said| !said.left || said.boot_id != boot) {
            return Ok(());
        }
        let txn = Txn::new().expect(key.clone(), Expect::Modified(entry.modified)).delete(key);
        if let Committed::Done { .. } = self.store.commit(txn).await? {
            tracing::warn!(host, boot, "a host is heard after its agent's goodbye: it did not go off");
        }
        Ok(())
    }
}

fn stored(host: &str, source: StoreError) -> DeskError {
    DeskError::Store { host: host.to_owned(), source }
}

fn read<T: serde::de::DeserializeOwned>(message: Value) -> Result<T, DeskError> {
    serde_json::from_value(message).map_err(|error| DeskError::Malformed { why: error.to_string() })
}

fn distrusted(host: &str, why: Distrust) -> DeskError {
    DeskError::Distrusted { host: host.to_owned(), why: why.advice().to_owned() }
}

#[async_trait]
impl AgentDesk for Desk {
    /// Only the leader hands out tokens, and only it needs to know who is alive.
    async fn hello(&self, host: &str, message: Value) -> Result<Value, DeskError> {
        let hello: Hello = read(message)?;
        if hello.host != host {
            return Err(distrusted(host, Distrust::WrongHost));
        }
        let key = self.key(host).await?;
        if self.lead.now().is_none() {
            return Err(DeskError::NotLeading);
        }
        let answer = self.hub.hello(&hello, &key).map_err(|why| distrusted(host, why))?;
        self.take_back(host, &hello.boot_id).await.map_err(|source| stored(host, source))?;
        Ok(json!(answer))
    }

    async fn taken(&self, host: &str, message: Value) -> Result<(), DeskError> {
        let taken: Taken = read(message)?;
        if taken.token.host != host {
            return Err(distrusted(host, Distrust::WrongHost));
        }
        let key = self.key(host).await?;
        self.hub.taken(&taken, &key).map_err(|why| distrusted(host, why))?;
        let goodbye = AgentGoodbye {
            boot_id: taken.token.boot_id.clone(),
            token: taken.token.nonce.clone(),
            at: self.clock.now(),
            left: taken.goodbye,
        };
        let value = serde_json::to_vec(&goodbye).expect("texts and a time are JSON");
        let txn = Txn::new()
            .expect(keys::host(host, HostRecord::Spec), Expect::Present)
            .put(keys::agent_goodbye(host), value);
        match self.store.commit(txn).await.map_err(|source| stored(host, source))? {
            Committed::Done { .. } => {
                let (boot, token) = (&taken.token.boot_id, &taken.token.nonce);
                if taken.goodbye {
                    tracing::info!(host, boot, token, "the agent says goodbye: its host goes off");
                } else {
                    tracing::info!(host, boot, token, "the agent has taken the order to power its host off");
                }
                Ok(())
            }
            Committed::Refused { .. } => {
                Err(DeskError::Distrusted { host: host.to_owned(), why: "no such host".into() })
            }
        }
    }
}

/// What agents on hosts said, as the lifecycle wants it.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) hub: Arc<AgentHub>,
    pub(super) lead: Arc<Lead>,
    /// Time limits are divided by it.
    pub(super) factor: u32,
}

impl Agents for Heard {
    /// Goodbyes are in the store, where every process finds them.
    fn view(&self, host: &str) -> AgentView {
        let hello = self.hub.heard(host).map(|heard| Seen { boot_id: heard.boot_id, at: heard.at });
        AgentView { hello, goodbye: None }
    }

    fn presence(&self, host: &str, now: Timestamp) -> Known<Presence> {
        let patience = Duration::from_millis(HELLO_EVERY.millis() * MISSED / u64::from(self.factor.max(1)));
        let last = self.hub.heard(host).map(|heard| heard.at);
        presence(last, self.lead.led_for(), patience, now)
    }
}

/// Silence counts once an agent would have been heard, and only a leader hears agents.
fn presence(
    last: Option<Timestamp>,
    listened: Duration,
    patience: Duration,
    now: Timestamp,
) -> Known<Presence> {
    match last {
        Some(at) if now.since(at) < patience => Known::Value { value: Presence::Answers, at },
        _ if listened >= patience => Known::Value { value: Presence::Silent, at: now },
        _ => Known::Unknown { why: "its agent has not been listened to for long enough".into(), since: now },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_silent_only_to_a_leader_that_has_listened_for_long_enough() {
        #[track_caller]
        fn check(heard: Option<i64>, listened: u64, expected: Option<Presence>) {
            let (now, second) = (Timestamp::from_millis(900_000), Duration::from_secs);
            let last = heard.map(|ago| Timestamp::from_millis(900_000 - ago * 1000));
            let found = presence(last, second(listened), second(60), now);
            assert_eq!(found.value().copied(), expected, "heard {heard:?} s ago, listened for {listened} s");
        }
        check(Some(59), 0, Some(Presence::Answers));
        check(Some(60), 0, None); // it led before, and heard nobody since
        check(Some(60), 60, Some(Presence::Silent));
        check(None, 59, None);
        check(None, 60, Some(Presence::Silent));
    }
}
