//! What holds for one host: its own spec over its pool's configuration over the global one.

use muster_model::{
    Timestamp,
    host::{
        BareMetalNodeSpec, BareMetalNodeStatus, DriverKind, GlobalConfig, Limits, Permission, PoolHostConfig,
        PowerCall,
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

/// The driver that a call goes to, by its place in the list: the one asked for, or the one in use instead of those before
/// it that read power and did not answer, while that is remembered.
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
    let (Some(kind), Some(first)) = (kind_at(fallback.index), kind_at(asked)) else { return asked };
    let abilities = kind.abilities();
    let able = match call {
        PowerCall::SetBoot { .. } => abilities.boot_once,
        PowerCall::PowerOn { .. } => abilities.on,
        PowerCall::GracefulOff { .. } => abilities.graceful_off,
        PowerCall::ForceOff { .. } => abilities.force_off,
        PowerCall::PowerCycle { .. } => abilities.cycle,
        PowerCall::WolBurst { .. } | PowerCall::ResetBmc { .. } => false,
    };
    if asked < fallback.index && first.abilities().read_power && able { fallback.index } else { asked }
}

/// Puts the settings together.
pub fn settings(
    spec: &BareMetalNodeSpec,
    pool: Option<&PoolHostConfig>,
    global: &GlobalConfig,
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
    let drivers = drivers.iter().map(|driver| DriverView::full(driver.kind));
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

#[cfg(test)]
mod tests {
    use muster_model::{
        Duration,
        host::{DriverFallback, DriverKind, LimitOverrides, PowerInterface},
    };

    use super::*;

    const AROUND: Surroundings = Surroundings { generation: 3, credential_version: 2, time_factor: 1 };

    #[test]
    fn the_host_outranks_its_pool_and_the_pool_the_rest() {
        let boot = |mins| LimitOverrides { boot: Some(Duration::from_mins(mins)), ..Default::default() };
        let mut spec = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
        let global = GlobalConfig { deadlines: boot(20), ..GlobalConfig::default() };
        let pool = PoolHostConfig { deadlines: boot(30), ..PoolHostConfig::default() };
        let limit = |spec: &BareMetalNodeSpec, pool| settings(spec, pool, &global, AROUND).limits.boot;
        assert_eq!(limit(&spec, None), Duration::from_mins(20));
        assert_eq!(limit(&spec, Some(&pool)), Duration::from_mins(30));
        spec.deadlines = boot(40);
        assert_eq!(limit(&spec, Some(&pool)), Duration::from_mins(40));
        let short = settings(&spec, None, &global, Surroundings { time_factor: 60, ..AROUND });
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
        let found = settings(&spec, Some(&pool), &global, AROUND).policy;
        assert_eq!((found.max_cycles_per_day, found.quarantine_after), (6, 5));
        assert_eq!(settings(&spec, None, &global, AROUND).policy, global.policy);
    }

    #[test]
    fn a_host_may_forbid_force() {
        let mut spec = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
        spec.can_force_off = false;
        let found = settings(&spec, None, &GlobalConfig::default(), AROUND);
        assert_eq!(found.drivers, [DriverView::full(DriverKind::Redfish)]);
        assert_eq!(found.policy.force_off, Permission::Refused);
    }

    /// Only a driver that was asked to read and did not answer is passed over: an agent is none.
    #[test]
    fn a_call_goes_to_the_driver_in_use_where_the_one_asked_is_silent() {
        use DriverKind::{Agent, Ipmi, Redfish};
        let now = Timestamp::from_millis(1_000);
        let mut status = BareMetalNodeStatus::enrolling(now);
        status.driver_fallback = Some(DriverFallback {
            index: 2,
            driver: Ipmi,
            reason: "no route".into(),
            until: now.saturating_add(Duration::from_secs(1)),
        });
        let check = |driver, at, used| {
            let kind = |place: usize| [Redfish, Agent, Ipmi].get(place).copied();
            assert_eq!(driver_for(PowerCall::GracefulOff { driver }, &status, kind, at), used);
        };
        check(0, now, 2);
        check(1, now, 1);
        check(2, now, 2);
        check(0, now.saturating_add(Duration::from_secs(2)), 0);
    }
}
