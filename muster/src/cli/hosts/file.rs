//! Hosts from a file: a CSV table, or YAML or JSON with a list of hosts. Every entry keeps its line or place.

use std::path::Path;

use muster_model::{
    FieldErrors,
    field::FieldError,
    host::{
        BareMetalNodeSpec, NamedHost,
        csv::{self, Line},
    },
};
use serde_json::Value;

use crate::cli::failure::{Exit, Failure, Outcome};

/// Reads a file, or standard input for `-`. The form is told by the name, else by how it begins.
pub(super) fn read(path: &Path) -> Outcome<Vec<Line>> {
    let name = path.display().to_string();
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::new(Exit::Failure, format!("file {name}"), error.to_string()).next("check the path")
    };
    let text = if name == "-" {
        std::io::read_to_string(std::io::stdin()).map_err(|error| wrong(&error))?
    } else {
        std::fs::read_to_string(path).map_err(|error| wrong(&error))?
    };
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let lines = match extension.to_ascii_lowercase().as_str() {
        "csv" => csv::read_csv(&text),
        "yaml" | "yml" | "json" => documents(&text),
        _ if looks_like_csv(&text) => csv::read_csv(&text),
        _ => documents(&text),
    };
    let lines = lines.map_err(|faults| {
        Failure::new(Exit::Failure, format!("file {name}"), faults.to_string()).next(
            "a table needs a header like name,pool,powerInterface,mgmtAddress; a list needs name and spec",
        )
    })?;
    some(lines, &name)
}

/// An export that broke off looks like one of no hosts, and means that every host has vanished: it is never taken for one.
fn some(lines: Vec<Line>, name: &str) -> Outcome<Vec<Line>> {
    if lines.is_empty() {
        return Err(Failure::new(Exit::Failure, format!("file {name}"), "it lists no hosts")
            .next("look at what wrote it: an export that failed is empty; nothing was changed"));
    }
    Ok(lines)
}

/// A table begins with the names of its columns.
fn looks_like_csv(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| line.split(',').any(|cell| cell.trim() == "name") && !line.contains(':'))
}

fn documents(text: &str) -> Result<Vec<Line>, FieldErrors> {
    let fault = |problem: String| FieldErrors::one(FieldError::new("", problem));
    let documents = serde_saphyr::from_multiple::<Option<Value>>(text)
        .map_err(|error| fault(format!("is neither YAML nor JSON: {error}")))?;
    let mut items = Vec::new();
    for document in documents.into_iter().flatten() {
        match document {
            Value::Array(list) => items.extend(list),
            Value::Object(mut members) => match members.remove("hosts").or_else(|| members.remove("items")) {
                Some(Value::Array(list)) => items.extend(list),
                Some(_) => return Err(fault("hosts must be a list".into())),
                None => items.push(Value::Object(members)),
            },
            other => return Err(fault(format!("must be a list of hosts, found {other}"))),
        }
    }
    let line = |(place, item): (usize, Value)| Line {
        number: place + 1,
        name: name(&item).unwrap_or_default().to_owned(),
        said: item["spec"].as_object().cloned().unwrap_or_default(),
        host: host(&item),
    };
    Ok(items.into_iter().enumerate().map(line).collect())
}

fn name(item: &Value) -> Option<&str> {
    item["name"].as_str().or_else(|| item["metadata"]["name"].as_str())
}

fn host(item: &Value) -> Result<NamedHost, FieldErrors> {
    let fault = |path: &str, problem: &str| Err(FieldErrors::one(FieldError::new(path, problem)));
    let Some(name) = name(item) else { return fault("name", "is required") };
    if item.get("kind").and_then(Value::as_str).is_some_and(|kind| kind != "BareMetalNode") {
        return fault("kind", "is not BareMetalNode");
    }
    let spec = BareMetalNodeSpec::read(item.get("spec").unwrap_or(&Value::Null), "spec")?.value;
    Ok(NamedHost { name: name.to_owned(), spec })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_lists_are_told_apart() {
        assert!(looks_like_csv("# servers\nname,pool\n"));
        assert!(!looks_like_csv("- name: a\n  spec: {pool: p}\n"));
        assert!(!looks_like_csv("{\"hosts\": []}"));
        let lines = documents(
            "hosts:\n- name: a\n  spec: {pool: p, powerInterface: wol, macAddress: 02-00-00-00-00-01}\n- name: b\n",
        )
        .unwrap();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].host.is_ok() && lines[1].host.is_err());
        assert_eq!(lines[1].name, "b", "a line that cannot be used still says which host it means");
        assert!(documents("just text").is_err());
    }

    #[test]
    fn a_file_without_hosts_is_refused_in_every_form() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("a.yaml", ""),
            ("b.json", "[]"),
            ("c.yaml", "# nothing\n---\n"),
            ("d.yaml", "hosts: []\n"),
            ("e.csv", "name,pool\n"),
            ("f.csv", ""),
            ("piped", ""),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            let refused = read(&path).expect_err(name).to_string();
            assert!(refused.contains(name) && refused.contains("next: "), "{refused}");
        }
    }
}
