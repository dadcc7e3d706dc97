//! One machine: its power, its boot, and everything that may be wrong with it or its BMC.

use std::collections::BTreeMap;

use muster_model::{Duration, power::PowerState};
use serde::{Deserialize, Serialize};

/// Between two renewals of a kubelet's lease.
pub(super) const RENEW: u64 = 10_000;

/// Something wrong with a machine or its BMC, for as long as it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quirk {
    /// The BMC refuses connections.
    Unreachable,
    /// The BMC does not answer at all.
    BlackHole,
    /// Answers take 20 s.
    Slow,
    /// The BMC says off, whatever is true.
    LiesOff,
    /// The BMC says on, whatever is true.
    LiesOn,
    /// The power state is missing from the answer.
    NoPowerState,
    /// The answer cannot be read.
    Garbage,
    /// Every second answer is wrong.
    FlipFlop,
    /// The BMC says powering-on for ever.
    StuckTurning,
    /// Power-on is accepted, and nothing happens.
    IgnoresOn,
    /// Power-on works, but later than anybody waits.
    LateOn,
    /// The operating system ignores requests to shut down.
    IgnoresAcpi,
    /// A forced power-off is accepted, and nothing happens.
    IgnoresForce,
    /// The account is refused.
    Denied,
    /// The account's password has to be changed first.
    PasswordExpired,
    /// The BMC has no session left.
    Busy,
    /// Calls are carried out, but their answers are lost.
    AnswerLost,
    /// The boot override is accepted and not kept.
    BootIgnored,
    /// The firmware hangs: power, but no operating system.
    BootHangs,
    /// The operating system runs, but no node joins.
    NeverJoins,
    /// The node joins and stays not ready.
    JoinsUnready,
    /// The node joins with a taint that nothing tolerates.
    JoinsTainted,
    /// The kubelet hangs on a machine that runs.
    KubeletHangs,
}

impl Quirk {
    pub const ALL: [Self; 23] = [
        Self::Unreachable,
        Self::BlackHole,
        Self::Slow,
        Self::LiesOff,
        Self::LiesOn,
        Self::NoPowerState,
        Self::Garbage,
        Self::FlipFlop,
        Self::StuckTurning,
        Self::IgnoresOn,
        Self::LateOn,
        Self::IgnoresAcpi,
        Self::IgnoresForce,
        Self::Denied,
        Self::PasswordExpired,
        Self::Busy,
        Self::AnswerLost,
        Self::BootIgnored,
        Self::BootHangs,
        Self::NeverJoins,
        Self::JoinsUnready,
        Self::JoinsTainted,
        Self::KubeletHangs,
    ];
}

/// What a machine is, before anything happens to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    pub name: String,
    /// Where its BMC answers.
    pub address: String,
    pub serial: String,
    pub rack: Option<String>,
    pub max_watts: u32,
    pub milli_cpu: i64,
    pub memory: i64,
    pub gpus: i64,
    /// From power to the kubelet's first sign.
    pub boot: Duration,
    /// From there to Ready.
    pub join: Duration,
    /// From the request to shut down to no power.
    pub shutdown: Duration,
    /// How long a BMC's answer takes.
    pub latency: Duration,
    pub on: bool,
}

impl Build {
    /// Eight cores, 32 GiB, up after a minute and a half.
    pub fn new(name: &str, address: &str) -> Self {
        Self {
            name: name.to_owned(),
            address: address.to_owned(),
            serial: format!("serial-{name}"),
            rack: None,
            max_watts: 400,
            milli_cpu: 8_000,
            memory: 32 << 30,
            gpus: 0,
            boot: Duration::from_secs(90),
            join: Duration::from_secs(5),
            shutdown: Duration::from_secs(15),
            latency: Duration::from_millis(50),
            on: false,
        }
    }
}

/// A machine as it is. Times are true milliseconds.
#[derive(Debug, Clone)]
pub struct Machine {
    pub build: Build,
    pub on: bool,
    pub turned_at: u64,
    pub boots: u32,
    /// Grows with every change of power: what was planned for an earlier one is void.
    pub change: u64,
    /// The operating system is up.
    pub os: bool,
    /// Since when its kubelet renews.
    pub kubelet: Option<u64>,
    pub last_renewal: Option<u64>,
    /// It was asked to shut down and does.
    pub stopping: bool,
    /// What is wrong, and how many disturbances say so.
    pub quirks: BTreeMap<Quirk, u32>,
    /// Answers given so far: every second one lies in a flip-flop.
    pub answers: u64,
    /// Power-on requests that reached it.
    pub starts: u32,
}

impl Machine {
    pub fn new(build: Build, now: u64) -> Self {
        let on = build.on;
        Self {
            build,
            on,
            turned_at: now,
            boots: u32::from(on),
            change: 0,
            os: false,
            kubelet: None,
            last_renewal: None,
            stopping: false,
            quirks: BTreeMap::new(),
            answers: 0,
            starts: 0,
        }
    }

    pub fn has(&self, quirk: Quirk) -> bool {
        self.quirks.contains_key(&quirk)
    }

    /// Its BMC may say that it is on when it is not.
    pub fn misleads(&self) -> bool {
        [Quirk::LiesOn, Quirk::FlipFlop, Quirk::StuckTurning].into_iter().any(|quirk| self.has(quirk))
    }

    pub fn add_quirk(&mut self, quirk: Quirk) {
        *self.quirks.entry(quirk).or_default() += 1;
    }

    pub fn remove_quirk(&mut self, quirk: Quirk) {
        if let Some(count) = self.quirks.get_mut(&quirk) {
            *count -= 1;
            if *count == 0 {
                self.quirks.remove(&quirk);
            }
        }
    }

    /// When the kubelet last renewed its lease.
    pub fn renewed(&self, now: u64) -> Option<u64> {
        match self.kubelet {
            Some(from) => Some(from + (now.saturating_sub(from)) / RENEW * RENEW),
            None => self.last_renewal,
        }
    }

    /// What the BMC says about power.
    pub fn shown_power(&mut self) -> PowerState {
        self.answers += 1;
        let truth = if self.on { PowerState::On } else { PowerState::Off };
        let lie = if self.on { PowerState::Off } else { PowerState::On };
        if self.has(Quirk::NoPowerState) {
            return PowerState::unknown("PowerState is missing");
        }
        if self.has(Quirk::StuckTurning) {
            return PowerState::PoweringOn;
        }
        if self.has(Quirk::LiesOff) {
            return PowerState::Off;
        }
        if self.has(Quirk::LiesOn) {
            return PowerState::On;
        }
        if self.has(Quirk::FlipFlop) && self.answers.is_multiple_of(2) {
            return lie;
        }
        truth
    }
}
