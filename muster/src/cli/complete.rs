//! Completion in the shell: kinds, formats and contexts from here, names from the server.
//!
//! The shell starts this binary again for every press of the key, so that a slow or absent server must not
//! be felt: it gets a second, and silence means no names.

use std::fmt::Write as _;

use std::{ffi::OsStr, path::PathBuf, sync::Arc};

use clap::{Args, Parser, ValueEnum};
use clap_complete::{
    engine::{ArgValueCompleter, CompletionCandidate, PathCompleter},
    env::{CompleteEnv, Shells},
};
use muster_model::{Clock, Duration};

use super::{
    Tools,
    context::{Connection, File},
    environment::Environment,
    failure::{Exit, Failure, Outcome},
    kinds::{self, KINDS, Kind, Scope},
    list::{self, Selection},
    print::format::FORMATS,
    screen::Screen,
    session::Session,
};

/// Longest time a key press may wait for the server.
const PATIENCE: Duration = Duration::from_secs(1);
/// The variable by which the shell's script asks for candidates.
const VARIABLE: &str = "MUSTER_COMPLETE";
/// cobra's word for "these are all, offer no files", which kubectl expects at the end.
const NO_FILES: &str = ":4";

#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// The shell, or kubectl for `kubectl muster`
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Elvish,
    Powershell,
    /// A script to put on the PATH as kubectl_complete-muster
    Kubectl,
}

/// Words of a command line to complete, the last one being typed.
#[derive(Debug, Args)]
pub(crate) struct Complete {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Answers the shell and ends the process, when it was the shell that asked.
pub(crate) fn serve(command: fn() -> clap::Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).bin("muster").complete();
}

/// `muster completion SHELL`: the script to source.
pub(crate) fn script(tools: &Tools, completion: &Completion) -> Outcome {
    let name = match completion.shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
        Shell::Elvish => "elvish",
        Shell::Powershell => "powershell",
        Shell::Kubectl => {
            return tools.screen.data("#!/bin/sh\n# Put this on the PATH as kubectl_complete-muster and make it executable.\nexec muster __complete \"$@\"\n");
        }
    };
    let shells = Shells::builtins();
    let shell = shells.completer(name).ok_or_else(|| {
        Failure::usage(format!("shell {name}"), "it is not supported").next("use bash, zsh or fish")
    })?;
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, "muster", "muster", "muster", &mut script)
        .map_err(|error| Failure::new(Exit::Failure, format!("shell {name}"), error.to_string()))?;
    tools.screen.data(&String::from_utf8_lossy(&script))
}

/// `muster __complete WORDS`: candidates in the form that kubectl expects of its plugins.
pub(crate) fn answer_kubectl(tools: &Tools, complete: &Complete) -> Outcome {
    let mut words: Vec<std::ffi::OsString> = vec!["muster".into()];
    words.extend(complete.words.iter().map(Into::into));
    let last = words.len() - 1;
    let found =
        clap_complete::engine::complete(&mut (tools.command)(), words, last, None).unwrap_or_default();
    let mut out = String::new();
    for candidate in found {
        let value = candidate.get_value().to_string_lossy().into_owned();
        let help = candidate.get_help().map(|help| format!("\t{help}")).unwrap_or_default();
        let _ = writeln!(out, "{value}{}", help.lines().next().unwrap_or_default());
    }
    tools.screen.data(&format!("{out}{NO_FILES}\n"))
}

/// `-o`.
pub(crate) fn formats() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| starting(current, FORMATS.iter().map(|&name| name.to_owned())))
}

/// Names of contexts.
pub(crate) fn contexts() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let path = connection(&typed()).config_path(&Environment::read());
        let file = path.and_then(|path: PathBuf| File::read(&path, false).ok()).unwrap_or_default();
        starting(current, file.contexts.into_keys())
    })
}

/// Files for `-f`.
pub(crate) fn files() -> ArgValueCompleter {
    ArgValueCompleter::new(PathCompleter::any().stdio())
}

/// Names of clusters.
pub(crate) fn clusters() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        starting(current, kinds::find("cluster").map(names).unwrap_or_default())
    })
}

/// `KIND`, `KIND NAME` and `KIND/NAME`, whatever comes next.
pub(crate) fn targets() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let text = current.to_string_lossy();
        if let Some((kind, _)) = text.split_once('/')
            && let Some(found) = kinds::find(kind)
        {
            return starting(current, names(found).into_iter().map(|name| format!("{kind}/{name}")));
        }
        match typed_kind(&typed()) {
            Some(kind) => starting(current, names(kind)),
            None => starting(current, kind_names()),
        }
    })
}

/// The names of kinds worth offering: the plural and the short word that people use.
fn kind_names() -> Vec<String> {
    let mut names: Vec<String> = KINDS
        .iter()
        .flat_map(|kind| [Some(kind.plural), kind.aliases.first().copied()])
        .flatten()
        .map(str::to_owned)
        .collect();
    names.push("all".to_owned());
    names
}

fn starting(current: &OsStr, names: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    let prefix = current.to_string_lossy().into_owned();
    names.into_iter().filter(|name| name.starts_with(&prefix)).map(CompletionCandidate::new).collect()
}

/// The words before the one being typed, verb included.
fn typed() -> Vec<String> {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    // The shell's script passes them after two dashes, kubectl's after the hidden verb.
    let start = words.iter().position(|word| word == "--").map(|place| place + 2);
    let start = start.or_else(|| words.iter().position(|word| word == "__complete").map(|place| place + 1));
    let words = words.get(start.unwrap_or(1)..).unwrap_or_default().to_vec();
    let index = clap_index().map_or(words.len().saturating_sub(1), |index| index.saturating_sub(1));
    words.into_iter().take(index).collect()
}

/// Place of the word being typed, from shells that say it.
#[allow(
    clippy::disallowed_methods,
    reason = "the shell's script passes the place of the cursor in the environment"
)]
fn clap_index() -> Option<usize> {
    std::env::var("_CLAP_COMPLETE_INDEX").ok()?.parse().ok()
}

/// The kind that was typed already, as in `get pool …`.
fn typed_kind(words: &[String]) -> Option<&'static Kind> {
    let plain: Vec<&String> = words.iter().skip(1).filter(|word| !word.starts_with('-')).collect();
    plain
        .iter()
        .find_map(|word| kinds::find(word.split('/').next().unwrap_or_default()))
        .filter(|_| !plain[0].contains('/'))
}

/// Only the connection flags of a line that is being typed.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Probe {
    #[command(flatten)]
    connection: Connection,
}

/// The connection that the typed line would use.
fn connection(words: &[String]) -> Connection {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or_default();
        if super::CONNECTION_FLAGS.contains(&name) {
            kept.push(word.clone());
            if !word.contains('=') {
                kept.extend(words.next().cloned());
            }
        }
    }
    let probe = Probe::try_parse_from(&kept).or_else(|_| Probe::try_parse_from(Vec::<String>::new()));
    let mut connection = probe.map(|probe| probe.connection).unwrap_or_default();
    connection.request_timeout = Some(PATIENCE);
    connection
}

/// Names of all objects of a kind, as they can be typed.
fn names(kind: &'static Kind) -> Vec<String> {
    let connection = connection(&typed());
    // The parser may be running inside a runtime already; a thread of its own never is.
    let work = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let clock: Arc<dyn Clock> = Arc::new(crate::clock::SystemClock::new());
        let environment = Environment::read();
        let tools = Tools { screen: Screen::new(false), clock, environment, command: clap::Command::default };
        let session = Session::open(&connection, &tools).ok()?;
        runtime.block_on(fetch(&session, kind)).ok()
    });
    work.join().ok().flatten().unwrap_or_default()
}

async fn fetch(session: &Session, kind: &'static Kind) -> Outcome<Vec<String>> {
    // Reports are named after pools.
    let kind = if kind.scope == Scope::OnPool { kinds::required("pool")? } else { kind };
    let found = list::all(session, kind, &Selection::visible()).await?;
    session.know_clusters(kind, &found.items).await?;
    Ok(found.items.iter().map(|object| session.full_name(kind, object)).collect())
}
