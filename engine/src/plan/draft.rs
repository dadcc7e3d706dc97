//! A solution written down as a plan: names for machines, pods for classes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use muster_model::k8s::{Pod, PodKey};

use super::{
    hash::FixedSet,
    offers::{Way, WaySource, Ways},
    scene::Scene,
    translate::Translated,
    types::{NewNode, Placement, Plan, Source, Target},
};
use crate::{snapshot::Snapshot, solve};

/// Everything needed to write a solution down as a plan.
pub(crate) struct Draft<'d> {
    pub(crate) snapshot: &'d Snapshot,
    pub(crate) ways: &'d Ways,
    pub(crate) scene: &'d Scene<'d>,
    pub(crate) pending: &'d [&'d Pod],
    pub(crate) translated: &'d Translated<'d>,
}

impl Draft<'_> {
    pub(crate) fn plan(&self, solution: &solve::Solution, left_out: &BTreeSet<usize>) -> Plan {
        let required = self.scene.required.len() as u32;
        let mut names = Names::new(self.snapshot);
        let ways = self.scene.required.iter().map(|required| required.way);
        let ways = ways.chain(solution.machines.iter().map(|&shape| shape as usize));
        let new_nodes = ways.map(|at| names.node(&self.ways.list[at], at)).collect();
        let mut next = vec![0_usize; self.translated.classes.len()];
        // In the order in which they lie in memory; steps then come class by class.
        let mut keys: Vec<Option<PodKey>> = self.pending.iter().map(|pod| Some(pod.key())).collect();
        let mut take = |member: u32| keys[member as usize].take().expect("a pod is in one class, once");
        let mut placements = Vec::with_capacity(self.pending.len());
        for step in &solution.steps {
            let on = match step.target {
                solve::Target::Node(at) if (at as usize) < self.scene.real_nodes => {
                    Target::Node(self.scene.nodes[at as usize].metadata.name.clone())
                }
                solve::Target::Node(at) => Target::New(at - self.scene.real_nodes as u32),
                solve::Target::Machine(at) => Target::New(required + at),
            };
            let members = &self.translated.classes[step.class as usize].members;
            let from = &mut next[step.class as usize];
            for &member in &members[*from..*from + step.count as usize] {
                placements.push(Placement { pod: take(member), on: on.clone() });
            }
            *from += step.count as usize;
        }
        let mut unplaced: Vec<_> = self
            .translated
            .classes
            .iter()
            .zip(&next)
            .flat_map(|(class, &from)| &class.members[from..])
            .map(|&member| take(member))
            .collect();
        let groups = left_out.iter().flat_map(|&group| &self.snapshot.groups[group].pods);
        let pending: BTreeSet<_> = if left_out.is_empty() {
            BTreeSet::new()
        } else {
            self.scene.pending.iter().map(|pod| pod.key()).collect()
        };
        unplaced.extend(groups.filter(|pod| pending.contains(*pod)).cloned());
        if !self.snapshot.spent.is_empty() {
            let spent = |pod: &&Pod| pod.is_pending() && self.snapshot.spent(pod).is_some();
            unplaced.extend(self.snapshot.cluster.pods.iter().filter(spent).map(Pod::key));
        }
        unplaced.sort_unstable();
        unplaced.dedup();
        Plan { new_nodes, placements, removals: Vec::new(), unplaced }
    }
}

/// Gives new nodes names that nothing else has.
struct Names<'a> {
    snapshot: &'a Snapshot,
    taken: FixedSet<&'a str>,
    numbers: BTreeMap<usize, u32>,
    hosts: BTreeMap<usize, usize>,
}

impl<'a> Names<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        let taken = snapshot.cluster.nodes.iter().map(muster_model::k8s::Node::name).collect();
        Self { snapshot, taken, numbers: BTreeMap::new(), hosts: BTreeMap::new() }
    }

    fn node(&mut self, way: &Way, at: usize) -> NewNode {
        let pool = &self.snapshot.pools[way.pool];
        let template = &pool.templates[way.template];
        let (name, source) = match &way.source {
            WaySource::Offering(offering) => {
                let offering = &template.offerings[*offering];
                let source = Source::Bought {
                    zone: offering.zone.clone(),
                    capacity_type: offering.capacity_type.clone(),
                };
                (self.fresh(way.pool, &pool.name), source)
            }
            WaySource::Hosts(hosts) => {
                let used = self.hosts.entry(at).or_default();
                let host = &self.snapshot.hosts[hosts[*used]];
                *used += 1;
                let free = !self.taken.contains(&*host.name);
                let name = if free { host.name.clone() } else { self.fresh(way.pool, &pool.name) };
                (name, Source::Host { host: host.name.clone() })
            }
        };
        NewNode { name, pool: pool.name.clone(), template: template.name.clone(), source, price: way.price }
    }

    fn fresh(&mut self, pool: usize, prefix: &str) -> Arc<str> {
        loop {
            let number = self.numbers.entry(pool).or_default();
            let name = format!("{prefix}-new-{number}");
            *number += 1;
            if !self.taken.contains(name.as_str()) {
                return name.into();
            }
        }
    }
}
