//! Values of credentials that are kept in Kubernetes Secrets: of the cluster that keeps the custom resources, in the namespace of the
//! credential's project.

use std::sync::Arc;

use async_trait::async_trait;
use muster_control::{inventory::Vault, lead::Leading};
use muster_kube::{
    Client,
    secrets::{self, SecretError},
};
use muster_model::{
    Clock, Duration,
    power::{Credential, CredentialError, Credentials},
};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::resources::HomeCluster;

/// How soon a changed Secret lifts the block on a BMC that refused the old one. Calls that are not blocked read it anyway.
const EVERY: Duration = Duration::from_secs(20);

/// Reads Secrets of the home cluster.
#[derive(Debug)]
pub(super) struct HomeSecrets {
    home: Arc<HomeCluster>,
    /// With what it was made from, so that another home or another account makes another one.
    client: Mutex<Option<(String, Client)>>,
}

impl HomeSecrets {
    pub(super) fn new(home: Arc<HomeCluster>) -> Self {
        Self { home, client: Mutex::default() }
    }

    async fn client(&self) -> Result<Client, String> {
        use muster_control::resources::Home as _;
        let mark = self.home.mark().await.ok_or("the cluster of resources.home is not connected")?;
        let mut kept = self.client.lock().await;
        if let Some((_, client)) = kept.as_ref().filter(|(known, _)| *known == mark) {
            return Ok(client.clone());
        }
        let client = self.home.client().await?;
        *kept = Some((mark, client.clone()));
        Ok(client)
    }
}

#[async_trait]
impl Credentials for HomeSecrets {
    async fn credential(&self, name: &str) -> Result<Credential, CredentialError> {
        let away = |why: String| CredentialError::Away { name: name.to_owned(), why };
        let (project, secret) = name.split_once('/').ok_or_else(|| away("it names no project".into()))?;
        let client = self.client().await.map_err(away)?;
        secrets::read(&client, project, secret).await.map_err(|error| match error {
            SecretError::Unusable(why) => CredentialError::Unusable { name: name.to_owned(), why },
            SecretError::Away(why) => away(why),
        })
    }
}

/// Looks at named Secrets now and then while this process leads, until `stop`.
pub(super) async fn follow(
    vault: Arc<Vault>,
    leading: Leading,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = clock.sleep(EVERY) => {}
        }
        if leading.borrow().is_none() {
            continue;
        }
        if let Err(error) = vault.follow_secrets(clock.now()).await {
            tracing::debug!(%error, "Secrets of credentials are not followed; trying again");
        }
    }
}
