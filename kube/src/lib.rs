//! One Kubernetes cluster behind Muster's ports.
//!
//! [`KubeCluster`] is the [`ClusterPort`](muster_model::observe::ClusterPort) of a real cluster: it watches
//! what decisions look at, keeps it as lean records, and carries out what the loops ask for. Beside it:
//! [`elect`] is an election by a `Lease`, [`review`] asks the
//! cluster who the bearer of a token is.
//!
//! Deliberately absent: any decision, any pace and any deadline longer than one call. The client's own
//! retries are off, because they make a blocked eviction look like a hang.

mod act;
mod cache;
mod client;
mod clusters;
pub mod elect;
mod error;
mod events;
mod guard;
mod kubeconfig;
mod port;
pub mod resources;
pub mod review;
pub mod rights;
pub mod secrets;
mod watch;

pub use client::{Client, Credentials};
pub use clusters::Clusters;
pub use error::KubeError;
pub use events::EventLimits;
pub use guard::{Critical, Guard, NodeIs, ProtectedNode};
pub use kubeconfig::{Outline, outline};
pub use port::{KubeCluster, Options};
pub use watch::{Health, SourceHealth, SourceState};
