//! `muster serve`: puts the parts together, serves, and stops cleanly.

mod agents;
mod auth;
mod cluster_identity;
mod clusters;
mod election;
mod export;
mod hosts;
mod inventory;
mod outside;
mod own;
mod page;
mod reads;
mod resources;
mod secrets;
mod steady;
pub(crate) mod store;
mod triggers;
mod vital;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, bail};
use clap::Parser;
use muster_control::{
    audit::{AuditLog, AuditOptions, last_revision},
    explain::Explain,
    freeze,
    planner::{Connections, Parts, Planning, Thinking},
    registry::{Registry, RegistryOptions},
};
use muster_model::{Clock, steady::SteadyClock};
use muster_server::{
    app::App,
    collect::{MeteredStore, PlannerCollector, PoolCollector},
    collect_hosts::{EachHostCollector, HostCollector},
    collect_seed,
    example::Example,
    frame,
    identity::Authenticator,
    limits::{Limits, RateLimit, WatchSlots},
    listen,
    metrics::Metrics,
    routes,
    tls::{self, TlsFiles},
};
pub(crate) use outside::{Machines, Played};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::SystemClock,
    config::{Settings, Sources},
    limits, logs, output,
};

/// The port that the command line asks when nothing else is said.
const DEFAULT_PORT: u16 = 8080;
/// How long callers are kept waiting for lists at the start: a store that takes longer is in trouble, and answers tell of it.
const FIRST_LISTS: std::time::Duration = std::time::Duration::from_secs(10);

#[derive(Debug, Parser)]
pub(crate) struct Args {
    #[command(flatten)]
    sources: Sources,
    /// Keep the cluster and the pool of the user guide under their ids, for user@example.com
    #[arg(long)]
    seed_example: bool,
    /// End at once when standard input ends: for a program that starts a server and must not leave it behind
    #[arg(long, hide = true)]
    until_input_ends: bool,
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    let settings = args.sources.gather()?;
    logs::start(&settings.text("log.level"), &settings.text("log.format"))?;
    for name in settings.ignored() {
        tracing::warn!(name, "this environment variable is no setting and is ignored");
    }
    limits::raise_open_files();
    if args.until_input_ends {
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            std::process::exit(0);
        });
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(&settings, args.seed_example))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(settings: &Settings, seed_example: bool) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let Door { entrance, authenticator, token_file, data_dir } = Door::open(settings, &clock).await?;
    // Whoever asks to be let in is judged by the wall clock; everything with a deadline by one that does not jump.
    let steady = Arc::new(SteadyClock::new(Arc::clone(&clock)));
    let mut served = Served::open(settings, authenticator, &data_dir, steady, None).await?;
    served.seed_example = seed_example;
    let tls = entrance.tls.is_some();
    served.run(entrance, |address, app| announce(address, tls, app, token_file.as_deref())).await
}

/// The address to serve on, and with which certificate.
pub(crate) struct Entrance {
    pub(crate) address: SocketAddr,
    tls: Option<Arc<rustls::ServerConfig>>,
}

/// Where callers come in, and how they prove who they are.
pub(crate) struct Door {
    pub(crate) entrance: Entrance,
    pub(crate) authenticator: Authenticator,
    token_file: Option<PathBuf>,
    pub(crate) data_dir: PathBuf,
}

impl Door {
    /// Refusals come before anything is written.
    pub(crate) async fn open(settings: &Settings, clock: &Arc<dyn Clock>) -> anyhow::Result<Self> {
        let address: SocketAddr = settings.parsed("listen")?;
        let tls = tls_files(settings)?;
        auth::check(settings, address, tls.as_ref(), clock).await?;
        let data_dir = PathBuf::from(settings.text("data-dir"));
        std::fs::create_dir_all(&data_dir)
            .with_context(|| format!("cannot make the data directory {}", data_dir.display()))?;
        let auth::Auth { authenticator, token_file } =
            auth::build(settings, address, tls.as_ref(), &data_dir, clock).await?;
        let tls = tls.as_ref().map(tls::server_config).transpose()?;
        Ok(Self { entrance: Entrance { address, tls }, authenticator, token_file, data_dir })
    }
}

/// The parts, put together and not yet running.
pub(crate) struct Served {
    opened: store::Opened,
    pub(crate) app: App,
    hosts: inventory::Parts,
    /// Connections to real clusters.
    connected: Arc<clusters::Connected>,
    switching: hosts::Running,
    planning: Planning,
    /// Custom resources; a played world has none.
    resources: Option<muster_control::resources::Setup>,
    steady: Arc<SteadyClock>,
    seed_example: bool,
    /// Whether time is not that of the callers.
    played: bool,
}

impl Served {
    /// Opens the store and puts everything together, in the real world or in a played one.
    pub(crate) async fn open(
        settings: &Settings,
        authenticator: Authenticator,
        data_dir: &Path,
        steady: Arc<SteadyClock>,
        played: Option<&Played>,
    ) -> anyhow::Result<Self> {
        let clock = Arc::clone(&steady) as Arc<dyn Clock>;
        let metrics = Metrics::new();
        let opened = store::open(settings, data_dir, &clock, "muster serve").await?;
        note_regress(&opened, data_dir, clock.now()).await?;
        let registry = open_registry(settings, &opened, &metrics, &clock).await?;
        let hosts = inventory::open(settings, data_dir, Arc::clone(registry.store()), &clock).await?;
        let holder = holder(settings);
        let by = election::by(settings, opened.exclusive, &holder, &clock).await?;
        let connected = clusters::Connected::new(
            settings,
            Arc::clone(&hosts.vault),
            Arc::clone(registry.store()),
            &clock,
            Arc::clone(&hosts.own),
            holder.clone(),
        )?;
        // Before anybody plans: a cluster that is connected must not look like one that is not.
        connected.look().await;
        let connections: Arc<dyn Connections> = match played {
            Some(one) => Arc::clone(&one.connections),
            None => Arc::clone(&connected) as _,
        };
        let candidate = election::Candidate { holder: holder.clone(), by };
        let audit = Arc::new(open_audit(settings, data_dir)?);
        let with = Arc::clone(&connections);
        let switching = hosts::start(settings, &hosts, &registry, with, &clock, candidate, &audit, played)?;
        let mut parts = planner_parts(settings, &registry, connections, played)?;
        parts.lead = Some(Arc::clone(&switching.lead));
        expose(settings, &metrics, &switching, &parts, &clock)?;
        let desk = page::desk(
            settings,
            &registry,
            &hosts.inventory,
            &parts.board,
            Arc::clone(&switching.transcripts),
            &clock,
        );
        let limits = limits_of(settings)?;
        let exporter = export::Portable::new(Arc::clone(&opened.store), Arc::clone(&clock));
        let app = App {
            inventory: Arc::clone(&hosts.inventory),
            vault: Arc::clone(&hosts.vault),
            prober: played
                .and_then(|one| one.machines.as_ref())
                .map_or_else(|| Arc::clone(&hosts.prober), |machines| Arc::clone(&machines.prober)),
            connector: match played {
                Some(one) => Arc::clone(&one.connector),
                None => Arc::clone(&connected) as _,
            },
            agents: Arc::clone(&switching.agents) as _,
            explain: Explain::new(Arc::clone(&parts.board), parts.journal.clone()),
            desk,
            identity: Arc::new(authenticator),
            audit,
            metrics,
            limits,
            rate: Arc::new(RateLimit::new(limits.requests_per_second)),
            watches: WatchSlots::new(limits),
            exporter: Some(Arc::new(exporter)),
            example: None,
            stop: CancellationToken::new(),
            registry,
            clock,
        };
        let planning = Planning::new(parts, Arc::clone(&app.clock));
        let resources = match played {
            Some(_) => None,
            None => Some(resources::setup(settings, &app, &hosts.vault, &holder)?),
        };
        Ok(Self {
            opened,
            app,
            hosts,
            connected,
            switching,
            planning,
            resources,
            steady,
            seed_example: false,
            played: played.is_some(),
        })
    }

    /// Serves until a signal or [`App::stop`], then stops in good order. `announce` is called once callers are let in.
    pub(crate) async fn run(
        self,
        Entrance { address, tls }: Entrance,
        announce: impl FnOnce(SocketAddr, &App),
    ) -> anyhow::Result<()> {
        let (seed_example, played) = (self.seed_example, self.played);
        let Self { opened, mut app, hosts, connected, switching, planning, resources, steady, .. } = self;
        let stop = app.stop.clone();
        let vital = Arc::clone(&switching.vital);
        let loops = vital.spawn("the registry", &stop, {
            let (registry, inventory) = (Arc::clone(&app.registry), Arc::clone(&hosts.inventory));
            let (desk, stop) = (Arc::clone(&app.desk), stop.clone());
            let (vault, leads) = (Arc::clone(&hosts.vault), switching.lead.subscribe());
            let (leading, clock) = (switching.lead.subscribe(), Arc::clone(&app.clock));
            let own = Arc::clone(&hosts.own);
            async move {
                tokio::join!(
                    registry.run(stop.clone()),
                    inventory.run(Arc::clone(&registry), stop.clone()),
                    connected.run(stop.clone()),
                    own.run(stop.clone()),
                    steady::watch(steady, stop.clone()),
                    desk.news.run(stop.clone()),
                    secrets::follow(vault, leads, Arc::clone(&clock), stop.clone()),
                    desk.history.run(leading, clock, stop)
                );
            }
        });
        let planners = vital.spawn("the planners", &stop, {
            let (leading, stop) = (switching.lead.subscribe(), stop.clone());
            async move { planning.run(leading, stop).await }
        });
        let resources = resources.map(|setup| {
            let leading = switching.lead.subscribe();
            let run = muster_control::resources::run(setup, leading, stop.clone());
            vital.spawn("custom resources", &stop, run)
        });
        let lost = tokio::spawn({
            let (vital, stop) = (Arc::clone(&vital), stop.clone());
            async move {
                vital.lost().await;
                stop.cancel();
            }
        });
        if seed_example {
            app.example = Some(Example::register(&app.registry, app.clock.now()).await?);
        }
        // Who is told where it is gets answers: lists need a feed that follows the store. One that cannot says so in each.
        let _ = tokio::time::timeout(FIRST_LISTS, app.registry.until_live()).await;
        let listener =
            TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        hosts.own.listens(listener.local_addr()?);
        announce(listener.local_addr()?, &app);
        let signals = tokio::spawn(stop_on_signal(stop.clone()));
        let router = routes::router(&app);
        let router = if played { frame::telling_time(router, Arc::clone(&app.clock)) } else { router };
        listen::serve(listener, tls, router, app.limits.header_timeout.as_std(), stop.clone()).await?;
        stop.cancel();
        let _ = planners.await;
        if let Some(resources) = resources {
            let _ = resources.await;
        }
        switching.stop().await;
        let _ = loops.await;
        signals.abort();
        lost.abort();
        drop(app);
        drop(hosts);
        opened.store.close().await.context("the store could not be closed cleanly")?;
        tracing::info!("stopped");
        vital.verdict()
    }
}

/// What planners work with.
fn planner_parts(
    settings: &Settings,
    registry: &Arc<Registry>,
    connections: Arc<dyn Connections>,
    played: Option<&Played>,
) -> anyhow::Result<Parts> {
    let mut parts = Parts::new(Arc::clone(registry));
    parts.connections = connections;
    parts.time_factor = settings.parsed("hosts.time-factor")?;
    parts.triggers = Some(match played {
        Some(one) => Arc::clone(&one.triggers),
        None => Arc::new(triggers::Configured::new(settings, Arc::clone(registry.store()))?),
    });
    parts.thinking = Thinking::Aside;
    Ok(parts)
}

/// Shows hosts and planners to whoever scrapes.
fn expose(
    settings: &Settings,
    metrics: &Metrics,
    switching: &hosts::Running,
    parts: &Parts,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<()> {
    metrics.register(Box::new(HostCollector::new(Arc::clone(&switching.host_loop))));
    if settings.parsed("metrics.hosts")? {
        metrics.register_hosts(Box::new(EachHostCollector::new(Arc::clone(&switching.host_loop))));
    }
    metrics.register(Box::new(PlannerCollector::new(Arc::clone(&parts.board))));
    let (board, clock) = (Arc::clone(&parts.board), Arc::clone(clock));
    metrics.register_text(Box::new(move || collect_seed::text(&board, clock.now())));
    Ok(())
}

async fn open_registry(
    settings: &Settings,
    opened: &store::Opened,
    metrics: &Arc<Metrics>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Arc<Registry>> {
    let metered =
        Arc::new(MeteredStore::new(Arc::clone(&opened.store), Arc::clone(metrics), Arc::clone(clock)));
    let options =
        RegistryOptions { exclusive: opened.exclusive, default_lease: settings.parsed("status.lease")? };
    let registry =
        Registry::open(metered, Arc::clone(clock), options).await.context("cannot load the registry")?;
    metrics.register(Box::new(PoolCollector::new(Arc::clone(&registry))));
    Ok(registry)
}

fn open_audit(settings: &Settings, data_dir: &Path) -> anyhow::Result<AuditLog> {
    Ok(AuditLog::open(AuditOptions {
        directory: data_dir.join("audit"),
        rotate_bytes: settings.parsed("audit.rotate-bytes")?,
        keep_files: settings.parsed("audit.keep-files")?,
    })?)
}

fn limits_of(settings: &Settings) -> anyhow::Result<Limits> {
    Ok(Limits {
        body: settings.parsed("limits.body-bytes")?,
        requests_per_second: settings.parsed("limits.requests-per-second")?,
        watches: settings.parsed("limits.watches")?,
        watches_per_identity: settings.parsed("limits.watches-per-identity")?,
        header_timeout: settings.parsed("limits.header-timeout")?,
        body_timeout: settings.parsed("limits.body-timeout")?,
    })
}

/// The most of a pod's name that goes into [`holder`]: an event takes 128 characters for who says it.
const POD_NAME: usize = 63;

/// Who this is among all processes that ever lead: the pod if it is one, the process and a random part.
fn holder(settings: &Settings) -> String {
    let name: String = settings
        .optional("own.pod")
        .map_or_else(|| "muster".to_owned(), |pod| pod.chars().take(POD_NAME).collect());
    format!("{name}-{}-{}", std::process::id(), uuid::Uuid::now_v7())
}

/// The audit log knows how far the store had come. One that is behind that was restored from something older.
async fn note_regress(
    opened: &store::Opened,
    data_dir: &std::path::Path,
    now: muster_model::Timestamp,
) -> anyhow::Result<()> {
    if !opened.kept {
        return Ok(());
    }
    let directory = data_dir.join("audit");
    let Some(seen) = last_revision(&directory).ok().flatten() else { return Ok(()) };
    let behind = freeze::mark_when_behind(&*opened.store, muster_model::store::Revision(seen), now).await?;
    if behind {
        tracing::error!(
            seen,
            "the store is behind what the audit log tells of it; nothing acts until the world was observed again"
        );
    }
    Ok(())
}

/// Says on standard output where the service is; tests and scripts read the first line.
fn announce(address: SocketAddr, tls: bool, app: &App, token_file: Option<&std::path::Path>) {
    let scheme = if tls { "https" } else { "http" };
    output::line(&format!("muster serves on {scheme}://{address}"));
    if app.identity.is_dev() {
        output::line("mode dev: the header X-User-Email is believed, and only this machine is served");
    }
    if let Some(path) = token_file {
        output::line(&format!("controller token in {}", path.display()));
    }
    if app.identity.is_dev() {
        let server = format!("{scheme}://{address}");
        let flag = if address.port() == DEFAULT_PORT { String::new() } else { format!(" --server {server}") };
        output::line(&format!(
            "open {server}/ in a browser ({server}/docs/ for the API), or try in another terminal:"
        ));
        output::line(&format!("  muster get pools{flag}"));
        output::line(&format!("  muster create cluster lab --platform gcp{flag}"));
        output::line(&format!(
            "  muster create pool web --cluster lab --platform gcp --machine-type n1-standard-4 --min 1 --max 5{flag}"
        ));
    }
    tracing::info!(%address, mode = app.identity.mode(), "serving");
}

fn tls_files(settings: &Settings) -> anyhow::Result<Option<TlsFiles>> {
    let client_authority = settings.optional("tls.client-authority").map(PathBuf::from);
    match (settings.optional("tls.certificate"), settings.optional("tls.key")) {
        (Some(certificate), Some(key)) => {
            Ok(Some(TlsFiles { certificate: certificate.into(), key: key.into(), client_authority }))
        }
        (None, None) if client_authority.is_none() => Ok(None),
        _ => bail!("TLS takes both tls.certificate and tls.key"),
    }
}

/// SIGTERM and Ctrl-C stop the server; a second one while it drains ends the process.
async fn stop_on_signal(stop: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("signals cannot be received; stop the process by force");
        return;
    };
    for turn in 0.. {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if turn > 0 {
            std::process::exit(130);
        }
        tracing::info!("stopping: no new connections, requests under way are finished");
        stop.cancel();
    }
}
