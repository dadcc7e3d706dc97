//! `muster create credential` and `muster rotate credential`. A value comes from a file or from standard input, never
//! from an argument or the environment, where others on the machine could read it.

use std::{
    io::{IsTerminal, Read},
    path::PathBuf,
};

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::{
    client::Request,
    context::Connection,
    declare::DryRun,
    failure::{Exit, Failure, Outcome},
    kinds::text_at,
    session::Session,
};

/// Where the value is.
#[derive(Debug, Args)]
pub(crate) struct Source {
    /// User name of the account
    #[arg(long)]
    user: Option<String>,
    /// File with the password or key; - for standard input
    #[arg(long, value_name = "FILE", required_unless_present = "secret", add = crate::cli::complete::files())]
    password_file: Option<PathBuf>,
    /// Take it from this Kubernetes Secret instead
    #[arg(long, value_name = "NAME", conflicts_with_all = ["password_file", "user"])]
    secret: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NewCredential {
    /// Its name, by which hosts refer to it
    name: String,
    /// What it is for
    #[arg(long, default_value = "bmc", value_parser = ["bmc", "ipmi", "webhook", "agent"])]
    kind: String,
    #[command(flatten)]
    from: Source,
    /// Whether to make the change or have it checked only
    #[arg(long, value_enum, default_value = "none", value_name = "WHERE")]
    dry_run: DryRun,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Args)]
pub(crate) struct Rotate {
    /// credential NAME
    #[arg(value_parser = ["credential", "credentials", "cred"])]
    what: String,
    name: String,
    #[command(flatten)]
    from: Source,
    /// Whether to make the change or have it checked only
    #[arg(long, value_enum, default_value = "none", value_name = "WHERE")]
    dry_run: DryRun,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

impl Source {
    /// The members of a body that hold the value.
    fn spec(&self) -> Outcome<Value> {
        if let Some(secret) = &self.secret {
            return Ok(json!({ "secretName": secret }));
        }
        let Some(path) = &self.password_file else {
            return Err(Failure::usage("--password-file", "there is no value")
                .next("write the password into a file, or pipe it in with --password-file -"));
        };
        let object = format!("file {}", path.display());
        let wrong = |error: std::io::Error| {
            Failure::new(Exit::Failure, object.clone(), error.to_string()).next("check the path")
        };
        let mut text = String::new();
        if path.as_os_str() == "-" {
            let mut input = std::io::stdin();
            if input.is_terminal() {
                return Err(Failure::usage(
                    "--password-file -",
                    "standard input is a terminal, which would show it",
                )
                .next("pipe it in: pass show bmc | muster create credential …"));
            }
            input.read_to_string(&mut text).map_err(wrong)?;
        } else {
            text = std::fs::read_to_string(path).map_err(wrong)?;
        }
        // Editors end a file with a line end; no BMC has one in a password.
        let value = text.trim_end_matches(['\n', '\r']);
        if value.is_empty() {
            return Err(Failure::new(Exit::Failure, object, "it is empty").next("write the password into it"));
        }
        let mut spec = json!({ "password": value });
        if let Some(user) = &self.user {
            spec["user"] = user.as_str().into();
        }
        Ok(spec)
    }
}

pub(crate) async fn create(session: &Session, args: NewCredential) -> Outcome {
    let mut spec = args.from.spec()?;
    spec["kind"] = args.kind.as_str().into();
    let mut request = Request::new(Method::POST, "/api/v1/credentials", format!("credential {}", args.name))
        .body(json!({ "name": args.name, "spec": spec }));
    if args.dry_run == DryRun::Server {
        request = request.query("dryRun", "true");
    }
    session.client.call(request).await?;
    let suffix = if args.dry_run == DryRun::Server { " (server dry run)" } else { "" };
    session.screen.line(&format!("credential/{} created{suffix}", args.name))
}

pub(crate) async fn rotate(session: &Session, args: Rotate) -> Outcome {
    let object = format!("credential {}", args.name);
    let path = format!("/api/v1/credentials/{}", args.name);
    let mut spec = args.from.spec()?;
    if args.from.secret.is_none() {
        let known = session.client.call(Request::get(&path, &object)).await?.body;
        spec["kind"] = text_at(&known, "spec.kind").into();
    }
    let mut request =
        Request::new(Method::POST, format!("{path}/rotate"), object).body(json!({ "spec": spec }));
    if args.dry_run == DryRun::Server {
        request = request.query("dryRun", "true");
    }
    let after = session.client.call(request).await?.body;
    let suffix = if args.dry_run == DryRun::Server { " (server dry run)" } else { "" };
    session.screen.line(&format!(
        "credential/{} rotated: version {}, used from the next call on{suffix}",
        args.name,
        text_at(&after, "status.version")
    ))
}
