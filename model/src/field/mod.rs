//! What is wrong with a body, field by field, and how bodies are read so that nothing in them is lost.
//!
//! A reader never stops at the first fault: it notes it in [`Findings`] and goes on, so that a caller
//! learns everything that is wrong at once. `null` means the same as leaving a field out.

mod choice;
mod json;
mod read;
mod text;

use std::fmt;

use serde::Serialize;
use serde_json::Value;

pub use choice::Choice;
pub(crate) use choice::choice;
pub use json::{RawJson, parse_json};
pub use read::{GoDuration, Object};
pub(crate) use text::serde_as_text;

/// Characters of a found value that an error repeats.
const SHOWN: usize = 60;
/// Characters of a path: field names come from outside and can be of any length.
const SHOWN_PATH: usize = 300;
/// Faults that one answer lists. A body of 1 MiB can hold hundreds of thousands; nobody reads more.
const MAX_FAULTS: usize = 100;

/// One fault of one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// Where, as the caller would write it: `spec.autoscaling.maxNodes`, `spec.taints[3].effect`. Empty
    /// for the body as a whole.
    pub path: String,
    pub problem: String,
    /// What was sent, shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// What could be sent instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// What to do; for a typo the name that was probably meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The problem is a whole sentence and is printed alone.
    #[serde(skip)]
    sentence: bool,
}

impl FieldError {
    pub fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            problem: problem.into(),
            found: None,
            allowed: None,
            hint: None,
            sentence: false,
        }
    }

    /// A fault whose text stands for itself, without path or value: `nodepool name is required`.
    pub fn sentence(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { sentence: true, ..Self::new(path, text) }
    }

    #[must_use]
    pub fn found(mut self, value: &Value) -> Self {
        self.found = Some(shorten(&value.to_string(), SHOWN));
        self
    }

    #[must_use]
    pub fn found_text(mut self, text: &str) -> Self {
        self.found = Some(shorten(&format!("{text:?}"), SHOWN));
        self
    }

    #[must_use]
    pub fn allowed(mut self, text: impl Into<String>) -> Self {
        self.allowed = Some(text.into());
        self
    }

    #[must_use]
    pub fn hint(mut self, text: impl Into<String>) -> Self {
        self.hint = Some(text.into());
        self
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sentence {
            return f.write_str(&self.problem);
        }
        let path = if self.path.is_empty() { "body" } else { &self.path };
        write!(f, "{path}: {}", self.problem)?;
        if let Some(found) = &self.found {
            write!(f, ", found {found}")?;
        }
        if let Some(allowed) = &self.allowed {
            write!(f, ", allowed: {allowed}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Every fault of a body; at least one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct FieldErrors {
    errors: Vec<FieldError>,
}

impl FieldErrors {
    pub fn one(error: FieldError) -> Self {
        Self { errors: vec![error] }
    }

    pub fn iter(&self) -> std::slice::Iter<'_, FieldError> {
        self.errors.iter()
    }

    /// All faults in one line: the `details` of an API error.
    pub fn details(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for FieldErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for FieldErrors {}

impl<'a> IntoIterator for &'a FieldErrors {
    type Item = &'a FieldError;
    type IntoIter = std::slice::Iter<'a, FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// What was read, and what the caller should be told although it was accepted.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Parsed<T> {
    pub value: T,
    /// One sentence each, for the `Warning` header.
    pub warnings: Vec<String>,
}

impl<T> Parsed<T> {
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Parsed<U> {
        Parsed { value: change(self.value), warnings: self.warnings }
    }
}

/// Collects faults and warnings while a body is read.
#[derive(Debug, Default)]
pub struct Findings {
    errors: Vec<FieldError>,
    left_out: usize,
    warnings: Vec<String>,
    /// Paths that were sent under another name: (ours, as sent).
    renamed: Vec<(String, String)>,
}

impl Findings {
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes a fault. Its path is turned back into the one that the caller used.
    pub fn push(&mut self, mut error: FieldError) {
        if self.errors.len() >= MAX_FAULTS {
            self.left_out += 1;
            return;
        }
        for (ours, sent) in &self.renamed {
            if let Some(rest) = error.path.strip_prefix(ours.as_str())
                && (rest.is_empty() || rest.starts_with(['.', '[']))
            {
                error.path = format!("{sent}{rest}");
                break;
            }
        }
        error.path = shorten(&error.path, SHOWN_PATH);
        self.errors.push(error);
    }

    /// Notes a warning. It travels in a header, so that everything but visible ASCII is escaped.
    pub fn warn(&mut self, text: impl AsRef<str>) {
        if self.warnings.len() >= MAX_FAULTS {
            return;
        }
        let mut safe = String::new();
        for c in text.as_ref().chars().take(SHOWN_PATH) {
            if c.is_ascii_graphic() || c == ' ' {
                safe.push(c);
            } else {
                safe.extend(c.escape_unicode());
            }
        }
        self.warnings.push(safe);
    }

    /// From now on faults at `ours` are reported at `sent`.
    pub fn rename(&mut self, ours: impl Into<String>, sent: impl Into<String>) {
        self.renamed.push((ours.into(), sent.into()));
    }

    pub fn is_faultless(&self) -> bool {
        self.errors.is_empty()
    }

    /// The faults, if there are any.
    pub fn result<T>(mut self, value: T) -> Result<Parsed<T>, FieldErrors> {
        if self.left_out > 0 {
            let text = format!("{} more faults are not listed", self.left_out);
            self.errors.push(FieldError::sentence("", text));
        }
        if self.errors.is_empty() {
            Ok(Parsed { value, warnings: self.warnings })
        } else {
            Err(FieldErrors { errors: self.errors })
        }
    }

    /// Like [`Self::result`], for a value that only exists when there was no fault.
    pub fn result_of<T>(mut self, value: Option<T>) -> Result<Parsed<T>, FieldErrors> {
        if value.is_none() && self.errors.is_empty() {
            self.push(FieldError::new("", "could not be read"));
        }
        let Parsed { value, warnings } = self.result(value)?;
        let value = value.expect("a missing value has a fault, and faults were returned above");
        Ok(Parsed { value, warnings })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fault_names_path_found_allowed_and_hint() {
        let error = FieldError::new("spec.taints[3].effect", "is not a taint effect")
            .found(&json!("Never"))
            .allowed("NoSchedule, PreferNoSchedule, NoExecute")
            .hint("did you mean NoExecute?");
        assert_eq!(
            error.to_string(),
            "spec.taints[3].effect: is not a taint effect, found \"Never\", allowed: NoSchedule, \
             PreferNoSchedule, NoExecute (did you mean NoExecute?)"
        );
    }

    #[test]
    fn long_values_are_shortened_at_a_character() {
        let error = FieldError::new("x", "is wrong").found(&json!("ü".repeat(500)));
        assert!(error.to_string().chars().count() < 100, "{error}");
    }

    #[test]
    fn what_comes_from_outside_is_made_safe() {
        let mut findings = Findings::new();
        findings.warn("spec.a\r\nSet-Cookie: \u{fc}");
        findings.push(FieldError::new("x".repeat(1 << 20), "is wrong"));
        assert_eq!(findings.warnings, ["spec.a\\u{d}\\u{a}Set-Cookie: \\u{fc}"]);
        assert!(findings.result(()).unwrap_err().details().len() < 400);
    }

    #[test]
    fn the_number_of_listed_faults_is_bounded() {
        let mut findings = Findings::new();
        for index in 0..1000 {
            findings.push(FieldError::new(format!("f{index}"), "is wrong"));
        }
        let errors = findings.result(()).unwrap_err();
        assert_eq!(errors.iter().count(), MAX_FAULTS + 1);
        assert!(errors.details().ends_with("900 more faults are not listed"));
    }
}
