//! Real BMCs on the wire: emulated Redfish servers on loopback, whose machines are those of the simulated world.
//!
//! Power is the emulated machine's: what the Redfish driver switches there happens to the world's machine as well,
//! whose operating system then boots, joins the cluster and carries pods, or does not.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
};

use anyhow::Context;
use muster_emulate::{
    Machine, Power, Timing,
    redfish::{Faults, Fleet, Layout, Place},
};
use muster_model::{Clock, Duration};
use muster_sim::world::{ProcessClock, Quirk, What, World};
use tokio::task::JoinSet;

use super::site::Yard;

/// The first BMC; the others follow.
const FIRST: Ipv4Addr = Ipv4Addr::new(127, 10, 0, 1);
pub(super) const USER: &str = "admin";
pub(super) const PASSWORD: &str = "emulated";
/// From the request for power to an operating system, with a little over.
const SETTLE: Duration = Duration::from_secs(65);
/// What a slow BMC takes for every answer.
const SLOW: Duration = Duration::from_secs(20);

/// An address for the first BMC whose port is free.
pub(super) fn place() -> anyhow::Result<SocketAddr> {
    let listener =
        TcpListener::bind((FIRST, 0)).with_context(|| format!("emulated BMCs cannot listen on {FIRST}"))?;
    Ok(listener.local_addr()?)
}

/// Running BMCs, and who keeps their machines and the world's alike. They stop when this is dropped.
#[derive(Debug)]
pub(super) struct Wire {
    fleet: Fleet,
    names: Vec<String>,
    /// Carries the power of every machine into the world.
    _mirrors: JoinSet<()>,
}

impl Wire {
    /// Starts one BMC for every host of the yard; machines that are on in the world are on here.
    pub(super) async fn start(
        yard: &Yard,
        first: SocketAddr,
        world: &Arc<World>,
        clock: &Arc<ProcessClock>,
    ) -> anyhow::Result<Self> {
        let names: Vec<String> = yard.hosts().map(str::to_owned).collect();
        let layout = Layout {
            bmcs: u32::try_from(names.len())?,
            place: Place::Addresses { first: FIRST, port: first.port() },
            tls: true,
            user: USER.to_owned(),
            password: PASSWORD.to_owned(),
            timing: Timing {
                on: Duration::from_secs(1),
                boot: Duration::from_secs(60),
                shutdown: Duration::from_secs(30),
                gap: Duration::from_secs(5),
            },
            ..Layout::default()
        };
        let fleet = Fleet::start(&layout, Arc::clone(clock) as Arc<dyn Clock>)
            .await
            .with_context(|| format!("{} emulated BMCs cannot listen from {first} on", names.len()))?;
        let mut mirrors = JoinSet::new();
        for (bmc, name) in fleet.bmcs().zip(&names) {
            let Some(system) = bmc.systems.first() else { continue };
            if world.is_on(name) {
                system.machine.switch_on();
            }
        }
        // Those that are on have been so for a while: their operating systems run.
        world.advance(world.now().saturating_add(SETTLE));
        for (bmc, name) in fleet.bmcs().zip(&names) {
            let Some(system) = bmc.systems.first() else { continue };
            mirrors.spawn(mirror(Arc::clone(&system.machine), Arc::clone(world), name.clone()));
        }
        let wire = Self { fleet, names, _mirrors: mirrors };
        wire.spoil(&yard.odd.slow, |faults| faults.delay = SLOW);
        // What never boots does not listen to its power button either.
        wire.spoil(&yard.odd.never_boots, |faults| faults.ignore_acpi = true);
        Ok(wire)
    }

    fn spoil(&self, host: &str, change: impl FnOnce(&mut Faults)) {
        let place = self.names.iter().position(|name| name == host);
        if let Some(bmc) = place.and_then(|place| self.fleet.bmcs().nth(place)) {
            let mut faults = bmc.faults();
            change(&mut faults);
            bmc.set_faults(faults);
        }
    }

    fn machine(&self, host: &str) -> Option<&Arc<Machine>> {
        let place = self.names.iter().position(|name| name == host)?;
        self.fleet.bmcs().nth(place)?.systems.first().map(|system| &system.machine)
    }

    /// Whether something of the story is up to the BMCs and not to the world.
    pub(super) const fn takes(what: &What) -> bool {
        matches!(what, What::Button { .. } | What::Quirk { quirk: Quirk::LiesOff, .. })
    }

    /// Lets something of the story happen on the wire. `false` when it is not up to the BMCs.
    pub(super) fn happens(&self, what: &What, begins: bool) -> bool {
        match what {
            What::Button { machine, on } => {
                if let Some(machine) = self.machine(machine) {
                    if *on { machine.switch_on() } else { machine.cut() }
                }
                true
            }
            What::Quirk { machine, quirk: Quirk::LiesOff } => {
                self.spoil(machine, |faults| faults.say_power = begins.then(|| "Off".to_owned()));
                true
            }
            _ => false,
        }
    }
}

/// Tells the world of every change of a machine's power.
async fn mirror(machine: Arc<Machine>, world: Arc<World>, name: String) {
    let mut seen = machine.watch();
    loop {
        seen.mark_unchanged();
        let on = matches!(machine.power(), Power::On | Power::PoweringOff);
        if world.is_on(&name) != on {
            world.press(&name, on);
        }
        if seen.changed().await.is_err() {
            return;
        }
    }
}
