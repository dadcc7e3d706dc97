//! `muster delete`.

use std::path::PathBuf;

use clap::Args;
use reqwest::Method;
use serde_json::Value;

use super::{
    apply::Failures,
    client::Request,
    context::Connection,
    declare::{self, DryRun},
    failure::{Exit, Failure, Outcome},
    get::{self, Found},
    kinds::{Kind, Scope, text_at},
    list::Selection,
    manifest::{self, Files},
    resolve,
    session::Session,
    wait::{self, Limit, Until},
};

/// Names shown before a question; more are counted.
const MOST_NAMES: usize = 20;

#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// What to delete: KIND NAME…, KIND/NAME…
    #[arg(required_unless_present = "files", value_name = "KIND NAME", add = super::complete::targets())]
    what: Vec<String>,
    /// File or folder that names the objects; - for standard input
    #[arg(short, long = "filename", value_name = "FILE", conflicts_with = "what", add = super::complete::files())]
    files: Vec<PathBuf>,
    /// All objects of the kind (that the selection leaves)
    #[arg(long)]
    all: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// With a cluster, delete its pools too
    #[arg(long)]
    cascade: bool,
    /// With a host, switch it off before its record goes
    #[arg(long, conflicts_with = "force")]
    power_off: bool,
    /// With a host, delete its record at once and touch nothing
    #[arg(long)]
    force: bool,
    /// Wait until they are gone
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    limit: Limit,
    /// Succeed when an object does not exist
    #[arg(long)]
    ignore_not_found: bool,
    /// Whether to make the change or have it checked only
    #[arg(long, value_enum, default_value = "none", value_name = "WHERE")]
    dry_run: DryRun,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

pub(crate) async fn run(session: &Session, delete: Delete) -> Outcome {
    let (found, missing) = if delete.files.is_empty() {
        named(session, &delete).await?
    } else {
        filed(session, &delete).await?
    };
    if let Some(missing) =
        missing.filter(|failure| !(delete.ignore_not_found && failure.exit == Exit::NotFound))
    {
        return Err(missing); // nothing is deleted when not all is clear
    }
    let objects: Vec<(&'static Kind, &Value)> =
        found.iter().flat_map(|group| group.items.iter().map(|object| (group.kind, object))).collect();
    if objects.is_empty() {
        session.screen.note("nothing to delete");
        return Ok(());
    }
    if session.screen.person
        && !delete.yes
        && delete.dry_run == DryRun::None
        && !agreed(session, &objects, delete.cascade)
    {
        return Err(Failure::new(Exit::Failure, "delete", "nothing was deleted")
            .next("answer y, or repeat with --yes"));
    }
    let mut failures = Failures::new(session);
    let mut gone = Vec::new();
    for (kind, object) in objects {
        match one(session, kind, object, &delete).await {
            Ok(()) => gone.push((kind, object)),
            Err(failure) => failures.take(Err(failure))?,
        }
    }
    if delete.wait && delete.dry_run == DryRun::None {
        // A report is gone when its deletion is answered.
        for (kind, object) in gone.into_iter().filter(|(kind, _)| kind.scope != Scope::OnPool) {
            let name = session.full_name(kind, object);
            wait::wait_for(session, kind, &text_at(object, "id"), &name, &Until::Delete, delete.limit)
                .await?;
            session.screen.note(&format!("{}/{name} is gone", kind.singular));
        }
    }
    failures.end()
}

async fn named(session: &Session, delete: &Delete) -> Outcome<(Vec<Found>, Option<Failure>)> {
    let targets = resolve::targets(&delete.what)?;
    for target in &targets {
        let kind = target.kind;
        if kind.written.is_empty() && kind.scope != Scope::OnPool {
            return Err(Failure::usage(format!("kind {}", kind.plural), "these cannot be deleted")
                .next("delete clusters, pools, or the report of a controller that is gone"));
        }
        if kind.scope == Scope::OnPool && target.name.as_ref().is_none_or(|name| name.split('/').count() != 3)
        {
            return Err(Failure::usage("kind reports", "it does not say whose")
                .next("write report CLUSTER/POOL/CONTROLLER"));
        }
        let narrowed = delete.selection.selector.is_some() || delete.selection.field_selector.is_some();
        if target.name.is_none() && !delete.all && !narrowed {
            return Err(Failure::usage(format!("kind {}", kind.plural), "it does not say which")
                .next("add names, a selector (-l), or --all"));
        }
    }
    let (found, failure) = get::collect(session, &targets, &delete.selection).await;
    for group in &found {
        session.know_clusters(group.kind, &group.items).await?;
    }
    Ok((found, failure))
}

/// What the files name, pools before their clusters.
async fn filed(session: &Session, delete: &Delete) -> Outcome<(Vec<Found>, Option<Failure>)> {
    let files = Files { files: delete.files.clone(), recursive: false };
    let (mut found, mut failure) = (Vec::new(), None);
    for document in manifest::read(&files)?.into_iter().rev() {
        let kind = document.kind;
        match declare::prepare(session, document).await {
            Ok(wanted) => match wanted.current {
                Some(object) => {
                    session.know_clusters(kind, std::slice::from_ref(&object)).await?;
                    found.push(Found { kind, items: vec![object], revision: None });
                }
                None => {
                    failure = Some(
                        Failure::new(Exit::NotFound, wanted.title, "not found")
                            .next("--ignore-not-found passes over it"),
                    );
                }
            },
            Err(problem) if problem.exit == Exit::NotFound => failure = Some(problem),
            Err(problem) => return Err(problem),
        }
    }
    Ok((found, failure))
}

fn agreed(session: &Session, objects: &[(&'static Kind, &Value)], cascade: bool) -> bool {
    for (kind, object) in objects.iter().take(MOST_NAMES) {
        let pools = if cascade && kind.scope == Scope::Project { " with all its pools" } else { "" };
        session.screen.note(&format!("  {}/{}{pools}", kind.singular, session.full_name(kind, object)));
    }
    if objects.len() > MOST_NAMES {
        session.screen.note(&format!("  and {} more", objects.len() - MOST_NAMES));
    }
    session.screen.confirm(&format!(
        "Delete {} on {}?",
        if objects.len() == 1 { "it" } else { "them" },
        session.client.server()
    ))
}

async fn one(session: &Session, kind: &'static Kind, object: &Value, delete: &Delete) -> Outcome {
    let name = session.full_name(kind, object);
    let path = match kind.scope {
        Scope::OnPool => format!(
            "/api/v1/nodepools/{}/status/{}",
            text_at(object, "nodepool_id"),
            text_at(object, "controller_name")
        ),
        _ => kind.path(&text_at(object, "id")),
    };
    let mut request = Request::new(Method::DELETE, path, format!("{} {name}", kind.singular));
    if delete.cascade && kind.scope == Scope::Project {
        request = request.query("cascade", "true");
    }
    if kind.singular == "host" {
        for (name, wanted) in [("powerOff", delete.power_off), ("force", delete.force)] {
            if wanted {
                request = request.query(name, "true");
            }
        }
    }
    if delete.dry_run == DryRun::Server {
        request = request.query("dryRun", "true");
    }
    let pending = match session.client.call(request).await {
        Ok(answer) => answer.body["gone"] == Value::Bool(false),
        Err(failure) if delete.ignore_not_found && failure.exit == Exit::NotFound => return Ok(()),
        Err(failure) if failure.exit == Exit::Conflict && kind.scope == Scope::Project && !delete.cascade => {
            return Err(failure.next(format!(
                "delete its pools first, or all together: muster delete {} {name} --cascade",
                kind.singular
            )));
        }
        Err(failure) => return Err(failure),
    };
    let suffix = if delete.dry_run == DryRun::Server { " (server dry run)" } else { "" };
    let word = if pending { "will be deleted when the machine is at rest" } else { "deleted" };
    session.screen.line(&format!("{}/{name} {word}{suffix}", kind.singular))
}
