//! The IPMI driver: an own RMCP+ client, cipher suites 3 and 17, no external program.
//!
//! A session lasts for one operation: it is opened, raised to the privilege that control needs, used and
//! closed. Like everywhere, one operation runs per BMC at a time, and a refused account is not tried again.
//! IPMI 2.0 hands anyone who asks a hash to guess passwords by (RAKP message 2), so its network belongs to
//! nobody else; where a BMC speaks Redfish, that comes first.

mod chassis;
mod keys;
mod log;
mod session;
mod wire;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use muster_model::{
    Clock,
    power::{
        Abilities, Accepted, Bmc, BootOverride, BootProgress, Credentials, DriverKind, Endpoint, Fault,
        Identity, Leave, LogEntry, Order, Power, PowerError, Reading, Sensors,
    },
};

use crate::{
    address::AddressRules,
    job::{Done, Job, full_abilities},
    slots::{Account, Slots},
};
use chassis::Chassis;
use session::Session;

/// RMCP's port.
const PORT: u16 = 623;

/// See the module.
#[derive(Clone)]
pub struct Ipmi(Arc<Inner>);

struct Inner {
    rules: Arc<AddressRules>,
    credentials: Arc<dyn Credentials>,
    clock: Arc<dyn Clock>,
    slots: Slots<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    refused: Option<Account>,
}

impl fmt::Debug for Ipmi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ipmi").field("bmcs", &self.0.slots.all().len()).finish_non_exhaustive()
    }
}

impl Ipmi {
    pub fn new(rules: Arc<AddressRules>, credentials: Arc<dyn Credentials>, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { rules, credentials, clock, slots: Slots::default() }))
    }

    /// Runs as a task of its own: a caller that goes away must not leave a session open.
    async fn run(&self, bmc: &Bmc, job: Job) -> Result<Done, PowerError> {
        let (inner, target) = (Arc::clone(&self.0), bmc.clone());
        let (waited, _waiting) = Leave::unlimited().for_one_call();
        match tokio::spawn(async move { inner.perform(&target, job, &waited).await }).await {
            Ok(done) => done.map_err(|fault| PowerError::new(bmc, fault)),
            Err(broken) => {
                tracing::error!(host = bmc.host, driver = "ipmi", error = %broken, "a bmc call broke off");
                let why = "the call broke off inside Muster; please report this".to_owned();
                Err(PowerError::new(bmc, Fault::OutcomeUnknown { action: "the call".into(), why }))
            }
        }
    }
}

impl Inner {
    /// `waited` ends when nobody waits for the answer any more.
    async fn perform(&self, bmc: &Bmc, job: Job, waited: &Leave) -> Result<Done, Fault> {
        let Endpoint::Ipmi { address, suite, privilege } = &bmc.endpoint else {
            return Err(Fault::Invalid { why: "its endpoint is not an IPMI one".into() });
        };
        let approved =
            self.rules.approve_udp(address, PORT).await.map_err(|why| Fault::AddressRefused { why })?;
        let name = bmc
            .credential
            .as_deref()
            .ok_or_else(|| Fault::NoCredential { why: "the host's record names no credential".into() })?;
        let credential = self.credentials.credential(name).await.map_err(Fault::from)?;

        let slot = self.slots.slot(approved.socket);
        let mut memory = slot.lock().await;
        waited.ask()?;
        let account = Account { credential: name.to_owned(), version: credential.version.clone() };
        if memory.refused.as_ref() == Some(&account) {
            return Err(Fault::Denied { credential: name.to_owned() });
        }
        let opened = Session::open(&*self.clock, &approved, *suite, *privilege, name, &credential).await;
        if matches!(opened, Err(Fault::Denied { .. })) {
            memory.refused = Some(account);
        }
        let mut chassis = Chassis { session: opened?, credential: name };
        let done = self.answer(&mut chassis, bmc, job).await;
        chassis.session.close().await;
        done
    }

    async fn answer(&self, chassis: &mut Chassis<'_>, bmc: &Bmc, job: Job) -> Result<Done, Fault> {
        match job {
            Job::Read => chassis.power().await.map(|(state, health)| {
                Done::Reading(Reading {
                    state,
                    at: self.clock.now(),
                    driver: DriverKind::Ipmi,
                    progress: BootProgress::NotReported,
                    health,
                    warnings: Vec::new(),
                })
            }),
            Job::Request(order, leave) => {
                chassis.control(order, &bmc.expect, &leave).await.map(Done::Accepted)
            }
            Job::SetBoot(boot, leave) => chassis.set_boot(boot, &bmc.expect, &leave).await.map(Done::Boot),
            Job::Sensors => chassis.sensors(self.clock.now()).await.map(Box::new).map(Done::Sensors),
            Job::Identify => chassis.identify().await.map(Box::new).map(Done::Identity),
            Job::LogTail(most) => chassis.log_tail(most).await.map(Done::Log),
            Job::RestartBmc(leave) => chassis.restart_bmc(&bmc.expect, &leave).await.map(Done::Accepted),
        }
    }
}

/// What a completion code means for the caller.
fn completion(asked: &str, code: u8, credential: &str) -> Fault {
    let busy = |why: &str| Fault::Busy { why: why.to_owned() };
    match code {
        0xc0 => busy("its controller has too much to do"),
        0xc3 => busy("its controller timed out"),
        0xc4 => busy("its controller is out of space"),
        0xd2 => busy("it is still starting"),
        0xd5 => busy("it cannot do this in its present state"),
        0xc1 | 0xc2 => Fault::unsupported(asked, DriverKind::Ipmi),
        0xd4 => Fault::Denied { credential: credential.to_owned() },
        code => Fault::Refused { asked: asked.to_owned(), answer: format!("completion code {code:#04x}") },
    }
}

#[async_trait]
impl Power for Ipmi {
    fn driver(&self) -> DriverKind {
        DriverKind::Ipmi
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

    async fn log_tail(&self, bmc: &Bmc, most: usize) -> Result<Vec<LogEntry>, PowerError> {
        Ok(self.run(bmc, Job::LogTail(most)).await?.log())
    }

    async fn restart_bmc(&self, bmc: &Bmc, leave: &Leave) -> Result<Accepted, PowerError> {
        Ok(self.run(bmc, Job::RestartBmc(leave.clone())).await?.accepted())
    }

    async fn identify(&self, bmc: &Bmc) -> Result<Identity, PowerError> {
        Ok(self.run(bmc, Job::Identify).await?.identity())
    }
}
