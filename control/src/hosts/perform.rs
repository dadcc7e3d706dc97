//! Doing what a step asked for, once its state is stored.

use std::{fmt, sync::Arc};

use muster_engine::lifecycle::{Effect, EffectKind, Outcome, Performed, Step, TroubleClass, driver_for};
use muster_model::{
    Duration, Known, Timestamp,
    host::{
        BareMetalNodeSpec, BareMetalNodeStatus, HostOp, Limits, Phase, Power, PowerAction, PowerCall, State,
    },
    k8s::{Effect as TaintEffect, Node, Taint},
    observe::{
        About, ActError, Acted, ClusterPort, NodeAction, Note, OFF_TAINT, OUT_OF_SERVICE_TAINT, STARTUP_TAINT,
    },
    power::{Bmc, BootOverride, DriverKind, Fault, Order, Power as PowerPort, PowerError},
};

use super::{
    evidence::{self, Cluster, Sight},
    failpoint::Side,
    leave,
    look::{limited, outcome, trouble_of},
    nodes,
    pace::FRESH,
    recount,
    turn::{Memo, Shared},
    ways::{Way, boot_of, order_of},
    witness,
};
use crate::{audit::AuditError, lead::Tenure};

/// Evictions that one turn asks for; the rest has its turn a few seconds later.
const EVICTIONS: usize = 50;
/// A conversation with a BMC: it logs in and asks for what it must know before the request that changes the machine, which
/// needs leave of its own. The whole of it may take so many times as long as one request.
const REQUESTS: u64 = 3;
/// Bursts of magic packets that lie no further apart belong to one start: twice the time between two of them.
const SAME_START: Duration = Duration::from_secs(60);

/// What effects are performed on.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub shared: &'a Shared,
    pub name: &'a Arc<str>,
    pub spec: &'a BareMetalNodeSpec,
    pub status: &'a BareMetalNodeStatus,
    pub op: Option<&'a HostOp>,
    /// What a person asked for ended with this step: what is left of it is done.
    pub ended_by_hand: bool,
    pub limits: &'a Limits,
    pub ways: &'a [Way],
    pub access: u64,
    pub cluster: &'a Cluster,
    pub lead: &'a Tenure,
}

/// What was done that a further look depends on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Deeds {
    pub called: bool,
    pub acted: bool,
}

/// Performs the effects of a step in their order.
pub(super) async fn perform(scene: &Scene<'_>, memo: &mut Memo, effects: &[Effect]) -> Deeds {
    let mut deeds = Deeds::default();
    for effect in effects {
        let Some(point) = point(&effect.kind) else { continue };
        let failpoints = &scene.shared.failpoints;
        failpoints.reach("effect", point, Side::Before).await;
        match &effect.kind {
            EffectKind::Power(call) => deeds.called |= call_power(scene, memo, effect, *call).await,
            kind => {
                act(scene, memo, effect, kind).await;
                deeds.acted = true;
            }
        }
        failpoints.reach("effect", point, Side::After).await;
    }
    deeds
}

/// An effect's name among the failpoints; `None` for what the transaction or the turn itself does.
const fn point(kind: &EffectKind) -> Option<&'static str> {
    Some(match kind {
        EffectKind::Power(call) => call.as_str(),
        EffectKind::Cordon => "cordon",
        EffectKind::Uncordon => "uncordon",
        EffectKind::Evict => "evict",
        EffectKind::ApplyLabels => "label",
        EffectKind::RemoveStartupTaint => "remove-startup-taint",
        EffectKind::TaintOff => "taint-off",
        EffectKind::RemoveOffTaint => "remove-off-taint",
        EffectKind::DeleteNode => "delete-node",
        EffectKind::OutOfServiceTaint => "taint-out-of-service",
        EffectKind::RemoveOutOfServiceTaint => "remove-out-of-service-taint",
        EffectKind::Reserve
        | EffectKind::ReleaseReservation
        | EffectKind::Forget
        | EffectKind::Probe { .. }
        | EffectKind::CaptureEvidence => return None,
    })
}

/// Why a power call was not settled.
enum Stopped {
    /// It is not in the audit log, so it was not sent. It stays announced, as after a crash right in front of it: the
    /// next turns read the machine and ask again for what is still needed.
    Unaudited(AuditError),
    Power(PowerError),
}

impl From<PowerError> for Stopped {
    fn from(error: PowerError) -> Self {
        Self::Power(error)
    }
}

/// One power call: the leave, the machine's present state, the audit log, and only then the call. Whether anything is
/// known of it now that the next step can go on with.
async fn call_power(scene: &Scene<'_>, memo: &mut Memo, effect: &Effect, call: PowerCall) -> bool {
    if let Err(why) = leave::of(scene).ask() {
        tracing::warn!(host = %scene.name, call = call.as_str(), %why, "a power call is not made now");
        return false;
    }
    let ended = match checked_call(scene, memo, effect, call).await {
        Ok(outcome) => outcome,
        Err(Stopped::Unaudited(error)) => {
            tracing::error!(
                host = %scene.name,
                call = call.as_str(),
                %error,
                "a power call is not made: it could not be written to the audit log; free space in the data directory"
            );
            return false;
        }
        Err(Stopped::Power(PowerError { fault: fault @ Fault::Withheld { .. }, .. })) => {
            tracing::warn!(host = %scene.name, call = call.as_str(), %fault, "a power call was not sent");
            if call.is_repeatable() {
                // It stays announced: whoever leads when calls may leave again reads the machine and repeats it.
                return false;
            }
            Outcome::HeldBack { reason: "Withheld", why: fault.to_string() }
        }
        Err(Stopped::Power(error)) => {
            tracing::warn!(host = %scene.name, call = call.as_str(), code = error.code(), %error, "a power call failed");
            note_trouble(scene, memo, &error, place(scene, call));
            outcome(&error)
        }
    };
    if let Some((op, seq)) = effect.op.as_ref().and_then(|op| Some((op.id.clone(), op.seq?))) {
        memo.performed = Performed::Ended { op, seq, outcome: ended };
    }
    true
}

async fn checked_call(
    scene: &Scene<'_>,
    memo: &mut Memo,
    effect: &Effect,
    call: PowerCall,
) -> Result<Outcome, Stopped> {
    loop {
        if let Some(expected) = effect.expects
            && let Some(found) = not_as_expected(scene, memo, expected).await
        {
            let (found, outcome) = match found {
                Found::Otherwise(power) => (power.to_string(), Outcome::Unknown),
                Found::Nothing(why) => (why, Outcome::Unsent),
            };
            tracing::info!(host = %scene.name, call = call.as_str(), found, "a power call is dropped: not as expected");
            return Ok(outcome);
        }
        match launched(scene, call) {
            Ok(()) => break,
            Err(wait) => scene.shared.clock.sleep(wait).await,
        }
    }
    if call.is_off()
        && let Some((reason, why)) = in_the_way(scene).await
    {
        tracing::info!(host = %scene.name, call = call.as_str(), why, "a power call is held back");
        return Ok(Outcome::HeldBack { reason, why });
    }
    let way = &scene.ways[place(scene, call).min(scene.ways.len().saturating_sub(1))];
    let order = match to_send(scene, call, way) {
        Ok(order) => order,
        Err(NotSent::Refused(outcome)) => return Ok(outcome),
        Err(NotSent::Unusable(error)) => return Err(error.into()),
    };
    let begun = witness::begun(scene, effect, call, way.kind);
    scene.shared.witness.record(begun.clone()).await.map_err(Stopped::Unaudited)?;
    tracing::info!(host = %scene.name, driver = %way.kind, call = call.as_str(), "power call");
    let result = send(scene, memo, &order).await;
    if !matches!(&result, Err(PowerError { fault: Fault::Withheld { .. }, .. })) {
        scene.shared.counters.calls(call);
    }
    let ended = witness::ended(scene, begun, &result);
    if let Err(error) = scene.shared.witness.record(ended).await {
        tracing::error!(host = %scene.name, call = call.as_str(), %error, "the outcome of a power call is not in the audit log");
    }
    result?;
    Ok(Outcome::Accepted)
}

/// What goes to a driver.
struct ToSend<'s> {
    driver: &'s Arc<dyn PowerPort>,
    bmc: &'s Bmc,
    what: What,
}

enum What {
    Boot(BootOverride),
    Order(Order),
    RestartBmc,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot(_) => f.write_str("the boot setting"),
            Self::Order(order) => write!(f, "power {}", order.action),
            Self::RestartBmc => f.write_str("a restart of the BMC"),
        }
    }
}

/// Why nothing goes to a driver.
enum NotSent {
    Refused(Outcome),
    Unusable(PowerError),
}

/// Everything that a call needs, found before anything is said of it.
fn to_send<'s>(scene: &'s Scene<'_>, call: PowerCall, way: &'s Way) -> Result<ToSend<'s>, NotSent> {
    let unusable = |why: String| {
        let (host, address) = (scene.name.to_string(), way.kind.to_string());
        NotSent::Unusable(PowerError { host, address, fault: Fault::Invalid { why } })
    };
    let bmc = way.bmc.as_ref().map_err(|why| unusable(why.clone()))?;
    let driver = scene.shared.drivers.get(way.kind);
    let driver = driver.ok_or_else(|| unusable(format!("no driver {} runs here", way.kind)))?;
    let what = match (call, order_of(call)) {
        (PowerCall::SetBoot { .. }, _) => {
            let pool = evidence::pool_settings(scene.shared, &scene.spec.pool, &scene.shared.book());
            let pool = pool.and_then(|pool| pool.boot_profile.clone());
            let name = scene.spec.boot_profile.clone().or(pool).unwrap_or_default();
            let profile = scene.shared.around.boot_profile(&name).ok_or_else(|| {
                let message = format!("boot profile {name:?} does not exist");
                NotSent::Refused(Outcome::Refused { reason: "NoBootProfile", message })
            })?;
            What::Boot(boot_of(&profile))
        }
        (_, Some(order)) => What::Order(order),
        // What is left without an order is a restart of the BMC.
        (_, None) => What::RestartBmc,
    };
    Ok(ToSend { driver, bmc, what })
}

async fn send(
    scene: &Scene<'_>,
    memo: &mut Memo,
    ToSend { driver, bmc, what }: &ToSend<'_>,
) -> Result<(), PowerError> {
    let clock = &scene.shared.clock;
    let limit = Duration::from_millis(scene.limits.call.millis().saturating_mul(REQUESTS));
    let (leave, waiting) = leave::of(scene).for_one_call();
    let call = async {
        match what {
            What::Boot(boot) => {
                let kept = driver.set_boot(bmc, boot.clone(), &leave).await?;
                remark_boot(scene, memo, driver.driver(), boot, &kept);
            }
            What::Order(order) => drop(driver.request(bmc, *order, &leave).await?),
            What::RestartBmc => drop(driver.restart_bmc(bmc, &leave).await?),
        }
        Ok(())
    };
    let result = limited(clock, limit, bmc, call).await;
    let left = waiting.end();
    match result {
        // Nobody waits any longer, and something that changes the machine had left: only a reading tells what became of it.
        Err(PowerError { fault: fault @ Fault::Silent { .. }, .. }) if left => {
            let action = what.to_string();
            Err(PowerError::new(bmc, Fault::OutcomeUnknown { action, why: fault.to_string() }))
        }
        result => result,
    }
}

/// What a BMC kept otherwise than it was asked, and not badly enough to be an error, is said in the host's history.
fn remark_boot(
    scene: &Scene<'_>,
    memo: &mut Memo,
    driver: DriverKind,
    asked: &BootOverride,
    kept: &BootOverride,
) {
    let mut remarks = Vec::new();
    if asked.once && !kept.once {
        tracing::warn!(host = %scene.name, %driver, "a boot device for one boot was set for every boot");
        remarks.push("its BMC keeps the boot device for every boot; it was set for one");
    }
    if asked.mode.is_some() && kept.mode.is_none() && driver == DriverKind::Redfish {
        tracing::warn!(host = %scene.name, %driver, "a boot mode was asked for that the bmc does not know");
        remarks.push("its BMC shows no boot mode; the one of its boot profile was not set");
    }
    if !remarks.is_empty() {
        memo.remark = Some(remarks.join("; "));
    }
}

/// Whether a call that starts a machine may leave now, by the rate of starts.
fn launched(scene: &Scene<'_>, call: PowerCall) -> Result<(), Duration> {
    let starts = match call {
        PowerCall::PowerOn { .. } | PowerCall::PowerCycle { .. } => true,
        PowerCall::WolBurst { .. } => !is_sent_again(scene),
        PowerCall::SetBoot { .. }
        | PowerCall::GracefulOff { .. }
        | PowerCall::ForceOff { .. }
        | PowerCall::ResetBmc { .. } => false,
    };
    if !starts {
        return Ok(());
    }
    let limit = scene.shared.book().global.max_starts_per_second;
    scene.shared.gate().launch(scene.shared.clock.monotonic(), limit)
}

/// Magic packets are sent again until the machine answers: that is one start, not many.
fn is_sent_again(scene: &Scene<'_>) -> bool {
    let Some(pending) = scene.op.and_then(|op| op.pending.as_ref()) else { return false };
    let long = scene.shared.pace.scaled(SAME_START);
    pending.before.is_some_and(|last| last.action == PowerAction::On && pending.at.since(last.at) < long)
}

/// The last look at the node before power is taken from it: at what guards it in the newest view, and at its pods past every
/// cache, as one may have been bound past the cordon since the last look.
async fn in_the_way(scene: &Scene<'_>) -> Option<(&'static str, String)> {
    let unknown = |why: &str| Some(("PodsUnknown", format!("0 answers about the pods on its node: {why}")));
    let sight = match scene.cluster {
        Cluster::Seen(sight) => sight,
        Cluster::Nowhere => return None,
        Cluster::Unknown(why) => return unknown(why),
    };
    if let Some(why) = guard(scene, sight) {
        return Some(("NodeGuarded", format!("its node stays: {why}")));
    }
    // A node that the view does not show may have joined since.
    let known = scene.status.kubernetes_node.as_deref();
    let known = known.unwrap_or_else(|| nodes::named(scene.name, scene.spec));
    match recount::ask(scene.shared, scene.name, scene.spec, Some(known), sight).await? {
        Ok(pods) if pods.total() == 0 => None,
        Ok(pods) => {
            let why = format!("{} pods came onto its node since it was drained", pods.total());
            Some(("NewPods", why))
        }
        Err(why) => unknown(&why),
    }
}

/// Why nothing may be taken from its node.
fn guard(scene: &Scene<'_>, sight: &Sight) -> Option<String> {
    let seen = sight.index.clear_node(scene.name, scene.spec).map(Node::name);
    let node = seen.or(scene.status.kubernetes_node.as_deref());
    let node = node.unwrap_or_else(|| nodes::named(scene.name, scene.spec));
    let newest = sight.port.view();
    newest.as_ref().unwrap_or(&sight.index.view).guard_of(node).map(ToString::to_string)
}

/// The driver to call: the one asked for, or the one in use instead of the first while that is remembered.
fn place(scene: &Scene<'_>, call: PowerCall) -> usize {
    driver_for(call, scene.status, |index| Some(scene.ways.get(index)?.kind), scene.shared.clock.now())
}

/// Reads the machine unless that has just been done; what was found if it is not `expected`.
async fn not_as_expected(scene: &Scene<'_>, memo: &mut Memo, expected: Power) -> Option<Found> {
    let now = scene.shared.clock.now();
    let recent = |at: Timestamp| now.since(at) <= scene.shared.pace.scaled(FRESH) && at <= now;
    if !memo.looked.as_ref().is_some_and(|looked| recent(looked.at)) {
        let _ = scene.shared.look_at(scene.name, scene.ways, scene.status, scene.access, memo).await;
    }
    match memo.looked.as_ref().map(|looked| &looked.power) {
        Some(Known::Value { value, .. }) if value.power == expected => None,
        Some(Known::Value { value, .. }) => Some(Found::Otherwise(value.power)),
        Some(Known::Unknown { why, .. }) => Some(Found::Nothing(why.clone())),
        None => Some(Found::Nothing("nothing can read it".into())),
    }
}

/// What the last reading before a call says.
enum Found {
    Otherwise(Power),
    Nothing(String),
}

/// A refusal by the BMC's account, certificate or identity is known from now on.
fn note_trouble(scene: &Scene<'_>, memo: &mut Memo, error: &PowerError, place: usize) {
    let why = trouble_of(error, place, 1, scene.access);
    if let (TroubleClass::Blocked(_), Some(looked)) = (why.class, memo.looked.as_mut()) {
        looked.bmc = Known::Unknown { why, since: scene.shared.clock.now() };
    }
}

/// Tells the users of the cluster what becomes of the node, in the words of the host's own history.
pub(super) fn tell(scene: &Scene<'_>, step: &Step) {
    if !step.moved() {
        return;
    }
    let (warning, reason) = match (step.from.state(), step.state.status.phase) {
        (_, Phase::Cordoned) => (false, "Draining"),
        (_, Phase::Lost) => (true, "NodeLost"),
        (_, Phase::ConfirmingOff) => (false, "PoweredOff"),
        (State::Draining, Phase::Serving) => (true, "DrainGivenUp"),
        (State::PoweringOn, Phase::Serving) => (false, "Joined"),
        _ => return,
    };
    let Some(Sight { index, port, .. }) = scene.cluster.sight() else { return };
    let Some(node) = index.clear_node(scene.name, scene.spec) else { return };
    port.announce(vec![Note {
        about: About::Node { name: node.name().to_owned(), uid: node.metadata.uid.to_string() },
        warning,
        reason: reason.to_owned(),
        message: step.reason.clone(),
    }]);
}

/// Does something to the host's node.
async fn act(scene: &Scene<'_>, memo: &mut Memo, effect: &Effect, kind: &EffectKind) {
    let Some(Sight { index, port, .. }) = scene.cluster.sight() else { return };
    let Some(node) = index.clear_node(scene.name, scene.spec) else { return };
    if let Err(why) = leave::to_change_its_node(scene) {
        tracing::warn!(host = %scene.name, node = node.name(), %why, "a node is not changed now");
        return;
    }
    let (name, uid) = (node.name(), node.metadata.uid.to_string());
    let taint = |key: &str, value: &str, effect| Taint { key: key.into(), value: value.into(), effect };
    let action = match kind {
        EffectKind::Cordon => NodeAction::Cordon {
            op: scene
                .status
                .cordoned_by
                .clone()
                .or_else(|| effect.op.as_ref().map(|op| op.id.clone()))
                .unwrap_or_else(|| scene.name.to_string()),
        },
        EffectKind::Uncordon => NodeAction::Uncordon,
        EffectKind::Evict => return evict(scene, memo, port, name).await,
        EffectKind::ApplyLabels => {
            let dress = scene.shared.around.dress(&scene.spec.pool);
            NodeAction::Label {
                labels: nodes::labels(scene.name, scene.spec, &dress),
                taints: nodes::taints(scene.spec, &dress),
            }
        }
        EffectKind::RemoveStartupTaint => NodeAction::RemoveTaint { key: STARTUP_TAINT.into() },
        EffectKind::TaintOff => NodeAction::AddTaint(taint(OFF_TAINT, "", TaintEffect::NoSchedule)),
        EffectKind::RemoveOffTaint => NodeAction::RemoveTaint { key: OFF_TAINT.into() },
        EffectKind::DeleteNode => NodeAction::DeleteNode { uid },
        EffectKind::OutOfServiceTaint => {
            NodeAction::AddTaint(taint(OUT_OF_SERVICE_TAINT, "nodeshutdown", TaintEffect::NoExecute))
        }
        EffectKind::RemoveOutOfServiceTaint => NodeAction::RemoveTaint { key: OUT_OF_SERVICE_TAINT.into() },
        EffectKind::Power(_)
        | EffectKind::Reserve
        | EffectKind::ReleaseReservation
        | EffectKind::Forget
        | EffectKind::Probe { .. }
        | EffectKind::CaptureEvidence => return,
    };
    match port.act(name, &action).await {
        Ok(Acted::Done) => {
            tracing::info!(host = %scene.name, node = name, verb = action.verb(), "node changed");
        }
        Ok(Acted::AlreadySo | Acted::Gone) => {}
        Err(error) => {
            tracing::warn!(host = %scene.name, node = name, verb = action.verb(), %error, "a node was not changed");
        }
    }
}

/// Asks for the eviction of every pod that has to go. What refuses is remembered by name.
async fn evict(scene: &Scene<'_>, memo: &mut Memo, port: &Arc<dyn ClusterPort>, node: &str) {
    let Some(index) = scene.cluster.index() else { return };
    memo.blocked_by = None;
    let kept = nodes::Kept::of(scene.shared, &scene.spec.pool, scene.op);
    for pod in nodes::evictable(index, node, kept, scene.shared.clock.now()).into_iter().take(EVICTIONS) {
        if leave::to_change_its_node(scene).is_err() {
            return; // somebody else goes on, or nobody
        }
        let key = pod.key();
        let action =
            NodeAction::Evict { pod: key.clone(), uid: pod.metadata.uid.to_string(), grace_seconds: None };
        match port.act(node, &action).await {
            Ok(_) => {}
            Err(ActError::Budget { budget, .. }) => memo.blocked_by = Some(format!("{budget} of pod {key}")),
            Err(error) => {
                tracing::warn!(host = %scene.name, pod = %key, %error, "a pod was not evicted");
                memo.blocked_by = Some(format!("{error}"));
            }
        }
    }
}
