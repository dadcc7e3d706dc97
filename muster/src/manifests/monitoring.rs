//! For clusters with the Prometheus operator: that Muster is scraped, and what is worth waking somebody for.
//!
//! Every alert has a section in `docs/how-to/alerts.md`, and a test that it fires and one that it stays silent.

use serde_json::{Value, json};

use super::{AuthMode, Install, NAME, metadata, selector};

/// The API of the operator.
const API: &str = "monitoring.coreos.com/v1";
/// As often as triggers are asked.
const INTERVAL: &str = "30s";

/// How soon somebody should look.
#[derive(Debug, Clone, Copy)]
pub(super) enum Severity {
    /// Machines are not switched, or not where they should be: now.
    Critical,
    /// Today.
    Warning,
    /// When there is time.
    Info,
}

impl Severity {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// One alert.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alert {
    pub(super) name: &'static str,
    pub(super) expr: &'static str,
    pub(super) lasts: &'static str,
    pub(super) severity: Severity,
    /// One line, with what to type next.
    pub(super) summary: &'static str,
}

const fn alert(
    name: &'static str,
    expr: &'static str,
    lasts: &'static str,
    severity: Severity,
    summary: &'static str,
) -> Alert {
    Alert { name, expr, lasts, severity, summary }
}

/// All of them. What several replicas export alike is taken once.
pub(super) const ALERTS: &[Alert] = &[
    alert(
        "MusterDown",
        r#"up{job="muster"} == 0 or absent(up{job="muster"})"#,
        "2m",
        Severity::Critical,
        "Muster cannot be scraped: no machine is started or stopped by it, unless another replica leads",
    ),
    alert(
        "MusterNoLeader",
        "max(muster_leader) == 0",
        "2m",
        Severity::Critical,
        "no replica of Muster leads: nothing is planned and no machine is switched",
    ),
    alert(
        "MusterSeveralLeaders",
        "sum(muster_leader) > 1",
        "2m",
        Severity::Warning,
        "{{ $value }} replicas of Muster say that they lead; the store takes the writes of one only",
    ),
    alert(
        "MusterStoreTakesNoWrites",
        "min(muster_store_writable) == 0",
        "1m",
        Severity::Critical,
        "the store of Muster takes no writes: nothing is decided until it does",
    ),
    alert(
        "MusterStoreErrors",
        r#"sum by (outcome) (rate(muster_store_requests_total{outcome!="ok"}[5m])) > 0"#,
        "10m",
        Severity::Warning,
        "calls to the store of Muster end with {{ $labels.outcome }}",
    ),
    alert(
        "MusterFrozen",
        "max(muster_frozen) == 1",
        "1h",
        Severity::Warning,
        "Muster is frozen: nothing acts until `muster unfreeze`",
    ),
    alert(
        "MusterPlannerStuck",
        "time() - max by (project, cluster) (muster_planner_last_turn_seconds) > 300",
        "1m",
        Severity::Critical,
        "nobody has looked at cluster {{ $labels.cluster }} for {{ $value | humanizeDuration }}",
    ),
    alert(
        "MusterClusterNotInSync",
        "min by (project, cluster) (muster_planner_waiting) == 1",
        "5m",
        Severity::Warning,
        "cluster {{ $labels.cluster }} has no plan because it is not in sync: muster describe cluster {{ $labels.cluster }}",
    ),
    alert(
        "MusterPlannerRestarted",
        "sum(increase(muster_planner_restarts_total[1h])) > 0",
        "0m",
        Severity::Warning,
        "a planner was stuck or broke off and was started again: a bug worth reporting, with the log",
    ),
    alert(
        "MusterPlannerErrors",
        "sum(rate(muster_planner_errors_total[5m])) > 0",
        "10m",
        Severity::Warning,
        "looks of the planners fail again and again; the log says why",
    ),
    alert(
        "MusterPlanRefused",
        "sum(increase(muster_planner_audit_findings_total[1h])) > 0",
        "0m",
        Severity::Warning,
        "the audit found a fault in a plan, and nothing was done: a bug worth reporting, with `muster get decisions`",
    ),
    alert(
        "MusterPoolFailed",
        r#"max by (project, cluster, nodepool) (muster_nodepool_phase{phase="Failed"}) == 1"#,
        "5m",
        Severity::Warning,
        "pool {{ $labels.cluster }}/{{ $labels.nodepool }} failed: muster describe pool {{ $labels.cluster }}/{{ $labels.nodepool }}",
    ),
    alert(
        "MusterPoolShort",
        r#"max by (project, cluster, nodepool) (muster_nodepool_desired_nodes) - max by (project, cluster, nodepool) (muster_nodepool_nodes{state="ready"}) > 0"#,
        "30m",
        Severity::Warning,
        "pool {{ $labels.cluster }}/{{ $labels.nodepool }} lacks {{ $value }} nodes: muster explain pool {{ $labels.cluster }}/{{ $labels.nodepool }}",
    ),
    alert(
        "MusterPoolAtMaximum",
        "(max by (project, cluster, nodepool) (muster_nodepool_desired_nodes) >= max by (project, cluster, nodepool) (muster_nodepool_max_nodes)) and on (project, cluster) (max by (project, cluster) (unschedulable_pods_total) > 0)",
        "15m",
        Severity::Info,
        "pool {{ $labels.cluster }}/{{ $labels.nodepool }} is as large as it may be, and pods wait: muster explain pool {{ $labels.cluster }}/{{ $labels.nodepool }}",
    ),
    alert(
        "MusterControllerSilent",
        r#"max by (project, cluster, nodepool) (muster_nodepool_health{health="Unknown"}) == 1 unless on (project, cluster, nodepool) max by (project, cluster, nodepool) (muster_nodepool_phase{phase="Pending"}) == 1"#,
        "10m",
        Severity::Warning,
        "nobody reports on pool {{ $labels.cluster }}/{{ $labels.nodepool }} any more",
    ),
    alert(
        "MusterHostsOverdue",
        "max(muster_hosts_overdue) > 0",
        "10m",
        Severity::Warning,
        "{{ $value }} servers are in a phase for longer than it may take: muster get hosts",
    ),
    alert(
        "MusterBmcUnreachable",
        "max(muster_hosts_bmc_unreachable) > 0",
        "15m",
        Severity::Warning,
        "the BMCs of {{ $value }} servers do not answer: muster doctor",
    ),
    alert(
        "MusterHostsSetAside",
        "max(muster_hosts_set_aside) > 0",
        "10m",
        Severity::Warning,
        "the records of {{ $value }} servers cannot be used: muster doctor",
    ),
    alert(
        "MusterResourcesNotInStep",
        "max(muster_resources_in_step) == 0",
        "10m",
        Severity::Warning,
        "edits of custom resources are not taken: their home cluster cannot be used",
    ),
    alert(
        "MusterResourcesRefused",
        "max by (kind) (muster_resources_unsynced) > 0",
        "1h",
        Severity::Info,
        "{{ $value }} {{ $labels.kind }} say Synced=False: kubectl get muster -A",
    ),
];

pub(super) fn objects(install: &Install<'_>) -> [Value; 2] {
    [monitor(install), rules(install)]
}

fn monitor(install: &Install<'_>) -> Value {
    let (args, secret) = (install.args, &install.args.metrics_secret);
    let part = |key: &str| json!({"name": secret, "key": key});
    let mut tls = json!({
        "serverName": format!("{NAME}.{}.svc", args.namespace), "ca": {"secret": part("ca.crt")},
    });
    if args.auth_mode == AuthMode::Mtls {
        tls["cert"] = json!({"secret": part("tls.crt")});
        tls["keySecret"] = part("tls.key");
    }
    let mut endpoint = json!({
        "port": "https", "scheme": "https", "path": "/metrics", "interval": INTERVAL, "tlsConfig": tls,
    });
    if args.auth_mode != AuthMode::Mtls {
        endpoint["authorization"] = json!({"type": "Bearer", "credentials": part("token")});
    }
    json!({
        "apiVersion": API, "kind": "ServiceMonitor", "metadata": metadata(install, NAME),
        "spec": {"selector": {"matchLabels": selector()}, "endpoints": [endpoint]},
    })
}

fn rules(install: &Install<'_>) -> Value {
    let rules: Vec<Value> = ALERTS
        .iter()
        .map(|alert| {
            json!({
                "alert": alert.name, "expr": alert.expr, "for": alert.lasts,
                "labels": {"severity": alert.severity.as_str()},
                "annotations": {
                    "summary": alert.summary,
                    "runbook": format!("docs/how-to/alerts.md#{}", alert.name.to_lowercase()),
                },
            })
        })
        .collect();
    json!({
        "apiVersion": API, "kind": "PrometheusRule", "metadata": metadata(install, NAME),
        "spec": {"groups": [{"name": NAME, "rules": rules}]},
    })
}

/// What the secret for scraping holds, as files of `kubectl create secret generic`.
pub(super) const fn files(mode: AuthMode) -> &'static [&'static str] {
    if matches!(mode, AuthMode::Mtls) { &["ca.crt", "tls.crt", "tls.key"] } else { &["ca.crt", "token"] }
}
