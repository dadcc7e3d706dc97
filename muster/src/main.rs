//! Muster: one binary that serves, and the command line that talks to it.

mod audit;
mod clock;
mod config;
mod logs;
mod output;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    /// Look at the server's settings
    Config(config::Args),
    /// Read and verify the audit log
    Audit(audit::Args),
}

fn main() -> ExitCode {
    // One TLS provider for everything in the process; it fails only when one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::main(args),
        Command::Config(args) => config::main(&args),
        Command::Audit(args) => audit::main(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            output::error(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
