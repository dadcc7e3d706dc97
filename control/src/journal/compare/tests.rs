//! Decisions that differ in one thing at a time, and in several.

use std::sync::Arc;

use muster_engine::{
    Plan, Snapshot,
    plan::{Removal, Source},
    snapshot::{Gap, Hold, Host, HostState, Member, Pool, Scope, Stops, Template},
};
use muster_model::{ClusterId, Timestamp, store::Revision};
use serde_json::json;

use super::*;
use crate::{
    journal::{Action, ActionKind, Also, Cause, Draft, Frame, FrameKind, Outcome, Told},
    planner::decide,
};

/// A decision with everything that it rests on.
struct Made {
    decision: Decision,
    snapshot: Snapshot,
    plan: Plan,
}

impl Made {
    fn side(&self) -> Side<'_> {
        Side { decision: &self.decision, frame: Some((&self.snapshot, &self.plan)) }
    }

    fn forgotten(&self) -> Side<'_> {
        Side { decision: &self.decision, frame: None }
    }
}

/// Pool `web` of four hosts with 8 cpu each, all off, and `pods` pods of 7 cpu.
fn world(pods: usize) -> Snapshot {
    let node = json!({"metadata": {"name": "t"}, "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}}});
    let template = Template {
        name: "small".into(),
        node: Arc::new(serde_json::from_value(node).unwrap()),
        ..Template::default()
    };
    let pool = Pool { name: "web".into(), max: 4, templates: vec![template], ..Pool::default() };
    let host = |number: usize| Host {
        name: format!("web-{number}").into(),
        pool: "web".into(),
        template: "small".into(),
        state: HostState::Off,
        price: 100_000,
        ..Host::default()
    };
    let pod = |number: usize| {
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": format!("cart-{number}")},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "7"}}}]},
        }))
        .unwrap()
    };
    let mut snapshot = Snapshot {
        now: Timestamp::from_millis(1_000_000),
        pools: vec![pool],
        hosts: (1..=4).map(host).collect(),
        ..Snapshot::default()
    };
    snapshot.cluster.pods = (1..=pods).map(pod).collect();
    snapshot
}

fn changed(mut snapshot: Snapshot, change: impl FnOnce(&mut Snapshot)) -> Snapshot {
    change(&mut snapshot);
    snapshot
}

/// The decision that the engine makes of a moment.
fn made(number: u64, snapshot: Snapshot) -> Made {
    let plan = decide(&snapshot).plan;
    with_plan(number, snapshot, plan)
}

fn with_plan(number: u64, snapshot: Snapshot, plan: Plan) -> Made {
    let cluster: ClusterId = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
    let count = |list: usize| u32::try_from(list).unwrap();
    let action = |kind, host: Option<String>, node: Option<String>, because: &str| Action {
        kind,
        pool: "web".into(),
        host,
        node,
        template: "small".into(),
        advice: false,
        because: because.into(),
        pods: Vec::new(),
        pod_count: 1,
        evidence: None,
    };
    let mut actions: Vec<Action> = Vec::new();
    for new in &plan.new_nodes {
        let Source::Host { host } = &new.source else { panic!("only hosts here") };
        actions.push(action(ActionKind::Wake, Some(host.to_string()), None, "1 pod waits for it"));
    }
    for gone in &plan.removals {
        actions.push(action(ActionKind::Remove, None, Some(gone.node.to_string()), "unneeded for 10m"));
    }
    let told = plan.unplaced.first().map(|pod| Told {
        about: format!("pod/{pod}"),
        count: count(plan.unplaced.len()),
        code: "PoolAtMaximum".into(),
        headline: format!("pod {pod}: pool web is full"),
    });
    let state = if actions.is_empty() { OutcomeState::Quiet } else { OutcomeState::Acted };
    let draft = Draft {
        cluster_id: cluster,
        cluster_name: "lab".into(),
        project: "lab".into(),
        at: snapshot.now,
        headline: format!("{} nodes more", plan.new_nodes.len()),
        cause: Cause::default(),
        new_nodes: count(plan.new_nodes.len()),
        removals: count(plan.removals.len()),
        placed: count(plan.placements.len()),
        unplaced: count(plan.unplaced.len()),
        pools: Vec::new(),
        actions,
        more_actions: 0,
        also: Also::default(),
        told: told.into_iter().collect(),
        findings: Vec::new(),
        outcome: Outcome { state, at: snapshot.now, text: "things to do".into(), effects: Vec::new() },
    };
    let frame = Frame { kind: FrameKind::Key, key: number, pieces: 1, bytes: 1, sha256: String::new() };
    Made { decision: draft.into_decision(number, Revision(1), frame), snapshot, plan }
}

/// `pods: pods waiting 1 → 3`, one line for each row.
fn rows(changes: &[Change]) -> Vec<String> {
    let line = |one: &Change| format!("{}: {} {} → {}", one.subject.as_str(), one.title(), one.from, one.to);
    changes.iter().map(line).collect()
}

fn hold(scope: Scope, stops: Stops, why: &str) -> Hold {
    Hold { scope, stops, why: why.into(), until: None }
}

#[test]
fn a_decision_does_not_differ_from_itself_nor_from_its_like() {
    let (first, second) = (made(1, world(2)), made(2, world(2)));
    for (from, to, summary) in [
        (&first, &first, "Both are decision 55440000-1: nothing differs."),
        (&first, &second, "Nothing differs: both looked at the same and did the same."),
    ] {
        let compared = compare(from.side(), to.side());
        assert!(compared.same && compared.inputs.is_empty() && compared.outcome.is_empty(), "{compared:#?}");
        assert_eq!((compared.summary.as_str(), compared.because), (summary, None));
        assert!(compared.text.starts_with(summary), "{}", compared.text);
    }
}

/// Compares what is decided on two snapshots, there and back.
#[track_caller]
fn differs(
    from: Snapshot,
    to: Snapshot,
    because: Option<Blame>,
    inputs: &[&str],
    outcome: &[&str],
    summary: &str,
) {
    let (first, second) = (made(1, from), made(2, to));
    let compared = compare(first.side(), second.side());
    assert_eq!(rows(&compared.inputs), inputs, "what they looked at");
    assert_eq!(rows(&compared.outcome), outcome, "what they did");
    assert_eq!((compared.summary.as_str(), compared.because), (summary, because));
    // There and back again: the rows are the same ones the other way round.
    let back = compare(second.side(), first.side());
    assert_eq!((back.inputs.len(), back.outcome.len()), (compared.inputs.len(), compared.outcome.len()));
}

#[test]
fn what_differs_is_named_and_what_made_it_so() {
    // The world alone: more pods.
    differs(
        world(1),
        world(3),
        Some(Blame::World),
        &["pods: pods waiting 1 → 3"],
        &[
            "growth: called up in web 1 → 3",
            "placement: pods given a place 1 → 3",
            "size: nodes it is to have of web 1 → 3",
        ],
        "3 machines are called up in web instead of 1, because pods waiting went from 1 to 3.",
    );
    // A rule alone: a larger maximum.
    differs(
        changed(world(3), |world| world.pools[0].max = 1),
        world(3),
        Some(Blame::Rules),
        &["pools: maximum of web 1 → 4"],
        &[
            "growth: called up in web 1 → 3",
            "refusal: pods without a place 2 → 0",
            "refusal: refused, PoolAtMaximum 2 → 0",
            "placement: pods given a place 1 → 3",
            "size: nodes it is to have of web 1 → 3",
        ],
        "3 machines are called up in web instead of 1 and no pod is without a place instead of 2, because the maximum of web went from 1 to 4.",
    );
}

#[test]
fn where_the_world_and_the_rules_changed_the_one_that_mattered_is_named() {
    // Both, and the rule made no difference.
    differs(
        world(1),
        changed(world(3), |world| world.pools[0].max = 9),
        Some(Blame::World),
        &["pods: pods waiting 1 → 3", "pools: maximum of web 4 → 9"],
        &[
            "growth: called up in web 1 → 3",
            "placement: pods given a place 1 → 3",
            "size: nodes it is to have of web 1 → 3",
        ],
        "3 machines are called up in web instead of 1, because pods waiting went from 1 to 3; the bounds, policies and holds that changed as well made no difference.",
    );
    // Both, and without the rule it would have been as before.
    differs(
        changed(world(2), |world| world.pools[0].max = 1),
        changed(world(3), |world| world.pools[0].max = 3),
        Some(Blame::Rules),
        &["pods: pods waiting 2 → 3", "pools: maximum of web 1 → 3"],
        &[
            "growth: called up in web 1 → 3",
            "refusal: pods without a place 1 → 0",
            "refusal: refused, PoolAtMaximum 1 → 0",
            "placement: pods given a place 1 → 3",
            "size: nodes it is to have of web 1 → 3",
        ],
        "3 machines are called up in web instead of 1 and no pod is without a place instead of 1, because the maximum of web went from 1 to 3; without the changed bounds, policies and holds it would have done as before.",
    );
    // Both, and neither alone.
    differs(
        changed(world(1), |world| world.pools[0].max = 2),
        changed(world(4), |world| world.pools[0].max = 4),
        Some(Blame::Both),
        &["pods: pods waiting 1 → 4", "pools: maximum of web 2 → 4"],
        &[
            "growth: called up in web 1 → 4",
            "placement: pods given a place 1 → 4",
            "size: nodes it is to have of web 1 → 4",
        ],
        "4 machines are called up in web instead of 1, because the maximum of web went from 2 to 4 and pods waiting went from 1 to 4.",
    );
}

#[test]
fn a_hold_is_a_reason_and_a_price_may_be_none() {
    // Somebody says stop.
    differs(
        world(1),
        changed(world(1), |world| world.holds.push(hold(Scope::Everything, Stops::Both, "frozen by ann"))),
        Some(Blame::Rules),
        &["holds: hold on everything none → no change: frozen by ann"],
        &[
            "growth: called up in web 1 → 0",
            "refusal: pods without a place 0 → 1",
            "refusal: refused, PoolAtMaximum 0 → 1",
            "placement: pods given a place 1 → 0",
            "size: nodes it is to have of web 1 → 0",
            "state: what became of it acted → quiet",
        ],
        "No machine is called up in web instead of 1 and 1 pod is without a place instead of 0, because the hold on everything began (no change: frozen by ann).",
    );
    // Other inputs, the same outcome.
    differs(
        world(1),
        changed(world(1), |world| world.hosts[3].price = 250_000),
        None,
        &["prices: price of a host of web 0.1 an hour → 0.25 an hour"],
        &[],
        "They did the same, although the price of a host of web went from 0.1 an hour to 0.25 an hour.",
    );
}

#[test]
fn every_kind_of_input_has_its_row() {
    #[track_caller]
    fn check(change: impl FnOnce(&mut Snapshot), expected: &str) {
        let (from, to) = (world(1), changed(world(1), change));
        let found = rows(&inputs::differences(&from, &to));
        assert!(found.iter().any(|row| row == expected), "{expected} is not in {found:#?}");
    }
    let member = |node: &str| (Arc::from(node), Member { pool: "web".into(), ..Member::default() });
    check(|world| world.pools[0].min = 2, "pools: minimum of web 0 → 2");
    check(|world| world.pools[0].fixed = Some(3), "pools: fixed size of web none → 3");
    check(|world| world.pools[0].demand.scale_down_percent = Some(40), "pools: low mark of web none → 40 %");
    check(
        |world| world.pools[0].demand.trigger = Some(muster_engine::snapshot::Trigger::Up),
        "pools: trigger of web none → grow",
    );
    check(|world| world.pools.clear(), "pools: pool of web there → none");
    check(|world| world.hosts[0].state = HostState::Failed, "hosts: hosts failed in web 0 → 1");
    check(|world| world.hosts[0].state = HostState::Failed, "hosts: hosts off in web 4 → 3");
    check(
        |world| world.hosts[0].recent_failures = 2,
        "hosts: health of host web-1 in web good → 2 failures to wake in a day",
    );
    check(|world| world.members.extend([member("n1")]), "nodes: nodes ready in web 0 → 1");
    check(|world| world.limits.max_nodes = Some(9), "limits: most nodes of the cluster none → 9");
    check(
        |world| world.limits.power.milliwatts = Some(6_000_000),
        "limits: bound on power of all hosts none → 6000 W",
    );
    check(
        |world| {
            world.gaps.push(Gap { scope: Scope::Pool("web".into()), why: "the trigger is silent".into() });
        },
        "gaps: not known of pool web none → the trigger is silent",
    );
    check(
        |world| world.holds.push(hold(Scope::Host("web-1".into()), Stops::Growth, "held by ann: new disks")),
        "holds: hold on host web-1 none → no growth: held by ann: new disks",
    );
    // What has no row of its own is not passed over.
    check(
        |world| {
            world
                .cluster
                .namespaces
                .push(serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap());
        },
        "other: other properties of objects as they were → changed",
    );
}

#[test]
fn time_alone_takes_machines_away() {
    let serving = changed(world(0), |world| {
        world.members.extend([(Arc::from("n1"), Member { pool: "web".into(), ..Member::default() })]);
    });
    let later = changed(serving.clone(), |world| world.now = Timestamp::from_millis(1_000_000 + 605_000));
    let removal =
        Plan { removals: vec![Removal { node: "n1".into(), moves: Vec::new() }], ..Plan::default() };
    let first = with_plan(1, serving.clone(), Plan::default());
    let compared = compare(first.side(), with_plan(2, later, removal.clone()).side());
    assert_eq!(compared.because, Some(Blame::Time));
    assert_eq!(
        compared.summary,
        "1 machine is stood down in web instead of 0, because 10m5s passed and nothing else changed."
    );
    let stood_down = compared.outcome.iter().find(|change| change.subject == Subject::Removal).unwrap();
    assert_eq!(stood_down.to_because.as_deref(), Some("unneeded for 10m"));
    // The same moment, another plan: another version of the engine.
    let other = compare(first.side(), with_plan(2, serving, removal).side());
    assert_eq!(other.because, Some(Blame::Engine));
    assert!(other.summary.contains("another version decided"), "{}", other.summary);
}

#[test]
fn what_is_no_longer_kept_is_said_and_the_record_answers() {
    let (first, mut second) = (made(1, world(1)), made(2, world(3)));
    second.decision.cause = Cause {
        changes: vec!["pending pods: 1 → 3".into()],
        after: Some(first.decision.id.clone()),
        ..Cause::default()
    };
    let compared = compare(first.forgotten(), second.side());
    assert!(compared.inputs.is_empty() && !compared.same);
    assert_eq!(compared.notes.len(), 1);
    assert!(compared.notes[0].contains("55440000-1 looked at is no longer kept"), "{:?}", compared.notes);
    assert_eq!(
        compared.summary,
        "3 machines are called up in web instead of 1, because of pending pods: 1 → 3."
    );
    second.decision.cause = Cause::default();
    let compared = compare(first.forgotten(), second.forgotten());
    assert_eq!(compared.notes.len(), 2);
    assert!(
        compared.summary.ends_with("why is no longer known, because what they looked at is not kept."),
        "{}",
        compared.summary
    );
}

#[test]
fn long_lists_of_names_are_cut_and_counted() {
    let set =
        |names: std::ops::Range<usize>| names.map(|name| format!("p{name:02}")).collect::<BTreeSet<_>>();
    assert_eq!(names(&set(0..2), &set(1..3)), ["- p00", "+ p02"]);
    assert_eq!(names(&set(0..0), &set(0..30)).len(), MOST_NAMES + 1);
    let both = names(&set(0..20), &set(20..40));
    assert_eq!(both, ["- p00", "- p01", "- p02", "+ p20", "+ p21", "+ p22", "and 34 more"]);
    let few_came = names(&set(0..20), &set(20..21));
    assert_eq!(few_came, ["- p00", "- p01", "- p02", "- p03", "- p04", "+ p20", "and 15 more"]);
}
