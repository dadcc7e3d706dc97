//! What was said to BMCs, for people who look at one host: the last calls of each, with what came back.
//!
//! It is kept in memory by whichever process makes the calls. Secrets never pass the power port, so none can be in
//! here; what is kept is what the port's own words say.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use muster_model::{
    Clock, Duration, Timestamp,
    power::{
        Abilities, Accepted, Bmc, BootOverride, DriverKind, Identity, Order, Power, PowerError, Reading,
        Sensors,
    },
};
use serde::Serialize;

/// Calls that are kept of one host: a boot takes about twenty, so the last few are there.
const LINES: usize = 100;
/// Hosts that are remembered; beyond it the ones that were called longest ago are forgotten. With about 150 bytes a
/// line they stay under 80 MB even when every ring is full.
const HOSTS: usize = 5_000;
/// Longest text of a result.
const MAX_RESULT: usize = 300;

/// One call, or several in a row that came to the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    pub at: Timestamp,
    pub driver: DriverKind,
    /// `read power`, `power on`, `set boot pxe`, `read sensors`, `identify`.
    pub call: String,
    /// Where it went.
    pub target: String,
    pub result: String,
    pub ok: bool,
    pub millis: u64,
    /// How often in a row, and when the last time was.
    pub count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Timestamp>,
}

/// The transcripts of a process.
#[derive(Debug, Default)]
pub struct Transcripts {
    hosts: Mutex<BTreeMap<String, VecDeque<Line>>>,
}

impl Transcripts {
    /// Calls to the BMC of a host, oldest first.
    pub fn of(&self, host: &str) -> Vec<Line> {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.get(host).map(|lines| lines.iter().cloned().collect()).unwrap_or_default()
    }

    fn add(&self, host: &str, mut line: Line) {
        if line.result.chars().count() > MAX_RESULT {
            line.result = line.result.chars().take(MAX_RESULT - 1).chain(['…']).collect();
        }
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= HOSTS && !hosts.contains_key(host) {
            let last = |lines: &VecDeque<Line>| lines.back().map(|line| line.last_at.unwrap_or(line.at));
            let oldest = hosts.iter().min_by_key(|(_, lines)| last(lines)).map(|(name, _)| name.clone());
            if let Some(oldest) = oldest {
                hosts.remove(&oldest);
            }
        }
        let lines = hosts.entry(host.to_owned()).or_default();
        if let Some(last) = lines.back_mut()
            && (last.driver, &last.call, &last.target) == (line.driver, &line.call, &line.target)
            && (&last.result, last.ok) == (&line.result, line.ok)
        {
            last.count = last.count.saturating_add(1);
            last.last_at = Some(line.at);
            last.millis = line.millis;
            return;
        }
        lines.push_back(line);
        if lines.len() > LINES {
            lines.pop_front();
        }
    }
}

/// A driver whose calls are written down.
#[derive(Debug)]
pub struct Recorded {
    driver: Arc<dyn Power>,
    to: Arc<Transcripts>,
    clock: Arc<dyn Clock>,
}

impl Recorded {
    pub fn wrap(driver: Arc<dyn Power>, to: Arc<Transcripts>, clock: Arc<dyn Clock>) -> Arc<dyn Power> {
        Arc::new(Self { driver, to, clock })
    }

    fn note<T>(
        &self,
        bmc: &Bmc,
        call: String,
        (at, began): (Timestamp, Duration),
        result: &Result<T, PowerError>,
        say: impl FnOnce(&T) -> String,
    ) {
        let (text, ok) = match result {
            Ok(value) => (say(value), true),
            Err(error) => (format!("{} [{}]", error.fault, error.code()), false),
        };
        let millis = self.clock.monotonic().saturating_sub(began).millis();
        let line = Line {
            at,
            driver: self.driver.driver(),
            call,
            target: bmc.address(),
            result: text,
            ok,
            millis,
            count: 1,
            last_at: None,
        };
        self.to.add(&bmc.host, line);
    }

    fn now(&self) -> (Timestamp, Duration) {
        (self.clock.now(), self.clock.monotonic())
    }
}

#[async_trait]
impl Power for Recorded {
    fn driver(&self) -> DriverKind {
        self.driver.driver()
    }

    fn abilities(&self) -> Abilities {
        self.driver.abilities()
    }

    async fn read(&self, bmc: &Bmc) -> Result<Reading, PowerError> {
        let began = self.now();
        let result = self.driver.read(bmc).await;
        self.note(bmc, "read power".to_owned(), began, &result, |reading| reading.state.to_string());
        result
    }

    async fn request(&self, bmc: &Bmc, order: Order) -> Result<Accepted, PowerError> {
        let began = self.now();
        let result = self.driver.request(bmc, order).await;
        self.note(bmc, format!("power {}", order.action), began, &result, |accepted| match accepted {
            Accepted::AlreadyThere => "already there, nothing sent".to_owned(),
            Accepted::Sent { how } => format!("accepted: {how}"),
        });
        result
    }

    async fn set_boot(&self, bmc: &Bmc, boot: BootOverride) -> Result<BootOverride, PowerError> {
        let began = self.now();
        let result = self.driver.set_boot(bmc, boot).await;
        self.note(bmc, format!("set boot {}", words(boot)), began, &result, |kept| words(*kept));
        result
    }

    async fn sensors(&self, bmc: &Bmc) -> Result<Sensors, PowerError> {
        let began = self.now();
        let result = self.driver.sensors(bmc).await;
        // The readings themselves are the host's metrics; here they would only make every line different.
        self.note(bmc, "read sensors".to_owned(), began, &result, |sensors| {
            let watts = if sensors.milliwatts.value().is_some() { "watts" } else { "no watts" };
            format!("{watts}, {} temperatures", sensors.temperatures.len())
        });
        result
    }

    async fn identify(&self, bmc: &Bmc) -> Result<Identity, PowerError> {
        let began = self.now();
        let result = self.driver.identify(bmc).await;
        self.note(bmc, "identify".to_owned(), began, &result, |identity| {
            let parts = [&identity.vendor, &identity.model, &identity.serial];
            parts.into_iter().flatten().cloned().collect::<Vec<_>>().join(" ")
        });
        result
    }

    async fn close(&self) {
        self.driver.close().await;
    }
}

fn words(boot: BootOverride) -> String {
    let target = serde_json::to_value(boot.target).ok();
    let target = target.as_ref().and_then(|value| value.as_str()).unwrap_or("default").to_owned();
    if boot.once { format!("{target}, once") } else { target }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at: i64, result: &str) -> Line {
        Line {
            at: Timestamp::from_millis(at),
            driver: DriverKind::Redfish,
            call: "read power".to_owned(),
            target: "10.0.0.1".to_owned(),
            result: result.to_owned(),
            ok: true,
            millis: 4,
            count: 1,
            last_at: None,
        }
    }

    #[test]
    fn the_same_again_is_counted_and_the_oldest_go() {
        let all = Transcripts::default();
        for at in 0..3 {
            all.add("a", line(at, "off"));
        }
        assert_eq!(all.of("a").len(), 1);
        assert_eq!((all.of("a")[0].count, all.of("a")[0].last_at), (3, Some(Timestamp::from_millis(2))));
        for at in 0..300 {
            all.add("a", line(at, &format!("state {at}")));
        }
        assert_eq!(all.of("a").len(), LINES);
        assert_eq!(all.of("a").last().map(|line| line.result.clone()), Some("state 299".to_owned()));
        all.add("b", line(0, &"x".repeat(1_000)));
        assert_eq!(all.of("b")[0].result.chars().count(), MAX_RESULT);
        assert!(all.of("nobody").is_empty());
    }
}
