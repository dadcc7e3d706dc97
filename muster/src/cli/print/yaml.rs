//! YAML as people write it: block style, the telling keys first, quotes only where needed.

use serde_json::{Map, Value};

/// Keys of an object's envelope in the order in which people read them; others follow by name.
const FIRST: &[&str] = &[
    "apiVersion",
    "kind",
    "id",
    "name",
    "type",
    "cluster",
    "cluster_id",
    "cluster_name",
    "project",
    "metadata",
    "labels",
    "generation",
    "resource_version",
    "created_at",
    "created_by",
    "updated_at",
    "spec",
    "status",
    "items",
];

pub(crate) fn to_string(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => object(fields, 0, &mut out),
        Value::Array(items) if !items.is_empty() => array(items, 0, &mut out),
        scalar => {
            out.push_str(&inline(scalar));
            out.push('\n');
        }
    }
    out
}

fn object(fields: &Map<String, Value>, depth: usize, out: &mut String) {
    let mut keys: Vec<&String> = fields.keys().collect();
    keys.sort_by_key(|key| {
        (FIRST.iter().position(|first| first == key).unwrap_or(FIRST.len()), key.as_str())
    });
    for (place, key) in keys.into_iter().enumerate() {
        if place > 0 || !out.ends_with("- ") {
            out.push_str(&"  ".repeat(depth));
        }
        out.push_str(&text(key));
        out.push(':');
        nested(&fields[key], depth, out);
    }
}

fn array(items: &[Value], depth: usize, out: &mut String) {
    for item in items {
        out.push_str(&"  ".repeat(depth));
        match item {
            Value::Object(fields) if !fields.is_empty() => {
                out.push_str("- ");
                object(fields, depth + 1, out);
            }
            Value::Array(inner) if !inner.is_empty() => {
                out.push_str("-\n");
                array(inner, depth + 1, out);
            }
            scalar => {
                out.push('-');
                nested(scalar, depth, out);
            }
        }
    }
}

/// What follows `key:` or a dash, line end included.
fn nested(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push('\n');
            object(fields, depth + 1, out);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            array(items, depth, out);
        }
        Value::String(lines) if is_block(lines) => {
            out.push_str(if lines.ends_with('\n') { " |\n" } else { " |-\n" });
            for line in lines.trim_end_matches('\n').split('\n') {
                if !line.is_empty() {
                    out.push_str(&"  ".repeat(depth + 1));
                    out.push_str(line);
                }
                out.push('\n');
            }
        }
        scalar => {
            out.push(' ');
            out.push_str(&inline(scalar));
            out.push('\n');
        }
    }
}

/// Several plain lines, which a block shows without loss.
fn is_block(lines: &str) -> bool {
    lines.contains('\n')
        && !lines.starts_with([' ', '\n', '\t'])
        && !lines.ends_with("\n\n")
        && lines.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{feff}')
        && lines.split('\n').all(|line| !line.ends_with(' '))
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(string) => text(string),
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) => "[]".to_owned(),
        other => other.to_string(),
    }
}

/// Text bare where every YAML reader takes it for text, else in quotes as JSON writes them.
fn text(string: &str) -> String {
    const WORDS: [&str; 11] = ["true", "false", "yes", "no", "on", "off", "null", "~", "y", "n", ".nan"];
    let simple = |c: char| c.is_alphanumeric() || "-_./@+ (),:%=".contains(c);
    let mut chars = string.chars();
    let bare = chars.next().is_some_and(|c| c.is_alphabetic() || c == '/')
        && string.chars().all(simple)
        && !string.contains(": ")
        && !string.ends_with([' ', ':'])
        && !WORDS.contains(&string.to_ascii_lowercase().as_str());
    let numeric = string.parse::<f64>().is_ok();
    if bare && !numeric { string.to_owned() } else { Value::from(string).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn it_reads_like_what_people_write() {
        let value = json!({
            "spec": {"nodeCount": 3, "zones": ["a", "b"], "taints": [{"key": "gpu", "effect": "NoSchedule"}], "labels": {}},
            "name": "web", "kind": "NodePool",
        });
        let expected = "kind: NodePool\nname: web\nspec:\n  labels: {}\n  nodeCount: 3\n  taints:\n  - effect: NoSchedule\n    key: gpu\n  zones:\n  - a\n  - b\n";
        assert_eq!(to_string(&value), expected);
    }

    #[test]
    fn what_could_be_misread_is_quoted() {
        for risky in [
            "",
            "yes",
            "No",
            "1",
            "1e3",
            "0x1f",
            "a: b",
            "- a",
            "#c",
            "null",
            " a",
            "a ",
            "a:",
            "2025-10-17T10:00:00Z",
            "*a",
            "{",
            "tab\t",
            ".inf",
            "inf",
            "nan",
            "é",
            "x\u{2028}y",
            "~",
            "!t",
            "a #b",
        ] {
            let value = json!({"a": risky, "b": [risky]});
            let back: Value = serde_saphyr::from_str(&to_string(&value)).unwrap();
            assert_eq!(back, value, "{risky:?}");
        }
        let lines = json!({"userData": "#!/bin/sh\necho 'a: b'\n", "last": "a\nb", "odd": " a\nb", "deep": [["x"], {"a": ["l\nm\n"]}]});
        assert_eq!(serde_saphyr::from_str::<Value>(&to_string(&lines)).unwrap(), lines);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~\n\t]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ -~]{0,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_value_survives(value in values()) {
            let text = to_string(&value);
            let back: Value = serde_saphyr::from_str(&text).map_err(|e| TestCaseError::fail(format!("{text}\n{e}")))?;
            prop_assert_eq!(back, value, "{}", text);
        }
    }
}
