//! Taints and tolerations.

use serde::{Deserialize, Deserializer, Serialize};

use super::read::nullable;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    #[serde(deserialize_with = "nullable")]
    pub key: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub value: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub effect: Effect,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
    /// Not known here.
    #[default]
    #[serde(other)]
    Other,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// Empty means every key.
    #[serde(deserialize_with = "nullable")]
    pub key: Box<str>,
    #[serde(deserialize_with = "operator")]
    pub operator: TolerationOperator,
    #[serde(deserialize_with = "nullable")]
    pub value: Box<str>,
    /// `None` means every effect.
    #[serde(deserialize_with = "effect")]
    pub effect: Option<Effect>,
    pub toleration_seconds: Option<i64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TolerationOperator {
    /// Also what an absent or empty operator means.
    #[default]
    Equal,
    Exists,
    /// Known, but not in force in the default profile: tolerates nothing.
    Gt,
    /// Known, but not in force in the default profile: tolerates nothing.
    Lt,
    /// Not known here; tolerates nothing.
    #[serde(other)]
    Other,
}

fn operator<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TolerationOperator, D::Error> {
    let text = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(match &*text {
        "" | "Equal" => TolerationOperator::Equal,
        "Exists" => TolerationOperator::Exists,
        "Gt" => TolerationOperator::Gt,
        "Lt" => TolerationOperator::Lt,
        _ => TolerationOperator::Other,
    })
}

fn effect<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Effect>, D::Error> {
    let text = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(match &*text {
        "" => None,
        "NoSchedule" => Some(Effect::NoSchedule),
        "PreferNoSchedule" => Some(Effect::PreferNoSchedule),
        "NoExecute" => Some(Effect::NoExecute),
        _ => Some(Effect::Other),
    })
}
