//! Hosts as the engine sees them: where each stands, what it would cost, and who keeps it from changing.

use std::{collections::BTreeMap, sync::Arc};

use muster_engine::snapshot::{Health, Host, HostState, Scope, Stops, Template};
use muster_model::{
    Duration, Known, Timestamp,
    host::{
        Admin, BareMetalNodeSpec, BareMetalNodeStatus, ConditionType, Draw, DriverKind, Intent, Limits,
        Phase, State, Switch, is_true,
    },
};

use super::{Draft, HostInput, Inputs, PoolInput, templates};

/// How long a host counts as coming or going because of an intent that was not taken up.
const INTENT_WINDOW: Duration = Intent::TAKEN_UP_WITHIN;
/// Why a host stays whose drain was given up: time alone lifts it, so that clocks run on beneath it.
pub(super) const DRAIN_GIVEN_UP: &str = "its last drain was given up";
/// How long a host is left alone whose intent nobody took up.
const IGNORED_REST: Duration = Duration::from_mins(10);
/// How long a machine takes to start, where nobody measured it.
const DEFAULT_WAKE: Duration = Duration::from_mins(5);
const DAY: Duration = Duration::from_hours(24);

/// Where a host stands for a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Off,
    /// Powered, without a node.
    On,
    Waking {
        expected: Timestamp,
    },
    Ready,
    Leaving,
    Failed,
    Maintenance,
    Unknown,
}

impl Standing {
    const fn state(self) -> HostState {
        match self {
            Self::Off => HostState::Off,
            Self::On => HostState::On,
            Self::Waking { .. } => HostState::Waking,
            Self::Ready => HostState::Ready,
            Self::Leaving => HostState::Leaving,
            Self::Failed => HostState::Failed,
            Self::Maintenance => HostState::Maintenance,
            Self::Unknown => HostState::Unknown,
        }
    }
}

/// The limits that hold for a host: the defaults, then everyone's, the pool's and its own.
pub(super) fn limits(inputs: &Inputs, pool: Option<&PoolInput>, spec: &BareMetalNodeSpec) -> Limits {
    let limits = Limits::default().with(&inputs.global.deadlines);
    let limits = pool.map_or(limits.clone(), |pool| limits.with(&pool.host_config.deadlines));
    limits.with(&spec.deadlines).shortened(inputs.time_factor)
}

/// Where the host stands, by its records alone.
pub(super) fn standing(host: &HostInput, limits: &Limits, now: Timestamp) -> Standing {
    let Ok(spec) = &host.spec else { return Standing::Unknown };
    if spec.admin != Admin::Normal {
        return Standing::Maintenance;
    }
    let Some(Ok(status)) = &host.status else { return Standing::Unknown };
    if spec.deletion.is_some() {
        // Its loop drains it and lets it go; nothing new is begun.
        return match status.state {
            State::Ready | State::Draining => Standing::Leaving,
            State::Off | State::PoweringOn | State::Error => Standing::Maintenance,
        };
    }
    let wish = pending(host, status, now);
    let coming = |since: Timestamp| {
        let whole = limits.reserve.saturating_add(limits.boot).saturating_add(limits.join);
        let deadline = host.op.as_ref().and_then(|op| op.boot_deadline);
        let expected =
            deadline.map_or_else(|| since.saturating_add(whole), |at| at.saturating_add(limits.join));
        Standing::Waking { expected }
    };
    let since = host.op.as_ref().map_or(status.phase_since, |op| op.started);
    match (status.state, status.phase) {
        (State::Off, Phase::Enrolling) => Standing::Unknown,
        (State::Off, Phase::Reserved) | (State::PoweringOn, _) => coming(since),
        (State::Off, _) => match (wish, status.unexpected_on_since) {
            (Some((Switch::On, at)), _) => coming(at),
            (_, Some(_)) => Standing::On,
            // Its watts are taken already: waking it takes no more, and not waking it frees none.
            _ if Draw::of(spec.admin, Some(status)).counts() => Standing::On,
            _ => Standing::Off,
        },
        (State::Ready, _) => match wish {
            Some((Switch::Off, _)) => Standing::Leaving,
            _ => Standing::Ready,
        },
        (State::Draining, _) => Standing::Leaving,
        (State::Error, _) => Standing::Failed,
    }
}

/// An intent that the host loop has not taken up yet, and when it was written.
fn pending(host: &HostInput, status: &BareMetalNodeStatus, now: Timestamp) -> Option<(Switch, Timestamp)> {
    let intent = host.intent.as_ref()?;
    let spent = status.spent_intent.as_deref() == Some(intent.id.as_str());
    (!spent && now.since(intent.at) < INTENT_WINDOW).then_some((intent.want, intent.at))
}

/// Adds every host, the shapes that they bring, and what keeps them from changing.
pub(super) fn add(inputs: &Inputs, draft: &mut Draft) {
    let racks = our_racks(inputs);
    unmetered(inputs, draft);
    let mut shapes = Shapes::default();
    for host in &inputs.hosts {
        match &host.spec {
            Ok(spec) => {
                let pool = inputs.pool_of_inventory(&spec.pool).filter(|pool| pool.takes(spec));
                match pool {
                    Some(pool) => add_ours(inputs, pool, host, spec, &mut shapes, draft),
                    None => add_foreign(inputs, host, spec, &racks, draft),
                }
            }
            Err(why) => {
                draft.set_aside.push((format!("host {}", host.name), why.clone()));
                draft.gap(Scope::Host(host.name.as_str().into()), format!("its spec is not used: {why}"));
            }
        }
    }
    for ((pool, _), template) in shapes.templates {
        if let Some(pool) = draft.snapshot.pools.iter_mut().find(|known| *known.name == *pool) {
            pool.templates.push(template);
        }
    }
    for input in inputs.pools.iter().filter(|pool| pool.is_bare_metal()) {
        let empty = draft.snapshot.pool(input.name()).is_some_and(|pool| pool.templates.is_empty());
        if empty && input.object.deleted_at.is_none() {
            let hosts = inputs.hosts_of(input).count();
            let why = format!(
                "{hosts} hosts of inventory pool {} say how much cpu and memory they have; set spec.resources of \
                 the hosts or spec.template.capacity of the pool",
                input.inventory_name()
            );
            draft.incomplete.push((input.name().to_owned(), why));
        }
    }
}

/// In a rack with a cap nobody starts whose watts are not known, and nobody beside one that draws such: whoever carries a plan
/// out refuses it for as long.
fn unmetered(inputs: &Inputs, draft: &mut Draft) {
    let caps: BTreeMap<&str, u32> =
        inputs.racks.iter().filter_map(|rack| Some((rack.name.as_str(), rack.watt_cap?))).collect();
    let capped = || {
        inputs.hosts.iter().filter_map(|host| {
            let spec = host.spec.as_ref().ok()?;
            let (rack, cap) = caps.get_key_value(spec.rack.as_deref()?)?;
            Some((host, spec, *rack, *cap))
        })
    };
    let mut drawing: BTreeMap<&str, (u32, &str)> = BTreeMap::new();
    for (host, spec, rack, _) in capped().filter(|(_, spec, ..)| spec.max_watts.is_none()) {
        let status = host.status.as_ref().and_then(|status| status.as_ref().ok());
        let rises =
            status.is_some_and(|status| status.state == State::PoweringOn || status.phase == Phase::Reserved);
        if rises || Draw::of(spec.admin, status).counts() {
            drawing.entry(rack).or_insert((0, &host.name)).0 += 1;
        }
    }
    for (host, spec, rack, cap) in capped() {
        let why = match drawing.get(rack) {
            _ if spec.max_watts.is_none() => {
                format!("rack {rack} may draw {cap} W, and its maxWatts is not known; set it in its spec")
            }
            Some((hosts, first)) => format!(
                "rack {rack} may draw {cap} W, and {hosts} of the hosts that draw there have no maxWatts, {first} first; \
                 set it in their spec"
            ),
            None => continue,
        };
        draft.hold(Scope::Host(host.name.as_str().into()), Stops::Growth, why, None);
    }
}

fn our_racks(inputs: &Inputs) -> std::collections::BTreeSet<&str> {
    let ours = inputs.pools.iter().flat_map(|pool| inputs.hosts_of(pool));
    ours.filter_map(|host| host.spec.as_ref().ok()?.rack.as_deref()).collect()
}

/// The templates that hosts bring, and which of them a host has: most of a pool's hosts are alike.
#[derive(Debug, Default)]
struct Shapes<'i> {
    templates: BTreeMap<(String, Arc<str>), Template>,
    alike: Vec<(&'i str, &'i BareMetalNodeSpec, Arc<str>)>,
}

impl<'i> Shapes<'i> {
    /// The name of a host's template; `None` when nobody says how large it is.
    fn of(
        &mut self,
        inputs: &Inputs,
        pool: &'i PoolInput,
        host: &str,
        spec: &'i BareMetalNodeSpec,
    ) -> Option<Arc<str>> {
        let same = |(there, other, _): &&(&str, &BareMetalNodeSpec, Arc<str>)| {
            *there == pool.name()
                && other.resources == spec.resources
                && other.labels == spec.labels
                && other.taints == spec.taints
        };
        if let Some((.., name)) = self.alike.iter().find(same) {
            return Some(Arc::clone(name));
        }
        let node = templates::of_host(inputs, pool, host, spec)?;
        let name = templates::shape_name(&node);
        // What was learned of one host says nothing of the others.
        if !spec.resources.cpu.is_zero() && !spec.resources.memory.is_zero() {
            self.alike.push((pool.name(), spec, Arc::clone(&name)));
        }
        let key = (pool.name().to_owned(), Arc::clone(&name));
        self.templates.entry(key).or_insert_with(|| Template {
            name: Arc::clone(&name),
            node: Arc::new(node),
            csi: None,
            offerings: Vec::new(),
        });
        Some(name)
    }
}

fn add_ours<'i>(
    inputs: &Inputs,
    pool: &'i PoolInput,
    input: &HostInput,
    spec: &'i BareMetalNodeSpec,
    shapes: &mut Shapes<'i>,
    draft: &mut Draft,
) {
    let limits = limits(inputs, Some(pool), spec);
    let standing = standing(input, &limits, inputs.now);
    let mut host = base(inputs, input, spec, standing);
    host.pool = pool.name().into();
    if let Some(name) = shapes.of(inputs, pool, &input.name, spec) {
        host.template = name;
    }
    if let Some(Ok(status)) = &input.status {
        host.node = match standing {
            Standing::Ready | Standing::Leaving | Standing::Waking { .. } => {
                Some(status.kubernetes_node.as_deref().unwrap_or(&input.name).into())
            }
            _ => None,
        };
        host.backoff_until = rest(inputs, pool, status, &limits);
        (host.on_since, host.min_on_time) = (status.serving_since, limits.min_on);
        draft.wake_at(host.backoff_until);
    }
    holds(inputs, input, spec, &limits, draft);
    draft.snapshot.hosts.push(host);
}

/// A host of another cluster: it draws power in racks that are ours too, and starts and goodbyes count together.
fn add_foreign(
    inputs: &Inputs,
    input: &HostInput,
    spec: &BareMetalNodeSpec,
    racks: &std::collections::BTreeSet<&str>,
    draft: &mut Draft,
) {
    let limits = limits(inputs, None, spec);
    let standing = standing(input, &limits, inputs.now);
    let shares = spec.rack.as_deref().is_some_and(|rack| racks.contains(rack));
    let moves = matches!(standing, Standing::Waking { .. } | Standing::Leaving);
    if (shares && standing != Standing::Off) || moves {
        let mut host = base(inputs, input, spec, standing);
        host.node = None;
        draft.snapshot.hosts.push(host);
    }
}

/// What is true of a host whoever uses it.
fn base(inputs: &Inputs, input: &HostInput, spec: &BareMetalNodeSpec, standing: Standing) -> Host {
    let rack = spec.rack.as_deref().and_then(|name| inputs.racks.iter().find(|rack| rack.name == name));
    let zone = spec.zone.as_deref().or_else(|| rack.and_then(|rack| rack.zone.as_deref()));
    let (idle, most) = watts(spec);
    let status = input.status.as_ref().and_then(|status| status.as_ref().ok());
    let failures = status.map_or(0, |status| {
        status.failures.iter().filter(|failure| inputs.now.since(failure.at) < DAY).count()
    });
    Host {
        name: input.name.as_str().into(),
        state: standing.state(),
        zone: zone.map(Into::into),
        rack: spec.rack.as_deref().map(Into::into),
        price: energy_price(inputs, idle, most),
        idle_milliwatts: idle,
        max_milliwatts: most,
        inrush_milliwatts: most,
        draw: Some(Draw::of(spec.admin, status)),
        wake_time: status.and_then(measured_wake).unwrap_or(DEFAULT_WAKE),
        off_since: status.and_then(|status| status.off_since),
        health: health(input),
        recent_failures: u32::try_from(failures).unwrap_or(u32::MAX),
        ..Host::default()
    }
}

fn watts(spec: &BareMetalNodeSpec) -> (i64, i64) {
    let milli = |watts: Option<u32>| i64::from(watts.unwrap_or(0)) * 1000;
    let most = milli(spec.max_watts.or(spec.idle_watts));
    (milli(spec.idle_watts.or(spec.max_watts)), most)
}

/// Millionths of the currency for an hour half way between idle and full.
fn energy_price(inputs: &Inputs, idle: i64, most: i64) -> i64 {
    let Some(per_kilowatt_hour) = inputs.global.energy_price_micros else { return 0 };
    let mean = i128::from(idle + most) / 2;
    i64::try_from(mean * i128::from(per_kilowatt_hour) / 1_000_000).unwrap_or(i64::MAX)
}

/// From the last power-on to the node, where both are known.
fn measured_wake(status: &BareMetalNodeStatus) -> Option<Duration> {
    let (started, joined) = (*status.starts.last()?, status.join_time?);
    (joined > started).then(|| joined.since(started))
}

fn health(input: &HostInput) -> Health {
    let Some(Known::Value { value, .. }) = input.metrics.as_ref().map(|metrics| &metrics.health) else {
        return Health::Good;
    };
    let reading = || format!("the BMC reports {value}").into();
    match value.to_ascii_lowercase().as_str() {
        "critical" => Health::Critical(reading()),
        "warning" => Health::Warning(reading()),
        _ => Health::Good,
    }
}

/// Until when the host may not be woken: backoff, the least time off, and wear limits.
fn rest(
    inputs: &Inputs,
    pool: &PoolInput,
    status: &BareMetalNodeStatus,
    limits: &Limits,
) -> Option<Timestamp> {
    let now = inputs.now;
    let least_off = status.off_since.map(|since| since.saturating_add(limits.min_off));
    let least_cycle = status.starts.last().map(|start| start.saturating_add(limits.cycle_interval));
    let policy = inputs.global.policy.with(&pool.host_config.policy);
    let most = usize::try_from(policy.max_cycles_per_day).unwrap_or(usize::MAX);
    let day: Vec<Timestamp> = status.starts.iter().copied().filter(|start| now.since(*start) < DAY).collect();
    let worn = (day.len() >= most).then(|| day.first().map(|first| first.saturating_add(DAY))).flatten();
    [status.retry_at, least_off, least_cycle, worn].into_iter().flatten().filter(|until| *until > now).max()
}

/// Everything that keeps a person's or a policy's hand on the host.
fn holds(inputs: &Inputs, input: &HostInput, spec: &BareMetalNodeSpec, limits: &Limits, draft: &mut Draft) {
    let scope = || Scope::Host(input.name.as_str().into());
    let held = spec.hold.as_ref().filter(|hold| hold.is_active(inputs.now));
    if let Some(hold) = held {
        draft.hold(scope(), Stops::Both, format!("held by {}: {}", hold.by, hold.reason), hold.until);
    }
    let until = held.and_then(|hold| hold.until);
    match spec.manual(inputs.now) {
        Some(Switch::On) => {
            draft.hold(scope(), Stops::Removal, "switched on by hand in spec.powerState", until);
        }
        Some(Switch::Off) => {
            draft.hold(scope(), Stops::Both, "switched off by hand in spec.powerState", until);
        }
        None => {}
    }
    let status = match &input.status {
        Some(Ok(status)) => status,
        Some(Err(why)) => {
            draft.set_aside.push((format!("host {}", input.name), why.clone()));
            draft.gap(scope(), format!("its status cannot be read: {why}"));
            return;
        }
        None => {
            draft.gap(scope(), "nobody has looked at it yet");
            return;
        }
    };
    if let Some(until) = status.held_until {
        draft.hold(scope(), Stops::Growth, "a person switched it off", Some(until));
    }
    if let Some(said) = &status.unexpected_off_despite {
        let why = format!("a person switched it off although it was wanted on ({said}): to be acknowledged");
        draft.hold(scope(), Stops::Growth, why, None);
    }
    // Somebody may be at work on it. Once its node has joined it serves, whoever switched it on.
    let alone = status.unexpected_on_since.filter(|_| status.phase == Phase::Idle);
    if let Some(until) =
        alone.map(|since| since.saturating_add(limits.leave_on)).filter(|at| *at > inputs.now)
    {
        draft.hold(scope(), Stops::Growth, "somebody else switched it on", Some(until));
    }
    if let Some(blocked) = &status.bmc_blocked {
        let why = format!("its BMC is not called since {}: {}", blocked.since, blocked.message);
        draft.hold(scope(), Stops::Both, why, None);
    }
    if status.phase == Phase::Degraded {
        let surplus = is_true(&status.conditions, ConditionType::Surplus);
        let why = if surplus && status.bmc_reachable {
            "it is on although its pool is at its maximum: it stays cordoned until there is room or a person decides"
        } else {
            "its BMC does not answer, so that it could not be woken again"
        };
        draft.hold(scope(), Stops::Removal, why, None);
    }
    if let Some(until) = status.drain_retry_at {
        draft.hold(scope(), Stops::Removal, DRAIN_GIVEN_UP, Some(until));
    }
    let wakes_only_by_packet = spec
        .effective_drivers()
        .iter()
        .all(|driver| matches!(driver.kind, DriverKind::Wol | DriverKind::Agent));
    if wakes_only_by_packet && status.wake_proved_at.is_none() {
        let why = "it was never seen to wake by magic packet; 1 supervised self-test is needed";
        draft.hold(scope(), Stops::Removal, why, None);
    }
    if spec.is_dry_run() {
        let why = "dry-run is its only driver: it is read and never switched off";
        draft.hold(scope(), Stops::Removal, why, None);
    }
    ignored(input, status, draft);
}

/// An intent that nobody took up: the host is not coming, and is not asked again at once.
fn ignored(input: &HostInput, status: &BareMetalNodeStatus, draft: &mut Draft) {
    let now = draft.snapshot.now;
    let Some(intent) = &input.intent else { return };
    let spent = status.spent_intent.as_deref() == Some(intent.id.as_str());
    let waits = intent.want == Switch::On && status.state == State::Off && status.phase == Phase::Idle;
    let newer_off = status.off_since.is_some_and(|off| off > intent.at);
    if spent || !waits || newer_off {
        return;
    }
    let taken_up = intent.at.saturating_add(INTENT_WINDOW);
    if now < taken_up {
        draft.wake_at(Some(taken_up));
        return;
    }
    let scope = Scope::Host(input.name.as_str().into());
    let why = format!("intent {} of {} was not taken up within {INTENT_WINDOW}", intent.id, intent.at);
    draft.hold(scope, Stops::Growth, why, Some(taken_up.saturating_add(IGNORED_REST)));
}
