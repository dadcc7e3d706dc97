//! `muster doctor` and `muster version`: is everything as it should be, and if not, what to do.

use std::fmt::Write as _;

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use clap::{Args, ValueEnum};
use muster_model::{Duration, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Tools,
    client::{Answer, Request},
    context::{Connection, Settings},
    failure::{Exit, Failure, Outcome},
    get::FormatArg,
    kinds::{self, text_at, verdict},
    list::{self, Selection},
    print::{
        format::Format,
        table::{Cell, Table, Tone},
        yaml,
    },
    session::Session,
};

/// Clocks further apart than this break leases, token lifetimes and the order of events.
const WORST_SKEW: Duration = Duration::from_secs(30);
/// The server's time comes in whole seconds and the answer takes its own time: less is no finding.
const FINE_SKEW: Duration = Duration::from_secs(3);
/// Pools with a fault that are listed one by one.
const MOST_POOLS: usize = 20;

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// table, short (findings only), json or yaml
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Short,
    Json,
    Yaml,
}

#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Do not ask the server
    #[arg(long)]
    client: bool,
    /// table, json or yaml
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: FormatArg,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warning,
    Failed,
    Skipped,
}

/// One thing that was looked at.
#[derive(Debug, Clone, Serialize)]
struct Check {
    id: &'static str,
    result: Verdict,
    object: String,
    found: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    remedy: String,
    #[serde(skip)]
    exit: Option<Exit>,
}

impl Check {
    fn new(
        id: &'static str,
        result: Verdict,
        object: impl Into<String>,
        found: impl Into<String>,
        remedy: &str,
    ) -> Self {
        let exit = (result == Verdict::Failed).then_some(Exit::Failure);
        Self { id, result, object: object.into(), found: found.into(), remedy: remedy.to_owned(), exit }
    }

    fn ok(id: &'static str, object: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(id, Verdict::Ok, object, found, "")
    }

    fn failed(id: &'static str, failure: &Failure) -> Self {
        Self {
            exit: Some(failure.exit),
            ..Self::new(id, Verdict::Failed, &failure.object, &failure.cause, &failure.next)
        }
    }

    fn skipped(id: &'static str, object: impl Into<String>, why: &str) -> Self {
        Self::new(id, Verdict::Skipped, object, why, "")
    }
}

pub(crate) async fn run(tools: &Tools, doctor: Doctor) -> Outcome {
    let mut checks = Vec::new();
    match doctor.connection.settings(&tools.environment) {
        Ok(settings) => {
            checks.push(Check::ok("config", place(&settings), chosen(&settings)));
            files(&settings, &mut checks);
            server(tools, &doctor.connection, &mut checks).await;
        }
        Err(failure) => checks.push(Check::failed("config", &failure)),
    }
    print(tools, &checks, doctor.output)?;
    checks.iter().find_map(|check| check.exit).map_or(Ok(()), |exit| Err(Failure::silent(exit)))
}

fn place(settings: &Settings) -> String {
    settings
        .config_file
        .as_deref()
        .filter(|path| path.exists())
        .map_or_else(|| "defaults".to_owned(), |path| path.display().to_string())
}

fn chosen(settings: &Settings) -> String {
    let context =
        settings.context.as_ref().map_or_else(|| "no context".to_owned(), |name| format!("context {name}"));
    let identity = match (&settings.token_file, &settings.client_cert, &settings.email) {
        (Some(path), ..) => format!("token from {}", path.value.display()),
        (None, Some(path), _) => format!("certificate {}", path.value.display()),
        (None, None, Some(email)) => format!("as {}", email.value),
        _ => "without an identity".to_owned(),
    };
    format!("{context}, server {}, {identity}", settings.server.value)
}

/// Files that hold secrets must be their owner's alone; the configuration must not be writable by others.
fn files(settings: &Settings, checks: &mut Vec<Check>) {
    let mut look = |path: &Path, forbidden: u32, what: &str, remedy: &str| {
        let object = path.display().to_string();
        match fs::metadata(path) {
            Ok(meta) if meta.permissions().mode() & forbidden == 0 => {
                checks.push(Check::ok("file-permissions", object, "fine"));
            }
            Ok(meta) => {
                let found = format!("mode {:o}: {what}", meta.permissions().mode() & 0o777);
                checks.push(Check::new(
                    "file-permissions",
                    Verdict::Failed,
                    &object,
                    found,
                    &format!("{remedy} {object}"),
                ));
            }
            Err(error) => checks.push(Check::new(
                "file-permissions",
                Verdict::Failed,
                object,
                error.to_string(),
                "correct the path in the context",
            )),
        }
    };
    if let Some(path) = settings.config_file.as_deref().filter(|path| path.exists()) {
        look(path, 0o022, "others can change where commands go", "chmod 600");
    }
    for secret in [&settings.token_file, &settings.client_key].into_iter().flatten() {
        look(&secret.value, 0o077, "others can read the secret", "chmod 600");
    }
}

async fn server(tools: &Tools, connection: &Connection, checks: &mut Vec<Check>) {
    let session = match Session::open(connection, tools) {
        Ok(session) => session,
        Err(failure) => return checks.push(Check::failed("server", &failure)),
    };
    let name = session.client.server().to_owned();
    match session.client.call(Request::get("/livez", format!("server {name}"))).await {
        Ok(answer) => {
            checks.push(Check::ok("server", &name, "it answers"));
            // The machine's own time: a server that plays a world says another one beside its date.
            checks.push(clock(&name, &answer, session.clock.now()));
        }
        Err(failure) => {
            checks.push(Check::failed("server", &failure));
            for id in ["clock", "store", "identity", "version", "pools", "inventory"] {
                checks.push(Check::skipped(id, &name, "the server does not answer"));
            }
            return;
        }
    }
    match session.client.call(Request::get("/readyz", format!("server {name}"))).await {
        Ok(answer) if answer.body["writes"] == json!("refused") => checks.push(Check::new(
            "store",
            Verdict::Failed,
            &name,
            "it takes no writes: its disk is full or cannot be written, or most of its members are gone",
            "make room on the disk of the server's data directory, or mount it for writing; the server's log names the file",
        )),
        Ok(_) => checks.push(Check::ok("store", &name, "ready, and takes writes")),
        Err(failure) => checks.push(Check {
            remedy: "look at the server's log; `muster store verify` checks the file".into(),
            ..Check::failed("store", &failure)
        }),
    }
    let who = session.client.call(Request::get("/api/v1/whoami", format!("server {name}"))).await;
    match &who {
        Ok(answer) => checks.push(Check::ok("identity", &name, known_as(&answer.body))),
        Err(failure) => checks.push(Check::failed("identity", failure)),
    }
    checks.push(match server_version(&session).await {
        Some(version) if version == env!("CARGO_PKG_VERSION") => {
            Check::ok("version", &name, format!("{version} on both sides"))
        }
        Some(version) => {
            let found = format!("server {version}, command line {}", env!("CARGO_PKG_VERSION"));
            Check::new(
                "version",
                Verdict::Warning,
                &name,
                found,
                "use the command line of the server's version",
            )
        }
        None => Check::skipped("version", &name, "the server does not tell its version"),
    });
    if who.is_ok() {
        checks.push(freeze(&session, &name).await);
        pools(&session, checks).await;
        inventory(&session, checks).await;
    } else {
        checks.push(Check::skipped("pools", &name, "not allowed to look"));
        checks.push(Check::skipped("inventory", &name, "not allowed to look"));
    }
}

/// Records of servers that cannot be used, and settings that are refused.
async fn inventory(session: &Session, checks: &mut Vec<Check>) {
    let answer = match session.client.call(Request::get("/api/v1/inventory", "inventory")).await {
        Ok(answer) => answer.body,
        Err(failure) => return checks.push(Check::failed("inventory", &failure)),
    };
    let aside = answer["set_aside"].as_array().cloned().unwrap_or_default();
    let problem = text_at(&answer, "config_problem");
    if !problem.is_empty() {
        checks.push(Check::new(
            "inventory",
            Verdict::Warning,
            "/baremetal/global/config",
            problem,
            "correct the record; the last good settings stay in force",
        ));
    }
    if aside.is_empty() {
        let hosts = text_at(&answer, "hosts");
        let found = format!("{hosts} servers, no record set aside");
        checks.push(Check::ok("inventory", session.client.server(), found));
    }
    for record in aside.iter().take(MOST_POOLS) {
        let name = text_at(record, "name");
        checks.push(Check::new(
            "inventory",
            Verdict::Warning,
            format!("host {name}"),
            format!("set aside: {}", text_at(record, "reason")),
            &format!("muster describe host {name}"),
        ));
    }
    if aside.len() > MOST_POOLS {
        let more = format!("and {} more records set aside", aside.len() - MOST_POOLS);
        let server = session.client.server();
        checks.push(Check::new("inventory", Verdict::Warning, server, more, "muster get hosts"));
    }
}

/// `user@example.com by header, mode dev, project user`.
fn known_as(who: &Value) -> String {
    let text = |path: &str| kinds::dash(text_at(who, path));
    format!("{} by {}, mode {}, project {}", text("name"), text("proof"), text("mode"), text("project"))
}

/// A freeze that somebody forgot looks like a Muster that does nothing.
async fn freeze(session: &Session, server: &str) -> Check {
    match session.client.call(Request::get("/api/v1/freeze", format!("server {server}"))).await {
        Ok(answer) if answer.body["may_act"] == json!(true) => Check::ok("freeze", server, "not frozen"),
        Ok(answer) => {
            let found = super::freeze::sentence(&answer.body);
            let remedy = "find out why it was frozen; `muster unfreeze` lets Muster act again";
            Check::new("freeze", Verdict::Warning, server, found, remedy)
        }
        Err(failure) if failure.exit == Exit::NotFound => {
            Check::skipped("freeze", server, "the server does not know of freezes")
        }
        Err(failure) => Check::failed("freeze", &failure),
    }
}

fn clock(server: &str, answer: &Answer, now: Timestamp) -> Check {
    let date = answer.headers.get("date").and_then(|value| value.to_str().ok());
    let theirs = date
        .and_then(|text| jiff::fmt::rfc2822::parse(text).ok())
        .map(|time| Timestamp::from_millis(time.timestamp().as_millisecond()));
    let Some(theirs) = theirs else {
        return Check::skipped("clock", server, "the server does not tell its time");
    };
    let apart = now.since(theirs).max(theirs.since(now));
    let found = format!("{} apart", Duration::from_secs(apart.millis() / 1000));
    let remedy = "set both clocks by NTP: leases, tokens and the order of events depend on them";
    match apart {
        apart if apart <= FINE_SKEW => Check::ok("clock", server, "in step"),
        apart if apart <= WORST_SKEW => Check::new("clock", Verdict::Warning, server, found, remedy),
        _ => Check::new("clock", Verdict::Failed, server, found, remedy),
    }
}

/// Pools that need somebody.
async fn pools(session: &Session, checks: &mut Vec<Check>) {
    let listed = async {
        let kind = kinds::required("pool")?;
        let listed = list::all(session, kind, &Selection::visible()).await?;
        session.know_clusters(kind, &listed.items).await?;
        Ok::<_, Failure>((kind, listed.items))
    };
    let (kind, items) = match listed.await {
        Ok(found) => found,
        Err(failure) => return checks.push(Check::failed("pools", &failure)),
    };
    let sick: Vec<&Value> = items.iter().filter(|pool| is_sick(pool)).collect();
    if sick.is_empty() {
        checks.push(Check::ok(
            "pools",
            session.client.server(),
            match items.len() {
                0 => "no pools".to_owned(),
                1 => "1 pool, and it is well".to_owned(),
                many => format!("{many} pools, none unhealthy"),
            },
        ));
    }
    for pool in sick.iter().take(MOST_POOLS) {
        let name = session.full_name(kind, pool);
        let verdict = verdict(pool);
        let found = format!("{}: {}", verdict.reason, kinds::dash(verdict.message));
        checks.push(Check::new(
            "pools",
            Verdict::Warning,
            format!("nodepool {name}"),
            found,
            &format!("muster describe pool {name}"),
        ));
    }
    if sick.len() > MOST_POOLS {
        let more = format!("and {} more", sick.len() - MOST_POOLS);
        checks.push(Check::new(
            "pools",
            Verdict::Warning,
            session.client.server(),
            more,
            "muster get pools -o wide",
        ));
    }
}

/// A pool that is on its way to its size is not sick.
fn is_sick(pool: &Value) -> bool {
    match text_at(pool, "status.phase").as_str() {
        "Failed" | "Degraded" => true,
        "Progressing" => false,
        _ => matches!(text_at(pool, "status.health").as_str(), "Unhealthy" | "Degraded"),
    }
}

fn print(tools: &Tools, checks: &[Check], output: Output) -> Outcome {
    match output {
        Output::Json | Output::Yaml => {
            let failed = checks.iter().any(|check| check.result == Verdict::Failed);
            let document = json!({ "ok": !failed, "checks": checks });
            let format = if output == Output::Json { Format::Json } else { Format::Yaml };
            tools.screen.data(&format.document(&document, true)?)
        }
        Output::Table | Output::Short => {
            let shown = |check: &&Check| {
                output == Output::Table || matches!(check.result, Verdict::Failed | Verdict::Warning)
            };
            let mut table = Table::new(["CHECK", "RESULT", "OBJECT", "FOUND"]);
            for check in checks.iter().filter(shown) {
                let (word, tone) = match check.result {
                    Verdict::Ok => ("ok", Tone::Good),
                    Verdict::Warning => ("warning", Tone::Busy),
                    Verdict::Failed => ("failed", Tone::Bad),
                    Verdict::Skipped => ("skipped", Tone::Plain),
                };
                table.push(vec![
                    check.id.into(),
                    Cell::toned(word, tone),
                    check.object.as_str().into(),
                    check.found.as_str().into(),
                ]);
            }
            let mut text = table.render(output == Output::Table, tools.screen.colour, &mut Vec::new());
            for check in checks.iter().filter(|check| !check.remedy.is_empty()) {
                let _ = writeln!(text, "{}: {}", check.id, check.remedy);
            }
            tools.screen.data(&text)
        }
    }
}

/// The server's version, as its health tells it.
async fn server_version(session: &Session) -> Option<String> {
    let answer = session.client.call(Request::get("/health", "health")).await.ok()?;
    Some(text_at(&answer.body, "version")).filter(|version| !version.is_empty())
}

pub(crate) async fn version(tools: &Tools, version: Version) -> Outcome {
    let client = env!("CARGO_PKG_VERSION");
    let mut document = json!({ "client": { "version": client, "api": "v1" } });
    let mut failure = None;
    if !version.client {
        match Session::open(&version.connection, tools) {
            Ok(session) => match server_version(&session).await {
                Some(found) => {
                    document["server"] = json!({ "version": found, "address": session.client.server() });
                }
                None => {
                    failure = session
                        .client
                        .call(Request::get("/livez", format!("server {}", session.client.server())))
                        .await
                        .err();
                }
            },
            Err(problem) => failure = Some(problem),
        }
    }
    match &version.output.0 {
        Format::Table | Format::Wide | Format::Name => {
            let server = document["server"]["version"].as_str().unwrap_or("not known");
            let server = if version.client { String::new() } else { format!("server: {server}\n") };
            tools.screen.data(&format!("client: {client}\n{server}"))?;
        }
        Format::Yaml => tools.screen.data(&yaml::to_string(&document))?,
        other => tools.screen.data(&other.document(&document, true)?)?,
    }
    failure.map_or(Ok(()), Err)
}
