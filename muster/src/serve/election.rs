//! Who may take the store's lease: any replica, or the one that a Kubernetes `Lease` elects.
//!
//! Whichever it is, the store's lease and its epoch are the fence. The setting only says who competes for it.

use std::{fs, path::PathBuf, sync::Arc};

use anyhow::{Context, bail, ensure};
use muster_control::lead::{self, Lead};
use muster_kube::{
    Client, Credentials,
    elect::{Election, ElectionConfig},
};
use muster_model::{
    Clock,
    lease::{LeaseConfig, Permit},
    store::Store,
};
use tokio_util::sync::CancellationToken;

use crate::config::Settings;

/// Where a pod finds the namespace that it runs in.
const OWN_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// This process among those that may lead.
pub(super) struct Candidate {
    pub(super) holder: String,
    pub(super) by: By,
}

/// How this process takes part.
pub(super) enum By {
    /// It never leads.
    Nobody,
    /// Whoever is first in the store.
    Store,
    /// Whom the `Lease` elects.
    Lease(Box<Election>),
}

/// Reads the settings. The API server is not asked yet: one that is away must not keep the API from being served.
pub(super) async fn by(
    settings: &Settings,
    exclusive: bool,
    holder: &str,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<By> {
    let may_lead: bool = settings.parsed("lead").context("lead is neither true nor false")?;
    let by = settings.text("leader.by");
    if !may_lead {
        return Ok(By::Nobody);
    }
    match by.as_str() {
        "store" => return Ok(By::Store),
        "kubernetes" => {}
        other => bail!("there is no leader.by {other:?}; use store or kubernetes"),
    }
    ensure!(
        !exclusive,
        "leader.by kubernetes elects among replicas that share a store, and this store belongs to one process.\n\
         Set store to etcd://host:port, or leave leader.by at store"
    );
    let context = settings.optional("leader.context");
    let credentials = match settings.optional("leader.kubeconfig") {
        Some(path) => Credentials::File { path: PathBuf::from(path), context },
        None => Credentials::InCluster,
    };
    let client = Client::connect(&credentials, Arc::clone(clock)).await.context(
        "leader.by kubernetes keeps a Lease in a cluster; outside of a pod it takes a kubeconfig in leader.kubeconfig",
    )?;
    let config = ElectionConfig::new(namespace(settings)?, settings.text("leader.name"), holder);
    tracing::info!(
        namespace = config.namespace,
        lease = config.name,
        server = client.server(),
        "the leader is elected by a Lease"
    );
    Ok(By::Lease(Box::new(Election::new(client, config))))
}

fn namespace(settings: &Settings) -> anyhow::Result<String> {
    let named = settings.optional("leader.namespace").or_else(|| settings.optional("own.namespace"));
    let found = named.or_else(|| fs::read_to_string(OWN_NAMESPACE).ok()).map(|text| text.trim().to_owned());
    found
        .filter(|name| !name.is_empty())
        .context("leader.by kubernetes takes the namespace of its Lease in leader.namespace")
}

/// Takes part until `resign`.
pub(super) async fn run(
    by: By,
    store: Arc<dyn Store>,
    config: LeaseConfig,
    lead: Arc<Lead>,
    resign: CancellationToken,
) {
    let result = match by {
        By::Nobody => {
            tracing::info!("this process serves the API only and never leads");
            return resign.cancelled().await;
        }
        By::Store => lead::run(store, config, lead, resign).await,
        By::Lease(election) => {
            let (permit, permits) = tokio::sync::watch::channel(Permit::Unknown);
            let over = CancellationToken::new();
            let election = tokio::spawn(election.run(permit, over.clone()));
            let result = lead::run_elected(store, config, lead, permits, resign).await;
            // The Lease goes last: whoever gets it finds the store's lease free.
            over.cancel();
            let _ = election.await;
            result
        }
    };
    if let Err(error) = result {
        tracing::warn!(%error, "the election ended with an error");
    }
}
