//! Settings: by file, environment and flags, each with a memory of where it came from.
//!
//! Every setting has one path (`auth.mode`). In the file the dots are nesting; in the environment the path
//! is in capitals with underscores (`MUSTER_AUTH_MODE`); as a flag it is `--set auth.mode=token`, and the
//! most used ones have flags of their own. A flag wins over the environment, which wins over the file.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::Parser;
use muster_model::suggest;
use serde_json::Value;

use crate::output;

/// `muster config view`: the server's settings.
#[derive(Debug, Parser)]
pub(crate) struct View {
    #[command(flatten)]
    sources: Sources,
    /// Also show where each value comes from
    #[arg(long)]
    origin: bool,
}

/// Where settings come from besides the environment.
#[derive(Debug, Clone, Parser)]
pub(crate) struct Sources {
    /// Settings file (YAML)
    #[arg(long, env = "MUSTER_SERVER_CONFIG")]
    config: Option<PathBuf>,
    /// Address and port to serve on
    #[arg(long)]
    listen: Option<String>,
    /// Directory of the embedded store, the audit log and generated secrets
    #[arg(long)]
    data_dir: Option<String>,
    /// embedded, memory, or etcd://host:port[,host:port...]
    #[arg(long)]
    store: Option<String>,
    /// dev, token, mtls, trusted-proxy or oidc
    #[arg(long)]
    auth_mode: Option<String>,
    /// Certificate to serve with (PEM file)
    #[arg(long)]
    tls_certificate: Option<String>,
    /// Key of that certificate (PEM file)
    #[arg(long)]
    tls_key: Option<String>,
    /// Blocks of addresses that BMCs may have, like 10.20.0.0/16
    #[arg(long, value_name = "CIDR,…")]
    bmc_allow: Option<String>,
    /// Any setting, by its path: --set limits.watches=100
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
}

impl Sources {
    /// The settings in effect, with the environment of this process.
    #[allow(clippy::disallowed_methods, reason = "the environment is read here, once")]
    pub(crate) fn gather(&self) -> anyhow::Result<Settings> {
        let named = [
            ("listen", "--listen", &self.listen),
            ("data-dir", "--data-dir", &self.data_dir),
            ("store", "--store", &self.store),
            ("auth.mode", "--auth-mode", &self.auth_mode),
            ("tls.certificate", "--tls-certificate", &self.tls_certificate),
            ("tls.key", "--tls-key", &self.tls_key),
            ("bmc.allow", "--bmc-allow", &self.bmc_allow),
        ];
        let mut flags: Vec<(String, String, String)> = named
            .into_iter()
            .filter_map(|(path, flag, value)| Some((path.to_owned(), value.clone()?, flag.to_owned())))
            .collect();
        for text in &self.set {
            let Some((path, value)) = text.split_once('=') else {
                bail!("--set {text:?} has no value; write --set path=value");
            };
            flags.push((path.to_owned(), value.to_owned(), format!("--set {path}")));
        }
        Settings::gather(self.config.as_deref(), std::env::vars(), flags)
    }
}

pub(crate) fn view(view: &View) -> anyhow::Result<()> {
    for (path, value, from, help) in view.sources.gather()?.view() {
        let text = if view.origin {
            format!("{path}: {value}  # {from}")
        } else {
            format!("{path}: {value}  # {help}")
        };
        if !output::line(&text) {
            break;
        }
    }
    Ok(())
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File(String),
    Environment(String),
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {path}"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// Whether a value is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Plain,
    Secret,
}

/// One setting that exists.
#[derive(Debug, Clone, Copy)]
struct Known {
    path: &'static str,
    default: &'static str,
    shown: Shown,
    help: &'static str,
}

const fn known(path: &'static str, default: &'static str, help: &'static str) -> Known {
    Known { path, default, shown: Shown::Plain, help }
}

/// Every setting, with its default. `docs/reference/configuration.md` is made from this table.
const SETTINGS: &[Known] = &[
    known("listen", "127.0.0.1:8080", "address and port to serve on"),
    known("data-dir", "muster-data", "directory of the embedded store, the audit log and generated secrets"),
    known("store", "embedded", "embedded, memory, or etcd://host:port[,host:port...]"),
    known("store-root", "", "prefix of all keys, for an etcd that is shared with others"),
    known("etcd.ca", "", "authority of the etcd servers' certificates (PEM file)"),
    known("etcd.certificate", "", "client certificate for etcd (PEM file)"),
    known("etcd.key", "", "key of the client certificate for etcd (PEM file)"),
    known("etcd.user", "", "user name for etcd"),
    known("etcd.password-file", "", "file that holds the password for etcd"),
    known("tls.certificate", "", "certificate to serve with (PEM file); without it plain HTTP is served"),
    known("tls.key", "", "key of that certificate (PEM file)"),
    known(
        "tls.client-authority",
        "",
        "authority of client certificates, for mtls and trusted-proxy (PEM file)",
    ),
    known("auth.mode", "dev", "dev, token, mtls, trusted-proxy, oidc or k8s"),
    known("auth.bindings", "[]", "list of {user or group, project, role}"),
    known("auth.tokens", "[]", "list of {user, sha256}, for token mode"),
    known("auth.proxies", "[]", "names in the certificates of trusted proxies"),
    known("auth.user-header", "X-User-Email", "header in which a trusted proxy names the user"),
    known("auth.group-header", "X-User-Groups", "header in which a trusted proxy lists the user's groups"),
    known("auth.oidc.issuer", "", "URL of the issuer, exactly as its tokens say"),
    known("auth.oidc.audience", "", "audience that tokens must carry"),
    known("auth.oidc.keys", "", "URL of the issuer's keys, when discovery should not be used"),
    known("auth.oidc.user-claim", "email", "claim that names the user"),
    known("auth.oidc.groups-claim", "groups", "claim that lists the user's groups"),
    known(
        "auth.k8s.kubeconfig",
        "",
        "cluster that judges tokens; the one that the server runs in when empty",
    ),
    known("auth.k8s.context", "", "context of that kubeconfig; its current one when empty"),
    known("auth.k8s.audiences", "[\"muster\"]", "audiences of which a token must carry one; any when empty"),
    Known {
        path: "controller-token",
        default: "",
        shown: Shown::Secret,
        help: "bearer token with the controller role; dev mode makes one",
    },
    known(
        "prometheus.url",
        "",
        "Prometheus that answers triggers; without it the one in /baremetal/global/config",
    ),
    known("prometheus.token-file", "", "file that holds a bearer token for Prometheus, read at every query"),
    known("prometheus.user", "", "user name for Prometheus"),
    known("prometheus.password-file", "", "file that holds the password for Prometheus, read at every query"),
    known("prometheus.ca", "", "authority of Prometheus' certificate (PEM file); else the system's"),
    known("prometheus.timeout", "10s", "how long a query may take"),
    known(
        "lead",
        "true",
        "whether this process may lead, that is plan and switch machines; false serves the API only",
    ),
    known(
        "leader.by",
        "store",
        "what elects the leader among replicas: store, or kubernetes for a Lease; the store's epoch is the fence in both",
    ),
    known("leader.namespace", "", "namespace of that Lease; own.namespace when empty"),
    known("leader.name", "muster-leader", "name of that Lease"),
    known("leader.kubeconfig", "", "cluster of that Lease; the one that the server runs in when empty"),
    known("leader.context", "", "context of that kubeconfig; its current one when empty"),
    known("limits.body-bytes", "1048576", "largest request body"),
    known("limits.requests-per-second", "50000", "sustained requests of one identity; 0 for no limit"),
    known("limits.header-timeout", "10s", "time in which a request's head must have arrived"),
    known("limits.body-timeout", "30s", "time in which a request's body must have arrived"),
    known("limits.watches", "5000", "watches open at once"),
    known("limits.watches-per-identity", "2000", "watches of one identity open at once"),
    known(
        "credentials.key-file",
        "",
        "file of the key that credentials are encrypted with; made in the data directory unless set",
    ),
    known(
        "bmc.allow",
        "",
        "blocks of addresses that BMCs may have, like 10.20.0.0/16,fd00::/8; none without it",
    ),
    known(
        "bmc.ports",
        "443,8443,80,623,9,7",
        "ports that BMCs, switches and webhooks may be called on; on loopback every port may",
    ),
    known("bmc.plain-http", "false", "whether BMCs may be called without TLS"),
    known("hosts.time-factor", "1", "divides every time limit and pause of the host loop, for trials"),
    known(
        "own.node",
        "",
        "name of the node that this process runs on; it is never drained, and never switched off or cycled by itself",
    ),
    known("own.pod", "", "name of the pod that this process runs in; its node is never drained"),
    known("own.namespace", "", "namespace of that pod"),
    known(
        "own.store-nodes",
        "[]",
        "names of nodes that members of the store run on, where store does not tell by addresses; they are never drained, and never switched off or cycled by themselves",
    ),
    known(
        "resources.home",
        "",
        "cluster that keeps the custom resources: PROJECT/CLUSTER of a connected one, or off; the one that the server runs in when empty",
    ),
    known(
        "resources.namespaces",
        "create",
        "what happens to a project without a namespace in that cluster: create makes it, existing waits for it",
    ),
    known("metrics.hosts", "false", "whether /metrics/hosts serves series for every host"),
    known("status.lease", "5m", "a controller that is silent for longer is unknown, unless it asks for more"),
    known("audit.rotate-bytes", "67108864", "size at which the audit log begins a new file"),
    known("audit.keep-files", "0", "closed audit files that are kept; 0 keeps all"),
    known("log.level", "info", "error, warn, info, debug, or a filter like muster=debug"),
    known("log.format", "auto", "text, json, or auto: text on a terminal, else json"),
];

/// Variables that start like ours but are not settings of the server.
const FOREIGN: [&str; 11] = [
    "MUSTER_CACHE",
    "MUSTER_SERVER_CONFIG",
    // The command line's.
    "MUSTER_SERVER",
    "MUSTER_CONTEXT",
    "MUSTER_PROJECT",
    "MUSTER_TOKEN_FILE",
    "MUSTER_AS_EMAIL",
    "MUSTER_CA_FILE",
    "MUSTER_CLIENT_CERT",
    "MUSTER_CLIENT_KEY",
    "MUSTER_CLIENT_CONFIG",
];

/// The settings in effect.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, (Value, Origin)>,
    /// Variables that look like settings and are none: a slip of the pen, most likely.
    ignored: Vec<String>,
}

impl Settings {
    /// Puts all sources together. `flags` are (path, value, flag as written).
    pub(crate) fn gather(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: impl IntoIterator<Item = (String, String, String)>,
    ) -> anyhow::Result<Self> {
        let mut settings = Self {
            values: SETTINGS
                .iter()
                .map(|known| (known.path, (text(known.default), Origin::Default)))
                .collect(),
            ignored: Vec::new(),
        };
        if let Some(path) = file {
            settings.read_file(path)?;
        }
        for (name, value) in environment {
            if !name.starts_with("MUSTER_") || FOREIGN.contains(&name.as_str()) {
                continue;
            }
            match SETTINGS.iter().find(|known| variable(known.path) == name) {
                Some(known) => settings.set(known.path, text(&value), Origin::Environment(name)),
                None => settings.ignored.push(name),
            }
        }
        for (path, value, flag) in flags {
            let path = find(&path)?;
            settings.set(path, text(&value), Origin::Flag(flag));
        }
        Ok(settings)
    }

    /// Environment variables that begin like settings and are none.
    pub(crate) fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// What somebody has set, and whether it is a secret.
    pub(crate) fn chosen(&self) -> impl Iterator<Item = (&'static str, &Value, bool)> {
        let secret =
            |path: &str| SETTINGS.iter().any(|known| known.path == path && known.shown == Shown::Secret);
        self.values
            .iter()
            .filter(|(_, (_, origin))| *origin != Origin::Default)
            .map(move |(path, (value, _))| (*path, value, secret(path)))
    }

    fn set(&mut self, path: &'static str, value: Value, origin: Origin) {
        self.values.insert(path, (value, origin));
    }

    fn read_file(&mut self, path: &Path) -> anyhow::Result<()> {
        let shown = path.display().to_string();
        let content =
            fs::read_to_string(path).with_context(|| format!("cannot read the configuration {shown}"))?;
        let document: Value = serde_saphyr::from_str(&content)
            .with_context(|| format!("the configuration {shown} is not valid YAML"))?;
        let mut leaves = Vec::new();
        flatten("", document, &mut leaves);
        for (path, value) in leaves {
            let path = find(&path).with_context(|| format!("in the configuration {shown}"))?;
            self.set(path, value, Origin::File(shown.clone()));
        }
        Ok(())
    }

    fn get(&self, path: &str) -> &(Value, Origin) {
        self.values.get(path).expect("every path that is asked for is in SETTINGS")
    }

    /// A setting as text; empty means not set.
    pub(crate) fn text(&self, path: &str) -> String {
        match &self.get(path).0 {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    pub(crate) fn optional(&self, path: &str) -> Option<String> {
        Some(self.text(path)).filter(|text| !text.is_empty())
    }

    pub(crate) fn parsed<T>(&self, path: &str) -> anyhow::Result<T>
    where
        T: std::str::FromStr,
        T::Err: fmt::Display,
    {
        let text = self.text(path);
        text.parse().map_err(|error| {
            anyhow::anyhow!("the setting {path} is {text:?} (from {}): {error}", self.get(path).1)
        })
    }

    /// A setting that holds a list, in the file as such and elsewhere as JSON.
    pub(crate) fn list<T: serde::de::DeserializeOwned>(&self, path: &str) -> anyhow::Result<Vec<T>> {
        let (value, origin) = self.get(path);
        let value = match value {
            Value::String(text) if text.is_empty() => Value::Array(Vec::new()),
            Value::String(text) => serde_json::from_str(text)
                .with_context(|| format!("the setting {path} (from {origin}) is not JSON"))?,
            other => other.clone(),
        };
        serde_json::from_value(value)
            .with_context(|| format!("the setting {path} (from {origin}) is not valid"))
    }

    /// Every setting with its value and origin, for people. Secrets are not shown.
    pub(crate) fn view(&self) -> Vec<(&'static str, String, String, &'static str)> {
        SETTINGS
            .iter()
            .map(|known| {
                let (_, origin) = self.get(known.path);
                let value = match known.shown {
                    Shown::Secret if *origin != Origin::Default => "(hidden)".to_owned(),
                    _ => self.text(known.path),
                };
                (known.path, value, origin.to_string(), known.help)
            })
            .collect()
    }
}

/// The reference of the settings. `docs/reference/configuration.md` is this text.
pub(crate) fn markdown() -> String {
    let mut out = CONFIGURATION_HEAD.to_owned();
    for Known { path, default, help, .. } in SETTINGS {
        let default = if default.is_empty() { "not set".to_owned() } else { format!("`{default}`") };
        let _ = writeln!(out, "| `{path}` | `{}` | {default} | {help} |", variable(path));
    }
    out.push_str(CONFIGURATION_TAIL);
    out
}

const CONFIGURATION_HEAD: &str = "\
# Configuration of the server

Made from the program itself by `muster reference configuration`; a test compares the two.

```yaml
# muster.yaml: muster serve --config muster.yaml
listen: 127.0.0.1:8080
data-dir: /var/lib/muster
auth:
  mode: token
  tokens:
    - user: ada@example.com
      sha256: e3505dadaad08c7b06c92e40c8a244606474277b2a778c996f35a4a9902642d3
  bindings:
    - user: ada@example.com
      project: lab
      role: admin
log:
  level: info
```

Every setting has one path. In the file the dots are nesting. In the environment the path is in capitals with
underscores. On the command line it is `--set PATH=VALUE`; `--listen`, `--data-dir`, `--store`, `--auth-mode`,
`--tls-certificate` and `--tls-key` are flags of their own. A flag wins over the environment, which wins over
the file. Outside the file a list is written as JSON: `--set 'auth.proxies=[\"proxy.internal\"]'`.

`muster config view` shows the settings in effect; `--origin` also shows where each one comes from. A mistyped path is
an error that names the nearest one; an unknown `MUSTER_` variable is a warning in the log.

## Settings

| Path | Environment | Default | Meaning |
|---|---|---|---|
";

const CONFIGURATION_TAIL: &str = "
## Values

* **Durations** are written like `90s`, `5m` or `1h30m`.
* **`auth.tokens`**: `sha256` is the digest of the token; `muster config token --user NAME` makes both.
* **`auth.bindings`**: `user` or `group`; `project` (left out or `*`: all projects); `role`, one of `viewer`, `operator`,
  `admin`, `controller`, `auditor`; `controller_name` ties a controller to one name. See [sign in](../how-to/sign-in.md).
* **`controller-token`** is a secret: set it by `MUSTER_CONTROLLER_TOKEN` or in a file that only the server can read.
  `muster config view` does not show it.

The command line's own settings (server, context, identity) are in [the command line](cli.md), under each command.
";

fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

/// The environment variable of a setting.
fn variable(path: &str) -> String {
    format!("MUSTER_{}", path.to_uppercase().replace(['.', '-'], "_"))
}

fn find(path: &str) -> anyhow::Result<&'static str> {
    if let Some(known) = SETTINGS.iter().find(|known| known.path == path) {
        return Ok(known.path);
    }
    match suggest::nearest(path, SETTINGS.iter().map(|known| known.path)) {
        Some(near) => bail!("there is no setting {path:?}; did you mean {near}?"),
        None => bail!("there is no setting {path:?}; `muster config view` lists all of them"),
    }
}

/// Leaves of a document with their paths. Lists are leaves.
fn flatten(path: &str, value: Value, leaves: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let path = if path.is_empty() { name } else { format!("{path}.{name}") };
                flatten(&path, value, leaves);
            }
        }
        Value::Null => {}
        leaf => leaves.push((path.to_owned(), leaf)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(
        file: Option<&str>,
        environment: &[(&str, &str)],
        flags: &[(&str, &str)],
    ) -> anyhow::Result<Settings> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("muster.yaml");
        if let Some(text) = file {
            fs::write(&path, text)?;
        }
        Settings::gather(
            file.map(|_| path.as_path()),
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
            flags.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned(), format!("--{path}"))),
        )
    }

    #[test]
    fn flags_win_over_environment_over_file_over_default() {
        let file = "listen: 127.0.0.1:1\nauth:\n  mode: token\nlog: {level: warn}\n";
        let settings = gather(
            Some(file),
            &[("MUSTER_LISTEN", "127.0.0.1:2"), ("MUSTER_LOG_LEVEL", "debug"), ("HOME", "/x")],
            &[("listen", "127.0.0.1:3")],
        )
        .unwrap();
        let origin = |path: &str| settings.get(path).1.to_string();
        assert_eq!(
            (settings.text("listen"), origin("listen")),
            ("127.0.0.1:3".into(), "flag --listen".into())
        );
        assert_eq!(origin("log.level"), "environment MUSTER_LOG_LEVEL");
        assert!(origin("auth.mode").starts_with("file "));
        assert_eq!(origin("store"), "default");
    }

    #[test]
    fn mistyped_settings_are_errors_that_name_the_right_one() {
        let error = format!("{:#}", gather(Some("lisen: x\n"), &[], &[]).unwrap_err());
        assert!(error.contains("did you mean listen?"), "{error}");
        let error = format!("{:#}", gather(None, &[], &[("auth.mod", "x")]).unwrap_err());
        assert!(error.contains("did you mean auth.mode?"), "{error}");
    }

    #[test]
    fn variables_that_are_no_settings_are_remembered_unless_another_part_owns_them() {
        let environment = [("MUSTER_LISTN", "x"), ("MUSTER_AS_EMAIL", "a@b.c"), ("HOME", "/x")];
        assert_eq!(gather(None, &environment, &[]).unwrap().ignored(), ["MUSTER_LISTN"]);
    }

    #[test]
    fn secrets_are_not_shown() {
        let settings = gather(None, &[("MUSTER_CONTROLLER_TOKEN", "hush")], &[]).unwrap();
        assert!(settings.view().iter().all(|(_, value, ..)| !value.contains("hush")));
        assert_eq!(settings.text("controller-token"), "hush");
    }

    #[test]
    fn lists_come_from_yaml_or_json() {
        let file = "auth:\n  proxies: [a, b]\n";
        assert_eq!(gather(Some(file), &[], &[]).unwrap().list::<String>("auth.proxies").unwrap(), ["a", "b"]);
        let settings = gather(None, &[("MUSTER_AUTH_PROXIES", "[\"c\"]")], &[]).unwrap();
        assert_eq!(settings.list::<String>("auth.proxies").unwrap(), ["c"]);
    }
}
