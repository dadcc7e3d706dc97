//! Pools as the engine sees them: bounds at this moment, marks, delays, triggers, mode.

use muster_engine::snapshot::{Demand, Mode, Pool, Scope, Spare, Stops, Trigger};
use muster_model::{
    Duration, Known, Quantity,
    cluster::Cluster,
    k8s::ResourceList,
    platform::PlatformKind,
    pool::{self, Headroom, OnNoData, ScaleDirection},
};

use super::{Draft, Inputs, PoolInput, TriggerInput, templates};

/// How the hold on a pool that has just grown begins: time alone lifts it, so that clocks run on beneath it.
pub(super) const GREW: &str = "it grew at ";
/// The least time that a metric has to show a node that came: four scrapes of 15 s.
const LEAST_SETTLE: Duration = Duration::from_mins(1);

/// What may be done with a pool: its own word, else its cluster's. Nobody's word is advice only.
pub fn effective_mode(pool: &PoolInput, cluster: &Cluster) -> Mode {
    match pool.object.spec.mode.or(cluster.spec.mode) {
        Some(pool::Mode::Active) => Mode::Act,
        Some(pool::Mode::Advise) | None => Mode::Advise,
    }
}

pub(super) fn add(inputs: &Inputs, draft: &mut Draft) {
    for input in &inputs.pools {
        let templates = templates::of_pool(inputs, input);
        let mut pool = bounds(inputs, input, draft);
        pool.mode = effective_mode(input, &inputs.cluster);
        match templates {
            Ok(templates) => pool.templates = templates,
            // Hosts add their own shapes later; who is still without one then is incomplete.
            Err(why) if input.is_bare_metal() => drop(why),
            Err(why) => draft.incomplete.push((input.name().to_owned(), why)),
        }
        pool.demand = demand(inputs, input, draft);
        pool.spare = spare(input);
        cooldown(inputs, input, draft);
        draft.snapshot.pools.push(pool);
    }
}

/// The bounds that hold now: a schedule's, a person's request under way, or those of the spec.
fn bounds(inputs: &Inputs, input: &PoolInput, draft: &mut Draft) -> Pool {
    let spec = &input.object.spec;
    let mut pool = Pool { name: input.name().into(), ..Pool::default() };
    if input.object.deleted_at.is_some() {
        pool.fixed = Some(0);
        return pool;
    }
    if !spec.is_autoscaled() {
        let nodes = spec.node_count.unwrap_or(0);
        (pool.min, pool.max, pool.fixed) = (nodes, nodes, Some(nodes));
        return pool;
    }
    let bounds = spec.bounds_at(inputs.now);
    (pool.min, pool.max) = (bounds.min, bounds.max);
    if muster_model::planted::is("F1") {
        pool.max = u32::MAX;
    }
    if muster_model::planted::is("F7") {
        pool.min = 0;
    }
    if let Some(requested) = input.requested {
        let size = bounds.clamp(requested);
        (pool.min, pool.max) = (size, size);
    }
    let change = spec.autoscaling.as_ref().and_then(|auto| auto.next_bounds_change(inputs.now));
    draft.wake_at(change);
    pool
}

fn demand(inputs: &Inputs, input: &PoolInput, draft: &mut Draft) -> Demand {
    let spec = &input.object.spec;
    let Some(auto) = spec.autoscaling.as_ref().filter(|_| spec.is_autoscaled()) else {
        return Demand::default();
    };
    let marks = match spec.platform.kind {
        PlatformKind::Baremetal => {
            auto.marks(inputs.global.high_mark_percent, inputs.global.low_mark_percent)
        }
        _ => auto.marks(None, None),
    };
    Demand {
        trigger: trigger(input, draft),
        trigger_settles: settles(input),
        target_cpu_percent: Some(marks.cpu),
        target_memory_percent: Some(marks.memory),
        scale_down_percent: Some(marks.scale_down),
        scale_down_delay: auto.scale_down_delay(),
        scale_up_delay: auto.scale_up_delay(),
        high_since: None,
    }
}

/// Up if one asks for growth; down if every trigger for down asks for less; a pool without triggers for
/// down is not kept from shrinking by those for up. What is not known keeps the pool as large as it is.
fn trigger(input: &PoolInput, draft: &mut Draft) -> Option<Trigger> {
    let (mut up, mut down, mut asked_down) = (false, true, false);
    for one in &input.triggers {
        let direction = one.trigger.scale_direction;
        match &one.finding {
            Known::Value { value, .. } => match direction {
                ScaleDirection::Up => up |= value.fires,
                ScaleDirection::Down => {
                    asked_down = true;
                    down &= value.fires;
                }
            },
            Known::Unknown { .. } if muster_model::planted::is("F6") => asked_down = true,
            Known::Unknown { why, since } => {
                if direction == ScaleDirection::Down {
                    asked_down = true;
                    down = false;
                }
                if one.trigger.on_no_data() == OnNoData::Hold {
                    draft.gap(
                        Scope::Pool(input.name().into()),
                        format!("trigger {} is not known since {since}: {why}", one.trigger.title()),
                    );
                }
            }
        }
    }
    match (up, asked_down) {
        (true, _) => Some(Trigger::Up),
        (false, true) if down => Some(Trigger::Down),
        (false, true) => Some(Trigger::Idle),
        (false, false) => None,
    }
}

/// A node that came may show in a metric only when the window of its trigger begins after it: of several triggers that ask
/// for more, the first that had the time for it is believed.
fn settles(input: &PoolInput) -> Duration {
    let fires = |one: &&TriggerInput| {
        one.trigger.scale_direction == ScaleDirection::Up
            && one.finding.value().is_some_and(|value| value.fires)
    };
    let window = |one: &TriggerInput| one.trigger.duration.get().max(LEAST_SETTLE);
    input.triggers.iter().filter(fires).map(window).min().unwrap_or_default()
}

/// Room to keep free: whole nodes, or pods of a shape.
fn spare(input: &PoolInput) -> Spare {
    let auto = input.object.spec.autoscaling.as_ref().filter(|_| input.object.spec.is_autoscaled());
    match auto.and_then(|auto| auto.headroom.as_ref()) {
        None => Spare::default(),
        Some(Headroom::Nodes { nodes }) => Spare { nodes: *nodes, ..Spare::default() },
        Some(Headroom::Pods { pods, resources }) => {
            let mut shape = ResourceList::default();
            for (name, amount) in resources {
                let amount: Quantity = amount.text().parse().unwrap_or_default();
                shape.insert(name, amount);
            }
            Spare { pods: *pods, shape, ..Spare::default() }
        }
    }
}

/// A pool that has just grown rests before it shrinks. The time is remembered, so that it survives a restart.
fn cooldown(inputs: &Inputs, input: &PoolInput, draft: &mut Draft) {
    let spec = &input.object.spec;
    let Some(auto) = spec.autoscaling.as_ref().filter(|_| spec.is_autoscaled()) else { return };
    let Some(grown) = inputs.memory.grown_at.get(input.name()) else { return };
    if input.requested.is_some() {
        return; // a person asked for a size: no rest between
    }
    let rest = auto.scale_down_delay();
    let until = grown.saturating_add(rest);
    draft.hold(
        Scope::Pool(input.name().into()),
        Stops::Removal,
        format!("{GREW}{grown} and rests for {rest}"),
        Some(until),
    );
}
