//! Days full of trouble, made from a seed: a site, its load, and everything that goes wrong.
//!
//! The same seed makes the same day and the same trace. In the first part of a day anything may fail at any time and
//! only safety is judged; then trouble ends, and half an hour later everything has to have come to rest.

use muster_model::{Duration, rack::Rack};
use serde::Serialize;

use super::{
    Build, Disturbance, START, Violation, What, Workload,
    process::{Attention, Manner},
    random::Random,
    simulation::Simulation,
    site::{self, HostSetting, PoolSetting, Site, SiteError, Wires},
    trouble::Class,
};

/// How long the world has to come to rest after the last trouble: the longest way is a failed drain, its retry
/// delay, and a boot.
const REST: Duration = Duration::from_mins(30);
/// When a person has gone round to what is still set aside. The last of those who change their minds, and the last new account, come
/// within ten minutes of the end of trouble.
const CARE: Duration = Duration::from_mins(10);
/// From the registration of hosts to the first trouble.
pub(super) const CALM_START: Duration = Duration::from_mins(10);
/// Between looks at what must be true at any time.
const AUDIT: Duration = Duration::from_mins(5);

/// A day, before it happens.
#[derive(Debug, Clone)]
pub struct Day {
    pub seed: u64,
    pub length: Duration,
    /// What it is full of; a bit of everything if that is nothing.
    pub focus: Vec<Class>,
    /// So many hosts were asked for; drawn by lot if nobody did.
    pub size: Option<u64>,
    pub site: Site,
    pub workloads: Vec<Workload>,
    pub disturbances: Vec<Disturbance>,
    /// Processes that run from the beginning.
    pub processes: usize,
    /// When the last trouble is over.
    pub calm: Duration,
    /// Hosts whose nodes may not be drained.
    pub protected: Option<String>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    pub seed: u64,
    /// Over every line of the trace.
    pub digest: String,
    pub lines: u64,
    pub hosts: usize,
    pub power_ons: usize,
    pub power_offs: usize,
    pub evictions: u64,
    pub violations: Vec<Violation>,
}

/// Why a day could not be run at all.
#[derive(Debug, thiserror::Error)]
pub enum FuzzError {
    #[error(transparent)]
    Site(#[from] SiteError),
    #[error("the store of the simulation failed")]
    Store(#[from] muster_model::store::StoreError),
}

impl Day {
    /// The day of a seed.
    pub fn new(seed: u64, length: Duration) -> Self {
        Self::full_of(seed, length, &[], None)
    }

    /// The day of a seed with more of some kinds of trouble and none of others, on a site of so many hosts or of any
    /// size.
    pub fn full_of(seed: u64, length: Duration, focus: &[Class], size: Option<u64>) -> Self {
        let random = Random::new(seed);
        let mut dice = random.fork("site");
        let racks = dice.between(1, 3);
        let drawn = match focus {
            [] if dice.percent(3) => 64,
            [] => dice.between(3, 12),
            [Class::Blips] => 2,
            focus if focus.iter().any(|class| class.needs_many()) => dice.between(6, 8),
            // The fewer there are, the sooner trouble meets one that matters.
            _ => dice.between(3, 4),
        };
        let hosts = size.unwrap_or(drawn);
        let pools = if dice.percent(30) { 2 } else { 1 };
        let calm = Duration::from_millis(length.millis().saturating_sub(REST.millis() * 2));
        let mut day = Self {
            seed,
            length,
            focus: focus.to_vec(),
            size,
            site: Site::default(),
            workloads: Vec::new(),
            disturbances: Vec::new(),
            processes: if dice.percent(40) || focus.contains(&Class::Pauses) { 2 } else { 1 },
            calm,
            protected: None,
        };
        day.furnish(&mut dice, racks, hosts, pools);
        if dice.percent(20) || focus.contains(&Class::Guards) {
            day.protected = Some(day.some_host(&mut dice));
        }
        day.load(&mut random.fork("load"), pools);
        day.leave_few_behind(&mut random.fork("few"));
        day.trouble(&mut random.fork("trouble"));
        day.rarities(&mut random.fork("rare"));
        day.old_views(&mut random.fork("old"));
        day
    }

    fn furnish(&mut self, dice: &mut Random, racks: u64, hosts: u64, pools: u64) {
        for rack in 0..racks {
            let mut made = Rack::new(format!("r{rack}"));
            let share = u32::try_from(hosts.div_ceil(racks)).unwrap_or(u32::MAX);
            if dice.percent(30) {
                made.watt_cap = Some((share * 400 * 3 / 4).max(400));
            }
            made.start_limit = if dice.percent(30) { 1 } else { 4 };
            self.site.racks.push(made);
        }
        for pool in 0..pools {
            let most = u32::try_from(hosts).unwrap_or(u32::MAX);
            let tight = self.focus.contains(&Class::Bounds);
            let max = if dice.percent(30) || tight { most.div_ceil(2) } else { most };
            let min = match () {
                () if self.focus.contains(&Class::Blips) => max,
                () => u32::from(dice.percent(30) || tight).min(max),
            };
            let mut made = PoolSetting::metal(&format!("p{pool}"), min, max);
            if dice.percent(30) || self.focus.contains(&Class::Metrics) {
                made.spec["autoscaling"]["triggers"] = serde_json::json!([
                    {"metricQuery": format!("load_p{pool}"), "threshold": 0.5, "duration": "1m", "scaleDirection": "down"}]);
            }
            self.site.pools.push(made);
        }
        for host in 0..hosts {
            let name = format!("h{host:02}");
            let mut build = Build::new(&name, &format!("10.1.{}.{}", host / 200, host % 200 + 1));
            build.rack = Some(format!("r{}", host % racks));
            build.boot = Duration::from_secs(dice.between(40, 240));
            build.shutdown = Duration::from_secs(dice.between(5, 90));
            build.latency = Duration::from_millis(dice.between(20, 400));
            let mut setting = HostSetting::new(&format!("p{}", host % pools), build);
            setting.wires = match dice.between(0, 9) {
                0 => Wires::Wol,
                1 => Wires::Ipmi,
                2..=4 => Wires::Both,
                _ => Wires::Redfish,
            };
            self.site.hosts.push(setting);
        }
        self.site.global = Some(muster_model::host::GlobalConfig::default());
    }

    /// Load that comes and goes: steps, teeth and quiet hours.
    fn load(&mut self, dice: &mut Random, pools: u64) {
        let hosts = self.site.hosts.len() as u64;
        let kinds = if self.focus.is_empty() { dice.between(1, 3) } else { 1 };
        for number in 0..kinds {
            let name = format!("w{number}");
            let milli_cpu = *dice.pick(&[500, 1_500, 2_500, 6_000]);
            let most = (hosts * 6_000 / u64::try_from(milli_cpu).unwrap_or(1)).max(1);
            let mut workload = Workload::deployment(&name, 0, milli_cpu);
            workload.grace_seconds = *dice.pick(&[5, 30, 120]);
            workload.ends_after_seconds = dice.between(1, workload.grace_seconds);
            if dice.percent(40) {
                workload.min_available = Some(1);
            }
            if pools > 1 {
                workload.selector.insert("nodepool".into(), format!("p{}", dice.between(0, pools - 1)));
            }
            self.workloads.push(workload);
            let mut at = CALM_START;
            while at < self.calm {
                let none = if self.focus.is_empty() { 25 } else { 45 };
                let replicas = if dice.percent(none) { 0 } else { dice.between(1, most.min(40)) };
                let replicas = u32::try_from(replicas).unwrap_or(0);
                self.add(at, Duration::ZERO, What::Replicas { workload: name.clone(), replicas });
                let most = if self.focus.is_empty() { 150 } else { 30 };
                at = at.saturating_add(Duration::from_mins(dice.between(20, most)));
            }
        }
        if self.focus.contains(&Class::Herds) || self.focus.contains(&Class::Storms) {
            self.workloads.push(Workload::deployment("herd", 0, 6_500));
        }
        for pool in 0..pools {
            let mut at = Duration::ZERO;
            while at < self.calm {
                let millis = if dice.percent(70) { 100 } else { 900 };
                self.add(at, Duration::ZERO, What::Signal { query: format!("load_p{pool}"), millis });
                at = at.saturating_add(Duration::from_mins(dice.between(30, 240)));
            }
        }
    }

    /// Small pods that stay, one beside each of some big ones that go: hosts that are worth emptying.
    fn leave_few_behind(&mut self, dice: &mut Random) {
        let replicas = u32::try_from(dice.between(2, 3)).unwrap_or(2);
        let mut few = Workload::deployment("few", 0, 2_000);
        few.grace_seconds = *dice.pick(&[5, 30, 120]);
        few.ends_after_seconds = dice.between(1, few.grace_seconds);
        few.min_available = dice.percent(50).then_some(1);
        let big = Workload::deployment("big", 0, 5_000);
        self.workloads.extend([big, few]);
        let latest = if self.focus.is_empty() { 90 } else { 1 };
        let mut at = CALM_START.saturating_add(Duration::from_mins(dice.between(0, latest)));
        while at.saturating_add(Duration::from_hours(1)) < self.calm {
            let of = |workload: &str, replicas| What::Replicas { workload: workload.into(), replicas };
            let later = |minutes: u64| at.saturating_add(Duration::from_mins(minutes));
            self.add(at, Duration::ZERO, of("big", replicas));
            self.add(later(10), Duration::ZERO, of("few", replicas));
            self.add(later(dice.between(20, 40)), Duration::ZERO, of("big", 0));
            let end = later(dice.between(60, 180));
            self.add(end, Duration::ZERO, of("few", 0));
            at = end.saturating_add(Duration::from_mins(dice.between(5, 60)));
        }
    }

    /// The command that lives this day again in the same manner, which is [`quick`] or [`exact`].
    pub fn command(&self, manner: &Manner) -> String {
        let (seed, next, hours) = (self.seed, self.seed + 1, self.length.millis() / 3_600_000);
        let focus: Vec<&str> = self.focus.iter().map(|class| class.as_str()).collect();
        let focus = if focus.is_empty() { String::new() } else { format!(" --focus {}", focus.join(",")) };
        let size = self.size.map(|size| format!(" --hosts {size}")).unwrap_or_default();
        let exact = if manner.lease_factor == exact().lease_factor { " --exact" } else { "" };
        format!("muster sim fuzz --seeds {seed}..{next} --hours {hours}{focus}{size}{exact} --trace")
    }
}

/// Lives through a day. With `keep`, every line of the trace is kept and returned.
pub async fn live(day: &Day, manner: &Manner, keep: bool) -> Result<(Outcome, Vec<String>), FuzzError> {
    live_until(day, day.length, manner, keep).await
}

/// The same up to a moment of the day. Only who lives it to its end is judged by how it comes to rest.
pub async fn live_until(
    day: &Day,
    until: Duration,
    manner: &Manner,
    keep: bool,
) -> Result<(Outcome, Vec<String>), FuzzError> {
    let until = until.min(day.length);
    let mut simulation = Simulation::new(START, manner.clone());
    if keep {
        simulation.world().keep_all_lines();
    }
    simulation.plan_for(site::cluster_id());
    let first = simulation.start().await?;
    simulation.furnish(first, &day.site)?;
    for _ in 1..day.processes {
        simulation.start().await?;
    }
    let world = std::sync::Arc::clone(simulation.world());
    for workload in &day.workloads {
        world.add_workload(workload.clone());
    }
    for disturbance in &day.disturbances {
        world.disturb(disturbance.clone());
    }
    if let Some(host) = &day.protected {
        world.protect(host);
    }
    let mut next = AUDIT;
    while next < until && world.violations().is_empty() {
        simulation.run_until(next).await?;
        world.audit();
        next = next.saturating_add(AUDIT);
        let cared = day.calm.saturating_add(CARE);
        if next > cared && next.saturating_sub(AUDIT) <= cared {
            see_to_hosts(&simulation, day);
        }
        let rested = day.calm.saturating_add(REST);
        if next > rested && next.saturating_sub(AUDIT) <= rested {
            world.judge_rest(&day.site.hosts);
        }
    }
    if world.violations().is_empty() {
        simulation.run_until(until).await?;
        if until == day.length {
            world.judge_rest(&day.site.hosts);
            world.judge_idle();
        }
    }
    let (digest, lines) = world.digest();
    let outcome = Outcome {
        seed: day.seed,
        digest: format!("{digest:016x}"),
        lines,
        hosts: day.site.hosts.len(),
        power_ons: world.power_ons(None),
        power_offs: world.power_offs(None),
        evictions: world.evictions(),
        violations: world.violations(),
    };
    Ok((outcome, world.lines()))
}

/// Trouble is over, and a person goes round: cables are put right, as those that were swapped one after the other may have come back to
/// other machines, and whoever was set aside, or had another's cable, is seen to. A machine whose power cannot be read is switched
/// off before anybody says so.
fn see_to_hosts(simulation: &Simulation, day: &Day) {
    let world = simulation.world();
    let at = world.now();
    world.put_cables_right();
    for host in world.wait_for_people() {
        let blind = day.site.hosts.iter().any(|one| one.machine.name == host && one.wires == Wires::Wol);
        if blind && world.is_on(&host) {
            world.press(&host, false);
        }
        world.disturb(Disturbance { at, lasts: Duration::ZERO, what: What::Acknowledge { host } });
    }
}

/// How fuzzed days are lived: only news count, and the lease is renewed every ten seconds.
pub fn quick() -> Manner {
    Manner { attention: Attention::News, lease_factor: 10, ..Manner::default() }
}

/// The same with the production's own times.
pub fn exact() -> Manner {
    Manner { attention: Attention::News, ..Manner::default() }
}
