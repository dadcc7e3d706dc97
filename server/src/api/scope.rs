//! Who may do what to the records of the inventory.

use muster_control::inventory::{Host, HostFilter, Inventory, Owner};
use muster_model::{
    Project,
    identity::{Identity, Resource, Verb, allowed},
};
use std::{collections::BTreeMap, sync::Arc};

use super::Call;
use crate::error::ApiError;

/// Where records belong that name no project: what tools write straight into the store.
pub(super) const DEFAULT_PROJECT: &str = "default";

impl Call {
    pub(super) fn inventory(&self) -> &Arc<Inventory> {
        &self.app.inventory
    }

    /// The project that a record without one belongs to. In dev mode that is whoever asks: there is one person.
    fn unowned(&self) -> String {
        let own = self.project.as_ref().or(self.caller.identity.home.as_ref());
        match own {
            Some(project) if self.app.identity.is_dev() => project.to_string(),
            _ => DEFAULT_PROJECT.to_owned(),
        }
    }

    /// The project of a record, as this caller sees it.
    pub(super) fn project_of(&self, project: Option<&str>) -> String {
        project.map_or_else(|| self.unowned(), str::to_owned)
    }

    /// The project of a host; `None` when nobody knows whose it is. In dev mode there is one person.
    pub(super) fn project_of_host(&self, host: &Host) -> Option<String> {
        match host.owner() {
            Owner::Project(project) => Some(project.to_string()),
            Owner::Nobody => Some(self.unowned()),
            Owner::Unknown => self.app.identity.is_dev().then(|| self.unowned()),
        }
    }

    /// What lists and watches of hosts are limited to. A host of which nobody knows whose it is may be anybody's: only those who
    /// see all projects see it.
    pub(super) fn host_filter(&self) -> HostFilter {
        let call = self.clone();
        let visible = move |owner: &Owner| match owner {
            Owner::Project(project) => call.sees(project),
            Owner::Nobody => call.sees(&call.unowned()),
            Owner::Unknown if call.app.identity.is_dev() => call.sees(&call.unowned()),
            Owner::Unknown => call.project.is_none() && call.caller.identity.sees_all(),
        };
        HostFilter { visible: Some(Arc::new(visible)), ..HostFilter::default() }
    }

    /// Fails with 404 for a project that the caller does not see, with 403 for a missing role.
    pub(super) fn check_record(
        &self,
        verb: Verb,
        resource: Resource,
        title: &str,
        project: &str,
    ) -> Result<(), ApiError> {
        let missing = || ApiError::not_found(title);
        if !self.sees(project) {
            return Err(missing());
        }
        let project = project.parse::<Project>().map_err(|_| missing())?;
        allowed(&self.caller.identity, verb, resource, &project).map_err(|denied| {
            if denied.visible { ApiError::forbidden(denied.to_string()) } else { missing() }
        })
    }

    /// A host that the caller may do this to.
    pub(super) fn checked_host(&self, verb: Verb, name: &str) -> Result<Arc<Host>, ApiError> {
        let host = self.inventory().host(name).ok_or_else(|| ApiError::not_found(HOST))?;
        match self.project_of_host(&host) {
            Some(project) => self.check_record(verb, Resource::Hosts, HOST, &project)?,
            None => self.check_unknown(verb)?,
        }
        Ok(host)
    }

    /// Fails unless the caller may do this in every project.
    fn check_unknown(&self, verb: Verb) -> Result<(), ApiError> {
        let identity = Identity { projects: BTreeMap::new(), ..self.caller.identity.clone() };
        if !identity.sees_all() {
            return Err(ApiError::not_found(HOST));
        }
        let any = DEFAULT_PROJECT.parse::<Project>().map_err(|_| ApiError::internal())?;
        allowed(&identity, verb, Resource::Hosts, &any).map_err(|_| {
            ApiError::forbidden(
                "the record of this host is set aside, and it is not known whose it is; this takes the role admin in all projects",
            )
        })
    }
}

pub(super) const HOST: &str = "BareMetalNode";
