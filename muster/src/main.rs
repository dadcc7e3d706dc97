//! Muster: one binary that serves, and the command line that talks to it.

mod cli;
mod clock;

use std::{process::ExitCode, sync::Arc};

use clap::{CommandFactory, Parser};

#[derive(Debug, Parser)]
#[command(name = "muster", version, about = "Runs Kubernetes node pools", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: cli::Command,
}

fn main() -> ExitCode {
    cli::answer_shell(Cli::command);
    let parsed = Cli::parse_from(cli::reorder(std::env::args_os()));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime needs threads, which every system has");
    runtime.block_on(cli::run(parsed.command, Arc::new(clock::SystemClock::new()), Cli::command))
}
