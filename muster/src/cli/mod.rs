//! The command line over the REST API, in kubectl's manner.
//!
//! Owns what people type and see. Knows objects only as JSON and the kinds in [`kinds`]: what is valid is the
//! server's business. Data goes to standard output, everything else to standard error.

mod apply;
mod audit;
mod cancel;
mod client;
mod compare;
mod complete;
mod connect;
mod context;
mod contexts;
mod create;
mod declare;
mod delete;
mod describe;
mod doctor;
mod edit;
mod environment;
mod explain;
mod failure;
mod freeze;
mod get;
mod hosts;
mod interrupt;
mod jsonpath;
mod kinds;
mod list;
mod manifest;
mod mode;
mod print;
mod progress;
mod reference;
mod resolve;
mod scale;
mod screen;
mod session;
mod store;
pub(crate) mod suggest;
mod token;
mod wait;
mod watch;
pub(crate) mod what_if;

use std::{ffi::OsString, process::ExitCode, sync::Arc};

use clap::Subcommand;
use muster_model::Clock;

use environment::Environment;
use failure::Outcome;
use screen::Screen;
use session::Session;

pub(crate) use complete::serve as answer_shell;
pub(crate) use context::Connection;
pub(crate) use print::{table, yaml::to_string as yaml};

/// The verbs. The binary's own parser takes them in beside `serve` and the other tools.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show objects
    Get(Box<get::Get>),
    /// Show everything about objects, and what to do next
    Describe(Box<describe::Describe>),
    /// Say why: a pod, a node, a host, a pool or a decision
    Explain(Box<explain::Explain>),
    /// Say what differs between two decisions, and what made them differ
    Compare(Box<compare::Compare>),
    /// Create objects from flags or files
    Create(Box<create::Create>),
    /// Make things as files say
    Apply(Box<apply::Apply>),
    /// Show what `apply` would change; exit code 1 when there is something
    Diff(Box<apply::Diff>),
    /// Edit an object in your editor
    Edit(Box<edit::Edit>),
    /// Change fields of an object
    Patch(Box<edit::Patch>),
    /// Give a pool a number of nodes
    Scale(Box<scale::Scale>),
    /// Delete objects
    Delete(Box<delete::Delete>),
    /// Let Muster act on a cluster or a pool
    Enable(Box<mode::Mode>),
    /// Let Muster only advise on a cluster or a pool
    Disable(Box<mode::Mode>),
    /// Say how Muster reaches a cluster
    Connect(Box<connect::Connect>),
    /// Forget how Muster reaches a cluster
    Disconnect(Box<connect::Disconnect>),
    /// Register many servers from a file, with a verdict for each line
    Register(Box<hosts::Register>),
    /// Make the inventory equal to a DCIM's export
    Sync(Box<hosts::Sync>),
    /// Write servers out, as `register` and `sync` take them
    Export(Box<hosts::Export>),
    /// Ask a BMC what it is
    Discover(Box<hosts::Discover>),
    /// Set and remove labels of servers
    Label(Box<hosts::Label>),
    /// Keep the autoscaler away from servers
    Hold(Box<hosts::Hold>),
    /// End a hold
    Release(Box<hosts::Release>),
    /// Begin or end maintenance of servers
    Maintenance(Box<hosts::Maintenance>),
    /// Say that a server was seen to
    #[command(visible_alias = "ack")]
    Acknowledge(Box<hosts::Acknowledge>),
    /// Approve the keys that the BMCs of servers showed
    Approve(Box<hosts::Approve>),
    /// Switch servers by hand
    Power(Box<hosts::Power>),
    /// Withdraw the wish behind an operation on a server
    Cancel(Box<cancel::Cancel>),
    /// Show what happened to a server, or to all servers of a pool
    History(Box<hosts::History>),
    /// Give a credential a new value
    Rotate(Box<hosts::Rotate>),
    /// Stop every action at once; without --reason, show whether that is so
    Freeze(Box<freeze::Freeze>),
    /// Let Muster act again
    Unfreeze(Box<freeze::Unfreeze>),
    /// Follow changes as they happen
    Watch(Box<watch::Watch>),
    /// Wait for operations and objects
    Wait(Box<wait::Wait>),
    /// Choose servers and identities
    Config(Box<contexts::Config>),
    /// Check this set-up and the server
    Doctor(Box<doctor::Doctor>),
    /// Read and verify the audit log
    Audit(Box<audit::Audit>),
    /// Export, import and check the store
    Store(Box<store::Store>),
    /// Print the script that completes commands in your shell
    Completion(complete::Completion),
    /// Print versions
    Version(Box<doctor::Version>),
    /// Print the reference of the command line, or of the server's settings
    #[command(hide = true)]
    Reference {
        #[arg(value_enum, default_value = "cli")]
        what: reference::What,
    },
    /// A question of `simulate --live`
    #[command(skip)]
    WhatIf(Box<what_if::Ask>),
    /// Complete for kubectl
    #[command(name = "__complete", hide = true)]
    Complete(complete::Complete),
}

/// What the rim hands in: streams, time, environment, and the whole parser for completion and reference.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) screen: Screen,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) environment: Environment,
    pub(crate) command: fn() -> clap::Command,
}

/// Runs one verb to its end and prints why, if it fails.
pub(crate) async fn run(command: Command, clock: Arc<dyn Clock>, parser: fn() -> clap::Command) -> ExitCode {
    let environment = Environment::read();
    let screen = Screen::new(environment.colour);
    let tools = Tools { screen, clock, environment, command: parser };
    match dispatch(command, &tools).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.silent {
                screen.note(&failure.to_string());
            }
            ExitCode::from(failure.exit.code())
        }
    }
}

async fn dispatch(command: Command, tools: &Tools) -> Outcome {
    let open = |connection: &context::Connection| Session::open(connection, tools);
    match command {
        Command::Get(args) => get::run(&open(&args.connection)?, *args).await,
        Command::Describe(args) => describe::run(&open(&args.connection)?, *args).await,
        Command::Explain(args) => explain::run(&open(&args.connection)?, *args).await,
        Command::Compare(args) => compare::run(&open(&args.connection)?, *args).await,
        Command::Create(args) => create::run(&open(args.connection())?, *args).await,
        Command::Apply(args) => apply::run(&open(&args.connection)?, *args).await,
        Command::Diff(args) => apply::diff(&open(&args.connection)?, *args).await,
        Command::Edit(args) => edit::edit(&open(&args.connection)?, *args).await,
        Command::Patch(args) => edit::patch(&open(&args.connection)?, *args).await,
        Command::Scale(args) => scale::run(&open(&args.connection)?, *args).await,
        Command::Delete(args) => delete::run(&open(&args.connection)?, *args).await,
        Command::Enable(args) => mode::set(&open(&args.connection)?, *args, "active", "enable").await,
        Command::Disable(args) => mode::set(&open(&args.connection)?, *args, "advise", "disable").await,
        Command::Connect(args) => connect::connect(&open(&args.connection)?, *args).await,
        Command::Disconnect(args) => connect::disconnect(&open(&args.connection)?, *args).await,
        Command::Register(args) => hosts::register(&open(&args.connection)?, *args).await,
        Command::Sync(args) => hosts::sync(&open(&args.connection)?, *args).await,
        Command::Export(args) => hosts::export(&open(&args.connection)?, *args).await,
        Command::Discover(args) => hosts::discover(&open(&args.connection)?, *args).await,
        Command::Label(args) => hosts::label(&open(&args.which.connection)?, *args).await,
        Command::Hold(args) => hosts::hold(&open(&args.which.connection)?, *args).await,
        Command::Release(args) => hosts::release(&open(&args.which.connection)?, *args).await,
        Command::Maintenance(args) => hosts::maintenance(&open(&args.which.connection)?, *args).await,
        Command::Acknowledge(args) => hosts::acknowledge(&open(&args.which.connection)?, *args).await,
        Command::Approve(args) => hosts::approve(&open(&args.which.connection)?, *args).await,
        Command::Power(args) => hosts::power(&open(&args.which.connection)?, *args).await,
        Command::Cancel(args) => cancel::run(&open(&args.connection)?, *args).await,
        Command::History(args) => hosts::history(&open(&args.connection)?, *args).await,
        Command::Rotate(args) => hosts::rotate(&open(&args.connection)?, *args).await,
        Command::Freeze(args) => freeze::freeze(&open(&args.connection)?, *args).await,
        Command::Unfreeze(args) => freeze::unfreeze(&open(&args.connection)?, *args).await,
        Command::Audit(args) => audit::run(tools, *args).await,
        Command::Watch(args) => watch::run(&open(&args.connection)?, *args).await,
        Command::Wait(args) => wait::run(&open(&args.connection)?, *args).await,
        Command::Config(args) => contexts::run(tools, *args),
        Command::Doctor(args) => doctor::run(tools, *args).await,
        Command::Store(args) => store::run(tools, *args).await,
        Command::Completion(args) => complete::script(tools, &args),
        Command::Version(args) => doctor::version(tools, *args).await,
        Command::Reference { what: reference::What::Cli } => {
            tools.screen.data(&reference::markdown((tools.command)()))
        }
        Command::Reference { what: reference::What::Configuration } => {
            tools.screen.data(&crate::config::markdown())
        }
        Command::Reference { what: reference::What::Definitions } => {
            tools.screen.data(&reference::definitions())
        }
        Command::WhatIf(ask) => what_if::run(&open(&ask.connection)?, *ask).await,
        Command::Complete(args) => complete::answer_kubectl(tools, &args),
    }
}

/// Flags that say which server to ask and as whom. kubectl's users put them before the verb; they mean the same behind it.
const CONNECTION_FLAGS: [&str; 12] = [
    "--server",
    "-s",
    "--context",
    "--project",
    "-p",
    "--token-file",
    "--as-email",
    "--ca-file",
    "--client-cert",
    "--client-key",
    "--client-config",
    "--request-timeout",
];

/// The words as the parser wants them: connection flags that stand before the verb go behind everything else.
pub(crate) fn reorder(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let mut moved = Vec::new();
    while words.len() > 1 {
        let first = words[1].to_string_lossy().into_owned();
        let name = first.split('=').next().unwrap_or_default();
        if !CONNECTION_FLAGS.contains(&name) {
            break;
        }
        moved.push(words.remove(1));
        if !first.contains('=') && words.len() > 1 {
            moved.push(words.remove(1));
        }
    }
    context_of_kubeconfig(&mut words);
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.splice(end..end, moved);
    words
}

/// Beside `--kubeconfig`, `--context` is that file's: kubectl's users would be surprised by anything else.
fn context_of_kubeconfig(words: &mut [OsString]) {
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    let verb = words.get(1).map(text).unwrap_or_default();
    let given = words.iter().any(|word| text(word).split('=').next() == Some("--kubeconfig"));
    if !given || !matches!(verb.as_str(), "create" | "connect") {
        return;
    }
    for word in &mut words[2..] {
        match text(word).strip_prefix("--context") {
            Some(rest) if rest.is_empty() || rest.starts_with('=') => {
                *word = format!("--kube-context{rest}").into();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::failure::{Exit, Failure};

    #[test]
    fn connection_flags_may_stand_before_the_verb() {
        #[track_caller]
        fn check(words: &str, expected: &str) {
            let found = reorder(words.split(' ').map(OsString::from));
            let found: Vec<_> = found.iter().map(|word| word.to_string_lossy()).collect();
            assert_eq!(found.join(" "), expected);
        }
        check("muster get pools", "muster get pools");
        check("muster --context prod get pools", "muster get pools --context prod");
        check(
            "muster --server=http://x -p red get pools -o json",
            "muster get pools -o json --server=http://x -p red",
        );
        check("muster -s x delete pool -- -odd", "muster delete pool -s x -- -odd");
        check("muster --help", "muster --help");
        check(
            "muster --context prod create cluster a --kubeconfig f --context lab",
            "muster create cluster a --kubeconfig f --kube-context lab --context prod",
        );
        check("muster create cluster a --context prod", "muster create cluster a --context prod");
    }

    #[test]
    fn every_exit_has_its_own_code() {
        let mut codes: Vec<u8> = Exit::ALL.iter().map(|(exit, _)| exit.code()).collect();
        codes.dedup();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 130]);
        assert_eq!(Failure::silent(Exit::Ok).exit.code(), 0);
    }
}
