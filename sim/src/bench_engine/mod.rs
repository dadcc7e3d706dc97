//! Benches of the planner: cases with their bars, lower bounds, a table or JSON.
//!
//! Times are of the whole decision from raw pods (classes, plan and reasons included), without reading and
//! expanding files. On a shared machine the minimum says most; the median is printed beside it.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "reports, bounds and generated cases, not decisions"
)]

pub mod bound;
mod cases;
mod dlrm;
mod down;
mod large;
mod measure;
mod table;

use std::{io::Write, path::PathBuf, process::ExitCode};

pub use cases::{Case, names};
pub use measure::{Outcome, measure};

const USAGE: &str =
    "usage: bench-engine [--case NAME]... [--repeat N] [-o table|json] [--no-audit] [--dlrm CSV]";

/// What to run and how to print it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub cases: Vec<String>,
    pub repeat: usize,
    pub json: bool,
    pub audit: bool,
    pub dlrm: Option<PathBuf>,
}

impl Options {
    /// Reads the command line.
    pub fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { cases: Vec::new(), repeat: 5, json: false, audit: true, dlrm: None };
        let mut args = args;
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"));
            match arg.as_str() {
                "--case" => options.cases.push(value()?),
                "--repeat" => {
                    let text = value()?;
                    options.repeat =
                        text.parse().map_err(|_| format!("--repeat takes a number, not {text:?}"))?;
                }
                "-o" => options.json = value()? == "json",
                "--no-audit" => options.audit = false,
                "--dlrm" => options.dlrm = Some(value()?.into()),
                _ => return Err(format!("unknown argument {arg:?}\n{USAGE}")),
            }
        }
        options.repeat = options.repeat.max(1);
        Ok(options)
    }
}

/// Runs the benches that the arguments ask for and prints what was measured.
pub fn run(args: impl Iterator<Item = String>) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(text) => {
            let _ = writeln!(std::io::stderr(), "{text}");
            return ExitCode::from(2);
        }
    };
    let outcomes = match outcomes(&options) {
        Ok(outcomes) => outcomes,
        Err(text) => {
            let _ = writeln!(std::io::stderr(), "{text}");
            return ExitCode::from(1);
        }
    };
    let text = if options.json {
        serde_json::to_string_pretty(&outcomes).unwrap_or_default() + "\n"
    } else {
        table::render(&outcomes)
    };
    // A reader that went away is no failure of the bench.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Runs what is asked for. Memory comes first: what a process once had does not show what it needs.
pub fn outcomes(options: &Options) -> Result<Vec<Outcome>, String> {
    let mut outcomes = large::run(options)?;
    for case in cases::select(options) {
        outcomes.push(measure(&case?, options)?);
    }
    outcomes.extend(down::run(options)?);
    Ok(outcomes)
}

/// Names of all cases, in the order in which they are run.
pub fn all_names() -> Vec<&'static str> {
    large::names().chain(names()).chain(down::names()).chain([DLRM]).collect()
}

/// The case that needs a trace.
pub const DLRM: &str = "dlrm";
