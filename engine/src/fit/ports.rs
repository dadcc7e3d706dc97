//! `NodePorts`: ports of the node that pods occupy.

use muster_model::k8s::{PodSpec, Protocol};

use super::Rejection;

/// The address that stands for all addresses. The IPv6 any-address is an ordinary one here.
const WILDCARD: &str = "0.0.0.0";

/// A port of a node, in use or wanted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    pub protocol: Protocol,
    pub port: i32,
    pub address: Box<str>,
}

impl HostPort {
    pub fn conflicts(&self, other: &Self) -> bool {
        let address =
            self.address == other.address || &*self.address == WILDCARD || &*other.address == WILDCARD;
        self.port == other.port && self.protocol == other.protocol && address
    }
}

/// The ports a pod occupies: those of its containers and sidecars.
pub fn of(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().filter(|container| container.is_sidecar());
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
    ports
        .filter(|port| port.host_port > 0)
        .map(|port| HostPort {
            protocol: port.protocol.clone().unwrap_or(Protocol::Tcp),
            port: port.host_port,
            address: port.host_ip.clone().unwrap_or_else(|| WILDCARD.into()),
        })
        .collect()
}

pub(super) fn check(wanted: &[HostPort], used: &[HostPort]) -> Result<(), Rejection> {
    if wanted.iter().any(|port| used.iter().any(|held| held.conflicts(port))) {
        return Err(Rejection::resolvable("node(s) didn't have free ports for the requested pod ports"));
    }
    Ok(())
}
