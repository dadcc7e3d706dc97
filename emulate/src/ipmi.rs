//! A BMC that speaks RMCP+ (IPMI 2.0 over UDP) with cipher suites 3 and 17, one machine behind it.

mod commands;
mod control;
mod crypto;
mod log;
mod packet;
mod server;

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use muster_model::{Clock, Duration};
use serde::{Deserialize, Serialize};
use tokio::{net::UdpSocket, task::JoinSet};

pub use control::control;

use crate::Machine;

/// What an account may do, in IPMI's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    User = 2,
    Operator = 3,
    Administrator = 4,
}

/// An account on the BMC.
#[derive(Debug, Clone)]
pub struct Account {
    pub user: String,
    pub password: String,
    pub level: Level,
}

/// Ways to misbehave, all off by default. They act on the next packet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Faults {
    /// Packets are read and never answered.
    pub silent: bool,
    /// Every answer comes this much later.
    pub delay: Duration,
    /// Every n-th answer is lost (0: none).
    pub lose_every: u32,
    /// Every answer is sent twice.
    pub duplicate: bool,
    /// Before every answer inside a session comes a forged one with a wrong code.
    pub forge: bool,
    /// So many openings are refused for lack of room.
    pub no_room: u32,
    /// Accounts are refused.
    pub refuse_account: bool,
    /// What it says about an account comes this much later.
    pub slow_account: Duration,
    /// So many times what it says about an account is lost.
    pub lose_account: u32,
    /// Whoever proves to know the password is refused all the same.
    pub refuse_proof: bool,
    /// Every command is answered with this completion code.
    pub completion: Option<u8>,
    /// The question for the machine's UUID is answered with this completion code.
    pub guid_completion: Option<u8>,
    /// "on" or "off": what is said about power, whatever is true.
    pub say_power: Option<String>,
    /// Control is accepted and nothing happens.
    pub ignore_control: bool,
    /// Power comes, and the boot stops in the firmware.
    pub hang_boot: bool,
    /// Soft shutdown is not heard.
    pub ignore_acpi: bool,
    /// Boot devices are accepted and forgotten.
    pub ignore_boot: bool,
    /// The flags of a boot device never say that they are valid.
    pub never_valid: bool,
    /// The flags of a boot device say UEFI, whatever was written.
    pub always_uefi: bool,
    /// The cipher suites that are refused.
    pub refuse_suites: Vec<u8>,
}

/// What happened so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    pub packets: u64,
    pub opened: u64,
    pub sessions: u64,
    pub sessions_peak: u64,
    pub refused: u64,
    /// Cold resets of the controller.
    pub restarts: u64,
    /// Every chassis control that was carried out, in order.
    pub controls: Vec<u8>,
}

/// State that the packets of all sessions share.
#[derive(Debug)]
struct Shared {
    accounts: Vec<Account>,
    guid: [u8; 16],
    machine: Arc<Machine>,
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    faults: Faults,
    counters: Counters,
    boot: [u8; 5],
    log: log::Log,
    answers: u32,
}

/// A running BMC; it stops when dropped.
#[derive(Debug)]
pub struct RmcpBmc {
    pub address: SocketAddr,
    pub machine: Arc<Machine>,
    shared: Arc<Shared>,
    _task: JoinSet<()>,
}

impl RmcpBmc {
    /// Starts a BMC on a loopback address (port 0: a free one).
    pub async fn start(
        address: SocketAddr,
        accounts: Vec<Account>,
        guid: [u8; 16],
        machine: Arc<Machine>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            let why = format!("{address} is not on loopback; an emulator listens nowhere else");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let socket = UdpSocket::bind(address).await?;
        let address = socket.local_addr()?;
        let shared = Arc::new(Shared {
            accounts,
            guid,
            machine: Arc::clone(&machine),
            clock,
            inner: Mutex::default(),
        });
        let mut task = JoinSet::new();
        task.spawn(server::run(socket, Arc::clone(&shared)));
        Ok(Self { address, machine, shared, _task: task })
    }

    pub fn set_faults(&self, faults: Faults) {
        self.shared.inner().faults = faults;
    }

    pub fn faults(&self) -> Faults {
        self.shared.inner().faults.clone()
    }

    /// Writes the event of a sensor into its log: sensor type, sensor, direction and event type, three bytes of data.
    pub fn event(&self, event: [u8; 6]) {
        self.shared.event(event);
    }

    /// Writes a record of any type into its log: what follows the record's number and type.
    pub fn record(&self, kind: u8, rest: [u8; 13]) {
        self.shared.inner().log.add(kind, rest);
    }

    pub fn counters(&self) -> Counters {
        self.shared.inner().counters.clone()
    }
}

impl Shared {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self, event: [u8; 6]) {
        let seconds = u32::try_from(self.clock.now().millis() / 1000).unwrap_or(u32::MAX);
        self.inner().log.event(seconds, event);
    }
}
