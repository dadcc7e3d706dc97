//! Muster: one binary that serves, and the command line that talks to it.

mod agent;
mod bench;
mod cli;
mod clock;
mod config;
mod demo;
mod emulate;
mod limits;
mod logs;
mod manifests;
mod output;
mod serve;
mod sim;
mod simulate;

use std::{ffi::OsString, path::Path, process::ExitCode, sync::Arc};

use clap::{CommandFactory, FromArgMatches as _, Parser, Subcommand};

/// A list page is put together by one thread and freed by another. What glibc keeps of that in an arena for each thread
/// comes to half of the memory of a server that has been listing for a while.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(name = "muster", version, about = "Runs Kubernetes node pools, and can say why")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API
    Serve(serve::Args),
    Agent(agent::Args),
    Demo(demo::Args),
    Simulate(Box<simulate::Args>),
    Sim(sim::Args),
    /// Measure Muster on this machine, against its bars
    Bench(bench::Args),
    Emulate(emulate::Args),
    Manifests(Box<manifests::Args>),
    #[command(flatten)]
    Client(cli::Command),
}

fn main() -> ExitCode {
    cli::answer_shell(Cli::command);
    // One TLS provider for everything in the process; it fails only when one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let result = match read(cli::reorder(std::env::args_os())).command {
        Command::Serve(args) => serve::main(args),
        Command::Agent(args) => agent::main(&args),
        Command::Demo(args) => demo::main(&args),
        Command::Simulate(args) if args.is_live() => client(cli::Command::WhatIf(Box::new(args.ask()))),
        Command::Simulate(args) => {
            Ok(simulate::run(&args, &mut std::io::stdout().lock(), &mut std::io::stderr().lock()).into())
        }
        Command::Sim(args) => sim::main(&args),
        Command::Bench(args) => bench::main(&args),
        Command::Emulate(args) => emulate::main(&args),
        Command::Manifests(args) => manifests::main(&args),
        Command::Client(command) => client(command),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            output::error(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Reads the words. Usage calls the program what people have typed: kubectl finds its plugins under a longer name.
fn read(words: Vec<OsString>) -> Cli {
    let file = words.first().and_then(|path| Path::new(path).file_name()).unwrap_or_default();
    let plugin = file.to_string_lossy().starts_with("kubectl");
    let command = Cli::command().bin_name(if plugin { "kubectl muster" } else { "muster" });
    let matches = command.get_matches_from(words);
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// A verb that talks to a server; one thread is enough for that.
fn client(command: cli::Command) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(cli::run(command, Arc::new(clock::SystemClock::new()), Cli::command)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parser_is_sound() {
        Cli::command().debug_assert();
    }
}
