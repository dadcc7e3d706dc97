//! What goes wrong on a day, made from its seed: a bit of everything, or more of what somebody is after.

use std::{fmt, str::FromStr};

use muster_model::Duration;

use super::{
    Disturbance, Outage, Quirk, What,
    fuzz::{CALM_START, Day},
    random::Random,
};

/// What a day can be full of. A day that is after something has more of it, and a site on which it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// BMCs that say what is not so.
    Lies,
    /// BMCs that do not answer, or late.
    Silence,
    /// Accounts that are refused.
    Accounts,
    /// Machines that do not come up.
    Boots,
    /// Machines that do not go down.
    Stops,
    /// Kubelets that hang, most of them at once.
    Kubelets,
    /// Hands on power buttons.
    Buttons,
    /// Views of the cluster that cannot be trusted.
    Views,
    /// Drains that do not get on, and marks that cannot be set.
    Drains,
    /// Metrics that are missing.
    Metrics,
    /// Racks without supply or switch.
    Racks,
    /// BMC cables that are swapped.
    Cables,
    /// Leaders that are killed.
    Crashes,
    /// Leaders that stand still while calls are under way.
    Pauses,
    /// A store that nobody reaches.
    Stores,
    /// Clocks that are set or run fast.
    Clocks,
    /// Pools that may not become as large as they would, nor as small.
    Bounds,
    /// People who ask for power by hand, and change their minds.
    People,
    /// Demand that comes all at once.
    Herds,
    /// A BMC that is lost for a minute, over and over.
    Blips,
    /// A node on which Muster itself runs.
    Guards,
    /// Full pools, most of whose kubelets then hang at once while nobody needs the rest.
    Storms,
}

impl Class {
    pub const ALL: [Self; 22] = [
        Self::Lies,
        Self::Silence,
        Self::Accounts,
        Self::Boots,
        Self::Stops,
        Self::Kubelets,
        Self::Buttons,
        Self::Views,
        Self::Drains,
        Self::Metrics,
        Self::Racks,
        Self::Cables,
        Self::Crashes,
        Self::Pauses,
        Self::Stores,
        Self::Clocks,
        Self::Bounds,
        Self::People,
        Self::Herds,
        Self::Blips,
        Self::Guards,
        Self::Storms,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lies => "lies",
            Self::Silence => "silence",
            Self::Accounts => "accounts",
            Self::Boots => "boots",
            Self::Stops => "stops",
            Self::Kubelets => "kubelets",
            Self::Buttons => "buttons",
            Self::Views => "views",
            Self::Drains => "drains",
            Self::Metrics => "metrics",
            Self::Racks => "racks",
            Self::Cables => "cables",
            Self::Crashes => "crashes",
            Self::Pauses => "pauses",
            Self::Stores => "stores",
            Self::Clocks => "clocks",
            Self::Bounds => "bounds",
            Self::People => "people",
            Self::Herds => "herds",
            Self::Blips => "blips",
            Self::Guards => "guards",
            Self::Storms => "storms",
        }
    }

    /// Whether it means something only where there are more than a few machines.
    pub(super) const fn needs_many(self) -> bool {
        matches!(self, Self::Kubelets | Self::Herds | Self::Racks | Self::Storms)
    }

    /// How long it lasts at least and at most, in seconds.
    pub(super) const fn seconds(self) -> (u64, u64) {
        match self {
            Self::Blips => (70, 120),
            Self::Crashes | Self::Herds | Self::People => (20, 120),
            Self::Stores => (60, 1_200),
            Self::Pauses => (220, 500),
            Self::Lies | Self::Silence | Self::Accounts | Self::Boots | Self::Stops | Self::Clocks => {
                (120, 1_800)
            }
            Self::Buttons | Self::Cables | Self::Bounds | Self::Guards => (300, 1_800),
            Self::Storms => (1_500, 3_600),
            Self::Kubelets | Self::Views | Self::Drains | Self::Metrics | Self::Racks => (900, 4_500),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|class| class.as_str() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            format!("{text:?} is no kind of trouble; known are {known}")
        })
    }
}

impl Day {
    pub(super) fn add(&mut self, at: Duration, lasts: Duration, what: What) {
        self.disturbances.push(Disturbance { at, lasts, what });
    }

    pub(super) fn some_host(&self, dice: &mut Random) -> String {
        dice.pick(&self.site.hosts).machine.name.clone()
    }

    /// One thing after the other, some of them at once.
    pub(super) fn trouble(&mut self, dice: &mut Random) {
        let latest = if self.focus.is_empty() { 20 } else { 2 };
        let mut at = CALM_START.saturating_add(Duration::from_mins(dice.between(0, latest)));
        loop {
            let longest = self.calm.saturating_sub(at);
            if longest < Duration::from_mins(5) {
                break;
            }
            let lasts = Duration::from_secs(match dice.between(0, 9) {
                0..=3 => dice.between(10, 120),
                4..=7 => dice.between(120, 1_800),
                _ => dice.between(1_800, 7_200),
            });
            if self.focus.is_empty() {
                self.one(dice, at, lasts.min(longest));
                at = at.saturating_add(Duration::from_secs(dice.between(60, 3_000)));
            } else {
                let class = *dice.pick(&self.focus.clone());
                let (least, most) = class.seconds();
                let lasts = Duration::from_secs(dice.between(least, most)).min(longest);
                self.one_of(class, dice, at, lasts);
                let after = lasts.millis() / 1_000;
                let gap = match class {
                    Class::Blips => (150, 260),
                    // One after the other: what comes down in one has to come up again for the next.
                    Class::Storms => (after + 1_800, after + 2_700),
                    _ => (60, 1_200),
                };
                at = at.saturating_add(Duration::from_secs(dice.between(gap.0, gap.1)));
            }
        }
    }

    /// Anything.
    fn one(&mut self, dice: &mut Random, at: Duration, lasts: Duration) {
        let minutes = |most: u64| Duration::from_mins(most).min(lasts);
        let what = match dice.between(0, 99) {
            0..=44 => {
                let (machine, quirk) = (self.some_host(dice), *dice.pick(&Quirk::ALL));
                return self.quirk(at, lasts, machine, quirk);
            }
            45..=52 => What::Button { machine: self.some_host(dice), on: dice.percent(50) },
            53..=62 => What::Outage(*dice.pick(&[
                Outage::ApiDown,
                Outage::ApiStalled,
                Outage::NoPods,
                Outage::Finalizers,
                Outage::BudgetsClosed,
                Outage::ActsRefused,
            ])),
            63..=67 => What::Outage(*dice.pick(&Outage::METRICS)),
            68..=71 => What::RackCut { rack: dice.pick(&self.site.racks).name.clone() },
            72..=73 => What::RackDark { rack: dice.pick(&self.site.racks).name.clone() },
            74..=77 => {
                let (one, other) = (self.some_host(dice), self.some_host(dice));
                What::Swap { one, other }
            }
            78..=83 => return self.add(at, minutes(2), What::KillLeader),
            84..=86 if self.processes > 1 => return self.pause(at),
            84..=88 => return self.add(at, minutes(10), What::CutLeader),
            89..=91 => return self.add(at, minutes(20), What::StoreDown),
            92..=93 => {
                let millis = *dice.pick(&[3_600_000, -3_600_000, 60_000, -60_000]);
                What::ClockJump { millis }
            }
            94 => What::ClockRate { rate: 3 },
            95..=96 => {
                let pool = dice.pick(&self.site.pools).name.clone();
                let hosts = self.site.hosts.len() as u64;
                let max = u32::try_from(dice.between(0, hosts)).unwrap_or(0);
                What::Bounds { pool, min: self.least(at, max), max }
            }
            97 => What::Freeze,
            98 => What::Maintenance { host: self.some_host(dice) },
            _ => What::Cordon { machine: self.some_host(dice) },
        };
        self.add(at, lasts, what);
    }

    /// The leader stands still: for a moment, or until long after its lease is over, be that of 19 seconds or ten times that.
    fn pause(&mut self, at: Duration) {
        let mut dice = Random::new(self.seed ^ at.millis()).fork("pause");
        let lasts = Duration::from_secs(dice.between(10, 600)).min(self.calm.saturating_sub(at));
        self.add(at, lasts, What::PauseLeader);
    }

    /// A minimum beside a maximum that somebody edits in: often none.
    fn least(&self, at: Duration, max: u32) -> u32 {
        let mut dice = Random::new(self.seed ^ at.millis()).fork("least");
        let min = dice.between(0, u64::from(max));
        if dice.percent(50) { 0 } else { u32::try_from(min).unwrap_or(0) }
    }

    fn quirk(&mut self, at: Duration, lasts: Duration, machine: String, quirk: Quirk) {
        if matches!(quirk, Quirk::Denied | Quirk::PasswordExpired) {
            let after = at.saturating_add(lasts).saturating_add(Duration::from_secs(30));
            self.add(after, Duration::ZERO, What::Rotate { host: machine.clone() });
        }
        self.add(at, lasts, What::Quirk { machine, quirk });
    }

    /// Something of one class.
    pub(super) fn one_of(&mut self, class: Class, dice: &mut Random, at: Duration, lasts: Duration) {
        let host = self.some_host(dice);
        let quirks: &[Quirk] = match class {
            Class::Lies => &[
                Quirk::LiesOff,
                Quirk::LiesOff,
                Quirk::LiesOn,
                Quirk::FlipFlop,
                Quirk::NoPowerState,
                Quirk::StuckTurning,
                Quirk::AnswerLost,
            ],
            Class::Silence => &[
                Quirk::BlackHole,
                Quirk::BlackHole,
                Quirk::Slow,
                Quirk::Unreachable,
                Quirk::Busy,
                Quirk::Garbage,
            ],
            Class::Accounts => &[Quirk::Denied, Quirk::PasswordExpired],
            Class::Boots => &[
                Quirk::IgnoresOn,
                Quirk::LateOn,
                Quirk::BootHangs,
                Quirk::NeverJoins,
                Quirk::JoinsUnready,
                Quirk::JoinsTainted,
                Quirk::BootIgnored,
            ],
            Class::Stops => &[Quirk::IgnoresAcpi, Quirk::IgnoresForce],
            Class::Blips => &[Quirk::Unreachable],
            Class::Kubelets => {
                for host in self.site.hosts.clone() {
                    if dice.percent(75) {
                        self.quirk(at, lasts, host.machine.name, Quirk::KubeletHangs);
                    }
                }
                // Nobody needs those that are left.
                for workload in self.workloads.clone() {
                    let none = What::Replicas { workload: workload.name, replicas: 0 };
                    self.add(at.saturating_add(Duration::from_mins(1)), Duration::ZERO, none);
                }
                return;
            }
            Class::Storms => return self.storm(dice, at, lasts),
            Class::Pauses => {
                self.quirk(at.saturating_sub(Duration::from_mins(1)), lasts, host, Quirk::Slow);
                return self.add(at, lasts, What::PauseLeader);
            }
            Class::People => return self.change_of_mind(dice, at, lasts, host),
            Class::Clocks => return self.clocks(dice, at, lasts),
            Class::Drains if dice.percent(25) => return self.binds(dice, at, lasts),
            Class::Herds => {
                let replicas = u32::try_from(self.site.hosts.len()).unwrap_or(u32::MAX);
                let of = |replicas| What::Replicas { workload: "herd".into(), replicas };
                self.add(at, Duration::ZERO, of(replicas));
                return self.add(at.saturating_add(Duration::from_mins(20)), Duration::ZERO, of(0));
            }
            _ => &[],
        };
        if !quirks.is_empty() {
            let host = if class == Class::Blips { self.site.hosts[0].machine.name.clone() } else { host };
            return self.quirk(at, lasts, host, *dice.pick(quirks));
        }
        if let Some(what) = self.plain(class, dice, host) {
            self.add(at, lasts, what);
        }
    }

    /// Pods that somebody binds past the scheduler, one after the other, to nodes that serve, come or go.
    pub(super) fn binds(&mut self, dice: &mut Random, at: Duration, lasts: Duration) {
        let mut after = Duration::ZERO;
        while after < lasts {
            let machine = self.some_host(dice);
            self.add(at.saturating_add(after), Duration::ZERO, What::BindTo { machine });
            // No timer has such steps.
            after = after.saturating_add(Duration::from_millis(dice.between(7_001, 90_001)));
        }
    }

    /// So many pods of the workload that fills hosts.
    fn herd(&mut self, at: Duration, replicas: usize) {
        let replicas = u32::try_from(replicas).unwrap_or(u32::MAX);
        self.add(at, Duration::ZERO, What::Replicas { workload: "herd".into(), replicas });
    }

    /// All hosts are called up; then most of their kubelets hang, and a minute later nobody needs any of them.
    fn storm(&mut self, dice: &mut Random, at: Duration, lasts: Duration) {
        let later = |minutes: u64| at.saturating_add(Duration::from_mins(minutes));
        let lasts = lasts.min(self.calm.saturating_sub(later(20)));
        if lasts < Duration::from_mins(15) {
            return; // too short for anybody to be given up
        }
        self.herd(at, self.site.hosts.len());
        for host in self.site.hosts.clone() {
            if dice.percent(75) {
                self.quirk(later(20), lasts, host.machine.name, Quirk::KubeletHangs);
            }
        }
        self.herd(later(21), 0);
        for workload in self.workloads.clone().into_iter().filter(|one| one.name != "herd") {
            self.add(later(21), Duration::ZERO, What::Replicas { workload: workload.name, replicas: 0 });
        }
    }

    /// Classes of which one is one disturbance.
    fn plain(&self, class: Class, dice: &mut Random, host: String) -> Option<What> {
        let outage = |outage: &Outage| Some(What::Outage(*outage));
        match class {
            Class::Buttons => Some(What::Button { machine: host, on: dice.percent(50) }),
            Class::Views => outage(dice.pick(&[
                Outage::ApiDown,
                Outage::ApiStalled,
                Outage::ApiSlow,
                Outage::NoPods,
                Outage::HalfThePods,
            ])),
            Class::Drains => {
                outage(dice.pick(&[Outage::Finalizers, Outage::BudgetsClosed, Outage::ActsRefused]))
            }
            Class::Metrics => outage(dice.pick(&Outage::METRICS)),
            Class::Racks => {
                let rack = dice.pick(&self.site.racks).name.clone();
                Some(if dice.percent(50) { What::RackDark { rack } } else { What::RackCut { rack } })
            }
            Class::Cables => {
                let other = self.some_host(dice);
                (host != other).then_some(What::Swap { one: host, other })
            }
            Class::Crashes => Some(What::KillLeader),
            Class::Stores => Some(What::StoreDown),
            // What these change is the site; the day needs no other trouble.
            _ => None,
        }
    }

    /// Somebody asks for power, and for no power before the machine can be up.
    fn change_of_mind(&mut self, dice: &mut Random, at: Duration, lasts: Duration, host: String) {
        let first = Duration::from_secs(dice.between(15, 45));
        let on = dice.percent(70);
        self.add(at, first, What::Ask { host: host.clone(), on });
        let then = at.saturating_add(first).saturating_add(Duration::from_millis(10));
        self.add(then, lasts.saturating_add(Duration::from_mins(8)), What::Ask { host, on: !on });
    }

    /// A clock is wrong while a process starts, and right again when the next one does.
    fn clocks(&mut self, dice: &mut Random, at: Duration, lasts: Duration) {
        const HOUR: i64 = 3_600_000;
        let lasts = lasts.max(Duration::from_mins(8));
        if dice.percent(20) {
            return self.add(at, lasts, What::ClockRate { rate: 3 });
        }
        let millis = *dice.pick(&[HOUR, -HOUR, 24 * HOUR, 365 * 24 * HOUR, -365 * 24 * HOUR]);
        self.add(at, lasts, What::ClockJump { millis });
        let second = Duration::from_secs(1);
        self.add(at.saturating_add(second), Duration::from_secs(20), What::KillLeader);
        self.add(at.saturating_add(lasts).saturating_add(second), Duration::from_secs(20), What::KillLeader);
    }
}
