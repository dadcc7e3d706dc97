//! Virtual machines that Cluster API makes on vSphere.

use serde_json::{Map, Value};

use super::{Facts, Place, Platform, check_reference, string_at};
use crate::{
    field::{FieldError, Findings, Object, choice},
    pool::Resources,
};

choice! {
    enum CloneMode("a clone mode") {
        Full = "fullClone",
        Linked = "linkedClone",
    }
}

#[derive(Debug)]
pub(super) struct Vsphere;

impl Platform for Vsphere {
    fn check_pool(&self, block: &mut Object<'_>, _: &Place<'_>, findings: &mut Findings) {
        block.integer("numCPUs", 1..=1024, findings);
        block.integer("memoryMiB", 128..=33_554_432, findings);
        block.integer("diskGiB", 1..=65_536, findings);
        block.choice::<CloneMode>("cloneMode", findings);
        for name in [
            "template",
            "datacenter",
            "datastore",
            "storagePolicyName",
            "folder",
            "network",
            "resourcePool",
            "vcIP",
            "tkgIPFamily",
            "hardwareVersion",
        ] {
            block.text(name, 400, findings);
        }
        block.strings("nameservers", 16, findings);
        check_reference(block, "templateRef", findings);
        for name in ["customVMXKeys", "pciSettings", "pciDevices", "overrides"] {
            block.get(name);
        }
        if block.get("template").is_none() && block.get("templateRef").is_none() {
            findings.push(
                FieldError::new(block.at("template"), "is required")
                    .hint("name the virtual machine to clone, or give templateRef"),
            );
        }
    }

    fn check_cluster(&self, block: &mut Object<'_>, findings: &mut Findings) {
        for name in ["server", "datacenter", "datastore", "network", "folder", "resourcePool"] {
            block.text(name, 400, findings);
        }
    }

    fn facts(&self, block: &Map<String, Value>) -> Facts {
        let whole = |name: &str| block.get(name).and_then(Value::as_f64);
        let mut capacity = Resources::new();
        for (resource, name, unit) in
            [("cpu", "numCPUs", ""), ("memory", "memoryMiB", "Mi"), ("ephemeral-storage", "diskGiB", "Gi")]
        {
            if let Some(amount) = whole(name) {
                capacity.insert(resource.to_owned(), format!("{amount:.0}{unit}").as_str().into());
            }
        }
        let reference = block.get("templateRef").and_then(|reference| reference.get("name")?.as_str());
        Facts {
            capacity,
            template: string_at(block, "template").or_else(|| reference.map(str::to_owned)),
            ..Facts::default()
        }
    }

    fn needs_block(&self) -> bool {
        true
    }
}
