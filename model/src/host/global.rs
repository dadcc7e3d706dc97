//! `/baremetal/global/config` and `/stats`: settings for all hosts, and figures about them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Timestamp,
    field::{FieldError, FieldErrors, Findings, Object, choice, parse_json},
    pool::{DEFAULT_TARGET_CPU, MARK_DISTANCE},
};

use super::{
    HostPolicy, LimitOverrides, MAX_DEADLINE, MgmtAddress, PolicyOverrides, ResourceCapacity, State,
    is_deadline, read::read_deadlines,
};

choice! {
    /// `muster freeze`.
    #[derive(Default)]
    pub enum FreezeMode("a freeze mode") {
        #[default]
        None = "none",
        /// Nothing acts.
        Frozen = "frozen",
        /// Everything is woken.
        AllOn = "all-on",
    }
}

/// Settings that hold for every host unless its pool or the host says otherwise. Read live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct GlobalConfig {
    pub freeze: FreezeMode,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze_reason: Option<String>,
    /// Who froze, and when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze_since: Option<Timestamp>,
    /// Share of requested resources above which a pool of servers grows, in percent, unless the pool says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_mark_percent: Option<u32>,
    /// Share below which a node may go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_mark_percent: Option<u32>,
    /// Power operations under way at once, in all.
    pub max_power_operations: u32,
    pub max_power_operations_per_rack: u32,
    /// Power-ons in one second, in all.
    pub max_starts_per_second: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus_url: Option<String>,
    /// Price of one kilowatt-hour in millionths of the currency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_price_micros: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    pub policy: HostPolicy,
    #[serde(skip_serializing_if = "LimitOverrides::is_empty")]
    pub deadlines: LimitOverrides,
}

impl Default for GlobalConfig {
    fn default() -> Self {
        Self {
            freeze: FreezeMode::None,
            freeze_reason: None,
            freeze_by: None,
            freeze_since: None,
            high_mark_percent: None,
            low_mark_percent: None,
            // A rack's supply carries the inrush of a few servers; twenty at once is what others bear.
            max_power_operations: 20,
            max_power_operations_per_rack: 4,
            max_starts_per_second: 2,
            prometheus_url: None,
            energy_price_micros: None,
            currency: None,
            policy: HostPolicy::default(),
            deadlines: LimitOverrides::default(),
        }
    }
}

impl GlobalConfig {
    /// What a record says of a freeze, as far as that can be read, and defaults for the rest: what a person stopped stays
    /// stopped whatever else is wrong with the settings.
    pub fn freeze_of(record: &[u8]) -> Self {
        let record: Value = serde_json::from_slice(record).unwrap_or_default();
        let text = |name: &str| record.get(name).and_then(Value::as_str).map(str::to_owned);
        let freeze = record.get("freeze").map_or(FreezeMode::None, |mode| {
            serde_json::from_value(mode.clone()).unwrap_or(FreezeMode::Frozen)
        });
        Self {
            freeze,
            freeze_reason: text("freezeReason"),
            freeze_by: text("freezeBy"),
            freeze_since: text("freezeSince").and_then(|since| since.parse().ok()),
            ..Self::default()
        }
    }

    /// Reads the text of a stored record.
    pub fn parse(text: &[u8]) -> Result<Self, FieldErrors> {
        Self::read(&parse_json(text)?, "")
    }

    /// Reads settings that somebody sent or stored, with every fault.
    pub fn read(value: &Value, path: &str) -> Result<Self, FieldErrors> {
        let mut findings = Findings::new();
        let config = Object::read(value, path, &mut findings).map(|object| read(object, &mut findings));
        findings.result_of(config).map(|parsed| parsed.value)
    }

    /// Every rule that the settings break, as sentences; empty when they may be used.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if let Some(high) = self.high_mark_percent.filter(|high| !(MARK_DISTANCE..=100).contains(high)) {
            faults.push(format!("highMarkPercent must be {MARK_DISTANCE} to 100, found {high}"));
        }
        let high = self.high_mark_percent.unwrap_or(DEFAULT_TARGET_CPU);
        if let Some(low) = self.low_mark_percent.filter(|low| low.saturating_add(MARK_DISTANCE) > high) {
            faults.push(format!(
                "lowMarkPercent must be at least {MARK_DISTANCE} below highMarkPercent, found {low} and {high}"
            ));
        }
        for (name, value) in [
            ("maxPowerOperations", self.max_power_operations),
            ("maxPowerOperationsPerRack", self.max_power_operations_per_rack),
            ("maxStartsPerSecond", self.max_starts_per_second),
            ("policy.quarantineAfter", self.policy.quarantine_after),
        ] {
            if value == 0 {
                faults.push(format!("{name} must be at least 1; use freeze to stop everything"));
            }
        }
        for (name, length) in self.deadlines.entries() {
            if !is_deadline(length) {
                faults.push(format!(
                    "deadlines.{name} must be longer than 0s and at most {MAX_DEADLINE}, found {length}"
                ));
            }
        }
        if self.prometheus_url.as_deref().is_some_and(|url| !is_server(url)) {
            faults.push(
                "prometheusUrl must be an address like http://prometheus:9090, without an account".into(),
            );
        }
        faults
    }
}

fn read(mut object: Object<'_>, findings: &mut Findings) -> GlobalConfig {
    let mut config = GlobalConfig::default();
    let text = |object: &mut Object<'_>, name, findings: &mut Findings| {
        object.string(name, findings).map(str::to_owned)
    };
    config.freeze = object.choice("freeze", findings).unwrap_or_default();
    config.freeze_reason = text(&mut object, "freezeReason", findings);
    config.freeze_by = text(&mut object, "freezeBy", findings);
    config.freeze_since =
        object.string("freezeSince", findings).and_then(|since| match since.parse::<Timestamp>() {
            Ok(since) => Some(since),
            Err(error) => {
                findings.push(FieldError::new(object.at("freezeSince"), error.to_string()).found_text(since));
                None
            }
        });
    config.high_mark_percent = object.count("highMarkPercent", 0..=u32::MAX, findings);
    config.low_mark_percent = object.count("lowMarkPercent", 0..=u32::MAX, findings);
    for (name, place) in [
        ("maxPowerOperations", &mut config.max_power_operations),
        ("maxPowerOperationsPerRack", &mut config.max_power_operations_per_rack),
        ("maxStartsPerSecond", &mut config.max_starts_per_second),
    ] {
        if let Some(count) = object.count(name, 0..=u32::MAX, findings) {
            *place = count;
        }
    }
    config.prometheus_url = text(&mut object, "prometheusUrl", findings);
    let price = object.integer("energyPriceMicros", 0..=i64::MAX, findings);
    config.energy_price_micros = price.and_then(|price| u64::try_from(price).ok());
    config.currency = text(&mut object, "currency", findings);
    if let Some(block) = object.object("policy", findings) {
        config.policy = config.policy.with(&PolicyOverrides::read(&block, findings));
    }
    if let Some(block) = object.object("deadlines", findings) {
        config.deadlines = read_deadlines(&block, findings);
    }
    // Each begins with the name of its field.
    for fault in config.faults() {
        let (name, problem) = fault.split_once(' ').unwrap_or(("", &fault));
        findings.push(FieldError::new(object.at(name), problem));
    }
    object.finish(findings);
    config
}

/// Whether this is where a server can be asked: a scheme, a host, perhaps a port and a path. An account does not belong into
/// settings that everybody reads.
fn is_server(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let Some(rest) = rest.filter(|_| !url.contains(|c: char| c.is_whitespace() || c.is_control())) else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.parse::<MgmtAddress>().is_ok()
}

/// Figures about all hosts, at most 30 s old.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GlobalStats {
    pub at: Timestamp,
    pub hosts: u32,
    pub by_state: BTreeMap<State, u32>,
    pub quarantined: u32,
    pub held: u32,
    /// Resources of ready hosts, by pool.
    pub ready_resources: BTreeMap<String, ResourceCapacity>,
    /// What is drawn now as far as it is known.
    pub milliwatts: i64,
    /// Hosts whose draw is not known.
    pub unmetered: u32,
    /// Energy since registration, by pool.
    #[serde(default)]
    pub energy: BTreeMap<String, PoolEnergy>,
    /// The price that the costs were made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_price_micros: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
}

/// Energy of a pool's hosts, and how it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolEnergy {
    pub used_milliwatt_hours: u64,
    /// What the hosts would have drawn at rest while they were off.
    pub saved_milliwatt_hours: u64,
    /// In millionths of the currency; absent without a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_cost_micros: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_cost_micros: Option<u64>,
    /// Hosts whose BMC measures, hosts that count with their declared watts, and hosts that do not count.
    pub measured: u32,
    pub declared: u32,
    pub unknown: u32,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_fault_of_the_settings_is_named_with_its_field() {
        #[track_caller]
        fn check(value: &Value, expected: &[&str]) {
            let text =
                GlobalConfig::read(value, "").map_or_else(|faults| faults.to_string(), |_| String::new());
            assert_eq!(text.is_empty(), expected.is_empty(), "{text}");
            for part in expected {
                assert!(text.contains(part), "{part} is missing in: {text}");
            }
        }
        let deadline = |length: &str| json!({ "deadlines": { "callTimeout": length } });
        check(&json!({}), &[]);
        check(&deadline("20s"), &[]);
        check(&deadline("0s"), &["deadlines.callTimeout: is not a duration that a deadline may have"]);
        check(&deadline("200h"), &["deadlines.callTimeout"]);
        check(&json!({ "prometheusUrl": "http://[::1]:9090/prom?x=1" }), &[]);
        for url in ["", "prometheus:9090", "ftp://a", "http://", "http://a b", "https://root:canary@a/"] {
            check(&json!({ "prometheusUrl": url }), &["prometheusUrl: must be an address"]);
        }
        check(
            &json!({ "maxPowerOperations": "many", "frezze": "none", "policy": { "forceOff": "perhaps", "quarantineAfter": 0 },
                "highMarkPercent": 900 }),
            &[
                "maxPowerOperations: ",
                "did you mean freeze?",
                "policy.forceOff: ",
                "policy.quarantineAfter: must be",
                "20 to 100",
            ],
        );
        let whole = GlobalConfig {
            freeze: FreezeMode::Frozen,
            freeze_since: Some(Timestamp::EPOCH),
            policy: HostPolicy { quarantine_after: 7, ..HostPolicy::default() },
            energy_price_micros: Some(250_000),
            ..GlobalConfig::default()
        };
        assert_eq!(GlobalConfig::read(&json!(whole), "").unwrap(), whole);
    }

    #[test]
    fn defaults_hold_and_bad_marks_are_named() {
        assert_eq!(GlobalConfig::default().faults(), Vec::<String>::new());
        let bad =
            GlobalConfig { low_mark_percent: Some(60), max_power_operations: 0, ..GlobalConfig::default() };
        assert_eq!(bad.faults().len(), 2, "{:?}", bad.faults());
        assert!(serde_json::from_str::<GlobalConfig>(r#"{"frezze":"none"}"#).is_err());
        let text = serde_json::to_string(&GlobalConfig::default()).unwrap();
        assert_eq!(serde_json::from_str::<GlobalConfig>(&text).unwrap(), GlobalConfig::default());
    }
}
