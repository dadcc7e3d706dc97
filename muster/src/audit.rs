//! `muster audit`: reading the log that every write leaves behind.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{Parser, Subcommand};
use muster_control::audit::{Query, list, verify};

use crate::output;

#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Directory of the audit log: `audit` in the server's data directory
    #[arg(long, global = true, default_value = "muster-data/audit")]
    directory: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List lines, oldest first, as JSON
    List {
        /// Only what this identity did
        #[arg(long)]
        actor: Option<String>,
        /// Only objects whose path or name contains this
        #[arg(long)]
        object: Option<String>,
        /// Only objects of this project
        #[arg(long)]
        project: Option<String>,
        /// Only lines at or after this time (RFC 3339)
        #[arg(long)]
        since: Option<String>,
        /// The newest this many; 0 for all
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Walk the whole chain and report every line that was changed, removed or moved
    Verify,
}

pub(crate) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let directory = &args.directory;
    let wrong = || format!("cannot read the audit log in {}; is --directory right?", directory.display());
    match &args.command {
        Command::List { actor, object, project, since, limit } => {
            let since = since.as_deref().map(str::parse).transpose()?;
            let query = Query {
                actor: actor.clone(),
                object: object.clone(),
                project: project.clone(),
                since,
                limit: *limit,
            };
            for line in list(directory, &query).with_context(wrong)? {
                if !output::line(&serde_json::to_string(&line)?) {
                    break;
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Verify => {
            let verdict = verify(directory).with_context(wrong)?;
            for finding in &verdict.findings {
                output::line(&format!("{}:{}: {}", finding.file, finding.line, finding.problem));
            }
            let (lines, seq, hash) = (verdict.lines, verdict.head_seq, &verdict.head_hash);
            if verdict.findings.is_empty() {
                output::line(&format!("{lines} lines, the chain holds; head is line {seq}, {hash}"));
                Ok(ExitCode::SUCCESS)
            } else {
                output::error(&format!("error: {} faults in {lines} lines", verdict.findings.len()));
                Ok(ExitCode::FAILURE)
            }
        }
    }
}
