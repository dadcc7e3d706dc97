//! Identity mode `k8s`: a cluster judges the tokens, and its RBAC says who holds which role.

use std::{path::PathBuf, sync::Arc};

use anyhow::Context;
use async_trait::async_trait;
use muster_kube::{Client, Credentials, review::Reviewer};
use muster_model::{Clock, Project};
use muster_server::identity::{Mode, Reviewed, TokenReview};

use crate::config::Settings;

/// A cluster as a judge.
#[derive(Debug)]
struct Cluster(Reviewer);

#[async_trait]
impl TokenReview for Cluster {
    async fn review(&self, token: &str, project: Option<&Project>) -> Result<Option<Reviewed>, String> {
        let bearer = self.0.review(token, project).await.map_err(|error| error.to_string())?;
        Ok(bearer.map(|bearer| Reviewed {
            user: bearer.user,
            groups: bearer.groups,
            everywhere: bearer.everywhere,
            projects: bearer.projects,
            home: bearer.home,
        }))
    }
}

/// Reads how the cluster is reached. It is not asked before the first token comes.
pub(super) async fn mode(settings: &Settings, clock: &Arc<dyn Clock>) -> anyhow::Result<Mode> {
    let context = settings.optional("auth.k8s.context");
    let credentials = match settings.optional("auth.k8s.kubeconfig") {
        Some(path) => Credentials::File { path: PathBuf::from(path), context },
        None => Credentials::InCluster,
    };
    let client = Client::connect(&credentials, Arc::clone(clock)).await.context(
        "k8s mode asks a cluster about tokens; outside of a pod it takes a kubeconfig in auth.k8s.kubeconfig",
    )?;
    let audiences: Vec<String> = settings.list("auth.k8s.audiences")?;
    Ok(Mode::Review(Arc::new(Cluster(Reviewer::new(client, audiences)))))
}
