//! What the fuzz targets run, one function each. They live here so that the fixed corpus runs on every test, with
//! any compiler, through the same code. A function panics when something is wrong, and returns otherwise.

use muster_engine::{
    Plan, Snapshot, audit,
    down::complete,
    explain::{Explainer, Scene},
    fit::{node_affinity, selector},
    plan::scale_up,
};
use muster_model::{
    Quantity,
    k8s::{LabelSelector, Labels, NodeSelector},
};
use serde::Deserialize;

use crate::{
    scenario,
    simulate::{Question, Source, load, simulate},
};

/// Larger clusters only make a run slower.
const MOST_PODS: usize = 60;
const MOST_MACHINES: usize = 24;
/// Deeper or longer texts test the readers' limits, which have tests of their own.
const LONGEST_TEXT: usize = 1 << 14;

/// A target: panics when the input shows that something is wrong.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Target); 5] = [
    ("quantity", quantity),
    ("selector", selector),
    ("manifest", manifest),
    ("scenario", scenario),
    ("plan", plan),
];

/// A quantity that is read can be written, and is then the same; sums never wrap.
pub fn quantity(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut parts = text.splitn(2, '\n');
    let Some(Ok(first)) = parts.next().map(str::parse::<Quantity>) else { return };
    let written = first.to_string();
    let again: Quantity = written.parse().expect("what we write is a quantity");
    assert_eq!(again.to_string(), written, "the canonical form is its own canonical form");
    assert_eq!((again.value(), again.milli()), (first.value(), first.milli()), "{text} became {written}");
    if let Some(Ok(second)) = parts.next().map(str::parse::<Quantity>) {
        let sum = first + second;
        assert_eq!(sum, second + first);
        assert!(second.nanos() < 0 || sum >= first, "{first} + {second} = {sum}");
        assert_eq!(first.cmp(&second), second.cmp(&first).reverse());
    }
}

/// Selectors and labels as they stand in objects.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Selectors {
    labels: Labels,
    selector: Option<LabelSelector>,
    nodes: Option<NodeSelector>,
    name: String,
}

/// A selector says yes or no, never both, and one that is not valid selects nothing.
pub fn selector(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(found) = serde_json::from_str::<Selectors>(text) else { return };
    if let Some(selector) = &found.selector {
        let says = selector::selects(Some(selector), &found.labels);
        assert_eq!(says, selector::selects(Some(selector), &found.labels));
        assert!(!says || selector::is_valid(selector), "a selector that is not valid selected something");
    }
    assert!(!selector::selects(None, &found.labels), "no selector selects nothing");
    if let Some(nodes) = &found.nodes {
        let any = node_affinity::any_term_matches(nodes, &found.labels, &found.name);
        let single = |term| node_affinity::term_matches(term, &found.labels, &found.name);
        assert_eq!(any, nodes.node_selector_terms.iter().any(single), "terms are alternatives");
    }
}

/// Any text is read or set aside, and what was read can be asked about.
pub fn manifest(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if text.len() > LONGEST_TEXT {
        return;
    }
    let loaded = load(&[Source { name: "fuzz.yaml".to_owned(), text: text.to_owned() }], None);
    for fault in &loaded.set_aside {
        assert!(!fault.problem.is_empty() && !fault.to_string().is_empty());
    }
    if is_small(&loaded.snapshot) {
        let question = Question { consolidate: true, ..Question::default() };
        let answer = simulate(loaded, &question, &[]).expect("a question without names can be asked");
        assert!(answer.audit.is_empty(), "{:?}", answer.audit);
    }
}

/// A scenario is refused with a reason, or planned legally, and every pod has an explanation.
pub fn scenario(data: &[u8]) {
    let Ok(snapshot) = scenario::load(data) else { return };
    if !is_small(&snapshot) {
        return;
    }
    let mut plan = scale_up(&snapshot).plan;
    let _ = complete(&snapshot, &mut plan);
    let findings = audit(&snapshot, &plan);
    assert!(findings.is_empty(), "{findings}");
    let scene = Scene::new(&snapshot, &plan);
    let explainer = Explainer::new(&scene);
    for pod in &snapshot.cluster.pods {
        assert!(explainer.pod(&pod.key()).is_some());
    }
}

/// Any plan for any snapshot is judged, and twice the same.
pub fn plan(data: &[u8]) {
    let Ok((snapshot, plan)) = serde_json::from_slice::<(Snapshot, Plan)>(data) else { return };
    if is_small(&snapshot) {
        let first = audit(&snapshot, &plan).to_string();
        assert_eq!(first, audit(&snapshot, &plan).to_string());
        let mut own = scale_up(&snapshot).plan;
        let _ = complete(&snapshot, &mut own);
        let _ = audit(&snapshot, &own);
    }
}

fn is_small(snapshot: &Snapshot) -> bool {
    let asked: u64 =
        snapshot.pools.iter().map(|pool| u64::from(pool.fixed.unwrap_or(0)) + u64::from(pool.min)).sum();
    snapshot.cluster.pods.len() <= MOST_PODS
        && snapshot.cluster.nodes.len() + snapshot.hosts.len() <= MOST_MACHINES
        && snapshot.pools.len() <= MOST_MACHINES
        && snapshot.cluster.daemon_sets.len() <= MOST_MACHINES
        && asked <= MOST_MACHINES as u64
}
