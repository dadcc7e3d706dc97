//! Hosts that people bring, chosen by label.

use serde_json::{Map, Value};

use super::{Facts, Place, Platform, Selector, check_reference, selector, string_at, typed_at};
use crate::{
    field::{Findings, Object, choice},
    pool::read_resources,
};

choice! {
    enum JoinMode("a way to join") {
        Kubeadm = "kubeadm",
        TlsBootstrap = "tlsBootstrap",
    }
}

#[derive(Debug)]
pub(super) struct Byoh;

impl Platform for Byoh {
    fn check_pool(&self, block: &mut Object<'_>, _: &Place<'_>, findings: &mut Findings) {
        selector::check(block, "selector", findings);
        block.text("inventory", 253, findings);
        check_reference(block, "templateRef", findings);
        check_reference(block, "bootstrapConfigRef", findings);
        check_reference(block, "installerRef", findings);
        block.choice::<JoinMode>("joinMode", findings);
        read_resources(block, "capacityRequirements", findings);
    }

    fn check_cluster(&self, _: &mut Object<'_>, _: &mut Findings) {}

    fn facts(&self, block: &Map<String, Value>) -> Facts {
        let template = block.get("templateRef").and_then(|reference| reference.get("name")?.as_str());
        Facts {
            inventory: string_at(block, "inventory"),
            selector: Selector::at(block, "selector"),
            template: template.map(str::to_owned),
            // Every host that may serve has at least this much.
            capacity: typed_at(block, "capacityRequirements").unwrap_or_default(),
            ..Facts::default()
        }
    }
}
