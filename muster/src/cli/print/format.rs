//! The forms in which objects can be asked for.

use std::{fs, str::FromStr};

use serde_json::{Value, json};

use crate::cli::{
    failure::{Exit, Failure, Outcome},
    jsonpath::{Template, plain},
    print::{table::Table, yaml},
};

/// What `-o` asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Format {
    #[default]
    Table,
    Wide,
    Json,
    Yaml,
    Name,
    JsonPath(Template),
    Columns(Vec<(String, Template)>),
}

/// The names of the formats, for help and for completion.
pub(crate) const FORMATS: [&str; 9] = [
    "table",
    "wide",
    "json",
    "yaml",
    "name",
    "jsonpath=",
    "jsonpath-file=",
    "custom-columns=",
    "custom-columns-file=",
];

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, rest) = text.split_once('=').unwrap_or((text, ""));
        match name {
            "table" | "" => Ok(Self::Table),
            "wide" => Ok(Self::Wide),
            "json" => Ok(Self::Json),
            "yaml" | "yml" => Ok(Self::Yaml),
            "name" => Ok(Self::Name),
            "jsonpath" => Template::parse(rest).map(Self::JsonPath).map_err(|error| error.to_string()),
            "jsonpath-file" => {
                let text = read(rest)?;
                Template::parse(text.trim_end_matches('\n'))
                    .map(Self::JsonPath)
                    .map_err(|error| error.to_string())
            }
            "custom-columns" => columns(rest),
            "custom-columns-file" => columns_of_file(&read(rest)?),
            _ => Err(format!("unknown format {name:?}; use one of {}", FORMATS.join(", "))),
        }
    }
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("file {path:?}: {error}"))
}

fn columns(text: &str) -> Result<Format, String> {
    if text.is_empty() {
        return Err(
            "custom-columns needs HEADER:PATH[,HEADER:PATH…], like NAME:.name,NODES:.spec.nodeCount".into()
        );
    }
    split_outside_brackets(text)
        .into_iter()
        .map(|column| {
            let (header, path) = column
                .split_once(':')
                .ok_or_else(|| format!("column {column:?} has no path; write HEADER:.path"))?;
            let template = Template::parse_relaxed(path).map_err(|error| error.to_string())?;
            Ok((header.to_owned(), template))
        })
        .collect::<Result<_, String>>()
        .map(Format::Columns)
}

/// kubectl's file form: headers on the first line, paths on the second.
fn columns_of_file(text: &str) -> Result<Format, String> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let (Some(headers), Some(paths)) = (lines.next(), lines.next()) else {
        return Err("a custom-columns file has two lines: the headers, then the paths".into());
    };
    let (headers, paths): (Vec<_>, Vec<_>) =
        (headers.split_whitespace().collect(), paths.split_whitespace().collect());
    if headers.len() != paths.len() {
        return Err(format!(
            "the custom-columns file has {} headers and {} paths",
            headers.len(),
            paths.len()
        ));
    }
    columns(
        &headers
            .iter()
            .zip(paths)
            .map(|(header, path)| format!("{header}:{path}"))
            .collect::<Vec<_>>()
            .join(","),
    )
}

/// Splits at commas that are not inside brackets, so that a union or a filter stays whole.
fn split_outside_brackets(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_i32, 0, Vec::new());
    for (place, char) in text.char_indices() {
        match char {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

impl Format {
    pub(crate) fn is_table(&self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }

    /// One document in a form that is not a table and not a name.
    pub(crate) fn document(&self, value: &Value, headers: bool) -> Outcome<String> {
        Ok(match self {
            Self::Json => {
                let text = serde_json::to_string_pretty(value)
                    .map_err(|error| Failure::new(Exit::Failure, "output", error.to_string()))?;
                format!("{text}\n")
            }
            Self::Yaml => yaml::to_string(value),
            Self::JsonPath(template) => template.render(value),
            Self::Columns(columns) => custom(columns, value, headers),
            Self::Table | Self::Wide | Self::Name => unreachable!("tables and names are made from rows"),
        })
    }
}

/// A table of the caller's own columns over a list or one object.
fn custom(columns: &[(String, Template)], value: &Value, headers: bool) -> String {
    let mut table = Table::new(columns.iter().map(|(header, _)| header.as_str()));
    let items = match value.get("items").and_then(Value::as_array) {
        Some(items) => items.iter().collect(),
        None => vec![value],
    };
    for item in items {
        let cell = |template: &Template| {
            let found = template.find(item);
            if found.is_empty() {
                "<none>".to_owned()
            } else {
                found.into_iter().map(plain).collect::<Vec<_>>().join(",")
            }
        };
        table.push(columns.iter().map(|(_, template)| cell(template).into()).collect());
    }
    table.render(headers, false, &mut Vec::new())
}

/// Several objects as one document.
pub(crate) fn list(items: Vec<Value>, revision: Option<&str>) -> Value {
    let mut document = json!({ "kind": "List", "items": items });
    if let Some(revision) = revision {
        document["revision"] = revision.into();
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_columns_keep_filters_whole() {
        let format: Format =
            "custom-columns=NAME:.name,READY:.conditions[?(@.type==\"Ready\")].status,X:.y[0,1]"
                .parse()
                .unwrap();
        let document = list(
            vec![json!({"name": "web", "conditions": [{"type": "Ready", "status": "True"}], "y": [1, 2]})],
            None,
        );
        assert_eq!(format.document(&document, true).unwrap(), "NAME   READY   X\nweb    True    1,2\n");
    }

    #[test]
    fn unknown_formats_are_named_with_the_known_ones() {
        let error = "jsn".parse::<Format>().unwrap_err();
        assert!(error.contains("jsn") && error.contains("json"), "{error}");
        assert!("custom-columns=".parse::<Format>().is_err());
        assert!("custom-columns=NAME".parse::<Format>().unwrap_err().contains("HEADER:.path"));
        assert!("jsonpath={.a".parse::<Format>().is_err());
    }
}
