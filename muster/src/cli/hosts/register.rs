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

/// Hosts in one request: with labels and drivers still under the largest body that is taken.
const BATCH: usize = 400;

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

/// Registers what can be read, in batches, and returns a verdict for every line.
pub(super) async fn send(
    session: &Session,
    lines: Vec<Line>,
    dry_run: bool,
    scope: &Projects,
) -> Outcome<Vec<Verdict>> {
    let mut verdicts = Vec::with_capacity(lines.len());
    let mut good: Vec<(usize, NamedHost)> = Vec::new();
    for line in lines {
        match line.host {
            Ok(host) => good.push((line.number, host)),
            Err(faults) => verdicts.push(Verdict {
                line: line.number,
                name: line.name,
                result: "failed".into(),
                message: faults.to_string(),
                warnings: Vec::new(),
            }),
        }
    }
    for batch in good.chunks(BATCH) {
        let hosts: Vec<Value> =
            batch.iter().map(|(_, host)| json!({ "name": host.name, "spec": host.spec })).collect();
        let mut request =
            Request::new(Method::POST, "/api/v1/hosts/bulk", "hosts").body(json!({ "hosts": hosts }));
        request.scope.clone_from(scope);
        if dry_run {
            request = request.query("dryRun", "true");
        }
        let answer = session.client.call(request).await?.body;
        for report in answer["lines"].as_array().into_iter().flatten() {
            let place = report["line"].as_u64().and_then(|line| usize::try_from(line).ok()).unwrap_or(0);
            let line = batch.get(place.saturating_sub(1)).map_or(0, |(number, _)| *number);
            let warnings = report["warnings"].as_array().into_iter().flatten();
            verdicts.push(Verdict {
                line,
                name: text_at(report, "name"),
                result: text_at(report, "result"),
                message: text_at(report, "message"),
                warnings: warnings.filter_map(|text| text.as_str().map(str::to_owned)).collect(),
            });
        }
    }
    verdicts.sort_by_key(|verdict| verdict.line);
    Ok(verdicts)
}
