//! From settings to an authenticator, and the refusals that keep a careless set-up from being served.

use std::{
    fs,
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail, ensure};
use muster_model::{Clock, Project, identity::Role};
use muster_server::{
    identity::{
        Authenticator, Binding, Bindings, Grantee, Mode, TokenDigest, TokenTable,
        oidc::{Issuer, Verifier},
    },
    tls::TlsFiles,
};
use rand::RngCore;
use serde::Deserialize;

use crate::config::Settings;

pub(super) struct Auth {
    pub(super) authenticator: Authenticator,
    /// Where the controller token is that dev mode made.
    pub(super) token_file: Option<PathBuf>,
}

/// Fails on a set-up that must not be served.
pub(super) async fn check(
    settings: &Settings,
    address: SocketAddr,
    tls: Option<&TlsFiles>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<()> {
    mode(settings, address, tls, clock).await?;
    bindings(settings).map(drop)
}

pub(super) async fn build(
    settings: &Settings,
    address: SocketAddr,
    tls: Option<&TlsFiles>,
    data_dir: &Path,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Auth> {
    let mode = mode(settings, address, tls, clock).await?;
    let (controller, token_file) = match settings.optional("controller-token") {
        Some(token) => (Some(TokenDigest::of(&token)), None),
        None if matches!(mode, Mode::Dev) => {
            let path = data_dir.join("controller-token");
            let token = kept_token(&path)
                .with_context(|| format!("cannot keep a controller token in {}", path.display()))?;
            (Some(TokenDigest::of(&token)), Some(path))
        }
        None => (None, None),
    };
    let authenticator = Authenticator::new(mode, bindings(settings)?, controller, Arc::clone(clock));
    Ok(Auth { authenticator, token_file })
}

async fn mode(
    settings: &Settings,
    address: SocketAddr,
    tls: Option<&TlsFiles>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Mode> {
    let name = settings.text("auth.mode");
    let client_authority = tls.is_some_and(|files| files.client_authority.is_some());
    if name == "dev" {
        ensure!(
            address.ip().is_loopback(),
            "refusing to serve on {address} in dev mode, where anyone who can connect is believed.\n\
             Serve on 127.0.0.1, or choose how callers prove who they are:\n  \
             --auth-mode token          tokens for a small site (auth.tokens)\n  \
             --auth-mode mtls           client certificates (tls.client-authority)\n  \
             --auth-mode oidc           an OpenID Connect issuer (auth.oidc.issuer)\n  \
             --auth-mode k8s            tokens and roles of a Kubernetes cluster (auth.k8s)\n  \
             --auth-mode trusted-proxy  a proxy that has checked them (auth.proxies)"
        );
        return Ok(Mode::Dev);
    }
    ensure!(
        tls.is_some() || address.ip().is_loopback(),
        "refusing to serve {name} credentials without TLS on {address}; set tls.certificate and tls.key"
    );
    match name.as_str() {
        "token" => token_mode(settings),
        "mtls" => {
            ensure!(client_authority, "mtls mode takes tls.certificate, tls.key and tls.client-authority");
            Ok(Mode::Mtls)
        }
        "trusted-proxy" => {
            ensure!(
                client_authority,
                "trusted-proxy mode takes tls.certificate, tls.key and tls.client-authority: \
                 the proxy is known by its certificate"
            );
            let proxies: Vec<String> = settings.list("auth.proxies")?;
            ensure!(!proxies.is_empty(), "trusted-proxy mode takes the proxies' names in auth.proxies");
            Ok(Mode::TrustedProxy {
                proxies,
                user_header: settings.text("auth.user-header"),
                group_header: settings.text("auth.group-header"),
            })
        }
        "oidc" => oidc_mode(settings),
        "k8s" => super::cluster_identity::mode(settings, clock).await,
        other => bail!("there is no auth.mode {other:?}; use dev, token, mtls, trusted-proxy, oidc or k8s"),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenLine {
    user: String,
    sha256: String,
}

fn token_mode(settings: &Settings) -> anyhow::Result<Mode> {
    let lines: Vec<TokenLine> = settings.list("auth.tokens")?;
    let tokens = lines
        .into_iter()
        .map(|line| {
            let text = format!("sha256:{}", line.sha256.trim_start_matches("sha256:"));
            let digest = TokenDigest::parse(&text).with_context(|| {
                format!("auth.tokens: the digest of {} is not 64 hexadecimal digits", line.user)
            })?;
            Ok((digest, line.user))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(!tokens.is_empty(), "token mode takes at least one line in auth.tokens: {{user, sha256}}");
    Ok(Mode::Token(TokenTable::new(tokens)))
}

fn oidc_mode(settings: &Settings) -> anyhow::Result<Mode> {
    let url = settings.optional("auth.oidc.issuer").context("oidc mode takes auth.oidc.issuer")?;
    let audience = settings.optional("auth.oidc.audience").context("oidc mode takes auth.oidc.audience")?;
    let local = ["http://127.0.0.1", "http://[::1]", "http://localhost"];
    ensure!(
        url.starts_with("https://") || local.iter().any(|prefix| url.starts_with(prefix)),
        "auth.oidc.issuer must be an https address; keys fetched in clear could be anyone's"
    );
    let issuer = Issuer {
        url,
        audience,
        keys: settings.optional("auth.oidc.keys"),
        user_claim: settings.text("auth.oidc.user-claim"),
        groups_claim: settings.text("auth.oidc.groups-claim"),
    };
    Ok(Mode::Oidc(Box::new(Verifier::new(issuer).context("cannot make an HTTP client")?)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BindingLine {
    user: Option<String>,
    group: Option<String>,
    project: Option<String>,
    role: Role,
    controller_name: Option<String>,
}

fn bindings(settings: &Settings) -> anyhow::Result<Bindings> {
    let lines: Vec<BindingLine> = settings.list("auth.bindings")?;
    let bindings = lines
        .into_iter()
        .map(|line| {
            let grantee = match (line.user, line.group) {
                (Some(user), None) => Grantee::User(user),
                (None, Some(group)) => Grantee::Group(group),
                _ => bail!("auth.bindings: a line takes either user or group"),
            };
            let project = match line.project.as_deref() {
                None | Some("*") => None,
                Some(name) => Some(
                    name.parse::<Project>()
                        .map_err(|error| anyhow::anyhow!("auth.bindings: project {name:?} {error}"))?,
                ),
            };
            Ok(Binding { grantee, project, role: line.role, controller_name: line.controller_name })
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Bindings::new(bindings))
}

/// The token in the file, made when there is none. Only its owner can read it.
fn kept_token(path: &Path) -> anyhow::Result<String> {
    if let Ok(token) = fs::read_to_string(path)
        && !token.trim().is_empty()
    {
        return Ok(token.trim().to_owned());
    }
    let mut bytes = [0; 32];
    rand::rng().fill_bytes(&mut bytes);
    let token = hex::encode(bytes);
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    writeln!(file, "{token}")?;
    file.sync_all()?;
    Ok(token)
}
