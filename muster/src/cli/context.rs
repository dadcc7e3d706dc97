//! Which server, as whom, in which project: flags, then environment, then the chosen context, then defaults.
//!
//! Secrets are never kept here: a context names the files that hold them.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use muster_model::Duration;
use serde::{Deserialize, Serialize};

use super::{
    environment::Environment,
    failure::{Exit, Failure, Outcome},
    print::yaml,
};

/// Where `muster serve` listens unless told otherwise.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

/// Who one is on a server in dev mode without any configuration. The same address stands in the examples of
/// the API, so that commands and copied requests see the same objects.
pub(crate) const DEFAULT_EMAIL: &str = "user@example.com";

/// Longest wait for one answer. A list page of 100 large pools takes well under a second on a busy server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Flags of every command that talks to a server.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Address of the server
    #[arg(short, long, env = "MUSTER_SERVER", value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Context of the configuration file to use
    #[arg(long, env = "MUSTER_CONTEXT", value_name = "NAME", add = super::complete::contexts())]
    pub(crate) context: Option<String>,
    /// Project to work in
    #[arg(short, long, env = "MUSTER_PROJECT", value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// File with a bearer token
    #[arg(long, env = "MUSTER_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Address to send as identity (servers in dev mode)
    #[arg(long, env = "MUSTER_AS_EMAIL", value_name = "ADDRESS")]
    pub(crate) as_email: Option<String>,
    /// File with the certificates of authorities that the server's certificate may come from
    #[arg(long, env = "MUSTER_CA_FILE", value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// File with the client certificate
    #[arg(long, env = "MUSTER_CLIENT_CERT", value_name = "FILE", requires = "client_key")]
    pub(crate) client_cert: Option<PathBuf>,
    /// File with the key of the client certificate
    #[arg(long, env = "MUSTER_CLIENT_KEY", value_name = "FILE", requires = "client_cert")]
    pub(crate) client_key: Option<PathBuf>,
    /// Longest wait for one answer of the server
    #[arg(long, value_name = "DURATION")]
    pub(crate) request_timeout: Option<Duration>,
    /// File with the contexts
    #[arg(long, env = "MUSTER_CLIENT_CONFIG", value_name = "FILE")]
    pub(crate) client_config: Option<PathBuf>,
}

/// One way to reach one server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Context {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) project: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) as_email: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_key: Option<PathBuf>,
}

/// The configuration file of the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct File {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current_context: Option<String>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sourced<T> {
    pub(crate) value: T,
    pub(crate) origin: String,
}

/// What holds for this call.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) config_file: Option<PathBuf>,
    pub(crate) context: Option<String>,
    pub(crate) server: Sourced<String>,
    pub(crate) project: Option<Sourced<String>>,
    pub(crate) email: Option<Sourced<String>>,
    pub(crate) token_file: Option<Sourced<PathBuf>>,
    pub(crate) ca_file: Option<Sourced<PathBuf>>,
    pub(crate) client_cert: Option<Sourced<PathBuf>>,
    pub(crate) client_key: Option<Sourced<PathBuf>>,
    pub(crate) timeout: Duration,
}

impl Connection {
    pub(crate) fn config_path(&self, environment: &Environment) -> Option<PathBuf> {
        self.client_config.clone().or_else(|| environment.config_file())
    }

    /// Everything put together, with its origins.
    pub(crate) fn settings(&self, environment: &Environment) -> Outcome<Settings> {
        let path = self.config_path(environment);
        let file = match &path {
            // A file that was asked for must be there; the usual one may be absent.
            Some(path) => File::read(path, self.client_config.is_some())?,
            None => File::default(),
        };
        let context = self.context.clone().or_else(|| file.current_context.clone());
        let chosen = match &context {
            Some(name) => file.context(name, path.as_deref())?,
            None => Context::default(),
        };
        let origin = format!("context {}", context.as_deref().unwrap_or("-"));
        let pick = |flag: &Option<String>, name: &str, from: Option<String>| {
            sourced(flag.clone(), name, from, &origin)
        };
        let pick_file = |flag: &Option<PathBuf>, name: &str, from: Option<PathBuf>| {
            sourced(flag.clone(), name, from, &origin)
        };
        let server = pick(&self.server, "--server", chosen.server)
            .unwrap_or_else(|| Sourced { value: DEFAULT_SERVER.to_owned(), origin: "default".to_owned() });
        let token_file = pick_file(&self.token_file, "--token-file", chosen.token_file);
        let client_cert = pick_file(&self.client_cert, "--client-cert", chosen.client_cert);
        let email = pick(&self.as_email, "--as-email", chosen.as_email).or_else(|| {
            let anonymous = token_file.is_none() && client_cert.is_none();
            (anonymous && is_loopback(&server.value)).then(|| Sourced {
                value: DEFAULT_EMAIL.to_owned(),
                origin: "default for a local server".to_owned(),
            })
        });
        Ok(Settings {
            config_file: path,
            context,
            project: pick(&self.project, "--project", chosen.project),
            email,
            token_file,
            ca_file: pick_file(&self.ca_file, "--ca-file", chosen.ca_file),
            client_cert,
            client_key: pick_file(&self.client_key, "--client-key", chosen.client_key),
            timeout: self.request_timeout.unwrap_or(REQUEST_TIMEOUT),
            server,
        })
    }
}

fn sourced<T>(flag: Option<T>, name: &str, context: Option<T>, origin: &str) -> Option<Sourced<T>> {
    let from_flag =
        flag.map(|value| Sourced { value, origin: format!("{name} or its environment variable") });
    from_flag.or_else(|| context.map(|value| Sourced { value, origin: origin.to_owned() }))
}

/// Whether the server is on this machine: only there an unproven identity is sent without being asked for.
fn is_loopback(server: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(server) else { return false };
    match url.host_str() {
        Some("localhost" | "[::1]") => true,
        Some(host) => host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback()),
        None => false,
    }
}

impl File {
    pub(crate) fn read(path: &Path, must_exist: bool) -> Outcome<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => {
                return Ok(Self::default());
            }
            Err(error) => {
                return Err(Failure::new(Exit::Failure, file(path), error.to_string())
                    .next("make it with `muster config set-context NAME --server URL`, or choose another with --client-config"));
            }
        };
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(&text).map_err(|error| {
            Failure::new(Exit::Failure, file(path), format!("it cannot be read: {error}"))
                .next("correct the file, or move it away and make it anew with `muster config set-context`")
        })
    }

    /// Writes the whole file at once, readable by its owner alone.
    pub(crate) fn write(&self, path: &Path) -> Outcome {
        let fail = |error: io::Error| {
            Failure::new(Exit::Failure, file(path), error.to_string())
                .next("check that its folder can be written")
        };
        let value = serde_json::to_value(self)
            .map_err(|error| Failure::new(Exit::Failure, file(path), error.to_string()))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(fail)?;
        let mut fresh = tempfile::NamedTempFile::new_in(folder).map_err(fail)?;
        io::Write::write_all(&mut fresh, yaml::to_string(&value).as_bytes()).map_err(fail)?;
        fresh.persist(path).map_err(|error| fail(error.error))?;
        Ok(())
    }

    pub(crate) fn context(&self, name: &str, path: Option<&Path>) -> Outcome<Context> {
        self.contexts.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "there are none yet".to_owned() } else { format!("there are {}", known.join(", ")) };
            let place = path.map(|path| format!(" in {}", path.display())).unwrap_or_default();
            Failure::new(Exit::NotFound, format!("context {name}"), format!("not found{place}; {known}"))
                .next(format!("choose one with --context, or make it with `muster config set-context {name} --server URL`"))
        })
    }
}

fn file(path: &Path) -> String {
    format!("file {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_contexts_and_contexts_over_defaults() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/config.yaml");
        let context = Context {
            server: Some("https://m.example".into()),
            project: Some("red".into()),
            ..Context::default()
        };
        let file =
            File { current_context: Some("prod".into()), contexts: [("prod".to_owned(), context)].into() };
        file.write(&path).unwrap();
        assert_eq!(File::read(&path, true).unwrap(), file);

        let environment = Environment::default();
        let plain = Connection { client_config: Some(path.clone()), ..Connection::default() };
        let settings = plain.settings(&environment).unwrap();
        assert_eq!(
            (settings.server.value.as_str(), settings.server.origin.as_str()),
            ("https://m.example", "context prod")
        );
        assert_eq!(settings.email, None, "no unproven identity is sent to another machine");

        let flagged = Connection { server: Some("http://localhost:1".into()), ..plain };
        let settings = flagged.settings(&environment).unwrap();
        assert_eq!(settings.server.value, "http://localhost:1");
        assert_eq!(settings.project.unwrap().value, "red");
        assert_eq!(settings.email.unwrap().value, DEFAULT_EMAIL);
    }

    #[test]
    fn nothing_configured_means_the_local_server() {
        let settings = Connection::default().settings(&Environment::default()).unwrap();
        assert_eq!(settings.server.value, DEFAULT_SERVER);
        assert_eq!(settings.email.unwrap().value, DEFAULT_EMAIL);
    }

    #[test]
    fn a_missing_context_lists_the_others() {
        let file = File { current_context: None, contexts: [("dev".to_owned(), Context::default())].into() };
        let error = file.context("prd", None).unwrap_err();
        assert_eq!(error.exit, Exit::NotFound);
        assert!(error.to_string().contains("dev"), "{error}");
    }

    #[test]
    fn a_file_with_an_unknown_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.yaml");
        fs::write(&path, "contexts:\n  a:\n    sever: x\n").unwrap();
        let error = File::read(&path, true).unwrap_err();
        assert!(error.to_string().contains("sever"), "{error}");
    }
}
