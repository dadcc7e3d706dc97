//! What the inventory keeps of a pool, and the seed's pool status derived from its hosts.

use serde::{Deserialize, Serialize};

use serde_json::{Map, Value};

use crate::{
    Duration, Known, Timestamp,
    field::{FieldError, FieldErrors, Findings, Object, choice, parse_json},
    names,
};

use super::{
    Admin, BareMetalNodeSpec, BareMetalNodeStatus, HostOp, Intent, LimitOverrides, OpKind, Phase,
    PolicyOverrides, ResourceCapacity, State, Switch,
};

/// How long a finished scaling entry stays in a pool's status.
pub const FINISHED_STAYS: Duration = Duration::from_hours(1);

/// `/baremetal/pools/{pool}/members`: derived from the specs of the hosts, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PoolMembers(pub Vec<String>);

impl PoolMembers {
    /// The hosts whose spec names `pool`.
    pub fn of<'h>(pool: &str, hosts: impl IntoIterator<Item = (&'h str, &'h BareMetalNodeSpec)>) -> Self {
        let mut names: Vec<_> = hosts
            .into_iter()
            .filter(|(_, spec)| spec.pool == pool)
            .map(|(name, _)| name.to_owned())
            .collect();
        names.sort_unstable();
        Self(names)
    }
}

/// `/baremetal/pools/{pool}/config`: how the hosts of a pool are handled.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PoolHostConfig {
    #[serde(skip_serializing_if = "PolicyOverrides::is_empty")]
    pub policy: PolicyOverrides,
    #[serde(skip_serializing_if = "LimitOverrides::is_empty")]
    pub deadlines: LimitOverrides,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_profile: Option<String>,
    /// Keep a node in every rack that has one.
    pub rack_spread: bool,
    /// Keep a node in every zone that has one.
    pub zone_spread: bool,
}

/// Fields of a pool's platform block that are its host settings.
const SETTINGS: [&str; 5] = ["bootProfile", "deadlines", "policy", "rackSpread", "zoneSpread"];

impl PoolHostConfig {
    /// Reads the settings that stand in `object`, noting every fault; other members are left alone.
    pub fn read_from(object: &mut Object<'_>, findings: &mut Findings) -> Self {
        let mut config = Self::default();
        if let Some(block) = object.object("policy", findings) {
            config.policy = PolicyOverrides::read(&block, findings);
        }
        if let Some(block) = object.object("deadlines", findings) {
            config.deadlines = super::read::read_deadlines(&block, findings);
        }
        config.boot_profile = object.string("bootProfile", findings).map(str::to_owned);
        if let Some(name) = &config.boot_profile
            && let Err(error) = names::check_dns_label(name)
        {
            findings.push(
                FieldError::new(object.at("bootProfile"), error.problem)
                    .found_text(name)
                    .allowed(names::DNS_LABEL),
            );
        }
        config.rack_spread = object.boolean("rackSpread", findings).unwrap_or_default();
        config.zone_spread = object.boolean("zoneSpread", findings).unwrap_or_default();
        config
    }

    /// Reads the text of a stored record, strictly: what anybody may have written there is judged before it is used.
    pub fn parse(text: &[u8]) -> Result<Self, FieldErrors> {
        Self::read(&parse_json(text)?, "")
    }

    /// Reads a stored record, strictly.
    pub fn read(value: &Value, path: &str) -> Result<Self, FieldErrors> {
        let mut findings = Findings::new();
        let config = Object::read(value, path, &mut findings).map(|mut object| {
            let config = Self::read_from(&mut object, &mut findings);
            object.finish(&mut findings);
            config
        });
        findings.result_of(config).map(|parsed| parsed.value)
    }

    /// The settings in a pool's platform block, which was checked before.
    pub fn of_block(block: &Map<String, Value>) -> Self {
        Self::read_from(&mut Object::of(block, ""), &mut Findings::new())
    }

    /// Puts the settings into a pool's platform block: what is the default is left out.
    pub fn write_to(&self, block: &mut Map<String, Value>) {
        let all = serde_json::to_value(self).unwrap_or_default();
        let usual = serde_json::to_value(Self::default()).unwrap_or_default();
        for name in SETTINGS {
            match all.get(name).filter(|value| usual.get(name) != Some(value)) {
                Some(value) => drop(block.insert(name.to_owned(), value.clone())),
                None => drop(block.remove(name)),
            }
        }
    }
}

choice! {
    /// The seed's `action`.
    pub enum ScalingAction("a scaling action") {
        ScaleUp = "scale-up",
        ScaleDown = "scale-down",
    }
}

choice! {
    /// The seed's `state` of a scaling node.
    pub enum ScalingState("a scaling state") {
        Pending = "pending",
        InProgress = "in-progress",
        Completed = "completed",
        Failed = "failed",
    }
}

/// One node that scales, or has just done so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalingNode {
    /// Its name in the cluster, which may differ from that of its host and is not known before it is first seen.
    pub node_name: String,
    /// The host in the inventory: what an entry is followed by. Entries of older versions have none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host_name: String,
    pub action: ScalingAction,
    pub action_since: Timestamp,
    pub state: ScalingState,
    pub resources: ResourceCapacity,
    pub reason: String,
    /// When it was finished; the entry goes away an hour later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// The seed's pool status, served as `status.baremetal`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalPoolStatus {
    pub ready_nodes: u32,
    pub pending_nodes: u32,
    pub desired_nodes: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scaling_nodes: Vec<ScalingNode>,
    /// Of the ready nodes.
    pub available_resources: ResourceCapacity,
    /// Allocated to pods.
    pub active_resources: ResourceCapacity,
    /// On their way.
    pub pending_resources: ResourceCapacity,
}

/// One host of a pool as the status sees it.
#[derive(Debug, Clone, Copy)]
pub struct PoolHost<'h> {
    pub name: &'h str,
    pub spec: &'h BareMetalNodeSpec,
    pub status: &'h BareMetalNodeStatus,
    pub op: Option<&'h HostOp>,
    pub intent: Option<&'h Intent>,
    /// What its pods request; unknown counts as nothing here and is never a reason to scale down.
    pub allocated: &'h Known<ResourceCapacity>,
}

/// Derives a pool's status. `before` is the last one: entries of operations that have ended since are
/// marked as finished, and stay for an hour.
pub fn pool_status(
    hosts: &[PoolHost<'_>],
    desired_nodes: u32,
    before: &[ScalingNode],
    now: Timestamp,
) -> BareMetalPoolStatus {
    let mut status = BareMetalPoolStatus { desired_nodes, ..BareMetalPoolStatus::default() };
    for host in hosts {
        if matches!(host.status.phase, Phase::Serving | Phase::Degraded) {
            status.ready_nodes += 1;
            status.available_resources += &host.spec.resources;
        }
        if let (State::Ready | State::Draining, Known::Value { value, .. }) =
            (host.status.state, host.allocated)
        {
            status.active_resources += value;
        }
        if is_pending(host, now) {
            status.pending_nodes += 1;
            status.pending_resources += &host.spec.resources;
        }
        status.scaling_nodes.extend(under_way(host).or_else(|| wished(host, now)));
    }
    for old in before {
        let same = |one: &ScalingNode| {
            let known = if old.host_name.is_empty() { &one.node_name } else { &one.host_name };
            *known == *old.name() && one.action == old.action
        };
        // What has ended stays for its hour, also when the same host scales again meanwhile.
        if old.finished_at.is_none() && status.scaling_nodes.iter().any(same) {
            continue;
        }
        let finished = old.finished_at.map_or_else(|| finish(old, hosts, now), |_| old.clone());
        if now.since(finished.finished_at.unwrap_or(now)) < FINISHED_STAYS {
            status.scaling_nodes.push(finished);
        }
    }
    status.scaling_nodes.sort_by(|a, b| {
        (a.action_since, &a.node_name, a.action).cmp(&(b.action_since, &b.node_name, b.action))
    });
    status
}

impl ScalingNode {
    /// What it is followed by.
    fn name(&self) -> &str {
        if self.host_name.is_empty() { &self.node_name } else { &self.host_name }
    }
}

/// On its way to serving, or wanted and waiting until it may start.
fn is_pending(host: &PoolHost<'_>, now: Timestamp) -> bool {
    let wanted = host.op.is_some_and(|op| op.kind == OpKind::On && !op.released);
    let coming = host.status.phase == Phase::Reserved || host.status.state == State::PoweringOn;
    (wanted && coming) || waiting(host, now).is_some()
}

/// The wish for a host that is to go on and has not begun to: as long as plans count on it.
fn waiting<'h>(host: &PoolHost<'h>, now: Timestamp) -> Option<&'h Intent> {
    let status = host.status;
    let idle = status.state == State::Off && status.phase != Phase::Enrolling && host.op.is_none();
    let free = host.spec.admin == Admin::Normal && host.spec.deletion.is_none();
    let stands = |intent: &&Intent| {
        let spent = status.spent_intent.as_deref() == Some(intent.id.as_str());
        intent.want == Switch::On && !spent && now.since(intent.at) < Intent::TAKEN_UP_WITHIN
    };
    host.intent.filter(stands).filter(|_| idle && free)
}

fn wished(host: &PoolHost<'_>, now: Timestamp) -> Option<ScalingNode> {
    let intent = waiting(host, now)?;
    Some(ScalingNode {
        node_name: node_name(host),
        host_name: host.name.to_owned(),
        action: ScalingAction::ScaleUp,
        action_since: intent.at,
        state: ScalingState::Pending,
        resources: host.spec.resources.clone(),
        reason: intent.reason.clone(),
        finished_at: None,
    })
}

fn node_name(host: &PoolHost<'_>) -> String {
    host.status.kubernetes_node.clone().unwrap_or_else(|| host.name.to_owned())
}

fn under_way(host: &PoolHost<'_>) -> Option<ScalingNode> {
    let op = host.op?;
    let (action, state) = match (op.kind, host.status.state) {
        (OpKind::On, State::Off) => (ScalingAction::ScaleUp, ScalingState::Pending),
        (OpKind::On, _) => (ScalingAction::ScaleUp, ScalingState::InProgress),
        // The way off after a boot that failed is the end of that attempt, not a scale-down.
        (OpKind::Off, _) if op.failed.is_some() => return None,
        (OpKind::Off, _) if host.status.phase == Phase::Cordoned => {
            (ScalingAction::ScaleDown, ScalingState::Pending)
        }
        (OpKind::Off, _) => (ScalingAction::ScaleDown, ScalingState::InProgress),
        (OpKind::Cycle | OpKind::SelfTest, _) => return None,
    };
    Some(ScalingNode {
        node_name: node_name(host),
        host_name: host.name.to_owned(),
        action,
        action_since: op.started,
        state,
        resources: host.spec.resources.clone(),
        reason: op.reason.clone(),
        finished_at: None,
    })
}

/// How an operation that is no longer there has ended, by where its host stands now.
fn finish(old: &ScalingNode, hosts: &[PoolHost<'_>], now: Timestamp) -> ScalingNode {
    let unnamed = |host: &PoolHost<'_>| old.host_name.is_empty() && node_name(host) == old.node_name;
    let host = hosts.iter().find(|host| host.name == old.name() || unnamed(host));
    let state = match (old.action, host.map(|host| host.status.state)) {
        (ScalingAction::ScaleUp, Some(State::Ready))
        | (ScalingAction::ScaleDown, Some(State::Off) | None) => ScalingState::Completed,
        (ScalingAction::ScaleUp, _) | (ScalingAction::ScaleDown, Some(_)) => ScalingState::Failed,
    };
    let reason = match (state, host) {
        (ScalingState::Failed, Some(host)) => {
            host.status.last_error.clone().unwrap_or_else(|| host.status.reason.clone())
        }
        (_, _) => old.reason.clone(),
    };
    // The node's name may have become known meanwhile.
    let node = host.and_then(|host| host.status.kubernetes_node.clone());
    let node_name = node.unwrap_or_else(|| old.node_name.clone());
    ScalingNode { node_name, state, reason, finished_at: Some(now), ..old.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Cause, PowerInterface};

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_millis(secs * 1000)
    }

    fn spec(gpu: u32) -> BareMetalNodeSpec {
        let mut spec = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
        spec.resources.gpu = gpu;
        spec
    }

    fn status(phase: Phase) -> BareMetalNodeStatus {
        let mut status = BareMetalNodeStatus::enrolling(at(0));
        (status.phase, status.state) = (phase, phase.state());
        status
    }

    fn op(kind: OpKind) -> HostOp {
        HostOp::new("h-1".into(), kind, Cause::AllOn, "2 pods wait".into(), 1, at(0))
    }

    #[test]
    fn settings_go_into_a_pools_block_and_come_back() {
        let mut config = PoolHostConfig { rack_spread: true, zone_spread: true, ..PoolHostConfig::default() };
        config.policy.quarantine_after = Some(5);
        config.deadlines.set("bootDeadline", Duration::from_mins(40));
        let mut block = Map::from_iter([("pool".to_owned(), Value::from("gpu"))]);
        config.write_to(&mut block);
        assert_eq!(PoolHostConfig::of_block(&block), config);
        assert_eq!(PoolHostConfig::read(&serde_json::to_value(&config).unwrap(), "").unwrap(), config);
        PoolHostConfig::default().write_to(&mut block);
        assert_eq!(block.len(), 1, "defaults are left out, the rest is kept: {block:?}");
        for (wrong, part) in [
            (serde_json::json!({"polcy": {}}), "did you mean policy?"),
            (
                serde_json::json!({"policy": {"onUnexpectedOff": "panic"}}),
                "policy.onUnexpectedOff: cannot be used",
            ),
            (serde_json::json!({"policy": {"quarantineAfter": 0}}), "at least 1"),
            (serde_json::json!({"rackSpread": "yes"}), "must be true or false"),
            (serde_json::json!({"zoneSpread": 1}), "must be true or false"),
            (serde_json::json!({"zonespread": true}), "did you mean zoneSpread?"),
            (serde_json::json!([]), "must be"),
        ] {
            let text = PoolHostConfig::read(&wrong, "").unwrap_err().to_string();
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }

    #[test]
    fn counts_and_sums_follow_the_hosts() {
        let (spec, nothing) = (spec(8), Known::Unknown { why: "no answer".into(), since: at(0) });
        let used = Known::Value { value: ResourceCapacity { gpu: 3, ..Default::default() }, at: at(0) };
        let on = op(OpKind::On);
        let (serving, booting, idle) = (status(Phase::Serving), status(Phase::Booting), status(Phase::Idle));
        let host =
            |name, status, op, allocated| PoolHost { name, spec: &spec, status, op, intent: None, allocated };
        let hosts = [
            host("a", &serving, None, &used),
            host("b", &booting, Some(&on), &nothing),
            host("c", &idle, None, &nothing),
        ];
        let done = pool_status(&hosts, 2, &[], at(10));
        assert_eq!((done.ready_nodes, done.pending_nodes, done.desired_nodes), (1, 1, 2));
        assert_eq!(
            (done.available_resources.gpu, done.active_resources.gpu, done.pending_resources.gpu),
            (8, 3, 8)
        );
        assert_eq!(done.scaling_nodes.len(), 1);
        assert_eq!(done.scaling_nodes[0].state, ScalingState::InProgress);
        let text = serde_json::to_value(&done).unwrap();
        assert_eq!(text["scalingNodes"][0]["action"], "scale-up");
        assert_eq!(text["scalingNodes"][0]["nodeName"], "b");
        for name in [
            "readyNodes",
            "pendingNodes",
            "desiredNodes",
            "availableResources",
            "activeResources",
            "pendingResources",
        ] {
            assert!(text.get(name).is_some(), "{name}");
        }
    }

    #[test]
    fn finished_entries_stay_an_hour() {
        fn host<'h>(
            spec: &'h BareMetalNodeSpec,
            status: &'h BareMetalNodeStatus,
            op: Option<&'h HostOp>,
            allocated: &'h Known<ResourceCapacity>,
        ) -> [PoolHost<'h>; 1] {
            [PoolHost { name: "b", spec, status, op, intent: None, allocated }]
        }
        let (spec, unknown) = (spec(8), Known::Unknown { why: "no answer".into(), since: at(0) });
        let on = op(OpKind::On);
        let booting = status(Phase::Booting);
        let first = pool_status(&host(&spec, &booting, Some(&on), &unknown), 1, &[], at(10));
        for (phase, ended) in
            [(Phase::Serving, ScalingState::Completed), (Phase::Backoff, ScalingState::Failed)]
        {
            let after = status(phase);
            let second = pool_status(&host(&spec, &after, None, &unknown), 1, &first.scaling_nodes, at(100));
            assert_eq!(second.scaling_nodes[0].state, ended);
            let kept = pool_status(&host(&spec, &after, None, &unknown), 1, &second.scaling_nodes, at(3699));
            assert_eq!(kept.scaling_nodes, second.scaling_nodes);
            // Also when the host is tried again before that.
            let again =
                pool_status(&host(&spec, &booting, Some(&on), &unknown), 1, &second.scaling_nodes, at(200));
            let mut states: Vec<_> = again.scaling_nodes.iter().map(|one| one.state).collect();
            states.sort_unstable();
            assert_eq!(states, [ScalingState::InProgress, ended]);
            assert_eq!(
                pool_status(&host(&spec, &after, None, &unknown), 1, &second.scaling_nodes, at(3700))
                    .scaling_nodes,
                []
            );
        }
    }

    /// The node of a host need not have the host's name, and nobody knows it before it joins.
    #[test]
    fn an_entry_is_followed_by_its_host_and_not_by_its_node() {
        let (spec, unknown) = (spec(8), Known::Unknown { why: "no answer".into(), since: at(0) });
        let (on, off) = (op(OpKind::On), op(OpKind::Off));
        let seen = |phase, node: Option<&str>| {
            let mut status = status(phase);
            status.kubernetes_node = node.map(str::to_owned);
            status
        };
        let mut before = Vec::new();
        let mut told = |status: &BareMetalNodeStatus, op| {
            let host = PoolHost { name: "g1", spec: &spec, status, op, intent: None, allocated: &unknown };
            let entries = pool_status(&[host], 1, &before, at(100)).scaling_nodes;
            before.clone_from(&entries);
            let word = |one: ScalingNode| format!("{} {} {}", one.node_name, one.action, one.state);
            entries.into_iter().map(word).collect::<Vec<_>>()
        };
        let node = Some("worker-7");
        assert_eq!(told(&seen(Phase::Booting, None), Some(&on)), ["g1 scale-up in-progress"]);
        assert_eq!(told(&seen(Phase::Joining, node), Some(&on)), ["worker-7 scale-up in-progress"]);
        assert_eq!(told(&seen(Phase::Serving, node), None), ["worker-7 scale-up completed"]);
        let down = told(&seen(Phase::Evicting, node), Some(&off));
        assert_eq!(down, ["worker-7 scale-up completed", "worker-7 scale-down in-progress"]);
        let down = told(&seen(Phase::Idle, None), None);
        assert_eq!(down, ["worker-7 scale-up completed", "worker-7 scale-down completed"]);
    }

    /// A host that waits until it may start is on its way for whoever asks the pool, as it is for plans.
    #[test]
    fn a_wish_that_waits_for_its_turn_is_pending() {
        let (spec, unknown) = (spec(8), Known::Unknown { why: "no answer".into(), since: at(0) });
        let intent = Intent {
            id: "d-1".into(),
            want: Switch::On,
            at: at(10),
            reason: "2 pods wait".into(),
            pool: "gpu".into(),
            decision: "d".into(),
            epoch: 1,
            spread_weighed: false,
        };
        let told = |status: &BareMetalNodeStatus, intent: &Intent, now| {
            let host = PoolHost {
                name: "g1",
                spec: &spec,
                status,
                op: None,
                intent: Some(intent),
                allocated: &unknown,
            };
            let all = pool_status(&[host], 1, &[], now);
            let entry = all.scaling_nodes.first().map(|one| (one.action, one.state, one.action_since));
            (all.pending_nodes, all.pending_resources.gpu, entry)
        };
        let pending = (1, 8, Some((ScalingAction::ScaleUp, ScalingState::Pending, at(10))));
        let nothing = (0, 0, None);
        let mut idle = status(Phase::Idle);
        assert_eq!(told(&idle, &intent, at(20)), pending);
        assert_eq!(told(&idle, &intent, at(10 + 300)), nothing, "plans no longer count on it");
        assert_eq!(told(&idle, &Intent { want: Switch::Off, ..intent.clone() }, at(20)), nothing);
        idle.spent_intent = Some("d-1".into());
        assert_eq!(told(&idle, &intent, at(20)), nothing, "it was carried out");
        assert_eq!(told(&status(Phase::Serving), &intent, at(20)), nothing);
    }

    #[test]
    fn members_are_derived_from_the_specs() {
        let (here, mut there) = (spec(0), spec(0));
        there.pool = "cpu".into();
        let members = PoolMembers::of("gpu", [("b", &here), ("a", &here), ("c", &there)]);
        assert_eq!(serde_json::to_string(&members).unwrap(), r#"["a","b"]"#);
    }
}
