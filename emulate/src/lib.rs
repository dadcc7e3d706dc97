//! Machines that exist only on the wire, so that Muster can be tried and tested without hardware.
//!
//! [`redfish::Fleet`] is a rack of servers with one Redfish BMC each, [`ipmi::RmcpBmc`] a BMC that speaks
//! RMCP+. Both put the same [`machine::Machine`] behind the wire: power takes time to come and go, and an
//! operating system boots after it. Both can be told to misbehave while they run. [`kubelet::Kubelet`] joins a
//! Kubernetes cluster when its machine has booted, and [`cluster::TestCluster`] is a real control plane to join.
//! [`ports`] are for the programs of others.
//! Nothing here is shared with Muster's own drivers: a mistake in one side must not be hidden by the same mistake
//! in the other.

pub mod clock;
pub mod cluster;
pub mod control;
pub mod ipmi;
pub mod kubelet;
pub mod machine;
pub mod ports;
pub mod rack;
pub mod redfish;

pub use clock::RealClock;
pub use machine::{Machine, Power, Seen, Timing};
