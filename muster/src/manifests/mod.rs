//! `muster manifests`: the Kubernetes objects that run Muster in a cluster, or that let it reach one.
//!
//! Pure: flags in, YAML out. No secret is printed; what has to exist beforehand is named in the first lines. The rights
//! are those of [`muster_kube::rights`], which a test compares with what Muster really asks for.

mod access;
mod monitoring;
mod network;
mod workload;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, bail, ensure};
use clap::{Parser, ValueEnum};
use muster_kube::rights::Part;
use muster_model::Project;
use muster_store::Target;
use serde_json::{Value, json};

use crate::{cli, config::Settings, output};

/// The name of every object, and of the service account.
const NAME: &str = "muster";
/// Where the container serves.
const PORT: u16 = 8443;
/// Settings that follow from how the pod is made.
const OURS: [&str; 14] = [
    "listen",
    "data-dir",
    "store",
    "tls.certificate",
    "tls.key",
    "tls.client-authority",
    "credentials.key-file",
    "etcd.ca",
    "etcd.certificate",
    "etcd.key",
    "own.node",
    "own.pod",
    "own.namespace",
    "leader.by",
];

/// A Secret by its namespace and name.
fn secret_name(text: &str) -> Result<(String, String), String> {
    let (namespace, name) = text.split_once('/').ok_or("write NAMESPACE/NAME")?;
    muster_model::names::check_dns_label(namespace).map_err(|why| format!("{namespace}: {why}"))?;
    muster_model::names::check_dns_subdomain(name).map_err(|why| format!("{name}: {why}"))?;
    Ok((namespace.to_owned(), name.to_owned()))
}

/// Print the Kubernetes objects that run Muster in a cluster, as YAML for `kubectl apply -f -`
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// The container image of Muster
    #[arg(long, required_unless_present = "rights_only")]
    image: Option<String>,
    /// The namespace that everything goes to
    #[arg(long, short, default_value = "muster")]
    namespace: String,
    /// Leave the Namespace itself out: it is there already
    #[arg(long)]
    without_namespace: bool,
    /// Leave out the custom resources: neither their definitions nor rights on them, and resources.home is off
    #[arg(long)]
    without_resources: bool,
    /// Also print what the Prometheus operator needs: how to scrape Muster, and alerts
    #[arg(long)]
    monitoring: bool,
    /// Secret that Prometheus scrapes with: ca.crt, and token, or tls.crt and tls.key with --auth-mode mtls
    #[arg(long, default_value = "muster-metrics", value_name = "NAME", requires = "monitoring")]
    metrics_secret: String,
    /// Only the service account and its rights: for a cluster that a Muster elsewhere connects to
    #[arg(long, conflicts_with_all = ["image", "replicas", "store", "config", "set", "auth_mode", "monitoring"])]
    rights_only: bool,
    /// How many replicas; one by default, two with etcd
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=9))]
    replicas: Option<u32>,
    /// embedded (one replica, on a volume of its own), or etcd://host:port[,host:port...]
    #[arg(long, default_value = "embedded")]
    store: String,
    /// Size of the volume of an embedded store
    #[arg(long, default_value = "2Gi", value_name = "QUANTITY")]
    volume_size: String,
    /// Storage class of that volume; the cluster's default without it
    #[arg(long, value_name = "NAME")]
    storage_class: Option<String>,
    /// Secret with ca.crt, tls.crt and tls.key for etcd
    #[arg(long, value_name = "NAME")]
    etcd_secret: Option<String>,
    /// What elects the leader among several replicas
    #[arg(long, value_enum, default_value_t = Leader::Kubernetes)]
    leader_by: Leader,
    /// How callers prove who they are
    #[arg(long, value_enum, default_value_t = AuthMode::K8s)]
    auth_mode: AuthMode,
    /// Secret with the certificate to serve with: tls.crt and tls.key, and ca.crt where clients show certificates
    #[arg(long, default_value = "muster-tls", value_name = "NAME")]
    tls_secret: String,
    /// Secret whose `key` encrypts the credentials in the store
    #[arg(long, default_value = "muster-credentials", value_name = "NAME")]
    credentials_secret: String,
    /// Secret whose `token` is the bearer token of controllers
    #[arg(long, value_name = "NAME")]
    controller_token_secret: Option<String>,
    /// Secrets that credentials may name: one right to read each of them, and no other
    #[arg(long, value_name = "NAMESPACE/NAME,…", value_delimiter = ',', value_parser = secret_name)]
    bmc_secret: Vec<(String, String)>,
    /// Blocks of addresses that BMCs have, like 10.20.0.0/16
    #[arg(long, value_name = "CIDR,…", value_delimiter = ',')]
    bmc_allow: Vec<String>,
    /// Where the API server is, as seen from a pod; anywhere on ports 443 and 6443 without it
    #[arg(long, value_name = "CIDR,…", value_delimiter = ',')]
    api_server: Vec<String>,
    /// Also grant the deletion of nodes, for pools whose policy deletes the nodes of machines that are off
    #[arg(long)]
    delete_nodes: bool,
    /// Priority class of the pods
    #[arg(long, value_name = "NAME")]
    priority_class: Option<String>,
    /// Settings file whose content the pods get
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A setting for the pods, by its path: --set prometheus.url=http://prometheus:9090
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
}

/// What elects the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Leader {
    Store,
    Kubernetes,
}

/// The identity modes that may be served to others than this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AuthMode {
    K8s,
    Token,
    Oidc,
    Mtls,
    TrustedProxy,
}

impl AuthMode {
    const fn as_str(self) -> &'static str {
        match self {
            Self::K8s => "k8s",
            Self::Token => "token",
            Self::Oidc => "oidc",
            Self::Mtls => "mtls",
            Self::TrustedProxy => "trusted-proxy",
        }
    }

    /// Settings without which a server in this mode does not start.
    const fn needs(self) -> &'static [&'static str] {
        match self {
            Self::K8s | Self::Mtls => &[],
            Self::Token => &["auth.tokens"],
            Self::Oidc => &["auth.oidc.issuer", "auth.oidc.audience"],
            Self::TrustedProxy => &["auth.proxies"],
        }
    }

    /// Whether clients show certificates, for which an authority is needed.
    const fn asks_for_certificates(self) -> bool {
        matches!(self, Self::Mtls | Self::TrustedProxy)
    }
}

pub(crate) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let text = print(args)?;
    // A reader that went away has seen enough.
    let _ = output::text(&text);
    Ok(ExitCode::SUCCESS)
}

/// Everything, as one stream of documents.
fn print(args: &Args) -> anyhow::Result<String> {
    let install = Install::read(args)?;
    let mut objects = Vec::new();
    if !args.without_namespace {
        objects.push(namespace(&install));
    }
    if install.keeps_resources() {
        objects.extend(muster_kube::resources::definitions());
    }
    objects.extend(access::objects(&install));
    let mut head = vec![format!("# Muster {}: made by `muster manifests`.", env!("CARGO_PKG_VERSION"))];
    if let Some(image) = &args.image {
        objects.extend(workload::objects(&install, image));
        objects.push(network::policy(&install)?);
        if args.monitoring {
            objects.extend(monitoring::objects(&install));
        }
        head.extend(install.beforehand());
    }
    let documents: Vec<String> = objects.iter().map(cli::yaml).collect();
    Ok(format!("{}\n---\n{}", head.join("\n"), documents.join("---\n")))
}

fn namespace(install: &Install<'_>) -> Value {
    // The pod keeps to the strictest standard; the label has the API server hold it to that.
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": install.args.namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    })
}

/// The flags, judged, with what follows from them.
struct Install<'a> {
    args: &'a Args,
    /// The members of etcd, as host and port; `None` for an embedded store.
    etcd: Option<Vec<(String, u16)>>,
    replicas: u32,
    leader: Leader,
    /// Content of the settings file, by path.
    settings: Vec<(String, Value)>,
}

impl<'a> Install<'a> {
    fn read(args: &'a Args) -> anyhow::Result<Self> {
        args.namespace
            .parse::<Project>()
            .map_err(|error| anyhow::anyhow!("--namespace {:?} {error}", args.namespace))?;
        let etcd = etcd_members(&args.store)?;
        let replicas = args.replicas.unwrap_or(if etcd.is_some() { 2 } else { 1 });
        ensure!(
            etcd.is_some() || replicas == 1,
            "an embedded store belongs to one process: {replicas} replicas need --store etcd://host:port"
        );
        ensure!(
            args.etcd_secret.is_none() || etcd.is_some(),
            "--etcd-secret is for --store etcd://host:port; this store is {}",
            args.store
        );
        ensure!(
            !args.monitoring || args.auth_mode != AuthMode::TrustedProxy,
            "--monitoring is not for --auth-mode trusted-proxy: Prometheus would have to come through the proxy; scrape that one"
        );
        // One replica has nobody to be elected against.
        let leader = if replicas == 1 { Leader::Store } else { args.leader_by };
        let mut install = Self { args, etcd, replicas, leader, settings: Vec::new() };
        if !args.rights_only {
            install.settings = install.settle()?;
        }
        Ok(install)
    }

    /// What goes into the settings file: what was asked for, and what follows from how the pod is made.
    fn settle(&self) -> anyhow::Result<Vec<(String, Value)>> {
        let mut flags = Vec::new();
        for text in &self.args.set {
            let (path, value) = text
                .split_once('=')
                .with_context(|| format!("--set {text:?} has no value; write --set path=value"))?;
            flags.push((path.to_owned(), value.to_owned(), format!("--set {path}")));
        }
        let chosen = Settings::gather(self.args.config.as_deref(), [], flags)?;
        let mut settings = Vec::new();
        for (path, value, secret) in chosen.chosen() {
            ensure!(!OURS.contains(&path), "{path} follows from how the pod is made and cannot be set");
            ensure!(path != "auth.mode", "say --auth-mode instead of setting auth.mode");
            ensure!(path != "bmc.allow", "say --bmc-allow instead of setting bmc.allow");
            ensure!(
                !secret,
                "{path} is a secret, and a ConfigMap keeps none; say --controller-token-secret NAME"
            );
            settings.push((path.to_owned(), value.clone()));
        }
        let mode = self.args.auth_mode;
        for path in mode.needs() {
            let given = settings.iter().any(|(known, _)| known == path);
            ensure!(given, "--auth-mode {} takes {path}: --set {path}=… or --config FILE", mode.as_str());
        }
        let mut add = |path: &str, value: &str| settings.push((path.to_owned(), value.into()));
        add("listen", &format!("0.0.0.0:{PORT}"));
        add("data-dir", workload::DATA);
        add("store", &self.args.store);
        add("auth.mode", mode.as_str());
        if self.args.without_resources {
            add("resources.home", "off");
        }
        add("tls.certificate", &format!("{}/tls.crt", workload::TLS));
        add("tls.key", &format!("{}/tls.key", workload::TLS));
        add("credentials.key-file", &format!("{}/key", workload::CREDENTIALS));
        if mode.asks_for_certificates() {
            add("tls.client-authority", &format!("{}/ca.crt", workload::TLS));
        }
        if self.args.etcd_secret.is_some() {
            for (path, file) in [("ca", "ca.crt"), ("certificate", "tls.crt"), ("key", "tls.key")] {
                add(&format!("etcd.{path}"), &format!("{}/{file}", workload::ETCD));
            }
        }
        if self.leader == Leader::Kubernetes {
            add("leader.by", "kubernetes");
        }
        if !self.args.bmc_allow.is_empty() {
            add("bmc.allow", &self.args.bmc_allow.join(","));
        }
        settings.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(settings)
    }

    fn setting(&self, path: &str) -> Option<String> {
        let (_, value) = self.settings.iter().find(|(known, _)| known == path)?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    /// Whether the cluster is the home of custom resources.
    const fn keeps_resources(&self) -> bool {
        !self.args.rights_only && !self.args.without_resources
    }

    /// The rights that this installation uses.
    fn parts(&self) -> Vec<Part> {
        let mut parts = vec![Part::Core];
        if self.args.delete_nodes {
            parts.push(Part::DeleteNodes);
        }
        if !self.args.rights_only && self.args.auth_mode == AuthMode::K8s {
            parts.push(Part::Identity);
        }
        if self.leader == Leader::Kubernetes {
            parts.push(Part::Election);
        }
        parts
    }

    /// What has to exist for the pods to start, as commands.
    fn beforehand(&self) -> Vec<String> {
        let (space, args) = (&self.args.namespace, self.args);
        let authority = if args.auth_mode.asks_for_certificates() { " --from-file=ca.crt" } else { "" };
        let tls = if authority.is_empty() {
            format!("create secret tls {} --cert=tls.crt --key=tls.key", args.tls_secret)
        } else {
            format!(
                "create secret generic {} --from-file=tls.crt --from-file=tls.key{authority}",
                args.tls_secret
            )
        };
        let mut commands = vec![
            tls,
            format!(
                "create secret generic {} --from-literal=key=\"$(head -c 32 /dev/urandom | base64)\"",
                args.credentials_secret
            ),
        ];
        if let Some(name) = &args.etcd_secret {
            commands.push(format!(
                "create secret generic {name} --from-file=ca.crt --from-file=tls.crt --from-file=tls.key"
            ));
        }
        if let Some(name) = &args.controller_token_secret {
            commands.push(format!("create secret generic {name} --from-file=token"));
        }
        let scraped = args.monitoring.then(|| {
            let files: Vec<String> =
                monitoring::files(args.auth_mode).iter().map(|file| format!(" --from-file={file}")).collect();
            format!("create secret generic {}{}", args.metrics_secret, files.concat())
        });
        let mut lines = vec!["# Its pods start once these secrets exist:".to_owned()];
        lines.extend(commands.into_iter().map(|command| format!("#   kubectl -n {space} {command}")));
        if let Some(command) = scraped {
            lines.push(
                "# Prometheus scrapes it with this one, as somebody who is a viewer everywhere:".to_owned(),
            );
            lines.push(format!("#   kubectl -n {space} {command}"));
        }
        lines.push(format!(
            "# The certificate is for {NAME}.{space}.svc and whatever else the service is called by."
        ));
        lines
    }
}

/// Host and port of every member of etcd; `None` for an embedded store.
fn etcd_members(store: &str) -> anyhow::Result<Option<Vec<(String, u16)>>> {
    if store == "embedded" {
        return Ok(None);
    }
    ensure!(
        store.starts_with("etcd://"),
        "--store {store:?} is neither embedded nor etcd://host:port[,host:port...]"
    );
    let Target::Etcd { endpoints } = Target::parse(store)? else {
        bail!("--store {store:?} names no members of etcd");
    };
    let members = endpoints.iter().filter_map(|member| {
        let (host, port) = member.rsplit_once(':')?;
        Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
    });
    Ok(Some(members.collect()))
}

/// Labels by which everything of one installation is found.
fn labels() -> Value {
    json!({
        "app.kubernetes.io/name": NAME,
        "app.kubernetes.io/version": env!("CARGO_PKG_VERSION"),
        "app.kubernetes.io/managed-by": "muster-manifests",
    })
}

/// Labels by which its pods are chosen; they never change.
fn selector() -> Value {
    json!({"app.kubernetes.io/name": NAME})
}

fn metadata(install: &Install<'_>, name: &str) -> Value {
    json!({"name": name, "namespace": install.args.namespace, "labels": labels()})
}

#[cfg(test)]
mod tests;
