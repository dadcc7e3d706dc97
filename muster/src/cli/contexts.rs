//! `muster config`: the contexts of the command line.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    Tools,
    context::{Connection, Context, File, Settings},
    failure::{Exit, Failure, Outcome},
    get::FormatArg,
    print::{format::Format, lines, table::Table, yaml},
};

#[derive(Debug, Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List the contexts
    GetContexts {
        /// table, json, yaml or name
        #[arg(short, long, default_value = "table", value_name = "FORMAT")]
        output: FormatArg,
        #[command(flatten)]
        connection: Connection,
    },
    /// Print the name of the current context
    CurrentContext {
        #[command(flatten)]
        connection: Connection,
    },
    /// Make a context the current one
    UseContext {
        #[arg(add = super::complete::contexts())]
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Make or change a context from the connection flags
    SetContext {
        #[arg(add = super::complete::contexts())]
        name: String,
        /// Also make it the current one
        #[arg(long)]
        current: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Remove a context
    DeleteContext {
        #[arg(add = super::complete::contexts())]
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show how commands reach the server now, and where each value comes from
    #[command(name = "connection")]
    Effective {
        /// yaml or json
        #[arg(short, long, default_value = "yaml", value_name = "FORMAT")]
        output: FormatArg,
        #[command(flatten)]
        connection: Connection,
    },
    /// Make a token for a server in token mode, and the line of its settings that lets the holder in
    Token(super::token::Token),
    /// Show the server's settings (`muster serve` with the same flags would use them)
    View(crate::config::View),
}

pub(crate) fn run(tools: &Tools, config: Config) -> Outcome {
    match config.what {
        What::GetContexts { output, connection } => get_contexts(tools, &output.0, &connection),
        What::CurrentContext { connection } => {
            let (file, path) = load(tools, &connection)?;
            let name = file.current_context.ok_or_else(|| {
                Failure::new(Exit::NotFound, "current context", format!("none is set in {}", path.display()))
                    .next("choose one with `muster config use-context NAME`")
            })?;
            tools.screen.line(&name)
        }
        What::UseContext { name, connection } => {
            let (mut file, path) = load(tools, &connection)?;
            file.context(&name, Some(&path))?;
            file.current_context = Some(name.clone());
            file.write(&path)?;
            tools.screen.line(&format!("context {name} is current"))
        }
        What::SetContext { name, current, connection } => set_context(tools, &name, current, &connection),
        What::DeleteContext { name, connection } => {
            let (mut file, path) = load(tools, &connection)?;
            file.context(&name, Some(&path))?;
            file.contexts.remove(&name);
            file.current_context = file.current_context.filter(|current| *current != name);
            file.write(&path)?;
            tools.screen.line(&format!("context {name} deleted"))
        }
        What::Effective { output, connection } => {
            let document = effective(&connection.settings(&tools.environment)?);
            match &output.0 {
                Format::Table | Format::Wide | Format::Name => tools.screen.data(&yaml::to_string(&document)),
                other => tools.screen.data(&other.document(&document, true)?),
            }
        }
        What::Token(args) => super::token::run(tools, &args),
        What::View(args) => crate::config::view(&args).map_err(|error| {
            Failure::new(Exit::Failure, "settings", format!("{error:#}"))
                .next("correct the setting that is named")
        }),
    }
}

/// The file, which need not exist yet, and its place.
fn load(tools: &Tools, connection: &Connection) -> Outcome<(File, PathBuf)> {
    let path = connection.config_path(&tools.environment).ok_or_else(|| {
        Failure::usage("configuration file", "neither HOME nor XDG_CONFIG_HOME says where it is")
            .next("name it with --client-config FILE")
    })?;
    Ok((File::read(&path, false)?, path))
}

fn get_contexts(tools: &Tools, format: &Format, connection: &Connection) -> Outcome {
    let (file, path) = load(tools, connection)?;
    let current = |name: &str| file.current_context.as_deref() == Some(name);
    match format {
        Format::Name => tools.screen.data(&lines(file.contexts.keys())),
        Format::Table | Format::Wide => {
            if file.contexts.is_empty() {
                tools.screen.note(&format!(
                    "no contexts in {}; make one with `muster config set-context NAME --server URL`",
                    path.display()
                ));
                return Ok(());
            }
            let mut table = Table::new(["CURRENT", "NAME", "SERVER", "PROJECT", "IDENTITY"]);
            for (name, context) in &file.contexts {
                table.push(vec![
                    if current(name) { "*" } else { "" }.into(),
                    name.as_str().into(),
                    context
                        .server
                        .clone()
                        .unwrap_or_else(|| super::context::DEFAULT_SERVER.to_owned())
                        .into(),
                    context.project.clone().unwrap_or_else(|| "-".to_owned()).into(),
                    identity(context).into(),
                ]);
            }
            tools.screen.data(&table.render(true, tools.screen.colour, &mut Vec::new()))
        }
        other => {
            let items: Vec<Value> = file
                .contexts
                .iter()
                .map(|(name, context)| {
                    let mut value = serde_json::to_value(context).unwrap_or_default();
                    value["name"] = name.as_str().into();
                    value["current"] = current(name).into();
                    value
                })
                .collect();
            tools.screen.data(&other.document(&super::print::format::list(items, None), true)?)
        }
    }
}

fn identity(context: &Context) -> String {
    let file =
        |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match (&context.token_file, &context.client_cert, &context.as_email) {
        (Some(path), ..) => format!("token from {}", file(path)),
        (None, Some(path), _) => format!("certificate {}", file(path)),
        (None, None, Some(email)) => email.clone(),
        _ => "-".to_owned(),
    }
}

fn set_context(tools: &Tools, name: &str, make_current: bool, connection: &Connection) -> Outcome {
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(Failure::usage(format!("context {name:?}"), "a name without blanks is needed")
            .next("choose another name"));
    }
    let (mut file, path) = load(tools, connection)?;
    let existed = file.contexts.contains_key(name);
    let context = file.contexts.entry(name.to_owned()).or_default();
    let absolute = |path: &Option<PathBuf>| {
        path.as_ref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()))
    };
    let keep = |new: Option<PathBuf>, old: &mut Option<PathBuf>| *old = new.or_else(|| old.take());
    context.server = connection.server.clone().or_else(|| context.server.take());
    context.project = connection.project.clone().or_else(|| context.project.take());
    context.as_email = connection.as_email.clone().or_else(|| context.as_email.take());
    keep(absolute(&connection.token_file), &mut context.token_file);
    keep(absolute(&connection.ca_file), &mut context.ca_file);
    keep(absolute(&connection.client_cert), &mut context.client_cert);
    keep(absolute(&connection.client_key), &mut context.client_key);
    // The first context is the one that its maker wants to use.
    if make_current || file.contexts.len() == 1 {
        file.current_context = Some(name.to_owned());
    }
    file.write(&path)?;
    tools.screen.line(&format!("context {name} {}", if existed { "changed" } else { "created" }))
}

/// Every setting of this call with its origin. Secrets are files, whose names alone are shown.
fn effective(settings: &Settings) -> Value {
    let entry = |value: &str, origin: &str| json!({ "value": value, "origin": origin });
    let mut document = json!({
        "server": entry(&settings.server.value, &settings.server.origin),
        "context": settings.context,
        "client-config": settings.config_file,
    });
    for (name, setting) in [("project", &settings.project), ("as-email", &settings.email)] {
        if let Some(setting) = setting {
            document[name] = entry(&setting.value, &setting.origin);
        }
    }
    let files = [
        ("token-file", &settings.token_file),
        ("ca-file", &settings.ca_file),
        ("client-cert", &settings.client_cert),
        ("client-key", &settings.client_key),
    ];
    for (name, setting) in files {
        if let Some(setting) = setting {
            document[name] = entry(&setting.value.display().to_string(), &setting.origin);
        }
    }
    document
}
