//! Racks: places, a cap on watts, and how many machines may start at once.

use serde::{Deserialize, Serialize};

use crate::{
    Parsed,
    field::{FieldError, FieldErrors, Findings, Object},
    host::BareMetalNodeSpec,
    names,
};

/// No rack is higher.
pub const MAX_UNITS: u32 = 60;
const DEFAULT_UNITS: u32 = 42;
/// Inrush of more than this many servers at once trips supplies that are sized for their running draw.
const DEFAULT_STARTS: u32 = 4;
/// A megawatt, more than any rack is fed with.
const MAX_WATTS: u32 = 1_000_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rack {
    pub name: String,
    /// Height in rack units.
    pub units: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// A hard limit on the sum of its hosts' watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watt_cap: Option<u32>,
    /// Machines that may be on their way up at once.
    pub start_limit: u32,
}

impl Rack {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            units: DEFAULT_UNITS,
            zone: None,
            watt_cap: None,
            start_limit: DEFAULT_STARTS,
        }
    }

    pub fn read(value: &serde_json::Value, path: &str) -> Result<Parsed<Self>, FieldErrors> {
        let mut findings = Findings::new();
        let rack = Object::read(value, path, &mut findings).and_then(|mut object| {
            let name = object.string("name", &mut findings);
            match name.map(names::check_dns_label) {
                Some(Ok(())) => {}
                Some(Err(error)) => findings.push(
                    FieldError::new(object.at("name"), error.problem)
                        .found_text(name.unwrap_or_default())
                        .allowed(names::DNS_LABEL),
                ),
                None => findings.push(FieldError::new(object.at("name"), "is required")),
            }
            let mut rack = Self::new(name.unwrap_or_default());
            rack.units = object.count("units", 1..=MAX_UNITS, &mut findings).unwrap_or(DEFAULT_UNITS);
            rack.zone = object.text("zone", 253, &mut findings).map(str::to_owned);
            rack.watt_cap = object.count("wattCap", 1..=MAX_WATTS, &mut findings);
            rack.start_limit = object.count("startLimit", 1..=1000, &mut findings).unwrap_or(DEFAULT_STARTS);
            object.finish(&mut findings);
            name.is_some().then_some(rack)
        });
        findings.result_of(rack)
    }

    /// Why a host does not fit where its spec puts it.
    pub fn misplaced(&self, spec: &BareMetalNodeSpec) -> Option<String> {
        let slot = spec.slot?;
        let top = slot.saturating_add(spec.height.unwrap_or(1)).saturating_sub(1);
        (top > self.units)
            .then(|| format!("units {slot} to {top} do not fit rack {} of {} units", self.name, self.units))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::host::PowerInterface;

    #[test]
    fn a_rack_is_read_strictly() {
        let rack = Rack::read(&json!({"name": "a1", "wattCap": 12000}), "spec").unwrap().value;
        assert_eq!((rack.units, rack.watt_cap, rack.start_limit), (42, Some(12_000), 4));
        let text =
            Rack::read(&json!({"name": "A1", "watCap": 1, "units": 0}), "spec").unwrap_err().to_string();
        for part in ["spec.name", "did you mean wattCap?", "spec.units"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_host_above_the_top_is_misplaced() {
        let rack = Rack::new("a1");
        let mut spec = BareMetalNodeSpec::new("p", PowerInterface::Redfish);
        assert_eq!(rack.misplaced(&spec), None);
        (spec.slot, spec.height) = (Some(41), Some(2));
        assert_eq!(rack.misplaced(&spec), None);
        spec.slot = Some(42);
        assert!(rack.misplaced(&spec).unwrap().contains("42 to 43"));
    }
}
