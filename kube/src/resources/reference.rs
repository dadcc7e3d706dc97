//! The reference of the kinds, made from their definitions.

use std::fmt::Write as _;

use muster_model::resource::ResourceKind;
use serde_json::Value;

use super::definition;

const HEAD: &str = "\
# Custom resources

What the objects of `muster.dev/v1alpha1` hold. This page is made from the definitions; how the objects are used is in
[Manage pools with kubectl](../how-to/custom-resources.md).

A field that ends in `[]` is a list, one that ends in `.*` is a map. `kubectl explain mnp.spec.autoscaling` shows the same in a
terminal. Blocks marked *open* keep members that are not listed.
";

/// `docs/reference/custom-resources.md`.
pub fn markdown() -> String {
    let mut out = HEAD.to_owned();
    for kind in [ResourceKind::NodePool, ResourceKind::BareMetalNode, ResourceKind::Cluster] {
        let definition = definition(kind);
        let version = &definition["spec"]["versions"][0];
        let root = &version["schema"]["openAPIV3Schema"];
        let about = root["description"].as_str().unwrap_or_default();
        let _ = write!(out, "\n## {kind}\n\n{about} Short name `{}`, category `muster`.\n", kind.short());
        if let Some(scale) = version["subresources"].get("scale") {
            let path = scale["specReplicasPath"].as_str().unwrap_or_default().trim_start_matches('.');
            let _ = writeln!(out, "`kubectl scale` sets `{path}`.");
        }
        columns(&mut out, version);
        for part in ["spec", "status"] {
            let schema = &root["properties"][part];
            let _ = write!(out, "\n### {kind} `{part}`\n\n");
            out.push_str("| field | type | default | what it says |\n|---|---|---|---|\n");
            fields(&mut out, part, schema);
        }
        rules(&mut out, kind, root);
    }
    out
}

fn columns(out: &mut String, version: &Value) {
    let all = version["additionalPrinterColumns"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = |wide: bool| {
        let chosen = all.iter().filter(|column| (column["priority"] == 1) == wide);
        chosen.filter_map(|column| column["name"].as_str()).collect::<Vec<_>>().join(", ")
    };
    let _ = write!(out, "\nColumns: {}; with `-o wide` also {}.\n", names(false), names(true));
}

fn kind_of(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "integer or text".to_owned();
    }
    let kind = match schema["type"].as_str() {
        None => "quantity",
        Some("string") if schema["format"] == "date-time" => "time",
        Some("string") if schema["pattern"] == super::schema::DURATION => "duration",
        Some("string") => "text",
        Some("array") => "list",
        Some(other) => other,
    };
    let mut text = kind.to_owned();
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        text = words.join(", ");
    }
    if let (Some(least), Some(most)) = (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
        let _ = write!(text, " {least} to {most}");
    }
    if let Some(keys) = schema["x-kubernetes-list-map-keys"].as_array() {
        let keys: Vec<&str> = keys.iter().filter_map(Value::as_str).collect();
        let _ = write!(text, " by {}", keys.join(" and "));
    } else if schema["x-kubernetes-list-type"] == "set" {
        "set".clone_into(&mut text);
    }
    if schema["type"] == "object" && schema["x-kubernetes-preserve-unknown-fields"] == true {
        text.push_str(", open");
    }
    text
}

fn fields(out: &mut String, path: &str, schema: &Value) {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let at = format!("{path}.{name}");
        let about = inner["description"].as_str().unwrap_or_default();
        let default = match inner.get("default") {
            Some(Value::String(text)) => format!("`{text}`"),
            Some(other) => format!("`{other}`"),
            None if required.contains(&name.as_str()) => "required".to_owned(),
            None => String::new(),
        };
        let _ = writeln!(out, "| `{at}` | {} | {default} | {about} |", kind_of(inner));
        fields(out, &at, inner);
        if inner.get("items").is_some() {
            fields(out, &format!("{at}[]"), &inner["items"]);
        }
        if inner.get("additionalProperties").is_some() {
            fields(out, &format!("{at}.*"), &inner["additionalProperties"]);
        }
    }
}

fn rules(out: &mut String, kind: ResourceKind, root: &Value) {
    let mut found = Vec::new();
    collect(root, "", &mut found);
    if found.is_empty() {
        return;
    }
    let _ =
        write!(out, "\n### {kind} rules\n\nThe API server refuses an object that breaks one of these.\n\n");
    for (path, message) in found {
        let _ = writeln!(
            out,
            "* {}{message}",
            if path.is_empty() { String::new() } else { format!("`{path}`: ") }
        );
    }
}

fn collect(schema: &Value, path: &str, found: &mut Vec<(String, String)>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        found.push((path.to_owned(), rule["message"].as_str().unwrap_or_default().to_owned()));
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect(inner, &at, found);
        if inner.get("items").is_some() {
            collect(&inner["items"], &format!("{at}[]"), found);
        }
    }
}
