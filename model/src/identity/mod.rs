//! Who asks, and what they may do.

mod email;
mod policy;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use email::{Email, EmailError};
pub use policy::{Denied, Resource, Verb, allowed};

use crate::{Project, field::choice};

choice! {
    /// What an identity may do in a project. Roles do not contain each other; an identity may have several.
    pub enum Role("a role") {
        /// Reads everything but secrets and the audit log.
        Viewer = "viewer",
        /// Reads, and runs what is there: scale, hold, power, freeze, enable.
        Operator = "operator",
        /// All of that, and changes what is there: clusters, pools, inventory, credentials.
        Admin = "admin",
        /// Reads and watches with secrets, reports status, sets intents.
        Controller = "controller",
        /// Reads everything but secrets, and the audit log.
        Auditor = "auditor",
    }
}

choice! {
    pub enum IdentityKind("a kind of identity") {
        User = "user",
        /// A program with a credential of its own.
        Service = "service",
    }
}

/// How much of an object's secrets an answer shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Secrets {
    /// None: every secret is replaced by a fixed text.
    Hidden,
    /// What its writer may read back, `userData` for one, but no private keys.
    Writer,
    /// Everything: for controllers, who need it to do their work.
    All,
}

/// Somebody whose word has been checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub name: String,
    pub kind: IdentityKind,
    /// Roles in all projects, those of tomorrow included.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub everywhere: BTreeSet<Role>,
    /// Roles by project.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub projects: BTreeMap<Project, BTreeSet<Role>>,
    /// The project that requests work in when they name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<Project>,
    /// The only `controller_name` that it may report as; any when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_name: Option<String>,
}

impl Identity {
    /// Somebody known by address only: admin of a project of their own and nothing else.
    pub fn from_email(email: &Email) -> Self {
        let home = email.project();
        Self {
            name: email.as_str().to_owned(),
            kind: IdentityKind::User,
            everywhere: BTreeSet::new(),
            projects: BTreeMap::from([(home.clone(), BTreeSet::from([Role::Admin]))]),
            home: Some(home),
            controller_name: None,
        }
    }

    /// A controller with rights in all projects.
    pub fn controller(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind: IdentityKind::Service,
            everywhere: BTreeSet::from([Role::Controller]),
            projects: BTreeMap::new(),
            home: None,
            controller_name: None,
        }
    }

    pub fn has(&self, role: Role, project: &Project) -> bool {
        self.everywhere.contains(&role)
            || self.projects.get(project).is_some_and(|roles| roles.contains(&role))
    }

    /// All roles in a project.
    pub fn roles(&self, project: &Project) -> impl Iterator<Item = Role> + '_ {
        let here = self.projects.get(project).into_iter().flatten();
        let all: BTreeSet<Role> = self.everywhere.iter().chain(here).copied().collect();
        all.into_iter()
    }

    /// Whether the project exists for this identity. What is not visible answers "not found".
    pub fn sees(&self, project: &Project) -> bool {
        self.roles(project).next().is_some()
    }

    /// Whether every project is visible.
    pub fn sees_all(&self) -> bool {
        !self.everywhere.is_empty()
    }

    /// The most that any of its roles may see.
    pub fn secrets(&self, project: &Project) -> Secrets {
        let sight = |role| match role {
            Role::Viewer | Role::Operator | Role::Auditor => Secrets::Hidden,
            Role::Admin => Secrets::Writer,
            Role::Controller => Secrets::All,
        };
        self.roles(project).map(sight).max().unwrap_or(Secrets::Hidden)
    }
}
