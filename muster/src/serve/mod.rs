//! `muster serve`: puts the parts together, serves, and stops cleanly.

mod auth;
mod cluster_identity;
mod export;
mod hosts;
mod inventory;
mod page;
pub(crate) mod store;
mod triggers;

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::{Context, bail};
use clap::Parser;
use muster_control::{
    audit::{AuditLog, AuditOptions, last_revision},
    explain::Explain,
    freeze,
    planner::{NoConnections, Parts, Planning},
    registry::{Registry, RegistryOptions},
};
use muster_model::Clock;
use muster_server::{
    app::App,
    collect::{MeteredStore, PlannerCollector, PoolCollector},
    collect_hosts::{EachHostCollector, HostCollector},
    example::Example,
    limits::{Limits, RateLimit, WatchSlots},
    listen,
    metrics::Metrics,
    routes,
    tls::{self, TlsFiles},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::SystemClock,
    config::{Settings, Sources},
    limits, logs, output,
};

/// The port that the command line asks when nothing else is said.
const DEFAULT_PORT: u16 = 8080;

#[derive(Debug, Parser)]
pub(crate) struct Args {
    #[command(flatten)]
    sources: Sources,
    /// Keep the cluster and the pool of the user guide under their ids, for user@example.com
    #[arg(long)]
    seed_example: bool,
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    let settings = args.sources.gather()?;
    logs::start(&settings.text("log.level"), &settings.text("log.format"))?;
    for name in settings.ignored() {
        tracing::warn!(name, "this environment variable is no setting and is ignored");
    }
    limits::raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(&settings, args.seed_example))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(settings: &Settings, seed_example: bool) -> anyhow::Result<()> {
    let address: SocketAddr = settings.parsed("listen")?;
    let tls = tls_files(settings)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    // Refusals come before anything is written.
    auth::check(settings, address, tls.as_ref(), &clock).await?;
    let data_dir = PathBuf::from(settings.text("data-dir"));
    std::fs::create_dir_all(&data_dir)
        .with_context(|| format!("cannot make the data directory {}", data_dir.display()))?;
    let auth::Auth { authenticator, token_file } =
        auth::build(settings, address, tls.as_ref(), &data_dir, &clock).await?;
    let tls = tls.as_ref().map(tls::server_config).transpose()?;

    let metrics = Metrics::new();
    let opened = store::open(settings, &data_dir, &clock, "muster serve").await?;
    note_regress(&opened, &data_dir, clock.now()).await?;
    let metered =
        Arc::new(MeteredStore::new(Arc::clone(&opened.store), Arc::clone(&metrics), Arc::clone(&clock)));
    let options =
        RegistryOptions { exclusive: opened.exclusive, default_lease: settings.parsed("status.lease")? };
    let registry =
        Registry::open(metered, Arc::clone(&clock), options).await.context("cannot load the registry")?;
    metrics.register(Box::new(PoolCollector::new(Arc::clone(&registry))));
    let hosts = inventory::open(settings, &data_dir, Arc::clone(registry.store()), &clock).await?;
    let switching = hosts::start(settings, &hosts, &registry, Arc::new(NoConnections), &clock, holder())?;
    metrics.register(Box::new(HostCollector::new(Arc::clone(&switching.host_loop))));
    if settings.parsed("metrics.hosts")? {
        metrics.register_hosts(Box::new(EachHostCollector::new(Arc::clone(&switching.host_loop))));
    }
    let audit = AuditLog::open(AuditOptions {
        directory: data_dir.join("audit"),
        rotate_bytes: settings.parsed("audit.rotate-bytes")?,
        keep_files: settings.parsed("audit.keep-files")?,
    })?;
    let limits = Limits {
        body: settings.parsed("limits.body-bytes")?,
        requests_per_second: settings.parsed("limits.requests-per-second")?,
        watches: settings.parsed("limits.watches")?,
        watches_per_identity: settings.parsed("limits.watches-per-identity")?,
        header_timeout: settings.parsed("limits.header-timeout")?,
        body_timeout: settings.parsed("limits.body-timeout")?,
    };
    let stop = CancellationToken::new();
    let mut parts = Parts::new(Arc::clone(&registry));
    parts.triggers = Some(Arc::new(triggers::Configured::new(settings, Arc::clone(registry.store()))?));
    metrics.register(Box::new(PlannerCollector::new(Arc::clone(&parts.board))));
    let desk = page::desk(
        settings,
        &registry,
        &hosts.inventory,
        &parts.board,
        Arc::clone(&switching.transcripts),
        &clock,
    );
    let exporter_clock = Arc::clone(&clock);
    let mut app = App {
        registry: Arc::clone(&registry),
        inventory: Arc::clone(&hosts.inventory),
        vault: Arc::clone(&hosts.vault),
        prober: Arc::clone(&hosts.prober),
        explain: Explain::new(Arc::clone(&parts.board), parts.journal.clone()),
        desk: Arc::clone(&desk),
        identity: Arc::new(authenticator),
        audit: Arc::new(audit),
        metrics,
        clock,
        limits,
        rate: Arc::new(RateLimit::new(limits.requests_per_second)),
        watches: WatchSlots::new(limits),
        exporter: Some(Arc::new(export::Portable::new(
            Arc::clone(&opened.store),
            Arc::clone(&exporter_clock),
        ))),
        example: None,
        stop: stop.clone(),
    };
    let loops = tokio::spawn({
        let (registry, stop) = (Arc::clone(&registry), stop.clone());
        let inventory = Arc::clone(&hosts.inventory);
        let (leading, clock) = (switching.lead.subscribe(), Arc::clone(&app.clock));
        async move {
            tokio::join!(
                registry.run(stop.clone()),
                inventory.run(Arc::clone(&registry), stop.clone()),
                desk.news.run(stop.clone()),
                desk.history.run(leading, clock, stop)
            );
        }
    });
    let planners = tokio::spawn({
        let leading = switching.lead.subscribe();
        let (planning, stop) = (Planning::new(parts, Arc::clone(&app.clock)), stop.clone());
        async move { planning.run(leading, stop).await }
    });
    if seed_example {
        app.example = Some(Example::register(&registry, app.clock.now()).await?);
    }
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    announce(listener.local_addr()?, tls.is_some(), &app, token_file.as_deref());
    let signals = tokio::spawn(stop_on_signal(stop.clone()));
    let router = routes::router(&app);
    listen::serve(listener, tls, router, limits.header_timeout.as_std(), stop.clone()).await?;
    stop.cancel();
    let _ = planners.await;
    switching.stop().await;
    let _ = loops.await;
    signals.abort();
    drop(app);
    drop(hosts);
    drop(registry);
    opened.store.close().await.context("the store could not be closed cleanly")?;
    tracing::info!("stopped");
    Ok(())
}

/// Who this is among all processes that ever lead: the process and a random part.
fn holder() -> String {
    format!("muster-{}-{}", std::process::id(), uuid::Uuid::now_v7())
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
