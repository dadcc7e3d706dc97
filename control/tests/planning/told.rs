//! What is told of things that no plan counts on, of many things at once, and of a cluster that nobody sees now.

use std::sync::Arc;

use async_trait::async_trait;
use muster_control::{
    explain::{Explain, Explained, Subject},
    journal::{Decision, Outcome, OutcomeState, decision_key, head_key},
};
use muster_model::{
    Duration, Known, Timestamp, condition,
    k8s::PodKey,
    pool::Trigger,
    trigger::{Finding, Triggers},
};
use serde_json::json;

use crate::world::{World, pod};

async fn ask(world: &World, subject: Subject) -> Explained {
    let explain = Explain::new(world.parts.board.clone(), world.journal());
    let explained = explain.now(world.id, &subject, world.now()).await.unwrap();
    assert!(explained.headline.chars().count() <= 120, "{}", explained.headline);
    assert_eq!(explained.text.lines().next(), Some(explained.headline.as_str()));
    explained
}

fn named(name: &str) -> Subject {
    Subject::Pod(PodKey { namespace: "default".into(), name: name.into() })
}

/// Question 8: which pods caused this? Each of them finds the decision, and so does each host.
#[tokio::test]
async fn ops_u8_q08_a_decision_names_every_pod_and_host() {
    let mut world = World::new().await;
    world.global(|config| config.max_power_operations = 100).await;
    world.metal("web", 0, 60).await;
    for number in 0..48 {
        world.host(&format!("h{number:02}"), "web").await;
    }
    // Twelve fit on one host; the others fill one each.
    let small = (0..12).map(|number| pod(&format!("small-7d9f-{number:02}"), "600m"));
    let large = (0..44).map(|number| pod(&format!("large-{number:02}"), "7500m"));
    let pods: Vec<_> = small.chain(large).collect();
    let names: Vec<String> = pods.iter().map(|pod| pod.metadata.name.to_string()).collect();
    world.show(|objects| objects.pods.extend(pods));
    let decision = World::decided(&world.turn().await);
    assert_eq!((decision.new_nodes, decision.actions.len(), decision.more_actions), (45, 40, 5));
    assert!(decision.actions.iter().all(|action| action.pods.len() <= 10));
    assert_eq!((decision.also.hosts.len(), decision.also.unnamed), (5, 0));
    let text = muster_control::explain::describe(&decision, None);
    for host in &decision.also.hosts {
        assert!(text.contains(host.as_str()), "{text}");
    }
    world.show(|objects| objects.pods.clear());
    let _ = world.turn().await;
    for name in &names {
        let answer = ask(&world, named(name)).await;
        assert!(answer.headline.contains(decision.id.as_str()), "{}", answer.headline);
    }
    for host in &decision.also.hosts {
        let answer = ask(&world, Subject::Host(host.clone())).await;
        assert!(answer.history.iter().any(|one| one.id == decision.id), "{}", answer.text);
    }
}

/// A long journal is looked through page by page, and an answer says how far.
#[tokio::test]
async fn what_is_long_ago_is_found_or_it_is_said_how_far_was_looked() {
    let mut world = World::new().await;
    world.metal("web", 0, 3).await;
    world.host("a", "web").await;
    world.show(|objects| objects.pods.push(pod("web-1", "4")));
    let first = World::decided(&world.turn().await);
    world.show(|objects| objects.pods.clear());
    let quiet = |number: u64| Decision {
        number,
        at: first.at.saturating_add(Duration::from_secs(number)),
        actions: Vec::new(),
        outcome: Outcome { state: OutcomeState::Quiet, ..first.outcome.clone() },
        ..first.clone()
    };
    let fill = async |from: u64, to: u64| {
        for number in from..=to {
            world.put(&decision_key(world.id, number), &quiet(number)).await;
        }
        world.put(&head_key(world.id), &json!({ "number": to, "keyFrames": [], "oldest": 1 })).await;
    };
    fill(2, 20_050).await;
    let _ = world.parts.planner(world.id).turn(world.now(), None).await;
    let answer = ask(&world, named("web-1")).await;
    assert!(answer.headline.contains("gone; decision"), "{}", answer.headline);
    let nobody = ask(&world, named("web-2")).await;
    assert!(
        nobody.headline.contains("0 of the last 20050 decisions did anything for it"),
        "{}",
        nobody.headline
    );
    assert!(nobody.text.contains("looked through all 20050 decisions that are kept"), "{}", nobody.text);
    fill(20_051, 60_010).await;
    let answer = ask(&world, named("web-1")).await;
    assert!(answer.headline.contains("0 of the last 60000 decisions"), "{}", answer.headline);
    let back = quiet(11).at;
    let reach = format!("looked through the last 60000 decisions, back to {back}; there are older ones");
    assert!(answer.text.contains(&reach), "{}", answer.text);
}

#[tokio::test]
async fn a_host_that_no_plan_counts_on_says_why() {
    let mut world = World::new().await;
    let spec = json!({"platform": {"type": "baremetal", "baremetal": {"selector": {
        "matchLabels": {"purpose": "gpu"},
        "matchExpressions": [{"key": "site", "operator": "In", "values": ["a", "b"]}]}}},
        "nodeCount": 1});
    world.pool("web", spec).await;
    world.host_with("fits", json!({"pool": "web", "labels": {"purpose": "gpu", "site": "a"}}), |_| {}).await;
    world.host_with("other", json!({"pool": "web", "labels": {"purpose": "cpu"}}), |_| {}).await;
    world.host("mistyped", "wbe").await;
    world.put("/baremetal/nodes/broken/spec", &json!({ "pool": 7 })).await;
    let _ = world.turn().await;
    for (host, wanted) in [
        (
            "other",
            "host other belongs to pool web, whose selector leaves it out by 2 labels: label purpose is cpu and has to be gpu",
        ),
        (
            "mistyped",
            "host mistyped belongs to pool wbe, and cluster lab has 0 pools of servers of that name",
        ),
        ("broken", "host broken is in 0 plans: its record is set aside: "),
        ("nobody", "host nobody is not there as of "),
    ] {
        let answer = ask(&world, Subject::Host(host.into())).await;
        assert!(answer.headline.starts_with(wanted), "{}", answer.text);
    }
    assert!(ask(&world, Subject::Host("fits".into())).await.answer.is_some());
    // Nothing of it to whoever does not see its project.
    let explain = Explain::new(world.parts.board.clone(), world.journal());
    let subject = Subject::Host("mistyped".into());
    let answer = explain.now_for(world.id, &subject, world.now(), &|_| false).await.unwrap();
    assert!(answer.headline.contains(" is not there as of "), "{}", answer.headline);
}

#[tokio::test]
async fn nobody_says_what_is_in_a_cluster_that_is_not_connected() {
    let store = Arc::new(muster_store::memory::Memory::default());
    let mut world = World::with(store, false, "active").await;
    world.metal("web", 0, 3).await;
    let _ = world.turn().await;
    for (subject, name) in [(named("web-1"), "pod default/web-1"), (Subject::Node("a".into()), "node a")] {
        let answer = ask(&world, subject).await;
        let wanted = format!("{name} is unknown: cluster lab is not connected, 0 pods and nodes are seen");
        assert_eq!(answer.headline, wanted);
    }
    let host = ask(&world, Subject::Host("nobody".into())).await;
    assert!(host.headline.contains("is not there as of"), "{}", host.headline);
}

/// What the cluster asked for hours ago is not what it asks for.
#[tokio::test]
async fn an_old_view_is_no_load() {
    let mut world = World::new().await;
    world.metal("web", 0, 3).await;
    world.show(|objects| objects.pods.push(pod("web-1", "4")));
    let _ = world.turn().await;
    let pending = |world: &World| {
        let live = world.parts.board.get(world.id).unwrap();
        live.load_at(world.now()).map(|load| load.pending)
    };
    assert_eq!(pending(&world), Some(1));
    // Nobody looks any more.
    world.pass(Duration::from_secs(121));
    assert_eq!(pending(&world), None);
    // It is looked, and the API server says nothing.
    let _ = world.turn().await;
    assert_eq!(world.parts.board.get(world.id).unwrap().load, None);
    world.show(|_| {});
    let _ = world.turn().await;
    assert_eq!(pending(&world), Some(1));
}

/// Says the same of every trigger.
#[derive(Debug)]
struct Says(Result<bool, &'static str>);

#[async_trait]
impl Triggers for Says {
    async fn evaluate(&self, _: &Trigger, now: Timestamp) -> Known<Finding> {
        match self.0 {
            Ok(fires) => {
                let why = "the value is\nabove 5".to_owned();
                Known::Value { value: Finding { fires, value: "9".into(), why }, at: now }
            }
            Err(why) => Known::Unknown { why: why.to_owned(), since: now },
        }
    }
}

async fn with_trigger(extra: serde_json::Value, says: Result<bool, &'static str>) -> (World, String) {
    let mut world = World::new().await;
    let mut trigger = json!({"metricQuery": "sum(\n  queue\n) # of all", "threshold": 5, "duration": "1m"});
    muster_model::patch::merge_patch(&mut trigger, &extra);
    let spec = json!({"platform": {"type": "baremetal"}, "autoscaling": {
        "enabled": true, "minNodes": 0, "maxNodes": 3, "scaleDownDelay": "1m", "triggers": [trigger]}});
    let pool = world.pool("web", spec).await;
    world.parts.triggers = Some(Arc::new(Says(says)));
    world.planner = world.parts.planner(world.id);
    world.host("a", "web").await;
    let _ = world.turn().await;
    let status = world.pool_status(&pool).await;
    let metrics = condition::find(&status.conditions, "MetricsAvailable").unwrap();
    (world, metrics.message.clone())
}

#[tokio::test]
async fn a_query_of_several_lines_breaks_no_line() {
    let (world, _) = with_trigger(json!({"scaleDirection": "up"}), Ok(true)).await;
    let decision = world.decisions().await.remove(0);
    assert_eq!(decision.new_nodes, 1, "{decision:#?}");
    let wanted = "trigger sum( queue ) # of all of pool web asks for growth";
    assert!(decision.headline.contains(wanted), "{}", decision.headline);
    assert!(!decision.headline.contains('\n'), "{}", decision.headline);
}

#[tokio::test]
async fn the_condition_says_what_an_unknown_trigger_stops() {
    for (extra, wanted) in [
        (json!({"scaleDirection": "up"}), "so that nothing is removed: no data"),
        (json!({"scaleDirection": "down", "onNoData": "ignore"}), "so that nothing is removed: no data"),
        (
            json!({"scaleDirection": "up", "onNoData": "ignore"}),
            "and are ignored as `onNoData` says: no data",
        ),
    ] {
        let (_, message) = with_trigger(extra.clone(), Err("no data")).await;
        assert_eq!(message, format!("1 of 1 triggers are unknown, {wanted}"), "{extra}");
    }
}
