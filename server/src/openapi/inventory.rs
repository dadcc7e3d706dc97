//! Operations, parameters and schemas of the inventory.

use muster_model::{
    connection::{ConnectionKind, ConnectionWord},
    credential::CredentialKind,
    field::Choice as _,
    host::{
        Admin, BlockCause, BootMode, BootTarget, DriverKind, ManualPower, Phase, PowerInterface, State,
        Switch, TlsVerify,
    },
    status::Health,
};
use serde_json::{Value, json};

use super::{
    Operation,
    operations::{CREATE, READ, RECORD_LIST, REPLACE, UPDATE},
    schemas::{NAME, reference, words},
};

const HOST_LIST: &[&str] = &[
    "host_limit",
    "offset",
    "name_cursor",
    "state",
    "host_phase",
    "health",
    "name",
    "pool",
    "rack",
    "set_aside",
    "labelSelector",
    "fieldSelector",
    "include_deleted",
    "watch",
    "resource_version",
    "timeout_seconds",
    "project",
];
const CREDENTIAL_LIST: &[&str] = &[
    "limit",
    "offset",
    "name",
    "watch",
    "resource_version",
    "timeout_seconds",
    "include_deleted",
    "project",
];
const HOST_DELETE: &[&str] = &["dryRun", "powerOff", "force_host", "if-match", "project"];
const DELETE: &[&str] = &["dryRun", "if-match", "project"];
const ACTION: &[&str] = &["dryRun", "if-match", "project"];
const EXPORT: &[&str] = &[
    "format",
    "state",
    "host_phase",
    "health",
    "name",
    "pool",
    "rack",
    "set_aside",
    "labelSelector",
    "fieldSelector",
    "project",
];

pub(super) const OPERATIONS: &[Operation] = &[
    operation!("get" "/api/v1/hosts" "listHosts" 200 None => Some("HostList"), HOST_LIST, "List or watch servers (alias /api/v1/baremetalnodes)"),
    operation!("post" "/api/v1/hosts" "createHost" 201 Some("HostDraft") => Some("Host"), CREATE, "Register a server"),
    operation!("post" "/api/v1/hosts/bulk" "registerHosts" 200 Some("HostTable") => Some("RegisterReport"), &["dryRun", "project"], "Register many servers, with a verdict for each line"),
    operation!("patch" "/api/v1/hosts/bulk" "patchHosts" 200 Some("HostsPatch") => Some("HostsPatched"), &["dryRun", "project"], "Change several servers by JSON merge patches, all at one moment or none"),
    operation!("get" "/api/v1/hosts/export" "exportHosts" 200 None => Some("HostExport"), EXPORT, "Export specs, as registering takes them"),
    operation!("get" "/api/v1/hosts/{name}" "readHost" 200 None => Some("Host"), READ, "Read a server"),
    operation!("put" "/api/v1/hosts/{name}" "replaceHost" 200 Some("HostDraft") => Some("Host"), REPLACE, "Replace a server's spec, or register it with If-None-Match: *"),
    operation!("patch" "/api/v1/hosts/{name}" "patchHost" 200 Some("RecordPatch") => Some("Host"), UPDATE, "Change a server's spec by JSON merge patch"),
    operation!("delete" "/api/v1/hosts/{name}" "deleteHost" 202 None => Some("Message"), HOST_DELETE, "Delete a server's records, after its drain unless forced"),
    operation!("get" "/api/v1/hosts/{name}/events" "readHostEvents" 200 None => Some("History"), &["project"], "What happened to a server"),
    operation!("post" "/api/v1/hosts/{name}/hold" "holdHost" 200 Some("HoldRequest") => Some("Host"), ACTION, "Keep the autoscaler away from a server"),
    operation!("post" "/api/v1/hosts/{name}/release" "releaseHost" 200 Some("ReleaseRequest") => Some("Host"), ACTION, "End a hold and the power request that came with it"),
    operation!("post" "/api/v1/hosts/{name}/maintenance" "maintainHost" 200 Some("MaintenanceRequest") => Some("Host"), ACTION, "Begin or end maintenance"),
    operation!("post" "/api/v1/hosts/{name}/acknowledge" "acknowledgeHost" 200 Some("Reason") => Some("Host"), ACTION, "Say that a person has seen to a server"),
    operation!("post" "/api/v1/hosts/{name}/approve" "approveHost" 200 Some("ApproveRequest") => Some("Host"), ACTION, "Approve the key of a server's BMC"),
    operation!("post" "/api/v1/hosts/{name}/label" "labelHost" 200 Some("LabelRequest") => Some("Host"), ACTION, "Set and remove labels"),
    operation!("post" "/api/v1/hosts/{name}/power" "powerHost" 202 Some("PowerRequest") => Some("Operation"), ACTION, "Switch a server by hand, with a hold"),
    operation!("get" "/api/v1/hosts/{name}/boot" "readHostBoot" 200 None => Some("BootReport"), &["project"], "The last report on a server's boot"),
    operation!("post" "/api/v1/hosts/{name}/boot" "reportHostBoot" 200 Some("BootProgress") => Some("Message"), &[], "Report boot progress (controllers, or the token of this server)"),
    operation!("post" "/api/v1/hosts/{name}/boot-token" "makeBootToken" 201 None => Some("BootToken"), &["project"], "Make a token for a server's boot reports; it is shown once"),
    operation!("post" "/api/v1/hosts/{name}/agent/hello" "agentHello" 200 Some("AgentHello") => Some("AgentAnswer"), &[], "A sign of life of the agent on a server, signed with that server's key; the answer may order it to power off"),
    operation!("post" "/api/v1/hosts/{name}/agent/taken" "agentTaken" 200 Some("AgentTaken") => Some("Message"), &[], "The agent has taken the order; with goodbye: its server goes off"),
    operation!("get" "/api/v1/inventory" "readInventory" 200 None => Some("Inventory"), &["project"], "Figures, settings in force, and records that were set aside"),
    operation!("put" "/api/v1/inventory/config" "configureHosts" 200 Some("HostSettings") => Some("HostSettingsKept"), &["if-match"], "Change the settings of all hosts: marks, limits, Prometheus, energy price"),
    operation!("post" "/api/v1/discover" "discover" 200 Some("DiscoverRequest") => Some("Discovered"), &["project"], "Ask a BMC what it is"),
    operation!("get" "/api/v1/racks" "listRacks" 200 None => Some("RackList"), RECORD_LIST, "List or watch racks"),
    operation!("post" "/api/v1/racks" "createRack" 201 Some("RackDraft") => Some("Rack"), CREATE, "Create a rack"),
    operation!("get" "/api/v1/racks/{name}" "readRack" 200 None => Some("Rack"), READ, "Read a rack"),
    operation!("put" "/api/v1/racks/{name}" "replaceRack" 200 Some("RackDraft") => Some("Rack"), REPLACE, "Replace a rack, or create it with If-None-Match: *"),
    operation!("patch" "/api/v1/racks/{name}" "patchRack" 200 Some("RecordPatch") => Some("Rack"), UPDATE, "Change a rack by JSON merge patch"),
    operation!("delete" "/api/v1/racks/{name}" "deleteRack" 200 None => Some("Message"), DELETE, "Delete a rack that no server is in"),
    operation!("get" "/api/v1/boot-profiles" "listBootProfiles" 200 None => Some("BootProfileList"), RECORD_LIST, "List or watch boot profiles"),
    operation!("post" "/api/v1/boot-profiles" "createBootProfile" 201 Some("BootProfileDraft") => Some("BootProfile"), CREATE, "Create a boot profile"),
    operation!("get" "/api/v1/boot-profiles/{name}" "readBootProfile" 200 None => Some("BootProfile"), READ, "Read a boot profile"),
    operation!("put" "/api/v1/boot-profiles/{name}" "replaceBootProfile" 200 Some("BootProfileDraft") => Some("BootProfile"), REPLACE, "Replace a boot profile, or create it with If-None-Match: *"),
    operation!("patch" "/api/v1/boot-profiles/{name}" "patchBootProfile" 200 Some("RecordPatch") => Some("BootProfile"), UPDATE, "Change a boot profile by JSON merge patch"),
    operation!("delete" "/api/v1/boot-profiles/{name}" "deleteBootProfile" 200 None => Some("Message"), DELETE, "Delete a boot profile that no server names"),
    operation!("get" "/api/v1/credentials" "listCredentials" 200 None => Some("CredentialList"), CREDENTIAL_LIST, "List or watch credentials, without their values"),
    operation!("post" "/api/v1/credentials" "createCredential" 201 Some("CredentialDraft") => Some("Credential"), &["dryRun", "project"], "Create a credential"),
    operation!("get" "/api/v1/credentials/{name}" "readCredential" 200 None => Some("Credential"), READ, "Read a credential, without its value"),
    operation!("put" "/api/v1/credentials/{name}" "replaceCredential" 200 Some("CredentialDraft") => Some("Credential"), UPDATE, "Rotate a credential"),
    operation!("delete" "/api/v1/credentials/{name}" "deleteCredential" 200 None => Some("Message"), DELETE, "Delete a credential that no server names"),
    operation!("post" "/api/v1/credentials/{name}/rotate" "rotateCredential" 200 Some("CredentialDraft") => Some("Credential"), UPDATE, "Rotate a credential: the next version"),
];

/// What agents on hosts say and hear.
fn agents(text: &Value, time: &Value) -> Value {
    json!({
        "AgentHello": { "type": "object", "required": ["host", "bootId", "macs", "nonce", "sent", "signature"],
            "properties": { "host": text, "bootId": text, "macs": { "type": "array", "items": text }, "nonce": text,
            "sent": time, "signature": text } },
        "AgentToken": { "type": "object", "required": ["host", "bootId", "nonce", "issued", "expires", "signature"],
            "properties": { "host": text, "bootId": text, "nonce": text, "issued": time, "expires": time, "signature": text } },
        "HostSettings": { "type": "object", "properties": {
            "highMarkPercent": { "type": "integer", "minimum": 20, "maximum": 100 },
            "lowMarkPercent": { "type": "integer", "minimum": 0, "maximum": 80 },
            "maxPowerOperations": { "type": "integer", "minimum": 1 },
            "maxPowerOperationsPerRack": { "type": "integer", "minimum": 1 },
            "maxStartsPerSecond": { "type": "integer", "minimum": 1 }, "prometheusUrl": text,
            "energyPriceMicros": { "type": "integer" },
            "currency": text, "policy": { "type": "object" }, "deadlines": { "type": "object" } } },
        "HostSettingsKept": { "type": "object", "required": ["config", "revision"], "properties": {
            "config": { "type": "object" }, "revision": text } },
        "AgentAnswer": { "type": "object", "properties": { "powerOff": reference("AgentToken") } },
        "AgentTaken": { "type": "object", "required": ["token", "nonce", "sent", "signature"], "properties": {
            "token": reference("AgentToken"), "nonce": text, "sent": time, "signature": text,
            "goodbye": { "type": "boolean", "default": false } } },
    })
}

/// Several hosts that are changed at one moment.
fn together(text: &Value, name: &Value) -> Value {
    json!({
        "HostsPatch": { "type": "object", "required": ["hosts"], "properties": { "hosts": { "type": "array", "maxItems": 24,
            "items": { "type": "object", "required": ["name"], "properties": {
                "name": name, "resource_version": text, "spec": { "type": "object", "description": "RFC 7396: members replace, null removes" } } } } },
            "example": { "hosts": [{ "name": "gpu-01", "spec": { "slot": 5 } }, { "name": "gpu-02", "spec": { "slot": 1 } }] } },
        "HostsPatched": { "type": "object", "required": ["dry_run", "hosts"], "properties": { "dry_run": { "type": "boolean" },
            "hosts": { "type": "array", "items": reference("Host") } } },
    })
}

fn add(all: &mut Value, more: Value) {
    if let (Value::Object(all), Value::Object(more)) = (all, more) {
        all.extend(more);
    }
}

fn list_of(all: &[&str]) -> Value {
    json!({ "type": "string", "enum": all })
}

pub(super) fn parameters(query: &dyn Fn(&str, Value, &str) -> Value) -> Value {
    let text = json!({ "type": "string" });
    let flag = json!({ "type": "boolean", "default": false });
    json!({
        "name_cursor": query("cursor", text.clone(), "next_cursor of the page before"),
        "host_limit": query("limit", json!({ "type": "integer", "minimum": 1, "maximum": 5000, "default": 100 }), "Servers on a page"),
        "state": query("state", list_of(&State::ALL.map(State::as_str)), "Only servers in this state"),
        "host_phase": query("phase", list_of(&Phase::ALL.map(Phase::as_str)), "Only servers in this phase"),
        "pool": query("pool", text.clone(), "Only servers of this inventory pool"),
        "rack": query("rack", text, "Only servers in this rack"),
        "set_aside": query("set_aside", json!({ "type": "boolean" }), "Only records that are set aside, or only the others"),
        "powerOff": query("powerOff", flag.clone(), "Switch the server off before its records go"),
        "force_host": query("force", flag, "Delete the records at once, and touch nothing"),
        "format": query("format", list_of(&["csv", "json"]), "Form of the export"),
    })
}

pub(super) fn schemas() -> Value {
    let text = json!({ "type": "string" });
    let time = json!({ "type": "string", "format": "date-time" });
    let reason = json!({ "type": "string", "maxLength": 253 });
    let list = |name: &str, item: &str| {
        json!({ "type": "object", "required": [name, "total", "limit", "offset", "revision"], "properties": {
            name: { "type": "array", "items": reference(item) }, "total": { "type": "integer" },
            "limit": { "type": "integer" }, "offset": { "type": "integer" }, "revision": text, "next_cursor": text } })
    };
    let record = |spec: &str| {
        json!({ "type": "object", "required": ["id", "name", "resource_version", "spec"], "properties": {
            "kind": text, "id": text, "name": text, "project": text, "resource_version": text,
            "created_at": time, "created_by": text, "updated_at": time, "spec": reference(spec) } })
    };
    let name = json!({ "type": "string", "pattern": NAME });
    let word = json!({ "type": "string", "minLength": 1 });
    let draft = |spec: &str| {
        json!({ "type": "object", "required": ["name", "spec"], "properties": {
            "name": name, "resource_version": text, "spec": reference(spec) } })
    };
    let mut all = json!({
        "HostList": list("hosts", "Host"),
        "RackList": list("racks", "Rack"),
        "BootProfileList": list("boot-profiles", "BootProfile"),
        "CredentialList": list("credentials", "Credential"),
        "HostDraft": draft("HostSpec"),
        "RackDraft": draft("RackSpec"),
        "BootProfileDraft": draft("BootProfileSpec"),
        "Rack": record("RackSpec"),
        "BootProfile": record("BootProfileSpec"),
        "RackSpec": { "type": "object", "properties": { "name": name, "units": { "type": "integer", "minimum": 1, "maximum": 60 },
            "zone": word, "wattCap": { "type": "integer", "minimum": 1, "maximum": 1_000_000 }, "startLimit": { "type": "integer", "minimum": 1 } } },
        "BootProfileSpec": { "type": "object", "required": ["target"], "properties": { "name": name,
            "target": words::<BootTarget>(), "mode": words::<BootMode>(), "once": { "type": "boolean" }, "url": word } },
        "Credential": { "type": "object", "required": ["id", "name", "spec", "status"], "properties": {
            "kind": text, "id": text, "name": text, "project": text, "resource_version": text, "created_at": time, "created_by": text,
            "spec": { "type": "object", "properties": { "kind": words::<CredentialKind>(), "source": { "type": "object" } } },
            "status": { "type": "object", "properties": { "version": { "type": "integer" }, "rotatedAt": time,
                "accepted": { "type": ["object", "null"] }, "refused": { "type": ["object", "null"] }, "isRefused": { "type": "boolean" } } } } },
        "CredentialDraft": { "type": "object", "required": ["spec"], "properties": { "name": name,
            "spec": { "type": "object", "properties": { "kind": words::<CredentialKind>(), "user": word,
                "password": { "type": "string", "minLength": 1, "writeOnly": true }, "secretName": word } } } },
        "HostTable": { "description": "A list of hosts, an object with hosts, or a CSV table" },
        "HostExport": { "type": "object", "properties": { "hosts": { "type": "array", "items": reference("HostDraft") }, "revision": text } },
        "RegisterReport": { "type": "object", "required": ["created", "unchanged", "failed", "lines"], "properties": {
            "dry_run": { "type": "boolean" }, "created": { "type": "integer" }, "unchanged": { "type": "integer" }, "failed": { "type": "integer" },
            "lines": { "type": "array", "items": { "type": "object", "required": ["line", "result"], "properties": {
                "line": { "type": "integer" }, "name": text, "result": list_of(&["created", "unchanged", "failed"]),
                "message": text, "warnings": { "type": "array", "items": text } } } } } },
        "History": { "type": "object", "required": ["events", "total"], "properties": { "total": { "type": "integer" },
            "events": { "type": "array", "items": { "type": "object", "required": ["at", "source", "by", "what", "message"], "properties": {
                "at": time, "source": list_of(&["lifecycle", "inventory"]), "by": text, "what": text, "message": text,
                "from": text, "to": text, "count": { "type": "integer" }, "operation": text,
                "deadline": time } } } } },
        "Reason": { "type": "object", "required": ["reason"], "properties": { "reason": reason } },
        "HoldRequest": { "type": "object", "required": ["reason"], "properties": { "reason": reason, "until": time, "for": text } },
        "ReleaseRequest": { "type": "object", "properties": { "reason": reason } },
        "MaintenanceRequest": { "type": "object", "required": ["on"], "properties": { "on": { "type": "boolean" }, "reason": reason } },
        "LabelRequest": { "type": "object", "required": ["labels"], "properties": { "labels": { "type": "object",
            "additionalProperties": { "type": ["string", "null"] } } } },
        "PowerRequest": { "type": "object", "required": ["action", "reason"], "properties": {
            "action": words::<ManualPower>(), "reason": reason, "until": time, "for": text } },
        "BootProgress": { "type": "object", "required": ["stage"], "properties": { "stage": text, "os": { "type": "boolean" } } },
        "BootReport": { "type": "object", "required": ["stage", "os", "at", "by"], "properties": { "stage": text,
            "os": { "type": "boolean" }, "at": time, "by": text } },
        "BootToken": { "type": "object", "required": ["name", "token"], "properties": { "name": text, "token": text } },
        "Inventory": { "type": "object", "required": ["hosts", "set_aside", "config", "revision"], "properties": {
            "hosts": { "type": "integer" }, "set_aside": { "type": "array", "items": { "type": "object" } },
            "config": { "type": "object" }, "config_problem": text, "stats": { "type": ["object", "null"] },
            "events": { "type": "array", "items": { "type": "object" } }, "revision": text } },
        "Discovered": { "type": "object", "required": ["identity", "spec", "missing"], "properties": {
            "identity": { "type": "object" }, "spec": { "type": "object" }, "missing": { "type": "array", "items": text } } },
    });
    add(&mut all, together(&text, &name));
    add(&mut all, agents(&text, &time));
    add(&mut all, trust(&name, &word, &reason));
    all["Host"] = host(&text, &time);
    all["HostSpec"] = host_spec(&text);
    all
}

/// How a BMC proves who it is: to `discover`, and by a person's word.
fn trust(name: &Value, word: &Value, reason: &Value) -> Value {
    json!({
        "ApproveRequest": { "type": "object", "required": ["pin"], "properties": { "pin": pin(), "reason": reason } },
        "DiscoverRequest": { "type": "object", "required": ["address"], "properties": { "address": word,
            "driver": list_of(&["redfish", "ipmi"]), "credentials": name, "systemId": word,
            "tlsVerify": words::<TlsVerify>(), "pin": pin(), "ca": { "type": "string", "minLength": 1, "maxLength": 32768 }, "serverName": word, "plainHttp": { "type": "boolean" } } },
    })
}

/// A key of a BMC.
fn pin() -> Value {
    json!({ "type": "string", "pattern": "^sha256:[0-9a-fA-F]{64}$" })
}

/// Why a BMC is not called any more.
fn bmc_blocked(text: &Value, time: &Value) -> Value {
    json!({ "type": "object", "required": ["cause", "message", "since"], "properties": {
        "cause": list_of(&BlockCause::ALL.map(BlockCause::as_str)), "message": text, "since": time,
        "credentialVersion": { "type": "integer" }, "driver": { "type": "integer" }, "seenKey": pin() } })
}

fn host(text: &Value, time: &Value) -> Value {
    json!({ "type": "object", "required": ["id", "name", "resource_version", "spec", "status", "health"], "properties": {
        "kind": text, "id": text, "name": text, "project": { "type": ["string", "null"] }, "resource_version": text,
        "generation": { "type": "integer" }, "revision": text, "created_at": { "type": ["string", "null"] },
        "created_by": { "type": ["string", "null"] }, "health": words::<Health>(), "spec": reference("HostSpec"),
        "status": { "type": "object", "required": ["state", "phase", "powerState"], "properties": {
            "state": list_of(&State::ALL.map(State::as_str)), "stateSince": time, "lastError": text,
            "phase": list_of(&Phase::ALL.map(Phase::as_str)), "powerState": list_of(&["on", "off", "unknown"]),
            "lastPowerAction": text, "powerActionTime": time, "powerActionDriver": text, "kubernetesNode": text, "kubernetesCluster": text, "nodeReady": { "type": "boolean" },
            "bmcReachable": { "type": "boolean" }, "bootTime": time, "joinTime": time, "reason": text,
            "bmcBlocked": bmc_blocked(text, time),
            "conditions": { "type": "array", "items": reference("Condition") } } },
        "op": { "type": "object" }, "intent": { "type": "object" }, "metrics": { "type": "object" },
        "set_aside": { "type": "object", "required": ["key", "reason"], "properties": { "key": text, "reason": text } },
        "deletion": { "type": "object" }, "unread": { "type": "array", "items": { "type": "object" } } } })
}

fn host_spec(text: &Value) -> Value {
    let count = json!({ "type": "integer", "minimum": 0 });
    let labels = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let drivers: Vec<&str> = DriverKind::ALL.iter().map(|(word, _)| *word).collect();
    json!({ "type": "object", "required": ["powerInterface", "pool"], "properties": {
        "mgmtAddress": text, "macAddress": text, "powerInterface": words::<PowerInterface>(), "bmcCredentials": text,
        "bootProfile": text, "rack": text, "slot": count, "height": count, "zone": text, "pool": text,
        "resources": { "type": "object", "properties": { "cpu": text, "memory": text, "gpu": count, "storage": text,
            "customResources": labels } },
        "powerState": words::<Switch>(), "inventoryId": text, "systemId": text, "serial": text,
        "tlsVerify": words::<TlsVerify>(), "pin": pin(), "labels": labels, "taints": { "type": "array", "items": reference("Taint") },
        "idleWatts": count, "maxWatts": count, "nodeMatch": { "type": "object" }, "admin": words::<Admin>(),
        "drivers": { "type": "array", "maxItems": 8, "items": { "type": "object", "required": ["kind"], "properties": {
            "kind": list_of(&drivers), "address": text, "credentials": text, "settings": labels } } },
        "hold": { "type": "object" }, "acknowledgement": { "type": "object" }, "deadlines": labels,
        "canForceOff": { "type": "boolean" }, "project": text, "registered": { "type": "object" }, "deletion": { "type": "object" } } })
}

/// How clusters are reached.
pub(super) fn connection_schemas() -> Value {
    let text = json!({ "type": "string" });
    let time = json!({ "type": "string", "format": "date-time" });
    json!({
        "ConnectionDraft": { "type": "object", "properties": {
            "kubeconfig": { "type": "string", "writeOnly": true, "maxLength": 65536,
                "description": "Without references to files or programs, as `kubectl config view --raw --minify --flatten` prints it" },
            "context": text, "inCluster": { "type": "boolean" } } },
        "Connection": { "type": "object", "required": ["cluster_id", "spec", "status"], "properties": {
            "cluster_id": { "type": "string", "format": "uuid" },
            "spec": { "type": ["object", "null"], "properties": { "kind": words::<ConnectionKind>(), "context": text,
                "server": text, "version": { "type": "integer" }, "setAt": time, "setBy": text } },
            "status": { "type": "object", "required": ["state", "message"], "properties": {
                "state": words::<ConnectionWord>(), "message": text, "kubernetesVersion": text, "freshAt": time,
                "kinds": { "type": "integer" }, "synced": { "type": "integer" }, "objects": { "type": "integer" },
                "waiting": { "type": "array", "items": { "type": "object", "properties": {
                    "kind": text, "why": text, "since": time } } } } } } },
    })
}
