//! Which users and groups hold which role in which project: the configuration's table.

use super::policy::{Grant, Project, Role};

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

    /// Everything that a user holds, in the order of the table.
    pub fn grants(&self, user: &str, groups: &[String]) -> Vec<Grant> {
        self.0
            .iter()
            .filter(|binding| match &binding.grantee {
                Grantee::User(name) => name == user,
                Grantee::Group(name) => groups.contains(name),
            })
            .map(|binding| Grant {
                project: binding.project.clone().unwrap_or_else(Project::every),
                role: binding.role,
            })
            .collect()
    }
}
