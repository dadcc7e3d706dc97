//! How a machine is talked to.

use std::sync::Arc;

use async_trait::async_trait;
use muster_engine::lifecycle::Goodbye;
use muster_model::{
    Clock as _, Known,
    power::{
        Abilities, Accepted, Bmc, BootOverride, BootProgress, DriverKind, Endpoint, Fault, Health, Identity,
        Leave, LogEntry, Mac, Order, Power, PowerAction, PowerError, PowerState, Reading, Sensors, Trust,
    },
};

use super::Outside;

/// A driver of one kind for all machines.
#[derive(Debug)]
pub(super) struct TestDriver {
    pub(super) kind: DriverKind,
    pub(super) outside: Arc<Outside>,
}

impl TestDriver {
    fn name(&self) -> &'static str {
        match self.kind {
            DriverKind::Redfish => "redfish",
            DriverKind::Ipmi => "ipmi",
            DriverKind::Wol => "wol",
            _ => "agent",
        }
    }

    fn unable(&self, bmc: &Bmc, what: &str) -> PowerError {
        PowerError::new(bmc, Fault::Unsupported { what: what.into(), driver: self.kind })
    }

    /// The way to the machine and back, and what may happen on it.
    async fn travel(&self, bmc: &Bmc) -> Result<(), PowerError> {
        let (latency, silent, denies, key) = {
            let now = self.outside.clock.now();
            let mut state = self.outside.state();
            state.travels.push((now, bmc.host.clone()));
            let flights = state.in_flight.entry(bmc.host.clone()).or_default();
            *flights += 1;
            let flights = *flights;
            state.most_in_flight = state.most_in_flight.max(flights);
            let machine = &state.machines[&bmc.host];
            (machine.latency, machine.silent.contains(self.name()), machine.denies, machine.key)
        };
        self.outside.clock.sleep(latency).await;
        if let Some(flights) = self.outside.state().in_flight.get_mut(&bmc.host) {
            *flights -= 1;
        }
        if silent {
            return Err(PowerError::new(bmc, Fault::Unreachable { why: "no route".into() }));
        }
        if let (Endpoint::Redfish { trust: Trust::Pin { pin }, .. }, Some(found)) = (&bmc.endpoint, key)
            && *pin != Some(found)
        {
            let why = "the approved key is another".to_owned();
            let fault =
                if pin.is_some() { Fault::Untrusted { why, found } } else { Fault::Unapproved { found } };
            return Err(PowerError::new(bmc, fault));
        }
        if denies && self.outside.state().credential_version < 2 {
            return Err(PowerError::new(bmc, Fault::Denied { credential: "rack-a".into() }));
        }
        Ok(())
    }

    /// Does what is ordered. Whether the answer never comes.
    fn take(&self, bmc: &Bmc, order: Order) -> Result<bool, PowerError> {
        let (now, name) = (self.outside.clock.now(), self.name());
        let mut state = self.outside.state();
        if let (Some(expected), Some(found)) = (&bmc.expect.uuid, &state.machines[&bmc.host].uuid)
            && order.action.interrupts()
            && expected != found
        {
            let (expected, found) = (expected.clone(), found.clone());
            return Err(PowerError::new(bmc, Fault::WrongHost { what: "UUID", expected, found }));
        }
        state.calls.push((now, bmc.host.clone(), self.kind, order));
        if let Endpoint::Wol { mac, .. } = &bmc.endpoint {
            state.packets.push(*mac);
        }
        let machine = state.machines.get_mut(&bmc.host).unwrap();
        let (action, swallows) = (order.action.to_string(), machine.swallows);
        if machine.unable.contains(&(name, action.as_str())) {
            state.calls.pop();
            return Err(self.unable(bmc, &action));
        }
        match order.action {
            PowerAction::On if !machine.ignores_on.contains(name) => machine.switch(true, now),
            PowerAction::GracefulOff if !machine.ignores_acpi && machine.is_up(now) => {
                machine.shutdown_at = Some(now.saturating_add(machine.shutdown));
                if self.kind == DriverKind::Agent {
                    let op = String::new();
                    state.goodbyes.insert(bmc.host.clone(), Goodbye { op, at: now });
                }
            }
            PowerAction::ForceOff if !machine.ignores_force => machine.switch(false, now),
            PowerAction::Cycle => {
                machine.switch(false, now);
                machine.switch(true, now);
            }
            _ => {}
        }
        Ok(swallows)
    }
}

#[async_trait]
impl Power for TestDriver {
    fn driver(&self) -> DriverKind {
        self.kind
    }

    fn abilities(&self) -> Abilities {
        use PowerAction::{Cycle, ForceOff, GracefulOff, On};
        match self.kind {
            DriverKind::Wol => Abilities::actions([On]),
            DriverKind::Agent => Abilities::actions([GracefulOff]),
            _ => Abilities {
                read: true,
                boot: true,
                sensors: true,
                identify: true,
                log: true,
                ..Abilities::actions([On, GracefulOff, ForceOff, Cycle])
            },
        }
    }

    async fn read(&self, bmc: &Bmc) -> Result<Reading, PowerError> {
        {
            let mut state = self.outside.state();
            state.reads += 1;
            *state.reads_by.entry(self.name()).or_default() += 1;
        }
        self.travel(bmc).await?;
        let now = self.outside.clock.now();
        let state = self.outside.state();
        let machine = &state.machines[&bmc.host];
        let on = machine.on && !machine.lies_off.contains(self.name());
        Ok(Reading {
            state: match (machine.stuck, on) {
                (true, _) => PowerState::PoweringOn,
                (false, true) => PowerState::On,
                (false, false) => PowerState::Off,
            },
            at: now,
            driver: self.kind,
            progress: match machine.stage {
                _ if machine.is_up(now) => BootProgress::OsRunning,
                Some(stage) => BootProgress::Firmware(stage.into()),
                None => BootProgress::NotReported,
            },
            health: Health::Ok,
            warnings: machine.unverified.into_iter().collect(),
        })
    }

    async fn request(&self, bmc: &Bmc, order: Order, leave: &Leave) -> Result<Accepted, PowerError> {
        self.travel(bmc).await?;
        leave.ask().map_err(|fault| PowerError::new(bmc, fault))?;
        if self.outside.state().machines[&bmc.host].busy {
            return Err(PowerError::new(bmc, Fault::Busy { why: "503".into() }));
        }
        if self.take(bmc, order)? {
            std::future::pending::<()>().await;
        }
        Ok(Accepted::Sent { how: order.action.to_string() })
    }

    async fn sensors(&self, bmc: &Bmc) -> Result<Sensors, PowerError> {
        let watts = self.outside.state().machines[&bmc.host].watts;
        let Some(watts) = watts else {
            return Err(PowerError::new(bmc, Fault::unsupported("sensors", self.kind)));
        };
        self.outside.state().sensed.push((bmc.host.clone(), self.kind));
        self.travel(bmc).await?;
        let at = self.outside.clock.now();
        let milliwatts = Known::Value { value: watts * 1000, at };
        Ok(Sensors { milliwatts, temperatures: Vec::new(), health: Health::Ok })
    }

    async fn set_boot(
        &self,
        bmc: &Bmc,
        boot: BootOverride,
        leave: &Leave,
    ) -> Result<BootOverride, PowerError> {
        self.travel(bmc).await?;
        leave.ask().map_err(|fault| PowerError::new(bmc, fault))?;
        let mut state = self.outside.state();
        if state.machines[&bmc.host].unable.contains(&(self.name(), "boot")) {
            return Err(self.unable(bmc, "boot"));
        }
        state.boots.push(self.kind);
        let once = boot.once && !state.machines[&bmc.host].keeps_boot;
        Ok(BootOverride { once, ..boot })
    }

    async fn log_tail(&self, bmc: &Bmc, most: usize) -> Result<Vec<LogEntry>, PowerError> {
        self.travel(bmc).await?;
        let log = self.outside.state().machines[&bmc.host].log.clone();
        match log {
            Some(entries) => Ok(entries.into_iter().take(most).collect()),
            None => std::future::pending().await,
        }
    }

    async fn restart_bmc(&self, bmc: &Bmc, leave: &Leave) -> Result<Accepted, PowerError> {
        self.travel(bmc).await?;
        leave.ask().map_err(|fault| PowerError::new(bmc, fault))?;
        let mut state = self.outside.state();
        state.restarts += 1;
        state.machines.get_mut(&bmc.host).unwrap().stuck = false;
        Ok(Accepted::Sent { how: "a restart of the BMC".into() })
    }

    async fn identify(&self, bmc: &Bmc) -> Result<Identity, PowerError> {
        self.travel(bmc).await?;
        let state = self.outside.state();
        let (machine, macs) = (&state.machines[&bmc.host], vec![Mac([2, 0, 0, 0, 0, 0xee])]); // not the one that wakes
        let (serial, uuid) = (machine.serial.clone(), machine.uuid.clone());
        Ok(Identity { serial, uuid, macs, ..Identity::default() })
    }
}
