//! Several ways to one machine, tried in order.
//!
//! A way that fails is set aside for a while, so that a dead BMC does not cost its time limit on every poll,
//! and comes back by itself: one bad probe must not pin a host to its second choice for ever. What a way
//! cannot do at all (abilities) is no failure. An answer that nobody knows the outcome of, and a machine that
//! is the wrong one, end the search: another way would act on the same doubt.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use muster_model::{
    Clock, Duration,
    power::{
        Accepted, Advice, Bmc, BootOverride, DriverKind, Fault, Identity, Order, Power, PowerError, Reading,
        Sensors,
    },
};

/// How long a failed way is set aside. Five polls: long enough to spare a dead BMC, short enough that a
/// restarted one is back before anyone notices.
const ASIDE: Duration = Duration::from_mins(5);

/// Attempts on one way before the next one is taken: its first choice and its second.
const ATTEMPTS_PER_WAY: u32 = 2;

/// The drivers of this process, by kind.
#[derive(Debug)]
pub struct Ladder {
    drivers: BTreeMap<DriverKind, Arc<dyn Power>>,
    clock: Arc<dyn Clock>,
    /// Until when (monotonic) a way is set aside.
    aside: Mutex<BTreeMap<(String, String), Duration>>,
}

impl Ladder {
    pub fn new(drivers: impl IntoIterator<Item = Arc<dyn Power>>, clock: Arc<dyn Clock>) -> Self {
        let drivers = drivers.into_iter().map(|driver| (driver.driver(), driver)).collect();
        Self { drivers, clock, aside: Mutex::default() }
    }

    /// Reads by the first way that can and answers. A usable answer of a later way beats "unknown" of an
    /// earlier one.
    pub async fn read(&self, ways: &[Bmc]) -> Result<Reading, PowerError> {
        let (mut vague, mut last) = (None, None);
        for (way, driver) in self.order(ways, |driver| driver.abilities().read) {
            match driver.read(way).await {
                Ok(reading) if reading.state.is_known() => {
                    self.keep(way);
                    return Ok(reading);
                }
                Ok(reading) => {
                    vague.get_or_insert(reading);
                }
                Err(error) => {
                    self.note(way, &error);
                    if error.fault.code() == "POWER_WRONG_HOST" {
                        return Err(error);
                    }
                    last.get_or_insert(error);
                }
            }
        }
        vague.map_or_else(|| Err(last.unwrap_or_else(|| none(ways, "read power"))), Ok)
    }

    /// Requests by the first way that can. A request that was accepted without effect comes back as a later
    /// attempt: it takes the way's second choice, then starts at the next way.
    pub async fn request(&self, ways: &[Bmc], order: Order) -> Result<(Accepted, DriverKind), PowerError> {
        let mut last = None;
        let mut able = self.order(ways, |driver| driver.abilities().can(order.action));
        if !able.is_empty() {
            let tried = usize::try_from(order.attempt / ATTEMPTS_PER_WAY).unwrap_or(0);
            let first = tried % able.len();
            able.rotate_left(first);
        }
        let order = Order { attempt: order.attempt % ATTEMPTS_PER_WAY, ..order };
        for (way, driver) in able {
            match driver.request(way, order).await {
                Ok(accepted) => {
                    self.keep(way);
                    return Ok((accepted, driver.driver()));
                }
                Err(error) => {
                    self.note(way, &error);
                    if error.advice() == Advice::ReadFirst || matches!(error.fault, Fault::WrongHost { .. }) {
                        return Err(error);
                    }
                    last.get_or_insert(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| none(ways, &format!("power {}", order.action))))
    }

    pub async fn set_boot(&self, ways: &[Bmc], boot: BootOverride) -> Result<BootOverride, PowerError> {
        let mut last = None;
        for (way, driver) in self.order(ways, |driver| driver.abilities().boot) {
            match driver.set_boot(way, boot.clone()).await {
                Ok(kept) => return Ok(kept),
                Err(error) if matches!(error.fault, Fault::WrongHost { .. }) => return Err(error),
                Err(error) => {
                    self.note(way, &error);
                    last.get_or_insert(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| none(ways, "set where to boot from")))
    }

    pub async fn sensors(&self, ways: &[Bmc]) -> Result<Sensors, PowerError> {
        let mut last = None;
        for (way, driver) in self.order(ways, |driver| driver.abilities().sensors) {
            match driver.sensors(way).await {
                Ok(sensors) => return Ok(sensors),
                Err(error) => {
                    self.note(way, &error);
                    last.get_or_insert(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| none(ways, "read sensors")))
    }

    pub async fn identify(&self, ways: &[Bmc]) -> Result<Identity, PowerError> {
        let mut last = None;
        for (way, driver) in self.order(ways, |driver| driver.abilities().identify) {
            match driver.identify(way).await {
                Ok(identity) => return Ok(identity),
                Err(error) => {
                    self.note(way, &error);
                    last.get_or_insert(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| none(ways, "identify the machine")))
    }

    /// Ends every session of every driver.
    pub async fn close(&self) {
        for driver in self.drivers.values() {
            driver.close().await;
        }
    }

    /// The ways that can, in their own order, those set aside last: a bad way is better than none.
    fn order<'a>(
        &'a self,
        ways: &'a [Bmc],
        can: impl Fn(&dyn Power) -> bool,
    ) -> Vec<(&'a Bmc, &'a Arc<dyn Power>)> {
        let now = self.clock.monotonic();
        let aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        let is_aside = |way: &Bmc| aside.get(&key(way)).is_some_and(|until| now < *until);
        let able = ways.iter().filter_map(|way| {
            let driver = self.drivers.get(&way.driver())?;
            can(&**driver).then_some((way, driver))
        });
        let (late, mut first): (Vec<_>, Vec<_>) = able.partition(|(way, _)| is_aside(way));
        first.extend(late);
        first
    }

    fn note(&self, way: &Bmc, error: &PowerError) {
        tracing::warn!(host = way.host, driver = %way.driver(), code = error.code(), "a power driver failed");
        let until = self.clock.monotonic().saturating_add(ASIDE);
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        aside.insert(key(way), until);
    }

    fn keep(&self, way: &Bmc) {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner).remove(&key(way));
    }
}

fn key(way: &Bmc) -> (String, String) {
    (way.host.clone(), format!("{} {}", way.driver(), way.address()))
}

fn none(ways: &[Bmc], what: &str) -> PowerError {
    let why = format!("none of its {} drivers can {what}", ways.len());
    match ways.first() {
        Some(way) => PowerError::new(way, Fault::Unsupported { what: why, driver: way.driver() }),
        None => PowerError {
            host: "(unnamed)".into(),
            address: "(none)".into(),
            fault: Fault::Invalid { why: "no driver is recorded for this host".into() },
        },
    }
}
