//! `muster register hosts -f FILE`: many hosts at once, a verdict for each line.

use std::path::PathBuf;

use clap::Args;
use muster_model::host::{NamedHost, csv::Line};
use reqwest::Method;
use serde_json::{Value, json};

use super::file;
use crate::cli::{
    client::{Projects, Request},
    context::Connection,
    failure::{Exit, Failure, Outcome},
    kinds::text_at,
    print::{
        format::Format,
        table::{Cell, Table, Tone},
    },
    session::Session,
};

/// Hosts in one request: the server stores that many in a second or two.
const BATCH: usize = 400;
/// Bytes of hosts in one request: a server takes a body of 1 MiB, and a quarter of it is left to the rest.
const BATCH_BYTES: usize = 768 << 10;

#[derive(Debug, Args)]
pub(crate) struct Register {
    /// What to register
    #[arg(value_parser = ["hosts", "host", "servers"])]
    what: String,
    /// CSV, YAML or JSON file; - for standard input
    #[arg(short, long = "filename", value_name = "FILE", add = crate::cli::complete::files())]
    file: PathBuf,
    /// Check every line, register nothing
    #[arg(long)]
    dry_run: bool,
    /// Say nothing about lines that are fine
    #[arg(short, long)]
    quiet: bool,
    /// table or json
    #[arg(short, long, default_value = "table", value_name = "FORMAT", value_parser = ["table", "json"])]
    output: String,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// What became of one line.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct Verdict {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) result: String,
    pub(super) message: String,
    pub(super) warnings: Vec<String>,
}

pub(crate) async fn register(session: &Session, args: Register) -> Outcome {
    let verdicts = send(session, file::read(&args.file)?, args.dry_run, &Projects::Session).await?;
    let failed = verdicts.iter().filter(|verdict| verdict.result == "failed").count();
    if args.output == "json" {
        let document = json!({ "dry_run": args.dry_run, "failed": failed, "lines": verdicts });
        session.screen.data(&Format::Json.document(&document, true)?)?;
    } else {
        show(session, &verdicts, args.quiet)?;
        let count = |result: &str| verdicts.iter().filter(|verdict| verdict.result == result).count();
        let word = if args.dry_run { "would be registered" } else { "registered" };
        session.screen.line(&format!(
            "{} {word}, {} unchanged, {failed} failed",
            count("created"),
            count("unchanged")
        ))?;
    }
    if failed == 0 {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Failure,
        format!("file {}", args.file.display()),
        format!("{failed} lines failed"),
    )
    .next("correct these lines and register the file again: what is there already is left alone"))
}

fn show(session: &Session, verdicts: &[Verdict], quiet: bool) -> Outcome {
    let mut table = Table::new(["LINE", "HOST", "RESULT", "MESSAGE"]);
    let mut rows = 0;
    for verdict in verdicts {
        if quiet && verdict.result != "failed" && verdict.warnings.is_empty() {
            continue;
        }
        let tone = match verdict.result.as_str() {
            "failed" => Tone::Bad,
            "created" => Tone::Good,
            _ => Tone::Plain,
        };
        let mut message = verdict.message.clone();
        for warning in &verdict.warnings {
            let joint = if message.is_empty() { "" } else { "; " };
            message = format!("{message}{joint}warning: {warning}");
        }
        table.push(vec![
            verdict.line.to_string().into(),
            verdict.name.as_str().into(),
            Cell::toned(verdict.result.clone(), tone),
            message.into(),
        ]);
        rows += 1;
    }
    if rows == 0 {
        return Ok(());
    }
    session.screen.data(&table.render(true, session.screen.colour, &mut Vec::new()))
}

/// Registers what can be read, in batches, and returns a verdict for every line. It fails when nothing was registered.
pub(super) async fn send(
    session: &Session,
    lines: Vec<Line>,
    dry_run: bool,
    scope: &Projects,
) -> Outcome<Vec<Verdict>> {
    let mut verdicts = Vec::with_capacity(lines.len());
    let mut good = Vec::new();
    for line in lines {
        match line.host {
            Ok(host) => good.push(Sent::new(line.number, &host)),
            Err(faults) => verdicts.push(Verdict {
                line: line.number,
                name: line.name,
                result: "failed".into(),
                message: faults.to_string(),
                warnings: Vec::new(),
            }),
        }
    }
    let mut batches = batches(good).into_iter();
    let mut is_first = true;
    while let Some(batch) = batches.next() {
        let sent = send_batch(session, &batch, dry_run, scope).await;
        match sent {
            Ok(some) => verdicts.extend(some),
            Err(failure) if is_first => return Err(failure),
            // What was stored before is stored: the verdicts of the other lines say what became of them.
            Err(failure) => {
                let lost = failure.status.is_none();
                let why = if lost {
                    format!("{}; it may be registered all the same", failure.cause)
                } else {
                    failure.cause.clone()
                };
                verdicts.extend(batch.iter().map(|one| one.failed(&why)));
                if lost {
                    let why = format!("it was not sent: {}", failure.cause);
                    verdicts.extend(batches.by_ref().flatten().map(|one| one.failed(&why)));
                }
            }
        }
        is_first = false;
    }
    verdicts.sort_by_key(|verdict| verdict.line);
    Ok(verdicts)
}

/// A host as it is sent.
struct Sent {
    line: usize,
    name: String,
    /// JSON, made once: how long it is decides where it goes.
    body: Value,
    bytes: usize,
}

impl Sent {
    fn new(line: usize, host: &NamedHost) -> Self {
        let body = json!({ "name": host.name, "spec": host.spec });
        Self { line, name: host.name.clone(), bytes: body.to_string().len() + 1, body }
    }

    fn failed(&self, why: &str) -> Verdict {
        Verdict {
            line: self.line,
            name: self.name.clone(),
            result: "failed".into(),
            message: why.to_owned(),
            warnings: Vec::new(),
        }
    }
}

/// Groups that a server takes. A host that is too large for any goes alone, so that its refusal is its own.
fn batches(hosts: Vec<Sent>) -> Vec<Vec<Sent>> {
    let mut batches: Vec<Vec<Sent>> = Vec::new();
    let mut bytes = 0;
    for host in hosts {
        let room = |last: &&mut Vec<Sent>| last.len() < BATCH && bytes + host.bytes <= BATCH_BYTES;
        if let Some(last) = batches.last_mut().filter(room) {
            bytes += host.bytes;
            last.push(host);
        } else {
            bytes = host.bytes;
            batches.push(vec![host]);
        }
    }
    batches
}

async fn send_batch(
    session: &Session,
    batch: &[Sent],
    dry_run: bool,
    scope: &Projects,
) -> Outcome<Vec<Verdict>> {
    let hosts: Vec<&Value> = batch.iter().map(|host| &host.body).collect();
    let mut request =
        Request::new(Method::POST, "/api/v1/hosts/bulk", "hosts").body(json!({ "hosts": hosts }));
    request.scope.clone_from(scope);
    if dry_run {
        request = request.query("dryRun", "true");
    }
    let answer = session.client.call(request).await?.body;
    let verdict = |report: &Value| {
        let place = report["line"].as_u64().and_then(|line| usize::try_from(line).ok()).unwrap_or(0);
        let warnings = report["warnings"].as_array().into_iter().flatten();
        Verdict {
            line: batch.get(place.saturating_sub(1)).map_or(0, |host| host.line),
            name: text_at(report, "name"),
            result: text_at(report, "result"),
            message: text_at(report, "message"),
            warnings: warnings.filter_map(|text| text.as_str().map(str::to_owned)).collect(),
        }
    };
    Ok(answer["lines"].as_array().into_iter().flatten().map(verdict).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_keep_to_what_a_server_takes() {
        let sent = |bytes: usize| Sent { line: 0, name: String::new(), body: Value::Null, bytes };
        let sizes = |hosts: Vec<Sent>| batches(hosts).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes((0..900).map(|_| sent(500)).collect()), [400, 400, 100]);
        assert_eq!(sizes((0..60).map(|_| sent(32 << 10)).collect()), [24, 24, 12]);
        assert_eq!(sizes(vec![sent(10), sent(2 << 20), sent(10)]), [1, 1, 1]);
        assert_eq!(sizes(Vec::new()), [0; 0]);
    }
}
