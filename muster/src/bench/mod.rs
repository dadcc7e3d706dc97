//! `muster bench`: measures Muster on this machine and holds what it finds against the bars.
//!
//! Owns how a benchmark is asked for and how its figures are shown; each benchmark is a module beside this one.
//! To add one: a struct of its own flags that implements [`Bench`], and a line in [`Which`]. Nothing here is run by
//! the tests: a test never asserts a duration.

mod api;
mod engine;
mod fleet;
mod machine;
mod measure;
mod report;
mod time;

use std::process::ExitCode;

use anyhow::bail;
use clap::{Subcommand, ValueEnum};

use crate::{cli::suggest, output};

pub(crate) use measure::{Bar, Measure};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    which: Which,
    /// Only this case; may be given several times
    #[arg(long = "case", value_name = "NAME", global = true)]
    cases: Vec<String>,
    /// Measure so many times; the median counts, the best and the worst are shown beside it
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000), global = true)]
    repeat: u32,
    #[arg(short, long, value_enum, default_value_t = Output::Table, global = true)]
    output: Output,
    /// Fail with exit code 1 when a bar is missed
    #[arg(long, global = true)]
    check: bool,
    /// List the cases instead of running them
    #[arg(long, global = true)]
    list: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// The benchmarks there are.
#[derive(Debug, Subcommand)]
enum Which {
    Api(api::Args),
    Engine(engine::Args),
    Fleet(fleet::Args),
}

impl Which {
    fn bench(&self) -> &dyn Bench {
        match self {
            Self::Api(args) => args,
            Self::Engine(args) => args,
            Self::Fleet(args) => args,
        }
    }
}

/// One case of a benchmark: what `--case` takes, and what it measures in a few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
}

/// What a benchmark is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// Names of cases, each one of [`Bench::cases`] and in that order.
    pub(crate) cases: Vec<&'static str>,
    /// How often each measure is taken; at least once.
    pub(crate) repeat: u32,
}

impl Request {
    pub(crate) fn wants(&self, case: &str) -> bool {
        self.cases.contains(&case)
    }
}

/// One benchmark: a set of cases that are set up and measured together.
pub(crate) trait Bench {
    /// The word behind `muster bench`.
    fn name(&self) -> &'static str;
    /// Every case, in the order in which they are run and shown.
    fn cases(&self) -> Vec<Case>;
    /// Measures what is asked. A missed bar is a result, not an error; an error means that nothing was measured.
    /// Progress goes to standard error, through [`note`].
    fn run(&self, request: &Request) -> anyhow::Result<Vec<Measure>>;
}

/// A line of progress for who waits.
pub(crate) fn note(text: &str) {
    output::error(text);
}

pub(crate) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let bench = args.which.bench();
    if args.list {
        for Case { name, about } in bench.cases() {
            output::line(&format!("{name:<18} {about}"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let request = Request { cases: select(bench, &args.cases)?, repeat: args.repeat };
    let report = report::Report::new(bench.name(), bench.run(&request)?);
    let text = match args.output {
        Output::Table => report.table(),
        Output::Json => serde_json::to_string_pretty(&report)?,
    };
    output::line(text.trim_end());
    Ok(if args.check && report.missed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The cases that are meant, all of them when none is named.
fn select(bench: &dyn Bench, asked: &[String]) -> anyhow::Result<Vec<&'static str>> {
    let known: Vec<&'static str> = bench.cases().iter().map(|case| case.name).collect();
    for name in asked {
        if !known.contains(&name.as_str()) {
            let near = suggest::nearest(name, known.iter().map(|&known| known.to_owned()));
            let hint = near.map_or_else(
                || format!("it has {}", known.join(", ")),
                |near| format!("did you mean {near}?"),
            );
            bail!("bench {} has no case {name:?}; {hint}", bench.name());
        }
    }
    Ok(known.into_iter().filter(|name| asked.is_empty() || asked.iter().any(|asked| asked == name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Two;

    impl Bench for Two {
        fn name(&self) -> &'static str {
            "two"
        }

        fn cases(&self) -> Vec<Case> {
            vec![Case { name: "first", about: "" }, Case { name: "second", about: "" }]
        }

        fn run(&self, _: &Request) -> anyhow::Result<Vec<Measure>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn cases_are_chosen_by_name_and_run_in_their_own_order() {
        #[track_caller]
        fn check(asked: &[&str], expected: Result<&[&str], &str>) {
            let asked: Vec<String> = asked.iter().map(|&name| name.to_owned()).collect();
            match (select(&Two, &asked), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected),
                (found, _) => panic!("{found:?}"),
            }
        }
        check(&[], Ok(&["first", "second"]));
        check(&["second"], Ok(&["second"]));
        check(&["second", "first"], Ok(&["first", "second"]));
        check(&["fisrt"], Err("bench two has no case \"fisrt\"; did you mean first?"));
        check(&["other"], Err("bench two has no case \"other\"; it has first, second"));
    }
}
