//! An RMCP+ BMC by hand: `cargo run -p muster-emulate --example ipmi -- ADDRESS:PORT`.
//!
//! The account is admin / emulated; `ipmitool -I lanplus -C 17 -H … -p … -U admin -P emulated power status`.

use std::{io, sync::Arc};

use muster_emulate::{
    Machine, RealClock, Timing,
    ipmi::{Account, Level, RmcpBmc},
};
use muster_model::Clock;

#[tokio::main]
async fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let address = address.ok_or_else(|| io::Error::other("usage: ipmi ADDRESS:PORT"))?;
    let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
    let machine = Machine::new(Arc::clone(&clock), Timing::default());
    let account = Account { user: "admin".into(), password: "emulated".into(), level: Level::Administrator };
    let _bmc = RmcpBmc::start(address, vec![account], rand::random(), machine, clock).await?;
    tokio::signal::ctrl_c().await
}
