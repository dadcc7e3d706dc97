//! Who may do what to the records of the inventory.

use muster_control::inventory::{Host, HostFilter, Inventory};
use muster_model::{
    Project,
    identity::{Resource, Verb, allowed},
};
use std::sync::Arc;

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

    /// What lists and watches of hosts are limited to.
    pub(super) fn host_filter(&self) -> HostFilter {
        let call = self.clone();
        HostFilter {
            visible: Some(Arc::new(move |project| call.sees(&call.project_of(project)))),
            ..HostFilter::default()
        }
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
        self.check_record(verb, Resource::Hosts, HOST, &self.project_of(host.project()))?;
        Ok(host)
    }
}

pub(super) const HOST: &str = "BareMetalNode";
