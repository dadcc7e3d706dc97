//! Which cluster keeps the custom resources, and the loop that keeps them in step with the store.

use std::{
    path::Path,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use muster_control::{
    inventory::{Access, Vault},
    registry::{Filter, Kind, Registry, Start},
    resources::{Home, Setup},
};
use muster_kube::{Client, Credentials, resources::Objects};
use muster_model::{Clock, ClusterId, Project, resource::ResourcePort};
use muster_server::app::App;
use sha2::{Digest, Sha256};

use super::clusters::credentials;
use crate::config::Settings;

/// What a pod finds when it has a service account.
const OWN_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// The setting `resources.home`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Choice {
    /// The cluster that this process runs in, if it runs in one.
    Own,
    Off,
    /// A registered cluster, by the way that Muster reaches it anyway.
    Registered {
        project: Project,
        name: String,
    },
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Ok(Self::Own),
            "off" => Ok(Self::Off),
            other => {
                let wrong = || "is neither off nor PROJECT/CLUSTER".to_owned();
                let (project, name) = other.split_once('/').ok_or_else(wrong)?;
                let project = project.parse().map_err(|_| wrong())?;
                muster_model::names::check_dns_label(name).map_err(|_| wrong())?;
                Ok(Self::Registered { project, name: name.to_owned() })
            }
        }
    }
}

#[derive(Debug)]
struct HomeCluster {
    choice: Choice,
    registry: Arc<Registry>,
    vault: Arc<Vault>,
    clock: Arc<dyn Clock>,
    /// Whether it was said that the chosen home is not there.
    missed: AtomicBool,
}

impl HomeCluster {
    /// How the home is reached, as far as somebody has said it.
    async fn access(&self) -> Option<Access> {
        match &self.choice {
            Choice::Off => None,
            Choice::Own => Path::new(OWN_TOKEN).exists().then_some(Access::InCluster),
            Choice::Registered { project, name } => {
                let id = self.find(project, name)?;
                let all = self.vault.accesses().await.ok()?;
                all.into_iter().find(|(one, _)| *one == id).and_then(|(_, access)| access.ok())
            }
        }
    }

    fn find(&self, project: &Project, name: &str) -> Option<ClusterId> {
        let filter = Filter {
            projects: Some(vec![project.as_str().into()]),
            name: Some(name.into()),
            ..Filter::everything()
        };
        let found = self.registry.list(Kind::Cluster, &filter, Start::Offset(0), 1).ok()?;
        found.items.first().map(|summary| summary.id.into())
    }
}

#[async_trait]
impl Home for HomeCluster {
    async fn mark(&self) -> Option<String> {
        let access = self.access().await;
        if let Choice::Registered { project, name } = &self.choice
            && self.missed.swap(access.is_none(), Ordering::Relaxed) != access.is_none()
            && access.is_none()
        {
            tracing::warn!(
                %project,
                name,
                "resources.home names no connected cluster; custom resources are kept once it is connected"
            );
        }
        access.map(|access| match access {
            Access::InCluster => "in-cluster".to_owned(),
            Access::Kubeconfig { text, context } => {
                let text = text.expose_text().unwrap_or_default();
                hex::encode(Sha256::digest(format!("{context:?}\n{text}")))
            }
        })
    }

    async fn connect(&self) -> Result<Arc<dyn ResourcePort>, String> {
        let access = self.access().await.ok_or("the home cluster is not connected")?;
        let credentials: Credentials = credentials(&access);
        let client = Client::connect(&credentials, Arc::clone(&self.clock)).await;
        Ok(Arc::new(Objects::new(client.map_err(|error| error.to_string())?)))
    }
}

/// What the loop works with. It does nothing while another process leads, or while there is no home.
pub(super) fn setup(settings: &Settings, app: &App, vault: &Arc<Vault>) -> anyhow::Result<Setup> {
    let home = HomeCluster {
        choice: settings.parsed("resources.home")?,
        registry: Arc::clone(&app.registry),
        vault: Arc::clone(vault),
        clock: Arc::clone(&app.clock),
        missed: AtomicBool::new(false),
    };
    Ok(Setup {
        registry: Arc::clone(&app.registry),
        inventory: Arc::clone(&app.inventory),
        audit: Some(Arc::clone(&app.audit)),
        clock: Arc::clone(&app.clock),
        home: Arc::new(home),
        namespaces: settings.parsed("resources.namespaces")?,
        fresh_name: uuid::Uuid::now_v7().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_named_by_project_and_cluster() {
        assert_eq!("".parse(), Ok(Choice::Own));
        assert_eq!("off".parse(), Ok(Choice::Off));
        let named = Choice::Registered { project: "team".parse().unwrap(), name: "lab".to_owned() };
        assert_eq!("team/lab".parse(), Ok(named));
        for wrong in ["lab", "team/", "/lab", "team/lab/x", "Team/lab"] {
            assert!(wrong.parse::<Choice>().is_err(), "{wrong} was accepted");
        }
    }
}
