//! Files with objects, in YAML or JSON: one or several documents, single objects or lists, with the line of
//! every field so that a fault can be pointed at.

use serde_json::Value;
use serde_saphyr::Spanned;

use crate::tree::Tree;

/// Lists inside lists: more than anyone writes.
const DEEPEST_LIST: usize = 8;

/// One text to read.
#[derive(Debug, Clone)]
pub struct Source {
    /// What errors call it: the path, or `stdin`.
    pub name: String,
    pub text: String,
}

/// One object, and where it stands.
#[derive(Debug)]
pub(super) struct Document {
    pub file: String,
    pub value: Value,
    /// Where it begins, from 1; 0 if nobody knows.
    pub line: u64,
    tree: Option<Tree>,
}

/// Something that could not be used, and was set aside.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SetAside {
    pub file: String,
    /// 0 if nobody knows.
    pub line: u64,
    /// For example `Pod default/web-0`.
    pub object: String,
    pub field: String,
    pub problem: String,
}

impl std::fmt::Display for SetAside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.object)?;
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl Document {
    /// `Pod default/web-0`, as far as the object says what it is.
    pub(super) fn title(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = text(&self.value["kind"]);
        let kind = if kind.is_empty() { "object".to_owned() } else { kind };
        let metadata = &self.value["metadata"];
        let name =
            if metadata["name"].is_string() { text(&metadata["name"]) } else { text(&self.value["name"]) };
        match metadata["namespace"].as_str() {
            Some(namespace) => format!("{kind} {namespace}/{name}"),
            None => format!("{kind} {name}"),
        }
    }

    /// A fault of this object; the line is that of the field, or of the nearest block around it.
    pub(super) fn fault(&self, field: &str, problem: impl Into<String>) -> SetAside {
        SetAside {
            file: self.file.clone(),
            line: self.line_of(field),
            object: self.title(),
            field: field.to_owned(),
            problem: problem.into(),
        }
    }

    fn line_of(&self, field: &str) -> u64 {
        let Some(mut tree) = self.tree.as_ref() else { return self.line };
        let mut line = self.line;
        for part in parts(field) {
            let Some(inner) = tree.child(&part) else { break };
            line = inner.0;
            tree = inner.1;
        }
        line
    }
}

/// `spec.taints[0].key` as `spec`, `taints`, `0`, `key`. Keys with dots are found by the longest match.
fn parts(field: &str) -> Vec<String> {
    field
        .split(['.', '['])
        .map(|part| part.trim_end_matches(']').to_owned())
        .filter(|part| !part.is_empty())
        .collect()
}

/// All documents of a text. A text that is not YAML or JSON at all is one fault.
pub(super) fn parse(source: &Source) -> (Vec<Document>, Vec<SetAside>) {
    let (mut documents, mut faults) = (Vec::new(), Vec::new());
    let whole = |line: u64, problem: String| SetAside {
        file: source.name.clone(),
        line,
        object: "the file".to_owned(),
        field: String::new(),
        problem,
    };
    if source.text.trim_start().starts_with(['{', '[']) {
        for value in serde_json::Deserializer::from_str(&source.text).into_iter::<Value>() {
            match value {
                Ok(value) => open(&source.name, value, 1, None, 0, &mut documents),
                Err(error) => {
                    faults.push(whole(error.line() as u64, format!("it is not JSON: {error}")));
                    break;
                }
            }
        }
        return (documents, faults);
    }
    // Dumps are large and come from the user: the reader's limits against hostile input do not apply.
    let options = serde_saphyr::options! { budget: None };
    match serde_saphyr::from_multiple_with_options::<Option<Spanned<Tree>>>(&source.text, options) {
        Ok(trees) => {
            for tree in trees.into_iter().flatten() {
                if !matches!(tree.value, Tree::Leaf(Value::Null)) {
                    let line = tree.referenced.line();
                    open(&source.name, tree.value.plain(), line, Some(tree.value), 0, &mut documents);
                }
            }
        }
        Err(error) => {
            let text = error.to_string();
            let line = error.location().map_or(0, |location| location.line());
            faults
                .push(whole(line, format!("it cannot be read: {}", text.lines().next().unwrap_or_default())));
        }
    }
    (documents, faults)
}

/// Opens lists, whatever their kind is called; everything else is one document.
fn open(
    file: &str,
    value: Value,
    line: u64,
    tree: Option<Tree>,
    depth: usize,
    documents: &mut Vec<Document>,
) {
    let is_list = value.is_array() || (value["items"].is_array() && value.get("spec").is_none());
    if !is_list || depth >= DEEPEST_LIST {
        documents.push(Document { file: file.to_owned(), value, line, tree });
        return;
    }
    let inner = match tree {
        Some(Tree::List(items)) => Some(items),
        Some(Tree::Block(fields)) => {
            fields.into_iter().find(|(key, ..)| key == "items").and_then(|(_, _, tree)| match tree {
                Tree::List(items) => Some(items),
                _ => None,
            })
        }
        _ => None,
    };
    let items = match value {
        Value::Array(items) => items,
        Value::Object(mut object) => match object.remove("items") {
            Some(Value::Array(items)) => items,
            _ => return,
        },
        _ => return,
    };
    let mut trees = inner.map(Vec::into_iter);
    for item in items {
        let tree = trees.as_mut().and_then(Iterator::next);
        let line = tree.as_ref().map_or(line, |(line, _)| *line);
        open(file, item, line, tree.map(|(_, tree)| tree), depth + 1, documents);
    }
}
