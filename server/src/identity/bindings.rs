//! Which users and groups hold which role in which project: the configuration's table.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::{
    Project,
    identity::{Identity, IdentityKind, Role},
};

/// Who a binding speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grantee {
    User(String),
    Group(String),
}

/// One line of the table. Without a project the role holds everywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    pub grantee: Grantee,
    pub project: Option<Project>,
    pub role: Role,
    /// The only name that a controller may report under; any when left out.
    pub controller_name: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bindings(Vec<Binding>);

impl Bindings {
    pub fn new(bindings: Vec<Binding>) -> Self {
        Self(bindings)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A user with everything that the table grants. New objects go to the first project it names.
    pub fn identity(&self, user: &str, groups: &[String]) -> Identity {
        let mut identity = Identity {
            name: user.to_owned(),
            kind: IdentityKind::User,
            everywhere: BTreeSet::new(),
            projects: BTreeMap::new(),
            home: None,
            controller_name: None,
        };
        for binding in self.0.iter().filter(|binding| match &binding.grantee {
            Grantee::User(name) => name == user,
            Grantee::Group(name) => groups.contains(name),
        }) {
            match &binding.project {
                None => drop(identity.everywhere.insert(binding.role)),
                Some(project) => {
                    identity.projects.entry(project.clone()).or_default().insert(binding.role);
                    identity.home.get_or_insert_with(|| project.clone());
                }
            }
            if binding.controller_name.is_some() {
                identity.controller_name.clone_from(&binding.controller_name);
            }
        }
        identity
    }
}
