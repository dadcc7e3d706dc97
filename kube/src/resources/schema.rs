//! Words to write structural schemas with.

use serde_json::{Map, Value, json};

/// A DNS label, as names of clusters, pools and hosts are.
pub(super) const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// DNS labels with dots between them, as names of objects are.
pub(super) const DNS_NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A Go-style duration.
pub(super) const DURATION: &str = r"^\+?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";

/// One place of a schema.
#[derive(Debug, Clone)]
pub(super) struct Field(Value);

impl From<Field> for Value {
    fn from(field: Field) -> Self {
        field.0
    }
}

fn typed(kind: &str, about: &str) -> Field {
    Field(json!({ "type": kind, "description": about }))
}

pub(super) fn text(about: &str) -> Field {
    typed("string", about)
}

pub(super) fn label(about: &str) -> Field {
    text(about).with("minLength", 1).with("maxLength", 63).with("pattern", DNS_LABEL)
}

pub(super) fn duration(about: &str) -> Field {
    text(about).with("maxLength", 200).with("pattern", DURATION)
}

pub(super) fn time(about: &str) -> Field {
    text(about).with("format", "date-time")
}

pub(super) fn number(about: &str) -> Field {
    typed("number", about)
}

pub(super) fn yes_no(about: &str) -> Field {
    typed("boolean", about)
}

pub(super) fn count(about: &str, least: i64, most: i64) -> Field {
    typed("integer", about).with("format", "int64").with("minimum", least).with("maximum", most)
}

/// A number without a limit. API servers keep limits as floats, in which the largest integer does not fit.
pub(super) fn tally(about: &str) -> Field {
    typed("integer", about).with("format", "int64").with("minimum", 0)
}

pub(super) fn words(about: &str, words: &[&str]) -> Field {
    text(about).with("enum", json!(words))
}

/// A number of nodes or a share like `25%`.
pub(super) fn share(about: &str) -> Field {
    Field(json!({ "x-kubernetes-int-or-string": true, "description": about }))
}

/// Text like `16Gi` or a number, with or without a fraction.
pub(super) fn quantity(about: &str) -> Field {
    Field(json!({ "x-kubernetes-preserve-unknown-fields": true, "description": about }))
}

pub(super) fn map(about: &str, of: Field, most: i64) -> Field {
    typed("object", about).with("additionalProperties", Value::from(of)).with("maxProperties", most)
}

/// Whose order matters, or whose items have no name: whoever applies it owns it as a whole.
pub(super) fn list(about: &str, of: Field, most: i64) -> Field {
    typed("array", about)
        .with("items", Value::from(of))
        .with("maxItems", most)
        .with("x-kubernetes-list-type", "atomic")
}

/// Whose items are their own names: several may apply their part.
pub(super) fn set(about: &str, of: Field, most: i64) -> Field {
    list(about, of, most).with("x-kubernetes-list-type", "set")
}

/// Whose items are found by some of their members: several may apply their part.
pub(super) fn keyed(about: &str, of: Field, keys: &[&str], most: i64) -> Field {
    list(about, of, most)
        .with("x-kubernetes-list-type", "map")
        .with("x-kubernetes-list-map-keys", json!(keys))
}

pub(super) fn object<const N: usize>(about: &str, members: [(&str, Field); N]) -> Field {
    let members: Map<String, Value> =
        members.into_iter().map(|(name, field)| (name.to_owned(), field.into())).collect();
    typed("object", about).with("properties", Value::from(members))
}

/// Anything at all.
pub(super) fn anything(about: &str) -> Field {
    typed("object", about).open()
}

impl Field {
    pub(super) const fn from_value(schema: Value) -> Self {
        Self(schema)
    }

    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0[name] = value.into();
        self
    }

    pub(super) fn most(self, characters: i64) -> Self {
        self.with("maxLength", characters)
    }

    /// Filled in by the API server.
    pub(super) fn usually(self, value: impl Into<Value>) -> Self {
        self.with("default", value)
    }

    pub(super) fn required(self, members: &[&str]) -> Self {
        self.with("required", json!(members))
    }

    /// Members that the schema does not know are kept.
    pub(super) fn open(self) -> Self {
        self.with("x-kubernetes-preserve-unknown-fields", true)
    }

    /// A rule in CEL, and what to say when it does not hold.
    pub(super) fn rule(mut self, rule: &str, message: &str) -> Self {
        let one = json!({ "rule": rule, "message": message });
        match self.0.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut) {
            Some(rules) => rules.push(one),
            None => self.0["x-kubernetes-validations"] = json!([one]),
        }
        self
    }

    /// Cannot be changed once it is set.
    pub(super) fn fixed(self, message: &str) -> Self {
        self.rule("self == oldSelf", message)
    }
}
