//! `muster sync hosts -f FILE`: makes the inventory equal to a DCIM's export.
//!
//! Hosts are recognised by their inventory id. What vanished from the export is held: nothing is deleted and nothing is
//! switched off. Doing it again changes nothing. An export speaks of one project: the hosts of others are not missing from it.

use std::{collections::BTreeMap, path::PathBuf};

use clap::Args;
use muster_model::host::{
    BareMetalNodeSpec,
    csv::Line,
    sync::{Difference, HostChange, Listed, compare},
};
use reqwest::Method;
use serde_json::{Value, json};

use super::{file, path, register};
use crate::cli::{
    client::{Projects, Request},
    context::Connection,
    failure::{Exit, Failure, Outcome},
    kinds::{self, text_at},
    list::{self, Selection},
    session::Session,
};

#[derive(Debug, Args)]
pub(crate) struct Sync {
    /// What to bring in step
    #[arg(value_parser = ["hosts", "host", "servers"])]
    what: String,
    /// CSV, YAML or JSON export with inventory ids; - for standard input
    #[arg(short, long = "filename", value_name = "FILE", add = crate::cli::complete::files())]
    file: PathBuf,
    /// Show the difference, change nothing; exit code 1 when there is one
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

pub(crate) async fn sync(session: &Session, args: Sync) -> Outcome {
    let export = whole(file::read(&args.file)?, &args.file.display().to_string())?;
    let project = project(session).await?;
    let (inventory, versions) = present(session, &project).await?;
    let difference = compare(&inventory, &export, session.now()).map_err(|faults| {
        Failure::new(Exit::Failure, format!("file {}", args.file.display()), faults.to_string())
            .next("correct the export; nothing was changed")
    })?;
    show(session, &difference)?;
    if args.dry_run {
        return if difference.is_empty() { Ok(()) } else { Err(Failure::silent(Exit::Failure)) };
    }
    apply(session, difference, &versions, &project).await
}

/// The one project that is brought in step: the one that new hosts go to.
async fn project(session: &Session) -> Outcome<String> {
    let me = session.client.call(Request::get("/api/v1/me", "your identity")).await?.body;
    match text_at(&me, "project") {
        project if project.is_empty() => {
            Err(Failure::new(Exit::Failure, "sync", "it is not said which project's hosts the file lists")
                .next("name the project with --project; nothing was changed"))
        }
        project => Ok(project),
    }
}

/// An export with a line that cannot be read says nothing about what is missing: it is refused as a whole.
fn whole(lines: Vec<Line>, name: &str) -> Outcome<Vec<Listed>> {
    let mut hosts = Vec::with_capacity(lines.len());
    let mut faults = Vec::new();
    for line in lines {
        match line.host {
            Ok(host) => hosts.push(Listed { host, said: line.said }),
            Err(error) => faults.push(format!("line {}: {error}", line.number)),
        }
    }
    if faults.is_empty() {
        return Ok(hosts);
    }
    let shown = faults.iter().take(10).cloned().collect::<Vec<_>>().join("\n  ");
    Err(Failure::new(
        Exit::Failure,
        format!("file {name}"),
        format!("{} lines cannot be read:\n  {shown}", faults.len()),
    )
    .next("correct them: a host that is missing from an export is held; nothing was changed"))
}

type Versions = BTreeMap<String, String>;

async fn present(
    session: &Session,
    project: &str,
) -> Outcome<(BTreeMap<String, BareMetalNodeSpec>, Versions)> {
    let kind = kinds::required("host")?;
    let selection = Selection { project: Some(project.to_owned()), ..Selection::visible() };
    let listed = list::pages(session, kind, &selection).await?;
    let (mut specs, mut versions) = (BTreeMap::new(), BTreeMap::new());
    for host in &listed.items {
        let name = text_at(host, "name");
        // A record that was set aside is for people to look at.
        if host.get("set_aside").is_some() {
            session.screen.note(&format!("warning: host {name} is set aside and left alone"));
            continue;
        }
        if let Ok(parsed) = BareMetalNodeSpec::read(&host["spec"], "spec") {
            versions.insert(name.clone(), text_at(host, "resource_version"));
            specs.insert(name, parsed.value);
        }
    }
    Ok((specs, versions))
}

fn show(session: &Session, difference: &Difference) -> Outcome {
    for host in &difference.create {
        session.screen.line(&format!("+ host/{} in pool {}", host.name, host.spec.pool))?;
    }
    for (mark, changes) in [("~", &difference.change), ("!", &difference.hold)] {
        for change in changes {
            session.screen.line(&format!("{mark} host/{}", change.name))?;
            for field in &change.fields {
                let text = |value: &Option<Value>| {
                    value.as_ref().map_or_else(|| "nothing".to_owned(), crate::cli::jsonpath::plain)
                };
                session.screen.line(&format!(
                    "    {}: {} -> {}",
                    field.field,
                    text(&field.from),
                    text(&field.to)
                ))?;
            }
        }
    }
    session.screen.line(&format!(
        "{} to register, {} to change, {} vanished and to be held, {} unchanged",
        difference.create.len(),
        difference.change.len(),
        difference.hold.len(),
        difference.unchanged.len()
    ))
}

async fn apply(session: &Session, difference: Difference, versions: &Versions, project: &str) -> Outcome {
    let mut failed = 0;
    let scope = Projects::One(project.to_owned());
    let lines = difference
        .create
        .into_iter()
        .enumerate()
        .map(|(place, host)| Line {
            number: place + 1,
            name: host.name.clone(),
            said: serde_json::Map::new(),
            host: Ok(host),
        })
        .collect();
    for verdict in register::send(session, lines, false, &scope).await? {
        if verdict.result == "failed" {
            failed += 1;
            session.screen.note(&format!("error: host {}: {}", verdict.name, verdict.message));
        }
    }
    for HostChange { name, spec, .. } in difference.change.into_iter().chain(difference.hold) {
        let version = versions.get(&name).map(String::as_str);
        let mut request = Request::new(Method::PUT, path(&name), format!("host {name}"))
            .body(json!({ "name": name, "spec": spec }))
            .if_match(version);
        request.scope.clone_from(&scope);
        if let Err(failure) = session.client.call(request).await {
            failed += 1;
            session.screen.note(&failure.to_string());
        }
    }
    if failed == 0 {
        return session.screen.line("the inventory is in step with the file");
    }
    Err(Failure::new(Exit::Failure, "sync", format!("{failed} hosts could not be brought in step"))
        .next("correct what is named above and repeat: the rest is done"))
}
