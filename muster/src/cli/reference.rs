//! The reference of the command line, made from the parser itself.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};

use super::{failure::Exit, kinds::KINDS};

/// Which reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum What {
    Cli,
    Configuration,
    /// The definitions of the custom resources, as YAML for `kubectl apply --server-side -f -`
    Definitions,
}

/// The definitions of the custom resources, one document each.
pub(crate) fn definitions() -> String {
    let all = muster_kube::resources::definitions();
    let texts: Vec<String> = all.iter().map(super::print::yaml::to_string).collect();
    format!("---\n{}", texts.join("---\n"))
}

/// The whole reference as Markdown. `docs/reference/cli.md` is this text.
pub(crate) fn markdown(mut root: Command) -> String {
    root.build();
    let mut out = String::from(
        "# Command line\n\nMade from the program itself by `muster reference`; a test compares the two.\n\n",
    );
    out.push_str("## Kinds\n\n| Kind | Names | Named as |\n|---|---|---|\n");
    for kind in KINDS {
        let names: Vec<String> = kind.names().map(|name| format!("`{name}`")).collect();
        let form = match kind.scope {
            super::kinds::Scope::Project => "`NAME`, id",
            super::kinds::Scope::Cluster => "`CLUSTER/NAME`, `NAME` where that is clear, id",
            super::kinds::Scope::Name => "`NAME`",
            super::kinds::Scope::Id => "id",
            super::kinds::Scope::OnPool => "`CLUSTER/POOL`, `CLUSTER/POOL/CONTROLLER`",
        };
        let _ = writeln!(out, "| {} | {} | {form} |", kind.kind, names.join(", "));
    }
    out.push_str("\n## Exit codes\n\n| Code | Meaning |\n|---|---|\n");
    for (exit, meaning) in Exit::ALL {
        let _ = writeln!(out, "| {} | {meaning} |", exit.code());
    }
    out.push_str("\n`muster diff` answers 0 for no difference, 1 for a difference, and 2 where other commands answer 1.\n");
    section(&root, "muster", &mut out);
    out
}

fn section(command: &Command, path: &str, out: &mut String) {
    let _ = write!(out, "\n## {path}\n\n");
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        let _ = write!(out, "{about}\n\n");
    }
    let aliases: Vec<String> = command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        let _ = write!(out, "Also: {}\n\n", aliases.join(", "));
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").trim();
    let _ = write!(out, "```\n{usage}\n```\n");
    let rows: Vec<String> = command.get_arguments().filter(|arg| !arg.is_hide_set()).map(row).collect();
    if !rows.is_empty() {
        let _ = write!(out, "\n| Argument | Meaning |\n|---|---|\n{}", rows.concat());
    }
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        section(sub, &format!("{path} {}", sub.get_name()), out);
    }
}

fn row(arg: &Arg) -> String {
    let values = || {
        let names: Vec<&str> =
            arg.get_value_names().unwrap_or_default().iter().map(clap::builder::Str::as_str).collect();
        if names.is_empty() { arg.get_id().as_str().to_uppercase() } else { names.join(" ") }
    };
    let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let name = match (arg.get_short(), arg.get_long()) {
        (None, None) => values(),
        (short, long) => {
            let flags: Vec<String> =
                short.map(|c| format!("-{c}")).into_iter().chain(long.map(|l| format!("--{l}"))).collect();
            if takes { format!("{} {}", flags.join(", "), values()) } else { flags.join(", ") }
        }
    };
    let mut help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let choices: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|v| !v.is_hide_set())
        .map(|v| format!("`{}`", v.get_name()))
        .collect();
    if takes && !choices.is_empty() {
        let _ = write!(help, " ({})", choices.join(", "));
    }
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if takes && !defaults.is_empty() {
        let _ = write!(help, "; default `{}`", defaults.join(" "));
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(help, "; environment `{}`", variable.to_string_lossy());
    }
    format!("| `{name}` | {} |\n", help.replace('|', "\\|"))
}
