//! `spec.management`: how nodes are replaced, repaired and emptied.
//!
//! Nothing in this block rolls nodes by itself; it says how a roll goes once one is needed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Duration,
    field::{FieldError, Findings, GoDuration, Object, choice},
};

/// Longest drain: after a week somebody has to look.
pub const MAX_DRAIN: Duration = Duration::from_hours(168);
const DEFAULT_MAX_SURGE: IntOrPercent = IntOrPercent::Count(1);
const DEFAULT_MAX_UNAVAILABLE: IntOrPercent = IntOrPercent::Count(0);

choice! {
    pub enum UpgradeType("a way to upgrade") {
        Replace = "Replace",
        InPlace = "InPlace",
    }
}

choice! {
    pub enum RolloutStrategy("a rollout strategy") {
        RollingUpdate = "RollingUpdate",
        OnDelete = "OnDelete",
    }
}

/// A number of nodes, or a share of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrPercent {
    Count(u32),
    #[serde(with = "percent")]
    Percent(u32),
}

impl IntOrPercent {
    pub const fn is_zero(self) -> bool {
        matches!(self, Self::Count(0) | Self::Percent(0))
    }

    /// Nodes out of `total`, rounded up: for surge.
    pub fn of_rounded_up(self, total: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(share) => {
                u32::try_from((u64::from(total) * u64::from(share)).div_ceil(100)).unwrap_or(total)
            }
        }
    }

    /// Nodes out of `total`, rounded down: for unavailability.
    pub fn of_rounded_down(self, total: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(share) => u32::try_from(u64::from(total) * u64::from(share) / 100).unwrap_or(total),
        }
    }

    fn read(o: &mut Object<'_>, name: &'static str, findings: &mut Findings) -> Option<Self> {
        let value = o.get(name)?;
        if let Value::Number(_) = value {
            return o.count(name, 0..=super::MAX_NODES, findings).map(Self::Count);
        }
        let text = value.as_str().unwrap_or_default();
        let parsed = match text.strip_suffix('%') {
            Some(share) => percent::digits(share).filter(|share| *share <= 100).map(Self::Percent),
            None => percent::digits(text).filter(|count| *count <= super::MAX_NODES).map(Self::Count),
        };
        if parsed.is_none() {
            findings.push(
                FieldError::new(o.at(name), "is not a number of nodes")
                    .found(value)
                    .allowed(format!("0 to {}, or 0% to 100%", super::MAX_NODES)),
            );
        }
        parsed
    }
}

mod percent {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn digits(text: &str) -> Option<u32> {
        let plain = !text.is_empty() && text.len() <= 6 && text.bytes().all(|b| b.is_ascii_digit());
        if plain { text.parse().ok() } else { None }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
    pub(super) fn serialize<S: Serializer>(share: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{share}%"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.strip_suffix('%').and_then(digits).ok_or_else(|| de::Error::custom("is not a percentage"))
    }
}

/// As sent; the accessors give the effective values.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Management {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade_type: Option<UpgradeType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<RolloutStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrPercent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrPercent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_drain_timeout: Option<GoDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_repair: Option<bool>,
}

impl Management {
    pub fn upgrade_type(&self) -> UpgradeType {
        self.upgrade_type.unwrap_or(UpgradeType::Replace)
    }

    pub fn strategy(&self) -> RolloutStrategy {
        self.strategy.unwrap_or(RolloutStrategy::RollingUpdate)
    }

    /// One node, unless nodes may be missing: then none.
    pub fn max_surge(&self) -> IntOrPercent {
        self.max_surge.unwrap_or(match self.max_unavailable {
            Some(unavailable) if !unavailable.is_zero() => IntOrPercent::Count(0),
            _ => DEFAULT_MAX_SURGE,
        })
    }

    pub fn max_unavailable(&self) -> IntOrPercent {
        self.max_unavailable.unwrap_or(DEFAULT_MAX_UNAVAILABLE)
    }

    /// `None` waits for ever; zero means the same, as in the peers.
    pub fn node_drain_timeout(&self) -> Option<Duration> {
        self.node_drain_timeout.as_ref().map(GoDuration::get).filter(|limit| *limit > Duration::ZERO)
    }

    pub fn auto_repair(&self) -> bool {
        self.auto_repair.unwrap_or(false)
    }

    pub(super) fn read(value: &Value, path: &str, findings: &mut Findings) -> Option<Self> {
        let mut object = Object::read(value, path, findings)?;
        let o = &mut object;
        let block = Self {
            upgrade_type: o.choice("upgradeType", findings),
            strategy: o.choice("strategy", findings),
            max_surge: IntOrPercent::read(o, "maxSurge", findings),
            max_unavailable: IntOrPercent::read(o, "maxUnavailable", findings),
            node_drain_timeout: o.duration("nodeDrainTimeout", MAX_DRAIN, findings),
            auto_repair: o.boolean("autoRepair", findings),
        };
        if block.max_surge().is_zero() && block.max_unavailable().is_zero() {
            findings.push(
                FieldError::new(
                    o.at("maxSurge"),
                    "and maxUnavailable must not both be 0: no node could ever be replaced",
                )
                .hint("set one of them to 1"),
            );
        }
        object.finish(findings);
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn read(value: Value) -> Result<Management, String> {
        let mut findings = Findings::new();
        let block = Management::read(&value, "spec.management", &mut findings);
        findings.result_of(block).map(|parsed| parsed.value).map_err(|errors| errors.details())
    }

    #[test]
    fn surge_and_unavailable_take_numbers_and_shares() {
        let block = read(json!({"maxSurge": "25%", "maxUnavailable": 0})).unwrap();
        assert_eq!((block.max_surge().of_rounded_up(10), block.max_surge().of_rounded_down(10)), (3, 2));
        assert_eq!(serde_json::to_value(&block).unwrap(), json!({"maxSurge": "25%", "maxUnavailable": 0}));
        assert_eq!(read(json!({"maxUnavailable": "1"})).unwrap().max_surge(), IntOrPercent::Count(0));
        assert_eq!(read(json!({})).unwrap().max_surge(), IntOrPercent::Count(1));
        for wrong in [
            json!("101%"),
            json!("-1"),
            json!(-1),
            json!("x"),
            json!(1.5),
            json!([]),
            json!("%"),
            json!("+1%"),
        ] {
            assert!(read(json!({"maxSurge": wrong})).is_err(), "{wrong} was accepted");
        }
    }

    #[test]
    fn a_pool_that_could_never_roll_is_refused() {
        for (surge, unavailable) in [(json!(0), json!(0)), (json!("0%"), json!(0)), (json!(0), json!(null))] {
            let fault = read(json!({"maxSurge": surge, "maxUnavailable": unavailable})).unwrap_err();
            assert!(fault.contains("must not both be 0"), "{fault}");
        }
    }
}
