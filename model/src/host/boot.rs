//! Boot profiles: named records of what a machine boots from.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Parsed, Timestamp,
    field::{FieldError, FieldErrors, Findings, Object, choice},
    names,
};

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

impl BootProfile {
    /// Reads a profile, finding every fault at once.
    pub fn read(value: &Value, path: &str) -> Result<Parsed<Self>, FieldErrors> {
        let mut findings = Findings::new();
        let profile = Object::read(value, path, &mut findings).and_then(|mut object| {
            let found = &mut findings;
            let name = object.string("name", found).unwrap_or_default().to_owned();
            if let Err(error) = names::check_dns_label(&name) {
                found.push(
                    FieldError::new(object.at("name"), error.problem)
                        .found_text(&name)
                        .allowed(names::DNS_LABEL),
                );
            }
            let target = object.choice::<BootTarget>("target", found);
            if target.is_none() && object.get("target").is_none() {
                found.push(
                    FieldError::new(object.at("target"), "is required")
                        .allowed("pxe, uefi-http, disk, bios-setup, none"),
                );
            }
            let mode = object.choice("mode", found).unwrap_or_default();
            let once = object.boolean("once", found).unwrap_or(true);
            let url = object.text("url", 2048, found).map(str::to_owned);
            match (target, &url) {
                (Some(BootTarget::UefiHttp), None) => {
                    found.push(FieldError::new(object.at("url"), "is required for uefi-http"));
                }
                (Some(BootTarget::UefiHttp), Some(url))
                    if !url.starts_with("http://") && !url.starts_with("https://") =>
                {
                    found.push(
                        FieldError::new(object.at("url"), "must start with http:// or https://")
                            .found_text(url),
                    );
                }
                (Some(target), Some(url)) if target != BootTarget::UefiHttp => {
                    found.push(
                        FieldError::new(object.at("url"), format!("means nothing for {target}"))
                            .found_text(url)
                            .hint("leave it out, or set target to uefi-http"),
                    );
                }
                _ => {}
            }
            object.finish(found);
            target.map(|target| Self { name, target, mode, once, url })
        });
        findings.result_of(profile)
    }
}

/// `/muster/boot-progress/{host}`: how far a machine has come, as a PXE server or an installer told us. Written
/// by the API, read by the host loop beside what the BMC itself reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BootReport {
    /// The reporter's own name for the step: `dhcp`, `kernel`, `installing`.
    pub stage: String,
    /// Whether an operating system runs.
    #[serde(default)]
    pub os: bool,
    pub at: Timestamp,
    /// Who said so.
    pub by: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_profile_is_read_strictly() {
        let profile = BootProfile::read(&json!({"name": "net", "target": "pxe"}), "spec").unwrap().value;
        assert_eq!((profile.mode, profile.once), (BootMode::Keep, true));
        let http = json!({"name": "net", "target": "uefi-http", "url": "http://boot.example/x.efi"});
        assert!(BootProfile::read(&http, "spec").is_ok());
        for (wrong, part) in [
            (json!({"name": "net"}), "spec.target: is required"),
            (json!({"name": "Net", "target": "pxe"}), "spec.name"),
            (json!({"name": "net", "target": "pxee"}), "did you mean pxe?"),
            (json!({"name": "net", "target": "uefi-http"}), "spec.url: is required"),
            (json!({"name": "net", "target": "uefi-http", "url": "file:///x"}), "must start with http"),
            (json!({"name": "net", "target": "pxe", "url": "http://x"}), "means nothing for pxe"),
            (json!({"name": "net", "target": "pxe", "onse": true}), "did you mean once?"),
        ] {
            let text = BootProfile::read(&wrong, "spec").unwrap_err().to_string();
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }
}
