//! Hold, release, maintenance, power, acknowledge, label: one wish for one or several hosts.

use clap::Args;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::{names, path};
use crate::cli::{
    client::Request,
    context::Connection,
    declare::DryRun,
    failure::{Exit, Failure, Outcome},
    kinds::{self, text_at},
    session::Session,
    wait::{self, Limit, Until},
};

/// Which hosts.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// host NAME…, host/NAME… or NAME…
    #[arg(required = true, value_name = "HOST", add = crate::cli::complete::targets())]
    pub(super) what: Vec<String>,
    /// Whether to make the change or have it checked only
    #[arg(long, value_enum, default_value = "none", value_name = "WHERE")]
    pub(super) dry_run: DryRun,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Until when something holds.
#[derive(Debug, Args)]
struct End {
    /// Until this time, like 2026-01-31T18:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "length")]
    until: Option<String>,
    /// For this long, like 2h
    #[arg(long = "for", value_name = "DURATION", id = "length")]
    length: Option<String>,
}

impl End {
    fn put(&self, body: &mut Map<String, Value>) {
        if let Some(until) = &self.until {
            body.insert("until".into(), until.as_str().into());
        }
        if let Some(length) = &self.length {
            body.insert("for".into(), length.as_str().into());
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Hold {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Why; others will read it
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    end: End,
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Why
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Maintenance {
    /// on or off
    #[arg(value_parser = ["on", "off"])]
    switch: String,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Why; needed to begin
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Acknowledge {
    #[command(flatten)]
    pub(crate) which: Which,
    /// What was done about it
    #[arg(long)]
    reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct Label {
    /// Hosts, then labels: NAME… KEY=VALUE… KEY-
    #[command(flatten)]
    pub(crate) which: Which,
}

#[derive(Debug, Args)]
pub(crate) struct Power {
    /// on, off, or cycle: off and on again
    #[arg(value_parser = ["on", "off", "cycle"])]
    action: String,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Why; others will read it
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    end: End,
    /// Wait until it is done
    #[arg(long)]
    wait: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    limit: Limit,
}

/// Hosts that a wish did not reach. Every host is asked, whatever became of those before it.
#[derive(Debug, Default)]
struct Failed {
    all: usize,
    failures: Vec<Failure>,
}

impl Failed {
    fn note(&mut self, session: &Session, failure: Failure) {
        // A single one is told at the end, like that of any command.
        if self.all > 1 {
            session.screen.note(&failure.to_string());
        }
        self.failures.push(failure);
    }

    /// The first failure says with which code it ends.
    fn end(mut self, verb: &str) -> Outcome {
        let (failed, all) = (self.failures.len(), self.all);
        match failed {
            0 => Ok(()),
            _ if all == 1 => Err(self.failures.remove(0)),
            _ => {
                let exit = self.failures.remove(0).exit;
                let cause = format!("{failed} of {all} hosts failed, the others are done");
                Err(Failure::new(exit, verb, cause)
                    .next("correct what is named above and repeat it for these"))
            }
        }
    }
}

/// Sends one wish to every host, and says what became of each.
async fn each(
    session: &Session,
    which: &Which,
    verb: &str,
    body: Value,
    done: impl Fn(&str, &Value) -> String,
) -> Outcome {
    let names = names(&which.what)?;
    let mut failed = Failed { all: names.len(), ..Failed::default() };
    for name in names {
        match send(session, &name, verb, body.clone(), which.dry_run).await {
            Ok(answer) => session.screen.line(&with_suffix(done(&name, &answer), which.dry_run))?,
            Err(failure) => failed.note(session, failure),
        }
    }
    failed.end(verb)
}

pub(super) async fn send(
    session: &Session,
    name: &str,
    verb: &str,
    body: Value,
    dry_run: DryRun,
) -> Outcome<Value> {
    let mut request =
        Request::new(Method::POST, format!("{}/{verb}", path(name)), format!("host {name}")).body(body);
    if dry_run == DryRun::Server {
        request = request.query("dryRun", "true");
    }
    Ok(session.client.call(request).await?.body)
}

pub(super) fn with_suffix(text: String, dry_run: DryRun) -> String {
    if dry_run == DryRun::Server { format!("{text} (server dry run)") } else { text }
}

pub(crate) async fn hold(session: &Session, args: Hold) -> Outcome {
    let mut body = Map::from_iter([("reason".to_owned(), Value::from(args.reason.as_str()))]);
    args.end.put(&mut body);
    let done = |name: &str, host: &Value| {
        let until = text_at(host, "spec.hold.until");
        let until =
            if until.is_empty() { "until it is released".to_owned() } else { format!("until {until}") };
        format!("host/{name} held {until}: the autoscaler leaves it as it is")
    };
    each(session, &args.which, "hold", Value::Object(body), done).await
}

pub(crate) async fn release(session: &Session, args: Release) -> Outcome {
    let body = args.reason.map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
    each(session, &args.which, "release", body, |name, _| format!("host/{name} released")).await
}

pub(crate) async fn maintenance(session: &Session, args: Maintenance) -> Outcome {
    let on = args.switch == "on";
    let mut body = json!({ "on": on });
    if let Some(reason) = &args.reason {
        body["reason"] = reason.as_str().into();
    }
    let done = |name: &str, _: &Value| {
        if on {
            format!("host/{name} in maintenance: it is observed, and nothing is done to it")
        } else {
            format!("host/{name} back from maintenance")
        }
    };
    each(session, &args.which, "maintenance", body, done).await
}

pub(crate) async fn acknowledge(session: &Session, args: Acknowledge) -> Outcome {
    let body = json!({ "reason": args.reason });
    each(session, &args.which, "acknowledge", body, |name, _| format!("host/{name} acknowledged")).await
}

pub(crate) async fn label(session: &Session, args: Label) -> Outcome {
    let (labels, hosts): (Vec<String>, Vec<String>) =
        args.which.what.iter().cloned().partition(|word| word.contains('=') || word.ends_with('-'));
    if labels.is_empty() {
        return Err(Failure::usage("label", "there are no labels")
            .next("write `muster label host NAME key=value`, or key- to remove one"));
    }
    let labels: Map<String, Value> = labels
        .iter()
        .map(|word| match word.split_once('=') {
            Some((key, value)) => (key.to_owned(), value.into()),
            None => (word.trim_end_matches('-').to_owned(), Value::Null),
        })
        .collect();
    let which = Which { what: hosts, ..args.which };
    if names(&which.what)?.is_empty() {
        return Err(
            Failure::usage("label", "there is no host").next("write `muster label host NAME key=value`")
        );
    }
    each(session, &which, "label", json!({ "labels": labels }), |name, _| format!("host/{name} labelled"))
        .await
}

pub(crate) async fn power(session: &Session, args: Power) -> Outcome {
    let hosts = names(&args.which.what)?;
    let dry = args.which.dry_run == DryRun::Server;
    if args.action != "on" && session.screen.person && !args.yes && !dry {
        let question = format!("Switch {} {} on {}?", hosts.join(", "), args.action, session.client.server());
        if !session.screen.confirm(&question) {
            return Err(Failure::new(Exit::Failure, "power", "nothing was switched")
                .next("answer y, or repeat with --yes"));
        }
    }
    let mut body = Map::from_iter([
        ("action".to_owned(), Value::from(args.action.as_str())),
        ("reason".to_owned(), Value::from(args.reason.as_str())),
    ]);
    args.end.put(&mut body);
    let kind = kinds::required("operation")?;
    let mut begun = Vec::new();
    let mut failed = Failed { all: hosts.len(), ..Failed::default() };
    for name in hosts {
        let sent = send(session, &name, "power", Value::Object(body.clone()), args.which.dry_run).await;
        let answer = match sent {
            Ok(answer) => answer,
            Err(failure) => {
                failed.note(session, failure);
                continue;
            }
        };
        let id = text_at(&answer, "id");
        let text = format!("host/{name} power {}: operation/{id}", args.action);
        session.screen.line(&with_suffix(text, args.which.dry_run))?;
        begun.push(id);
    }
    if args.wait && !dry {
        for id in begun {
            wait::wait_for(session, kind, &id, &id, &Until::Done, args.limit).await?;
        }
    }
    failed.end("power")
}
