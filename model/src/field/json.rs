//! JSON text into values, without losing a member.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value, value::RawValue};

use super::{FieldError, FieldErrors};

/// Reads one JSON document. A member that occurs twice in an object is a fault: one of them would get lost.
pub fn parse_json(text: &[u8]) -> Result<Value, FieldErrors> {
    let fault = |error: serde_json::Error| {
        let problem = if text.iter().all(u8::is_ascii_whitespace) {
            "is empty; send a JSON object".to_owned()
        } else {
            format!("is not valid JSON: {error}")
        };
        FieldErrors::one(FieldError::new("", problem))
    };
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = Strict.deserialize(&mut reader).map_err(fault)?;
    reader.end().map_err(fault)?;
    Ok(value)
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Strict)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value_seed(Strict)?;
            if map.contains_key(&name) {
                return Err(de::Error::custom(format_args!("the field {name:?} occurs twice in one object")));
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

/// A JSON value kept as it was written, but for the white space between its parts: the order of members
/// and the digits of numbers survive.
#[derive(Clone)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// `None` when `text` is not one JSON value.
    pub fn parse(text: &str) -> Option<Self> {
        RawValue::from_string(minify(text)).ok().map(Self)
    }

    pub fn empty_object() -> Self {
        Self::parse("{}").expect("an empty object is JSON")
    }

    pub fn get(&self) -> &str {
        self.0.get()
    }

    pub fn to_value(&self) -> Value {
        serde_json::from_str(self.get()).unwrap_or(Value::Null)
    }
}

/// Removes white space outside strings, so that a document stays on one line.
fn minify(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut inside, mut escaped) = (false, false);
    for c in text.chars() {
        if inside {
            (inside, escaped) = (escaped || c != '"', !escaped && c == '\\');
        } else if matches!(c, ' ' | '\t' | '\n' | '\r') {
            continue;
        } else {
            inside = c == '"';
        }
        out.push(c);
    }
    out
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for RawJson {}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get()).ok_or_else(|| de::Error::custom("is not JSON"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_single_document_is_refused() {
        for text in
            ["", "  ", "{", "{\"a\":1,\"a\":2}", "[{\"b\":1,\"b\":1}]", "1 2", "{\"x\": json}", "1e999"]
        {
            assert!(parse_json(text.as_bytes()).is_err(), "{text:?} was accepted");
        }
        assert!(parse_json("[".repeat(100_000).as_bytes()).is_err(), "deep nesting is an error, not a crash");
        assert!(parse_json(b"\xff").is_err());
        assert_eq!(
            parse_json(br#" {"a":[1,null,"x",1.5,true]} "#).unwrap().to_string(),
            r#"{"a":[1,null,"x",1.5,true]}"#
        );
    }

    #[test]
    fn a_raw_value_keeps_order_and_digits() {
        let text = "{ \"b\" : 1.10,\n \"a\": \"x \\\" y\\\\\" , \"n\": 12345678901234567890123 }";
        let raw = RawJson::parse(text).unwrap();
        assert_eq!(raw.get(), "{\"b\":1.10,\"a\":\"x \\\" y\\\\\",\"n\":12345678901234567890123}");
        let again: RawJson = serde_json::from_str(&serde_json::to_string(&raw).unwrap()).unwrap();
        assert_eq!(raw, again);
    }
}
