//! Google Cloud: pools that a controller of the cluster provisions.

use serde_json::{Map, Value};

use super::{Accelerator, Alias, Facts, Place, Platform, bool_at, string_at, strings_at, typed_at, zones};
use crate::{
    field::{FieldError, Findings, Object, choice},
    pool::{LabelUse, read_labels, read_taints},
};

/// Largest persistent disk, in GB.
const MAX_DISK: i64 = 65_536;
/// Kinds of accelerator on one machine; the largest machine takes sixteen of one kind.
const MAX_ACCELERATORS: usize = 8;

choice! {
    enum DiskType("a disk type") {
        Standard = "pd-standard",
        Ssd = "pd-ssd",
        Balanced = "pd-balanced",
    }
}

#[derive(Debug)]
pub(super) struct Gcp;

impl Platform for Gcp {
    fn aliases(&self) -> &'static [Alias] {
        &[
            ("instanceType", "machineType"),
            ("diskSizeGB", "diskSize"),
            ("rootVolume.size", "diskSize"),
            ("rootVolume.type", "diskType"),
        ]
    }

    fn check_pool(&self, block: &mut Object<'_>, place: &Place<'_>, findings: &mut Findings) {
        block.text("machineType", 63, findings);
        block.integer("diskSize", 10..=MAX_DISK, findings);
        block.choice::<DiskType>("diskType", findings);
        zones::check(block, "zones", place.region, zones::gcp_region, "us-central1-a", findings);
        block.boolean("preemptible", findings);
        block.boolean("spot", findings);
        check_accelerators(block, findings);
        read_labels(block, "labels", LabelUse::Wanted, findings);
        read_taints(block, "taints", findings);
        block.text("subnet", 253, findings);
        block.text("serviceAccount", 253, findings);
    }

    fn check_cluster(&self, block: &mut Object<'_>, findings: &mut Findings) {
        for name in ["projectID", "region", "network", "subnet"] {
            block.text(name, 253, findings);
        }
        block.text("endpointAccess", 63, findings);
        let Some(mut identity) = block.object("workloadIdentity", findings) else { return };
        for name in ["projectNumber", "poolID", "providerID"] {
            identity.text(name, 253, findings);
        }
        if let Some(mut accounts) = identity.object("serviceAccountsRef", findings) {
            for name in [
                "nodePoolEmail",
                "controlPlaneEmail",
                "cloudControllerEmail",
                "storageEmail",
                "imageRegistryEmail",
                "networkEmail",
            ] {
                accounts.text(name, 253, findings);
            }
            accounts.finish_kept(findings);
        }
        identity.finish_kept(findings);
    }

    fn facts(&self, block: &Map<String, Value>) -> Facts {
        let accelerators = block.get("accelerators").and_then(Value::as_array);
        Facts {
            machine_type: string_at(block, "machineType"),
            spot: bool_at(block, "preemptible") || bool_at(block, "spot"),
            zones: strings_at(block, "zones"),
            accelerators: accelerators.into_iter().flatten().filter_map(accelerator).collect(),
            labels: typed_at(block, "labels").unwrap_or_default(),
            taints: typed_at(block, "taints").unwrap_or_default(),
            ..Facts::default()
        }
    }

    fn default_machine_type(&self) -> Option<&'static str> {
        Some("e2-medium")
    }
}

fn accelerator(item: &Value) -> Option<Accelerator> {
    let count = item.get("count")?.as_f64().filter(|count| (1.0..=64.0).contains(count))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 64")]
    Some(Accelerator { model: item.get("type")?.as_str()?.to_owned(), count: count as u32 })
}

fn check_accelerators(block: &mut Object<'_>, findings: &mut Findings) {
    for (path, item) in block.list("accelerators", MAX_ACCELERATORS, findings).unwrap_or_default() {
        let Some(mut object) = Object::read(item, path, findings) else { continue };
        object.text("type", 63, findings);
        object.integer("count", 1..=64, findings);
        for name in ["type", "count"] {
            if object.get(name).is_none() {
                findings.push(FieldError::new(object.at(name), "is required"));
            }
        }
        object.finish_kept(findings);
    }
}
