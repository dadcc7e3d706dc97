//! Since when nothing has been wrong: with machines, with what people did to them, and with what everybody depends on.
//!
//! Who is well and in nobody's hands comes back into use, within a time that follows from how long it was ill. What a loop writes
//! down about its waits is not asked; only where a host stands is, and since when it has not been in use.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::host::Phase;

use super::{
    disturbance::{Outage, What},
    machine::Quirk,
    state::State,
};

const MINUTE: u64 = 60_000;
/// A process reads the settings of pools again every two minutes when only news count, and a planner's wish is taken up
/// within two more: so long may be under way what was allowed before.
const UNDER_WAY: u64 = 5 * MINUTE;
/// The first wait after a failure. Each further one is at most twice as long, and up to half of it is added by lot, so that the
/// wait under way is at most half as long again as all those before it.
const FIRST_WAIT: u64 = MINUTE;
const LONGEST_WAIT: u64 = 8 * 60 * MINUTE;
/// What is under way when trouble ends may still fail: a boot has 15 minutes, and then 5 and 2 to be off again.
const LATE_FAILURE: u64 = 25 * MINUTE;
/// Back into use once the wait is over: two readings, a shutdown of a machine that is on without a node (5 minutes, 2 when it is
/// forced, 2 to confirm), and as much again for a change of leaders meanwhile.
const COMING_BACK: u64 = 15 * MINUTE;
/// Who is at rest is found well, after whatever was wrong, by the next reading; a minute's delay and a look apart.
const FOUND_WELL: u64 = 10 * MINUTE;
/// Whom somebody switched off is left off for an hour, from when that was seen.
const LEFT_OFF: u64 = 70 * MINUTE;
/// No start follows another sooner than after 15 minutes, nor its power-off sooner than after two, by a leader's clock.
const START_APART: u64 = 20 * MINUTE;
const REST_APART: u64 = 10 * MINUTE;
/// Calls to switch on that are nearer than this are attempts of one start: three of two minutes, or magic packets every minute.
const ONE_START: u64 = 5 * MINUTE;
/// One less than a machine may be started in a day.
const STARTS: usize = 23;
const DAY: u64 = 24 * 60 * MINUTE;

/// What only a person can lift.
#[derive(Debug, Clone, Copy, Default)]
struct Bars {
    /// Its BMC was another one's: somebody has to say which is right.
    cables: bool,
    /// Its account was refused: it needs another one.
    account: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Wellness {
    /// When something was last wrong with a machine.
    ailed: BTreeMap<String, u64>,
    barred: BTreeMap<String, Bars>,
    /// When a person last saw to a host.
    seen_to: BTreeMap<String, u64>,
    /// Since when hosts neither rest nor serve.
    out: BTreeMap<String, u64>,
    /// How much is wrong with the cluster, the store and the processes, since when something has been without a break,
    /// and when it last ended.
    upset: u32,
    began: u64,
    ended: u64,
}

impl Wellness {
    /// A host is said to stand elsewhere.
    pub(super) fn moved(&mut self, host: &str, phase: Phase, now: u64) {
        if matches!(phase, Phase::Idle | Phase::Serving) {
            self.out.remove(host);
        } else {
            self.out.entry(host.to_owned()).or_insert(now);
        }
    }

    /// Something is or was wrong with this machine now.
    pub(super) fn ails(&mut self, machine: &str, now: u64) {
        self.ailed.insert(machine.to_owned(), now);
    }

    fn bar(&mut self, machine: &str) -> &mut Bars {
        self.barred.entry(machine.to_owned()).or_default()
    }

    fn is_barred(&self, machine: &str) -> bool {
        self.barred.get(machine).is_some_and(|bars| bars.cables || bars.account)
    }

    /// A person said that a host was seen to.
    pub(super) fn see_to(&mut self, machine: &str, now: u64) {
        self.bar(machine).cables = false;
        self.seen_to.insert(machine.to_owned(), now);
    }

    /// A person gave its BMC an account that works.
    pub(super) fn rotate(&mut self, machine: &str, now: u64) {
        self.bar(machine).account = false;
        self.ails(machine, now);
    }

    /// Something that everybody depends on goes wrong, or is over.
    fn upset(&mut self, begins: bool, now: u64) {
        if begins {
            if self.upset == 0 && now.saturating_sub(self.ended) > UNDER_WAY {
                self.began = now;
            }
            self.upset += 1;
        } else {
            self.upset = self.upset.saturating_sub(1);
            self.ended = now;
        }
    }
}

/// Whether it keeps Muster itself from seeing or acting, whatever the machine.
fn upsets(what: &What) -> bool {
    match what {
        What::Outage(outage) => {
            let harmless = [Outage::Finalizers, Outage::BudgetsClosed].contains(outage);
            !harmless && !Outage::METRICS.contains(outage)
        }
        What::KillLeader
        | What::PauseLeader
        | What::CutLeader
        | What::StoreDown
        | What::ClockJump { .. }
        | What::ClockRate { .. }
        | What::Freeze => true,
        What::Quirk { .. }
        | What::Button { .. }
        | What::RackDark { .. }
        | What::RackCut { .. }
        | What::Swap { .. }
        | What::Replicas { .. }
        | What::Signal { .. }
        | What::Cordon { .. }
        | What::BindTo { .. }
        | What::Bounds { .. }
        | What::Maintenance { .. }
        | What::Rotate { .. }
        | What::Acknowledge { .. }
        | What::Ask { .. } => false,
    }
}

impl State {
    /// Something begins or ends that keeps machines or Muster from being well.
    pub(super) fn note_trouble(&mut self, what: &What, lasts: bool, begins: bool) {
        let now = self.now;
        let wellness = &mut self.judge.wellness;
        if upsets(what) {
            wellness.upset(begins, now);
            if begins && !lasts {
                wellness.upset(false, now);
            }
        }
        match what {
            What::Quirk { machine, quirk } => {
                wellness.ails(machine, now);
                if begins && matches!(quirk, Quirk::Denied | Quirk::PasswordExpired) {
                    wellness.bar(machine).account = true;
                }
            }
            What::Swap { one, other } => {
                for machine in [one, other] {
                    wellness.ails(machine, now);
                    wellness.bar(machine).cables = true;
                }
            }
            What::Button { machine, .. } | What::Cordon { machine } => wellness.ails(machine, now),
            What::Maintenance { host } | What::Ask { host, .. } => wellness.ails(host, now),
            What::Acknowledge { host } => wellness.see_to(host, now),
            What::RackDark { rack } | What::RackCut { rack } => {
                for machine in self.in_rack(rack) {
                    self.judge.wellness.ails(&machine, now);
                }
            }
            _ => {}
        }
    }

    /// The moment from which on everything that was allowed has been known to everybody who acts.
    pub(super) fn settled(&self) -> u64 {
        let wellness = &self.judge.wellness;
        let upset = wellness.upset > 0 || self.now.saturating_sub(wellness.ended) < UNDER_WAY;
        let known = if upset { wellness.began } else { self.now };
        known.saturating_sub(UNDER_WAY)
    }

    /// Since when nothing has been wrong with a machine, and nobody has held it; `None` while something is or somebody does.
    fn well_since(&self, name: &str) -> Option<u64> {
        let machine = self.machines.get(name)?;
        let wellness = &self.judge.wellness;
        let connected = self.wiring.get(&machine.build.address).is_some_and(|here| here == name);
        let held = self.judge.maintained.contains(name) || self.judge.hands.is_asked(name);
        if wellness.upset > 0 || !machine.quirks.is_empty() || !connected || held || wellness.is_barred(name)
        {
            return None;
        }
        let when = |times: &BTreeMap<String, u64>| times.get(name).copied().unwrap_or(0);
        Some(when(&wellness.ailed).max(when(&wellness.seen_to)).max(wellness.ended))
    }

    /// Whether it is a machine whose power cannot be read that is off, and nobody has looked at it since: nothing but its own word
    /// proves that it is off, and neither one whose power was taken nor one that was woken in vain gives that.
    fn is_out_of_sight(&self, name: &str) -> bool {
        let Some(machine) = self.machines.get(name).filter(|one| !one.on) else { return false };
        let asked = self.judge.asked.get(name).and_then(|asked| asked.on.last().copied()).unwrap_or(0);
        let seen_to = self.judge.wellness.seen_to.get(name).copied().unwrap_or(0);
        self.judge.blind.contains(name) && seen_to <= machine.turned_at.max(asked)
    }

    /// By when a host has to be back in use.
    fn back_by(&self, name: &str, phase: Phase) -> Option<u64> {
        let moved = self.judge.moved.get(name).copied().unwrap_or(0);
        let seen_to = self.judge.wellness.seen_to.get(name).copied();
        if phase == Phase::Quarantined && seen_to.is_none_or(|at| at < moved) {
            return None; // a person has to see to it
        }
        if self.is_out_of_sight(name) {
            return None;
        }
        let well = self.well_since(name)?;
        let from = well.max(moved.min(well + LATE_FAILURE));
        let out = self.judge.wellness.out.get(name).copied().unwrap_or(from).min(from);
        let wait = match phase {
            Phase::Degraded | Phase::Lost | Phase::Enrolling => 0,
            _ => ((from - out + FIRST_WAIT) * 3 / 2).min(LONGEST_WAIT),
        };
        Some(from + wait + COMING_BACK)
    }

    /// Whoever is well comes back.
    pub(super) fn audit_return(&mut self) {
        let failed = |phase: Phase| {
            matches!(
                phase,
                Phase::Enrolling | Phase::Degraded | Phase::Lost | Phase::Backoff | Phase::Quarantined
            )
        };
        let late = |(name, phase): (&String, &Phase)| {
            let due = self.back_by(name, *phase).filter(|due| failed(*phase) && *due < self.now)?;
            if *phase == Phase::Degraded && self.is_one_too_many(name) {
                return None;
            }
            let minutes = (self.now - self.well_since(name)?) / MINUTE;
            let late = (self.now - due) / MINUTE;
            Some(format!(
                "{name} is {phase} although nothing has been wrong with it for {minutes} minutes, {late} too long"
            ))
        };
        let late: Vec<String> = self.judge.phases.iter().filter_map(late).collect();
        for text in late {
            self.violate("F4", text);
        }
    }

    /// Whether its pool is full without it.
    fn is_one_too_many(&self, name: &str) -> bool {
        let Some(pool) = self.judge.pools.get(name) else { return false };
        let most = self.judge.bounds.get(pool).map_or(u32::MAX, super::bounds::Bounds::most);
        let up = self.judge.phases.iter().filter(|(other, phase)| {
            *other != name && self.judge.pools.get(*other) == Some(pool) && super::judge::is_up(**phase)
        });
        up.count() >= most as usize
    }

    /// Whether a host is at rest, is well, and nothing that Muster knows of stands in the way of waking it.
    pub(super) fn is_free(&self, name: &str) -> bool {
        let Some(machine) = self.machines.get(name) else { return false };
        let age = |at: u64| self.now.saturating_sub(at);
        let rests = self.judge.phases.get(name) == Some(&Phase::Idle) && !machine.on;
        let well = self.well_since(name).is_some_and(|since| age(since) > FOUND_WELL);
        let seen_to = self.judge.wellness.seen_to.get(name).copied().unwrap_or(0);
        let left =
            self.judge.hands.darkened.get(name).is_some_and(|at| *at >= seen_to && age(*at) < LEFT_OFF);
        let rested = age(machine.turned_at) > REST_APART;
        rests && well && !left && rested && !self.is_worn(name)
    }

    /// Whether it was started too lately or too often.
    fn is_worn(&self, name: &str) -> bool {
        let Some(asked) = self.judge.asked.get(name) else { return false };
        let age = |at: u64| self.now.saturating_sub(at);
        let mut starts = 0;
        let mut before = None;
        for at in asked.on.iter().copied().filter(|at| age(*at) < DAY) {
            starts += usize::from(before.is_none_or(|before| at - before >= ONE_START));
            before = Some(at);
        }
        starts >= STARTS || before.is_some_and(|at| age(at) < START_APART)
    }

    /// Hosts that a person has to see to when trouble is over: those that are set aside, those whose cables were wrong, and those
    /// of which nobody can tell that they are off.
    pub(super) fn wait_for_people(&self) -> BTreeSet<String> {
        let aside = self.judge.phases.iter().filter(|(name, phase)| match phase {
            Phase::Quarantined => true,
            Phase::Backoff => self.is_out_of_sight(name),
            _ => false,
        });
        let wrong = self.judge.wellness.barred.iter().filter(|(_, bars)| bars.cables);
        aside.map(|(name, _)| name.clone()).chain(wrong.map(|(name, _)| name.clone())).collect()
    }
}
