//! Microsoft Azure: pools that a controller of the cluster provisions.

use serde_json::{Map, Value};

use super::{Facts, Place, Platform, bool_at, string_at, strings_at, typed_at, zones};
use crate::{
    field::{Findings, Object, choice},
    pool::{LabelUse, read_labels, read_taints},
};

/// Largest OS disk, in GiB.
const MAX_DISK: i64 = 4_095;

choice! {
    enum DiskType("a disk type") {
        Standard = "Standard_LRS",
        Premium = "Premium_LRS",
        StandardSsd = "StandardSSD_LRS",
    }
}

#[derive(Debug)]
pub(super) struct Azure;

impl Platform for Azure {
    fn check_pool(&self, block: &mut Object<'_>, _: &Place<'_>, findings: &mut Findings) {
        block.text("vmSize", 63, findings);
        block.integer("osDiskSizeGB", 30..=MAX_DISK, findings);
        block.choice::<DiskType>("osDiskType", findings);
        zones::check(block, "availabilityZones", None, zones::azure_region, "\"1\"", findings);
        block.boolean("spotInstances", findings);
        read_labels(block, "labels", LabelUse::Wanted, findings);
        read_taints(block, "taints", findings);
    }

    fn check_cluster(&self, block: &mut Object<'_>, findings: &mut Findings) {
        for name in ["location", "resourceGroup", "subscriptionID"] {
            block.text(name, 253, findings);
        }
    }

    fn facts(&self, block: &Map<String, Value>) -> Facts {
        Facts {
            machine_type: string_at(block, "vmSize"),
            spot: bool_at(block, "spotInstances"),
            zones: strings_at(block, "availabilityZones"),
            labels: typed_at(block, "labels").unwrap_or_default(),
            taints: typed_at(block, "taints").unwrap_or_default(),
            ..Facts::default()
        }
    }

    fn default_machine_type(&self) -> Option<&'static str> {
        Some("Standard_D2s_v3")
    }
}
