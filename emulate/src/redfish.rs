//! A rack of servers with Redfish BMCs, thousands in one process, each on a loopback socket of its own.

mod bmc;
mod control;
mod faults;
mod handler;
mod log;
mod resources;
mod serve;

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use muster_model::{Clock, Duration};
use tokio::task::JoinSet;

pub use crate::control::Control;
pub use bmc::{Counters, RedfishBmc, System};
pub use faults::Faults;

use crate::{Machine, Timing};

/// How a fleet is laid out.
#[derive(Debug, Clone)]
pub struct Layout {
    pub bmcs: u32,
    /// Systems behind each BMC.
    pub systems: u32,
    pub place: Place,
    pub tls: bool,
    pub user: String,
    pub password: String,
    pub timing: Timing,
    pub session_timeout: Duration,
}

/// Where the BMCs listen. Always on loopback.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// All on 127.0.0.1, each on a free port.
    FreePorts,
    /// One address each, counted up from `first`, all on the same port.
    Addresses { first: Ipv4Addr, port: u16 },
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            bmcs: 1,
            systems: 1,
            place: Place::FreePorts,
            tls: false,
            user: "admin".into(),
            password: "emulated".into(),
            timing: Timing::default(),
            session_timeout: Duration::from_mins(30),
        }
    }
}

/// Running BMCs. They stop when this is dropped.
#[derive(Debug)]
pub struct Fleet {
    bmcs: BTreeMap<String, Arc<RedfishBmc>>,
    tasks: JoinSet<()>,
}

impl Fleet {
    /// Starts the fleet and returns once every BMC listens.
    pub async fn start(layout: &Layout, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let (mut bmcs, mut tasks) = (BTreeMap::new(), JoinSet::new());
        for index in 0..layout.bmcs {
            let wanted = match layout.place {
                Place::FreePorts => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                Place::Addresses { first, port } => {
                    SocketAddr::from((Ipv4Addr::from_bits(first.to_bits().saturating_add(index)), port))
                }
            };
            if !matches!(wanted.ip(), IpAddr::V4(address) if address.is_loopback()) {
                let why = format!("{wanted} is not on loopback; an emulator listens nowhere else");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            let listener = tokio::net::TcpListener::bind(wanted).await?;
            let name = format!("emulated-{index:05}");
            let systems = (0..layout.systems)
                .map(|slot| System::new(index, slot, Machine::new(Arc::clone(&clock), layout.timing)))
                .collect();
            let bmc = Arc::new(RedfishBmc::new(
                name.clone(),
                listener.local_addr()?,
                systems,
                layout,
                Arc::clone(&clock),
            )?);
            tasks.spawn(serve::run(listener, Arc::clone(&bmc)));
            bmcs.insert(name, bmc);
        }
        Ok(Self { bmcs, tasks })
    }

    pub fn bmcs(&self) -> impl Iterator<Item = &Arc<RedfishBmc>> {
        self.bmcs.values()
    }

    pub fn get(&self, name: &str) -> Option<&Arc<RedfishBmc>> {
        self.bmcs.get(name)
    }

    /// The only or first BMC, for tests that need one.
    pub fn first(&self) -> &Arc<RedfishBmc> {
        self.bmcs.values().next().expect("a fleet is started with at least one BMC")
    }

    /// How many BMCs are still being served.
    pub fn serving(&self) -> usize {
        self.tasks.len()
    }

    /// Serves the control interface of this fleet. It stops when the returned value is dropped.
    pub async fn control(&self, address: SocketAddr) -> io::Result<Control> {
        control::start(address, self.bmcs.clone()).await
    }
}
