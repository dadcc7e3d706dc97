//! Wake-on-LAN: a packet that may wake a machine, sent into the dark.
//!
//! Nothing comes back, so success is proved elsewhere (the node's lease, the agent's hello), and there is no
//! way to read or to switch off. The destination comes from the inventory and passes the address rules; the
//! free broadcast address 255.255.255.255 never does.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use async_trait::async_trait;
use muster_model::{
    Clock, Duration,
    power::{
        Abilities, Accepted, Bmc, BootProgress, DriverKind, Endpoint, Fault, Health, Leave, Mac, Order,
        Power, PowerAction, PowerError, PowerState, Reading,
    },
};
use tokio::net::UdpSocket;

use crate::address::AddressRules;

/// Packets per request, and the pause between them: one may be lost, three in 200 ms hardly.
const PACKETS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug, Clone)]
pub struct WakeOnLan {
    rules: Arc<AddressRules>,
    clock: Arc<dyn Clock>,
}

impl WakeOnLan {
    pub fn new(rules: Arc<AddressRules>, clock: Arc<dyn Clock>) -> Self {
        Self { rules, clock }
    }

    async fn wake(&self, bmc: &Bmc, leave: &Leave) -> Result<(), Fault> {
        let Endpoint::Wol { mac, broadcast, port, secure_on, interface } = &bmc.endpoint else {
            return Err(Fault::Invalid { why: "its endpoint is not a Wake-on-LAN one".into() });
        };
        // A number, not a name: broadcast addresses have none.
        let address: Ipv4Addr = broadcast.parse().map_err(|_| Fault::AddressRefused {
            why: "the broadcast address must be an IPv4 address".into(),
        })?;
        let target =
            self.rules.judge(IpAddr::V4(address), *port).map_err(|why| Fault::AddressRefused { why })?;
        let from = if address.is_loopback() { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        let failed = |error: std::io::Error| Fault::Unreachable { why: error.to_string() };
        let socket = UdpSocket::bind((from, 0)).await.map_err(failed)?;
        socket.set_broadcast(true).map_err(failed)?;
        if let Some(interface) = interface {
            leave_by(&socket, interface)?;
        }
        let packet = magic(*mac, *secure_on);
        for round in 0..PACKETS {
            if round > 0 {
                self.clock.sleep(PAUSE).await;
            }
            match leave.ask() {
                Err(fault) if round > 0 => {
                    let action = format!("{round} of {PACKETS} magic packets");
                    return Err(Fault::OutcomeUnknown { action, why: fault.to_string() });
                }
                left => left.map(drop)?,
            }
            socket.send_to(&packet, target).await.map_err(failed)?;
        }
        Ok(())
    }
}

/// Has the packets leave by one network interface, whatever the routing table says.
#[cfg(target_os = "linux")]
fn leave_by(socket: &UdpSocket, interface: &str) -> Result<(), Fault> {
    socket.bind_device(Some(interface.as_bytes())).map_err(|error| Fault::Invalid {
        why: format!("packets cannot leave by interface {interface:?} of this machine: {error}"),
    })
}

#[cfg(not(target_os = "linux"))]
fn leave_by(_: &UdpSocket, interface: &str) -> Result<(), Fault> {
    Err(Fault::unsupported(format!("packets by interface {interface:?} (only on Linux)"), DriverKind::Wol))
}

/// Six bytes of ones, the address sixteen times, and the password that some cards want.
pub fn magic(mac: Mac, secure_on: Option<Mac>) -> Vec<u8> {
    let mut packet = vec![0xff; 6];
    packet.extend(mac.0.repeat(16));
    packet.extend(secure_on.iter().flat_map(|password| password.0));
    packet
}

#[async_trait]
impl Power for WakeOnLan {
    fn driver(&self) -> DriverKind {
        DriverKind::Wol
    }

    fn abilities(&self) -> Abilities {
        Abilities::actions([PowerAction::On])
    }

    async fn read(&self, _bmc: &Bmc) -> Result<Reading, PowerError> {
        Ok(Reading {
            state: PowerState::unknown("Wake-on-LAN cannot read power"),
            at: self.clock.now(),
            driver: DriverKind::Wol,
            progress: BootProgress::NotReported,
            health: Health::NotReported,
            warnings: Vec::new(),
        })
    }

    async fn request(&self, bmc: &Bmc, order: Order, leave: &Leave) -> Result<Accepted, PowerError> {
        if order.action != PowerAction::On {
            let fault = Fault::unsupported(order.action.to_string(), DriverKind::Wol);
            return Err(PowerError::new(bmc, fault));
        }
        self.wake(bmc, leave).await.map_err(|fault| PowerError::new(bmc, fault))?;
        Ok(Accepted::Sent { how: format!("{PACKETS} magic packets") })
    }
}
