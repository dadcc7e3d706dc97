//! Reading a host's spec: every fault at once, each with its path and what to write instead.

use serde_json::Value;

use crate::{
    Parsed, Timestamp,
    field::{FieldError, FieldErrors, Findings, Object, parse_json},
    names,
    pool::{LabelUse, read_labels, read_taints},
    power::{CipherSuite, Mac, Pin},
    suggest,
};

use super::{
    Acknowledgement, BareMetalNodeSpec, Deletion, DriverKind, DriverSpec, Hold, LimitOverrides, MAX_DEADLINE,
    MacAddress, MatchBy, MgmtAddress, NodeMatch, PowerInterface, Registered, ResourceCapacity, TlsVerify,
    driver_settings, is_deadline,
};

/// Longest free text: ids, reasons, names of people.
const MAX_TEXT: usize = 253;
const MAX_DRIVERS: usize = 8;
/// No rack is higher, and no server takes more of it.
const MAX_UNITS: u32 = 60;
/// More than any server draws.
const MAX_WATTS: u32 = 100_000;
/// An exbibyte, in thousand-millionths: what is larger is a slip of the pen.
const MAX_AMOUNT_NANOS: i128 = (1 << 60) * 1_000_000_000;

impl BareMetalNodeSpec {
    /// Reads a stored or sent spec.
    pub fn parse(text: &[u8]) -> Result<Parsed<Self>, FieldErrors> {
        Self::read(&parse_json(text)?, "spec")
    }

    /// Reads a spec that is part of something else, under `path`.
    pub fn read(value: &Value, path: &str) -> Result<Parsed<Self>, FieldErrors> {
        let mut findings = Findings::new();
        let spec = Object::read(value, path, &mut findings).map(|object| read(object, &mut findings));
        findings.result_of(spec)
    }
}

impl BareMetalNodeSpec {
    /// What its drivers need and it does not say, so that none of them could do anything. Asked when a host is registered or its
    /// drivers change; a stored record that lacks something is left in use.
    pub fn check_ways(&self, path: &str) -> Result<(), FieldErrors> {
        let mut findings = Findings::new();
        let drivers = self.effective_drivers();
        for (place, driver) in drivers.iter().enumerate() {
            let mut lacks = |setting: &str, problem: &str, hint: &str| {
                let at = format!("{path}.drivers[{place}].settings.{setting}");
                if !driver.settings.contains_key(setting) {
                    findings.push(FieldError::new(at, problem).hint(hint));
                }
            };
            if driver.kind == DriverKind::Wol {
                let hint = "the directed broadcast address of its network, like 10.20.0.255; in CSV the column broadcast";
                lacks("broadcast", "is required for wol", hint);
            }
            if matches!(driver.kind, DriverKind::Redfish | DriverKind::Webhook)
                && self.tls_verify == TlsVerify::Ca
            {
                lacks("caBundle", "is required for tlsVerify ca", "the authority's certificates, as PEM");
            }
        }
        findings.result_of(Some(())).map(drop)
    }
}

fn read(mut object: Object<'_>, findings: &mut Findings) -> BareMetalNodeSpec {
    let interface = object.choice::<PowerInterface>("powerInterface", findings);
    if interface.is_none() && object.get("powerInterface").is_none() {
        findings
            .push(FieldError::new(object.at("powerInterface"), "is required").allowed("redfish, ipmi, wol"));
    }
    let pool = dns_label(&mut object, "pool", findings);
    if pool.is_none() && object.get("pool").is_none() {
        findings.push(FieldError::new(object.at("pool"), "is required").allowed(names::DNS_LABEL));
    }
    let mut spec =
        BareMetalNodeSpec::new(pool.unwrap_or_default(), interface.unwrap_or(PowerInterface::Redfish));
    spec.mgmt_address = parsed::<MgmtAddress>(
        &mut object,
        "mgmtAddress",
        "10.0.0.5, bmc-7.example or [2001:db8::1]:443",
        findings,
    );
    spec.mac_address = parsed::<MacAddress>(&mut object, "macAddress", "aa:bb:cc:00:11:22", findings);
    spec.bmc_credentials = dns_label(&mut object, "bmcCredentials", findings);
    spec.boot_profile = dns_label(&mut object, "bootProfile", findings);
    spec.rack = dns_label(&mut object, "rack", findings);
    spec.zone = text(&mut object, "zone", findings);
    if let Some(block) = object.object("resources", findings) {
        spec.resources = read_resources(block, findings);
    }
    spec.power_state = object.choice("powerState", findings);
    spec.inventory_id = text(&mut object, "inventoryId", findings);
    spec.system_id = text(&mut object, "systemId", findings);
    spec.serial = text(&mut object, "serial", findings);
    spec.tls_verify = object.choice("tlsVerify", findings).unwrap_or_default();
    spec.pin = parsed::<Pin>(&mut object, "pin", "sha256: and 64 hexadecimal digits", findings);
    spec.slot = object.count("slot", 1..=MAX_UNITS, findings);
    spec.height = object.count("height", 1..=MAX_UNITS, findings);
    spec.labels = read_labels(&mut object, "labels", LabelUse::Wanted, findings).unwrap_or_default();
    spec.taints = read_taints(&mut object, "taints", findings).unwrap_or_default();
    spec.idle_watts = object.count("idleWatts", 0..=MAX_WATTS, findings);
    spec.max_watts = object.count("maxWatts", 0..=MAX_WATTS, findings);
    spec.admin = object.choice("admin", findings).unwrap_or_default();
    spec.can_force_off = object.boolean("canForceOff", findings).unwrap_or(true);
    if let Some(block) = object.object("nodeMatch", findings) {
        spec.node_match = read_match(block, findings);
    }
    if let Some(block) = object.object("hold", findings) {
        spec.hold = read_hold(block, findings);
    }
    if let Some(block) = object.object("acknowledgement", findings) {
        spec.acknowledgement = read_acknowledgement(block, findings);
    }
    if let Some(block) = object.object("deadlines", findings) {
        spec.deadlines = read_deadlines(&block, findings);
    }
    spec.project = dns_label(&mut object, "project", findings);
    if let Some(block) = object.object("registered", findings) {
        spec.registered = read_signed(block, findings).map(|(by, at)| Registered { by, at });
    }
    if let Some(block) = object.object("deletion", findings) {
        spec.deletion = read_deletion(block, findings);
    }
    for (path, item) in object.list("drivers", MAX_DRIVERS, findings).unwrap_or_default() {
        if let Some(driver) =
            Object::read(item, path, findings).and_then(|block| read_driver(block, findings))
        {
            spec.drivers.push(driver);
        }
    }
    check_together(&object, &spec, findings);
    object.finish(findings);
    spec
}

/// What single fields cannot show.
fn check_together(object: &Object<'_>, spec: &BareMetalNodeSpec, findings: &mut Findings) {
    let drivers = spec.effective_drivers();
    let needs_bmc = drivers.iter().any(|driver| {
        matches!(driver.kind, DriverKind::Redfish | DriverKind::Ipmi) && driver.address.is_none()
    });
    if needs_bmc && spec.mgmt_address.is_none() && !object.members().contains_key("mgmtAddress") {
        findings.push(
            FieldError::new(object.at("mgmtAddress"), "is required for redfish and ipmi")
                .hint("the address of the machine's BMC"),
        );
    }
    let wakes = drivers.iter().any(|driver| driver.kind == DriverKind::Wol);
    if wakes && spec.mac_address.is_none() && !object.members().contains_key("macAddress") {
        findings.push(
            FieldError::new(object.at("macAddress"), "is required for wol")
                .hint("the network card that is woken"),
        );
    }
    if spec.pin.is_some() {
        check_pin(object, spec, findings);
    }
    if let (Some(idle), Some(max)) = (spec.idle_watts, spec.max_watts)
        && idle > max
    {
        findings.push(
            FieldError::new(object.at("idleWatts"), "must not be above maxWatts")
                .found_text(&idle.to_string())
                .allowed(format!("0 to {max}")),
        );
    }
    if spec.slot.is_some() && spec.rack.is_none() {
        findings.push(FieldError::new(object.at("slot"), "needs a rack").hint("name the rack in `rack`"));
    }
    for (place, driver) in spec.drivers.iter().enumerate() {
        if spec.drivers[..place].iter().any(|earlier| earlier == driver) {
            findings.push(FieldError::new(format!("{}[{place}]", object.at("drivers")), "is listed twice"));
        }
    }
}

/// A key that nothing would compare is a mistake, and somebody may rely on it.
fn check_pin(object: &Object<'_>, spec: &BareMetalNodeSpec, findings: &mut Findings) {
    let fault = if spec.tls_verify != TlsVerify::Pin {
        Some((
            format!("is not used with tlsVerify {}", spec.tls_verify),
            "remove it, or set tlsVerify to pin",
        ))
    } else if !spec.effective_drivers().iter().any(DriverSpec::is_at_bmc) {
        let problem = "is not used: no driver speaks TLS to mgmtAddress".to_owned();
        Some((problem, "put the key of a driver with an address of its own into its settings"))
    } else {
        None
    };
    if let Some((problem, hint)) = fault {
        findings.push(FieldError::new(object.at("pin"), problem).hint(hint));
    }
}

fn dns_label(object: &mut Object<'_>, name: &'static str, findings: &mut Findings) -> Option<String> {
    let found = object.string(name, findings)?;
    if let Err(error) = names::check_dns_label(found) {
        findings.push(
            FieldError::new(object.at(name), error.problem).found_text(found).allowed(names::DNS_LABEL),
        );
        return None;
    }
    Some(found.to_owned())
}

fn text(object: &mut Object<'_>, name: &'static str, findings: &mut Findings) -> Option<String> {
    object.text(name, MAX_TEXT, findings).map(|text| text.trim().to_owned())
}

fn required(object: &mut Object<'_>, name: &'static str, findings: &mut Findings) -> Option<String> {
    let found = text(object, name, findings);
    if found.is_none() && object.get(name).is_none() {
        findings.push(FieldError::new(object.at(name), "is required"));
    }
    found
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    object: &mut Object<'_>,
    name: &'static str,
    like: &str,
    findings: &mut Findings,
) -> Option<T> {
    let found = object.string(name, findings)?;
    match found.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            findings.push(
                FieldError::new(object.at(name), error.to_string())
                    .found_text(found)
                    .allowed(format!("text like {like}")),
            );
            None
        }
    }
}

fn quantity(value: &Value, path: &str, findings: &mut Findings) -> Option<crate::Quantity> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
    };
    match text.parse::<crate::Quantity>() {
        Ok(amount) if amount.nanos() > MAX_AMOUNT_NANOS => {
            findings.push(FieldError::new(path, "is more than any machine has").found(value));
            None
        }
        Ok(amount) if amount >= crate::Quantity::ZERO => Some(amount),
        Ok(_) => {
            findings.push(FieldError::new(path, "must not be negative").found(value));
            None
        }
        Err(_) => {
            findings.push(
                FieldError::new(path, "is not a quantity")
                    .found(value)
                    .allowed("text like 16, 16000m or 64Gi"),
            );
            None
        }
    }
}

fn read_resources(mut object: Object<'_>, findings: &mut Findings) -> ResourceCapacity {
    let mut resources = ResourceCapacity::default();
    for (name, place) in
        [("cpu", &mut resources.cpu), ("memory", &mut resources.memory), ("storage", &mut resources.storage)]
    {
        if let Some(amount) = object.get(name).and_then(|value| quantity(value, &object.at(name), findings)) {
            *place = amount;
        }
    }
    resources.gpu = object.count("gpu", 0..=1024, findings).unwrap_or_default();
    if let Some(custom) = object.object("customResources", findings) {
        for (name, value) in custom.members() {
            let path = custom.at(name);
            if let Err(error) = names::check_label_key(name) {
                findings.push(FieldError::new(&path, format!("is not a resource name: it {error}")));
            }
            if let Some(amount) = quantity(value, &path, findings) {
                resources.custom_resources.insert(name.clone(), amount);
            }
        }
    }
    object.finish(findings);
    resources
}

fn read_match(mut object: Object<'_>, findings: &mut Findings) -> NodeMatch {
    let by = object.choice::<MatchBy>("by", findings).unwrap_or_default();
    let value = text(&mut object, "value", findings);
    if by == MatchBy::Label && !value.as_deref().is_some_and(|value| value.contains('=')) {
        findings.push(
            FieldError::new(object.at("value"), "must be a label for this rule")
                .allowed("text like host=gpu-07"),
        );
    }
    object.finish(findings);
    NodeMatch { by, value }
}

fn read_hold(mut object: Object<'_>, findings: &mut Findings) -> Option<Hold> {
    let by = required(&mut object, "by", findings);
    let reason = required(&mut object, "reason", findings);
    let until = parsed::<Timestamp>(&mut object, "until", "2025-10-17T10:00:00Z", findings);
    object.finish(findings);
    Some(Hold { by: by?, reason: reason?, until })
}

fn read_acknowledgement(mut object: Object<'_>, findings: &mut Findings) -> Option<Acknowledgement> {
    let by = required(&mut object, "by", findings);
    let reason = required(&mut object, "reason", findings);
    let at = parsed::<Timestamp>(&mut object, "at", "2025-10-17T10:00:00Z", findings);
    if at.is_none() && object.get("at").is_none() {
        findings.push(FieldError::new(object.at("at"), "is required"));
    }
    object.finish(findings);
    Some(Acknowledgement { by: by?, reason: reason?, at: at? })
}

fn read_deletion(mut object: Object<'_>, findings: &mut Findings) -> Option<Deletion> {
    let mode = object.choice("mode", findings).unwrap_or_default();
    read_signed(object, findings).map(|(by, at)| Deletion { mode, by, at })
}

/// Who did something, and when: the rest of a block.
fn read_signed(mut object: Object<'_>, findings: &mut Findings) -> Option<(String, Timestamp)> {
    let by = required(&mut object, "by", findings);
    let at = parsed::<Timestamp>(&mut object, "at", "2025-10-17T10:00:00Z", findings);
    if at.is_none() && object.get("at").is_none() {
        findings.push(FieldError::new(object.at("at"), "is required"));
    }
    object.finish(findings);
    Some((by?, at?))
}

pub(super) fn read_deadlines(object: &Object<'_>, findings: &mut Findings) -> LimitOverrides {
    let mut overrides = LimitOverrides::default();
    for (name, value) in object.members() {
        let path = object.at(name);
        if !LimitOverrides::NAMES.contains(&name.as_str()) {
            let near = suggest::nearest(name, LimitOverrides::NAMES.iter().copied());
            let error = FieldError::new(path, "is not a known field").found(value);
            findings.push(match near {
                Some(near) => error.hint(format!("did you mean {near}?")),
                None => error.allowed(LimitOverrides::NAMES.join(", ")),
            });
            continue;
        }
        let length = value.as_str().and_then(|text| text.parse::<crate::Duration>().ok());
        match length.filter(|length| is_deadline(*length)) {
            Some(length) => {
                overrides.set(name, length);
            }
            None => findings.push(
                FieldError::new(path, "is not a duration that a deadline may have")
                    .found(value)
                    .allowed(format!("text like 90s, 10m or 1h30m, up to {MAX_DEADLINE}")),
            ),
        }
    }
    overrides
}

/// What the kernel takes as the name of an interface.
fn is_interface(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && !name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control())
}

/// What is wrong with the value of a driver's setting, and what is allowed. A slip of the pen must not become another choice.
fn setting_fault(name: &str, value: &str) -> Option<(&'static str, &'static str)> {
    let (is_good, problem, allowed) = match name {
        "port" => (value.parse::<u16>().is_ok_and(|port| port > 0), "is not a port", "1 to 65535"),
        "auth" => (["auto", "basic"].contains(&value), "is not a way to sign in", "auto, basic"),
        "scheme" => (["https", "http"].contains(&value), "is not a way to speak to a BMC", "https, http"),
        "privilege" => {
            let known = ["administrator", "operator"].contains(&value);
            (known, "is not a privilege of IPMI", "administrator, operator")
        }
        "cipherSuite" => {
            let suite = value.parse::<u8>().is_ok_and(|id| CipherSuite::try_from(id).is_ok());
            (suite, "is not a cipher suite that protects the account", "17, 3")
        }
        "secureOn" => (
            value.parse::<Mac>().is_ok(),
            "is not six bytes",
            "six pairs of hexadecimal digits, like 02:00:00:00:00:01",
        ),
        "interface" => {
            let allowed = "1 to 15 characters without / and spaces, like eth0";
            (is_interface(value), "is not the name of a network interface", allowed)
        }
        _ => return None,
    };
    (!is_good).then_some((problem, allowed))
}

fn read_driver(mut object: Object<'_>, findings: &mut Findings) -> Option<DriverSpec> {
    let kind = object.choice::<DriverKind>("kind", findings);
    if kind.is_none() && object.get("kind").is_none() {
        findings.push(FieldError::new(object.at("kind"), "is required"));
    }
    let address = parsed::<MgmtAddress>(&mut object, "address", "10.0.0.5 or bmc-7.example", findings)
        .map(|a| a.to_string());
    let credentials = dns_label(&mut object, "credentials", findings);
    let settings = object.string_map("settings", findings).unwrap_or_default();
    let path = object.at("settings");
    object.finish(findings);
    let kind = kind?;
    let known = driver_settings(kind);
    for (name, value) in &settings {
        if !known.contains(&name.as_str()) {
            let error = FieldError::new(format!("{path}.{name}"), format!("is not a setting of {kind}"))
                .found_text(value);
            findings.push(match suggest::nearest(name, known.iter().copied()) {
                Some(near) => error.hint(format!("did you mean {near}?")),
                None => error.allowed(known.join(", ")),
            });
        }
    }
    for (name, value) in &settings {
        let Some((problem, allowed)) = setting_fault(name, value) else { continue };
        let path = format!("{path}.{name}");
        findings.push(FieldError::new(path, problem).found_text(value).allowed(allowed));
    }
    if let Some(Err(error)) = settings.get("pin").map(|pin| pin.parse::<Pin>()) {
        findings.push(FieldError::new(format!("{path}.pin"), error.to_string()));
    }
    Some(DriverSpec { kind, address, credentials, settings })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PIN: &str = "sha256:abababababababababababababababababababababababababababababababab";

    fn full() -> Value {
        json!({
            "mgmtAddress": "10.0.0.5", "macAddress": "AA-BB-CC-00-11-22", "powerInterface": "redfish",
            "bmcCredentials": "rack-a", "bootProfile": "pxe-once", "rack": "a1", "pool": "gpu",
            "resources": {"cpu": "64", "memory": "512Gi", "gpu": 8, "storage": "4Ti",
                          "customResources": {"example.com/fpga": "2"}},
            "powerState": "on", "inventoryId": "DC-7",
            "drivers": [{"kind": "redfish", "settings": {"auth": "basic"}}, {"kind": "ipmi", "settings": {"cipherSuite": "17"}}],
            "systemId": "1", "serial": "S1", "tlsVerify": "pin", "pin": PIN, "slot": 12, "height": 4, "zone": "z1",
            "labels": {"gpu": "h100"}, "taints": [{"key": "gpu", "effect": "NoSchedule"}],
            "idleWatts": 400, "maxWatts": 6000, "nodeMatch": {"by": "label", "value": "host=a"},
            "admin": "normal", "hold": {"by": "ann", "reason": "new disk", "until": "2030-01-01T00:00:00Z"},
            "acknowledgement": {"by": "ann", "reason": "done", "at": "2029-01-01T00:00:00Z"},
            "deadlines": {"bootDeadline": "40m"}, "project": "ml",
            "registered": {"by": "ann", "at": "2028-01-01T00:00:00Z"},
            "deletion": {"mode": "power-off", "by": "ann", "at": "2029-01-01T00:00:00Z"}, "canForceOff": false
        })
    }

    #[test]
    fn every_field_is_read_written_and_read_again() {
        let spec = BareMetalNodeSpec::read(&full(), "spec").unwrap().value;
        assert_eq!(spec.mac_address.unwrap().to_string(), "aa:bb:cc:00:11:22");
        assert_eq!(spec.resources.gpu, 8);
        let stored = serde_json::to_value(&spec).unwrap();
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let hidden_by_default = |name: &String| name != "admin";
        assert_eq!(
            names(&stored),
            names(&full()).into_iter().filter(hidden_by_default).collect::<Vec<_>>(),
            "no field is lost"
        );
        assert_eq!(BareMetalNodeSpec::read(&stored, "spec").unwrap().value, spec);
        assert_eq!(serde_json::from_value::<BareMetalNodeSpec>(stored).unwrap(), spec);
    }

    #[test]
    fn a_setting_of_a_driver_has_one_of_its_values() {
        #[track_caller]
        fn check(kind: &str, name: &str, good: &[&str], bad: &[&str]) {
            let read = |value: &str| {
                let spec = json!({"powerInterface": "redfish", "pool": "p", "mgmtAddress": "10.0.0.5",
                    "drivers": [{"kind": kind, "settings": {name: value}}]});
                BareMetalNodeSpec::read(&spec, "spec").map(|_| ()).map_err(|errors| errors.to_string())
            };
            let path = format!("spec.drivers[0].settings.{name}");
            for value in good {
                assert!(read(value).err().is_none_or(|text| !text.contains(&path)), "{name} {value}");
            }
            for value in bad {
                let text = read(value).unwrap_err();
                assert!(text.contains(&path) && text.contains(value) && text.contains("allowed"), "{text}");
            }
        }
        check("ipmi", "privilege", &["administrator", "operator"], &["Operator", "admin"]);
        check("redfish", "auth", &["auto", "basic"], &["Basic", "none"]);
        check("wol", "port", &["9", "65535"], &["99999", "0", "-1", "x"]);
        check("ipmi", "cipherSuite", &["3", "17"], &["0", "1", "SHA256"]);
        check("wol", "secureOn", &["02:00:00:00:00:01", "02-00-00-00-00-01"], &["02:00", "hunter2"]);
        check("redfish", "scheme", &["https", "http"], &["HTTP"]);
        check("wol", "interface", &["eth0"], &["a/b"]);
    }

    #[test]
    fn every_fault_is_found_at_once() {
        let wrong = json!({
            "mgmtAdress": "10.0.0.5", "macAddress": "zz", "powerInterface": "redfsh", "pool": "GPU",
            "resources": {"cpu": "lots", "memroy": "1Gi", "storage": "99999999999999E"}, "powerState": "standby", "slot": 0,
            "drivers": [{"kind": "ipmi", "settings": {"cypherSuite": "3"}}],
            "deadlines": {"bootDeadlne": "5m"}, "hold": {"by": "ann"}, "idleWatts": 9, "maxWatts": 3
        });
        let errors = BareMetalNodeSpec::read(&wrong, "spec").unwrap_err();
        let text = errors.to_string();
        for part in [
            "spec.mgmtAdress: is not a known field",
            "did you mean mgmtAddress?",
            "spec.macAddress: is not a MAC address",
            "spec.powerInterface: is not a power interface",
            "did you mean redfish?",
            "spec.pool: may only hold a-z",
            "spec.resources.cpu: is not a quantity",
            "spec.resources.storage: is more than any machine has",
            "did you mean memory?",
            "spec.powerState",
            "spec.slot",
            "spec.drivers[0].settings.cypherSuite",
            "did you mean cipherSuite?",
            "did you mean bootDeadline?",
            "spec.hold.reason: is required",
            "spec.idleWatts: must not be above maxWatts",
        ] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        let required = BareMetalNodeSpec::read(&json!({}), "spec").unwrap_err().to_string();
        assert!(
            required.contains("spec.powerInterface: is required")
                && required.contains("spec.pool: is required")
        );
    }

    #[test]
    fn a_host_without_a_bmc_needs_a_card_to_wake() {
        let wol = json!({"powerInterface": "wol", "pool": "edge"});
        assert!(
            BareMetalNodeSpec::read(&wol, "spec")
                .unwrap_err()
                .to_string()
                .contains("macAddress: is required")
        );
        let wol = json!({"powerInterface": "wol", "pool": "edge", "macAddress": "aabbcc001122"});
        let spec = BareMetalNodeSpec::read(&wol, "spec").unwrap().value;
        let kinds: Vec<_> = spec.effective_drivers().iter().map(|driver| driver.kind).collect();
        assert_eq!(kinds, [DriverKind::Wol, DriverKind::Agent]);
    }

    #[test]
    fn a_key_that_nothing_would_compare_is_refused() {
        #[track_caller]
        fn check(change: Value, expected: &str) {
            let mut spec = json!({"powerInterface": "redfish", "pool": "gpu", "mgmtAddress": "10.0.0.5"});
            spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            let text = BareMetalNodeSpec::read(&spec, "spec")
                .map_or_else(|error| error.to_string(), |_| String::new());
            assert!(text.contains(expected) && text.is_empty() == expected.is_empty(), "{text}");
        }
        check(json!({"pin": PIN}), "");
        check(json!({"pin": "sha256:12"}), "spec.pin: \"sha256:12\" is not a key pin");
        check(json!({"pin": PIN, "tlsVerify": "insecure"}), "spec.pin: is not used with tlsVerify insecure");
        check(json!({"pin": PIN, "powerInterface": "ipmi"}), "spec.pin: is not used: no driver speaks TLS");
        check(
            json!({"drivers": [{"kind": "redfish", "settings": {"pin": "12"}}]}),
            "spec.drivers[0].settings.pin: \"12\" is not a key pin",
        );
    }

    #[test]
    fn what_drivers_need_is_asked_for_at_registration() {
        #[track_caller]
        fn check(spec: Value, expected: &str) {
            let spec = BareMetalNodeSpec::read(&spec, "spec").unwrap().value;
            let text = spec.check_ways("spec").map_or_else(|error| error.to_string(), |()| String::new());
            assert!(text.contains(expected) && text.is_empty() == expected.is_empty(), "{text}");
        }
        let wol = |settings: Value| {
            json!({"powerInterface": "wol", "pool": "edge", "macAddress": "aabbcc001122",
                "drivers": [{"kind": "wol", "settings": settings}, {"kind": "agent"}]})
        };
        check(wol(json!({"broadcast": "10.0.0.255"})), "");
        check(wol(json!({})), "spec.drivers[0].settings.broadcast: is required for wol");
        check(json!({"powerInterface": "wol", "pool": "edge", "macAddress": "aabbcc001122"}), "10.20.0.255");
        let ca =
            json!({"powerInterface": "redfish", "pool": "gpu", "mgmtAddress": "10.0.0.5", "tlsVerify": "ca"});
        check(ca, "spec.drivers[0].settings.caBundle: is required for tlsVerify ca");
        let named = wol(json!({"broadcast": "10.0.0.255", "interface": "not an interface"}));
        let text = BareMetalNodeSpec::read(&named, "spec").unwrap_err().to_string();
        assert!(text.contains("settings.interface: is not the name of a network interface"), "{text}");
    }

    proptest::proptest! {
        #[test]
        fn no_document_makes_the_reader_panic(value in crate::test_support::any_json()) {
            let _ = BareMetalNodeSpec::read(&value, "spec");
        }
    }
}
