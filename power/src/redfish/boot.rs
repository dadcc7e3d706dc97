//! Choosing where a machine boots from, against a dozen dialects, and reading back what it kept.

use muster_model::power::{BootMode, BootOverride, BootTarget, DriverKind, Expected, Fault, shown};
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::{
    conversation::{Conversation, link, refusal},
    reset::busy,
    system::prove,
};
use crate::http::Answer;

impl Conversation<'_> {
    /// Sets the override by the first dialect that is accepted, then reads it back.
    pub(super) async fn set_boot(
        &mut self,
        path: &str,
        expect: &Expected,
        boot: BootOverride,
    ) -> Result<BootOverride, Fault> {
        let (system, tag) = self.system(path, expect).await?;
        prove(&system, expect)?;
        let Some(current) = system.get("Boot").filter(|boot| boot.is_object()) else {
            return Err(Fault::unsupported("boot settings", DriverKind::Redfish));
        };
        let target = target_word(boot.target);
        let allowed =
            current.get("BootSourceOverrideTarget@Redfish.AllowableValues").and_then(Value::as_array);
        if allowed.is_some_and(|list| !list.iter().any(|entry| entry == target)) {
            return Err(Fault::unsupported(format!("boot from {target}"), DriverKind::Redfish));
        }
        let place = self.write_boot(path, &system, tag.as_deref(), &boot).await?;

        let (after, _) = self.system(path, expect).await?;
        let is_kept = |kept: &BootOverride| {
            kept.target == boot.target
                && (boot.mode.is_none() || !takes_mode(&system) || kept.mode == boot.mode)
                && (boot.url.is_none() || kept.url == boot.url)
        };
        let shown_by = |resource: &Value| resource.get("Boot").and_then(kept).filter(is_kept);
        if let Some(kept) = shown_by(&after) {
            return Ok(kept);
        }
        // What was written to a settings resource may show there alone until the next reset, which is the one it is for.
        let pending = if place == path { None } else { self.get_if_there(&place, "its settings").await? };
        pending.as_ref().and_then(shown_by).ok_or_else(|| {
            let found = after.get("Boot").map(describe).unwrap_or_default();
            let wanted = boot.url.as_ref().map_or(target.to_owned(), |url| format!("{target} {url}"));
            Fault::BootIgnored { wanted, found: shown(&found).to_string() }
        })
    }

    /// Tries what the BMC accepts: few fields or all of them, on the system or on its settings resource, with
    /// the `ETag` as given, made strong, or without. Tells where it was accepted.
    async fn write_boot(
        &mut self,
        path: &str,
        system: &Value,
        tag: Option<&str>,
        boot: &BootOverride,
    ) -> Result<String, Fault> {
        let base = path.trim_end_matches('/');
        let quirk = self.memory.quirks.boot_settings.as_ref().map(|suffix| format!("{base}{suffix}"));
        let settings = link(system, "/@Redfish.Settings/SettingsObject")?.or(quirk);
        let mut payloads = vec![payload(system, boot, Fields::Needed), payload(system, boot, Fields::All)];
        if self.memory.quirks.full_boot {
            payloads.reverse();
        }
        payloads.dedup();
        let mut last = None;
        for place in std::iter::once(path.to_owned()).chain(settings) {
            let place_tag = if place == path { tag.map(str::to_owned) } else { self.tag_of(&place).await? };
            for body in &payloads {
                match self.patch(&place, body, place_tag.as_deref()).await? {
                    answer if answer.is_success() => return Ok(place),
                    answer if self.is_busy(&answer) => return Err(busy("the boot setting", &answer)),
                    // Not this dialect; another one may be understood.
                    answer if matches!(answer.status, 400 | 404 | 405 | 409 | 412 | 428 | 501) => {
                        last = Some(answer);
                    }
                    answer => return Err(refusal("the boot setting", &answer)),
                }
            }
        }
        let answer = last.expect("at least one place and one payload were tried");
        Err(refusal("the boot setting", &answer))
    }

    async fn tag_of(&mut self, path: &str) -> Result<Option<String>, Fault> {
        let answer = self.call(Method::GET, path, None, None).await.map_err(|failed| failed.fault)?;
        Ok(answer.header("etag").filter(|_| answer.is_success()).map(str::to_owned))
    }

    /// One PATCH with the ladder of `ETag` forms: as it is, made strong, none.
    async fn patch(&mut self, path: &str, body: &Value, tag: Option<&str>) -> Result<Answer, Fault> {
        let tag = tag.filter(|tag| !tag.trim_matches('"').is_empty());
        let strong = tag.and_then(|tag| tag.strip_prefix("W/"));
        let mut forms: Vec<Option<&str>> = vec![strong.or(tag)];
        forms.extend([tag, None]);
        forms.dedup();
        let mut answer = None;
        for form in forms {
            let got =
                self.call(Method::PATCH, path, Some(body), form).await.map_err(|failed| failed.fault)?;
            let another = matches!(got.status, 412 | 428);
            answer = Some(got);
            if !another {
                break;
            }
        }
        Ok(answer.expect("there is always at least one form"))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fields {
    Needed,
    All,
}

fn payload(system: &Value, boot: &BootOverride, fields: Fields) -> Value {
    let mut fields_out = Map::new();
    let enabled = match (boot.target, boot.once) {
        (BootTarget::Default, _) => "Disabled",
        (_, true) => "Once",
        (_, false) => "Continuous",
    };
    fields_out.insert("BootSourceOverrideEnabled".into(), json!(enabled));
    fields_out.insert("BootSourceOverrideTarget".into(), json!(target_word(boot.target)));
    if let Some(url) = &boot.url {
        fields_out.insert("HttpBootUri".into(), json!(url));
    }
    let shown_mode = system.pointer("/Boot/BootSourceOverrideMode");
    let mode = boot.mode.map(|mode| json!(mode_word(mode)));
    let mode = if fields == Fields::All { mode.or_else(|| shown_mode.cloned()) } else { mode };
    if let Some(mode) = mode.filter(|_| takes_mode(system)) {
        fields_out.insert("BootSourceOverrideMode".into(), mode);
    }
    json!({ "Boot": fields_out })
}

/// A resource that shows no mode takes none, and none is demanded of it.
fn takes_mode(system: &Value) -> bool {
    system.pointer("/Boot/BootSourceOverrideMode").is_some()
}

const fn target_word(target: BootTarget) -> &'static str {
    match target {
        BootTarget::Default => "None",
        BootTarget::Pxe => "Pxe",
        BootTarget::UefiHttp => "UefiHttp",
        BootTarget::Disk => "Hdd",
        BootTarget::Cd => "Cd",
        BootTarget::Setup => "BiosSetup",
    }
}

const fn mode_word(mode: BootMode) -> &'static str {
    match mode {
        BootMode::Uefi => "UEFI",
        BootMode::Legacy => "Legacy",
    }
}

/// The override as the resource states it; `None` when it states none that we know.
fn kept(boot: &Value) -> Option<BootOverride> {
    let text = |name: &str| boot.get(name).and_then(Value::as_str);
    let enabled = text("BootSourceOverrideEnabled").unwrap_or("Disabled");
    let target = match text("BootSourceOverrideTarget")? {
        _ if enabled == "Disabled" => BootTarget::Default,
        "None" => BootTarget::Default,
        "Pxe" => BootTarget::Pxe,
        "UefiHttp" => BootTarget::UefiHttp,
        "Hdd" => BootTarget::Disk,
        "Cd" => BootTarget::Cd,
        "BiosSetup" => BootTarget::Setup,
        _ => return None,
    };
    let mode = match text("BootSourceOverrideMode") {
        Some("UEFI") => Some(BootMode::Uefi),
        Some("Legacy") => Some(BootMode::Legacy),
        _ => None,
    };
    Some(BootOverride { target, mode, once: enabled == "Once", url: text("HttpBootUri").map(str::to_owned) })
}

fn describe(boot: &Value) -> String {
    ["BootSourceOverrideTarget", "BootSourceOverrideEnabled", "BootSourceOverrideMode", "HttpBootUri"]
        .into_iter()
        .filter_map(|name| boot.get(name)?.as_str())
        .collect::<Vec<_>>()
        .join(" ")
}
