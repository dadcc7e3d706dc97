//! Operations of everything but the inventory, which has its own table.

use super::Operation;

pub(super) const LIST: &[&str] = &[
    "limit",
    "offset",
    "cursor",
    "status",
    "health",
    "name",
    "labelSelector",
    "fieldSelector",
    "include_deleted",
    "watch",
    "resource_version",
    "timeout_seconds",
    "project",
];
pub(super) const POOL_LIST: &[&str] = &[
    "limit",
    "offset",
    "cursor",
    "status",
    "health",
    "name",
    "labelSelector",
    "fieldSelector",
    "include_deleted",
    "watch",
    "resource_version",
    "timeout_seconds",
    "clusterId",
    "cluster_id",
    "project",
];
pub(super) const DECISIONS: &[&str] = &[
    "limit",
    "decision_cursor",
    "cluster_id",
    "pool",
    "host",
    "node",
    "decision_outcome",
    "since",
    "until",
    "actions_only",
    "watch",
    "resource_version",
    "timeout_seconds",
    "project",
];
pub(super) const OPERATION_LIST: &[&str] = &[
    "limit",
    "offset",
    "cursor",
    "nodepool_id",
    "state",
    "watch",
    "resource_version",
    "timeout_seconds",
    "project",
];
pub(super) const EXPLAIN: &[&str] = &["cluster_id", "at", "project"];
pub(super) const AUDIT_LIST: &[&str] =
    &["limit", "line", "actor", "object", "of_project", "verb", "outcome", "since", "until", "project"];
pub(super) const CREATE: &[&str] = &["dryRun", "idempotency-key", "project"];
pub(super) const READ: &[&str] = &["include_deleted", "if-none-match", "project"];
pub(super) const REPLACE: &[&str] = &["dryRun", "if-match", "if-none-match", "project"];
pub(super) const UPDATE: &[&str] = &["dryRun", "if-match", "project"];
pub(super) const DELETE: &[&str] = &["dryRun", "force", "if-match", "project"];
pub(super) const DELETE_CLUSTER: &[&str] = &["dryRun", "force", "cascade", "if-match", "project"];

pub(super) const RECORD_LIST: &[&str] = &[
    "limit",
    "offset",
    "name_cursor",
    "name",
    "watch",
    "resource_version",
    "timeout_seconds",
    "include_deleted",
    "project",
];

pub(super) const OPERATIONS: &[Operation] = &[
    operation!("get" "/health" "health" 200 None => Some("Health"), &[], "Whether the process answers, in the seed's form"),
    operation!("get" "/livez" "livez" 200 None => Some("Probe"), &[], "Whether the process answers"),
    operation!("get" "/readyz" "readyz" 200 None => Some("Probe"), &[], "Whether requests can be served"),
    operation!("get" "/metrics" "metrics" 200 None => None, &[], "Metrics for Prometheus"),
    operation!("get" "/metrics/hosts" "hostMetrics" 200 None => None, &[], "Series for every host, where metrics.hosts is set"),
    operation!("get" "/openapi.json" "openapi" 200 None => Some("Any"), &[], "This document"),
    operation!("get" "/api/v1/whoami" "whoAmI" 200 None => Some("Identity"), &["project"], "Who the caller is, and its roles"),
    operation!("get" "/api/v1/clusters" "listClusters" 200 None => Some("ClusterList"), LIST, "List or watch clusters"),
    operation!("post" "/api/v1/clusters" "createCluster" 201 Some("ClusterDraft") => Some("Cluster"), CREATE, "Create a cluster"),
    operation!("get" "/api/v1/clusters/{cluster_id}" "readCluster" 200 None => Some("Cluster"), READ, "Read a cluster"),
    operation!("put" "/api/v1/clusters/{cluster_id}" "replaceCluster" 200 Some("ClusterUpdate") => Some("Cluster"), REPLACE, "Replace a cluster, or create it under this id with If-None-Match: *"),
    operation!("patch" "/api/v1/clusters/{cluster_id}" "patchCluster" 200 Some("ClusterPatch") => Some("Cluster"), UPDATE, "Change a cluster by JSON merge patch"),
    operation!("delete" "/api/v1/clusters/{cluster_id}" "deleteCluster" 202 None => Some("Message"), DELETE_CLUSTER, "Delete a cluster"),
    operation!("get" "/api/v1/clusters/{cluster_id}/status" "readClusterStatus" 200 None => Some("ClusterStatusAnswer"), &["project"], "Status and reports of a cluster"),
    operation!("put" "/api/v1/clusters/{cluster_id}/status" "reportClusterStatus" 200 Some("Report") => Some("Message"), &["dryRun", "project"], "Report on a cluster (controllers)"),
    operation!("get" "/api/v1/clusters/{cluster_id}/nodepools" "listNodePoolsOfCluster" 200 None => Some("NodePoolList"), POOL_LIST, "List or watch the pools of a cluster"),
    operation!("post" "/api/v1/clusters/{cluster_id}/nodepools" "createNodePoolInCluster" 201 Some("NodePoolDraft") => Some("NodePool"), CREATE, "Create a pool in a cluster"),
    operation!("get" "/api/v1/clusters/{cluster_id}/connection" "readConnection" 200 None => Some("Connection"), &["project"], "How a cluster is reached, and how that is going"),
    operation!("put" "/api/v1/clusters/{cluster_id}/connection" "setConnection" 200 Some("ConnectionDraft") => Some("Connection"), &["dryRun", "project"], "Connect a cluster: a kubeconfig, which is kept encrypted and never shown, or Muster's own service account"),
    operation!("delete" "/api/v1/clusters/{cluster_id}/connection" "deleteConnection" 204 None => None, &["dryRun", "project"], "Forget how a cluster is reached"),
    operation!("get" "/api/v1/nodepools" "listNodePools" 200 None => Some("NodePoolList"), POOL_LIST, "List or watch pools"),
    operation!("post" "/api/v1/nodepools" "createNodePool" 201 Some("NodePoolDraft") => Some("NodePool"), CREATE, "Create a pool"),
    operation!("get" "/api/v1/nodepools/{id}" "readNodePool" 200 None => Some("NodePool"), READ, "Read a pool"),
    operation!("put" "/api/v1/nodepools/{id}" "replaceNodePool" 200 Some("NodePoolUpdate") => Some("NodePool"), REPLACE, "Replace a pool, or create it under this id with If-None-Match: *"),
    operation!("patch" "/api/v1/nodepools/{id}" "patchNodePool" 200 Some("MergePatch") => Some("NodePool"), UPDATE, "Change a pool by JSON merge patch"),
    operation!("delete" "/api/v1/nodepools/{id}" "deleteNodePool" 204 None => None, DELETE, "Delete a pool"),
    operation!("get" "/api/v1/nodepools/{id}/status" "readNodePoolStatus" 200 None => Some("NodePoolStatusAnswer"), &["project"], "Status and reports of a pool"),
    operation!("put" "/api/v1/nodepools/{id}/status" "reportNodePoolStatus" 200 Some("Report") => Some("Message"), &["dryRun", "project"], "Report on a pool (controllers)"),
    operation!("post" "/api/v1/nodepools/{id}/scale" "scaleNodePool" 202 Some("Scale") => Some("Operation"), UPDATE, "Set the size of a pool"),
    operation!("get" "/api/v1/operations" "listOperations" 200 None => Some("OperationList"), OPERATION_LIST, "List or watch operations"),
    operation!("get" "/api/v1/operations/{id}" "readOperation" 200 None => Some("Operation"), &["project"], "Read an operation"),
    operation!("post" "/api/v1/operations/{id}/cancel" "cancelOperation" 202 None => Some("Operation"), &["reason", "project"], "Withdraw the wish behind an operation on a host"),
    operation!("get" "/api/v1/decisions" "listDecisions" 200 None => Some("DecisionList"), DECISIONS, "List or watch decisions, newest first"),
    operation!("get" "/api/v1/decisions/{id}" "readDecision" 200 None => Some("Decision"), &["project"], "Read a decision: what it did and why, and what became of it"),
    operation!("get" "/api/v1/decisions/{id}/replay" "replayDecision" 200 None => Some("Replay"), &["project"], "Decide again from the stored snapshot"),
    operation!("get" "/api/v1/decisions/{id}/compare" "compareDecisions" 200 None => Some("Comparison"), &["with", "project"], "What differs from this decision to another: what they looked at, what they did, and why"),
    operation!("get" "/api/v1/explain/pod/{namespace}/{name}" "explainPod" 200 None => Some("Explanation"), EXPLAIN, "Why a pod has the place it has, or none"),
    operation!("get" "/api/v1/explain/node/{name}" "explainNode" 200 None => Some("Explanation"), EXPLAIN, "Why a node stays, goes, or is gone"),
    operation!("get" "/api/v1/explain/host/{name}" "explainHost" 200 None => Some("Explanation"), EXPLAIN, "What a host could do, and why it does not"),
    operation!("get" "/api/v1/explain/pool/{id}" "explainPool" 200 None => Some("Explanation"), EXPLAIN, "Why a pool has the size it has"),
    operation!("get" "/api/v1/explain/decision/{id}" "explainDecision" 200 None => Some("DecisionExplanation"), &["project"], "A decision in words, and whether it would be made again"),
    operation!("delete" "/api/v1/nodepools/{id}/status/{controller_name}" "forgetNodePoolReport" 204 None => None, &["dryRun", "project"], "Forget a controller that is gone for good"),
    operation!("delete" "/api/v1/clusters/{cluster_id}/status/{controller_name}" "forgetClusterReport" 204 None => None, &["dryRun", "project"], "Forget a controller that is gone for good"),
    operation!("get" "/api/v1/freeze" "readFreeze" 200 None => Some("Freeze"), &["project"], "Whether anything may act"),
    operation!("put" "/api/v1/freeze" "setFreeze" 200 Some("FreezeRequest") => Some("Freeze"), &["project"], "Stop every action, wake everything, or let Muster act again"),
    operation!("get" "/api/v1/audit" "listAudit" 200 None => Some("AuditPage"), AUDIT_LIST, "Read the audit log, newest first (auditors)"),
    operation!("get" "/api/v1/audit/verify" "verifyAudit" 200 None => Some("AuditVerdict"), &["project"], "Walk the whole chain of the audit log (auditors)"),
    operation!("get" "/api/v1/store/export" "exportStore" 200 None => None, &["project"], "Everything in the store at one revision (admins)"),
];
