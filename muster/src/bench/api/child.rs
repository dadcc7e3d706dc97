//! The server under measurement: `muster serve` of this very binary, as a process of its own.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::http::{Connection, request};
use crate::bench::time;

/// The bearer of the load, an admin of [`PROJECT`].
pub(super) const TOKEN: &str = "bench-0f4b7c1d9a3e5f60718293a4b5c6d7e8";
/// The bearer of the controller that reports on pools.
pub(super) const CONTROLLER_TOKEN: &str = "bench-controller-8e7d6c5b4a392817605f3e9a1d7c4b0f";
pub(super) const PROJECT: &str = "bench";
const USER: &str = "bench@example.com";
/// A server that is not ready after this time will not be: opening after `kill -9` checks the whole file.
const START_SECONDS: f64 = 300.0;

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    pub(super) address: SocketAddr,
    /// Seconds from the start of the process until `/readyz` was 200.
    pub(super) ready_after: f64,
}

impl Server {
    /// Starts the server on `data` with tokens and audit, and waits until it is ready.
    pub(super) async fn start(data: &Path) -> anyhow::Result<Self> {
        let config = data.join("bench.json");
        fs::create_dir_all(data)
            .and_then(|()| fs::write(&config, settings().to_string()))
            .with_context(|| format!("cannot write to {}", data.display()))?;
        let log = fs::File::create(data.join("bench-server.log")).context("cannot write the server's log")?;
        let started = time::now();
        let mut child = Command::new(std::env::current_exe().context("this program's file is not known")?)
            .args(["serve", "--until-input-ends", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data)
            .arg("--config")
            .arg(&config)
            .env("MUSTER_CONTROLLER_TOKEN", CONTROLLER_TOKEN)
            // The kernel closes it when this process ends, in whatever way: then the server ends too.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("cannot start muster serve")?;
        let output = child.stdout.take().context("the server has no standard output")?;
        let mut first = String::new();
        BufReader::new(output).read_line(&mut first).context("the server said nothing")?;
        let address = first.trim().rsplit("//").next().and_then(|address| address.parse().ok());
        let Some(address) = address else {
            let _ = child.kill();
            let _ = child.wait();
            bail!(
                "the server did not start; {} says why:\n{}",
                data.join("bench-server.log").display(),
                fs::read_to_string(data.join("bench-server.log")).unwrap_or_default().trim_end()
            );
        };
        let mut server = Self { child, address, ready_after: 0.0 };
        let ask = request("GET", "/readyz", TOKEN, None);
        loop {
            if let Ok(mut connection) = Connection::open(address).await
                && connection.call(&ask).await.is_ok_and(|answer| answer.status == 200)
            {
                server.ready_after = time::seconds(started);
                return Ok(server);
            }
            if time::seconds(started) > START_SECONDS {
                bail!("the server is not ready after {START_SECONDS} seconds");
            }
            time::pause(2).await;
        }
    }

    pub(super) async fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(self.address).await.with_context(|| format!("cannot connect to {}", self.address))
    }

    /// SIGTERM, and waits until the process has ended cleanly.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("no process id")?;
        // Waiting closes it, and a server whose input ends goes at once, not cleanly.
        let input = self.child.stdin.take();
        rustix::process::kill_process(pid, Signal::TERM).context("cannot signal the server")?;
        let status = self.child.wait().context("cannot wait for the server")?;
        drop(input);
        if !status.success() {
            bail!("the server ended with {status}");
        }
        Ok(())
    }

    /// `kill -9`, as a power cut would.
    pub(super) fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().context("cannot kill the server")?;
        self.child.wait().context("cannot wait for the server").map(drop)
    }

    /// Bytes in memory now, and the most there ever were.
    pub(super) fn memory(&self) -> anyhow::Result<(f64, f64)> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let kib = |name: &str| -> anyhow::Result<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u32>().ok());
            number.map(|kib| f64::from(kib) * 1024.0).with_context(|| format!("{path} has no {name}"))
        };
        Ok((kib("VmRSS:")?, kib("VmHWM:")?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Token mode with one admin, who may send more than a server usually takes of one identity; the rest as it comes.
fn settings() -> serde_json::Value {
    let digest = hex::encode(Sha256::digest(TOKEN));
    json!({
        "auth": {
            "mode": "token",
            "tokens": [{"user": USER, "sha256": digest}],
            "bindings": [{"user": USER, "project": PROJECT, "role": "admin"}],
        },
        "limits": {"requests-per-second": 1_000_000},
        "log": {"level": "info", "format": "json"},
    })
}
