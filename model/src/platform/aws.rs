//! Amazon Web Services: pools that a controller of the cluster provisions.

use serde_json::{Map, Value};

use super::{Alias, Facts, Place, Platform, bool_at, string_at, strings_at, typed_at, zones};
use crate::{
    field::{Findings, Object, choice},
    pool::{LabelUse, read_labels, read_taints},
};

/// Largest volume, in GiB.
const MAX_VOLUME: i64 = 65_536;
/// EC2 refuses user data over 16 KiB before encoding; room is left for a script that is encoded already.
const MAX_USER_DATA: usize = 24 * 1024;

choice! {
    enum VolumeType("a volume type") {
        Gp2 = "gp2",
        Gp3 = "gp3",
        Io1 = "io1",
        Io2 = "io2",
    }
}

#[derive(Debug)]
pub(super) struct Aws;

impl Platform for Aws {
    fn aliases(&self) -> &'static [Alias] {
        &[("rootVolume.size", "volumeSize"), ("rootVolume.type", "volumeType")]
    }

    fn check_pool(&self, block: &mut Object<'_>, place: &Place<'_>, findings: &mut Findings) {
        block.text("instanceType", 63, findings);
        block.integer("volumeSize", 8..=MAX_VOLUME, findings);
        block.choice::<VolumeType>("volumeType", findings);
        zones::check(block, "availabilityZones", place.region, zones::aws_region, "us-west-2a", findings);
        block.boolean("spotInstances", findings);
        block.secret("userData", MAX_USER_DATA, findings);
        read_labels(block, "labels", LabelUse::Wanted, findings);
        read_taints(block, "taints", findings);
    }

    fn check_cluster(&self, block: &mut Object<'_>, findings: &mut Findings) {
        for name in ["region", "accountID", "vpcID"] {
            block.text(name, 253, findings);
        }
    }

    fn facts(&self, block: &Map<String, Value>) -> Facts {
        Facts {
            machine_type: string_at(block, "instanceType"),
            spot: bool_at(block, "spotInstances"),
            zones: strings_at(block, "availabilityZones"),
            labels: typed_at(block, "labels").unwrap_or_default(),
            taints: typed_at(block, "taints").unwrap_or_default(),
            ..Facts::default()
        }
    }

    fn default_machine_type(&self) -> Option<&'static str> {
        Some("t3.medium")
    }

    fn secrets(&self) -> &'static [&'static str] {
        &["userData"]
    }
}
