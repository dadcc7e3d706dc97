//! `muster apply` and `muster diff`: files say how things shall be.

use std::{collections::BTreeSet, fmt::Write as _};

use clap::Args;
use serde_json::Value;

use super::{
    context::Connection,
    declare::{self, Done, DryRun},
    failure::{Exit, Failure, Outcome},
    get::{FormatArg, with_kind},
    kinds::{Kind, Scope, text_at},
    manifest::{self, Document, Files},
    print::{
        format::{self, Format},
        lines, unified, yaml,
    },
    session::Session,
};

#[derive(Debug, Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    files: Files,
    /// Whether to make the change or have it checked only
    #[arg(long, value_enum, default_value = "none", value_name = "WHERE")]
    dry_run: DryRun,
    /// Print the objects instead of a line for each: json, yaml, name, jsonpath=…
    #[arg(short, long, value_name = "FORMAT", add = super::complete::formats())]
    output: Option<FormatArg>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Args)]
pub(crate) struct Diff {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// What is printed about changes: a line for each, or the objects together at the end.
#[derive(Debug)]
pub(crate) struct Printer<'a> {
    session: &'a Session,
    format: Option<Format>,
    dry_run: DryRun,
    objects: Vec<Value>,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(session: &'a Session, format: Option<FormatArg>, dry_run: DryRun) -> Self {
        Self {
            session,
            format: format.map(|arg| arg.0).filter(|format| !format.is_table()),
            dry_run,
            objects: Vec::new(),
        }
    }

    pub(crate) fn done(&mut self, kind: &Kind, object: &Value, word: &str) -> Outcome {
        let name = self.session.full_name(kind, object);
        let suffix = if self.dry_run == DryRun::Server { " (server dry run)" } else { "" };
        match &self.format {
            None => self.session.screen.line(&format!("{}/{name} {word}{suffix}", kind.singular)),
            Some(Format::Name) => self.session.screen.line(&format!("{}/{name}", kind.singular)),
            // What was only tried has no id that means anything: it is shown as one would write it.
            Some(_) if self.dry_run == DryRun::Server => {
                self.objects.push(declare::as_document(self.session, kind, object));
                Ok(())
            }
            Some(_) => {
                self.objects.push(with_kind(kind, object.clone()));
                Ok(())
            }
        }
    }

    /// Prints what was collected: one object bare, several as one list.
    pub(crate) fn finish(&mut self) -> Outcome {
        let Some(format) = &self.format else { return Ok(()) };
        let mut objects = std::mem::take(&mut self.objects);
        let document = match objects.len() {
            0 => return Ok(()),
            1 => objects.remove(0),
            _ => format::list(objects, None),
        };
        self.session.screen.data(&format.document(&document, true)?)
    }
}

pub(crate) async fn run(session: &Session, apply: Apply) -> Outcome {
    let documents = manifest::read(&apply.files)?;
    let mut printer = Printer::new(session, apply.output, apply.dry_run);
    let mut pending = Pending::new(apply.dry_run);
    let mut failures = Failures::new(session);
    for document in documents {
        if let Some(line) = pending.unchecked(&document) {
            session.screen.note(&line);
            continue;
        }
        let outcome = async {
            let wanted = declare::prepare(session, document).await?;
            let (done, object) = wanted.apply(session, apply.dry_run).await?;
            pending.note(wanted.kind, done, &object);
            session.know_clusters(wanted.kind, std::slice::from_ref(&object)).await?;
            printer.done(wanted.kind, &object, done.word())
        };
        failures.take(outcome.await)?;
    }
    printer.finish()?;
    failures.end()
}

/// Clusters that a dry run would have created: their pools cannot be checked by the server.
#[derive(Debug)]
struct Pending {
    dry_run: DryRun,
    clusters: BTreeSet<String>,
}

impl Pending {
    fn new(dry_run: DryRun) -> Self {
        Self { dry_run, clusters: BTreeSet::new() }
    }

    fn note(&mut self, kind: &Kind, done: Done, object: &Value) {
        if self.dry_run == DryRun::Server && kind.scope == Scope::Project && done == Done::Created {
            self.clusters.insert(text_at(object, "name"));
        }
    }

    fn unchecked(&self, document: &Document) -> Option<String> {
        let cluster = document.cluster.as_ref().filter(|name| self.clusters.contains(*name))?;
        let name = document.body.get("name").and_then(Value::as_str).unwrap_or_default();
        Some(format!(
            "{}/{cluster}/{name} not checked: its cluster would be created by the same files",
            document.kind.singular
        ))
    }
}

/// Failures of several objects: all are printed, the last one decides how the command ends.
#[derive(Debug)]
pub(crate) struct Failures<'a> {
    session: &'a Session,
    last: Option<Failure>,
}

impl<'a> Failures<'a> {
    pub(crate) fn new(session: &'a Session) -> Self {
        Self { session, last: None }
    }

    /// Keeps a failure about one object; what concerns all of them ends the command at once.
    pub(crate) fn take(&mut self, outcome: Outcome) -> Outcome {
        match outcome {
            Ok(()) => Ok(()),
            Err(failure)
                if failure.silent || matches!(failure.exit, Exit::Unreachable | Exit::Interrupted) =>
            {
                Err(failure)
            }
            Err(failure) => {
                if let Some(earlier) = self.last.replace(failure) {
                    self.session.screen.note(&earlier.to_string());
                }
                Ok(())
            }
        }
    }

    pub(crate) fn end(self) -> Outcome {
        self.last.map_or(Ok(()), Err)
    }
}

pub(crate) async fn diff(session: &Session, diff: Diff) -> Outcome {
    let outcome = differences(session, &diff.files).await;
    match outcome {
        Ok(false) => Ok(()),
        Ok(true) => Err(Failure::silent(Exit::Failure)),
        // 1 means "there is a difference" here, so that a refusal needs another code.
        Err(failure) if failure.exit == Exit::Failure && !failure.silent => {
            Err(Failure { exit: Exit::Usage, ..failure })
        }
        Err(failure) => Err(failure),
    }
}

async fn differences(session: &Session, files: &Files) -> Outcome<bool> {
    let mut different = false;
    let mut pending = Pending::new(DryRun::Server);
    let mut failures = Failures::new(session);
    for document in manifest::read(files)? {
        let text = if pending.unchecked(&document).is_some() {
            Ok(Some(of_unchecked(&document)))
        } else {
            of_document(session, document, &mut pending).await
        };
        match text {
            Ok(Some(text)) => {
                different = true;
                session.screen.data(&coloured(&text, session.screen.colour))?;
            }
            Ok(None) => {}
            Err(failure) => failures.take(Err(failure))?,
        }
    }
    failures.end()?;
    Ok(different)
}

async fn of_document(
    session: &Session,
    document: Document,
    pending: &mut Pending,
) -> Outcome<Option<String>> {
    let wanted = declare::prepare(session, document).await?;
    let (done, after) = wanted.apply(session, DryRun::Server).await?;
    pending.note(wanted.kind, done, &after);
    session.know_clusters(wanted.kind, std::slice::from_ref(&after)).await?;
    let name = format!("{}/{}", wanted.kind.singular, session.full_name(wanted.kind, &after));
    let shown = |object: &Value| yaml::to_string(&declare::as_document(session, wanted.kind, object));
    Ok(match &wanted.current {
        Some(current) => {
            let (server, file) = (format!("server/{name}"), format!("file/{name}"));
            unified::diff(&server, &shown(current), &file, &shown(&after)).map(|text| text + &rolling(&after))
        }
        None => unified::diff("/dev/null", "", &format!("file/{name}"), &shown(&after)),
    })
}

/// What the change does to nodes that exist, as comments below the difference.
fn rolling(after: &Value) -> String {
    let changes = after["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let paths = |effect: &str| -> Vec<String> {
        changes
            .iter()
            .filter(|change| change["effect"] == effect)
            .map(|change| text_at(change, "path"))
            .collect()
    };
    let mut text = String::new();
    for (effect, words) in [("rolls", "replaces nodes"), ("in-place", "applies in place")] {
        let paths = paths(effect);
        if !paths.is_empty() {
            let _ = writeln!(text, "# {words}: {}", paths.join(", "));
        }
    }
    text
}

/// A pool of a cluster that does not exist yet is all new.
fn of_unchecked(document: &Document) -> String {
    let mut body = document.body.clone();
    body.insert("kind".to_owned(), document.kind.kind.into());
    body.insert("cluster".to_owned(), document.cluster.clone().into());
    let name = format!(
        "{}/{}/{}",
        document.kind.singular,
        document.cluster.as_deref().unwrap_or_default(),
        body["name"].as_str().unwrap_or_default()
    );
    unified::diff("/dev/null", "", &format!("file/{name}"), &yaml::to_string(&Value::Object(body)))
        .unwrap_or_default()
}

fn coloured(text: &str, colour: bool) -> String {
    if !colour {
        return text.to_owned();
    }
    let paint = |line: &str| match line.as_bytes().first() {
        Some(b'+') => format!("\u{1b}[32m{line}\u{1b}[0m"),
        Some(b'-') => format!("\u{1b}[31m{line}\u{1b}[0m"),
        Some(b'@') => format!("\u{1b}[36m{line}\u{1b}[0m"),
        _ => line.to_owned(),
    };
    lines(text.lines().map(paint))
}
