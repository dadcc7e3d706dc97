//! `muster agent`: runs on a host without a BMC, says that the host is up, and powers it off when it is told to.
//!
//! It asks and is never asked: it opens no port. An order is a token that is signed with the host's own key, for this
//! boot, valid for a minute, and taken once. Before it powers off it says that it has taken the order and waits for the
//! answer: without that nobody could know that the host is off, so without that it stays on. It says goodbye only when the
//! command that powers off has succeeded, and once more when it is ended itself. One that lives on for a while after that
//! says hello again: its host did not go off, and a hello takes the goodbye back.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::Args as Arguments;
use muster_model::{Clock, Duration, Timestamp, power::Mac, power::Secret};
use muster_power::agent::{Distrust, Guard, HelloAnswer, Token};
use reqwest::{StatusCode, Url};
use serde::{Serialize, de::DeserializeOwned};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{clock::SystemClock, logs, output};

/// Linux' own number of this boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const NETWORK: &str = "/sys/class/net";
/// A server that is there answers at once; a dead one must not cost the next hello.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A system that goes off ends its programs within a second or two. One that has not after two hellos, at most this, may
/// hang; it is heard again before its silence could count (forty seconds).
const STILL_HERE: Duration = Duration::from_secs(20);
/// How long it tries to say goodbye: a system waits ninety seconds for a program that it ends, and somebody else leads
/// after fifteen.
const GOODBYE: Duration = Duration::from_secs(30);
const GOODBYE_AGAIN: Duration = Duration::from_secs(1);
/// Longest answer: a token takes a few hundred bytes.
const MAX_ANSWER: usize = 64 * 1024;

/// Run on a server without a BMC: say that it is up, and power it off on a signed order
#[derive(Debug, Arguments)]
pub(crate) struct Args {
    /// Where Muster serves; repeat it for each process, the one that leads answers
    #[arg(long, required = true, value_name = "URL")]
    server: Vec<Url>,
    /// This host's name in the inventory
    #[arg(long, value_name = "NAME")]
    host: String,
    /// File with the key of this host's credential; nobody else may read it
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Authority of the server's certificate (PEM file)
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// How often it says hello
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    every: Duration,
    /// What powers the host off, and its arguments
    #[arg(long, value_name = "COMMAND", default_value = "systemctl poweroff")]
    power_off: String,
    /// Take the order, say so and end, but leave the host on
    #[arg(long)]
    dry_run: bool,
    /// The number of this boot instead of the kernel's
    #[arg(long, value_name = "ID", hide = true)]
    boot_id: Option<String>,
    /// info, debug or a filter of tracing's
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,
}

pub(crate) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    logs::start(&args.log_level, "auto")?;
    let key = key(&args.key_file)?;
    let boot_id = match &args.boot_id {
        Some(id) => id.clone(),
        None => fs::read_to_string(BOOT_ID).with_context(|| format!("{BOOT_ID} cannot be read"))?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let agent = Agent {
            guard: Guard::new(key, &args.host, boot_id.trim()),
            http: client(args.ca_file.as_deref())?,
            servers: args.server.clone(),
            host: args.host.clone(),
            macs: macs(Path::new(NETWORK)),
            clock: SystemClock::new(),
            first: 0,
            end: signal(SignalKind::terminate()).context("the signal that ends it cannot be listened to")?,
            leaves: None,
        };
        agent.run(args.every, (!args.dry_run).then_some(args.power_off.as_str())).await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the command that powers off; it is this machine's own business how.
fn power_off(command: &str) -> anyhow::Result<()> {
    let mut words = command.split_whitespace();
    let program = words.next().context("--power-off names no command")?;
    let status = std::process::Command::new(program)
        .args(words)
        .status()
        .with_context(|| format!("{program} could not be run; the host stays on"))?;
    if !status.success() {
        bail!("{command} ended with {status}; the host stays on");
    }
    Ok(())
}

/// The key, from a file that only its owner reads.
fn key(path: &Path) -> anyhow::Result<Secret> {
    use std::os::unix::fs::PermissionsExt as _;
    let shown = path.display();
    let mode = fs::metadata(path).with_context(|| format!("{shown} cannot be read"))?.permissions().mode();
    if mode & 0o077 != 0 {
        bail!("{shown} may be read by others (mode {:o}); run: chmod 600 {shown}", mode & 0o777);
    }
    let text = fs::read_to_string(path).with_context(|| format!("{shown} cannot be read"))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    if text.is_empty() {
        bail!("{shown} is empty; it must hold the value of the host's credential");
    }
    Ok(Secret::new(text))
}

fn client(authority: Option<&Path>) -> anyhow::Result<reqwest::Client> {
    let builder = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(TIMEOUT.as_std());
    let builder = match authority {
        None => builder,
        Some(path) => {
            let pem = fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
            let all = reqwest::Certificate::from_pem_bundle(&pem)
                .with_context(|| format!("{} holds no certificate", path.display()))?;
            builder.tls_certs_only(all)
        }
    };
    builder.build().context("the HTTP client could not be made")
}

/// Addresses of this machine's network cards, without those that no packet could wake.
fn macs(root: &Path) -> Vec<Mac> {
    let cards = fs::read_dir(root).into_iter().flatten().flatten();
    let mut macs: Vec<Mac> = cards
        .filter(|card| card.path().join("device").exists())
        .filter_map(|card| fs::read_to_string(card.path().join("address")).ok()?.trim().parse().ok())
        .collect();
    macs.sort_by_key(|mac| mac.0);
    macs
}

struct Agent {
    guard: Guard,
    http: reqwest::Client,
    servers: Vec<Url>,
    host: String,
    macs: Vec<Mac>,
    clock: SystemClock,
    /// The server that answered last.
    first: usize,
    /// Whoever ends this program; a system that goes off does.
    end: Signal,
    /// The order that the machine goes down with, once its command has succeeded.
    leaves: Option<Token>,
}

impl Agent {
    /// Says hello until it is ended, and powers the host off in between when it is told to. Without a command it only takes
    /// one order.
    async fn run(mut self, every: Duration, command: Option<&str>) -> anyhow::Result<()> {
        tracing::info!(host = self.host, servers = self.servers.len(), "the agent says hello");
        let mut accepted: Option<Token> = None;
        let mut was_heard = None;
        loop {
            let now = self.clock.now();
            accepted = accepted.filter(|token| now <= token.expires);
            if let Some(token) = &accepted {
                let taken = self.guard.taken(token, now);
                match (self.post::<_, serde_json::Value>("taken", &taken).await, command) {
                    (Ok(_), None) => {
                        output::line("power-off token taken; --dry-run leaves the host on");
                        return Ok(());
                    }
                    (Ok(_), Some(command)) => {
                        if let Some(token) = accepted.take()
                            && self.leave(token, command, every).await
                        {
                            return Ok(());
                        }
                        continue; // at once: it is still here
                    }
                    (Err(error), _) => {
                        tracing::warn!(%error, "the order could not be confirmed; the host stays on");
                    }
                }
            } else {
                let hello = self.guard.hello(self.macs.clone(), now);
                let answered = self.post::<_, HelloAnswer>("hello", &hello).await;
                if was_heard != Some(answered.is_ok()) {
                    was_heard = Some(answered.is_ok());
                    match &answered {
                        Ok(_) => tracing::info!("heard"),
                        Err(error) => tracing::warn!(%error, "nobody hears the agent; it goes on"),
                    }
                }
                if let Ok(HelloAnswer { power_off: Some(token) }) = answered {
                    accepted = self.judge(token, now);
                    if accepted.is_some() {
                        continue; // at once
                    }
                }
            }
            if self.is_ended_within(every).await {
                self.say_goodbye().await;
                return Ok(());
            }
        }
    }

    /// Powers the host off and says goodbye. Whether the host really goes: this program is ended with it.
    async fn leave(&mut self, token: Token, command: &str, every: Duration) -> bool {
        tracing::info!(token = token.nonce, command, "powering off");
        let command = command.to_owned();
        match tokio::task::spawn_blocking(move || power_off(&command)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(error = format!("{error:#}"), "the host could not be powered off");
                return false;
            }
            Err(broken) => {
                tracing::error!(error = %broken, "the host could not be powered off");
                return false;
            }
        }
        self.leaves = Some(token);
        self.say_goodbye().await;
        if self.is_ended_within(STILL_HERE.min(every.saturating_add(every))).await {
            self.say_goodbye().await;
            return true;
        }
        tracing::warn!("the host was told to power off and is still here; the agent says hello again");
        false
    }

    /// Says that the host goes off, if it does, until somebody has heard it.
    async fn say_goodbye(&mut self) {
        let Some(token) = self.leaves.clone() else { return };
        let until = self.clock.monotonic().saturating_add(GOODBYE);
        loop {
            let goodbye = self.guard.goodbye(&token, self.clock.now());
            match self.post::<_, serde_json::Value>("taken", &goodbye).await {
                Ok(_) => {
                    output::line("goodbye said; the host goes off");
                    return;
                }
                Err(error) => tracing::warn!(%error, "nobody hears the goodbye"),
            }
            if self.clock.monotonic() >= until {
                tracing::error!("nobody heard the goodbye, so nobody will know that the host is off");
                return;
            }
            self.clock.sleep(GOODBYE_AGAIN).await;
        }
    }

    /// Waits for so long at most.
    async fn is_ended_within(&mut self, length: Duration) -> bool {
        tokio::select! {
            biased;
            ended = self.end.recv() => ended.is_some(),
            () = self.clock.sleep(length) => false,
        }
    }

    fn judge(&mut self, token: Token, now: Timestamp) -> Option<Token> {
        match self.guard.accept(&token, now) {
            Ok(()) => {
                tracing::info!(token = token.nonce, "an order to power off");
                Some(token)
            }
            Err(Distrust::Replayed) => None,
            Err(why) => {
                tracing::warn!(why = why.advice(), "an order to power off is not believed");
                None
            }
        }
    }

    /// Asks one server after the other, beginning with the one that answered last.
    async fn post<B: Serialize, A: DeserializeOwned>(&mut self, what: &str, body: &B) -> anyhow::Result<A> {
        let mut failed = None;
        for turn in 0..self.servers.len() {
            let place = (self.first + turn) % self.servers.len();
            match self.post_to(place, what, body).await {
                Ok(answer) => {
                    self.first = place;
                    return Ok(answer);
                }
                Err(error) => {
                    tracing::debug!(server = %self.servers[place], %error, "no answer");
                    failed = Some(error);
                }
            }
        }
        Err(failed.context("no server is named")?)
    }

    async fn post_to<B: Serialize, A: DeserializeOwned>(
        &self,
        place: usize,
        what: &str,
        body: &B,
    ) -> anyhow::Result<A> {
        let mut url = self.servers[place].clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(["api", "v1", "hosts", &self.host, "agent", what]);
        }
        let response =
            self.http.post(url.clone()).json(body).send().await.map_err(reqwest::Error::without_url);
        let response = response.with_context(|| format!("{} does not answer", self.servers[place]))?;
        let status = response.status();
        let answer = response.bytes().await.context("the answer broke off")?;
        if answer.len() > MAX_ANSWER {
            bail!("{} answers with {} bytes", self.servers[place], answer.len());
        }
        match status {
            StatusCode::OK => serde_json::from_slice(&answer)
                .with_context(|| format!("{} is no Muster: its answer cannot be read", self.servers[place])),
            StatusCode::UNAUTHORIZED => bail!(
                "{} does not believe this agent; is {} its name, the key the one of its credential, the clock right?",
                self.servers[place],
                self.host
            ),
            StatusCode::SERVICE_UNAVAILABLE => bail!("{} does not lead", self.servers[place]),
            other => bail!("{} answers {other}", self.servers[place]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, "a key\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = key(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(key(&path).unwrap().expose(), b"a key");
        fs::write(&path, "\n").unwrap();
        assert!(key(&path).unwrap_err().to_string().contains("is empty"));
    }

    #[test]
    fn only_real_cards_are_told() {
        let directory = tempfile::tempdir().unwrap();
        for (name, address, real) in [
            ("eth0", "02:00:00:00:00:02", true),
            ("lo", "00:00:00:00:00:00", false),
            ("eth1", "02:00:00:00:00:01", true),
        ] {
            let card = directory.path().join(name);
            fs::create_dir_all(&card).unwrap();
            fs::write(card.join("address"), format!("{address}\n")).unwrap();
            if real {
                fs::create_dir(card.join("device")).unwrap();
            }
        }
        let found: Vec<String> = macs(directory.path()).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["02:00:00:00:00:01", "02:00:00:00:00:02"]);
    }
}
