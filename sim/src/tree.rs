//! YAML or JSON with the line of everything in it, so that a fault can be pointed at. Whoever reads files that
//! people wrote reads them through this.

use std::collections::BTreeMap;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use serde_saphyr::Spanned;

/// A value with the line of everything in it.
#[derive(Debug)]
pub enum Tree {
    Leaf(Value),
    List(Vec<(u64, Tree)>),
    Block(Vec<(String, u64, Tree)>),
}

impl Tree {
    /// A member or an item, with its line.
    pub fn child(&self, part: &str) -> Option<(u64, &Self)> {
        match self {
            Self::Leaf(_) => None,
            Self::List(items) => items.get(part.parse::<usize>().ok()?).map(|(line, tree)| (*line, tree)),
            Self::Block(fields) => {
                fields.iter().find(|(key, ..)| key == part).map(|(_, line, tree)| (*line, tree))
            }
        }
    }

    /// The value without the lines.
    pub fn plain(&self) -> Value {
        match self {
            Self::Leaf(value) => value.clone(),
            Self::List(items) => items.iter().map(|(_, item)| item.plain()).collect(),
            Self::Block(fields) => fields.iter().map(|(key, _, tree)| (key.clone(), tree.plain())).collect(),
        }
    }

    /// The line of everything below, by its path from `path`: `spec.taints[0].key`.
    pub fn lines(&self, path: &str, lines: &mut BTreeMap<String, u64>) {
        match self {
            Self::Leaf(_) => {}
            Self::List(items) => {
                for (place, (line, tree)) in items.iter().enumerate() {
                    let path = format!("{path}[{place}]");
                    lines.insert(path.clone(), *line);
                    tree.lines(&path, lines);
                }
            }
            Self::Block(fields) => {
                for (key, line, tree) in fields {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    lines.insert(path.clone(), *line);
                    tree.lines(&path, lines);
                }
            }
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

macro_rules! leaves {
    ($($name:ident($kind:ty)),*) => {
        $(fn $name<E>(self, value: $kind) -> Result<Tree, E> { Ok(Tree::Leaf(Value::from(value))) })*
    };
}

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    leaves!(
        visit_bool(bool),
        visit_i64(i64),
        visit_u64(u64),
        visit_f64(f64),
        visit_str(&str),
        visit_string(String)
    );

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Tree>>()? {
            list.push((item.referenced.line(), item.value));
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Tree, A::Error> {
        let mut block = Vec::new();
        while let Some(key) = fields.next_key::<String>()? {
            let value = fields.next_value::<Spanned<Tree>>()?;
            block.push((key, value.referenced.line(), value.value));
        }
        Ok(Tree::Block(block))
    }
}
