//! Which system behind a BMC is meant, and what its resource says about power.

use muster_model::power::{
    BootProgress, DriverKind, Expected, Fault, Health, PowerState, Reading, given_uuid, same_uuid, shown,
};
use serde_json::Value;

use super::conversation::{Conversation, follow, links};

/// Most systems that are looked at behind one BMC; a chassis with 64 sleds is the largest known.
const MAX_SYSTEMS: usize = 256;
/// Pages of a collection that are read, at least one member each.
const MAX_PAGES: usize = 64;

impl Conversation<'_> {
    /// The path of the system that `configured` names. Without a name: the one with the expected UUID or
    /// serial number, or the only one. It never guesses.
    pub(super) async fn choose_system(
        &mut self,
        configured: Option<&str>,
        expect: &Expected,
    ) -> Result<String, Fault> {
        let key = configured.map(str::to_owned);
        if let Some(path) = self.memory.systems.get(&key) {
            return Ok(path.clone());
        }
        let all = self.members(self.root().systems.clone(), "its systems").await?;
        let id = |path: &String| path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
        let ids = || all.iter().map(id).collect::<Vec<_>>().join(", ");
        let chosen = match (configured, all.as_slice()) {
            (Some(name), _) => all.iter().find(|path| id(path) == name).cloned().ok_or_else(|| {
                Fault::AmbiguousSystem { count: all.len(), found: shown(&ids()).to_string() }
            })?,
            (None, [only]) => only.clone(),
            (None, []) => return Err(Fault::malformed("its systems", "the list is empty")),
            (None, _) => {
                let mut matching = Vec::new();
                for path in &all {
                    let (system, _) = self.get(path, "a system").await?;
                    if is_expected(&system, expect) {
                        matching.push(path.clone());
                    }
                }
                if let [one] = matching.as_slice() {
                    return Ok(one.clone()); // not remembered: it hangs on the record's marks
                }
                let found = shown(&ids()).to_string();
                return Err(Fault::AmbiguousSystem { count: all.len(), found });
            }
        };
        self.memory.systems.insert(key, chosen.clone());
        Ok(chosen)
    }

    /// The members of a collection, over all of its pages.
    pub(super) async fn members(&mut self, collection: String, what: &str) -> Result<Vec<String>, Fault> {
        let (mut all, mut next) = (Vec::new(), Some(collection));
        for _ in 0..MAX_PAGES {
            let Some(page) = next.take() else { break };
            let (page, _) = self.get(&page, what).await?;
            all.extend(links(&page, "/Members")?);
            if all.len() > MAX_SYSTEMS {
                return Err(Fault::malformed(what, format!("it has more than {MAX_SYSTEMS} members")));
            }
            next = page.get("Members@odata.nextLink").and_then(Value::as_str).map(follow).transpose()?;
        }
        Ok(all)
    }

    /// The system's resource, after making sure that it is the expected machine as far as it says.
    pub(super) async fn system(
        &mut self,
        path: &str,
        expect: &Expected,
    ) -> Result<(Value, Option<String>), Fault> {
        let answer = self.get(path, "the system").await;
        if matches!(&answer, Err(Fault::Refused { answer, .. }) if answer.starts_with("HTTP 404")) {
            self.memory.systems.clear(); // renamed or replaced: look again next time
        }
        let (system, answer) = answer?;
        contradicts(&system, expect)?;
        let text = |at: &str| system.get(at).and_then(Value::as_str).unwrap_or_default();
        let vendor = format!("{} {}", self.root().vendor, text("Manufacturer"));
        self.memory.quirks = super::quirks::lookup(&vendor, text("Model"), text("BiosVersion"));
        let tag = answer.header("etag").map(str::to_owned);
        Ok((system, tag))
    }

    pub(super) async fn reading(&mut self, path: &str, expect: &Expected) -> Result<Reading, Fault> {
        let (system, _) = self.system(path, expect).await?;
        Ok(Reading {
            state: power_state(&system),
            at: self.setup.clock.now(),
            driver: DriverKind::Redfish,
            progress: boot_progress(&system),
            health: health(&system),
            warnings: Vec::new(),
        })
    }
}

/// The two marks of a machine in its resource.
fn marks<'a>(
    system: &'a Value,
    expect: &'a Expected,
) -> [(&'static str, Option<&'a str>, Option<&'a str>); 2] {
    let text =
        |at: &str| system.get(at).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    [
        ("serial number", expect.serial.as_deref(), text("SerialNumber")),
        ("UUID", expect.uuid.as_deref().and_then(given_uuid), text("UUID").and_then(given_uuid)),
    ]
}

/// An error when the system says that it is another machine. Silence is no contradiction.
fn contradicts(system: &Value, expect: &Expected) -> Result<(), Fault> {
    for (what, expected, found) in marks(system, expect) {
        if let (Some(expected), Some(found)) = (expected, found)
            && !expected.trim().eq_ignore_ascii_case(found)
            && !(what == "UUID" && same_uuid(expected, found))
        {
            let (expected, found) = (expected.to_owned(), shown(found).to_string());
            return Err(Fault::WrongHost { what, expected, found });
        }
    }
    Ok(())
}

/// Whether at least one expected mark was seen and none differs.
fn is_expected(system: &Value, expect: &Expected) -> bool {
    let seen =
        marks(system, expect).into_iter().any(|(_, expected, found)| expected.is_some() && found.is_some());
    seen && contradicts(system, expect).is_ok()
}

/// An error unless the machine has proved to be the expected one. Records without marks cannot be checked.
pub(super) fn prove(system: &Value, expect: &Expected) -> Result<(), Fault> {
    contradicts(system, expect)?;
    let [serial, uuid] = marks(system, expect);
    if is_expected(system, expect) || (serial.1.is_none() && uuid.1.is_none()) {
        return Ok(());
    }
    let (what, expected, _) = if serial.1.is_some() { serial } else { uuid };
    // Some BMCs leave both out while the machine is off. That is no other machine, and no proof either.
    Err(Fault::Unidentified { what, expected: expected.unwrap_or_default().to_owned() })
}

/// Five values. What a BMC leaves out or invents is unknown.
pub(super) fn power_state(system: &Value) -> PowerState {
    match system.get("PowerState") {
        Some(Value::String(state)) => match state.as_str() {
            "On" => PowerState::On,
            "Off" => PowerState::Off,
            "PoweringOn" => PowerState::PoweringOn,
            "PoweringOff" => PowerState::PoweringOff,
            other => PowerState::unknown(format!("the BMC says {}", shown(other))),
        },
        Some(Value::Null) => PowerState::unknown("the BMC says null"),
        Some(_) => PowerState::unknown("the BMC's power state is not text"),
        None => PowerState::unknown("the BMC leaves the power state out"),
    }
}

fn boot_progress(system: &Value) -> BootProgress {
    match system.pointer("/BootProgress/LastState").and_then(Value::as_str) {
        None | Some("None" | "") => BootProgress::NotReported,
        Some("OSBootStarted") => BootProgress::OsStarting,
        Some("OSRunning") => BootProgress::OsRunning,
        Some(step) => BootProgress::Firmware(shown(step).to_string()),
    }
}

pub(super) fn health(resource: &Value) -> Health {
    let status = resource.pointer("/Status/HealthRollup").or_else(|| resource.pointer("/Status/Health"));
    match status.and_then(Value::as_str) {
        Some("OK") => Health::Ok,
        Some("Warning") => Health::Warning,
        Some("Critical") => Health::Critical,
        _ => Health::NotReported,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn power_is_never_guessed() {
        #[track_caller]
        fn check(system: Value, expected: &str) {
            assert_eq!(power_state(&system).to_string(), expected, "{system}");
        }
        check(json!({"PowerState": "On"}), "on");
        check(json!({"PowerState": "Off"}), "off");
        check(json!({"PowerState": "PoweringOff"}), "powering-off");
        check(json!({"PowerState": "Reset"}), "unknown (the BMC says Reset)");
        check(json!({"PowerState": "off"}), "unknown (the BMC says off)");
        check(json!({"PowerState": null}), "unknown (the BMC says null)");
        check(json!({"PowerState": 0}), "unknown (the BMC's power state is not text)");
        check(json!({}), "unknown (the BMC leaves the power state out)");
    }

    #[test]
    fn a_machine_is_stopped_only_when_its_marks_agree() {
        #[track_caller]
        fn check(expect: (Option<&str>, Option<&str>), system: Value, readable: bool, stoppable: bool) {
            let expect = Expected { serial: expect.0.map(Into::into), uuid: expect.1.map(Into::into) };
            assert_eq!(contradicts(&system, &expect).is_ok(), readable, "read {system}");
            let proof = prove(&system, &expect);
            assert_eq!(proof.is_ok(), stoppable, "stop {system}");
            let code = if readable { "POWER_UNIDENTIFIED" } else { "POWER_WRONG_HOST" };
            assert!(proof.is_ok() || proof.as_ref().is_err_and(|fault| fault.code() == code), "{proof:?}");
        }
        check((None, None), json!({"SerialNumber": "X"}), true, true);
        check((Some("X1"), None), json!({"SerialNumber": "x1 "}), true, true);
        check((Some("X1"), None), json!({"SerialNumber": "X2"}), false, false);
        check((Some("X1"), None), json!({}), true, false);
        check((Some("X1"), Some("u")), json!({"UUID": "U"}), true, true);
        check((Some("X1"), Some("u")), json!({"UUID": "U", "SerialNumber": "X2"}), false, false);
        // Another driver told it, in another byte order; and a UUID that was never set tells nothing.
        let (ours, smbios) = ("33221100-5544-7766-0809-0a0b0c0d0e0f", "00112233-4455-6677-0809-0A0B0C0D0E0F");
        let never = "00000000-0000-0000-0000-000000000000";
        check((None, Some(ours)), json!({ "UUID": smbios }), true, true);
        check((None, Some(ours)), json!({ "UUID": never }), true, false);
        check((None, Some(never)), json!({ "UUID": ours }), true, true);
    }
}
