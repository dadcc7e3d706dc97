//! Why: for every pod, node, host and pool of a snapshot and its plan.
//!
//! Pure functions that return typed answers; [`text::render`] turns them into words. An answer is never
//! empty, what is not known is said to be unknown, and equal input gives equal text. Verdicts on nodes are
//! those by which plans are made ([`crate::down`]), worked out once when the first is asked for; reasons
//! against pods come from the exact filters and the limits of the snapshot, on the machine that comes
//! closest. Deliberately absent: history. What only the journal knows (when a loop last ran, why a node that is gone was removed) is not answered here.

mod amount;
mod blocker;
mod conflict;
mod constraint;
mod fix;
mod hosts;
mod limits;
mod node;
mod pod;
mod pool;
mod reason;
mod scene;
mod shelf;
mod templates;
pub mod text;
mod types;

pub use amount::{money, price, say, watts};
pub use reason::{Code, reference};
pub use scene::Scene;
pub use templates::{field_annotation, learned_annotation, learned_at_annotation, source_annotation};
pub use types::{
    Answer, BudgetView, Cause, Conflict, Fix, HostAnswer, HostRow, Match, Move, NewNodeCause, Next,
    NodeAnswer, NodeTally, PatchKind, PodAnswer, PoolAnswer, PoolRow, Requirement, TemplateField,
    TemplateView, Usage,
};

use muster_model::k8s::PodKey;

use scene::Stage;

/// The longest first line, in characters: it fits a terminal and an event.
pub const LONGEST_LINE: usize = 120;
/// Names offered when one is not found.
const MOST_NEAR: usize = 5;

/// Everything that can be asked about one snapshot and one plan for it.
#[derive(Debug)]
pub struct Explainer<'a, 's> {
    stage: Stage<'a, 's>,
}

impl<'a, 's> Explainer<'a, 's> {
    pub fn new(scene: &'a Scene<'s>) -> Self {
        Self { stage: Stage::new(scene) }
    }

    /// Why the pod has the place it has, or none.
    pub fn pod(&self, pod: &PodKey) -> Option<PodAnswer> {
        let found = self.stage.scene.snapshot.cluster.pods.iter().find(|other| is_named(other, pod))?;
        Some(pod::explain(&self.stage, found))
    }

    /// The headline of [`Explainer::pod`] and its cause, without looking for what would help.
    pub fn pod_headline(&self, pod: &PodKey) -> Option<(Code, String)> {
        let found = self.stage.scene.snapshot.cluster.pods.iter().find(|other| is_named(other, pod))?;
        Some(pod::headline_of(&self.stage, found))
    }

    /// Why the node stays or goes, or comes.
    pub fn node(&self, node: &str) -> Option<NodeAnswer> {
        node::explain(self.stage.scene, node).or_else(|| node::explain_new(self.stage.scene, node))
    }

    pub fn host(&self, host: &str) -> Option<HostAnswer> {
        Some(pool::explain_host(self.stage.scene, self.stage.scene.snapshot.host(host)?))
    }

    pub fn pool(&self, pool: &str) -> Option<PoolAnswer> {
        Some(pool::explain(self.stage.scene, self.stage.scene.snapshot.pool(pool)?))
    }

    /// The headline of [`Explainer::pool`] and what it is about, without looking at every node of the pool.
    pub fn pool_headline(&self, pool: &str) -> Option<(Code, String)> {
        Some(pool::headline(self.stage.scene, self.stage.scene.snapshot.pool(pool)?))
    }

    /// Those of `among` that are the same as `pod` in everything that decides.
    pub fn alike(&self, pod: &PodKey, among: &[PodKey]) -> Vec<PodKey> {
        let pods = &self.stage.scene.snapshot.cluster.pods;
        let Some(found) = pods.iter().find(|other| is_named(other, pod)) else { return Vec::new() };
        let among: std::collections::BTreeSet<&PodKey> = among.iter().collect();
        let same = pods.iter().filter(|other| {
            other.metadata.namespace == found.metadata.namespace
                && pod::same_spec(&other.spec, &found.spec)
                && among.contains(&other.key())
        });
        same.map(muster_model::k8s::Pod::key).collect()
    }

    /// Answers about whatever has that name: `pod/ns/name`, `node/n1`, `host/h1`, `pool/p`, or a bare name,
    /// which is looked for among pods, nodes, pools and hosts in that order.
    pub fn ask(&self, name: &str) -> Answer {
        let (kind, rest) = match name.split_once('/') {
            Some((kind, rest)) if is_kind(kind) => (Some(kind.trim_end_matches('s')), rest),
            _ => (None, name),
        };
        let wants = |wanted: &str| {
            kind.is_none_or(|kind| {
                kind == wanted
                    || (kind == "nodepool" && wanted == "pool")
                    || (kind == "baremetalnode" && wanted == "host")
            })
        };
        let pod = wants("pod").then(|| self.pod_named(rest)).flatten();
        let pod = pod.map(|answer| Answer::Pod(Box::new(answer)));
        let node =
            || wants("node").then(|| self.node(rest)).flatten().map(|answer| Answer::Node(Box::new(answer)));
        let pool =
            || wants("pool").then(|| self.pool(rest)).flatten().map(|answer| Answer::Pool(Box::new(answer)));
        let host =
            || wants("host").then(|| self.host(rest)).flatten().map(|answer| Answer::Host(Box::new(answer)));
        pod.or_else(node).or_else(pool).or_else(host).unwrap_or_else(|| self.unknown(name, rest))
    }

    /// `namespace/name`, or a name alone: in `default`, else wherever there is exactly one.
    fn pod_named(&self, name: &str) -> Option<PodAnswer> {
        if let Some((namespace, name)) = name.split_once('/') {
            return self.pod(&PodKey { namespace: namespace.into(), name: name.into() });
        }
        let pods = &self.stage.scene.snapshot.cluster.pods;
        let mut found = pods.iter().filter(|pod| *pod.metadata.name == *name);
        let first = found.next()?;
        let inside = |pod: &&muster_model::k8s::Pod| &*pod.metadata.namespace == "default";
        if found.next().is_none() {
            Some(pod::explain(&self.stage, first))
        } else {
            let all = pods.iter().filter(|pod| *pod.metadata.name == *name);
            Some(pod::explain(&self.stage, all.into_iter().find(inside)?))
        }
    }

    fn unknown(&self, name: &str, rest: &str) -> Answer {
        let snapshot = self.stage.scene.snapshot;
        let pods = snapshot.cluster.pods.iter().map(|pod| format!("pod/{}", pod.key()));
        let nodes = snapshot.cluster.nodes.iter().map(|node| format!("node/{}", node.name()));
        let pools = snapshot.pools.iter().map(|pool| format!("pool/{}", pool.name));
        let hosts = snapshot.hosts.iter().map(|host| format!("host/{}", host.name));
        let part = rest.rsplit('/').next().unwrap_or(rest);
        let stem = part.get(..part.len().div_ceil(2)).unwrap_or(part);
        let near: Vec<String> = pods
            .chain(nodes)
            .chain(pools)
            .chain(hosts)
            .filter(|other| other.contains(stem))
            .take(MOST_NEAR)
            .collect();
        let text = format!(
            "{name} is neither a pod nor a node, pool or host of the {} objects that were given",
            snapshot.cluster.pods.len()
                + snapshot.cluster.nodes.len()
                + snapshot.pools.len()
                + snapshot.hosts.len()
        );
        let cause =
            Cause::new(Code::Unknown, name, "metadata.name").found("nothing", name).saying(text.clone());
        Answer::Unknown { name: name.to_owned(), headline: one_line(&text), cause, near }
    }
}

fn is_named(pod: &muster_model::k8s::Pod, key: &PodKey) -> bool {
    pod.metadata.name == key.name && pod.metadata.namespace == key.namespace
}

fn is_kind(text: &str) -> bool {
    let words = ["pod", "node", "pool", "host", "nodepool", "baremetalnode"];
    words.contains(&text.trim_end_matches('s'))
}

/// `lead` and `text` in one line; if no number is said in it, `numbers` are added, and the rest gives way to them.
fn with_number(lead: &str, text: &str, numbers: &str) -> String {
    let said = format!("{lead}{text}");
    if text.contains(|c: char| c.is_ascii_digit()) {
        return one_line(&said);
    }
    let room = LONGEST_LINE.saturating_sub(numbers.chars().count() + " ()".len());
    one_line(&format!("{} ({numbers})", within(&said, room)))
}

/// One line of at most the longest length, whatever `text` is: it may have come from a user or another server.
pub fn one_line(text: &str) -> String {
    within(text, LONGEST_LINE)
}

/// At most `room` characters without a break, with an ellipsis for what is left out.
fn within(text: &str, room: usize) -> String {
    let plain;
    let text = if text.contains(breaks) {
        plain =
            text.split(breaks).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        &plain
    } else {
        text
    };
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(room.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Ends a line, or moves where the next character goes.
fn breaks(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_keeps_its_words_and_its_number() {
        assert_eq!(one_line("sum(\n  queue\r\n) > 5"), "sum( queue ) > 5");
        assert_eq!(one_line("as  it is"), "as  it is");
        let long = with_number(&format!("pod {} ", "x".repeat(300)), "waits", "4 cores");
        assert!(long.ends_with("… (4 cores)") && long.chars().count() == LONGEST_LINE, "{long}");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_one_line_that_fits(
            lead in any::<String>(),
            text in "(\\PC|[\\r\\n\\t\u{85}\u{2028}\u{2029}]|.{60}){0,4}",
            numbers in "[0-9]{1,5} [a-z]{0,30}",
        ) {
            for line in [one_line(&text), with_number(&lead, &text, &numbers)] {
                prop_assert!(line.chars().count() <= LONGEST_LINE, "{line:?}");
                prop_assert!(!line.contains(breaks) && line.lines().count() <= 1, "{line:?}");
                prop_assert_eq!(one_line(&line), line.as_str());
            }
        }
    }
}
