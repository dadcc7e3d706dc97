//! The simulated world behind the ports of the server: one cluster, its machines, Prometheus.

use std::sync::Arc;

use async_trait::async_trait;
use muster_control::{
    connector::{ConnectionState, Connector},
    inventory::{Access, Prober},
    planner::Connections,
};
use muster_model::{
    Clock, ClusterId,
    cluster::Cluster,
    connection::ConnectionWord,
    observe::ClusterPort,
    power::{Bmc, Fault, Identity, Power, PowerError},
};
use muster_sim::world::{ProcessClock, World, site};

use crate::serve::{Machines, Played};

/// What this process is called in the world.
const NAME: &str = "demo";
/// Kinds of objects that are watched in a real cluster.
const KINDS: u32 = 17;

/// The world as the server's outside. With real BMCs on the wire, only the cluster is played.
pub(super) fn played(world: &Arc<World>, clock: &Arc<ProcessClock>, speed: f64, wire: bool) -> Played {
    let port = world.port(NAME, clock);
    let machines = (!wire).then(|| {
        let drivers = world.drivers(NAME, clock);
        Machines { prober: Arc::new(Drivers(drivers.clone())), drivers }
    });
    Played {
        connections: Arc::new(Lab(port)),
        connector: Arc::new(Link { world: Arc::clone(world), clock: Arc::clone(clock) }),
        triggers: world.triggers(clock),
        agents: world.agents(clock),
        machines,
        speed,
    }
}

/// The one cluster that is there.
#[derive(Debug)]
struct Lab(Arc<dyn ClusterPort>);

impl Connections for Lab {
    fn port(&self, cluster: &Cluster) -> Option<Arc<dyn ClusterPort>> {
        (cluster.id == site::cluster_id()).then(|| Arc::clone(&self.0))
    }
}

/// How that cluster is connected, and that no other can be.
#[derive(Debug)]
struct Link {
    world: Arc<World>,
    clock: Arc<ProcessClock>,
}

const NOT_HERE: &str =
    "this is the demo, whose one cluster is simulated; connect real ones to `muster serve`";

#[async_trait]
impl Connector for Link {
    async fn judge(&self, _: &Access) -> Result<String, String> {
        Err(NOT_HERE.to_owned())
    }

    async fn probe(&self, _: &Access) -> Result<(), String> {
        Err(NOT_HERE.to_owned())
    }

    fn state(&self, cluster: ClusterId) -> ConnectionState {
        if cluster != site::cluster_id() {
            return ConnectionState::bare(ConnectionWord::NotConnected, NOT_HERE);
        }
        ConnectionState {
            kubernetes_version: Some("simulated".to_owned()),
            fresh_at: Some(self.clock.now()),
            kinds: KINDS,
            synced: KINDS,
            objects: self.world.objects() as u64,
            ..ConnectionState::bare(ConnectionWord::Connected, "simulated in this process, and current")
        }
    }

    async fn refresh(&self) {}
}

/// Asks simulated BMCs what they are.
#[derive(Debug)]
struct Drivers(Vec<Arc<dyn Power>>);

#[async_trait]
impl Prober for Drivers {
    async fn identify(&self, bmc: &Bmc) -> Result<Identity, PowerError> {
        match self.0.iter().find(|driver| driver.driver() == bmc.driver()) {
            Some(driver) => driver.identify(bmc).await,
            None => Err(PowerError::new(bmc, Fault::unsupported("identity", bmc.driver()))),
        }
    }
}
