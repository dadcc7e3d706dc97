//! Which node of a cluster is a host's.
//!
//! By one rule per host ([`NodeMatch`](super::NodeMatch)), never by several at once: a host that matches one
//! node by its name and another by its address is a mistake to show, not to settle. Whether the node is that
//! of *this* boot is another question, answered by its boot id and by lease renewals that we saw ourselves.

use thiserror::Error;

use super::{BareMetalNodeSpec, MacAddress, MatchBy};
use crate::k8s::Node;

/// Annotation or label with a node's hardware addresses; several are parted by commas (in a label a
/// hardware address is written with dashes).
pub const MAC_KEY: &str = "muster.dev/mac-address";
/// The scheme of the provider ids that we propose.
pub const PROVIDER_SCHEME: &str = "muster://";

/// Two nodes that both look like one host's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("nodes {} and {} both match host {host} by {by} {wanted:?}; give one of them another", .nodes.0, .nodes.1)]
pub struct Ambiguous {
    pub host: String,
    pub by: MatchBy,
    pub wanted: String,
    pub nodes: (String, String),
}

/// The node of a host among `nodes`, if there is one.
pub fn node_of<'a>(
    host: &str,
    spec: &BareMetalNodeSpec,
    nodes: impl IntoIterator<Item = &'a Node>,
) -> Result<Option<&'a Node>, Ambiguous> {
    let Some(wanted) = wanted(host, spec) else { return Ok(None) };
    let mut found: Option<&Node> = None;
    for node in nodes.into_iter().filter(|node| matches(spec.node_match.by, &wanted, node)) {
        if let Some(first) = found {
            return Err(Ambiguous {
                host: host.to_owned(),
                by: spec.node_match.by,
                wanted,
                nodes: (first.name().to_owned(), node.name().to_owned()),
            });
        }
        found = Some(node);
    }
    Ok(found)
}

/// What is looked for; `None` if the spec does not say enough, for example a rule by address without one.
fn wanted(host: &str, spec: &BareMetalNodeSpec) -> Option<String> {
    let given = spec.node_match.value.clone();
    match spec.node_match.by {
        MatchBy::ProviderId => {
            Some(given.or_else(|| spec.inventory_id.clone()).unwrap_or_else(|| host.to_owned()))
        }
        MatchBy::Name => Some(given.unwrap_or_else(|| host.to_owned())),
        MatchBy::Mac => given.or_else(|| spec.mac_address.map(|mac| mac.to_string())),
        MatchBy::Label => given.filter(|text| text.contains('=')),
    }
}

fn matches(by: MatchBy, wanted: &str, node: &Node) -> bool {
    match by {
        MatchBy::ProviderId => node.spec.provider_id.as_deref().is_some_and(|id| is_provider(id, wanted)),
        MatchBy::Name => node.name() == wanted,
        MatchBy::Mac => wanted.parse::<MacAddress>().is_ok_and(|mac| macs(node).any(|one| one == mac)),
        MatchBy::Label => {
            wanted.split_once('=').is_some_and(|(key, value)| node.metadata.labels.text(key) == Some(value))
        }
    }
}

/// Whole, or its last part: `muster://rack/node-7` and `metal3://ns/node-7` are both those of `node-7`.
fn is_provider(id: &str, wanted: &str) -> bool {
    id == wanted || id.split_once("://").is_some_and(|(_, path)| path.rsplit('/').next() == Some(wanted))
}

fn macs(node: &Node) -> impl Iterator<Item = MacAddress> {
    let meta = &node.metadata;
    [meta.annotations.text(MAC_KEY), meta.labels.text(MAC_KEY)]
        .into_iter()
        .flatten()
        .flat_map(|text| text.split(','))
        .filter_map(|text| text.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{NodeMatch, PowerInterface};

    fn node(json: serde_json::Value) -> Node {
        serde_json::from_value(json).unwrap()
    }

    fn nodes() -> Vec<Node> {
        vec![
            node(serde_json::json!({"metadata": {"name": "n1", "labels": {"host": "a"}},
                "spec": {"providerID": "muster://rack-1/a"}})),
            node(
                serde_json::json!({"metadata": {"name": "b", "labels": {"muster.dev/mac-address": "02-00-00-00-00-0b"}},
                "spec": {"providerID": "metal3://metal/c"}}),
            ),
            node(serde_json::json!({"metadata": {"name": "n3",
                "annotations": {"muster.dev/mac-address": "02:00:00:00:00:0d, 02:00:00:00:00:0c"}}})),
            node(serde_json::json!({"metadata": {"name": "n4"}, "spec": {"providerID": "other://x/c"}})),
        ]
    }

    #[test]
    fn a_node_is_found_by_the_one_rule_of_its_host() {
        #[track_caller]
        fn check(host: &str, by: MatchBy, value: Option<&str>, found: Option<&str>) {
            let mut spec = BareMetalNodeSpec::new("p", PowerInterface::Redfish);
            spec.node_match = NodeMatch { by, value: value.map(str::to_owned) };
            spec.mac_address = Some("02:00:00:00:00:0c".parse().unwrap());
            let nodes = nodes();
            let node = node_of(host, &spec, &nodes).unwrap();
            assert_eq!(node.map(Node::name), found, "{host} by {by} {value:?}");
        }
        check("a", MatchBy::ProviderId, None, Some("n1"));
        check("x", MatchBy::ProviderId, Some("muster://rack-1/a"), Some("n1"));
        check("rack-1", MatchBy::ProviderId, None, None); // a part of the path is not the id
        check("b", MatchBy::Name, None, Some("b"));
        check("a", MatchBy::Name, None, None); // its node has another name
        check("x", MatchBy::Mac, None, Some("n3"));
        check("x", MatchBy::Mac, Some("02:00:00:00:00:0b"), Some("b"));
        check("x", MatchBy::Label, Some("host=a"), Some("n1"));
        check("x", MatchBy::Label, Some("host=b"), None);
        check("x", MatchBy::Label, None, None);
    }

    #[test]
    fn two_nodes_that_match_one_host_are_a_fault() {
        let spec = BareMetalNodeSpec::new("p", PowerInterface::Redfish);
        let nodes = nodes();
        let error = node_of("c", &spec, &nodes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "nodes b and n4 both match host c by providerID \"c\"; give one of them another"
        );
    }

    #[test]
    fn the_inventory_id_is_the_provider_id_unless_the_rule_gives_one() {
        let mut spec = BareMetalNodeSpec::new("p", PowerInterface::Redfish);
        spec.inventory_id = Some("a".into());
        let nodes = nodes();
        assert_eq!(node_of("other", &spec, &nodes).unwrap().map(Node::name), Some("n1"));
    }
}
