//! The reason codes of explanations: a stable, documented vocabulary.

use serde::Serialize;

/// Declares the codes together with what they mean, so that the reference cannot fall behind.
macro_rules! codes {
    ($($code:ident: $about:literal, $meaning:literal;)*) => {
        /// What an explanation names as a cause. Codes are never renamed; new ones may be added.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        pub enum Code {
            $(#[doc = $meaning] $code,)*
        }

        impl Code {
            pub const ALL: &[Self] = &[$(Self::$code),*];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$code => stringify!($code)),* }
            }

            /// What kind of thing the code is said about.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$code => $about),* }
            }

            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$code => $meaning),* }
            }
        }
    };
}

codes! {
    Running: "pod", "The pod is bound to a node.";
    Fits: "pod", "The pod has a place, on a node that is there or on one that the plan adds.";
    Finished: "pod", "The pod has succeeded or failed; it holds nothing any more.";
    Terminating: "pod", "The pod is being deleted.";
    Gated: "pod", "A scheduling gate holds the pod back; nobody looks for a node until it is removed.";
    Unknown: "any", "The object is not in what was given, so nothing can be said about it.";
    NoPools: "pod", "No pool was given, so nothing can make a node.";
    TemplateUnknown: "pool", "Nobody knows what a node of the pool looks like; it is not planned.";
    Frozen: "pool", "The pool is frozen; nothing is decided for it.";
    Held: "any", "A person or a policy says that this is not to change.";
    PoolMax: "pool", "The pool has as many nodes as its maximum allows.";
    PoolFixed: "pool", "The pool does not scale; it holds a fixed number of nodes.";
    PoolNewLimit: "pool", "The pool may not grow by more nodes in one plan.";
    PoolResourceLimit: "pool", "The sum of the pool's capacity would exceed its limit.";
    ClusterNodes: "cluster", "The cluster has as many nodes as it may have.";
    ClusterNewLimit: "cluster", "One plan may not add more nodes.";
    ClusterResourceLimit: "cluster", "The sum of the cluster's capacity would exceed its limit.";
    ClusterPriceLimit: "cluster", "The price of all nodes together would exceed its limit.";
    PowerLimit: "host", "Starting the host would exceed the watts of its rack or of all hosts.";
    WakingLimit: "host", "As many hosts start at this moment as may start at one time.";
    SlowGrowth: "pool", "So much is not ready there that only few machines may be on their way up at one time.";
    SoldOut: "pool", "A matching machine exists in the pool's templates, but none can be had now.";
    NoUsableHost: "pool", "A matching host exists, but none of them can be started now.";
    Contradiction: "pod", "Two requirements of the pod exclude each other; no node can satisfy both.";
    LabelMissing: "pod", "The node has no label that the pod asks for.";
    LabelDiffers: "pod", "The node has the label, with another value than the pod asks for.";
    NodeNamed: "pod", "The pod asks for a node by name.";
    TaintNotTolerated: "pod", "The node has a taint that the pod does not tolerate.";
    Cordoned: "node", "The node is cordoned.";
    ResourceShort: "pod", "The node cannot hold what the pod asks for.";
    TooManyPods: "node", "The node has as many pods as it may have.";
    PortTaken: "pod", "A port of the node that the pod asks for is in use.";
    Volume: "pod", "A volume of the pod cannot be used on the node.";
    Spread: "pod", "The pod's topology spread would become too uneven.";
    Affinity: "pod", "The pod has to be near pods that are not there.";
    AntiAffinity: "pod", "The pod may not be near pods that are there.";
    Devices: "pod", "The pod claims devices, which cannot be judged.";
    Feature: "pod", "The node lacks a feature that the pod needs.";
    GroupIncomplete: "pod", "The pod's group is placed all or none, and not all of it finds a place.";
    Competition: "pod", "The pod would fit alone; pods of higher priority or size take the places.";
    HostOff: "host", "The host is off and may be started.";
    HostInUse: "host", "The host already runs a node, or is starting one.";
    HostFailed: "host", "The host is quarantined after failures.";
    HostMaintenance: "host", "The host is in a person's hands.";
    HostLeaving: "host", "The host is being drained or switched off.";
    HostUnknown: "host", "Nobody could tell the state of the host, so it is not touched.";
    HostCritical: "host", "The hardware reports a critical reading; the host is never started.";
    HostBackoff: "host", "The host failed lately and is not tried again before a moment that is named.";
    HostShape: "host", "The host would start, but its node would not take the pod.";
    HostStarts: "host", "The plan starts the host.";
    Removable: "node", "Nothing keeps the node; its pods have other places.";
    Removed: "node", "The plan removes the node.";
    Planned: "node", "The plan adds the node.";
    NotOurs: "node", "The node belongs to no pool, so it is not ours to remove.";
    PoolMinimum: "node", "The pool has no more ready nodes than its minimum.";
    Unobserved: "any", "Something could not be observed; missing knowledge never lowers capacity.";
    ScaleDownDisabled: "node", "An annotation of the node forbids its removal.";
    PodUnmovable: "node", "A pod of the node may not be moved.";
    BudgetExhausted: "node", "A disruption budget allows no more evictions.";
    SeveralBudgets: "node", "A pod is covered by several budgets and cannot be evicted at all.";
    NoPlace: "node", "A pod of the node finds no other place.";
    PoolUnknown: "node", "The node names a pool that is not known.";
    Distrusted: "node", "So many nodes are not ready, or so few pods are seen, that the view of the cluster is not trusted.";
    LastThere: "node", "The node is the last of its pool in its rack or zone, and the pool asks for spread.";
    PoolGrowing: "node", "The plan adds nodes to the pool, so that none of it goes.";
    Needed: "node", "Pending pods are planned onto the node.";
    TriggerSays: "node", "The trigger of the pool does not ask for less.";
    Resting: "node", "The pool has grown lately and rests.";
    TooYoung: "node", "The node has not been there for long enough.";
    OnTime: "node", "The host was switched on lately and serves at least for a time that is named.";
    Headroom: "node", "The free room that the pool keeps would become too small.";
    HighMark: "node", "The pool would be used above its high mark without the node.";
    Kept: "node", "The node could go alone, but not together with those that go in this plan.";
    AboveMark: "node", "The node is used more than the mark below which nodes may go.";
    TooSoon: "node", "The node has not been unneeded for long enough.";
    Leaving: "node", "The node is already being removed.";
    Upcoming: "node", "The node is on its way.";
    Overdue: "node", "The node is on its way for longer than expected, and counts against the maximum.";
    Unready: "node", "The node is not ready, so nobody can say what runs there.";
    TriggerWaits: "pool", "A trigger asks for more, and its metric has had no time to show the node that came last.";
    Steady: "pool", "The pool neither grows nor shrinks in this plan.";
    Grows: "pool", "The plan adds nodes to the pool.";
    Shrinks: "pool", "The plan removes nodes from the pool.";
}

/// The reference of all codes, as Markdown.
pub fn reference() -> String {
    let mut text = String::from(
        "# Reason codes\n\n\
         Every explanation carries one of these codes (`code` in `-o json`). They are stable: a code is never\n\
         renamed or given another meaning; new ones may be added. This page is generated from the source.\n\n\
         | Code | Said about | Meaning |\n|---|---|---|\n",
    );
    for code in Code::ALL {
        for part in ["| `", code.name(), "` | ", code.about(), " | ", code.meaning(), " |\n"] {
            text.push_str(part);
        }
    }
    text
}
