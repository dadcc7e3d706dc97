//! `muster demo`: the real server with the real loops, on a world that is simulated: three racks, five pools, a cluster
//! whose load breathes, and a few things that go wrong on purpose.
//!
//! The seed decides what stands in the racks, what is asked of it and what goes wrong, and everything that happened
//! before the page opens. What happens afterwards follows the same story; the loops then run in real threads, so that
//! two runs differ by moments.

mod conduct;
mod past;
mod played;
mod site;
mod story;
mod tell;
mod wire;

use std::{
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, bail, ensure};
use clap::{Args as Arguments, ValueEnum};
use muster_control::{
    inventory::{CredentialDraft, DraftValue, Inventory, Vault, VaultKey},
    journal::Journal,
    registry::WriteContext,
};
use muster_model::{
    Clock, Duration, Secret, Timestamp, credential::CredentialKind, identity::Email, steady::SteadyClock,
};
use muster_server::app::App;
use muster_sim::world::World;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::{
    conduct::Conductor,
    past::Past,
    site::{Bmcs, Yard},
    story::{OPENS_AT_HOUR, Story},
    tell::Teller,
    wire::Wire,
};
use crate::{
    clock::SystemClock,
    config::Settings,
    limits, logs, output,
    serve::{Door, Served, store},
};

/// Who a caller is that says nothing, and who may do everything.
const GUEST: &str = "user@example.com";
/// Who may look only, to see what that is like.
const VIEWER: &str = "viewer@example.com";
/// A minute in a second, unless BMCs are called over the wire: a call takes as long as it takes.
const SPEED: f64 = 60.0;
const SPEED_ON_WIRE: f64 = 20.0;
/// Beyond this, a boot is shorter than a glance.
const MOST_SPEED: f64 = 600.0;
const LONGEST_HISTORY: Duration = Duration::from_hours(72);
const DAY_MS: i64 = 24 * 3_600_000;

/// Try Muster without hardware: a fleet of simulated servers and a cluster whose load breathes, on one page
///
/// Starts the real server with the real planner and host loops on a simulated world: three racks, forty servers, five
/// pools. Some things go wrong on purpose. Everything is gone when it stops.
#[derive(Debug, Arguments)]
pub(crate) struct Args {
    /// What stands in the racks, what is asked of it and what goes wrong follow from this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many seconds pass in one [default: 60, or 20 with --emulate wire]
    #[arg(long, value_name = "FACTOR")]
    speed: Option<f64>,
    /// Address and port to serve on; loopback only
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Keep the store and the audit log in this empty directory, instead of one that is removed at the end
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// embedded, or etcd://host:port[,host:port...]; in etcd a prefix of its own is used and removed at the end
    #[arg(long, value_name = "STORE", default_value = "embedded")]
    store: String,
    /// How BMCs are reached: in memory, or by Redfish over loopback
    #[arg(long, value_enum, default_value_t = Emulate::Memory)]
    emulate: Emulate,
    /// How much has happened before the page opens, for its charts
    #[arg(long, value_name = "DURATION", default_value = "6h")]
    history: Duration,
    /// What is logged beside the story: off, error, warn, info, debug
    #[arg(long, value_name = "LEVEL", default_value = "off", hide = true)]
    log: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Emulate {
    Memory,
    Wire,
}

/// What was asked for, with what follows from it.
#[derive(Debug)]
struct Plan {
    seed: u64,
    speed: f64,
    listen: SocketAddr,
    store: String,
    wire: bool,
    history: Duration,
    /// Over everything that happened before the page opens.
    digest: u64,
}

impl Plan {
    fn of(args: &Args) -> anyhow::Result<Self> {
        let wire = args.emulate == Emulate::Wire;
        let speed = args.speed.unwrap_or(if wire { SPEED_ON_WIRE } else { SPEED });
        ensure!(
            (1.0..=MOST_SPEED).contains(&speed),
            "--speed {speed}: time can run from 1 to {MOST_SPEED} times as fast as life"
        );
        let least = Duration::from_mins(30);
        ensure!(
            (least..=LONGEST_HISTORY).contains(&args.history),
            "--history {}: from {least} to {LONGEST_HISTORY}",
            args.history
        );
        if args.store != "embedded" && !args.store.starts_with("etcd://") {
            bail!("--store {:?}: the demo runs on embedded or etcd://host:port", args.store);
        }
        let history = Duration::from_mins(args.history.millis() / 60_000);
        let (seed, listen, store) = (args.seed, args.listen, args.store.clone());
        Ok(Self { seed, speed, listen, store, wire, history, digest: 0 })
    }

    /// When the world begins: so that the page opens at eight in the morning of today.
    fn start(&self) -> Timestamp {
        let now = SystemClock::new().now().millis();
        let opens = now.div_euclid(DAY_MS) * DAY_MS + OPENS_AT_HOUR * 3_600_000;
        Timestamp::from_millis(opens).saturating_sub(self.history)
    }

    fn settings(&self, data_dir: &Path) -> anyhow::Result<Settings> {
        let bindings = json!([
            { "user": GUEST, "project": site::PROJECT, "role": "admin" },
            { "user": GUEST, "role": "admin" },
            { "user": GUEST, "role": "auditor" },
            { "user": VIEWER, "project": site::PROJECT, "role": "viewer" },
        ]);
        let flags = [
            ("listen", self.listen.to_string()),
            ("data-dir", data_dir.display().to_string()),
            ("store", self.store.clone()),
            ("store-root", self.root()),
            ("auth.bindings", bindings.to_string()),
            ("bmc.allow", if self.wire { "127.0.0.0/8" } else { "" }.to_owned()),
            ("credentials.key-file", key_file(data_dir).display().to_string()),
        ];
        let flags = flags.map(|(path, value)| (path.to_owned(), value, "muster demo".to_owned()));
        // Not from the environment: what is set for a real server is not meant for this one.
        Settings::gather(None, [], flags)
    }

    /// Where the demo's records are in an etcd that others use too.
    fn root(&self) -> String {
        if self.store == "embedded" { String::new() } else { format!("/muster-demo/{}", std::process::id()) }
    }
}

fn key_file(data_dir: &Path) -> PathBuf {
    data_dir.join("credentials.key")
}

pub(crate) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let mut plan = Plan::of(args)?;
    logs::start(&args.log, "auto")?;
    limits::raise_open_files();
    // Before anything takes time.
    TcpListener::bind(plan.listen).with_context(|| {
        format!("{} cannot be served on; choose another with --listen 127.0.0.1:0", plan.listen)
    })?;
    let bmcs = if plan.wire { Bmcs::Wire(wire::place()?) } else { Bmcs::Memory };
    let yard = Yard::new(plan.seed, bmcs);
    let story = Story::new(plan.seed, yard.odd.clone());
    output::line(&format!("living through {} of simulated time first …", plan.history));
    let past = past::live_through(&yard, &story, plan.start(), plan.history)?;
    plan.digest = past.digest;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime
        .block_on(stoppable(|serving| run(plan, args.data_dir.clone(), yard, story, past, bmcs, serving)))?;
    Ok(ExitCode::SUCCESS)
}

/// Ends on a signal as long as nobody serves: afterwards the server stops by itself, in good order.
async fn stoppable<F: Future<Output = anyhow::Result<()>>>(
    work: impl FnOnce(Arc<AtomicBool>) -> F,
) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let serving = Arc::new(AtomicBool::new(false));
    let mut work = Box::pin(work(Arc::clone(&serving)));
    loop {
        tokio::select! {
            result = &mut work => return result,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if !serving.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}

async fn run(
    plan: Plan,
    data_dir: Option<PathBuf>,
    yard: Yard,
    story: Story,
    past: Past,
    bmcs: Bmcs,
    serving: Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let temporary = match data_dir {
        Some(_) => None,
        None => Some(
            tempfile::Builder::new().prefix("muster-demo-").tempdir().context("no temporary directory")?,
        ),
    };
    let directory =
        data_dir.unwrap_or_else(|| temporary.as_ref().map(|one| one.path().to_owned()).unwrap_or_default());
    let settings = plan.settings(&directory)?;
    let Past { world, store: lived, blocked, .. } = past;
    let clock = world.clock();
    let steady = Arc::new(SteadyClock::new(Arc::clone(&clock) as Arc<dyn Clock>));
    furnish(&settings, &directory, &*lived, &steady).await?;
    drop(lived);
    let time_of_day = Arc::clone(&steady) as Arc<dyn Clock>;
    let Door { entrance, authenticator, data_dir, .. } = Door::open(&settings, &time_of_day).await?;
    let guest: Email = GUEST.parse().map_err(|_| anyhow::anyhow!("{GUEST} is no address"))?;
    let wire = match bmcs {
        Bmcs::Memory => None,
        Bmcs::Wire(first) => Some(Wire::start(&yard, first, &world, &clock).await?),
    };
    let outside = played::played(&world, &clock, plan.speed, plan.wire);
    let served =
        Served::open(&settings, authenticator.with_guest(guest), &data_dir, steady, Some(&outside)).await?;
    // Time goes on until everything has stopped: loops that finish their turn wait for it.
    let end = CancellationToken::new();
    let time = tokio::spawn({
        let (world, end, speed) = (Arc::clone(&world), end.clone(), plan.speed);
        async move { world.live(speed, end).await }
    });
    let conductor = Conductor::new(Arc::clone(&world), clock, story, plan.history, wire);
    let app = served.app.clone();
    let result = served
        .run(entrance, |address, _| {
            serving.store(true, Ordering::Relaxed);
            open(&plan, &yard, address, &world, blocked.as_deref(), conductor, app);
        })
        .await;
    end.cancel();
    let _ = time.await;
    tidy(&plan, &settings, &directory).await?;
    if let Some(temporary) = temporary {
        temporary.close().context("the temporary directory could not be removed")?;
    }
    result?;
    output::line("stopped; nothing is left behind");
    Ok(())
}

/// Says where to look, and lets the story go on.
fn open(
    plan: &Plan,
    yard: &Yard,
    address: SocketAddr,
    world: &Arc<World>,
    blocked: Option<&str>,
    conductor: Conductor,
    app: App,
) {
    let pod = world.pods_of("warehouse-export").into_iter().next().unwrap_or_default();
    tell::opening(plan, yard, address, &format!("default/{pod}"), blocked);
    let journal = Journal::new(Arc::clone(app.registry.store()));
    let teller = Teller::new(journal, Arc::clone(&app.inventory), Arc::clone(&app.clock));
    tokio::spawn(conductor.run(teller, app.stop.clone()));
}

/// Puts what happened so far into the store, and the account of the BMCs.
async fn furnish(
    settings: &Settings,
    directory: &Path,
    lived: &dyn muster_model::store::Store,
    steady: &Arc<SteadyClock>,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let clock = Arc::clone(steady) as Arc<dyn Clock>;
    let opened = store::open(settings, directory, &clock, "muster demo").await?;
    past::require_empty(&*opened.store, &directory.display().to_string()).await?;
    past::hand_over(lived, &*opened.store).await?;
    let inventory = Inventory::open(Arc::clone(&opened.store), Arc::clone(&clock)).await?;
    let vault = Vault::new(inventory, VaultKey::open(&key_file(directory))?);
    let context =
        WriteContext { actor: past::PERSON.to_owned(), now: clock.now(), dry_run: false, idempotency: None };
    let value = DraftValue::Sealed { user: wire::USER.to_owned(), password: Secret::new(wire::PASSWORD) };
    let draft = CredentialDraft { name: site::CREDENTIAL.to_owned(), kind: CredentialKind::Bmc, value };
    vault.create(&context, site::PROJECT, draft).await?;
    drop(vault);
    opened.store.close().await?;
    Ok(())
}

/// Removes what an etcd would keep.
async fn tidy(plan: &Plan, settings: &Settings, directory: &Path) -> anyhow::Result<()> {
    if plan.store == "embedded" {
        return Ok(());
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let opened = store::open(settings, directory, &clock, "muster demo").await?;
    past::clear(&*opened.store).await.context("the demo's records could not be removed from the store")?;
    opened.store.close().await?;
    Ok(())
}
