//! A Redfish fleet by hand: `cargo run -p muster-emulate --example redfish -- COUNT FIRST_ADDRESS PORT CONTROL_PORT`.
//!
//! BMCs listen on COUNT addresses from `FIRST_ADDRESS` on (like 127.10.0.1), all on PORT; the control interface
//! on 127.0.0.1 and `CONTROL_PORT`. The account is admin / emulated.

use std::{io, net::Ipv4Addr, sync::Arc};

use muster_emulate::{
    RealClock,
    redfish::{Fleet, Layout, Place},
};

#[tokio::main]
async fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [count, first, port, control] = arguments.as_slice() else {
        return Err(io::Error::other("usage: redfish COUNT FIRST_ADDRESS PORT CONTROL_PORT"));
    };
    let wrong = |what: &str| io::Error::other(format!("{what} cannot be read"));
    let first: Ipv4Addr = first.parse().map_err(|_| wrong("FIRST_ADDRESS"))?;
    let port: u16 = port.parse().map_err(|_| wrong("PORT"))?;
    let layout = Layout {
        bmcs: count.parse().map_err(|_| wrong("COUNT"))?,
        place: Place::Addresses { first, port },
        ..Layout::default()
    };
    let fleet = Fleet::start(&layout, Arc::new(RealClock::default())).await?;
    let control: u16 = control.parse().map_err(|_| wrong("CONTROL_PORT"))?;
    let _control = fleet.control((Ipv4Addr::LOCALHOST, control).into()).await?;
    tokio::signal::ctrl_c().await
}
