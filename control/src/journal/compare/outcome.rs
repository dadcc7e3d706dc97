//! What differs in what two decisions did: machines called up and stood down, pods and pools refused, what became of it.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::{Plan, Snapshot, plan::Source, snapshot::MemberState};

use super::{Change, Side, Subject, sets};
use crate::journal::{Action, ActionKind, Decision, OutcomeState};

/// What a decision does to one pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) up: BTreeSet<String>,
    pub(super) down: BTreeSet<String>,
    /// Nodes that the pool is to have; unknown without a snapshot.
    pub(super) size: Option<usize>,
}

/// By pool, as the plan says.
pub(super) fn planned(snapshot: &Snapshot, plan: &Plan) -> BTreeMap<String, Tally> {
    let mut all: BTreeMap<String, Tally> =
        snapshot.pools.iter().map(|pool| (pool.name.to_string(), Tally::default())).collect();
    for new in &plan.new_nodes {
        let tally = all.entry(new.pool.to_string()).or_default();
        let name = match &new.source {
            Source::Host { host } => host.to_string(),
            Source::Bought { .. } => {
                let nth = tally
                    .up
                    .iter()
                    .filter(|name| name.starts_with(&format!("{} no. ", new.template)))
                    .count();
                format!("{} no. {}", new.template, nth + 1)
            }
        };
        tally.up.insert(name);
    }
    for removal in &plan.removals {
        let pool = snapshot.members.get(&removal.node).map(|member| member.pool.to_string());
        all.entry(pool.unwrap_or_default()).or_default().down.insert(removal.node.to_string());
    }
    for (pool, tally) in &mut all {
        let stays = |state: MemberState| state != MemberState::Leaving;
        let members = snapshot.members.values().filter(|one| *one.pool == **pool && stays(one.state)).count();
        tally.size = Some((members + tally.up.len()).saturating_sub(tally.down.len()));
    }
    all
}

/// By pool, as far as the record tells.
fn recorded(decision: &Decision) -> BTreeMap<String, Tally> {
    let mut all: BTreeMap<String, Tally> = BTreeMap::new();
    for (number, action) in (1..).zip(&decision.actions) {
        let tally = all.entry(action.pool.clone()).or_default();
        let name = action.host.clone().or_else(|| action.node.clone());
        match action.kind {
            ActionKind::Remove => tally.down.insert(action.node.clone().or(name).unwrap_or_default()),
            ActionKind::Wake | ActionKind::Ask => {
                tally.up.insert(name.unwrap_or_else(|| format!("{} no. {number}", action.template)))
            }
        };
    }
    all
}

fn tally(side: Side<'_>) -> BTreeMap<String, Tally> {
    match side.frame {
        Some((snapshot, plan)) => planned(snapshot, plan),
        None => recorded(side.decision),
    }
}

/// The reason that a decision gave for what it did to a pool: the first, and how many others there are.
fn reason(decision: &Decision, pool: &str, grows: bool) -> Option<String> {
    let about = |action: &&Action| action.pool == pool && (action.kind != ActionKind::Remove) == grows;
    let all: BTreeSet<&str> = decision.actions.iter().filter(about).map(|action| &*action.because).collect();
    let first = decision.actions.iter().find(about)?;
    Some(match all.len() {
        1 => first.because.clone(),
        many => format!("{} (and {} more)", first.because, many - 1),
    })
}

/// Every difference of what was to be done, said and achieved.
pub(super) fn differences(from: Side<'_>, to: Side<'_>) -> Vec<Change> {
    let (old, new) = (tally(from), tally(to));
    let (a, b) = (from.decision, to.decision);
    let mut all = Vec::new();
    let pools: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let nothing = Tally::default();
    for pool in pools {
        let (was, is) = (old.get(pool).unwrap_or(&nothing), new.get(pool).unwrap_or(&nothing));
        for (subject, name, grows, had, has) in [
            (Subject::Growth, "called up", true, &was.up, &is.up),
            (Subject::Removal, "stood down", false, &was.down, &is.down),
        ] {
            if let Some(change) = sets(subject, name, had, has) {
                let mut change = change.of(pool);
                (change.from_because, change.to_because) = (reason(a, pool, grows), reason(b, pool, grows));
                all.push(change);
            }
        }
        if let (Some(before), Some(after)) = (was.size, is.size)
            && before != after
        {
            let change =
                Change::new(Subject::Size, "nodes it is to have", before.to_string(), after.to_string());
            all.push(change.of(pool));
        }
    }
    all.extend(refusals(a, b));
    if a.placed != b.placed {
        all.push(Change::new(
            Subject::Placement,
            "pods given a place",
            a.placed.to_string(),
            b.placed.to_string(),
        ));
    }
    if a.findings != b.findings {
        let count = |one: &Decision| one.findings.len().to_string();
        let mut change = Change::new(Subject::Audit, "faults that the audit found", count(a), count(b));
        (change.from_because, change.to_because) = (a.findings.first().cloned(), b.findings.first().cloned());
        all.push(change);
    }
    if outcome(a) != outcome(b) {
        let mut change = Change::new(Subject::State, "what became of it", outcome(a), outcome(b));
        (change.from_because, change.to_because) =
            (Some(a.outcome.text.clone()), Some(b.outcome.text.clone()));
        all.push(change);
    }
    all.sort_by_key(|change| change.subject);
    all
}

/// A decision that is about to be carried out is no other than one that was.
const fn outcome(decision: &Decision) -> &'static str {
    match decision.outcome.state {
        OutcomeState::Planned => OutcomeState::Acted.as_str(),
        other => other.as_str(),
    }
}

/// Pods without a place, by the reason, and pools that cannot be planned.
fn refusals(from: &Decision, to: &Decision) -> Vec<Change> {
    type Key<'d> = (Option<&'d str>, &'d str);
    let told = |decision: &'_ Decision| -> BTreeMap<(Option<String>, String), (u32, String)> {
        let mut all: BTreeMap<(Option<String>, String), (u32, String)> = BTreeMap::new();
        for one in &decision.told {
            let pool = one.about.strip_prefix("pool/").map(str::to_owned);
            let entry = all.entry((pool, one.code.clone())).or_insert_with(|| (0, one.headline.clone()));
            entry.0 += one.count;
        }
        all
    };
    let (old, new) = (told(from), told(to));
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let mut all = Vec::new();
    if from.unplaced != to.unplaced {
        let first = |decision: &Decision| {
            decision.told.iter().find(|one| one.about.starts_with("pod/")).map(|one| one.headline.clone())
        };
        let mut change = Change::new(
            Subject::Refusal,
            "pods without a place",
            from.unplaced.to_string(),
            to.unplaced.to_string(),
        );
        (change.from_because, change.to_because) = (first(from), first(to));
        all.push(change);
    }
    for key in keys {
        let (was, is) = (old.get(key), new.get(key));
        let count = |one: Option<&(u32, String)>| one.map_or(0, |one| one.0);
        if count(was) == count(is) {
            continue;
        }
        let (pool, code): Key<'_> = (key.0.as_deref(), &key.1);
        let name =
            if pool.is_some() { format!("cannot be planned, {code}") } else { format!("refused, {code}") };
        let mut change = Change::new(Subject::Refusal, name, count(was).to_string(), count(is).to_string());
        change.pool = pool.map(str::to_owned);
        (change.from_because, change.to_because) =
            (was.map(|one| one.1.clone()), is.map(|one| one.1.clone()));
        all.push(change);
    }
    all
}
