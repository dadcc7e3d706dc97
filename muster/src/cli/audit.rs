//! `muster audit`: the log that every write leaves behind, from a server or from its directory.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use muster_control::audit::{Query, Verdict, page, verify};
use muster_model::{Timestamp, field::Choice};
use serde_json::{Value, json};

use super::{
    Tools,
    client::Request,
    context::Connection,
    failure::{Exit, Failure, Outcome},
    get::FormatArg,
    kinds::{dash, text_at},
    print::{
        age,
        format::Format,
        lines,
        table::{Cell, Table, Tone},
    },
    session::Session,
};

/// Lines that the server gives at once.
const PAGE: usize = 100;

#[derive(Debug, Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List lines, newest first
    List(Box<List>),
    /// Walk the whole chain and report every line that was changed, removed or moved
    Verify(Box<Verify>),
}

#[derive(Debug, Args)]
struct Verify {
    /// table, json or yaml
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: FormatArg,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    connection: Connection,
}

/// Where the log is.
#[derive(Debug, Args)]
struct Place {
    /// Read the files in this directory instead of asking the server: `audit` in its data directory
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// Read the files of the server with this data directory instead of asking it
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "directory")]
    data_dir: Option<PathBuf>,
}

impl Place {
    fn files(&self) -> Option<PathBuf> {
        self.directory.clone().or_else(|| self.data_dir.as_ref().map(|data| data.join("audit")))
    }
}

#[derive(Debug, Args)]
struct List {
    /// Only what this identity did
    #[arg(long)]
    actor: Option<String>,
    /// Only objects whose path or name contains this
    #[arg(long)]
    object: Option<String>,
    /// Only objects of this project
    #[arg(long, value_name = "PROJECT")]
    of_project: Option<String>,
    /// Only this verb: create, replace, patch, scale, delete, report, forget, freeze, export, power-on, graceful-off…
    #[arg(long)]
    verb: Option<String>,
    /// Only what came to this: done, denied, refused, failed, or begun, in front of a power call
    #[arg(long)]
    outcome: Option<String>,
    /// Only lines at or after this time (RFC 3339)
    #[arg(long)]
    since: Option<String>,
    /// Only lines at or before this time (RFC 3339)
    #[arg(long)]
    until: Option<String>,
    /// The newest this many; 0 for all
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// table, wide, json, yaml, name, jsonpath=…
    #[arg(short, long, default_value = "table", value_name = "FORMAT", add = super::complete::formats())]
    output: FormatArg,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) async fn run(tools: &Tools, audit: Audit) -> Outcome {
    match audit.what {
        What::List(list) => {
            let found = match list.place.files() {
                Some(directory) => from_files(&directory, &list)?,
                None => from_server(tools, &list).await?,
            };
            show(tools, &found, &list.output.0)
        }
        What::Verify(args) => {
            let verdict = if let Some(directory) = args.place.files() {
                verify(&directory).map_err(|error| unreadable(&directory, &error))?
            } else {
                let session = Session::open(&args.connection, tools)?;
                let request = Request::get("/api/v1/audit/verify", "audit log");
                let answer = session.client.call(request).await?.body;
                serde_json::from_value(answer).map_err(|error| {
                    Failure::new(Exit::Failure, "audit log", error.to_string())
                        .next("use the command line of the server's version")
                })?
            };
            tell(tools, &verdict, &args.output.0)
        }
    }
}

/// Walks the pages of the files.
fn from_files(directory: &Path, list: &List) -> Outcome<Vec<Value>> {
    let time = |name: &str, text: &Option<String>| -> Outcome<Option<Timestamp>> {
        text.as_deref()
            .map(|text| {
                text.parse().map_err(|_| {
                    Failure::usage(name.to_owned(), format!("{text:?} is not a time"))
                        .next("write it like 2025-10-17T10:30:00Z")
                })
            })
            .transpose()
    };
    let outcome = match list.outcome.as_deref() {
        None => None,
        Some(word) => Some(Choice::from_word(word).ok_or_else(|| {
            Failure::usage("--outcome", format!("{word:?} is none"))
                .next("use done, denied, refused, failed or begun")
        })?),
    };
    let mut query = Query {
        actor: list.actor.clone(),
        object: list.object.clone(),
        project: list.of_project.clone(),
        projects: None,
        verb: list.verb.clone(),
        outcome,
        since: time("--since", &list.since)?,
        until: time("--until", &list.until)?,
        before: None,
        limit: PAGE,
    };
    let mut found = Vec::new();
    loop {
        let (lines, next) = page(directory, &query).map_err(|error| unreadable(directory, &error))?;
        found.extend(lines.iter().map(|line| serde_json::to_value(line).unwrap_or_default()));
        if list.limit > 0 && found.len() >= list.limit {
            found.truncate(list.limit);
            return Ok(found);
        }
        query.before = next;
        if next.is_none() {
            return Ok(found);
        }
    }
}

async fn from_server(tools: &Tools, list: &List) -> Outcome<Vec<Value>> {
    let session = Session::open(&list.connection, tools)?;
    let filters = [
        ("actor", &list.actor),
        ("object", &list.object),
        ("project", &list.of_project),
        ("verb", &list.verb),
        ("outcome", &list.outcome),
        ("since", &list.since),
        ("until", &list.until),
    ];
    let mut found: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut request = Request::get("/api/v1/audit", "audit log").query("limit", PAGE.to_string());
        for (name, value) in filters {
            if let Some(value) = value {
                request = request.query(name, value);
            }
        }
        if let Some(cursor) = &cursor {
            request = request.query("cursor", cursor);
        }
        let answer = session.client.call(request).await?.body;
        found.extend(answer["lines"].as_array().cloned().unwrap_or_default());
        if list.limit > 0 && found.len() >= list.limit {
            found.truncate(list.limit);
            return Ok(found);
        }
        cursor = answer["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

fn unreadable(directory: &Path, error: &std::io::Error) -> Failure {
    let exit = if error.kind() == std::io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Failure };
    Failure::new(exit, format!("audit log in {}", directory.display()), error.to_string())
        .next("name the folder `audit` of the server's data directory with --directory")
}

fn show(tools: &Tools, found: &[Value], format: &Format) -> Outcome {
    match format {
        Format::Table | Format::Wide => {
            if found.is_empty() {
                tools.screen.note("no lines");
                return Ok(());
            }
            let wide = *format == Format::Wide;
            let mut headers = vec!["SEQ", "AGE", "ACTOR", "VERB", "OBJECT", "NAME", "OUTCOME", "STATUS"];
            if wide {
                headers.extend(["PROJECT", "REVISION", "SOURCE", "PROOF", "CHANGED", "REQUEST", "CAUSE"]);
            }
            let mut table = Table::new(headers);
            for line in found {
                table.push(row(line, tools.clock.now(), wide));
            }
            tools.screen.data(&table.render(true, tools.screen.colour, &mut Vec::new()))
        }
        Format::Name => {
            tools.screen.data(&lines(found.iter().map(|line| format!("line/{}", text_at(line, "seq")))))
        }
        other => tools.screen.data(&other.document(&json!({ "kind": "List", "items": found }), true)?),
    }
}

fn row(line: &Value, now: Timestamp, wide: bool) -> Vec<Cell> {
    let text = |path: &str| -> Cell { dash(text_at(line, path)).into() };
    let outcome = text_at(line, "outcome");
    let tone = if matches!(outcome.as_str(), "done" | "begun") { Tone::Plain } else { Tone::Bad };
    let mut row = vec![
        text("seq"),
        age::since(line.get("at"), now).into(),
        text("actor"),
        text("verb"),
        text("object"),
        text("name"),
        Cell::toned(outcome, tone),
        text("status"),
    ];
    if wide {
        let changed: Vec<&str> =
            line["changed"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        row.extend([text("project"), text("revision"), text("source"), text("mode")]);
        row.extend([Cell::from(dash(changed.join(","))), text("request_id"), text("power.cause")]);
    }
    row
}

fn tell(tools: &Tools, verdict: &Verdict, format: &Format) -> Outcome {
    let whole = verdict.findings.is_empty();
    match format {
        Format::Table | Format::Wide | Format::Name => {
            for finding in &verdict.findings {
                tools.screen.line(&format!("{}:{}: {}", finding.file, finding.line, finding.problem))?;
            }
            if whole {
                tools.screen.line(&format!(
                    "{} lines, the chain holds; head is line {}, {}",
                    verdict.lines, verdict.head_seq, verdict.head_hash
                ))?;
            }
        }
        other => {
            let document = serde_json::to_value(verdict).unwrap_or_default();
            tools.screen.data(&other.document(&document, true)?)?;
        }
    }
    if whole {
        return Ok(());
    }
    let faults = verdict.findings.len();
    Err(Failure::new(Exit::Failure, "audit log", format!("{faults} faults in {} lines", verdict.lines))
        .next("compare it with a copy that is kept elsewhere; somebody changed it"))
}
