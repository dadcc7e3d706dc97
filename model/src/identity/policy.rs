//! The one place that decides who may do what.

use thiserror::Error;

use super::{Identity, Role};
use crate::{Project, field::choice};

choice! {
    /// What is done.
    pub enum Verb("a verb") {
        Get = "get",
        List = "list",
        Watch = "watch",
        Create = "create",
        Update = "update",
        Delete = "delete",
        Scale = "scale",
        /// Keep a host or pool as it is.
        Hold = "hold",
        /// Switch a host.
        Power = "power",
        /// Stop every action, or allow them again.
        Freeze = "freeze",
        /// Let decisions act, or only advise.
        Enable = "enable",
        /// Report status.
        Report = "report",
        /// Set what a host should do, on behalf of a plan.
        Intend = "intend",
    }
}

choice! {
    /// What it is done to.
    pub enum Resource("a kind of object") {
        Clusters = "clusters",
        NodePools = "nodepools",
        /// The reports of controllers.
        Reports = "reports",
        Hosts = "hosts",
        Racks = "racks",
        Credentials = "credentials",
        Operations = "operations",
        Decisions = "decisions",
        Audit = "audit",
        Identities = "identities",
        Configuration = "configuration",
        Store = "store",
    }
}

/// A refusal that says which right is missing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{who} may not {verb} {resource} in project {project}; that takes the role {}", roles_text(.needs))]
pub struct Denied {
    pub who: String,
    pub verb: Verb,
    pub resource: Resource,
    pub project: Project,
    /// Any one of these would be enough.
    pub needs: &'static [Role],
    /// Whether the project is visible to the identity. If not, the answer must be "not found".
    pub visible: bool,
}

fn roles_text(roles: &[Role]) -> String {
    roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(" or ")
}

/// Whether `identity` may do `verb` to `resource` in `project`.
pub fn allowed(identity: &Identity, verb: Verb, resource: Resource, project: &Project) -> Result<(), Denied> {
    let needs = needed(verb, resource);
    if needs.iter().any(|role| identity.has(*role, project)) {
        return Ok(());
    }
    Err(Denied {
        who: identity.name.clone(),
        verb,
        resource,
        project: project.clone(),
        needs,
        visible: identity.sees(project),
    })
}

const EVERYONE: &[Role] = &[Role::Viewer, Role::Operator, Role::Admin, Role::Controller, Role::Auditor];
const OPERATORS: &[Role] = &[Role::Operator, Role::Admin];
const ADMINS: &[Role] = &[Role::Admin];
const CONTROLLERS: &[Role] = &[Role::Controller];
const AUDITORS: &[Role] = &[Role::Auditor];

/// The roles that may do it. Everything that is not listed takes an admin.
const fn needed(verb: Verb, resource: Resource) -> &'static [Role] {
    use Resource as R;
    use Verb as V;
    match (verb, resource) {
        (V::Get | V::List | V::Watch, R::Audit) => AUDITORS,
        // Nobody writes the audit log but the server, and it asks nobody.
        (_, R::Audit) => &[],
        (V::Get | V::List | V::Watch, R::Credentials | R::Identities) => ADMINS,
        (V::Get | V::List | V::Watch, R::Store) => &[Role::Admin, Role::Auditor],
        (V::Get | V::List | V::Watch, _) => EVERYONE,
        // Not even an admin forges a report or an intent.
        (V::Report, R::Reports | R::Clusters | R::NodePools | R::Hosts) | (V::Intend, R::Hosts) => {
            CONTROLLERS
        }
        (V::Report | V::Intend, _) => &[],
        // The last two cancel an operation.
        (V::Scale, R::NodePools)
        | (V::Hold | V::Enable | V::Freeze, R::Clusters | R::NodePools | R::Hosts | R::Racks)
        | (V::Power, R::Hosts | R::Racks | R::NodePools)
        | (V::Update | V::Delete, R::Operations) => OPERATORS,
        _ => ADMINS,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::{
        field::Choice,
        identity::{Email, IdentityKind, Secrets},
    };

    fn someone(role: Role) -> Identity {
        Identity {
            name: format!("{role}@example.com"),
            kind: IdentityKind::User,
            everywhere: BTreeSet::new(),
            projects: BTreeMap::from([("team".parse().unwrap(), BTreeSet::from([role]))]),
            home: None,
            controller_name: None,
        }
    }

    #[test]
    fn the_matrix_of_roles() {
        #[track_caller]
        fn check(verb: Verb, resource: Resource, expected: &str) {
            let team: Project = "team".parse().unwrap();
            let letters = [
                (Role::Viewer, 'v'),
                (Role::Operator, 'o'),
                (Role::Admin, 'a'),
                (Role::Controller, 'c'),
                (Role::Auditor, 'u'),
            ];
            let found: String = letters
                .iter()
                .filter(|(role, _)| allowed(&someone(*role), verb, resource, &team).is_ok())
                .map(|(_, letter)| *letter)
                .collect();
            assert_eq!(found, expected, "{verb} {resource}");
        }
        check(Verb::Get, Resource::NodePools, "voacu");
        check(Verb::Watch, Resource::Clusters, "voacu");
        check(Verb::List, Resource::Decisions, "voacu");
        check(Verb::Create, Resource::NodePools, "a");
        check(Verb::Update, Resource::Clusters, "a");
        check(Verb::Delete, Resource::NodePools, "a");
        check(Verb::Scale, Resource::NodePools, "oa");
        check(Verb::Hold, Resource::Hosts, "oa");
        check(Verb::Power, Resource::Hosts, "oa");
        check(Verb::Freeze, Resource::Clusters, "oa");
        check(Verb::Enable, Resource::NodePools, "oa");
        check(Verb::Delete, Resource::Operations, "oa");
        check(Verb::Report, Resource::NodePools, "c");
        check(Verb::Report, Resource::Clusters, "c");
        check(Verb::Intend, Resource::Hosts, "c");
        check(Verb::Get, Resource::Credentials, "a");
        check(Verb::Create, Resource::Credentials, "a");
        check(Verb::Create, Resource::Hosts, "a");
        check(Verb::Get, Resource::Audit, "u");
        check(Verb::Delete, Resource::Audit, "");
        check(Verb::Get, Resource::Store, "au");
        check(Verb::Scale, Resource::Audit, "");
    }

    #[test]
    fn nothing_of_another_project_is_allowed_or_visible() {
        let other: Project = "other".parse().unwrap();
        for (_, role) in Role::ALL {
            for (_, verb) in Verb::ALL {
                for (_, resource) in Resource::ALL {
                    let denied = allowed(&someone(*role), *verb, *resource, &other).unwrap_err();
                    assert!(!denied.visible, "{role} {verb} {resource}");
                }
            }
            assert_eq!(someone(*role).secrets(&other), Secrets::Hidden);
        }
    }

    #[test]
    fn a_refusal_names_the_missing_role() {
        let team: Project = "team".parse().unwrap();
        let denied = allowed(&someone(Role::Viewer), Verb::Scale, Resource::NodePools, &team).unwrap_err();
        assert!(denied.visible);
        assert_eq!(
            denied.to_string(),
            "viewer@example.com may not scale nodepools in project team; that takes the role operator or admin"
        );
    }

    #[test]
    fn an_address_rules_its_own_project_only() {
        let email: Email = "user@example.com".parse().unwrap();
        let (identity, home) = (Identity::from_email(&email), email.project());
        assert!(allowed(&identity, Verb::Create, Resource::Clusters, &home).is_ok());
        // API-N4, N5: neither being the owner nor being called like a controller makes one.
        assert!(allowed(&identity, Verb::Report, Resource::NodePools, &home).is_err());
        let magic = Identity::from_email(&"controller@system.local".parse().unwrap());
        assert!(allowed(&magic, Verb::Report, Resource::NodePools, &home).is_err());
        assert!(!magic.sees(&home));
        let controller = Identity::controller("gcp");
        assert!(allowed(&controller, Verb::Report, Resource::NodePools, &home).is_ok());
        assert_eq!(controller.secrets(&home), Secrets::All);
    }
}
