//! What was said to BMCs, for people who look at one host: the last calls of each, with what came back.
//!
//! It is kept by whichever process makes the calls: in memory, and in a file of its data directory so that a restart does
//! not end it. Secrets never pass the power port, so none can be in here; what is kept is what the port's own words say.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use muster_model::{
    Clock, Duration, Timestamp,
    power::{
        Abilities, Accepted, Bmc, BootOverride, DriverKind, Identity, Leave, LogEntry, Order, Power,
        PowerError, Reading, Sensors,
    },
};
use serde::{Deserialize, Serialize};

use super::transcript_file::{self, Writer};

/// Calls that are kept of one host: a boot takes about twenty, so the last few are there.
const LINES: usize = 100;
/// Hosts that are remembered; beyond it the ones that were called longest ago are forgotten. With about 150 bytes a
/// line they stay under 80 MB even when every ring is full.
const HOSTS: usize = 5_000;
/// Longest text of a result.
const MAX_RESULT: usize = 300;

/// One call, or several in a row that came to the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub at: Timestamp,
    pub driver: DriverKind,
    /// `read power`, `power on`, `set boot pxe`, `read sensors`, `identify`, `read log`.
    pub call: String,
    /// Where it went.
    pub target: String,
    pub result: String,
    pub ok: bool,
    pub millis: u64,
    /// How often in a row, and when the last time was.
    pub count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Timestamp>,
}

impl Line {
    /// Whether this says again what `other` said.
    fn repeats(&self, other: &Self) -> bool {
        (self.driver, &self.call, &self.target) == (other.driver, &other.call, &other.target)
            && (&self.result, self.ok) == (&other.result, other.ok)
    }
}

/// The transcripts of a process.
#[derive(Debug, Default)]
pub struct Transcripts {
    hosts: Mutex<BTreeMap<String, VecDeque<Line>>>,
    /// When the oldest call was that was written down by an earlier process.
    since: Option<Timestamp>,
    file: Option<Writer>,
}

impl Transcripts {
    /// Goes on from what is written down in `directory`, and writes there. Where that is not possible it begins anew and
    /// stays in memory.
    pub fn kept_in(directory: &Path) -> Self {
        let mut all = Self::default();
        for entry in transcript_file::read(directory) {
            all.since = Some(all.since.map_or(entry.line.at, |since| since.min(entry.line.at)));
            all.recall(entry.host, entry.line);
        }
        match Writer::start(directory, transcript_file::full()) {
            Ok(writer) => all.file = Some(writer),
            Err(error) => tracing::warn!(
                %error,
                directory = %directory.display(),
                "calls to bmcs cannot be written down; what is said is kept in memory only"
            ),
        }
        all
    }

    /// Since when calls are known, if from before this process.
    pub const fn since(&self) -> Option<Timestamp> {
        self.since
    }

    /// Takes a line that was written down. One that begins when the last one did is that one, told to its end.
    fn recall(&self, host: String, line: Line) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= HOSTS && !hosts.contains_key(&host) {
            return;
        }
        let lines = hosts.entry(host).or_default();
        match lines.back_mut() {
            Some(last) if last.at == line.at && last.repeats(&line) => *last = line,
            _ => lines.push_back(line),
        }
        if lines.len() > LINES {
            lines.pop_front();
        }
    }

    fn keep(&self, host: &str, line: &Line) {
        if let Some(file) = &self.file {
            file.keep(host, line);
        }
    }

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
            && last.repeats(&line)
        {
            last.count = last.count.saturating_add(1);
            last.last_at = Some(line.at);
            last.millis = line.millis;
            // How often is written down ever less often: a BMC that always says the same does not fill a disk.
            if last.count.is_power_of_two() {
                self.keep(host, last);
            }
            return;
        }
        if let Some(last) = lines.back().filter(|last| last.count > 1 && !last.count.is_power_of_two()) {
            self.keep(host, last);
        }
        self.keep(host, &line);
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

    async fn request(&self, bmc: &Bmc, order: Order, leave: &Leave) -> Result<Accepted, PowerError> {
        let began = self.now();
        let result = self.driver.request(bmc, order, leave).await;
        self.note(bmc, format!("power {}", order.action), began, &result, accepted);
        result
    }

    async fn set_boot(
        &self,
        bmc: &Bmc,
        boot: BootOverride,
        leave: &Leave,
    ) -> Result<BootOverride, PowerError> {
        let began = self.now();
        let wanted = format!("set boot {}", words(&boot));
        let result = self.driver.set_boot(bmc, boot, leave).await;
        self.note(bmc, wanted, began, &result, words);
        result
    }

    async fn sensors(&self, bmc: &Bmc) -> Result<Sensors, PowerError> {
        let began = self.now();
        let result = self.driver.sensors(bmc).await;
        // The readings themselves are the host's metrics; here they would only make every line different.
        self.note(bmc, "read sensors".to_owned(), began, &result, |sensors| {
            let watts = if sensors.milliwatts.value().is_some() { "watts" } else { "no watts" };
            match sensors.temperatures.len() {
                1 => format!("{watts}, 1 temperature"),
                many => format!("{watts}, {many} temperatures"),
            }
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

    async fn restart_bmc(&self, bmc: &Bmc, leave: &Leave) -> Result<Accepted, PowerError> {
        let began = self.now();
        let result = self.driver.restart_bmc(bmc, leave).await;
        self.note(bmc, "restart the BMC".to_owned(), began, &result, accepted);
        result
    }

    async fn log_tail(&self, bmc: &Bmc, most: usize) -> Result<Vec<LogEntry>, PowerError> {
        let began = self.now();
        let result = self.driver.log_tail(bmc, most).await;
        // The entries themselves go into the host's history.
        self.note(bmc, "read log".to_owned(), began, &result, |entries| match entries.len() {
            1 => "1 entry".to_owned(),
            many => format!("{many} entries"),
        });
        result
    }

    async fn close(&self) {
        self.driver.close().await;
    }
}

fn accepted(answer: &Accepted) -> String {
    match answer {
        Accepted::AlreadyThere => "already there, nothing sent".to_owned(),
        Accepted::Sent { how } => format!("accepted: {how}"),
    }
}

fn words(boot: &BootOverride) -> String {
    let target = serde_json::to_value(boot.target).ok();
    let target = target.as_ref().and_then(|value| value.as_str()).unwrap_or("default").to_owned();
    let target = boot.url.as_ref().map_or(target.clone(), |url| format!("{target} {url}"));
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

    /// Waits until a thread has written what is expected.
    fn reopened(directory: &Path, wanted: impl Fn(&Transcripts) -> bool) -> Transcripts {
        for _ in 0..6_000 {
            let all = Transcripts::kept_in(directory);
            if wanted(&all) {
                return all;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
        panic!("the lines were not written: {:?}", Transcripts::kept_in(directory));
    }

    #[test]
    fn a_restart_goes_on_where_the_last_process_was() {
        let directory = tempfile::tempdir().unwrap();
        let first = Transcripts::kept_in(directory.path());
        assert_eq!(first.since(), None);
        for at in 10..16 {
            first.add("a", line(at, "off"));
        }
        first.add("a", line(20, "on"));
        first.add("b", line(21, "silent"));
        let again = reopened(directory.path(), |all| all.of("b").len() == 1);
        assert_eq!(again.of("a"), first.of("a"), "with how often and until when");
        assert_eq!(again.since(), Some(Timestamp::from_millis(10)));
        // It goes on: the same again is counted, not listed anew.
        again.add("a", line(30, "on"));
        assert_eq!(again.of("a").len(), 2);
        assert_eq!(again.of("a")[1].count, 2);
    }

    #[test]
    fn a_line_that_was_cut_off_is_left_out_and_the_next_one_is_not_lost() {
        let directory = tempfile::tempdir().unwrap();
        Transcripts::kept_in(directory.path()).add("a", line(1, "off"));
        drop(reopened(directory.path(), |all| all.of("a").len() == 1));
        let file = directory.path().join("bmc-calls.jsonl");
        let mut text = std::fs::read(&file).unwrap();
        text.extend_from_slice(b"{\"host\":\"a\",\"at\":");
        std::fs::write(&file, text).unwrap();
        Transcripts::kept_in(directory.path()).add("a", line(2, "on"));
        let again = reopened(directory.path(), |all| all.of("a").len() == 2);
        assert_eq!(again.of("a")[1].result, "on");
    }

    #[test]
    fn two_files_are_kept_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let mut all = Transcripts {
            file: Some(Writer::start(directory.path(), 2_000).unwrap()),
            ..Transcripts::default()
        };
        for at in 0..200 {
            all.add("a", line(at, &format!("state {at}")));
        }
        all.file = None; // the thread ends when it has written everything
        let again = reopened(directory.path(), |again| again.of("a").last() == all.of("a").last());
        assert!(again.of("a").len() < 40, "{}", again.of("a").len());
        let files = std::fs::read_dir(directory.path()).unwrap();
        let sizes: Vec<u64> = files.map(|one| one.unwrap().metadata().unwrap().len()).collect();
        assert!(sizes.len() == 2 && sizes.iter().sum::<u64>() < 5_000, "{sizes:?}");
    }
}
