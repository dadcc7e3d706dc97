//! Path templates as kubectl understands them: `{.items[*].name}`, filters, slices, unions, recursive
//! descent, quoted text and `{range}…{end}`. A key that is missing yields nothing, it is not an error.
//!
//! Deliberately absent: script expressions and `&&`/`||` in filters, which kubectl does not have either.

mod eval;
mod parse;

use serde_json::Value;
use thiserror::Error;

pub(crate) use eval::order;
use parse::{Compare, Filter, Operand, Part, Piece, Step};

/// A template, ready to be filled from any number of documents.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("JSONPath {text:?}: {what} at character {at}")]
pub(crate) struct PathError {
    text: String,
    what: String,
    at: usize,
}

impl Template {
    /// A whole template: text outside braces is printed as it is.
    pub(crate) fn parse(text: &str) -> Result<Self, PathError> {
        parse::template(text).map(|pieces| Self { pieces })
    }

    /// One path in the relaxed forms of `custom-columns` and `--sort-by`: `a.b`, `.a.b` or `{.a.b}`.
    pub(crate) fn parse_relaxed(text: &str) -> Result<Self, PathError> {
        let bare = text.trim();
        let bare = bare.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(bare);
        let dotted =
            if bare.starts_with(['.', '[', '$', '@']) { bare.to_owned() } else { format!(".{bare}") };
        Self::parse(&format!("{{{dotted}}}"))
    }

    /// The template filled from `document`: matches of one path are separated by a space.
    pub(crate) fn render(&self, document: &Value) -> String {
        let mut out = String::new();
        eval::render(&self.pieces, document, &mut out);
        out
    }

    /// All values that the first path of the template finds.
    pub(crate) fn find<'a>(&self, document: &'a Value) -> Vec<&'a Value> {
        eval::first(&self.pieces, document)
    }
}

/// How a value looks in a cell or in a template: text bare, everything else as JSON.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document() -> Value {
        json!({
            "kind": "List",
            "revision": "7",
            "items": [
                {"name": "web", "labels": {"a.b/c": "x"}, "n": 3, "on": true,
                 "conditions": [{"type": "Ready", "status": "True"}, {"type": "Paused", "status": "False"}]},
                {"name": "gpu", "labels": {}, "n": 12, "on": false,
                 "conditions": [{"type": "Ready", "status": "False"}]},
                {"name": "db", "n": 5, "conditions": []},
            ],
        })
    }

    #[track_caller]
    fn check(template: &str, expected: &str) {
        let found = Template::parse(template).unwrap().render(&document());
        assert_eq!(found, expected, "{template}");
    }

    #[test]
    fn paths_find_what_kubectl_finds() {
        check("{.kind}", "List");
        check("{$.kind}", "List");
        check("{ .kind }", "List");
        check("plain", "plain");
        check("{.items[*].name}", "web gpu db");
        check("{.items[0].name}", "web");
        check("{.items[-1].name}", "db");
        check("{.items[0:2].name}", "web gpu");
        check("{.items[1:].name}", "gpu db");
        check("{.items[::2].name}", "web db");
        check("{.items[0,2].name}", "web db");
        check("{.items[9].name}", "");
        check("{.items[*]['name','n']}", "web gpu db 3 12 5");
        check("{.items[0].labels.a\\.b/c}", "x");
        check("{.items[0].labels['a.b/c']}", "x");
        check("{.items[0].labels}", r#"{"a.b/c":"x"}"#);
        check("{..type}", "Ready Paused Ready");
        check("{.items[*].conditions[*].status}", "True False False");
        check("{.nothing.at.all}", "");
        check("{.kind} and {.revision}", "List and 7");
    }

    #[test]
    fn filters_compare_text_numbers_and_presence() {
        check(r#"{.items[?(@.name=="gpu")].n}"#, "12");
        check("{.items[?(@.name!='gpu')].name}", "web db");
        check("{.items[?(@.n>4)].name}", "gpu db");
        check("{.items[?(@.n<=5)].name}", "web db");
        check("{.items[?(@.on==true)].name}", "web");
        check("{.items[?(@.labels)].name}", "web gpu");
        check(r#"{.items[?(@.conditions[0].status=="True")].name}"#, "web");
        check(r#"{.items[0].conditions[?(@.type=="Ready")].status}"#, "True");
    }

    #[test]
    fn ranges_repeat_their_body() {
        check(r#"{range .items[*]}{.name}{"\t"}{.n}{"\n"}{end}"#, "web\t3\ngpu\t12\ndb\t5\n");
        check(
            "{range .items[*]}{.name}:{range .conditions[*]}{.type},{end};{end}",
            "web:Ready,Paused,;gpu:Ready,;db:;",
        );
    }

    #[test]
    fn relaxed_paths_need_neither_braces_nor_dot() {
        for text in ["items[0].name", ".items[0].name", "{.items[0].name}"] {
            assert_eq!(Template::parse_relaxed(text).unwrap().render(&document()), "web", "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_says_where() {
        for text in ["{.a", "{.a[}", "{.a[?(@.b=)]}", "{range .a}x", "{end}", "{.a[1:2:0]}", "{\"x}", "{.a]}"]
        {
            let error = Template::parse(text).unwrap_err().to_string();
            assert!(error.contains("at character"), "{text}: {error}");
        }
    }
}
