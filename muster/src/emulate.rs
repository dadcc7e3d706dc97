//! `muster emulate`: servers that exist only as their BMCs, to try Muster without hardware.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, bail};
use clap::{Args as Arguments, Subcommand};
use muster_emulate::{
    Machine, RealClock, Timing,
    ipmi::{self, Account, Level, RmcpBmc},
    redfish::{Fleet, Layout, Place},
};
use muster_model::{API_GROUP, API_VERSION, Clock, Duration};

use crate::output;

/// Most BMCs in one process: each costs a socket, and Linux' usual limit is below two thousand without root.
const MAX: u32 = 20_000;
const USER: &str = "admin";
const PASSWORD: &str = "emulated";

/// Pretend to be servers with BMCs, on loopback only, to try Muster without hardware
#[derive(Debug, Arguments)]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
    /// Servers whose BMCs speak Redfish, with switches for faults
    Redfish {
        #[command(flatten)]
        fleet: FleetArgs,
        /// Speak plain HTTP; without this each BMC speaks TLS with a certificate of its own
        #[arg(long)]
        plain_http: bool,
        /// Where faults are switched: GET /bmcs, PUT /bmcs/NAME/faults, POST /bmcs/NAME/button
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
        control: SocketAddr,
    },
    /// Servers whose BMCs speak IPMI 2.0 (RMCP+, cipher suites 3 and 17), with switches for faults
    Ipmi {
        #[command(flatten)]
        fleet: FleetArgs,
        /// Where faults are switched: GET /bmcs, PUT /bmcs/NAME/faults, POST /bmcs/NAME/button
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
        control: SocketAddr,
    },
}

#[derive(Debug, Arguments)]
struct FleetArgs {
    /// How many servers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX)))]
    count: u32,
    /// The first address; the others follow. Always 127.x.y.z
    #[arg(long, value_name = "ADDRESS", default_value = "127.10.0.1")]
    first: Ipv4Addr,
    /// The port on each address [default: 8000 for Redfish, 6230 for IPMI]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// From power to a running operating system
    #[arg(long, value_name = "DURATION", default_value = "20s")]
    boot: Duration,
    /// Write the servers as manifests, for `muster apply -f`
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
    /// The pool that the manifests name
    #[arg(long, value_name = "NAME", default_value = "metal")]
    pool: String,
    /// The credential that the manifests name
    #[arg(long, value_name = "NAME", default_value = "emulated")]
    credential: String,
}

impl FleetArgs {
    fn timing(&self) -> Timing {
        Timing { boot: self.boot, shutdown: Duration::from_secs(3), ..Timing::default() }
    }

    /// Fails when the addresses would leave loopback.
    fn addresses(&self, port: u16) -> anyhow::Result<Vec<SocketAddr>> {
        let address = |index| Ipv4Addr::from_bits(self.first.to_bits().saturating_add(index));
        let last = address(self.count - 1);
        if !self.first.is_loopback() || !last.is_loopback() {
            bail!(
                "--first {}: {} addresses end at {last}; an emulator listens on 127.0.0.0/8 only",
                self.first,
                self.count
            );
        }
        Ok((0..self.count).map(|index| SocketAddr::from((address(index), port))).collect())
    }
}

pub(crate) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    crate::limits::raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match &args.kind {
            Kind::Redfish { fleet, plain_http, control } => redfish(fleet, !*plain_http, *control).await,
            Kind::Ipmi { fleet, control } => rmcp(fleet, *control).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn redfish(args: &FleetArgs, tls: bool, control: SocketAddr) -> anyhow::Result<()> {
    let port = args.port.unwrap_or(8000);
    let addresses = args.addresses(port)?;
    let layout = Layout {
        bmcs: args.count,
        place: Place::Addresses { first: args.first, port },
        tls,
        user: USER.into(),
        password: PASSWORD.into(),
        timing: args.timing(),
        ..Layout::default()
    };
    let fleet =
        Fleet::start(&layout, Arc::new(RealClock::default())).await.with_context(|| busy(&addresses))?;
    let control = fleet.control(control).await.context("the control interface cannot listen")?;
    let scheme = if tls { "https" } else { "http" };
    announce("Redfish", scheme, &addresses, args)?;
    output::line(&format!("faults: curl http://{}/bmcs", control.address));
    until_stopped().await;
    drop(fleet);
    Ok(())
}

async fn rmcp(args: &FleetArgs, control: SocketAddr) -> anyhow::Result<()> {
    let addresses = args.addresses(args.port.unwrap_or(6230))?;
    let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
    let mut bmcs = BTreeMap::new();
    for (index, address) in addresses.iter().enumerate() {
        let machine = Machine::new(Arc::clone(&clock), args.timing());
        let account = Account { user: USER.into(), password: PASSWORD.into(), level: Level::Administrator };
        let bmc = RmcpBmc::start(*address, vec![account], rand::random(), machine, Arc::clone(&clock));
        bmcs.insert(format!("bmc-{index:05}"), Arc::new(bmc.await.with_context(|| busy(&addresses))?));
    }
    let control = ipmi::control(control, bmcs).await.context("the control interface cannot listen")?;
    announce("IPMI", "ipmi", &addresses, args)?;
    output::line(&format!("faults: curl http://{}/bmcs", control.address));
    until_stopped().await;
    Ok(())
}

fn busy(addresses: &[SocketAddr]) -> String {
    let first = addresses.first().map(ToString::to_string).unwrap_or_default();
    format!(
        "{} BMCs from {first} on cannot listen; is the port taken, or `ulimit -n` too small?",
        addresses.len()
    )
}

/// The first line is read by scripts: everything listens by then.
fn announce(what: &str, scheme: &str, addresses: &[SocketAddr], args: &FleetArgs) -> anyhow::Result<()> {
    let url =
        |address: Option<&SocketAddr>| address.map_or_else(String::new, |one| format!("{scheme}://{one}"));
    let (first, last) = (url(addresses.first()), url(addresses.last()));
    let range = if addresses.len() == 1 { first } else { format!("{first} to {last}") };
    let bmcs = if addresses.len() == 1 { "BMC" } else { "BMCs" };
    output::line(&format!("{} {what} {bmcs} on {range}", addresses.len()));
    output::line(&format!("account {USER}, password {PASSWORD}; serve with --bmc-allow 127.0.0.0/8"));
    if let Some(path) = &args.hosts {
        let power = what.to_lowercase();
        let text = manifests(&power, addresses, args);
        fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
        output::line(&format!("manifests in {}: muster apply -f {0}", path.display()));
    }
    Ok(())
}

fn manifests(power: &str, addresses: &[SocketAddr], args: &FleetArgs) -> String {
    let mut text = String::new();
    for (index, address) in addresses.iter().enumerate() {
        let (rack, slot) = (index / 20 + 1, index % 20 + 1);
        let bytes = u32::try_from(index).unwrap_or(u32::MAX).to_be_bytes();
        let mac = format!("02:00:{:02x}:{:02x}:{:02x}:{:02x}", bytes[0], bytes[1], bytes[2], bytes[3]);
        // Nothing here needs quoting: names are DNS labels, and the rest is made above.
        let _ = write!(
            text,
            "apiVersion: {API_GROUP}/{API_VERSION}\nkind: BareMetalNode\nmetadata:\n  name: emulated-{index:05}\nspec:\n  \
             powerInterface: {power}\n  mgmtAddress: \"{address}\"\n  tlsVerify: insecure\n  macAddress: \"{mac}\"\n  bmcCredentials: {}\n  \
             pool: {}\n  rack: rack-{rack}\n  slot: {slot}\n  idleWatts: 120\n  maxWatts: 400\n  resources:\n    \
             cpu: \"32\"\n    memory: 128Gi\n---\n",
            args.credential, args.pool
        );
    }
    text
}

async fn until_stopped() {
    let mut end = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).ok();
    let ended = async {
        match &mut end {
            Some(signal) => drop(signal.recv().await),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = ended => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(first: &str, count: u32) -> FleetArgs {
        FleetArgs {
            count,
            first: first.parse().unwrap(),
            port: None,
            boot: Duration::from_secs(1),
            hosts: None,
            pool: "metal".into(),
            credential: "emulated".into(),
        }
    }

    #[test]
    fn addresses_stay_on_loopback() {
        let addresses = args("127.10.0.254", 3).addresses(8000).unwrap();
        assert_eq!(addresses[2].to_string(), "127.10.1.0:8000");
        for (first, count) in [("10.0.0.1", 1), ("127.255.255.255", 2)] {
            let error = args(first, count).addresses(8000).unwrap_err().to_string();
            assert!(error.contains("127.0.0.0/8") && error.contains(first), "{error}");
        }
    }

    #[test]
    fn manifests_are_hosts_that_the_inventory_takes() {
        let args = args("127.10.0.1", 21);
        let text = manifests("redfish", &args.addresses(8000).unwrap(), &args);
        let documents: Vec<serde_json::Value> = text
            .split("---\n")
            .filter(|one| !one.is_empty())
            .map(|one| serde_saphyr::from_str(one).unwrap())
            .collect();
        assert_eq!(documents.len(), 21);
        for document in &documents {
            let read = muster_model::host::BareMetalNodeSpec::read(&document["spec"], "spec");
            assert!(read.is_ok(), "{:?}", read.err());
        }
        assert_eq!(
            (&documents[20]["spec"]["rack"], &documents[20]["spec"]["slot"]),
            (&"rack-2".into(), &1.into())
        );
    }
}
