//! What holds for one host: its own spec over its pool's configuration over the global one.

use muster_model::{
    Timestamp,
    host::{
        Abilities, BareMetalNodeSpec, BareMetalNodeStatus, DriverKind, GlobalConfig, Limits, Permission,
        PoolHostConfig, PowerCall,
    },
};

use super::{BootNeed, DriverView, Settings};

/// What is not in any configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surroundings {
    pub generation: u64,
    pub credential_version: u64,
    /// Divides every limit; 1 in production.
    pub time_factor: u32,
}

/// The driver that a call goes to, by its place in the list: the one asked for, or the one in use instead of the first
/// while that is remembered.
pub fn driver_for(
    call: PowerCall,
    status: &BareMetalNodeStatus,
    kind_at: impl Fn(usize) -> Option<DriverKind>,
    now: Timestamp,
) -> usize {
    let asked = call.driver();
    let Some(fallback) = status.driver_fallback.as_ref().filter(|one| now < one.until) else {
        return asked;
    };
    let Some(kind) = kind_at(fallback.index) else { return asked };
    let abilities = kind.abilities();
    let able = match call {
        PowerCall::SetBoot { .. } => abilities.boot_once,
        PowerCall::PowerOn { .. } => abilities.on,
        PowerCall::GracefulOff { .. } => abilities.graceful_off,
        PowerCall::ForceOff { .. } => abilities.force_off,
        PowerCall::PowerCycle { .. } => abilities.cycle,
        PowerCall::WolBurst { .. } | PowerCall::ResetBmc { .. } => false,
    };
    if asked < fallback.index && able { fallback.index } else { asked }
}

/// Puts the settings together. `probed` is what a probe found out about the drivers, in their order; a
/// driver without an entry is taken to be able to do what its kind can.
pub fn settings(
    spec: &BareMetalNodeSpec,
    pool: Option<&PoolHostConfig>,
    global: &GlobalConfig,
    probed: &[Option<DriverView>],
    around: Surroundings,
) -> Settings {
    let mut limits = Limits::default().with(&global.deadlines);
    if let Some(pool) = pool {
        limits = limits.with(&pool.deadlines);
    }
    let limits = limits.with(&spec.deadlines).shortened(around.time_factor);
    let mut policy = pool.map_or_else(|| global.policy.clone(), |pool| global.policy.with(&pool.policy));
    if !spec.can_force_off {
        policy.force_off = Permission::Refused;
        policy.cycle_lost = Permission::Refused;
    }
    let drivers = spec.effective_drivers();
    let drivers = drivers.iter().enumerate().map(|(place, driver)| {
        let full = DriverView::full(driver.kind);
        match probed.get(place).cloned().flatten().filter(|view| view.kind == driver.kind) {
            Some(view) => DriverView { abilities: both(full.abilities, view.abilities), ..view },
            None => full,
        }
    });
    let profile = spec.boot_profile.is_some() || pool.is_some_and(|pool| pool.boot_profile.is_some());
    Settings {
        drivers: drivers.collect(),
        limits,
        policy,
        boot: if profile { BootNeed::Profile } else { BootNeed::AsItIs },
        admin: spec.admin,
        hold: spec.hold.clone(),
        manual: spec.power_state,
        acknowledgement: spec.acknowledgement.clone(),
        max_watts: spec.max_watts,
        generation: around.generation,
        credential_version: around.credential_version,
    }
}

/// A probe takes away from what a kind of driver can do and never adds.
const fn both(kind: Abilities, probed: Abilities) -> Abilities {
    Abilities {
        on: kind.on && probed.on,
        graceful_off: kind.graceful_off && probed.graceful_off,
        force_off: kind.force_off && probed.force_off,
        cycle: kind.cycle && probed.cycle,
        read_power: kind.read_power && probed.read_power,
        boot_once: kind.boot_once && probed.boot_once,
        sensors: kind.sensors && probed.sensors,
    }
}

#[cfg(test)]
mod tests {
    use muster_model::{
        Duration,
        host::{DriverKind, LimitOverrides, PowerInterface},
    };

    use super::*;

    const AROUND: Surroundings = Surroundings { generation: 3, credential_version: 2, time_factor: 1 };

    #[test]
    fn the_host_outranks_its_pool_and_the_pool_the_rest() {
        let boot = |mins| LimitOverrides { boot: Some(Duration::from_mins(mins)), ..Default::default() };
        let mut spec = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
        let global = GlobalConfig { deadlines: boot(20), ..GlobalConfig::default() };
        let pool = PoolHostConfig { deadlines: boot(30), ..PoolHostConfig::default() };
        let limit = |spec: &BareMetalNodeSpec, pool| settings(spec, pool, &global, &[], AROUND).limits.boot;
        assert_eq!(limit(&spec, None), Duration::from_mins(20));
        assert_eq!(limit(&spec, Some(&pool)), Duration::from_mins(30));
        spec.deadlines = boot(40);
        assert_eq!(limit(&spec, Some(&pool)), Duration::from_mins(40));
        let short = settings(&spec, None, &global, &[], Surroundings { time_factor: 60, ..AROUND });
        assert_eq!(short.limits.boot, Duration::from_secs(40));
    }

    /// What a pool says counts for it; about the rest the settings of all hosts are asked.
    #[test]
    fn a_pool_outranks_the_policy_of_all_field_by_field() {
        let spec = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
        let mut global = GlobalConfig::default();
        (global.policy.max_cycles_per_day, global.policy.quarantine_after) = (6, 2);
        let mut pool = PoolHostConfig::default();
        pool.policy.quarantine_after = Some(5);
        let found = settings(&spec, Some(&pool), &global, &[], AROUND).policy;
        assert_eq!((found.max_cycles_per_day, found.quarantine_after), (6, 5));
        assert_eq!(settings(&spec, None, &global, &[], AROUND).policy, global.policy);
    }

    #[test]
    fn a_probe_takes_away_and_a_host_may_forbid_force() {
        let mut spec = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
        spec.can_force_off = false;
        let mut view = DriverView::full(DriverKind::Redfish);
        view.abilities.graceful_off = false;
        view.on_resets.truncate(1);
        let found = settings(&spec, None, &GlobalConfig::default(), &[Some(view.clone())], AROUND);
        assert_eq!(found.drivers, [view]);
        assert_eq!(found.policy.force_off, Permission::Refused);
    }
}
