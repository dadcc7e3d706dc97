//! Files with objects: YAML or JSON, one document or several, single objects or lists, with the line of every
//! field so that a fault can be pointed at.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use muster_sim::tree::Tree;
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use super::{
    failure::{Exit, Failure, Outcome},
    kinds::{self, Kind},
};

/// Lists inside lists: more than anyone writes by hand.
const DEEPEST_LIST: usize = 8;

/// Where objects come from.
#[derive(Debug, Clone, Args)]
pub(crate) struct Files {
    /// File or folder with objects in YAML or JSON; - for standard input
    #[arg(short, long = "filename", value_name = "FILE", required = true, add = super::complete::files())]
    pub(crate) files: Vec<PathBuf>,
    /// Also files in folders below
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

/// One object as somebody wrote it.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub(crate) kind: &'static Kind,
    pub(crate) body: Map<String, Value>,
    /// Name of the cluster, when the file gives it by name.
    pub(crate) cluster: Option<String>,
    pub(crate) origin: Origin,
}

/// The place that a document came from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origin {
    pub(crate) file: String,
    /// Line of every field by its path (`spec.taints[0].key`); the document itself is the empty path.
    lines: BTreeMap<String, u64>,
}

impl Origin {
    /// `pools.yaml:12` for a field, or for the nearest block around it.
    pub(crate) fn place(&self, path: &str) -> Option<String> {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return Some(format!("{}:{line}", self.file));
            }
            if path.is_empty() {
                return None;
            }
            path = path.rfind(['.', '[']).map_or("", |cut| &path[..cut]);
        }
    }

    pub(crate) fn whole(&self) -> String {
        self.place("").unwrap_or_else(|| self.file.clone())
    }
}

/// All documents of all files, clusters before their pools.
pub(crate) fn read(files: &Files) -> Outcome<Vec<Document>> {
    let mut documents = Vec::new();
    for path in &files.files {
        if path == Path::new("-") {
            let text = io::read_to_string(io::stdin()).map_err(|error| {
                Failure::new(Exit::Failure, "standard input", error.to_string())
                    .next("pipe YAML or JSON into the command")
            })?;
            documents.extend(parse("stdin", &text)?);
            continue;
        }
        for file in expand(path, files.recursive)? {
            let text = fs::read_to_string(&file).map_err(|error| unreadable(&file, &error))?;
            documents.extend(parse(&file.display().to_string(), &text)?);
        }
    }
    if documents.is_empty() {
        let names: Vec<String> = files.files.iter().map(|path| path.display().to_string()).collect();
        return Err(Failure::new(
            Exit::Failure,
            format!("file {}", names.join(", ")),
            "there is no object in it",
        )
        .next("a folder's files must end in .yaml, .yml or .json"));
    }
    documents.sort_by_key(|document| kinds::KINDS.iter().position(|kind| kind.kind == document.kind.kind));
    Ok(documents)
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let exit = if error.kind() == io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Failure };
    Failure::new(exit, format!("file {}", path.display()), error.to_string())
        .next("check the path; - reads standard input")
}

/// The files of a folder in order of their names; a file is itself.
fn expand(path: &Path, recursive: bool) -> Outcome<Vec<PathBuf>> {
    let meta = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if !meta.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(path)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(|error| unreadable(path, &error))?;
    entries.sort();
    let mut files = Vec::new();
    for entry in entries {
        if entry.is_dir() {
            if recursive {
                files.extend(expand(&entry, true)?);
            }
        } else if matches!(entry.extension().and_then(|e| e.to_str()), Some("yaml" | "yml" | "json")) {
            files.push(entry);
        }
    }
    Ok(files)
}

/// The documents of one text; `file` is what errors call it.
pub(crate) fn parse(file: &str, text: &str) -> Outcome<Vec<Document>> {
    let wrong = |what: String| {
        Failure::new(Exit::Failure, format!("file {file}"), what)
            .next("correct it there; an object in the right form comes from `muster get KIND NAME -o yaml`")
    };
    let mut documents = Vec::new();
    if text.trim_start().starts_with('{') {
        // JSON, perhaps several documents in a row. The YAML reader is asked for the lines only.
        let mut lines = serde_saphyr::from_multiple::<Spanned<Tree>>(text).unwrap_or_default().into_iter();
        for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
            let value = value.map_err(|error| wrong(format!("it is not JSON: {error}")))?;
            let root = lines.next().map(|root| (root.referenced.line(), root.value));
            documents.extend(document(file, value, root.as_ref().map(|(line, tree)| (*line, tree)), 0)?);
        }
        return Ok(documents);
    }
    let nodes = serde_saphyr::from_multiple::<Option<Spanned<Tree>>>(text).map_err(|error| {
        // What the reader advises is meant for programmers.
        let text = error.to_string().replace("; use Option<String>", "");
        let text = text.replace("cannot deserialize null into string", "a name is missing before the colon");
        wrong(format!("it cannot be read: {}", text.trim_start_matches("error: ")))
    })?;
    for node in nodes.into_iter().flatten() {
        if matches!(node.value, Tree::Leaf(Value::Null)) {
            continue; // an empty document between two separators
        }
        let value = node.value.plain();
        documents.extend(document(file, value, Some((node.referenced.line(), &node.value)), 0)?);
    }
    Ok(documents)
}

/// A value as documents: a list is opened, everything else must be an object of a known kind.
fn document(file: &str, value: Value, node: Option<(u64, &Tree)>, depth: usize) -> Outcome<Vec<Document>> {
    let mut lines = BTreeMap::new();
    if let Some((line, tree)) = node {
        lines.insert(String::new(), line);
        tree.lines("", &mut lines);
    }
    let origin = Origin { file: file.to_owned(), lines };
    let wrong = |what: String| {
        Failure::new(Exit::Failure, format!("file {}", origin.whole()), what)
            .next("an object in the right form comes from `muster get KIND NAME -o yaml`")
    };
    let Value::Object(mut body) = value else {
        return Err(wrong("expected an object with a name and a spec".to_owned()));
    };
    if let Some(Value::Array(items)) =
        body.get("items").filter(|_| depth < DEEPEST_LIST && !body.contains_key("spec"))
    {
        let inner = node.and_then(|(_, tree)| tree.child("items")).map(|(_, tree)| tree);
        let nodes = match inner {
            Some(Tree::List(nodes)) => nodes.iter().map(|(line, tree)| Some((*line, tree))).collect(),
            _ => vec![None; items.len()],
        };
        let parts = items.iter().zip(nodes).map(|(item, node)| document(file, item.clone(), node, depth + 1));
        return Ok(parts.collect::<Outcome<Vec<_>>>()?.into_iter().flatten().collect());
    }
    let kind = kind_of(&body).map_err(wrong)?;
    body.remove("kind");
    body.remove("apiVersion");
    unfold_metadata(&mut body).map_err(wrong)?;
    let cluster = match body.remove("cluster").or_else(|| body.remove("cluster_name")) {
        Some(Value::String(name)) => Some(name),
        None => None,
        Some(_) => return Err(wrong("cluster must be a name".to_owned())),
    };
    Ok(vec![Document { kind, body, cluster, origin }])
}

/// By `kind:`, else by shape: what has a cluster or a size is a pool.
fn kind_of(body: &Map<String, Value>) -> Result<&'static Kind, String> {
    if let Some(kind) = body.get("kind") {
        let name = kind.as_str().unwrap_or_default();
        let found =
            kinds::find(name).ok_or_else(|| format!("kind {kind} is not known; use Cluster or NodePool"))?;
        return if found.written.is_empty() {
            Err(format!("{} cannot be written by people", found.kind))
        } else {
            Ok(found)
        };
    }
    let spec = body.get("spec").and_then(Value::as_object);
    let pool_like = ["cluster_id", "cluster", "cluster_name"].iter().any(|key| body.contains_key(*key))
        || spec.is_some_and(|spec| {
            ["nodeCount", "autoscaling", "taints", "template"].iter().any(|key| spec.contains_key(*key))
        });
    match (pool_like, spec) {
        (true, _) => Ok(kinds::find("nodepool").expect("the kind of pools is registered")),
        (false, Some(_)) => Ok(kinds::find("cluster").expect("the kind of clusters is registered")),
        (false, None) => Err("it has neither kind nor spec, so nobody can tell what it is".to_owned()),
    }
}

/// The Kubernetes way of naming, `metadata.name`, means the same as a name at the top.
fn unfold_metadata(body: &mut Map<String, Value>) -> Result<(), String> {
    let Some(metadata) = body.remove("metadata") else { return Ok(()) };
    let Value::Object(metadata) = metadata else { return Err("metadata must be a block".to_owned()) };
    for (key, value) in metadata {
        match key.as_str() {
            "name" | "labels" | "annotations" | "generation" => {
                body.entry(key).or_insert(value);
            }
            "uid" | "creationTimestamp" | "resourceVersion" | "managedFields" | "selfLink" | "namespace" => {}
            other => {
                return Err(format!(
                    "metadata.{other} is not known here; metadata takes name, labels and annotations"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "# fleet\nkind: NodePool\nname: web\ncluster: prod\nspec:\n  nodeCount: 3\n  taints:\n  - key: gpu\n    effect: Never\n---\n\n---\nname: prod\nspec:\n  platform:\n    type: gcp\n";

    #[test]
    fn documents_know_their_kind_and_their_lines() {
        let documents = parse("f.yaml", TWO).unwrap();
        let kinds: Vec<&str> = documents.iter().map(|document| document.kind.kind).collect();
        assert_eq!(kinds, ["NodePool", "Cluster"]);
        assert_eq!(documents[0].cluster.as_deref(), Some("prod"));
        let place = |path: &str| documents[0].origin.place(path);
        assert_eq!(place("spec.nodeCount").as_deref(), Some("f.yaml:6"));
        assert_eq!(place("spec.taints[0].effect").as_deref(), Some("f.yaml:9"));
        assert_eq!(
            place("spec.autoscaling.maxNodes").as_deref(),
            place("spec").as_deref(),
            "the nearest block"
        );
        assert_eq!(documents[1].origin.place("spec.platform.type").as_deref(), Some("f.yaml:16"));
    }

    #[test]
    fn json_lists_and_streams_are_opened() {
        let list = r#"{"kind":"List","items":[{"kind":"Cluster","name":"a","spec":{}},{"name":"w","cluster_id":"x","spec":{}}]}"#;
        assert_eq!(parse("l.json", list).unwrap().len(), 2);
        let stream = "{\"name\":\"a\",\"spec\":{}}\n{\"name\":\"b\",\"spec\":{}}\n";
        assert_eq!(parse("s.json", stream).unwrap().len(), 2);
        assert_eq!(parse("tab.json", "{\n\t\"name\": \"a\",\n\t\"spec\": {}\n}").unwrap().len(), 1);
    }

    #[test]
    fn the_kubernetes_form_is_understood() {
        let text = "apiVersion: muster.dev/v1alpha1\nkind: NodePool\nmetadata:\n  name: web\n  uid: x\ncluster: prod\nspec: {nodeCount: 1}\n";
        let document = parse("k.yaml", text).unwrap().remove(0);
        assert_eq!(document.body["name"], "web");
        assert!(!document.body.contains_key("metadata") && !document.body.contains_key("apiVersion"));
    }

    #[test]
    fn what_is_no_object_is_refused_with_its_place() {
        for (text, hint) in [
            ("- a\n", "expected an object"),
            ("kind: Pod\nname: a\n", "Pod"),
            ("kind: Report\nname: a\n", "cannot be written"),
            ("name: a\n", "neither kind nor spec"),
            ("a: [1\n", "cannot be read"),
            (": : :\n", "a name is missing"),
            ("name: a\nname: b\nspec: {}\n", "duplicate"),
            ("{\"a\": }", "not JSON"),
            ("kind: Cluster\nmetadata:\n  nmae: x\nspec: {}\n", "nmae"),
        ] {
            let error = parse("x.yaml", text).unwrap_err().to_string();
            assert!(error.contains(hint) && error.contains("x.yaml"), "{text:?}: {error}");
        }
    }
}
