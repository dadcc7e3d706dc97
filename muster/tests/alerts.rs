//! OPS-U14: the alerts that `muster manifests --monitoring` prints, judged by promtool: each has a case in which it fires and one
//! in which it does not.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::{path::Path, process::Command};

use serde_json::{Value, json};

/// Long enough for every alert, at one value a minute.
const EVALUATED: &str = "95m";

/// What promtool says, which must be good.
fn promtool(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("promtool")
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("promtool is installed");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
    said.into_owned()
}

/// The groups of the printed `PrometheusRule`.
fn printed() -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["manifests", "--image", "none", "--monitoring"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap();
    objects.into_iter().find(|object| object["kind"] == "PrometheusRule").unwrap()["spec"].clone()
}

type Series = &'static [(&'static str, &'static str)];

/// The alert, series with which it fires, and series with which it does not.
const CASES: [(&str, Series, Series); 20] = [
    ("MusterDown", &[(r#"up{job="muster"}"#, "0x100")], &[(r#"up{job="muster"}"#, "1x100")]),
    (
        "MusterNoLeader",
        &[(r#"muster_leader{pod="a"}"#, "0x100"), (r#"muster_leader{pod="b"}"#, "0x100")],
        &[(r#"muster_leader{pod="a"}"#, "0x100"), (r#"muster_leader{pod="b"}"#, "1x100")],
    ),
    (
        "MusterSeveralLeaders",
        &[(r#"muster_leader{pod="a"}"#, "1x100"), (r#"muster_leader{pod="b"}"#, "1x100")],
        &[(r#"muster_leader{pod="a"}"#, "0x100"), (r#"muster_leader{pod="b"}"#, "1x100")],
    ),
    (
        "MusterStoreTakesNoWrites",
        &[("muster_store_writable", "0x100")],
        &[("muster_store_writable", "1x100")],
    ),
    (
        "MusterStoreErrors",
        &[(r#"muster_store_requests_total{outcome="unavailable"}"#, "0+1x100")],
        &[(r#"muster_store_requests_total{outcome="ok"}"#, "0+9x100")],
    ),
    ("MusterFrozen", &[("muster_frozen", "1x100")], &[("muster_frozen", "1x50 0x50")]),
    (
        "MusterPlannerStuck",
        &[(r#"muster_planner_last_turn_seconds{cluster="lab"}"#, "0x100")],
        &[(r#"muster_planner_last_turn_seconds{cluster="lab"}"#, "0+60x100")],
    ),
    (
        "MusterClusterNotInSync",
        &[
            (r#"muster_planner_waiting{cluster="lab",pod="a"}"#, "1x100"),
            (r#"muster_planner_waiting{cluster="lab",pod="b"}"#, "1x100"),
        ],
        &[
            (r#"muster_planner_waiting{cluster="lab",pod="a"}"#, "1x100"),
            (r#"muster_planner_waiting{cluster="lab",pod="b"}"#, "0x100"),
        ],
    ),
    (
        "MusterPlannerRestarted",
        &[("muster_planner_restarts_total", "0x80 1x20")],
        &[("muster_planner_restarts_total", "3x100")],
    ),
    (
        "MusterPlannerErrors",
        &[("muster_planner_errors_total", "0+1x100")],
        &[("muster_planner_errors_total", "5x100")],
    ),
    (
        "MusterPlanRefused",
        &[("muster_planner_audit_findings_total", "0x80 1x20")],
        &[("muster_planner_audit_findings_total", "3x100")],
    ),
    (
        "MusterPoolFailed",
        &[(r#"muster_nodepool_phase{cluster="lab",nodepool="web",phase="Failed"}"#, "1x100")],
        &[(r#"muster_nodepool_phase{cluster="lab",nodepool="web",phase="Ready"}"#, "1x100")],
    ),
    (
        "MusterPoolShort",
        &[
            (r#"muster_nodepool_desired_nodes{cluster="lab",nodepool="web"}"#, "5x100"),
            (r#"muster_nodepool_nodes{cluster="lab",nodepool="web",state="ready"}"#, "3x100"),
        ],
        &[
            (r#"muster_nodepool_desired_nodes{cluster="lab",nodepool="web"}"#, "5x100"),
            (r#"muster_nodepool_nodes{cluster="lab",nodepool="web",state="ready"}"#, "3x80 5x20"),
        ],
    ),
    (
        "MusterPoolAtMaximum",
        &[
            (r#"muster_nodepool_desired_nodes{project="p",cluster="lab",nodepool="web"}"#, "5x100"),
            (r#"muster_nodepool_max_nodes{project="p",cluster="lab",nodepool="web"}"#, "5x100"),
            (r#"unschedulable_pods_total{project="p",cluster="lab"}"#, "2x100"),
        ],
        &[
            (r#"muster_nodepool_desired_nodes{project="p",cluster="lab",nodepool="web"}"#, "5x100"),
            (r#"muster_nodepool_max_nodes{project="p",cluster="lab",nodepool="web"}"#, "5x100"),
            (r#"unschedulable_pods_total{project="p",cluster="other"}"#, "2x100"),
        ],
    ),
    (
        "MusterControllerSilent",
        &[
            (r#"muster_nodepool_health{cluster="lab",nodepool="web",health="Unknown"}"#, "1x100"),
            (r#"muster_nodepool_phase{cluster="lab",nodepool="web",phase="Ready"}"#, "1x100"),
        ],
        &[
            (r#"muster_nodepool_health{cluster="lab",nodepool="web",health="Unknown"}"#, "1x100"),
            (r#"muster_nodepool_phase{cluster="lab",nodepool="web",phase="Pending"}"#, "1x100"),
        ],
    ),
    ("MusterHostsOverdue", &[("muster_hosts_overdue", "1x100")], &[("muster_hosts_overdue", "0x100")]),
    (
        "MusterBmcUnreachable",
        &[("muster_hosts_bmc_unreachable", "2x100")],
        &[("muster_hosts_bmc_unreachable", "2x80 0x20")],
    ),
    ("MusterHostsSetAside", &[("muster_hosts_set_aside", "1x100")], &[("muster_hosts_set_aside", "0x100")]),
    (
        "MusterResourcesNotInStep",
        &[("muster_resources_in_step", "0x100")],
        // Another replica leads and keeps them; this one says nothing of it.
        &[(r#"muster_resources_turns_total{outcome="settled"}"#, "7x100")],
    ),
    (
        "MusterResourcesRefused",
        &[(r#"muster_resources_unsynced{kind="nodepools"}"#, "1x100")],
        &[(r#"muster_resources_unsynced{kind="nodepools"}"#, "1x90 0x10")],
    ),
];

#[test]
fn ops_u14_every_alert_fires_and_stays_silent() {
    let rules = printed();
    let named: Vec<&str> = rules["groups"][0]["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| rule["alert"].as_str().unwrap())
        .collect();
    assert_eq!(named, CASES.map(|(name, _, _)| name), "every alert has its two cases");
    let directory = tempfile::tempdir().unwrap();
    // JSON is YAML.
    std::fs::write(directory.path().join("rules.yaml"), rules.to_string()).unwrap();
    let said = promtool(directory.path(), &["check", "rules", "rules.yaml"]);
    assert!(said.contains("20 rules found"), "{said}");
    let mut tests = Vec::new();
    for (name, firing, silent) in CASES {
        for (series, expected) in [(firing, json!([{"labels": "{}", "value": 1}])), (silent, json!([]))] {
            let series: Vec<Value> =
                series.iter().map(|(series, values)| json!({"series": series, "values": values})).collect();
            tests.push(json!({
                "name": format!("{name} {}", if expected == json!([]) { "stays silent" } else { "fires" }),
                "interval": "1m", "input_series": series,
                "promql_expr_test": [{
                    "expr": format!(r#"count(ALERTS{{alertname="{name}",alertstate="firing"}})"#),
                    "eval_time": EVALUATED, "exp_samples": expected,
                }],
            }));
        }
    }
    let file = json!({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests});
    std::fs::write(directory.path().join("tests.yaml"), file.to_string()).unwrap();
    promtool(directory.path(), &["test", "rules", "tests.yaml"]);
}

/// Names in the expressions are names that are exported.
#[test]
fn ops_u14_alerts_ask_for_what_is_documented() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/how-to/monitor.md");
    let page = std::fs::read_to_string(page).unwrap();
    for rule in printed()["groups"][0]["rules"].as_array().unwrap() {
        let expr = rule["expr"].as_str().unwrap();
        let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("muster_") || word.ends_with("pods_total")) {
            assert!(page.contains(&format!("`{name}`")), "{name} of {} is not in the page", rule["alert"]);
        }
    }
}
