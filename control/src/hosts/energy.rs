//! Energy: what each host used and saved, measured where the BMC measures, else from declared watts.
//!
//! An interval counts as what the host was at its end. Time in which nobody looked counts for nothing: an
//! estimate would be told as a fact.

use std::{collections::BTreeMap, sync::Arc};

use muster_model::{
    Duration, Known, Timestamp,
    host::{
        BareMetalNodeSpec, BareMetalNodeStatus, HostMetrics, Phase, PoolEnergy, PublicPower, WattsBy,
        keys::{self, HostRecord},
    },
    power::{Health, Sensors},
    store::{Committed, StoreError, Txn},
};

use super::{
    book::{Record, Written},
    failpoint::Side,
    look::{can_read, limited},
    nodes,
    perform::Scene,
    store::encode,
    turn::{Memo, Shared},
};
use crate::lead::Tenure;

/// Between two records of a host.
const EVERY: Duration = Duration::from_secs(60);
/// An interval longer than this was not watched: two polls of a host that is off.
const WATCHED: Duration = Duration::from_mins(10);
const SENSOR_LIMIT: Duration = Duration::from_secs(30);
/// Records that go into one transaction.
pub(super) const BATCH: usize = 100;

/// A record to be written with the next batch.
#[derive(Debug, Clone)]
pub(super) struct Due {
    pub host: Arc<str>,
    pub metrics: Arc<HostMetrics>,
}

/// Accounts for the time since the last record, if it is long enough, and leaves the new one to be written.
pub(super) async fn account(
    shared: &Shared,
    name: &Arc<str>,
    record: &Record,
    scene: &Scene<'_>,
    memo: &mut Memo,
) {
    let now = shared.clock.now();
    let last = memo.accounted.or_else(|| record.metrics.as_ref().map(|metrics| metrics.at));
    let every = shared.pace.scaled(EVERY);
    if last.is_some_and(|last| last <= now && now.since(last) < every) {
        return;
    }
    memo.accounted = Some(now);
    let power = if can_read(&shared.drivers, scene.ways) {
        scene.status.power_state
    } else {
        proved_power(scene.status)
    };
    let sensors = if power == PublicPower::On { sense(shared, scene, memo).await } else { None };
    memo.sensors = Some((now, sensors));
    let before = record.metrics.as_deref();
    let mut metrics = next(before, scene.spec, power, memo, now);
    if let Some(index) = scene.cluster.index()
        && let Some(node) = index.clear_node(name, scene.spec)
    {
        let used = nodes::use_of(index, node);
        (metrics.cpu_permille, metrics.memory_permille) = (used.cpu_permille, used.memory_permille);
        metrics.requested = used.requested;
    }
    shared.counters.accounted(&scene.spec.pool, before, &metrics);
    let metrics = Arc::new(metrics);
    shared.book().note_metrics(name, &metrics);
    shared
        .metrics
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .push(Due { host: Arc::clone(name), metrics });
}

/// Power that nothing reads, as it was proved: a node that serves runs, and a machine that is idle was seen to go. A BMC
/// that could read it and does not answer proves nothing.
fn proved_power(status: &BareMetalNodeStatus) -> PublicPower {
    match (status.power_state, status.phase) {
        (PublicPower::Unknown, Phase::Serving | Phase::Cordoned | Phase::Evicting) => PublicPower::On,
        (PublicPower::Unknown, Phase::Idle) if status.off_proved_at.is_some() => PublicPower::Off,
        (read, _) => read,
    }
}

/// Asks the first driver that can for its sensors, from the one in use on: those before it do not answer now.
async fn sense(shared: &Shared, scene: &Scene<'_>, memo: &mut Memo) -> Option<Sensors> {
    let silent = memo.failed > 0 || scene.status.bmc_blocked.is_some();
    if silent || memo.looked.is_none() {
        return None;
    }
    let now = shared.clock.now();
    let fallback = scene.status.driver_fallback.as_ref().filter(|fallback| now < fallback.until);
    let in_use = fallback.map_or(0, |fallback| fallback.index);
    let (driver, bmc) = scene.ways.iter().skip(in_use).find_map(|way| {
        let driver = shared.drivers.get(way.kind)?;
        driver.abilities().sensors.then_some(())?;
        Some((driver, way.bmc.as_ref().ok()?))
    })?;
    memo.spoke = true;
    match limited(
        &shared.clock,
        shared.pace.scaled(SENSOR_LIMIT).max(Duration::from_secs(5)),
        bmc,
        driver.sensors(bmc),
    )
    .await
    {
        Ok(sensors) => Some(sensors),
        Err(error) => {
            tracing::debug!(host = %scene.name, %error, "sensors were not read");
            None
        }
    }
}

/// The next record of a host.
fn next(
    before: Option<&HostMetrics>,
    spec: &BareMetalNodeSpec,
    power: PublicPower,
    memo: &Memo,
    now: Timestamp,
) -> HostMetrics {
    let unknown = |why: &str| Known::Unknown { why: why.to_owned(), since: now };
    let sensors = memo.sensors.as_ref().and_then(|(_, sensors)| sensors.as_ref());
    let declared = spec.idle_watts.map(|watts| i64::from(watts) * 1000);
    let measured = sensors.and_then(|sensors| sensors.milliwatts.value().copied()).filter(|drawn| *drawn > 0);
    let (milliwatts, watts_by) = match (power, measured, declared) {
        (PublicPower::On, Some(drawn), _) => (Known::Value { value: drawn, at: now }, Some(WattsBy::Bmc)),
        (PublicPower::On, None, Some(drawn)) => {
            (Known::Value { value: drawn, at: now }, Some(WattsBy::Declared))
        }
        (PublicPower::On, None, None) => (unknown("its BMC measures nothing and idleWatts is not set"), None),
        (PublicPower::Off, _, _) => (Known::Value { value: 0, at: now }, declared.map(|_| WattsBy::Declared)),
        (PublicPower::Unknown, _, _) => (unknown("its power is not known"), None),
    };
    let hottest = sensors.and_then(|one| one.temperatures.iter().map(|one| one.millicelsius).max());
    let health = memo.looked.as_ref().map(|looked| looked.health);
    let mut metrics = HostMetrics {
        at: now,
        millicelsius: hottest
            .map_or_else(|| unknown("not reported"), |value| Known::Value { value, at: now }),
        cpu_permille: unknown("no node"),
        memory_permille: unknown("no node"),
        requested: BTreeMap::new(),
        health: match health {
            Some(Health::Ok) => Known::Value { value: "OK".into(), at: now },
            Some(Health::Warning) => Known::Value { value: "Warning".into(), at: now },
            Some(Health::Critical) => Known::Value { value: "Critical".into(), at: now },
            Some(Health::NotReported) | None => Known::Unknown { why: "not reported".into(), since: now },
        },
        milliwatts,
        watts_by,
        on_millis: before.map_or(0, |one| one.on_millis),
        off_millis: before.map_or(0, |one| one.off_millis),
        used_milliwatt_hours: before.map_or(0, |one| one.used_milliwatt_hours),
        saved_milliwatt_hours: before.map_or(0, |one| one.saved_milliwatt_hours),
        used_rest: before.map_or(0, |one| one.used_rest),
        saved_rest: before.map_or(0, |one| one.saved_rest),
    };
    let Some(length) = before.map(|one| now.since(one.at)).filter(|length| *length <= WATCHED) else {
        return metrics;
    };
    match power {
        PublicPower::On => {
            metrics.on_millis = metrics.on_millis.saturating_add(length.millis());
            let drawn = metrics.milliwatts.value().copied().unwrap_or(0);
            add(&mut metrics.used_milliwatt_hours, &mut metrics.used_rest, drawn, length);
        }
        PublicPower::Off => {
            metrics.off_millis = metrics.off_millis.saturating_add(length.millis());
            let spared = declared.unwrap_or(0);
            add(&mut metrics.saved_milliwatt_hours, &mut metrics.saved_rest, spared, length);
        }
        PublicPower::Unknown => {}
    }
    metrics
}

/// Adds a draw over a time to milliwatt-hours and their rest.
fn add(total: &mut u64, rest: &mut u32, milliwatts: i64, length: Duration) {
    const HOUR: u128 = 3_600_000;
    let drawn = u128::try_from(milliwatts).unwrap_or(0);
    let sum = drawn * u128::from(length.millis()) + u128::from(*rest);
    *total = total.saturating_add(u64::try_from(sum / HOUR).unwrap_or(u64::MAX));
    *rest = u32::try_from(sum % HOUR).unwrap_or(0);
}

/// Writes what is due, many hosts in one transaction. What could not be written is due again.
pub(super) async fn flush(shared: &Shared, lead: &Tenure) -> Result<(), StoreError> {
    loop {
        let batch: Vec<Due> = {
            let mut due = shared.metrics.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let count = due.len().min(BATCH);
            due.drain(..count).collect()
        };
        if batch.is_empty() {
            return Ok(());
        }
        let mut last: BTreeMap<&str, &Due> = BTreeMap::new();
        for due in &batch {
            last.insert(&due.host, due);
        }
        // A host that is gone by now gets no record back.
        let present = |due: &&&Due| shared.book().hosts.get(&due.host).is_some_and(|one| one.spec.is_some());
        let mut txn = Txn::new().fenced(&lead.fence);
        for due in last.values().filter(present) {
            txn = txn.put(keys::host(&due.host, HostRecord::Metrics), encode(&*due.metrics));
        }
        if txn.writes.is_empty() {
            continue;
        }
        shared.failpoints.reach("write", "metrics", Side::Before).await;
        let committed = shared.store.commit(txn).await?;
        shared.failpoints.reach("write", "metrics", Side::After).await;
        let Committed::Done { revision } = committed else { return Ok(()) };
        let mut book = shared.book();
        for due in last.values() {
            let written = [(HostRecord::Metrics, Written::Metrics(Arc::clone(&due.metrics)))];
            book.stored(&due.host, revision, &written);
        }
    }
}

/// The price of an amount of energy, in millionths of the currency; nothing without a price.
pub fn cost(milliwatt_hours: u64, price: Option<u64>) -> Option<u64> {
    let micros = u128::from(milliwatt_hours) * u128::from(price?) / 1_000_000;
    Some(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// Adds what one host used and saved to its pool's sums, and says how it is known.
pub fn add_energy(pool: &mut PoolEnergy, metrics: Option<&HostMetrics>, price: Option<u64>) {
    let Some(metrics) = metrics else {
        pool.unknown += 1;
        return;
    };
    pool.used_milliwatt_hours = pool.used_milliwatt_hours.saturating_add(metrics.used_milliwatt_hours);
    pool.saved_milliwatt_hours = pool.saved_milliwatt_hours.saturating_add(metrics.saved_milliwatt_hours);
    match metrics.watts_by {
        Some(WattsBy::Bmc) => pool.measured += 1,
        Some(WattsBy::Declared) => pool.declared += 1,
        None => pool.unknown += 1,
    }
    pool.used_cost_micros = cost(pool.used_milliwatt_hours, price);
    pool.saved_cost_micros = cost(pool.saved_milliwatt_hours, price);
}

#[cfg(test)]
mod tests {
    use muster_model::host::PowerInterface;

    use super::*;

    fn spec() -> BareMetalNodeSpec {
        let mut spec = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
        spec.idle_watts = Some(180);
        spec
    }

    fn run(power: PublicPower, hours: i64, sensors: Option<i64>) -> HostMetrics {
        let memo = |at: Timestamp| Memo {
            sensors: Some((
                at,
                sensors.map(|value| Sensors {
                    milliwatts: Known::Value { value, at },
                    temperatures: Vec::new(),
                    health: Health::Ok,
                }),
            )),
            ..Memo::default()
        };
        let mut metrics: Option<HostMetrics> = None;
        for minute in 0..=hours * 12 {
            let now = Timestamp::from_millis(minute * 300_000);
            metrics = Some(next(metrics.as_ref(), &spec(), power, &memo(now), now));
        }
        metrics.unwrap()
    }

    #[test]
    fn bm_7_30_six_hours_off_at_180_watts_save_1_08_kilowatt_hours() {
        let metrics = run(PublicPower::Off, 6, None);
        assert_eq!(metrics.saved_milliwatt_hours, 1_080_000);
        assert_eq!((metrics.used_milliwatt_hours, metrics.off_millis), (0, 6 * 3_600_000));
        assert_eq!(cost(metrics.saved_milliwatt_hours, Some(300_000)), Some(324_000)); // 0.30 each: 0.324
    }

    #[test]
    fn measured_watts_beat_declared_ones_and_unknown_power_counts_for_nothing() {
        let metrics = run(PublicPower::On, 2, Some(250_000));
        assert_eq!((metrics.used_milliwatt_hours, metrics.watts_by), (500_000, Some(WattsBy::Bmc)));
        let metrics = run(PublicPower::On, 2, None);
        assert_eq!((metrics.used_milliwatt_hours, metrics.watts_by), (360_000, Some(WattsBy::Declared)));
        let metrics = run(PublicPower::Unknown, 2, Some(250_000));
        assert_eq!((metrics.used_milliwatt_hours, metrics.saved_milliwatt_hours), (0, 0));
    }

    /// Hosts that packets wake and an agent switches off: nothing reads their power.
    #[test]
    fn power_that_nothing_reads_is_known_by_what_was_proved() {
        let check = |read: PublicPower, phase: Phase, proved: bool, expected: PublicPower| {
            let mut status = BareMetalNodeStatus::enrolling(Timestamp::EPOCH);
            (status.power_state, status.phase, status.state) = (read, phase, phase.state());
            status.off_proved_at = proved.then_some(Timestamp::EPOCH);
            assert_eq!(proved_power(&status), expected, "{read:?} {phase} {proved}");
        };
        let (on, off, unknown) = (PublicPower::On, PublicPower::Off, PublicPower::Unknown);
        check(unknown, Phase::Serving, false, on);
        check(unknown, Phase::Evicting, false, on);
        check(unknown, Phase::Idle, true, off);
        check(unknown, Phase::Idle, false, unknown);
        check(unknown, Phase::Lost, false, unknown);
        check(unknown, Phase::Booting, false, unknown);
        check(on, Phase::Idle, true, on);
        check(off, Phase::Serving, false, off);
    }

    #[test]
    fn time_in_which_nobody_looked_counts_for_nothing() {
        let start = next(None, &spec(), PublicPower::Off, &Memo::default(), Timestamp::EPOCH);
        let later = Timestamp::from_millis(3_600_000);
        let after = next(Some(&start), &spec(), PublicPower::Off, &Memo::default(), later);
        assert_eq!((after.saved_milliwatt_hours, after.off_millis), (0, 0));
    }
}
