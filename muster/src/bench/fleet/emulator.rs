//! The BMCs: `muster emulate redfish` of this very binary, as a process of its own.

use std::{
    io::{BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, bail};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

/// The first address of the fleet; the others follow.
const FIRST: Ipv4Addr = Ipv4Addr::new(127, 20, 0, 1);
/// Questions to its control interface at once.
const AT_ONCE: usize = 16;

/// A running fleet. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Emulator {
    child: Child,
    control: String,
    port: u16,
    http: reqwest::Client,
}

impl Emulator {
    pub(super) fn start(count: u32) -> anyhow::Result<Self> {
        let port = TcpListener::bind((FIRST, 0))
            .and_then(|listener| listener.local_addr())
            .with_context(|| format!("{FIRST} cannot be listened on"))?
            .port();
        let mut child = Command::new(std::env::current_exe().context("this program's file is not known")?)
            .args(["emulate", "redfish", "--count", &count.to_string(), "--first", &FIRST.to_string()])
            .args(["--port", &port.to_string(), "--boot", "2s"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .context("cannot start muster emulate")?;
        let output = child.stdout.take().context("the emulator has no standard output")?;
        let told = BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| Some(line.strip_prefix("faults: curl ")?.trim_end_matches("/bmcs").to_owned()));
        let Some(control) = told else {
            let _ = child.kill();
            let _ = child.wait();
            bail!("the emulator of {count} BMCs did not start; `ulimit -n` may be too small");
        };
        let http = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { child, control, port, http })
    }

    pub(super) fn address(&self, index: u32) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::from_bits(FIRST.to_bits() + index), self.port))
    }

    /// Presses the power button of many machines.
    pub(super) async fn press(&self, range: std::ops::Range<u32>) -> anyhow::Result<()> {
        let presses = stream::iter(range).map(|index| {
            let url = format!("{}/bmcs/emulated-{index:05}/button", self.control);
            async move { self.http.post(url).send().await?.error_for_status().map(drop) }
        });
        let done: Vec<Result<(), reqwest::Error>> = presses.buffer_unordered(AT_ONCE).collect().await;
        done.into_iter().collect::<Result<(), _>>().context("the emulator's machines cannot be switched on")
    }

    /// How these BMCs misbehave from now on.
    pub(super) async fn faults(&self, range: std::ops::Range<u32>, faults: Value) -> anyhow::Result<()> {
        for index in range {
            let url = format!("{}/bmcs/emulated-{index:05}/faults", self.control);
            self.http.put(url).json(&faults).send().await?.error_for_status()?;
        }
        Ok(())
    }

    /// All BMCs behave.
    pub(super) async fn behave(&self) -> anyhow::Result<()> {
        self.http
            .put(format!("{}/faults", self.control))
            .json(&json!({}))
            .send()
            .await?
            .error_for_status()?;
        Ok(())
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
