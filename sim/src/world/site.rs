//! What stands in a world when it begins: pools, racks and hosts, registered as people do.

use std::sync::Arc;

use muster_control::registry::{Cluster, NodePool, WriteContext};
use muster_model::{
    ClusterId, Duration, Quantity, Timestamp,
    host::{
        BareMetalNodeSpec, DriverKind, DriverSpec, GlobalConfig, MacAddress, NamedHost, PowerInterface,
        TlsVerify, keys,
    },
    pool::PoolContext,
    rack::Rack,
    store::Txn,
};
use serde_json::{Value, json};
use thiserror::Error;
use uuid::Uuid;

use super::{Build, Kind, Workload, simulation::Simulation};

/// How long registering one thing may take, in the world's time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a site could not be furnished.
#[derive(Debug, Error)]
pub enum SiteError {
    #[error("{what} {name} cannot be registered: {why}")]
    Refused { what: &'static str, name: String, why: String },
    #[error("no process runs that could register {what} {name}")]
    Nobody { what: &'static str, name: String },
    #[error("the store of the simulation failed")]
    Store(#[from] muster_model::store::StoreError),
}

/// A pool: its name and its `spec` as users write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSetting {
    pub name: String,
    pub spec: Value,
}

impl PoolSetting {
    /// A bare-metal pool that scales from `min` to `max`.
    pub fn metal(name: &str, min: u32, max: u32) -> Self {
        let spec = json!({"platform": {"type": "baremetal"}, "autoscaling": {
            "enabled": true, "minNodes": min, "maxNodes": max, "scaleUpDelay": "0s", "scaleDownDelay": "10m"}});
        Self { name: name.to_owned(), spec }
    }
}

/// How a host's power is switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wires {
    #[default]
    Redfish,
    Ipmi,
    /// Redfish, and IPMI when that fails.
    Both,
    /// Magic packets and an agent.
    Wol,
}

/// A host: the machine, its pool, and what its record says beyond that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSetting {
    pub pool: String,
    pub machine: Build,
    pub wires: Wires,
    pub labels: Vec<(String, String)>,
    pub boot_profile: Option<String>,
    /// The whole record, where what follows from the machine would not do.
    pub record: Option<BareMetalNodeSpec>,
}

impl HostSetting {
    pub fn new(pool: &str, machine: Build) -> Self {
        Self {
            pool: pool.to_owned(),
            machine,
            wires: Wires::default(),
            labels: Vec::new(),
            boot_profile: None,
            record: None,
        }
    }

    /// The record of the host.
    pub fn spec(&self) -> BareMetalNodeSpec {
        if let Some(record) = &self.record {
            return record.clone();
        }
        let machine = &self.machine;
        let interface = match self.wires {
            Wires::Redfish | Wires::Both => PowerInterface::Redfish,
            Wires::Ipmi => PowerInterface::Ipmi,
            Wires::Wol => PowerInterface::Wol,
        };
        let mut spec = BareMetalNodeSpec::new(self.pool.as_str(), interface);
        spec.rack.clone_from(&machine.rack);
        spec.tls_verify = TlsVerify::Webpki;
        spec.boot_profile.clone_from(&self.boot_profile);
        spec.labels = self.labels.iter().cloned().collect();
        (spec.idle_watts, spec.max_watts) = (Some(machine.max_watts / 3), Some(machine.max_watts));
        spec.resources.cpu = Quantity::from_milli(machine.milli_cpu);
        spec.resources.memory = Quantity::from_bytes(machine.memory);
        spec.resources.gpu = u32::try_from(machine.gpus).unwrap_or(0);
        if self.wires == Wires::Wol {
            let mac = machine
                .address
                .bytes()
                .fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
            let [a, b, c, d] = mac.to_be_bytes();
            spec.mac_address = format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}").parse::<MacAddress>().ok();
            let mut wol = DriverSpec::new(DriverKind::Wol);
            wol.settings.insert("broadcast".into(), "10.255.255.255".into());
            spec.drivers = vec![wol, DriverSpec::new(DriverKind::Agent)];
        } else {
            spec.mgmt_address = machine.address.parse().ok();
            spec.bmc_credentials = Some("bmc".into());
            if self.wires == Wires::Both {
                spec.drivers = vec![DriverSpec::new(DriverKind::Redfish), DriverSpec::new(DriverKind::Ipmi)];
            }
        }
        spec
    }
}

/// Everything that stands there at the beginning.
#[derive(Debug, Clone, Default)]
pub struct Site {
    pub pools: Vec<PoolSetting>,
    pub racks: Vec<Rack>,
    pub hosts: Vec<HostSetting>,
    pub global: Option<GlobalConfig>,
}

/// The id of the cluster of every simulation.
pub fn cluster_id() -> ClusterId {
    Uuid::from_u128(0x5157_0000_0000_4000_8000_0000_0000_0001).into()
}

/// The id of a simulation's pool, by its place.
pub fn pool_id(place: usize) -> Uuid {
    Uuid::from_u128(0x5157_0000_0000_4000_8000_0001_0000_0000 + place as u128)
}

fn context(now: Timestamp) -> WriteContext {
    WriteContext { actor: "simulation".into(), now, dry_run: false, idempotency: None }
}

impl Simulation {
    /// Registers everything of a site through a running process.
    pub fn furnish(&mut self, number: usize, site: &Site) -> Result<(), SiteError> {
        if let Some(global) = &site.global {
            let value = serde_json::to_vec(global).unwrap_or_default();
            let store = Arc::clone(self.store());
            self.do_now("settings", "global", async move {
                store.commit(Txn::new().put(keys::GLOBAL_CONFIG, value)).await.map(drop)
            })?;
            self.world().starts_per_second(global.max_starts_per_second);
        }
        self.register_cluster(number)?;
        self.pools = site.pools.iter().map(|pool| pool.name.clone()).collect();
        for host in &site.hosts {
            self.world().belongs(&host.machine.name, &host.pool);
            if host.wires == Wires::Wol {
                self.world().hide_power(&host.machine.name);
            }
        }
        for (place, pool) in site.pools.iter().enumerate() {
            let auto = &pool.spec["autoscaling"];
            let most = auto["maxNodes"].as_u64().or_else(|| pool.spec["nodeCount"].as_u64());
            let most = most.and_then(|most| u32::try_from(most).ok()).unwrap_or(u32::MAX);
            let least = auto["minNodes"].as_u64().and_then(|least| u32::try_from(least).ok()).unwrap_or(0);
            self.world().pool_may(&pool.name, (least, most), auto["triggers"].is_array());
            self.register_pool(number, place, pool)?;
        }
        for rack in &site.racks {
            self.register_rack(number, rack)?;
        }
        for host in &site.hosts {
            self.register_host(number, host)?;
        }
        // Something runs on every node of a real cluster.
        let mut daemon = Workload::deployment("agent", 0, 50);
        (daemon.kind, daemon.mebibytes) = (Kind::Daemon, 64);
        self.world().add_workload(daemon);
        Ok(())
    }

    fn do_now<T: Send + 'static, E: std::fmt::Display + Send + 'static>(
        &mut self,
        what: &'static str,
        name: &str,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, SiteError> {
        let refused = |why: String| SiteError::Refused { what, name: name.to_owned(), why };
        match self.block(PATIENCE, work) {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(refused(error.to_string())),
            None => Err(refused(format!("no answer within {PATIENCE}"))),
        }
    }

    fn register_cluster(&mut self, number: usize) -> Result<(), SiteError> {
        let (what, name) = ("cluster", "lab");
        let nobody = || SiteError::Nobody { what, name: name.to_owned() };
        let registry = Arc::clone(&self.process(number).ok_or_else(nobody)?.registry);
        let now = self.wall();
        let body = json!({"name": name, "spec": {"platform": {"type": "baremetal"}, "mode": "active"}});
        let refused = |why: String| SiteError::Refused { what, name: name.to_owned(), why };
        let draft = Cluster::parse_create(&body).map_err(|error| refused(error.to_string()))?.value;
        let project = "lab".parse().map_err(|_| refused("its project has no good name".to_owned()))?;
        let cluster = draft.into_cluster(cluster_id(), project, "simulation".into(), now);
        self.do_now(what, name, async move {
            registry.create(&context(now), cluster, None, Vec::new()).await.map(drop)
        })
    }

    fn register_pool(&mut self, number: usize, place: usize, pool: &PoolSetting) -> Result<(), SiteError> {
        let what = "pool";
        let nobody = || SiteError::Nobody { what, name: pool.name.clone() };
        let registry = Arc::clone(&self.process(number).ok_or_else(nobody)?.registry);
        let now = self.wall();
        let body = json!({"name": pool.name, "cluster_id": cluster_id(), "spec": pool.spec});
        let refused = |why: String| SiteError::Refused { what, name: pool.name.clone(), why };
        let draft = NodePool::parse_create(&body, &PoolContext::default())
            .map_err(|error| refused(error.to_string()))?
            .value;
        let project = "lab".parse().map_err(|_| refused("its project has no good name".to_owned()))?;
        let made = draft.into_pool(pool_id(place).into(), project, "simulation".into(), now);
        self.do_now(what, &pool.name, async move {
            registry.create(&context(now), made, None, Vec::new()).await.map(drop)
        })
    }

    fn register_rack(&mut self, number: usize, rack: &Rack) -> Result<(), SiteError> {
        let nobody = || SiteError::Nobody { what: "rack", name: rack.name.clone() };
        let inventory = Arc::clone(&self.process(number).ok_or_else(nobody)?.inventory);
        if let Some(cap) = rack.watt_cap {
            self.world().cap(&rack.name, cap);
        }
        let (now, made) = (self.wall(), rack.clone());
        self.do_now("rack", &rack.name, async move {
            inventory.create_named(&context(now), "lab", made).await.map(drop)
        })
    }

    fn register_host(&mut self, number: usize, host: &HostSetting) -> Result<(), SiteError> {
        let name = host.machine.name.clone();
        let nobody = || SiteError::Nobody { what: "host", name: name.clone() };
        let inventory = Arc::clone(&self.process(number).ok_or_else(nobody)?.inventory);
        self.world().add_machine(host.machine.clone());
        let (now, named) = (self.wall(), NamedHost { name: name.clone(), spec: host.spec() });
        self.do_now("host", &name, async move {
            inventory.create(&context(now), &named, Vec::new()).await.map(drop)
        })
    }
}
