//! All hosts with their status, read from etcd.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use anyhow::{Context, bail};
use muster_control::inventory::Inventory;
use muster_model::{Clock, host::Phase, store::Store};
use muster_store::{OpenOptions, Target};

use super::yard;
use crate::{
    bench::{Bar, Measure, note, time},
    clock::SystemClock,
};

const BAR: f64 = 300.0;

/// One etcd on loopback. Dropping it kills it.
struct Etcd {
    child: Child,
    address: String,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Etcd {
    fn start(data: &Path, program: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(data)?;
        let free = || -> anyhow::Result<String> {
            Ok(TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr())?.to_string())
        };
        let (client, peer) = (free()?, free()?);
        let child = Command::new(program)
            .arg(format!("--data-dir={}", data.join("etcd").display()))
            .args(["--name=m0".to_owned(), format!("--initial-cluster=m0=http://{peer}")])
            .args([
                format!("--listen-client-urls=http://{client}"),
                format!("--advertise-client-urls=http://{client}"),
            ])
            .args([
                format!("--listen-peer-urls=http://{peer}"),
                format!("--initial-advertise-peer-urls=http://{peer}"),
            ])
            .arg("--log-level=error")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}; name the program with --etcd", program.display()))?;
        Ok(Self { child, address: client })
    }
}

pub(super) async fn run(
    data: &Path,
    program: &Path,
    hosts: u32,
    repeat: u32,
) -> anyhow::Result<Vec<Measure>> {
    let etcd = Etcd::start(data, program)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = connect(&etcd.address, &clock).await?;
    note(&format!("list: filling etcd with {hosts} hosts"));
    yard::fill(&*store, None, 0..hosts, Phase::Serving, clock.now()).await?;
    let mut runs = Vec::new();
    for turn in 1..=repeat {
        let started = time::now();
        let inventory = Inventory::open(Arc::clone(&store), Arc::clone(&clock)).await?;
        // Every one of them, as the API finds it.
        let usable = |index: &u32| {
            let host = inventory.host(&yard::name(*index));
            host.is_some_and(|host| host.accepted().is_some() && host.status.is_some())
        };
        let whole = (0..hosts).filter(usable).count();
        let took = time::seconds(started) * 1_000.0;
        if whole != usize::try_from(hosts)? {
            bail!("{whole} of {hosts} hosts were read");
        }
        note(&format!("list, run {turn}: {took:.0} ms"));
        runs.push(took);
    }
    let measure = Measure::new("list", format!("{hosts} hosts with status from etcd"), "ms", runs)
        .bar(Bar::AtMost(BAR))
        .note("read, checked and put into the index that the API lists from");
    Ok(vec![measure])
}

async fn connect(address: &str, clock: &Arc<dyn Clock>) -> anyhow::Result<Arc<dyn Store>> {
    let target = Target::Etcd { endpoints: vec![address.to_owned()] };
    let started = time::now();
    loop {
        match muster_store::open(&target, OpenOptions::new("muster bench", Arc::clone(clock))).await {
            Ok(store) => return Ok(store),
            Err(error) if time::seconds(started) > 30.0 => return Err(error).context("etcd does not answer"),
            Err(_) => time::pause(200).await,
        }
    }
}
