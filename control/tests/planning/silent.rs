//! A Prometheus that hangs: pods get their hosts, what was said before does not count for ever, and nothing is removed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use async_trait::async_trait;
use muster_control::{
    planner::Heard,
    registry::{NodePool, Stored},
};
use muster_model::{
    Duration, Known, Timestamp, condition,
    host::Switch,
    pool::{PoolContext, Trigger},
    trigger::{Finding, Triggers},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::{World, context, pod, running};

/// How a server does not answer.
#[derive(Debug, Clone, Copy)]
enum How {
    After(Duration),
    /// It answers then, as to what it was asked.
    Late(Duration),
    Never,
}

/// A server that answers at once that every trigger fires, until it hangs.
#[derive(Debug)]
struct Hanging {
    hangs: AtomicBool,
    how: How,
    asked: AtomicU32,
}

#[async_trait]
impl Triggers for Hanging {
    #[allow(clippy::disallowed_methods, reason = "the time of the test is tokio's")]
    async fn evaluate(&self, _: &Trigger, now: Timestamp) -> Known<Finding> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.hangs.load(Ordering::SeqCst) {
            match self.how {
                How::After(length) => tokio::time::sleep(length.as_std()).await,
                How::Late(length) => {
                    tokio::time::sleep(length.as_std()).await;
                    return fires(now);
                }
                How::Never => std::future::pending().await,
            }
            return Known::Unknown { why: "Prometheus did not answer in time".into(), since: now };
        }
        fires(now)
    }
}

fn fires(now: Timestamp) -> Known<Finding> {
    let value = Finding { fires: true, value: "0".into(), why: "the value has been below 5".into() };
    Known::Value { value, at: now }
}

/// Two pools with 20 triggers each that allow fewer nodes; two hosts serve, and one of them is not needed.
async fn watched(how: How, hangs: bool) -> (World, NodePool, Arc<Hanging>) {
    let mut world = World::new().await;
    let triggers: Vec<Value> = (0..20)
        .map(|number| {
            json!({"metricQuery": format!("queue{number}"), "threshold": 5, "duration": "1m",
                "scaleDirection": "down"})
        })
        .collect();
    let spec = json!({"platform": {"type": "baremetal"}, "autoscaling": {"enabled": true, "minNodes": 0,
        "maxNodes": 4, "scaleDownDelay": "10m", "triggers": triggers}});
    let pool = world.pool("web", spec.clone()).await;
    world.pool("batch", spec).await;
    let server = Arc::new(Hanging { hangs: hangs.into(), how, asked: AtomicU32::default() });
    world.parts.triggers = Some(server.clone());
    world.planner = world.parts.planner(world.id);
    for host in ["a", "b", "c"] {
        world.host(host, "web").await;
    }
    for host in ["a", "b"] {
        world.serve(host, "web").await;
    }
    world.show(|objects| objects.pods.push(running("web-1", "4", "a")));
    (world, pool, server)
}

async fn metrics(world: &World, pool: &NodePool) -> (String, String) {
    let status = world.pool_status(pool).await;
    let found = condition::find(&status.conditions, "MetricsAvailable").unwrap();
    (found.status.as_str().to_owned(), found.message.clone())
}

/// OPS-R6: 40 triggers of which none is answered, for ten seconds or for ever, hold no pod up for longer than two looks.
#[tokio::test(start_paused = true)]
async fn ops_r6_a_server_that_hangs_does_not_stop_growth() {
    for how in [How::After(Duration::from_secs(10)), How::Never] {
        let (mut world, pool, server) = watched(how, true).await;
        world.show(|objects| objects.pods.extend([pod("web-2", "8"), pod("web-3", "8")]));
        let began = Instant::now();
        for _ in 0..2 {
            let _ = world.turn().await;
            world.pass(Duration::from_secs(10));
            world.show(|_| {});
        }
        assert!(began.elapsed().as_secs() < 5, "{how:?}: two looks took {:?}", began.elapsed());
        assert_eq!(world.intent("c").await.unwrap().want, Switch::On, "{how:?}");
        let (status, message) = metrics(&world, &pool).await;
        assert_eq!(status, "False");
        assert!(message.starts_with("20 of 20 triggers are unknown"), "{message}");
        assert!(message.contains("there was no answer within 2s"), "{message}");
        let asked = server.asked.load(Ordering::SeqCst);
        assert!((2..=16).contains(&asked), "together, and not all at once: {asked}");
        // A silence that is known costs nothing any more.
        let began = Instant::now();
        for _ in 0..120 {
            let _ = world.turn().await;
            world.pass(Duration::from_secs(10));
            world.show(|_| {});
        }
        assert!(began.elapsed().as_secs() < 1, "{how:?}: {:?}", began.elapsed());
        assert_eq!((world.intent("a").await, world.intent("b").await), (None, None), "{how:?}");
    }
}

/// What a server said before it hung counts for a quarter of a minute, and a moment longer while it is asked again; it is no
/// permission to remove nodes after that.
#[tokio::test(start_paused = true)]
async fn ops_r6_old_answers_remove_nothing() {
    for how in [How::After(Duration::from_secs(10)), How::Never] {
        let (mut world, pool, server) = watched(how, false).await;
        let _ = world.turn().await;
        assert_eq!(metrics(&world, &pool).await, ("True".into(), "20 of 20 triggers are known".into()));
        server.hangs.store(true, Ordering::SeqCst);
        world.pass(Duration::from_secs(16));
        world.show(|_| {});
        let _ = world.turn().await;
        assert_eq!(metrics(&world, &pool).await.0, "True", "{how:?}: a slow server is no missing one");
        world.pass(Duration::from_secs(5));
        for _ in 0..60 {
            world.show(|_| {});
            let _ = world.turn().await;
            assert_eq!(metrics(&world, &pool).await.0, "False", "{how:?}");
            world.pass(Duration::from_secs(20));
        }
        assert_eq!((world.intent("a").await, world.intent("b").await), (None, None), "{how:?}");
    }
}

/// Questions go on beside the looks; who waits for them hears of another answer, and of nothing else.
#[tokio::test(start_paused = true)]
async fn answers_that_come_late_are_heard_of() {
    let (mut world, pool, server) = watched(How::After(Duration::from_secs(10)), true).await;
    let _ = world.turn().await;
    // They say that they did not answer in time, which changes nothing.
    assert_eq!(world.planner.heard().await, Heard::TheSame);
    server.hangs.store(false, Ordering::SeqCst);
    world.pass(Duration::from_secs(16));
    world.planner.ask_triggers(world.now());
    assert_eq!(world.planner.heard().await, Heard::Otherwise);
    world.show(|_| {});
    let _ = world.turn().await;
    assert_eq!(metrics(&world, &pool).await.0, "True");
}

/// A trigger that was edited while it was asked: what is said of its older form is not known of this one.
#[tokio::test(start_paused = true)]
#[allow(clippy::disallowed_methods, reason = "the time of the test is tokio's")]
async fn an_answer_to_an_older_form_of_a_trigger_is_asked_for_again() {
    let (mut world, pool, server) = watched(How::Late(Duration::from_secs(10)), true).await;
    let _ = world.turn().await;
    let now = world.now();
    let change = |stored: &Stored<NodePool>| {
        let mut spec = serde_json::to_value(&stored.object.spec).unwrap();
        for trigger in spec["autoscaling"]["triggers"].as_array_mut().unwrap() {
            trigger["threshold"] = json!(4);
        }
        let patch = json!({"spec": {"autoscaling": {"triggers": spec["autoscaling"]["triggers"]}}});
        let parsed = stored.object.merge_patch(&patch, &PoolContext::default())?;
        let mut pool = stored.object.clone();
        pool.apply(parsed.value, now);
        Ok((pool, Vec::new()))
    };
    let id = pool.id.uuid();
    world.registry.update(&context(now), id, &|_| true, change, |txn, _| txn).await.unwrap();
    tokio::time::sleep(Duration::from_secs(11).as_std()).await;
    server.hangs.store(false, Ordering::SeqCst);
    world.pass(Duration::from_secs(11));
    world.show(|_| {});
    let _ = world.turn().await;
    assert_eq!(metrics(&world, &pool).await.0, "True");
    assert_eq!(server.asked.load(Ordering::SeqCst), 60, "two pools of 20, and 20 of them once more");
}
