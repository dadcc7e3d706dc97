//! Which objects a list or a watch is about.

use std::sync::Arc;

use thiserror::Error;
use uuid::Uuid;

use super::{index::Summary, labels::Labels};

/// Everything in it must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Projects that are visible at all; `None` means every one.
    pub projects: Option<Vec<Arc<str>>>,
    pub cluster: Option<Uuid>,
    pub phase: Option<&'static str>,
    pub health: Option<&'static str>,
    pub name: Option<Box<str>>,
    pub labels: LabelSelector,
    pub fields: Vec<FieldTest>,
    pub include_deleted: bool,
}

impl Filter {
    /// No restriction at all, not even by project.
    pub fn everything() -> Self {
        Self {
            projects: None,
            cluster: None,
            phase: None,
            health: None,
            name: None,
            labels: LabelSelector::default(),
            fields: Vec::new(),
            include_deleted: false,
        }
    }

    /// Whether an object is part of the list.
    pub fn wants(&self, summary: &Summary) -> bool {
        (self.include_deleted || !summary.deleting)
            && self.cluster.is_none_or(|cluster| cluster == summary.cluster)
            && self.phase.is_none_or(|phase| phase == summary.phase)
            && self.health.is_none_or(|health| health == summary.health)
            && self.sees(summary)
            && self.name.as_ref().is_none_or(|name| *name == summary.name)
            && self.labels.matches(&summary.labels)
            && self.fields.iter().all(|test| test.holds(summary))
    }

    /// Whether a caller may see the object at all.
    pub fn sees(&self, summary: &Summary) -> bool {
        self.projects
            .as_ref()
            .is_none_or(|projects| projects.iter().any(|project| **project == *summary.project))
    }
}

/// A fault in a selector's text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem} in {term:?}; {remedy}")]
pub struct SelectorError {
    pub term: String,
    pub problem: &'static str,
    pub remedy: &'static str,
}

const LABEL_REMEDY: &str =
    "write terms like tier=gpu, tier!=gpu, tier in (a,b), tier notin (a,b), tier, !tier";
const FIELD_REMEDY: &str = "write terms like name=web; fields are name, project, cluster_id, created_by, spec.platform.type, \
     status.phase, status.health";

/// Conditions on labels, as kubectl's `-l` takes them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector(Vec<LabelTest>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LabelTest {
    pub(super) key: String,
    pub(super) rule: Rule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rule {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

impl LabelSelector {
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        split_terms(text).into_iter().map(label_test).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn tests(&self) -> &[LabelTest] {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn matches(&self, labels: &Labels) -> bool {
        self.holds(|key| labels.get(key))
    }

    pub(crate) fn matches_map(&self, labels: &std::collections::BTreeMap<String, String>) -> bool {
        self.holds(|key| labels.get(key).map(String::as_str))
    }

    fn holds<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.0.iter().all(|test| {
            let value = label(&test.key);
            let listed = |values: &[String]| value.is_some_and(|value| values.iter().any(|v| v == value));
            match &test.rule {
                Rule::In(values) => listed(values),
                Rule::NotIn(values) => !listed(values),
                Rule::Exists => value.is_some(),
                Rule::Absent => value.is_none(),
            }
        })
    }
}

/// Splits at commas outside parentheses.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (place, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                terms.push(text[start..place].trim());
                start = place + 1;
            }
            _ => {}
        }
    }
    terms.push(text[start..].trim());
    if terms == [""] { Vec::new() } else { terms }
}

fn label_test(term: &str) -> Result<LabelTest, SelectorError> {
    let fault = |problem| SelectorError { term: term.to_owned(), problem, remedy: LABEL_REMEDY };
    let test = |key: &str, rule| {
        let key = key.trim();
        let fits = !key.is_empty()
            && key.len() <= 317
            && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
        if fits { Ok(LabelTest { key: key.to_owned(), rule }) } else { Err(fault("no valid label key")) }
    };
    let value = |text: &str| {
        let text = text.trim();
        if text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            Ok(text.to_owned())
        } else {
            Err(fault("no valid label value"))
        }
    };
    if let Some(key) = term.strip_prefix('!') {
        return test(key, Rule::Absent);
    }
    if let Some((key, text)) = term.split_once("!=") {
        return test(key, Rule::NotIn(vec![value(text)?]));
    }
    if let Some((key, text)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return test(key, Rule::In(vec![value(text)?]));
    }
    let mut words = term.splitn(2, char::is_whitespace);
    let (key, rest) = (words.next().unwrap_or(""), words.next().map(str::trim));
    let Some(rest) = rest else { return test(key, Rule::Exists) };
    let set = |text: &str| -> Result<Vec<String>, SelectorError> {
        let inner = text
            .trim()
            .strip_prefix('(')
            .and_then(|text| text.strip_suffix(')'))
            .ok_or_else(|| fault("no list in parentheses"))?;
        inner.split(',').map(value).collect()
    };
    if let Some(text) = rest.strip_prefix("notin") {
        return test(key, Rule::NotIn(set(text)?));
    }
    if let Some(text) = rest.strip_prefix("in") {
        return test(key, Rule::In(set(text)?));
    }
    Err(fault("no operator"))
}

/// A condition on a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTest {
    pub(super) field: Field,
    pub(super) equal: bool,
    pub(super) value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Name,
    Project,
    Cluster,
    CreatedBy,
    Platform,
    Phase,
    Health,
}

impl FieldTest {
    /// Reads terms separated by commas: `status.phase=Ready,name!=web`.
    pub fn parse(text: &str) -> Result<Vec<Self>, SelectorError> {
        split_terms(text).into_iter().map(field_test).collect()
    }

    fn holds(&self, summary: &Summary) -> bool {
        let id;
        let found: &str = match self.field {
            Field::Name => &summary.name,
            Field::Project => &summary.project,
            Field::CreatedBy => &summary.created_by,
            Field::Platform => summary.platform,
            Field::Phase => summary.phase,
            Field::Health => summary.health,
            Field::Cluster => {
                id = summary.cluster.to_string();
                &id
            }
        };
        (found == self.value) == self.equal
    }
}

fn field_test(term: &str) -> Result<FieldTest, SelectorError> {
    let fault = |problem| SelectorError { term: term.to_owned(), problem, remedy: FIELD_REMEDY };
    let (name, value, equal) = if let Some((name, value)) = term.split_once("!=") {
        (name, value, false)
    } else if let Some((name, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (name, value, true)
    } else {
        return Err(fault("no operator"));
    };
    let field = match name.trim() {
        "name" | "metadata.name" => Field::Name,
        "project" | "metadata.namespace" => Field::Project,
        "cluster_id" => Field::Cluster,
        "created_by" => Field::CreatedBy,
        "spec.platform.type" => Field::Platform,
        "status.phase" => Field::Phase,
        "status.health" => Field::Health,
        _ => return Err(fault("no known field")),
    };
    Ok(FieldTest { field, equal, value: value.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selectors_read_like_kubectls() {
        #[track_caller]
        fn check(labels: &Labels, text: &str, expected: bool) {
            let selector = LabelSelector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(selector.matches(labels), expected, "{text}");
        }
        let labels = Labels::from([("tier", "gpu"), ("example.com/team", "ml")]);
        check(&labels, "", true);
        check(&labels, "tier=gpu", true);
        check(&labels, "tier==gpu,example.com/team=ml", true);
        check(&labels, "tier = gpu , example.com/team != web", true);
        check(&labels, "tier!=gpu", false);
        check(&labels, "zone!=a", true);
        check(&labels, "tier in (cpu, gpu)", true);
        check(&labels, "tier notin (cpu,gpu)", false);
        check(&labels, "tier", true);
        check(&labels, "!tier", false);
        check(&labels, "!zone,tier in (gpu),example.com/team", true);
        for wrong in ["=", "a=b=c", "a in b", "a near (b)", "a,,b", "a=ü", "a in (b,(c))", "!"] {
            assert!(LabelSelector::parse(wrong).is_err(), "{wrong:?} was accepted");
        }
    }

    #[test]
    fn field_selectors_name_known_fields_only() {
        assert_eq!(FieldTest::parse("name=a,status.phase!=Ready").unwrap().len(), 2);
        for wrong in ["name", "colour=red", "name~a"] {
            assert!(FieldTest::parse(wrong).is_err(), "{wrong:?} was accepted");
        }
    }
}
