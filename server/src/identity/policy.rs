//! What a caller may do: one function, [`Access::may`].
//!
//! A role is held in a project, or everywhere. Nothing of a project is visible to who holds no role in
//! it: its objects are not found, and they are in no count.

use std::{fmt, str::FromStr, sync::Arc};

use sha2::{Digest, Sha256};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Reads everything in the project but secrets.
    Viewer,
    /// Reads, and reads the audit log.
    Auditor,
    /// Reads, and reports status. Held everywhere or in a project.
    Controller,
    /// Reads, scales.
    Operator,
    /// Everything in the project but reporting status.
    Admin,
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "viewer" => Ok(Self::Viewer),
            "auditor" => Ok(Self::Auditor),
            "controller" => Ok(Self::Controller),
            "operator" => Ok(Self::Operator),
            "admin" => Ok(Self::Admin),
            _ => Err(format!("{text:?} is no role; use viewer, operator, admin, controller or auditor")),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Viewer => "viewer",
            Self::Auditor => "auditor",
            Self::Controller => "controller",
            Self::Operator => "operator",
            Self::Admin => "admin",
        })
    }
}

/// What a request wants to do with the objects of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Read,
    /// Read fields that may hold secrets (`userData`) in clear.
    ReadSecrets,
    /// See objects that are being deleted without asking for them.
    ReadDeleted,
    Scale,
    /// Create, replace, patch, delete.
    Write,
    Report,
    ReadAudit,
}

impl Role {
    const fn may(self, action: Action) -> bool {
        match action {
            Action::Read => true,
            Action::ReadSecrets => matches!(self, Self::Admin | Self::Controller),
            Action::ReadDeleted | Action::Report => matches!(self, Self::Controller),
            Action::Scale => matches!(self, Self::Operator | Self::Admin),
            Action::Write => matches!(self, Self::Admin),
            Action::ReadAudit => matches!(self, Self::Auditor | Self::Admin),
        }
    }
}

/// A project's name: a DNS label, or `*` in a grant that holds everywhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Project(Arc<str>);

/// Longest readable part of a derived project name: with the dash and 8 digits it stays a DNS label.
const READABLE: usize = 54;

impl Project {
    pub fn every() -> Self {
        Self("*".into())
    }

    pub fn is_every(&self) -> bool {
        &*self.0 == "*"
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The project that an address has for itself: readable, and different for different addresses.
    pub fn of_address(address: &str) -> Self {
        let readable: String = address
            .to_ascii_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .take(READABLE)
            .collect();
        let digest = hex::encode(Sha256::digest(address.as_bytes()));
        Self(format!("{}-{}", readable.trim_matches('-'), &digest[..8]).into())
    }
}

impl FromStr for Project {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let fits = !text.is_empty()
            && text.len() <= 63
            && text.chars().all(inner)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(format!(
                "{text:?} is no project name; use up to 63 lower-case letters, digits and dashes"
            ))
        }
    }
}

impl fmt::Display for Project {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A role in a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub project: Project,
    pub role: Role,
}

/// Everything that a caller holds. The first grant's project is where new objects go by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    grants: Vec<Grant>,
}

impl Access {
    pub fn of(grants: Vec<Grant>) -> Self {
        Self { grants }
    }

    pub fn everywhere(role: Role) -> Self {
        Self { grants: vec![Grant { project: Project::every(), role }] }
    }

    /// Whether the caller may do this to objects of a project.
    pub fn may(&self, action: Action, project: &str) -> bool {
        self.grants
            .iter()
            .any(|grant| (grant.project.is_every() || grant.project.as_str() == project) && grant.role.may(action))
    }

    /// Whether the caller may do this in every project.
    pub fn may_everywhere(&self, action: Action) -> bool {
        self.grants.iter().any(|grant| grant.project.is_every() && grant.role.may(action))
    }

    /// Whether the caller may do this in any project at all.
    pub fn may_somewhere(&self, action: Action) -> bool {
        self.grants.iter().any(|grant| grant.role.may(action))
    }

    /// The projects that the caller may read; `None` means all of them.
    pub fn readable(&self) -> Option<Vec<&str>> {
        if self.may_everywhere(Action::Read) {
            return None;
        }
        let mut projects: Vec<&str> = self.grants.iter().map(|grant| grant.project.as_str()).collect();
        projects.sort_unstable();
        projects.dedup();
        Some(projects)
    }

    /// Where a new object goes when the request does not say.
    pub fn home(&self) -> Option<&Project> {
        self.grants.iter().map(|grant| &grant.project).find(|project| !project.is_every())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_hold_in_their_project_only() {
        let access = Access::of(vec![
            Grant { project: "a".parse().unwrap(), role: Role::Admin },
            Grant { project: "b".parse().unwrap(), role: Role::Viewer },
        ]);
        // action, project => allowed
        let cases = [
            (Action::Read, "a", true),
            (Action::Write, "a", true),
            (Action::Report, "a", false),
            (Action::Read, "b", true),
            (Action::ReadSecrets, "b", false),
            (Action::Scale, "b", false),
            (Action::Write, "b", false),
            (Action::Read, "c", false),
            (Action::Read, "*", false),
        ];
        for (action, project, allowed) in cases {
            assert_eq!(access.may(action, project), allowed, "{action:?} in {project}");
        }
        assert_eq!(access.readable(), Some(vec!["a", "b"]));
        assert_eq!(access.home().map(Project::as_str), Some("a"));
    }

    #[test]
    fn addresses_have_projects_of_their_own_that_are_dns_labels() {
        let long = format!("{}@example.com", "x".repeat(200));
        for address in ["user@example.com", "a.b@example.com", "a-b@example.com", long.as_str()] {
            let project = Project::of_address(address);
            assert_eq!(project.as_str().parse::<Project>().as_ref(), Ok(&project), "{address}");
        }
        assert_ne!(Project::of_address("a.b@x.org"), Project::of_address("a-b@x.org"));
    }
}
