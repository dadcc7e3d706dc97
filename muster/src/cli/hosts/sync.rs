//! `muster sync hosts -f FILE`: makes the inventory equal to a DCIM's export.
//!
//! Hosts are recognised by their inventory id. What vanished from the export is held: nothing is deleted and nothing is
//! switched off. Doing it again changes nothing. An export speaks of one project: the hosts of others are not missing from it.

use std::{collections::BTreeMap, path::PathBuf, str::FromStr};

use clap::Args;
use muster_model::host::{
    BareMetalNodeSpec, NamedHost,
    csv::Line,
    sync::{Difference, HostChange, Listed, compare, patch, together},
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
    /// How many hosts may vanish and be held, a number or `all`; without it half of them, or five
    #[arg(long, value_name = "N")]
    allow_vanished: Option<Vanished>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// How many hosts an export may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vanished {
    Some(usize),
    All,
}

impl FromStr for Vanished {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::All),
            number => number.parse().map(Self::Some).map_err(|_| "write a number of hosts, or all"),
        }
    }
}

/// Why so many hosts are not held at once: an export that broke off would stop a whole fleet.
fn too_many(difference: &Difference, known: usize, allowed: Option<Vanished>) -> Option<Failure> {
    let vanished = difference.hold.len();
    let most = match allowed {
        Some(Vanished::All) => return None,
        Some(Vanished::Some(most)) => most,
        None => Difference::most_vanished(known),
    };
    let why = format!("{vanished} of {known} hosts are missing from the export, and at most {most} may be");
    (vanished > most).then(|| {
        Failure::new(Exit::Failure, "sync", why).next(format!(
            "look whether the export is whole; if it is, repeat with --allow-vanished {vanished}. Nothing was changed"
        ))
    })
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
    let known = inventory.values().filter(|spec| spec.inventory_id.is_some()).count();
    if let Some(failure) = too_many(&difference, known, args.allow_vanished) {
        return Err(failure);
    }
    if args.dry_run {
        return if difference.is_empty() { Ok(()) } else { Err(Failure::silent(Exit::Failure)) };
    }
    let applied = Apply { session, inventory, versions, scope: Projects::One(project) };
    applied.all(difference).await
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
    for (name, why) in &difference.refused {
        session.screen.note(&format!("error: host {name}: {why}"));
    }
    session.screen.line(&format!(
        "{} to register, {} to change, {} vanished and to be held, {} unchanged",
        difference.create.len(),
        difference.change.len(),
        difference.hold.len(),
        difference.unchanged.len()
    ))
}

/// Hosts that are changed at one moment: as many as the server puts into one transaction.
const TOGETHER: usize = 30;

/// Carries a difference out. What cannot be done is told, and the rest is done.
struct Apply<'s> {
    session: &'s Session,
    inventory: BTreeMap<String, BareMetalNodeSpec>,
    versions: Versions,
    scope: Projects,
}

impl Apply<'_> {
    async fn all(&self, difference: Difference) -> Outcome {
        let mut failed = difference.refused.len();
        // What hosts give up is free for new ones after that.
        for group in together(&self.inventory, difference.change) {
            failed += self.change(group).await;
        }
        for change in difference.hold {
            failed += self.change(vec![change]).await;
        }
        failed += self.create(difference.create).await;
        if failed == 0 {
            return self.session.screen.line("the inventory is in step with the file");
        }
        Err(Failure::new(Exit::Failure, "sync", format!("{failed} hosts could not be brought in step"))
            .next("correct what is named above and repeat: the rest is done"))
    }

    /// Changes hosts at one moment; returns how many could not be changed.
    async fn change(&self, group: Vec<HostChange>) -> usize {
        let names = group.iter().map(|change| change.name.as_str()).collect::<Vec<_>>().join(", ");
        let merged = |change: &HostChange| {
            let stored = self.inventory.get(&change.name);
            json!({ "name": change.name, "resource_version": self.versions.get(&change.name),
                "spec": stored.map_or(Value::Null, |stored| patch(stored, change)) })
        };
        let (path, body) = match &group[..] {
            [] => return 0,
            [one] => (path(&one.name), merged(one)),
            all if all.len() > TOGETHER => {
                self.session.screen.note(&format!(
                    "error: hosts {names}: they take addresses or places from one another, and no more than {TOGETHER} \
                     hosts are changed at one moment: let the export change them in smaller steps"
                ));
                return all.len();
            }
            all => {
                let hosts: Vec<Value> = all.iter().map(merged).collect();
                ("/api/v1/hosts/bulk".to_owned(), json!({ "hosts": hosts }))
            }
        };
        let mut request = Request::new(Method::PATCH, path, format!("host {names}")).body(body);
        request.content_type = "application/merge-patch+json";
        request.scope.clone_from(&self.scope);
        match self.session.client.call(request).await {
            Ok(_) => 0,
            Err(failure) => {
                self.session.screen.note(&failure.to_string());
                group.len()
            }
        }
    }

    async fn create(&self, hosts: Vec<NamedHost>) -> usize {
        let lines: Vec<Line> = hosts
            .into_iter()
            .enumerate()
            .map(|(place, host)| Line {
                number: place + 1,
                name: host.name.clone(),
                said: serde_json::Map::new(),
                host: Ok(host),
            })
            .collect();
        let all = lines.len();
        match register::send(self.session, lines, false, &self.scope).await {
            Ok(verdicts) => {
                let failed = verdicts.iter().filter(|verdict| verdict.result == "failed");
                let told = failed.map(|verdict| {
                    self.session.screen.note(&format!("error: host {}: {}", verdict.name, verdict.message));
                });
                told.count()
            }
            Err(failure) => {
                self.session.screen.note(&failure.to_string());
                all
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_model::host::PowerInterface;

    use super::*;

    #[test]
    fn more_than_half_of_a_fleet_is_not_held_by_an_export_that_broke_off() {
        #[track_caller]
        fn check(vanished: usize, known: usize, allowed: Option<&str>, refused: bool) {
            let change = HostChange {
                name: "a".into(),
                fields: Vec::new(),
                spec: BareMetalNodeSpec::new("p", PowerInterface::Wol),
            };
            let difference = Difference { hold: vec![change; vanished], ..Difference::default() };
            let allowed = allowed.map(|text| text.parse().unwrap());
            assert_eq!(too_many(&difference, known, allowed).is_some(), refused, "{vanished} of {known}");
        }
        check(5, 5, None, false);
        check(6, 6, None, true);
        check(20, 40, None, false);
        check(21, 40, None, true);
        check(21, 40, Some("21"), false);
        check(21, 40, Some("20"), true);
        check(40, 40, Some("all"), false);
        check(1, 40, Some("0"), true);
        assert!("some".parse::<Vanished>().is_err());
    }
}
