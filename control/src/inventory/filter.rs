//! Which hosts a list or a watch is about.

use std::sync::Arc;

use muster_model::{
    host::{BareMetalNodeSpec, Phase, State},
    status::Health,
};

use super::host::{Host, Owner};
use crate::registry::{LabelSelector, SelectorError};

/// Whose hosts a caller sees.
pub type Visible = Arc<dyn Fn(&Owner) -> bool + Send + Sync>;

/// Everything in it must hold.
#[derive(Clone, Default)]
pub struct HostFilter {
    /// Whether a host of this owner is visible at all; `None` lets everything through.
    pub visible: Option<Visible>,
    pub name: Option<String>,
    pub state: Option<State>,
    pub phase: Option<Phase>,
    pub pool: Option<String>,
    pub rack: Option<String>,
    pub health: Option<Health>,
    pub labels: LabelSelector,
    pub fields: Vec<HostTest>,
    /// Only records that are set aside, or only those that are not.
    pub set_aside: Option<bool>,
}

impl std::fmt::Debug for HostFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostFilter")
            .field("name", &self.name)
            .field("state", &self.state)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

impl HostFilter {
    /// Whether a host is part of the list.
    pub fn wants(&self, host: &Host) -> bool {
        let spec = host.readable();
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_ref().is_none_or(|wanted| found == Some(wanted.as_str()))
        };
        self.visible.as_ref().is_none_or(|visible| visible(host.owner()))
            && is(&self.name, Some(&host.name))
            && is(&self.pool, spec.map(|spec| spec.pool.as_str()))
            && is(&self.rack, spec.and_then(|spec| spec.rack.as_deref()))
            && self.state.is_none_or(|state| host.state() == state)
            && self.phase.is_none_or(|phase| phase_of(host) == phase)
            && self.health.is_none_or(|health| host.health() == health)
            && self.set_aside.is_none_or(|wanted| host.set_aside().is_some() == wanted)
            && spec.map_or_else(|| self.labels.is_empty(), |spec| self.labels.matches_map(&spec.labels))
            && self.fields.iter().all(|test| test.holds(host))
    }
}

fn phase_of(host: &Host) -> Phase {
    host.status.as_ref().map_or(Phase::Enrolling, |status| status.phase)
}

const REMEDY: &str = "write terms like spec.rack=a1; fields are name, project, health, spec.pool, spec.rack, spec.zone, \
     spec.powerInterface, spec.admin, spec.bmcCredentials, spec.bootProfile, spec.inventoryId, status.state, \
     status.phase, status.powerState, status.kubernetesNode";

const FIELDS: &[&str] = &[
    "name",
    "project",
    "health",
    "spec.pool",
    "spec.rack",
    "spec.zone",
    "spec.powerInterface",
    "spec.admin",
    "spec.bmcCredentials",
    "spec.bootProfile",
    "spec.inventoryId",
    "status.state",
    "status.phase",
    "status.powerState",
    "status.kubernetesNode",
];

/// A condition on a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTest {
    field: &'static str,
    equal: bool,
    value: String,
}

impl HostTest {
    /// Reads terms separated by commas: `spec.rack=a1,status.state!=error`.
    pub fn parse(text: &str) -> Result<Vec<Self>, SelectorError> {
        text.split(',').map(str::trim).filter(|term| !term.is_empty()).map(Self::one).collect()
    }

    fn one(term: &str) -> Result<Self, SelectorError> {
        let fault = |problem| SelectorError { term: term.to_owned(), problem, remedy: REMEDY };
        let (name, value, equal) = if let Some((name, value)) = term.split_once("!=") {
            (name, value, false)
        } else if let Some((name, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            (name, value, true)
        } else {
            return Err(fault("no operator"));
        };
        let name = match name.trim() {
            "metadata.name" => "name",
            name => name,
        };
        let field =
            FIELDS.iter().copied().find(|field| *field == name).ok_or_else(|| fault("no known field"))?;
        Ok(Self { field, equal, value: value.trim().to_owned() })
    }

    fn holds(&self, host: &Host) -> bool {
        let spec: Option<&BareMetalNodeSpec> = host.readable().map(|spec| &**spec);
        let of = |field: fn(&BareMetalNodeSpec) -> Option<String>| spec.and_then(field).unwrap_or_default();
        let status = host.status.as_deref();
        let found = match self.field {
            "name" => host.name.to_string(),
            "project" => host.project().unwrap_or_default().to_owned(),
            "health" => host.health().to_string(),
            "spec.pool" => of(|spec| Some(spec.pool.clone())),
            "spec.rack" => of(|spec| spec.rack.clone()),
            "spec.zone" => of(|spec| spec.zone.clone()),
            "spec.powerInterface" => of(|spec| Some(spec.power_interface.to_string())),
            "spec.admin" => of(|spec| Some(spec.admin.to_string())),
            "spec.bmcCredentials" => of(|spec| spec.bmc_credentials.clone()),
            "spec.bootProfile" => of(|spec| spec.boot_profile.clone()),
            "spec.inventoryId" => of(|spec| spec.inventory_id.clone()),
            "status.state" => host.state().to_string(),
            "status.phase" => phase_of(host).as_str().to_owned(),
            "status.powerState" => status.map_or("unknown", |status| status.power_state.as_str()).to_owned(),
            _ => status.and_then(|status| status.kubernetes_node.clone()).unwrap_or_default(),
        };
        (found == self.value) == self.equal
    }
}
