//! Reading the members of an object, one by one, by name.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use super::{Choice, FieldError, Findings};
use crate::{Duration, suggest};

/// A length of time together with the text that it was written as, so that it is given back unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoDuration {
    text: String,
    value: Duration,
}

impl GoDuration {
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(|value| Self { text: text.to_owned(), value })
    }

    pub const fn get(&self) -> Duration {
        self.value
    }
}

impl From<Duration> for GoDuration {
    fn from(value: Duration) -> Self {
        Self { text: value.to_string(), value }
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom(format!("{text:?} is not a duration")))
    }
}

/// An object of a body whose members are asked for by name.
///
/// Every name that is asked for is known from then on; [`Object::finish`] reports all others.
#[derive(Debug)]
pub struct Object<'v> {
    path: String,
    map: &'v Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'v> Object<'v> {
    /// `value` as an object; anything else is a fault.
    pub fn read(value: &'v Value, path: impl Into<String>, findings: &mut Findings) -> Option<Self> {
        let path = path.into();
        if let Value::Object(map) = value {
            return Some(Self::of(map, path));
        }
        findings.push(FieldError::new(path, "must be an object").found(value));
        None
    }

    pub fn of(map: &'v Map<String, Value>, path: impl Into<String>) -> Self {
        Self { path: path.into(), map, known: Vec::new() }
    }

    /// The path of a member.
    pub fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// A member as it is; `None` when it is missing or null.
    pub fn get(&mut self, name: &'static str) -> Option<&'v Value> {
        self.known.push(name);
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Like [`Self::get`]; a missing member is a fault. The hint may be empty.
    pub fn required(&mut self, name: &'static str, hint: &str, findings: &mut Findings) -> Option<&'v Value> {
        let value = self.get(name);
        if value.is_none() {
            let error = FieldError::new(self.at(name), "is required");
            findings.push(if hint.is_empty() { error } else { error.hint(hint) });
        }
        value
    }

    pub fn string(&mut self, name: &'static str, findings: &mut Findings) -> Option<&'v str> {
        let value = self.get(name)?;
        if value.as_str().is_none() {
            findings.push(FieldError::new(self.at(name), "must be a string").found(value));
        }
        value.as_str()
    }

    /// A string that is not empty and not longer than `max` characters.
    pub fn text(&mut self, name: &'static str, max: usize, findings: &mut Findings) -> Option<&'v str> {
        let text = self.string(name, findings)?;
        let fault = if text.trim().is_empty() {
            "must not be empty".to_owned()
        } else if text.chars().count() > max {
            format!("must have at most {max} characters")
        } else {
            return Some(text);
        };
        findings.push(FieldError::new(self.at(name), fault).found_text(text));
        None
    }

    /// Like [`Self::text`], for what must not be repeated in an error.
    pub fn secret(&mut self, name: &'static str, max: usize, findings: &mut Findings) -> Option<&'v str> {
        let text = self.get(name)?.as_str();
        let problem = match text {
            None => "must be a string".to_owned(),
            Some(text) if text.trim().is_empty() => "must not be empty".to_owned(),
            Some(text) if text.len() > max => format!("must have at most {max} bytes"),
            Some(_) => return text,
        };
        findings.push(FieldError::new(self.at(name), problem));
        None
    }

    pub fn boolean(&mut self, name: &'static str, findings: &mut Findings) -> Option<bool> {
        let value = self.get(name)?;
        if value.as_bool().is_none() {
            findings.push(FieldError::new(self.at(name), "must be true or false").found(value));
        }
        value.as_bool()
    }

    /// A whole number within `range`.
    pub fn integer(
        &mut self,
        name: &'static str,
        range: RangeInclusive<i64>,
        findings: &mut Findings,
    ) -> Option<i64> {
        let value = self.get(name)?;
        integer(value, &self.at(name), range, findings)
    }

    /// A whole number within `range`, for counts.
    pub fn count(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u32>,
        findings: &mut Findings,
    ) -> Option<u32> {
        let range = i64::from(*range.start())..=i64::from(*range.end());
        self.integer(name, range, findings).and_then(|count| u32::try_from(count).ok())
    }

    /// Any finite number.
    pub fn number(&mut self, name: &'static str, findings: &mut Findings) -> Option<f64> {
        let value = self.get(name)?;
        let number = value.as_f64().filter(|number| number.is_finite());
        if number.is_none() {
            findings.push(FieldError::new(self.at(name), "must be a number").found(value));
        }
        number
    }

    /// One of the words of `T`.
    pub fn choice<T: Choice>(&mut self, name: &'static str, findings: &mut Findings) -> Option<T> {
        let value = self.get(name)?;
        let found = value.as_str().and_then(T::from_word);
        if found.is_none() {
            let error = FieldError::new(self.at(name), format!("is not {}", T::WHAT))
                .found(value)
                .allowed(T::words());
            let words = T::ALL.iter().map(|(word, _)| *word);
            findings
                .push(with_suggestion(error, value.as_str().and_then(|word| suggest::nearest(word, words))));
        }
        found
    }

    /// A Go-style duration of at most `max`.
    pub fn duration(
        &mut self,
        name: &'static str,
        max: Duration,
        findings: &mut Findings,
    ) -> Option<GoDuration> {
        let value = self.get(name)?;
        let parsed = value.as_str().and_then(GoDuration::parse);
        let problem = match &parsed {
            None => "is not a duration",
            Some(length) if length.get() > max => "is too long",
            Some(_) => return parsed,
        };
        findings.push(
            FieldError::new(self.at(name), problem)
                .found(value)
                .allowed(format!("text like 90s, 10m or 1h30m, from 0s to {max}")),
        );
        None
    }

    /// The items of a list with their paths.
    pub fn list(
        &mut self,
        name: &'static str,
        max: usize,
        findings: &mut Findings,
    ) -> Option<Vec<(String, &'v Value)>> {
        let value = self.get(name)?;
        let path = self.at(name);
        let Value::Array(items) = value else {
            findings.push(FieldError::new(path, "must be a list").found(value));
            return None;
        };
        if items.len() > max {
            findings.push(
                FieldError::new(path, "has too many items")
                    .found_text(&items.len().to_string())
                    .allowed(format!("at most {max}")),
            );
            return None;
        }
        Some(items.iter().enumerate().map(|(i, item)| (format!("{path}[{i}]"), item)).collect())
    }

    /// A list of strings that are neither empty nor repeated.
    pub fn strings(
        &mut self,
        name: &'static str,
        max: usize,
        findings: &mut Findings,
    ) -> Option<Vec<(String, &'v str)>> {
        let items = self.list(name, max, findings)?;
        let mut texts: Vec<(String, &str)> = Vec::with_capacity(items.len());
        for (path, item) in items {
            match item.as_str() {
                None => findings.push(FieldError::new(path, "must be a string").found(item)),
                Some(text) if text.trim().is_empty() => {
                    findings.push(FieldError::new(path, "must not be empty").found(item));
                }
                Some(text) if texts.iter().any(|(_, seen)| *seen == text) => {
                    findings.push(FieldError::new(path, "is listed twice").found(item));
                }
                Some(text) => texts.push((path, text)),
            }
        }
        Some(texts)
    }

    pub fn object(&mut self, name: &'static str, findings: &mut Findings) -> Option<Object<'v>> {
        let value = self.get(name)?;
        Object::read(value, self.at(name), findings)
    }

    /// A map whose values are strings.
    pub fn string_map(
        &mut self,
        name: &'static str,
        findings: &mut Findings,
    ) -> Option<BTreeMap<String, String>> {
        let object = self.object(name, findings)?;
        let mut map = BTreeMap::new();
        for (key, value) in object.map {
            match value.as_str() {
                Some(text) => {
                    map.insert(key.clone(), text.to_owned());
                }
                None => findings.push(
                    FieldError::new(object.at(key), "must be a string")
                        .found(value)
                        .hint("put numbers and booleans in quotes"),
                ),
            }
        }
        Some(map)
    }

    /// The members as they are.
    pub fn members(&self) -> &'v Map<String, Value> {
        self.map
    }

    /// Refuses a field that only the server writes.
    pub fn server_owned(&mut self, name: &'static str, findings: &mut Findings) {
        if let Some(value) = self.get(name) {
            findings.push(
                FieldError::new(self.at(name), "is set by the server").found(value).hint("leave it out"),
            );
        }
    }

    /// Members that were never asked for.
    pub fn unknown(&self) -> impl Iterator<Item = (&'v String, &'v Value)> + '_ {
        self.map.iter().filter(|(name, _)| !self.known.contains(&name.as_str()))
    }

    /// Every unknown member is a fault that names the nearest known one.
    pub fn finish(self, findings: &mut Findings) {
        for (name, value) in self.unknown() {
            let error = FieldError::new(self.at(name), "is not a known field").found(value);
            let near = suggest::nearest(name, self.known.iter().copied());
            let error = if near.is_none() { error.allowed(self.known.join(", ")) } else { error };
            findings.push(with_suggestion(error, near));
        }
    }

    /// Every unknown member is kept, and the caller is told so.
    pub fn finish_kept(self, findings: &mut Findings) {
        for (name, _) in self.unknown() {
            let near = suggest::nearest(name, self.known.iter().copied())
                .map_or_else(String::new, |near| format!("; did you mean {near}?"));
            findings.warn(format!(
                "{} is not a field that Muster knows; it is kept as it is{near}",
                self.at(name)
            ));
        }
    }
}

fn with_suggestion(error: FieldError, near: Option<&str>) -> FieldError {
    match near {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error,
    }
}

/// `value` as a whole number within `range`; `3.0` is one, `"3"` and `1.5` are none.
pub(crate) fn integer(
    value: &Value,
    path: &str,
    range: RangeInclusive<i64>,
    findings: &mut Findings,
) -> Option<i64> {
    let allowed = format!("{} to {}", range.start(), range.end());
    let fault = |problem: &str| FieldError::new(path, problem).found(value).allowed(allowed.clone());
    let Value::Number(number) = value else {
        let hint = value.as_str().is_some_and(|text| text.parse::<i64>().is_ok());
        let error = fault("must be a whole number");
        findings.push(if hint { error.hint("write it without quotes") } else { error });
        return None;
    };
    let whole = number.as_i64().or_else(|| {
        #[expect(clippy::cast_possible_truncation, reason = "guarded: whole and within 2^53")]
        number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 9e15).map(|n| n as i64)
    });
    let within = whole.filter(|whole| range.contains(whole));
    if within.is_none() {
        let broken = whole.is_none() && number.as_f64().is_some_and(|n| n.fract() != 0.0);
        findings.push(fault(if broken { "must be a whole number" } else { "is out of range" }));
    }
    within
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn fault(body: &Value, read: impl FnOnce(&mut Object<'_>, &mut Findings)) -> String {
        let mut findings = Findings::new();
        let mut object = Object::read(body, "spec", &mut findings).unwrap();
        read(&mut object, &mut findings);
        object.finish(&mut findings);
        findings.result(()).map_or_else(|errors| errors.details(), |_| String::new())
    }

    #[test]
    fn whole_numbers_of_any_kind_get_an_answer() {
        #[track_caller]
        fn check(number: &str, expected: &str) {
            let body = format!("{{\"n\":{number}}}").parse().unwrap();
            let found = fault(&body, |object, findings| {
                object.count("n", 0..=10, findings);
            });
            assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{number}: {found}");
        }
        check("3", "");
        check("3.0", "");
        check("null", "");
        check("1.5", "must be a whole number, found 1.5, allowed: 0 to 10");
        check("\"3\"", "without quotes");
        check("-1", "is out of range, found -1");
        check("1e300", "out of range");
        check("18446744073709551615", "out of range");
        check("99999999999999999999999999", "out of range");
        check("[]", "must be a whole number");
    }

    #[test]
    fn unknown_fields_are_faults_with_the_nearest_name() {
        let read = |object: &mut Object<'_>, findings: &mut Findings| {
            object.count("nodeCount", 0..=10, findings);
        };
        assert_eq!(
            fault(&json!({"nodecount": 3}), read),
            "spec.nodecount: is not a known field, found 3 (did you mean nodeCount?)"
        );
        assert_eq!(
            fault(&json!({"colour": "red"}), read),
            "spec.colour: is not a known field, found \"red\", allowed: nodeCount"
        );
    }
}
