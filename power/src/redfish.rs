//! The Redfish driver: an own thin client that reads tolerantly and trusts little.
//!
//! Per BMC (told apart by the address that is connected to, not by how a record spells it) there is one slot
//! with a lock: one call in flight, one session at most. An operation runs as a task of its own, so that a
//! caller that goes away cannot leave a login half done. Sessions end in [`Redfish::close`], when a
//! credential changes, and when the driver is dropped; a process that was killed leaves its sessions in the
//! [`Ledger`], and the next one ends them before it opens its own.

mod boot;
mod conversation;
mod identity;
mod ledger;
mod log;
mod quirks;
mod reset;
mod sensors;
mod system;

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use muster_model::{
    Clock, Duration,
    power::{
        Abilities, Accepted, Bmc, BootOverride, Credentials, DriverKind, Endpoint, Fault, Identity, Leave,
        LogEntry, Order, Power, PowerError, Reading, Sensors, Trust, Warning,
    },
};

use crate::{
    address::{AddressRules, Approved, Path, Scheme},
    http::{Limits, Wire},
    job::{Done, Job, full_abilities},
    slots::{Account, Slots},
};
use conversation::Conversation;
pub use ledger::{Ledger, MemoryLedger};
use quirks::Quirks;

/// What the driver needs from the rest of the process.
#[derive(Debug, Clone)]
pub struct Setup {
    pub rules: Arc<AddressRules>,
    pub credentials: Arc<dyn Credentials>,
    pub clock: Arc<dyn Clock>,
    pub limits: Limits,
    pub ledger: Arc<dyn Ledger>,
}

/// See the module.
#[derive(Clone)]
pub struct Redfish(Arc<Inner>);

struct Inner {
    setup: Setup,
    slots: Slots<Memory>,
}

/// What is remembered about one BMC between calls.
#[derive(Debug, Default)]
struct Memory {
    session: Option<Session>,
    refused: Option<Account>,
    /// What the service root said, once it was read.
    root: Option<Root>,
    /// Until when (monotonic) no session is tried, because the BMC had no room for one.
    basic_until: Option<Duration>,
    /// It refused the account with a call and took it for a session.
    no_basic: bool,
    /// Paths of systems by their configured id.
    systems: BTreeMap<Option<String>, String>,
    quirks: Quirks,
}

#[derive(Debug, Clone)]
struct Root {
    systems: String,
    /// Where sessions are made; `None` when there are none.
    sessions: Option<String>,
    vendor: String,
}

/// An open session, with all that is needed to end it.
#[derive(Debug, Clone)]
struct Session {
    token: muster_model::power::Secret,
    location: Option<String>,
    account: Account,
    approved: Approved,
    trust: Trust,
}

impl fmt::Debug for Redfish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redfish").field("bmcs", &self.0.slots.all().len()).finish_non_exhaustive()
    }
}

impl Redfish {
    pub fn new(setup: Setup) -> Self {
        Self(Arc::new(Inner { setup, slots: Slots::default() }))
    }

    /// Ends the session on one BMC, for whoever asked it once and leaves it alone from then on.
    pub async fn close_one(&self, bmc: &Bmc) {
        let Endpoint::Redfish { url, .. } = &bmc.endpoint else { return };
        if let Ok(approved) = self.0.setup.rules.approve_url(url, Path::None).await {
            self.0.end_session(&self.0.slots.slot(approved.socket)).await;
        }
    }

    async fn run(&self, bmc: &Bmc, job: Job) -> Result<Done, PowerError> {
        let (inner, target) = (Arc::clone(&self.0), bmc.clone());
        let (waited, _waiting) = Leave::unlimited().for_one_call();
        let task = tokio::spawn(async move { inner.perform(&target, job, waited).await });
        match task.await {
            Ok(done) => done.map_err(|fault| PowerError::new(bmc, fault)),
            Err(broken) => {
                tracing::error!(host = bmc.host, driver = "redfish", error = %broken, "a bmc call broke off");
                let why = "the call broke off inside Muster; please report this".to_owned();
                Err(PowerError::new(bmc, Fault::OutcomeUnknown { action: "the call".into(), why }))
            }
        }
    }
}

impl Inner {
    /// `waited` ends when nobody waits for the answer any more.
    async fn perform(&self, bmc: &Bmc, job: Job, waited: Leave) -> Result<Done, Fault> {
        let Endpoint::Redfish { url, trust, auth, system } = &bmc.endpoint else {
            return Err(Fault::Invalid { why: "its endpoint is not a Redfish one".into() });
        };
        let approved = self
            .setup
            .rules
            .approve_url(url, Path::None)
            .await
            .map_err(|why| Fault::AddressRefused { why })?;
        let name = bmc
            .credential
            .as_deref()
            .ok_or_else(|| Fault::NoCredential { why: "the host's record names no credential".into() })?;
        let credential = self.setup.credentials.credential(name).await.map_err(Fault::from)?;

        let slot = self.slots.slot(approved.socket);
        let mut memory = slot.lock().await;
        waited.ask()?;
        let account = Account { credential: name.to_owned(), version: credential.version.clone() };
        if memory.refused.as_ref() == Some(&account) {
            return Err(Fault::Denied { credential: name.to_owned() });
        }
        let mut talk = Conversation {
            wire: Wire::new(&approved, trust, self.limits(&job))?,
            setup: &self.setup,
            approved: &approved,
            trust,
            auth: *auth,
            name,
            credential: &credential,
            memory: &mut memory,
            leave: job.leave().cloned(),
            waited,
            until: None,
        };
        talk.begin().await?;
        let path = talk.choose_system(system.as_deref(), &bmc.expect).await?;
        match job {
            Job::Read => talk.reading(&path, &bmc.expect).await.map(|mut reading| {
                reading.warnings = warnings(&approved, trust);
                Done::Reading(reading)
            }),
            Job::Request(order, _) => talk.reset(&path, &bmc.expect, order).await.map(Done::Accepted),
            Job::SetBoot(boot, _) => talk.set_boot(&path, &bmc.expect, boot).await.map(Done::Boot),
            Job::Sensors => talk.sensors(&path).await.map(Box::new).map(Done::Sensors),
            Job::Identify => talk.identify(&path).await.map(Box::new).map(Done::Identity),
            Job::LogTail(most) => talk.log_tail(&path, &bmc.expect, most).await.map(Done::Log),
            Job::RestartBmc(_) => talk.restart_bmc(&path, &bmc.expect).await.map(Done::Accepted),
        }
    }

    async fn end_session(&self, slot: &tokio::sync::Mutex<Memory>) {
        let session = slot.lock().await.session.take();
        if let Some(session) = session {
            conversation::log_out(&self.setup, session).await;
        }
    }

    /// A log is only evidence: a BMC that is slow with it must not keep the next power call waiting.
    fn limits(&self, job: &Job) -> Limits {
        match job {
            Job::LogTail(_) => {
                Limits { total: self.setup.limits.total.min(log::REQUEST_LIMIT), ..self.setup.limits }
            }
            _ => self.setup.limits,
        }
    }
}

fn warnings(approved: &Approved, trust: &Trust) -> Vec<Warning> {
    match (approved.scheme, trust) {
        (Scheme::Https, Trust::Insecure) => vec![Warning::InsecureTls],
        (Scheme::Https, _) => Vec::new(),
        _ => vec![Warning::PlainHttp],
    }
}

impl Drop for Inner {
    /// Ends what [`Power::close`] did not: the last owner may be a task whose caller went away.
    fn drop(&mut self) {
        let (setup, Ok(runtime)) = (self.setup.clone(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        for session in self.slots.take_idle().into_iter().filter_map(|memory| memory.session) {
            let setup = setup.clone();
            runtime.spawn(async move { conversation::log_out(&setup, session).await });
        }
    }
}

#[async_trait]
impl Power for Redfish {
    fn driver(&self) -> DriverKind {
        DriverKind::Redfish
    }

    fn abilities(&self) -> Abilities {
        full_abilities()
    }

    async fn read(&self, bmc: &Bmc) -> Result<Reading, PowerError> {
        Ok(self.run(bmc, Job::Read).await?.reading())
    }

    async fn request(&self, bmc: &Bmc, order: Order, leave: &Leave) -> Result<Accepted, PowerError> {
        Ok(self.run(bmc, Job::Request(order, leave.clone())).await?.accepted())
    }

    async fn set_boot(
        &self,
        bmc: &Bmc,
        boot: BootOverride,
        leave: &Leave,
    ) -> Result<BootOverride, PowerError> {
        Ok(self.run(bmc, Job::SetBoot(boot, leave.clone())).await?.boot())
    }

    async fn sensors(&self, bmc: &Bmc) -> Result<Sensors, PowerError> {
        Ok(self.run(bmc, Job::Sensors).await?.sensors())
    }

    async fn identify(&self, bmc: &Bmc) -> Result<Identity, PowerError> {
        Ok(self.run(bmc, Job::Identify).await?.identity())
    }

    async fn log_tail(&self, bmc: &Bmc, most: usize) -> Result<Vec<LogEntry>, PowerError> {
        Ok(self.run(bmc, Job::LogTail(most)).await?.log())
    }

    async fn restart_bmc(&self, bmc: &Bmc, leave: &Leave) -> Result<Accepted, PowerError> {
        Ok(self.run(bmc, Job::RestartBmc(leave.clone())).await?.accepted())
    }

    async fn close(&self) {
        let ends = self.0.slots.all().into_iter().map(|slot| async move { self.0.end_session(&slot).await });
        futures::future::join_all(ends).await;
    }
}
