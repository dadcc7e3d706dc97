//! Puts the host loop together: who leads, the power drivers, and what hosts need beside their records.

use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use muster_control::{
    audit::AuditLog,
    hosts::{Agents, Audited, Drivers, Facts, HostLoop, Recorded, Setup, Transcripts, failpoint::Failpoints},
    lead::{self, Lead},
    planner::Connections,
    registry::Registry,
};
use muster_model::{
    Clock,
    lease::LeaseConfig,
    power::Power,
    store::{Expect, Store, Txn},
};
use muster_power::{
    Limits, agent::AgentHub, dry_run::DryRun, redfish::Ledger, webhook::Webhook, wol::WakeOnLan,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{
    agents::{Desk, Heard},
    election::{self, Candidate},
    inventory,
    outside::Played,
    reads::Reads,
    vital::Vital,
};
use crate::config::Settings;

/// Where the open sessions on BMCs are written down, so that a process which was killed leaves none behind.
const SESSIONS: &str = "/muster/bmc-sessions/";

/// Sessions on BMCs, in the store. Only a leader ends what another process has written down, which is over then: whoever
/// does not lead may be asking a BMC to which the leader speaks.
#[derive(Debug)]
pub(super) struct StoreLedger {
    pub(super) store: Arc<dyn Store>,
    pub(super) lead: Arc<Lead>,
}

impl StoreLedger {
    fn key(bmc: &str) -> String {
        let name: String = bmc
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || ".:[]-".contains(c) { c } else { '_' })
            .collect();
        format!("{SESSIONS}{name}")
    }

    async fn write(&self, txn: Txn) {
        if let Err(error) = self.store.commit(txn).await {
            tracing::warn!(%error, "an open session on a BMC could not be written down");
        }
    }
}

#[async_trait]
impl Ledger for StoreLedger {
    async fn recall(&self, bmc: &str) -> Option<String> {
        self.lead.now()?;
        let entry = self.store.get(&Self::key(bmc)).await.ok().flatten()?;
        String::from_utf8(entry.value.to_vec()).ok()
    }

    async fn remember(&self, bmc: &str, session: &str) {
        let key = Self::key(bmc);
        let txn =
            if self.lead.now().is_some() { Txn::new() } else { Txn::new().expect(&key, Expect::Absent) };
        self.write(txn.put(key, session.to_owned())).await;
    }

    async fn forget(&self, bmc: &str, session: &str) {
        let key = Self::key(bmc);
        if let Ok(Some(entry)) = self.store.get(&key).await
            && entry.value == session.as_bytes()
        {
            self.write(Txn::new().expect(&key, Expect::Modified(entry.modified)).delete(&key)).await;
        }
    }
}

/// The loop and what it needs, running.
pub(super) struct Running {
    /// The one leadership of this process, for every loop.
    pub(super) lead: Arc<Lead>,
    pub(super) host_loop: Arc<HostLoop>,
    /// Where agents on hosts are answered.
    pub(super) agents: Arc<Desk>,
    /// What was said to BMCs.
    pub(super) transcripts: Arc<Transcripts>,
    /// Whether all loops run.
    pub(super) vital: Arc<Vital>,
    tasks: Vec<JoinHandle<()>>,
    election: JoinHandle<()>,
    stop: CancellationToken,
    resign: CancellationToken,
}

impl Running {
    /// Lets turns under way finish, ends the drivers' sessions, and gives the lease up last.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            let _ = task.await;
        }
        self.resign.cancel();
        let _ = self.election.await;
    }
}

/// Where tests stop the loop; the released program has no such points.
#[allow(clippy::disallowed_methods, reason = "a test sets it for the process that it kills there")]
fn failpoint() -> Option<String> {
    std::env::var("FAILPOINT").ok()
}

#[allow(clippy::too_many_arguments, reason = "each is a part of its own")]
pub(super) fn start(
    settings: &Settings,
    parts: &inventory::Parts,
    registry: &Arc<Registry>,
    connections: Arc<dyn Connections>,
    clock: &Arc<dyn Clock>,
    candidate: Candidate,
    audit: &Arc<AuditLog>,
    played: Option<&Played>,
) -> anyhow::Result<Running> {
    let store = Arc::clone(registry.store());
    let time_factor: u32 = settings.parsed("hosts.time-factor").context("hosts.time-factor is no number")?;
    let hub = Arc::new(AgentHub::new(Arc::clone(&parts.vault) as _, Arc::clone(clock)));
    let rules = Arc::clone(&parts.rules);
    let webhook =
        Webhook::new(Arc::clone(&rules), Arc::clone(&parts.vault) as _, Arc::clone(clock), Limits::default());
    let real: Vec<Arc<dyn Power>> = vec![
        Arc::new(parts.redfish.clone()),
        Arc::new(parts.ipmi.clone()),
        Arc::new(WakeOnLan::new(rules, Arc::clone(clock))),
        Arc::new(webhook),
        Arc::clone(&hub) as _,
        Arc::new(DryRun::new(
            Arc::new(Reads { redfish: parts.redfish.clone(), ipmi: parts.ipmi.clone() }),
            Arc::clone(clock),
        )),
    ];
    let drivers =
        played.and_then(|one| one.machines.as_ref()).map_or(real, |machines| machines.drivers.clone());
    let transcripts = Arc::clone(&parts.transcripts);
    let drivers: Vec<Arc<dyn Power>> = drivers
        .into_iter()
        .map(|driver| Recorded::wrap(driver, Arc::clone(&transcripts), Arc::clone(clock)))
        .collect();
    let lead = Arc::clone(&parts.lead);
    let heard: Arc<dyn Agents> = match played {
        Some(one) => Arc::clone(&one.agents),
        None => Arc::new(Heard { hub: Arc::clone(&hub), lead: Arc::clone(&lead), factor: time_factor }),
    };
    let facts = Facts::new(
        Arc::clone(registry),
        Arc::clone(&parts.inventory),
        Arc::clone(&parts.vault),
        connections,
        heard,
        Arc::clone(clock),
    );
    let (stop, resign) = (CancellationToken::new(), CancellationToken::new());
    let holder = candidate.holder.clone();
    let config = LeaseConfig { sole: registry.is_exclusive(), ..lead::config(candidate.holder) };
    let config = played.map_or(config.clone(), |one| one.lease(config));
    let agents = Arc::new(Desk {
        hub,
        inventory: Arc::clone(&parts.inventory),
        vault: Arc::clone(&parts.vault),
        lead: Arc::clone(&lead),
        store: Arc::clone(&store),
        clock: Arc::clone(clock),
    });
    let host_loop = Arc::new(HostLoop::new(Setup {
        store: Arc::clone(&store),
        clock: Arc::clone(clock),
        lead: Arc::clone(&lead),
        drivers: Drivers::new(drivers),
        around: Arc::clone(&facts) as _,
        witness: Arc::new(Audited { log: Arc::clone(audit), holder }),
        time_factor,
        renew_deadline: config.renew_deadline,
        renew_every: config.retry,
        failpoints: Failpoints::hanging_at(failpoint()),
    }));
    let vital = Arc::new(Vital::default());
    let election = election::run(candidate.by, store, config, Arc::clone(&lead), resign.clone());
    let election = vital.spawn("the election", &resign, election);
    let tasks = vec![
        vital.spawn("what is known of hosts", &stop, {
            let stop = stop.clone();
            async move { facts.run(stop).await }
        }),
        vital.spawn("the hosts", &stop, {
            let (host_loop, stop) = (Arc::clone(&host_loop), stop.clone());
            async move { host_loop.run(stop).await }
        }),
    ];
    Ok(Running { lead, host_loop, agents, transcripts, vital, tasks, election, stop, resign })
}

#[cfg(test)]
mod tests {
    use muster_model::{
        Duration,
        store::{Fence, Revision},
    };
    use muster_store::memory::Memory;

    use super::*;
    use crate::clock::SystemClock;

    #[tokio::test]
    async fn a_session_that_another_process_has_written_down_stays() {
        let lead = Lead::new(Arc::new(SystemClock::new()));
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let ledger = StoreLedger { store: Arc::clone(&store), lead: Arc::clone(&lead) };
        lead.set(Some((Fence { key: "/lead".into(), epoch: Revision(1) }, Duration::from_hours(1_000_000))));
        ledger.remember("10.0.0.5:443", "/sessions/1").await;
        ledger.remember("10.0.0.5:443", "/sessions/2").await;
        ledger.forget("10.0.0.5:443", "/sessions/1").await;
        assert_eq!(ledger.recall("10.0.0.5:443").await.as_deref(), Some("/sessions/2"));
        // Another process, which does not lead, ends nothing and overwrites nothing.
        let other = StoreLedger { store, lead: Lead::new(Arc::new(SystemClock::new())) };
        assert_eq!(other.recall("10.0.0.5:443").await, None);
        other.remember("10.0.0.5:443", "/sessions/3").await;
        assert_eq!(ledger.recall("10.0.0.5:443").await.as_deref(), Some("/sessions/2"));
        ledger.forget("10.0.0.5:443", "/sessions/2").await;
        assert_eq!(ledger.recall("10.0.0.5:443").await, None);
    }
}
