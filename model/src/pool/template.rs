//! `spec.template`: what a node of the pool looks like, said by the user.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::labels::{LabelUse, Labels, Taint, read_labels, read_taints};
use crate::{
    Quantity,
    field::{FieldError, Findings, Object, choice},
    names,
};

/// Kinds of resource on one node.
const MAX_RESOURCES: usize = 50;
/// A node-hour never costs more than this many whole units of currency.
const MAX_PRICE: i64 = 1_000_000;

choice! {
    pub enum Arch("a processor architecture") {
        Amd64 = "amd64",
        Arm64 = "arm64",
    }
}

/// An amount of a resource as it was sent: text like `16Gi`, or a plain number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Amount(Value);

impl Amount {
    /// As Kubernetes would write it.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.0 {
            Value::String(text) => Cow::Borrowed(text),
            other => Cow::Owned(other.to_string()),
        }
    }
}

impl From<&str> for Amount {
    fn from(text: &str) -> Self {
        Self(Value::String(text.to_owned()))
    }
}

/// Amounts by the name of their resource.
pub type Resources = BTreeMap<String, Amount>;

/// As sent. Quantities and prices keep the text they were written with.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// What the machine has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Resources>,
    /// What the system keeps of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Resources>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,
    /// Taints that a starting node carries for a while.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_taints: Option<Vec<Taint>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pods: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arch: Option<Arch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Currency per node and hour, a number or decimal text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Value>,
}

impl Template {
    /// In millionths of the currency per hour.
    pub fn price_micros(&self) -> Option<i64> {
        self.price.as_ref().and_then(price_micros)
    }

    /// The system cannot keep more than there is.
    fn check_reserved(&self, path: &str, findings: &mut Findings) {
        for (resource, kept) in self.reserved.iter().flatten() {
            let Some(present) = self.capacity.as_ref().and_then(|capacity| capacity.get(resource)) else {
                continue;
            };
            if let (Some(kept_amount), Some(amount)) = (quantity(&kept.text()), quantity(&present.text()))
                && kept_amount > amount
            {
                findings.push(
                    FieldError::new(format!("{path}.reserved.{resource}"), "is more than the capacity")
                        .found(&kept.0)
                        .allowed(format!("at most {}", present.text())),
                );
            }
        }
    }

    pub(super) fn read(value: &Value, path: &str, findings: &mut Findings) -> Option<Self> {
        let mut object = Object::read(value, path, findings)?;
        let o = &mut object;
        let template = Self {
            capacity: read_resources(o, "capacity", findings),
            reserved: read_resources(o, "reserved", findings),
            labels: read_labels(o, "labels", LabelUse::Described, findings),
            taints: read_taints(o, "taints", findings),
            startup_taints: read_taints(o, "startupTaints", findings),
            max_pods: o.count("maxPods", 1..=10_000, findings),
            arch: o.choice("arch", findings),
            os: o.text("os", 63, findings).map(str::to_owned),
            price: o.get("price").cloned(),
        };
        if let Some(price) = &template.price
            && price_micros(price).is_none()
        {
            findings.push(FieldError::new(o.at("price"), "is not a price").found(price).allowed(format!(
                "0 to {MAX_PRICE} per node and hour, with up to 6 decimals, like \"0.19\""
            )));
        }
        template.check_reserved(path, findings);
        object.finish(findings);
        Some(template)
    }
}

/// Reads and checks a map of resources.
pub(crate) fn read_resources(
    o: &mut Object<'_>,
    name: &'static str,
    findings: &mut Findings,
) -> Option<Resources> {
    let object = o.object(name, findings)?;
    let members = object.members().iter().filter(|(_, amount)| !amount.is_null());
    let resources: Resources = members.map(|(name, amount)| (name.clone(), Amount(amount.clone()))).collect();
    check_resources(object.path(), &resources, findings);
    Some(resources)
}

/// Checks names and amounts of resources, as Kubernetes writes them.
fn check_resources(path: &str, resources: &Resources, findings: &mut Findings) {
    if resources.len() > MAX_RESOURCES {
        findings.push(
            FieldError::new(path, "has too many resources").allowed(format!("at most {MAX_RESOURCES}")),
        );
        return;
    }
    for (resource, amount) in resources {
        if let Err(error) = names::check_label_key(resource) {
            findings.push(
                FieldError::new(path, format!("has a resource name that is not valid: it {error}"))
                    .found_text(resource)
                    .allowed("cpu, memory, ephemeral-storage, or a name like nvidia.com/gpu"),
            );
        }
        if matches!(amount.0, Value::Bool(_) | Value::Array(_) | Value::Object(_))
            || quantity(&amount.text()).is_none()
        {
            findings.push(
                FieldError::new(format!("{path}.{resource}"), "is not a quantity")
                    .found(&amount.0)
                    .allowed("a number that is not negative, with a unit like m, k, Mi or Gi or an exponent: 500m, 4, 16Gi, 1e3"),
            );
        }
    }
}

/// The largest amount that Kubernetes counts with exactly.
const MAX_AMOUNT: i128 = i64::MAX as i128 * 1_000_000_000;

/// The amount that `text` says; `None` when it is no quantity, negative, or more than can be counted.
pub(crate) fn quantity(text: &str) -> Option<Quantity> {
    text.parse().ok().filter(|amount: &Quantity| (0..MAX_AMOUNT).contains(&amount.nanos()))
}

/// A price in millionths; `None` when it is none, negative, too large or finer than a millionth.
fn price_micros(value: &Value) -> Option<i64> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || whole.len() > 7 || fraction.len() > 6 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let micros = whole.parse::<i64>().ok()? * 1_000_000 + format!("{fraction:0<6}").parse::<i64>().ok()?;
    (micros <= MAX_PRICE * 1_000_000).then_some(micros)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prices_are_exact() {
        #[track_caller]
        fn check(price: Value, expected: Option<i64>) {
            assert_eq!(price_micros(&price), expected, "{price}");
        }
        check(json!("0.19"), Some(190_000));
        check(json!(0.19), Some(190_000));
        check(json!(2), Some(2_000_000));
        check(json!("0.0000001"), None);
        check(json!("-1"), None);
        check(json!("1000001"), None);
        check(json!(""), None);
        check(json!("1e3"), None);
        check(json!(true), None);
    }

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        #[track_caller]
        fn check(text: &str, expected: Option<i64>) {
            assert_eq!(quantity(text).map(Quantity::milli), expected, "{text}");
        }
        check("4", Some(4_000));
        check("500m", Some(500));
        check("1.5", Some(1_500));
        check("1Ki", Some(1_024_000));
        check("1n", Some(1)); // rounded up
        check("1e3", Some(1_000_000));
        check("5E-1", Some(500));
        check("-1", None);
        check("", None);
        check("4 Gi", None);
        check("4gi", None);
        check("1..5", None);
        check("99999999999999999999999", None);
    }
}
