//! Several clusters, each watched once.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use muster_model::{Clock, ClusterId};
use sha2::{Digest, Sha256};

use crate::{
    client::{Client, Credentials},
    error::KubeError,
    port::{KubeCluster, Options},
};

/// The clusters that somebody has told us how to reach.
#[derive(Debug)]
pub struct Clusters {
    clock: Arc<dyn Clock>,
    options: Options,
    connected: Mutex<BTreeMap<ClusterId, Connected>>,
}

#[derive(Debug)]
struct Connected {
    cluster: Arc<KubeCluster>,
    /// Of the credentials that it was connected with.
    digest: [u8; 32],
}

impl Clusters {
    pub fn new(clock: Arc<dyn Clock>, options: Options) -> Self {
        Self { clock, options, connected: Mutex::default() }
    }

    /// Begins to watch a cluster. One that is watched with the same credentials stays as it is; with others the
    /// watches begin anew, and whoever holds the old one sees it grow old. Credentials that cannot be used
    /// leave everything as it is.
    pub async fn connect(
        &self,
        id: ClusterId,
        credentials: &Credentials,
    ) -> Result<Arc<KubeCluster>, KubeError> {
        let digest = digest(credentials);
        if let Some(known) = self.lock().get(&id).filter(|known| known.digest == digest) {
            return Ok(Arc::clone(&known.cluster));
        }
        let client = Client::connect(credentials, Arc::clone(&self.clock)).await?;
        tracing::info!(cluster = %id, server = client.server(), "watching a cluster");
        let cluster = Arc::new(KubeCluster::start(client, self.options.clone()));
        self.lock().insert(id, Connected { cluster: Arc::clone(&cluster), digest });
        Ok(cluster)
    }

    /// Stops watching it, once nobody holds it any more.
    pub fn disconnect(&self, id: ClusterId) -> bool {
        self.lock().remove(&id).is_some()
    }

    pub fn get(&self, id: ClusterId) -> Option<Arc<KubeCluster>> {
        self.lock().get(&id).map(|known| Arc::clone(&known.cluster))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClusterId, Connected>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes with the credentials, also with what a file says.
fn digest(credentials: &Credentials) -> [u8; 32] {
    let mut hash = Sha256::new();
    let (text, context) = match credentials {
        Credentials::InCluster => ("in cluster".to_owned(), &None),
        Credentials::File { path, context } => {
            (format!("{}\0{}", path.display(), std::fs::read_to_string(path).unwrap_or_default()), context)
        }
        Credentials::Text { kubeconfig, context } => (kubeconfig.clone(), context),
    };
    for part in [text.as_str(), "\0", context.as_deref().unwrap_or_default()] {
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}
