//! The nouns that the command line knows. A new kind is one entry in [`KINDS`]: its names, its path, its
//! columns and what `describe` shows.

mod cluster;
mod conditions;
mod decision;
mod energy;
mod host;
mod operation;
mod pool;
mod records;
mod report;

use std::collections::BTreeMap;

use muster_model::Timestamp;
use serde_json::Value;

use super::{
    failure::{Failure, Outcome},
    print::table::Cell,
    suggest,
};

pub(crate) use conditions::{condition, verdict};
pub(crate) use host::event_row;

/// How objects of a kind are named and found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Names are unique in a project.
    Project,
    /// Names are unique in a cluster: `cluster/name`.
    Cluster,
    /// Names are unique everywhere, and are the id.
    Name,
    /// Known by id alone.
    Id,
    /// Not objects of their own: the reports that controllers made on a pool, `cluster/pool/controller`.
    OnPool,
}

/// Which fields of an object people write; all others belong to the server.
pub(crate) type Written = &'static [&'static str];

#[derive(Debug)]
#[allow(clippy::struct_field_names, reason = "`kind` is what files call it")]
pub(crate) struct Kind {
    /// As in files: `NodePool`.
    pub(crate) kind: &'static str,
    /// As in output: `nodepool/web`.
    pub(crate) singular: &'static str,
    /// As in `get all` and in the paths and lists of the API.
    pub(crate) plural: &'static str,
    pub(crate) aliases: &'static [&'static str],
    pub(crate) scope: Scope,
    pub(crate) written: Written,
    pub(crate) columns: &'static [Column],
    pub(crate) describe: fn(&View<'_>) -> Vec<Section>,
}

/// One column: what it is called, what it sorts by, what stands in it.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) header: &'static str,
    pub(crate) path: &'static str,
    pub(crate) wide: bool,
    pub(crate) cell: fn(&View<'_>) -> Cell,
}

const fn column(header: &'static str, path: &'static str, cell: fn(&View<'_>) -> Cell) -> Column {
    Column { header, path, wide: false, cell }
}

const fn wide(header: &'static str, path: &'static str, cell: fn(&View<'_>) -> Cell) -> Column {
    Column { header, path, wide: true, cell }
}

/// One object and what is needed to show it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) object: &'a Value,
    /// Clusters by id, for their names and modes.
    pub(crate) clusters: &'a BTreeMap<String, Value>,
    pub(crate) now: Timestamp,
    /// What belongs to the object and was fetched for `describe`: its reports, its operations, its pools.
    pub(crate) related: &'a Value,
}

/// A part of what `describe` prints.
#[derive(Debug)]
pub(crate) enum Section {
    /// Lines of `key: value`.
    Facts(&'static str, Vec<(String, Cell)>),
    Table(&'static str, Vec<&'static str>, Vec<Vec<Cell>>),
    /// Free lines, such as next steps.
    Lines(&'static str, Vec<String>),
}

/// Every kind, in the order in which `get all` shows them and `apply` creates them.
pub(crate) static KINDS: &[&Kind] = &[
    &cluster::KIND,
    &pool::KIND,
    &report::KIND,
    &operation::KIND,
    &records::RACK,
    &records::PROFILE,
    &records::CREDENTIAL,
    &host::KIND,
    &decision::KIND,
];

/// The kind called `name`, by any of its names.
pub(crate) fn find(name: &str) -> Option<&'static Kind> {
    let wanted = name.to_ascii_lowercase();
    KINDS.iter().copied().find(|kind| kind.names().any(|known| known == wanted))
}

pub(crate) fn required(name: &str) -> Outcome<&'static Kind> {
    find(name).ok_or_else(|| {
        let known: Vec<&str> = KINDS.iter().map(|kind| kind.plural).collect();
        let near = suggest::nearest(
            &name.to_ascii_lowercase(),
            KINDS.iter().flat_map(|kind| kind.names().collect::<Vec<_>>()),
        );
        let hint = near.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
        Failure::usage(format!("kind {name:?}"), format!("there is no such kind{hint}"))
            .next(format!("use one of {}", known.join(", ")))
    })
}

impl Kind {
    pub(crate) fn names(&self) -> impl Iterator<Item = String> + use<'_> {
        [self.singular, self.plural].into_iter().chain(self.aliases.iter().copied()).map(str::to_owned)
    }

    /// Path of the collection.
    pub(crate) fn collection(&self) -> String {
        format!("/api/v1/{}", self.plural)
    }

    /// Whether its objects stay for a while, hidden unless asked for, when they are deleted.
    pub(crate) fn can_be_deleting(&self) -> bool {
        matches!(self.scope, Scope::Project | Scope::Cluster)
    }

    /// Whether the collection has no end that anybody would want to read to: only the newest are shown.
    pub(crate) fn is_endless(&self) -> bool {
        self.plural == "decisions"
    }

    /// Path of one object.
    pub(crate) fn path(&self, id: &str) -> String {
        format!("/api/v1/{}/{id}", self.plural)
    }

    /// Name of an object among its like: `web`, `prod/web`, an id.
    pub(crate) fn full_name(&self, view: &View<'_>) -> String {
        match self.scope {
            Scope::Project | Scope::Name => view.text("name"),
            Scope::Cluster => format!("{}/{}", view.cluster_name(), view.text("name")),
            Scope::Id => view.text("id"),
            Scope::OnPool => format!("{}/{}", view.text("pool"), view.text("controller_name")),
        }
    }
}

impl View<'_> {
    /// The text at a dotted path, or nothing.
    pub(crate) fn text(&self, path: &str) -> String {
        text_at(self.object, path)
    }

    pub(crate) fn at(&self, path: &str) -> Option<&Value> {
        at(self.object, path)
    }

    /// The text at a dotted path, or a dash.
    pub(crate) fn or_dash(&self, path: &str) -> String {
        dash(self.text(path))
    }

    /// Name of the cluster that the object belongs to; its id while the name is not known.
    pub(crate) fn cluster_name(&self) -> String {
        let id = self.text("cluster_id");
        let named = self.clusters.get(&id).map(|cluster| text_at(cluster, "name"));
        named.or_else(|| Some(self.text("cluster_name")).filter(|name| !name.is_empty())).unwrap_or(id)
    }

    pub(crate) fn cluster(&self) -> Option<&Value> {
        self.clusters.get(&self.text("cluster_id"))
    }
}

pub(crate) fn dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

pub(crate) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, key| value.get(key)).filter(|value| !value.is_null())
}

pub(crate) fn text_at(value: &Value, path: &str) -> String {
    at(value, path).map(super::jsonpath::plain).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_means_one_kind() {
        let mut seen = BTreeMap::new();
        for kind in KINDS {
            for name in kind.names() {
                assert_eq!(seen.insert(name.clone(), kind.kind), None, "{name} means two kinds");
            }
        }
        for (name, kind) in
            [("np", "NodePool"), ("Pools", "NodePool"), ("cl", "Cluster"), ("op", "Operation")]
        {
            assert_eq!(find(name).map(|found| found.kind), Some(kind), "{name}");
        }
        let error = required("poool").unwrap_err().to_string();
        assert!(error.contains("\"pool\""), "{error}");
    }

    #[test]
    fn default_tables_have_at_most_ten_columns() {
        for kind in KINDS {
            let narrow = kind.columns.iter().filter(|column| !column.wide).count();
            assert!(narrow <= 10, "{} has {narrow} columns", kind.plural);
        }
    }
}
