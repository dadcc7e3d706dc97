//! `muster sim`: stories and fuzzed days of the simulated world, with the production loops in it.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, bail};
use clap::{Args as ClapArgs, Subcommand};
use muster_model::{Clock as _, Duration};
use muster_sim::world::{
    fleet::{self, Fleet},
    fuzz::{self, Day},
    process::Manner,
    script,
    trouble::Class,
};

use crate::{clock::SystemClock, output};

/// Run the production loops on a simulated world: machines, BMCs, a cluster, and everything that goes wrong
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a story and print what happened
    Run(Run),
    /// Live through days full of trouble, made from seeds, and check the invariants
    Fuzz(Fuzz),
}

#[derive(Debug, ClapArgs)]
struct Run {
    /// The story: see docs/reference/simulation.md
    script: PathBuf,
}

#[derive(Debug, ClapArgs)]
struct Fuzz {
    /// Seeds from A up to, but not including, B
    #[arg(long, value_name = "A..B", default_value = "0..20")]
    seeds: String,
    /// Simulated hours of each
    #[arg(long, default_value_t = 24)]
    hours: u64,
    /// Only these kinds of trouble, and more of them: see docs/reference/simulation.md
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    focus: Vec<Class>,
    /// Hosts of each site, at most 250; most days have 3 to 12 unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=250))]
    hosts: Option<u64>,
    /// Threads; as many as the machine has cores unless given
    #[arg(long)]
    threads: Option<usize>,
    /// Print every line of the trace of each day
    #[arg(long)]
    trace: bool,
    /// Go on after a broken invariant
    #[arg(long)]
    keep_going: bool,
    /// Renew the leader's lease as often as in production; slower
    #[arg(long)]
    exact: bool,
}

pub(crate) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Run(run) => story(run),
        Command::Fuzz(one) => days(one),
    }
}

fn story(run: &Run) -> anyhow::Result<ExitCode> {
    let text = std::fs::read_to_string(&run.script)
        .with_context(|| format!("cannot read the story {}", run.script.display()))?;
    let (told, result) = fleet::on_one_thread(script::run(&text, fuzz::exact()));
    for line in told.lines() {
        output::line(line);
    }
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => bail!("{}: {error}", run.script.display()),
    }
}

fn days(one: &Fuzz) -> anyhow::Result<ExitCode> {
    let (first, end) = range(&one.seeds)?;
    if one.hours < 3 {
        bail!("--hours must be at least 3: a day needs time to come to rest; found {}", one.hours);
    }
    let length = Duration::from_hours(one.hours);
    let manner = if one.exact { fuzz::exact() } else { fuzz::quick() };
    if one.trace {
        return traced(first..end, length, &one.focus, one.hosts, &manner);
    }
    let threads =
        one.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let (focus, size, lived) = (one.focus.clone(), one.hosts, manner.clone());
    let fleet = Fleet { first, end, length, focus, size, threads, manner, stop_at_first: !one.keep_going };
    let clock = SystemClock::new();
    let done = AtomicU64::new(0);
    let result = fleet::live(&fleet, &|outcome| {
        let count = done.fetch_add(1, Ordering::Relaxed) + 1;
        for violation in &outcome.violations {
            output::line(&format!(
                "seed {}: {} after {}: {}\n  repeat it with: {}",
                outcome.seed,
                violation.row,
                violation.at,
                violation.text,
                Day::full_of(outcome.seed, length, &one.focus, size).command(&lived)
            ));
        }
        if count.is_multiple_of(100) {
            output::error(&format!("{count} days in {}", clock.monotonic()));
        }
    });
    for (seed, error) in &result.errors {
        output::line(&format!("seed {seed}: {error}"));
    }
    let broken = result.outcomes.iter().filter(|outcome| !outcome.violations.is_empty()).count();
    let sum = |count: &dyn Fn(&fuzz::Outcome) -> u64| result.outcomes.iter().map(count).sum::<u64>();
    let digest = result.outcomes.iter().fold(0_u64, |all, outcome| {
        all.rotate_left(7) ^ u64::from_str_radix(&outcome.digest, 16).unwrap_or_default()
    });
    output::line(&format!(
        "{} days of {} h in {} on {threads} threads: {} hosts, {} power-ons, {} power-offs, {} evictions, {} broken; digest {digest:016x}",
        result.outcomes.len(),
        one.hours,
        clock.monotonic(),
        sum(&|outcome| outcome.hosts as u64),
        sum(&|outcome| outcome.power_ons as u64),
        sum(&|outcome| outcome.power_offs as u64),
        sum(&|outcome| outcome.evictions),
        broken,
    ));
    Ok(if broken == 0 && result.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn traced(
    seeds: std::ops::Range<u64>,
    length: Duration,
    focus: &[Class],
    size: Option<u64>,
    manner: &Manner,
) -> anyhow::Result<ExitCode> {
    let mut broken = false;
    for seed in seeds {
        let day = Day::full_of(seed, length, focus, size);
        let (outcome, lines) = fleet::on_one_thread(fuzz::live(&day, manner, true))?;
        for line in lines {
            output::line(&line);
        }
        output::line(&format!(
            "seed {seed}: digest {}, {} violations",
            outcome.digest,
            outcome.violations.len()
        ));
        broken |= !outcome.violations.is_empty();
    }
    Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// `A..B`, or one seed.
fn range(text: &str) -> anyhow::Result<(u64, u64)> {
    let wrong = || format!("--seeds takes A..B or one number, found {text:?}");
    let number = |text: &str| text.trim().parse::<u64>().with_context(wrong);
    let Some((first, end)) = text.split_once("..") else {
        let one = number(text)?;
        return Ok((one, one.saturating_add(1)));
    };
    let (first, end) = (number(first)?, number(end)?);
    if first >= end {
        bail!("--seeds {text}: the second number must be larger than the first");
    }
    Ok((first, end))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }

    /// What is printed for a broken day lives the same day in the same manner again.
    #[test]
    fn the_command_of_a_day_is_understood_as_that_day() {
        #[track_caller]
        fn check(focus: &[Class], size: Option<u64>, manner: &Manner) {
            let day = Day::full_of(41, Duration::from_hours(6), focus, size);
            let command = day.command(manner);
            let words = command.strip_prefix("muster ").unwrap().split(' ');
            let Command::Fuzz(read) = Line::try_parse_from(words).unwrap().command else {
                panic!("{command} runs a story")
            };
            assert_eq!(range(&read.seeds).unwrap(), (41, 42), "{command}");
            assert_eq!((read.hours, read.focus, read.hosts), (6, focus.to_vec(), size), "{command}");
            assert_eq!(read.exact, manner.lease_factor == 1, "{command}");
        }
        check(&[], None, &fuzz::quick());
        check(&[], None, &fuzz::exact());
        check(&[Class::Views, Class::Drains], Some(5), &fuzz::quick());
        check(&[Class::Views, Class::Drains], Some(5), &fuzz::exact());
    }
}
