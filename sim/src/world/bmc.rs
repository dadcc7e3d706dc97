//! The drivers: BMCs that answer, lie, hang and refuse, behind the same port as the real ones.

use std::sync::Arc;

use async_trait::async_trait;
use muster_model::{
    Clock as _, Duration, Known,
    power::{
        Abilities, Accepted, Bmc, BootOverride, BootProgress, DriverKind, Endpoint, Fault, Health, Identity,
        Leave, Order, Power, PowerAction, PowerError, PowerState, Reading, Sensors, Temperature,
    },
};

use super::{ProcessClock, World, machine::Quirk};

/// A slow BMC's answer.
const SLOW: Duration = Duration::from_secs(20);
/// Longer than anybody waits.
const NEVER: Duration = Duration::from_hours(1);

/// One driver of one process, for every machine.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) world: Arc<World>,
    pub(super) kind: DriverKind,
    pub(super) process: Arc<str>,
    pub(super) clock: Arc<ProcessClock>,
}

/// Counts a call as under way for as long as it lives, also when it is given up.
struct Flight<'a> {
    world: &'a World,
    process: &'a str,
    address: String,
    since: Duration,
}

/// Longer than any call may take, and its lease.
const PATIENCE: Duration = Duration::from_mins(5);

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let lasted = self.world.now().saturating_sub(self.since);
        let mut state = self.world.state();
        if let Some(count) = state.judge.in_flight.get_mut(&self.address) {
            *count = count.saturating_sub(1);
        }
        // Who stands still cannot give up.
        let still =
            state.judge.still_until.get(self.process).is_some_and(|until| *until > self.since.millis());
        if lasted > PATIENCE && !still {
            let address = &self.address;
            state.violate("F23", format!("a call to {address} was waited for for {lasted}"));
        }
    }
}

impl Driver {
    /// The address that a call goes to, and the machine behind it.
    fn target(&self, bmc: &Bmc) -> Result<(String, String), PowerError> {
        let state = self.world.state();
        let address = match &bmc.endpoint {
            Endpoint::Redfish { url, .. } | Endpoint::Webhook { url, .. } => {
                url.split("://").last().unwrap_or(url).to_owned()
            }
            Endpoint::Ipmi { address, .. } => address.clone(),
            Endpoint::Wol { .. } | Endpoint::Agent | Endpoint::DryRun => {
                return Ok((format!("host {}", bmc.host), bmc.host.clone()));
            }
        };
        let address = address.split(':').next().unwrap_or_default().to_owned();
        let machine = state.wiring.get(&address).cloned();
        machine
            .map(|machine| (address, machine))
            .ok_or_else(|| PowerError::new(bmc, Fault::Unreachable { why: "no route to host".into() }))
    }

    /// How calls of this process to a BMC are counted.
    fn flight(&self, address: &str) -> String {
        format!("{address} by {}", self.process)
    }

    /// The way to the machine, and what may happen on it.
    async fn travel(&self, bmc: &Bmc) -> Result<String, PowerError> {
        let (address, machine) = self.target(bmc)?;
        let wait = {
            let mut state = self.world.state();
            // A process that stands still has its calls under way for as long as it does.
            let flights = state.judge.in_flight.entry(self.flight(&address)).or_default();
            *flights += 1;
            if *flights > 1 {
                let many = *flights;
                state.violate("F14", format!("{many} calls at once to {address}"));
            }
            let Some(one) = state.machines.get(&machine) else { return Ok(machine) };
            match () {
                () if one.has(Quirk::BlackHole) => NEVER,
                () if one.has(Quirk::Slow) => SLOW,
                () => one.build.latency,
            }
        };
        let _flight = Flight {
            world: &self.world,
            process: &self.process,
            address: self.flight(&address),
            since: self.world.now(),
        };
        self.clock.sleep(wait).await;
        let mut state = self.world.state();
        let Some(one) = state.machines.get(&machine) else { return Ok(machine) };
        let credential = bmc.credential.clone().unwrap_or_default();
        let fault = match () {
            () if self.kind == DriverKind::Agent || self.kind == DriverKind::Wol => return Ok(machine),
            () if one.has(Quirk::Unreachable) => Fault::Unreachable { why: "connection refused".into() },
            () if one.has(Quirk::Busy) => Fault::Busy { why: "no session is left".into() },
            () if one.has(Quirk::Garbage) => Fault::malformed("the system", "it ends in the middle"),
            () if one.has(Quirk::Denied) => Fault::Denied { credential: credential.clone() },
            () if one.has(Quirk::PasswordExpired) => {
                Fault::PasswordChangeRequired { credential: credential.clone() }
            }
            () => return Ok(machine),
        };
        if matches!(fault, Fault::Denied { .. } | Fault::PasswordChangeRequired { .. }) {
            let key = format!("{address} {credential} by {}", self.process);
            let count = state.judge.refused.entry(key).or_default();
            *count += 1;
            if *count > 2 {
                let many = *count;
                state.violate("F14", format!("{many} logins to {address} with an account that is refused"));
            }
        }
        Err(PowerError::new(bmc, fault))
    }

    /// Whether the machine is the one that the caller means.
    fn check(&self, bmc: &Bmc, machine: &str) -> Result<(), PowerError> {
        let state = self.world.state();
        let found = state.machines.get(machine).map(|one| one.build.serial.clone()).unwrap_or_default();
        match &bmc.expect.serial {
            Some(expected) if *expected != found => Err(PowerError::new(
                bmc,
                Fault::WrongHost { what: "serial", expected: expected.clone(), found },
            )),
            _ => Ok(()),
        }
    }

    fn carry_out(&self, machine: &str, action: PowerAction) {
        let mut state = self.world.state();
        match action {
            PowerAction::On => state.ask_on(machine),
            PowerAction::GracefulOff => state.ask_shutdown(machine),
            PowerAction::ForceOff => state.cut(machine),
            PowerAction::Cycle | PowerAction::Reset => state.cycle(machine),
        }
    }
}

#[async_trait]
impl Power for Driver {
    fn driver(&self) -> DriverKind {
        self.kind
    }

    fn abilities(&self) -> Abilities {
        use PowerAction::{Cycle, ForceOff, GracefulOff, On};
        match self.kind {
            DriverKind::Wol => Abilities::actions([On]),
            DriverKind::Agent => Abilities::actions([GracefulOff]),
            DriverKind::Webhook => Abilities { read: true, ..Abilities::actions([On, ForceOff]) },
            DriverKind::Redfish | DriverKind::Ipmi | DriverKind::DryRun => Abilities {
                read: true,
                boot: true,
                identify: true,
                sensors: self.world.state().metered,
                ..Abilities::actions([On, GracefulOff, ForceOff, Cycle])
            },
        }
    }

    async fn read(&self, bmc: &Bmc) -> Result<Reading, PowerError> {
        let machine = self.travel(bmc).await?;
        self.check(bmc, &machine)?;
        let at = self.clock.now();
        let mut state = self.world.state();
        let Some(one) = state.machines.get_mut(&machine) else {
            return Err(PowerError::new(bmc, Fault::Unreachable { why: "no machine".into() }));
        };
        let power = one.shown_power();
        let progress = match (one.on, one.os) {
            (true, true) => BootProgress::OsRunning,
            (true, false) => BootProgress::Firmware("PCIResourceConfig".into()),
            (false, _) => BootProgress::NotReported,
        };
        Ok(Reading {
            state: power,
            at,
            driver: self.kind,
            progress,
            health: Health::Ok,
            warnings: Vec::new(),
        })
    }

    async fn request(&self, bmc: &Bmc, order: Order, leave: &Leave) -> Result<Accepted, PowerError> {
        let sent = self.world.now().millis();
        let machine = self.travel(bmc).await?;
        self.check(bmc, &machine)?;
        let reads = !matches!(self.kind, DriverKind::Wol | DriverKind::Agent);
        let lost = {
            let mut state = self.world.state();
            let Some(one) = state.machines.get_mut(&machine) else {
                return Err(PowerError::new(bmc, Fault::Unreachable { why: "no machine".into() }));
            };
            if reads && order.action.is_met_by(&one.shown_power()) {
                return Ok(Accepted::AlreadyThere);
            }
            leave.ask().map_err(|fault| PowerError::new(bmc, fault))?;
            let lost = one.has(Quirk::AnswerLost);
            let (process, kind) = (&self.process, self.kind);
            state.say(&format!(
                "{process} sends {} to {machine} by {kind}, attempt {}",
                order.action,
                order.on as u8 + 1
            ));
            state.judge_call(process, &bmc.host, &machine, order.action, sent);
            lost
        };
        self.carry_out(&machine, order.action);
        if self.kind == DriverKind::Agent {
            let at = self.clock.now();
            self.world.goodbye(&bmc.host, at);
        }
        if lost {
            let (action, why) = (order.action.to_string(), "the connection was lost".to_owned());
            return Err(PowerError::new(bmc, Fault::OutcomeUnknown { action, why }));
        }
        Ok(Accepted::Sent { how: order.action.to_string() })
    }

    async fn set_boot(
        &self,
        bmc: &Bmc,
        boot: BootOverride,
        leave: &Leave,
    ) -> Result<BootOverride, PowerError> {
        let machine = self.travel(bmc).await?;
        self.check(bmc, &machine)?;
        let mut state = self.world.state();
        if state.machines.get(&machine).is_some_and(|one| one.has(Quirk::BootIgnored)) {
            let (wanted, found) = (format!("{:?}", boot.target), "Disk".to_owned());
            return Err(PowerError::new(bmc, Fault::BootIgnored { wanted, found }));
        }
        leave.ask().map_err(|fault| PowerError::new(bmc, fault))?;
        let text = format!("{} sets {machine} to boot from {:?}", self.process, boot.target);
        state.say(&text);
        Ok(boot)
    }

    async fn sensors(&self, bmc: &Bmc) -> Result<Sensors, PowerError> {
        if !self.world.state().metered {
            return Err(PowerError::new(bmc, Fault::unsupported("sensors", self.kind)));
        }
        let machine = self.travel(bmc).await?;
        let at = self.clock.now();
        let milliwatts = self.world.drawn(&machine);
        // Air that comes in at 22 degrees and gets warmer with what is drawn.
        let inlet = Temperature {
            name: "Inlet".into(),
            millicelsius: 22_000 + milliwatts / 200,
            warning_at: None,
            critical_at: None,
        };
        Ok(Sensors {
            milliwatts: Known::Value { value: milliwatts, at },
            temperatures: vec![inlet],
            health: Health::Ok,
        })
    }

    async fn identify(&self, bmc: &Bmc) -> Result<Identity, PowerError> {
        let machine = self.travel(bmc).await?;
        let state = self.world.state();
        let serial = state.machines.get(&machine).map(|one| one.build.serial.clone());
        Ok(Identity { serial, vendor: Some("Simulated".into()), ..Identity::default() })
    }
}

impl World {
    /// Drivers of every kind for one process.
    pub fn drivers(self: &Arc<Self>, process: &str, clock: &Arc<ProcessClock>) -> Vec<Arc<dyn Power>> {
        [DriverKind::Redfish, DriverKind::Ipmi, DriverKind::Wol, DriverKind::Agent, DriverKind::Webhook]
            .map(|kind| {
                let (world, clock) = (Arc::clone(self), Arc::clone(clock));
                Arc::new(Driver { world, kind, process: process.into(), clock }) as Arc<dyn Power>
            })
            .into()
    }

    /// What a BMC says about a machine's power now.
    pub fn shown_power(&self, machine: &str) -> PowerState {
        let mut state = self.state();
        state
            .machines
            .get_mut(machine)
            .map_or_else(|| PowerState::unknown("no machine"), super::Machine::shown_power)
    }
}
