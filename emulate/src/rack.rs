//! Servers whose power and whose nodes agree: a Redfish fleet with a kubelet on every machine.

use std::{io, sync::Arc};

use muster_model::Clock;

use crate::{
    kubelet::{Kubelet, NodeSpec},
    redfish::{Fleet, Layout, System},
};

/// A running fleet with its kubelets. Everything ends when this is dropped; nodes stay in the cluster.
#[derive(Debug)]
pub struct Rack {
    /// BMCs to talk to, and to disturb.
    pub fleet: Fleet,
    kubelets: Vec<Kubelet>,
}

impl Rack {
    /// Starts the fleet. Each machine becomes the node that `node` describes once it has booted.
    pub async fn start(
        layout: &Layout,
        client: &kube::Client,
        clock: &Arc<dyn Clock>,
        node: impl Fn(&System) -> NodeSpec,
    ) -> io::Result<Self> {
        let fleet = Fleet::start(layout, Arc::clone(clock)).await?;
        let systems = fleet.bmcs().flat_map(|bmc| &bmc.systems);
        let kubelets = systems
            .map(|system| {
                Kubelet::start(client.clone(), Arc::clone(&system.machine), node(system), Arc::clone(clock))
            })
            .collect();
        Ok(Self { fleet, kubelets })
    }

    /// How many machines there are.
    pub fn machines(&self) -> usize {
        self.kubelets.len()
    }
}
