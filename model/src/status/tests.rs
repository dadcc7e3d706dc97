//! Tables for the aggregation: who reported what, when, and what we say about it.

use serde_json::{Value, json};

use super::*;
use crate::{
    Duration, NodePool, Report,
    condition::{ConditionStatus, find},
    pool::PoolContext,
    report::{ReportContext, ReportError},
};

const START: Timestamp = Timestamp::from_millis(1_760_000_000_000);

fn at(seconds: u64) -> Timestamp {
    START.saturating_add(Duration::from_secs(seconds))
}

fn pool(generation: u64) -> NodePool {
    let body = json!({
        "name": "workers", "cluster_id": "550e8400-e29b-41d4-a716-446655440000",
        "spec": {"platform": {"type": "gcp", "gcp": {"machineType": "n1-standard-4"}}, "nodeCount": 5}
    });
    let draft = NodePool::parse_create(&body, &PoolContext::default()).unwrap().value;
    let id = "123e4567-e89b-12d3-a456-426614174000".parse().unwrap();
    let mut pool = draft.into_pool(id, "team".parse().unwrap(), "user@example.com".to_owned(), START);
    pool.generation = generation;
    pool
}

fn report(name: &str, generation: u64, conditions: Value, error: Value, seconds: u64) -> Report {
    let body = json!({
        "controller_name": name, "observed_generation": generation,
        "conditions": conditions, "metadata": {"platform": "gcp"}, "last_error": error,
    });
    let context = ReportContext { generation: u64::MAX, now: at(seconds) };
    Report::parse(body.to_string().as_bytes(), &context).unwrap().value
}

fn available(status: &str) -> Value {
    json!([{"type": "Available", "status": status}])
}

fn error(kind: &str) -> Value {
    json!({"errorType": kind, "message": "quota exceeded"})
}

fn good(name: &str, generation: u64, seconds: u64) -> Report {
    report(name, generation, available("True"), Value::Null, seconds)
}

fn bad(name: &str, generation: u64, seconds: u64) -> Report {
    report(name, generation, available("False"), Value::Null, seconds)
}

fn judge(generation: u64, reports: &[Report], seconds: u64) -> PoolStatus {
    let config = AggregateConfig::default();
    aggregate_pool(&pool(generation), Target { nodes: 5 }, reports, None, at(seconds), &config).status
}

#[test]
fn api_r4_r6_r23_n62_n63_n65_n67_phases() {
    #[track_caller]
    fn check(generation: u64, reports: &[Report], seconds: u64, expected: (Phase, Health, &str, u64)) {
        let status = judge(generation, reports, seconds);
        let found = (status.phase, status.health, status.reason.as_str(), status.observed_generation);
        assert_eq!(found, expected, "{}", status.message);
        let ready = find(&status.conditions, "Ready").unwrap();
        assert_eq!(ready.status == ConditionStatus::True, status.phase == Phase::Ready);
        assert!(find(&status.conditions, "Available").is_some());
    }
    use Health::{Degraded, Healthy, Unhealthy, Unknown};
    use Phase::{Failed, Pending, Progressing, Ready};
    let erring = |name, kind, ok| report(name, 1, available(ok), error(kind), 0);
    let only_ready = report("a", 1, json!([{"type": "Ready", "status": "True"}]), Value::Null, 0);
    let not_available = report(
        "a",
        1,
        json!([{"type": "Ready", "status": "True"}, {"type": "Available", "status": "False"}]),
        Value::Null,
        0,
    );

    check(1, &[], 0, (Pending, Unknown, "NoControllers", 0)); // R4
    check(1, &[good("a", 1, 0)], 0, (Ready, Healthy, "AllControllersReady", 1)); // R6
    check(1, &[only_ready], 0, (Ready, Healthy, "AllControllersReady", 1)); // N62
    check(1, &[not_available], 0, (Progressing, Degraded, "ControllersProvisioning", 1));
    check(1, &[good("a", 1, 0), bad("b", 1, 0)], 0, (Progressing, Degraded, "PartialProgress", 1)); // R23
    check(
        1,
        &[good("a", 1, 0), erring("b", "Transient", "False")],
        0,
        (Progressing, Degraded, "ControllersWithErrors", 1),
    );
    check(1, &[erring("a", "Transient", "True")], 0, (Progressing, Degraded, "ControllersWithErrors", 1));
    check(1, &[erring("a", "System", "False")], 0, (Progressing, Degraded, "ControllersProvisioning", 1));
    check(1, &[good("a", 1, 0), erring("b", "Fatal", "False")], 0, (Failed, Unhealthy, "FatalError", 1)); // N65
    check(1, &[erring("b", "Configuration", "True")], 0, (Failed, Unhealthy, "ConfigurationError", 1));
    check(2, &[good("a", 2, 0), good("b", 1, 0)], 0, (Progressing, Degraded, "PartialProgress", 1)); // N63
    check(2, &[good("a", 1, 0)], 0, (Progressing, Degraded, "WaitingForControllers", 1)); // N67
    check(2, &[erring("a", "Fatal", "False")], 0, (Progressing, Degraded, "WaitingForControllers", 1)); // of an older spec
    check(1, &[bad("a", 1, 0)], 1199, (Progressing, Unknown, "ControllersProvisioning", 1));
    check(1, &[bad("a", 1, 0)], 1200, (Failed, Unhealthy, "ControllerTimeout", 1));
    check(1, &[good("a", 1, 0)], 599, (Ready, Healthy, "AllControllersReady", 1));
    check(1, &[good("a", 1, 0)], 600, (Phase::Degraded, Unknown, "ControllerSilent", 1)); // past its lease
}

#[test]
fn activity_past_the_grace_time_is_still_progress() {
    let active = bad("a", 1, 1500).following(Some(&bad("a", 1, 0)));
    assert_eq!(active.generation_since, at(0));
    let status = judge(1, std::slice::from_ref(&active), 1600);
    assert_eq!((status.phase, status.reason.as_str()), (Phase::Progressing, "ControllersShowingProgress"));
    // A new generation starts the grace time anew.
    assert_eq!(bad("a", 2, 1500).following(Some(&active)).generation_since, at(1500));
}

#[test]
fn counts_come_from_metadata_and_decide_health() {
    #[track_caller]
    fn check(reports: &[Report], expected: (Option<u32>, Option<u32>, Health, &str)) {
        let status = judge(1, reports, 0);
        let size = find(&status.conditions, "SizeReached").unwrap();
        assert_eq!(status.desired_nodes, 5);
        assert_eq!((status.current_nodes, status.ready_nodes, status.health, size.reason.as_str()), expected);
    }
    let with = |metadata: Value, generation, seconds| {
        let body = json!({"controller_name": "a", "observed_generation": generation,
            "conditions": [{"type": "Ready", "status": "True"}], "metadata": metadata});
        let context = ReportContext { generation: 9, now: at(seconds) };
        Report::parse(body.to_string().as_bytes(), &context).unwrap().value
    };
    check(
        &[with(json!({"active_nodes": 5, "desired_nodes": 5}), 1, 0)],
        (Some(5), Some(5), Health::Healthy, "SizeReached"),
    );
    check(
        &[with(json!({"active_nodes": 4}), 1, 0)],
        (Some(4), Some(4), Health::Degraded, "FewerReadyThanDesired"),
    );
    check(&[with(json!({"active_nodes": 6}), 1, 0)], (Some(6), Some(6), Health::Healthy, "MoreThanDesired"));
    check(
        &[with(json!({"ready_nodes": 4, "current_nodes": 5}), 1, 0)],
        (Some(5), Some(4), Health::Degraded, "FewerReadyThanDesired"),
    );
    // Unknown is not zero.
    check(&[with(json!({}), 1, 0)], (None, None, Health::Healthy, "CountsNotReported"));
    check(&[with(json!({"active_nodes": "five"}), 1, 0)], (None, None, Health::Healthy, "CountsNotReported"));
}

#[test]
fn transition_times_move_only_with_the_status() {
    let config = AggregateConfig::default();
    let pool = pool(1);
    let step = |reports: &[Report], previous: Option<&PoolStatus>, seconds| {
        aggregate_pool(&pool, Target { nodes: 5 }, reports, previous, at(seconds), &config)
    };
    let first = step(&[good("a", 1, 0)], None, 0).status;
    let same = step(&[good("a", 1, 30)], Some(&first), 30).status;
    assert_eq!(same, first, "a repeated report changes nothing, not even a time");
    let lost = step(&[bad("a", 1, 40)], Some(&same), 40);
    assert_eq!((lost.status.phase, lost.status.ready_generation), (Phase::Progressing, Some(1)));
    assert_eq!(find(&lost.status.conditions, "Ready").unwrap().last_transition_time, at(40));
    assert_eq!(find(&lost.status.conditions, "Reconciled").unwrap().last_transition_time, at(0));
    // Time alone makes it degraded, and it says when.
    assert_eq!(lost.next_change_at, Some(at(160)));
    let still = step(&[bad("a", 1, 40)], Some(&lost.status), 159).status;
    let degraded = step(&[bad("a", 1, 40)], Some(&still), 160).status;
    assert_eq!((still.phase, degraded.phase), (Phase::Progressing, Phase::Degraded));
    assert_eq!(find(&degraded.conditions, "Ready").unwrap().last_transition_time, at(40));
    let back = step(&[good("a", 1, 170)], Some(&degraded), 170).status;
    assert_eq!((back.phase, back.health), (Phase::Ready, Health::Healthy));
}

/// A pool that grows or shrinks is not broken for as long as its controller says to be at work on it.
#[test]
fn a_controller_that_is_at_work_is_not_degraded() {
    let config = AggregateConfig::default();
    let pool = pool(1);
    let step = |reports: &[Report], previous: Option<&PoolStatus>, seconds| {
        aggregate_pool(&pool, Target { nodes: 5 }, reports, previous, at(seconds), &config)
    };
    let says = |progress: &str, error: Value, seconds| {
        let conditions = json!([
            {"type": "Available", "status": "False", "message": "4 of 5 nodes are ready, 1 on the way"},
            {"type": "Progressing", "status": progress},
        ]);
        report("a", 1, conditions, error, seconds)
    };
    let ready = step(&[good("a", 1, 0)], None, 0).status;
    let lost = step(&[says("True", Value::Null, 40)], Some(&ready), 40).status;
    assert_eq!(lost.message, "the controller is not ready: 4 of 5 nodes are ready, 1 on the way");
    let still = step(&[says("True", Value::Null, 900)], Some(&lost), 900);
    assert_eq!(still.status.phase, Phase::Progressing);
    for (broken, why) in [
        (says("False", Value::Null, 900), "nobody works on it"),
        (says("True", error("Transient"), 900), "an error"),
    ] {
        assert_eq!(step(&[broken], Some(&still.status), 900).status.phase, Phase::Degraded, "{why}");
    }
    let silent = step(&[says("True", Value::Null, 900)], Some(&still.status), 1500).status;
    assert_eq!(silent.phase, Phase::Degraded, "its word has run out");
    assert_eq!(still.next_change_at, Some(at(1200)));
}

#[test]
fn the_next_change_is_when_a_lease_ends() {
    let config = AggregateConfig::default();
    let judge = |reports: &[Report], seconds| {
        aggregate_pool(&pool(1), Target { nodes: 5 }, reports, None, at(seconds), &config).next_change_at
    };
    assert_eq!(judge(&[], 0), None);
    assert_eq!(judge(&[good("a", 1, 0), good("b", 1, 100)], 100), Some(at(600)));
    assert_eq!(judge(&[good("a", 1, 0), good("b", 1, 100)], 600), Some(at(700)));
    assert_eq!(judge(&[good("a", 1, 0)], 600), None);
    let mut short = good("a", 1, 0);
    short.lease = Some(Duration::from_secs(30));
    assert_eq!(judge(&[short], 0), Some(at(30)));
}

#[test]
fn waiting_until_the_next_change_is_enough() {
    // Whatever the reports are, the status stays the same up to the moment that was announced.
    let config = AggregateConfig::default();
    let cases: [Vec<Report>; 4] = [
        vec![good("a", 1, 0)],
        vec![bad("a", 1, 0)],
        vec![good("a", 1, 0), bad("b", 1, 50)],
        vec![report("a", 1, available("False"), error("Transient"), 0)],
    ];
    for reports in cases {
        let mut now = at(60);
        let mut previous: Option<PoolStatus> = None;
        for _ in 0..10 {
            let found =
                aggregate_pool(&pool(1), Target { nodes: 5 }, &reports, previous.as_ref(), now, &config);
            let Some(next) = found.next_change_at else { break };
            assert!(next > now);
            let just_before = Timestamp::from_millis(next.millis() - 1);
            let later = aggregate_pool(
                &pool(1),
                Target { nodes: 5 },
                &reports,
                Some(&found.status),
                just_before,
                &config,
            );
            assert_eq!(later.status, found.status);
            (previous, now) = (Some(found.status), next);
        }
    }
}

#[test]
fn deleting_and_foreign_conditions() {
    let config = AggregateConfig::default();
    let mut pool = pool(1);
    let mut status = judge(1, &[good("a", 1, 0)], 0);
    let foreign = Condition { kind: "Planned".into(), ..status.conditions[0].clone() };
    status.conditions.push(foreign.clone());
    status.baremetal = Some(json!({"readyNodes": 2}));
    pool.deleted_at = Some(at(5));
    let after =
        aggregate_pool(&pool, Target { nodes: 5 }, &[good("a", 1, 0)], Some(&status), at(5), &config).status;
    assert_eq!((after.phase, after.reason.as_str()), (Phase::Deleting, "Deleting"));
    assert_eq!(find(&after.conditions, "Planned"), Some(&foreign));
    assert_eq!(after.baremetal, status.baremetal);
}

#[test]
fn a_cluster_has_the_same_rules() {
    let config = AggregateConfig::default();
    let subject = Subject { generation: 2, deleting: false };
    let judge = |reports: &[Report]| aggregate_cluster(subject, reports, None, at(0), &config).status;
    assert_eq!(judge(&[]).phase, Phase::Pending);
    let ready = judge(&[good("example-controller", 2, 0)]);
    assert_eq!((ready.phase, ready.observed_generation), (Phase::Ready, 2));
    let text = serde_json::to_string(&ready).unwrap();
    assert_eq!(serde_json::from_str::<ClusterStatus>(&text).unwrap(), ready);
    assert!(text.contains(r#""lastTransitionTime":"2025-10-09T08:53:20Z","observedGeneration":2"#), "{text}");
}

#[test]
fn api_r19_the_seeds_report_is_kept_to_the_letter() {
    let body = br#"{
      "controller_name": "gcp-nodepool-controller",
      "observed_generation": 2,
      "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2025-10-17T10:30:00Z",
        "reason": "NodesReady", "message": "All nodes are ready and healthy"}],
      "metadata": {"platform": "gcp", "region": "us-central1", "active_nodes": 5, "desired_nodes": 5,
        "node_ages": "2h30m,1h45m,1h15m,45m,30m", "big": 12345678901234567890123, "x": 1.10}
    }"#;
    let report = Report::parse(body, &ReportContext { generation: 2, now: at(0) }).unwrap().value;
    assert!(report.is_ready());
    assert_eq!(
        report.metadata.get(),
        r#"{"platform":"gcp","region":"us-central1","active_nodes":5,"desired_nodes":5,"node_ages":"2h30m,1h45m,1h15m,45m,30m","big":12345678901234567890123,"x":1.10}"#
    );
    let api = serde_json::to_value(report.to_api()).unwrap();
    assert_eq!(api["updated_at"], api["last_updated"]);
    let stored = serde_json::to_vec(&report).unwrap();
    assert_eq!(serde_json::from_slice::<Report>(&stored).unwrap(), report);
}

#[test]
fn api_n59_n61_reports_that_are_refused() {
    #[track_caller]
    fn check(name: &str, value: Value, expected: &str) {
        let mut body = json!({"controller_name": "a", "observed_generation": 1,
            "conditions": [{"type": "Ready", "status": "True"}], "metadata": {}});
        body[name] = value;
        let context = ReportContext { generation: 2, now: at(0) };
        let fault = Report::parse(body.to_string().as_bytes(), &context).unwrap_err().to_string();
        assert!(fault.contains(expected), "{fault}");
    }
    let context = ReportContext { generation: 2, now: at(0) };
    let ahead = json!({"controller_name": "a", "observed_generation": 3, "conditions": available("True")});
    let refused = Report::parse(ahead.to_string().as_bytes(), &context).unwrap_err();
    assert_eq!(refused, ReportError::Ahead { observed: 3, current: 2 });

    check("conditions", Value::Null, "conditions: is required");
    check("conditions", json!([]), "conditions: must not be empty");
    check(
        "conditions",
        json!([{"type": "Ready", "status": "Yes"}]),
        "conditions[0].status: is not a condition status, found \"Yes\"",
    );
    check(
        "conditions",
        json!([{"type": "Ready", "status": "True", "lastTransitionTime": "yesterday"}]),
        "not an RFC 3339 time, found \"yesterday\"",
    );
    check(
        "conditions",
        json!([{"type": "Ready", "status": "True"}, {"type": "Ready", "status": "False"}]),
        "is reported twice",
    );
    check("conditions", json!([{"status": "True"}]), "conditions[0].type: is required");
    check("metadata", json!({"x": "y".repeat(1 << 20)}), "metadata: is too large");
    check("metadata", json!([]), "metadata: must be an object");
    check("controller_name", json!(""), "controller_name: must not be empty");
    check("controller_name", json!("A b"), "controller_name: may only hold");
    check("observed_generation", json!(-1), "observed_generation: is out of range");
    check("observed_generation", json!("1"), "without quotes");
    check("last_error", json!({"errorType": "Bad"}), "last_error.errorType: is not an error type");
    check("last_error", json!({}), "last_error.errorType: is required");
    check("observed_generaton", json!(1), "did you mean observed_generation?");
}
