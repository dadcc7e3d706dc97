//! Which cluster keeps the custom resources, and the loop that keeps them in step with the store.

use std::{
    fmt::Write as _,
    path::Path,
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use muster_control::{
    inventory::{Access, Vault},
    registry::{Filter, Kind, Registry, Start},
    resources::{Figures, Home, KindFigures, Place, Setup},
};
use muster_kube::{Client, Credentials, EventLimits, resources::Objects};
use muster_model::{Clock, ClusterId, Project, resource::ResourcePort};
use muster_server::app::App;
use sha2::{Digest, Sha256};

use super::{
    clusters::{credentials, event_limits},
    secrets::HomeSecrets,
};
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

/// The cluster that keeps the custom resources.
#[derive(Debug)]
pub(super) struct HomeCluster {
    choice: Choice,
    registry: Arc<Registry>,
    vault: Arc<Vault>,
    clock: Arc<dyn Clock>,
    limits: EventLimits,
    /// Who writes events.
    instance: String,
    /// Whether it was said that the chosen home is not there.
    missed: AtomicBool,
    /// The last connection and the mark of its access: it remembers what it has told.
    last: Mutex<Option<(String, Arc<Objects>)>>,
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

    /// Whether somebody said which cluster it is, or this process runs in one.
    fn is_chosen(&self) -> bool {
        match &self.choice {
            Choice::Off => false,
            Choice::Own => Path::new(OWN_TOKEN).exists(),
            Choice::Registered { .. } => true,
        }
    }

    pub(super) async fn client(&self) -> Result<Client, String> {
        let access = self.access().await.ok_or("the home cluster is not connected")?;
        self.dial(&access).await
    }

    async fn dial(&self, access: &Access) -> Result<Client, String> {
        let credentials: Credentials = credentials(access);
        let client = Client::connect(&credentials, Arc::clone(&self.clock)).await;
        client.map_err(|error| error.to_string())
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
        access.map(|access| mark(&access))
    }

    async fn connect(&self) -> Result<Arc<dyn ResourcePort>, String> {
        let access = self.access().await.ok_or("the home cluster is not connected")?;
        let mark = mark(&access);
        let known = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, objects)) = known.filter(|(of, _)| *of == mark) {
            return Ok(objects);
        }
        let client = self.dial(&access).await?;
        let objects = Arc::new(Objects::new(client, self.limits, self.instance.clone()));
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((mark, Arc::clone(&objects)));
        Ok(objects)
    }
}

/// Changes with the way to the home.
fn mark(access: &Access) -> String {
    match access {
        Access::InCluster => "in-cluster".to_owned(),
        Access::Kubeconfig { text, context } => {
            let text = text.expose_text().unwrap_or_default();
            hex::encode(Sha256::digest(format!("{context:?}\n{text}")))
        }
    }
}

/// What the loop works with. It does nothing while another process leads, or while there is no home.
pub(super) fn setup(
    settings: &Settings,
    app: &App,
    vault: &Arc<Vault>,
    instance: &str,
) -> anyhow::Result<Setup> {
    let home = Arc::new(HomeCluster {
        choice: settings.parsed("resources.home")?,
        registry: Arc::clone(&app.registry),
        vault: Arc::clone(vault),
        clock: Arc::clone(&app.clock),
        limits: event_limits(settings)?,
        instance: instance.to_owned(),
        missed: AtomicBool::new(false),
        last: Mutex::default(),
    });
    if home.is_chosen() {
        vault.take_secrets_from(Arc::new(HomeSecrets::new(Arc::clone(&home))));
    }
    let figures = Arc::new(Figures::default());
    let shown = Arc::clone(&figures);
    app.metrics.register_text(Box::new(move || text(&shown)));
    Ok(Setup {
        registry: Arc::clone(&app.registry),
        inventory: Arc::clone(&app.inventory),
        audit: Some(Arc::clone(&app.audit)),
        clock: Arc::clone(&app.clock),
        home,
        namespaces: settings.parsed("resources.namespaces")?,
        fresh_name: uuid::Uuid::now_v7().to_string(),
        figures,
    })
}

/// The figures of the loop as they are scraped. While there is no home, or another process leads, there are no gauges.
fn text(figures: &Figures) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, rows: &[(String, u64)]| {
        let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}");
        let suffix = if kind == "counter" { "_total" } else { "" };
        for (labels, number) in rows {
            let _ = writeln!(text, "{name}{suffix}{labels} {number}");
        }
    };
    let turns = figures.turns().map(|(outcome, number)| (format!("{{outcome=\"{outcome}\"}}"), number));
    family("muster_resources_turns", "counter", "Turns of custom resources by what became of them", &turns);
    if figures.place() == Place::Nowhere {
        return text;
    }
    let plain = |number: u64| [(String::new(), number)];
    let in_step = u64::from(figures.place() == Place::InStep);
    let help = "1 while custom resources and the store are kept in step, 0 while their home cannot be used";
    family("muster_resources_in_step", "gauge", help, &plain(in_step));
    let help = "Records and objects that wait for a turn";
    family("muster_resources_waiting", "gauge", help, &plain(figures.waiting()));
    let by_kind = |read: fn(&KindFigures) -> u64| {
        figures.kinds().map(|one| (format!("{{kind=\"{}\"}}", one.kind.plural()), read(&one)))
    };
    family(
        "muster_resources_objects",
        "gauge",
        "Custom resources that were seen",
        &by_kind(|one| one.objects),
    );
    let help = "Custom resources that say Synced=False";
    family("muster_resources_unsynced", "gauge", help, &by_kind(|one| one.unsynced));
    text
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
