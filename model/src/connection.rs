//! How Muster reaches a cluster: the words for it. The credentials themselves never appear in this crate.

use crate::field::choice;

choice! {
    pub enum ConnectionKind("a kind of connection") {
        /// A kubeconfig that somebody gave.
        Kubeconfig = "kubeconfig",
        /// The service account of the pod that Muster runs in.
        InCluster = "inCluster",
    }
}

choice! {
    /// How a connection is, as one process sees it.
    pub enum ConnectionWord("a state of a connection") {
        NotConnected = "NotConnected",
        /// The first lists are under way.
        Syncing = "Syncing",
        Connected = "Connected",
        /// The API server forbids something that is needed.
        Denied = "Denied",
        /// The API server does not answer.
        Unreachable = "Unreachable",
        /// What was stored cannot be used.
        Unusable = "Unusable",
    }
}
