//! Boot profiles: named records of what a machine boots from.

use serde::{Deserialize, Serialize};

use crate::field::choice;

choice! {
    pub enum BootTarget("a boot target") {
        Pxe = "pxe",
        UefiHttp = "uefi-http",
        Disk = "disk",
        BiosSetup = "bios-setup",
        /// Whatever the firmware says.
        None = "none",
    }
}

choice! {
    #[derive(Default)]
    pub enum BootMode("a boot mode") {
        /// As the machine is set.
        #[default]
        Keep = "keep",
        Uefi = "uefi",
        Legacy = "legacy",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BootProfile {
    pub name: String,
    pub target: BootTarget,
    #[serde(default)]
    pub mode: BootMode,
    /// For the next boot only.
    #[serde(default = "yes")]
    pub once: bool,
    /// For `uefi-http`: where the image is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

const fn yes() -> bool {
    true
}
