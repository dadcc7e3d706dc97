//! Who is calling, and how we know.
//!
//! One mode is configured; it alone decides which part of a request counts as proof. Whatever the mode,
//! a controller token may be configured: it is a credential of its own and never follows from a name.
//! What a caller may do once known is decided by `muster_model::identity::allowed`.

mod bindings;
mod headers;
pub mod oidc;
mod tokens;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use axum::http::{HeaderMap, header};
use muster_model::{
    Clock, Project,
    identity::{Email, Identity, Role},
};

pub use bindings::{Binding, Bindings, Grantee};
pub(crate) use headers::single as single_header;
pub use tokens::{TokenDigest, TokenTable};

use crate::{error::ApiError, peer::Peer};

/// How callers prove who they are.
#[derive(Debug)]
pub enum Mode {
    /// `X-User-Email` is believed. Only for loopback: the listener refuses any other address.
    Dev,
    /// A client certificate: its common name is the user, its organizations are the groups.
    Mtls,
    /// Headers count on connections whose client certificate carries one of these names.
    TrustedProxy { proxies: Vec<String>, user_header: String, group_header: String },
    /// A JWT of the configured issuer.
    Oidc(Box<oidc::Verifier>),
    /// One of the tokens whose digests are configured.
    Token(TokenTable),
    /// Another judge of bearer tokens, supplied from outside (a Kubernetes `TokenReview`, for one).
    Review(Arc<dyn TokenReview>),
}

impl Mode {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Mtls => "mtls",
            Self::TrustedProxy { .. } => "trusted-proxy",
            Self::Oidc(_) => "oidc",
            Self::Token(_) => "token",
            Self::Review(_) => "k8s",
        }
    }
}

/// A judge of bearer tokens outside this process.
#[async_trait::async_trait]
pub trait TokenReview: Send + Sync + fmt::Debug {
    /// `Ok(None)`: the token is not valid. An error: nobody could be asked, and the caller is denied. `project`
    /// is the one that the request names; roles in others need not be known.
    async fn review(&self, token: &str, project: Option<&Project>) -> Result<Option<Reviewed>, String>;
}

/// What an outside judge says about a token. Roles come on top of those of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reviewed {
    pub user: String,
    pub groups: Vec<String>,
    pub everywhere: BTreeSet<Role>,
    pub projects: BTreeMap<Project, BTreeSet<Role>>,
    /// Where new objects go when the request names no project.
    pub home: Option<Project>,
}

/// A caller whose identity is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// What is written into `created_by` and the audit log.
    pub name: Arc<str>,
    /// Which proof was accepted: a mode's name, or `controller-token`.
    pub proof: &'static str,
    pub identity: Identity,
}

/// Turns requests into callers.
#[derive(Debug)]
pub struct Authenticator {
    mode: Mode,
    bindings: Bindings,
    controller: Option<TokenDigest>,
    clock: Arc<dyn Clock>,
    /// Who a caller is that names nobody, in dev mode.
    guest: Option<Email>,
}

/// Chooses among the projects that a caller has.
pub(crate) const PROJECT_HEADER: &str = "x-muster-project";
/// The name under which the holder of the controller token acts.
pub const CONTROLLER_NAME: &str = "controller";
/// The address that the seed's system took for a controller. It proves nothing here.
const RESERVED_ADDRESS: &str = "controller@system.local";

impl Authenticator {
    pub fn new(
        mode: Mode,
        bindings: Bindings,
        controller: Option<TokenDigest>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { mode, bindings, controller, clock, guest: None }
    }

    /// Takes callers that name nobody for this one. Only dev mode, where every address is believed, listens to it.
    #[must_use]
    pub fn with_guest(mut self, guest: Email) -> Self {
        self.guest = Some(guest);
        self
    }

    pub const fn mode(&self) -> &'static str {
        self.mode.name()
    }

    pub const fn is_dev(&self) -> bool {
        matches!(self.mode, Mode::Dev)
    }

    /// The caller of a request, or why it has none.
    pub async fn authenticate(&self, headers: &HeaderMap, peer: &Peer) -> Result<Caller, ApiError> {
        let bearer = headers::bearer(headers)?;
        if let (Some(token), Some(digest)) = (bearer, &self.controller)
            && digest.matches(token)
        {
            return Ok(Caller {
                name: CONTROLLER_NAME.into(),
                proof: "controller-token",
                identity: Identity::controller(CONTROLLER_NAME),
            });
        }
        match &self.mode {
            Mode::Dev => match bearer {
                Some(_) => Err(refused_token()),
                None => match &self.guest {
                    Some(guest) if !headers.contains_key("X-User-Email") => Ok(self.by_address(guest, &[])),
                    _ => self.by_header(headers, "X-User-Email", &[]),
                },
            },
            Mode::TrustedProxy { proxies, user_header, group_header } => {
                if bearer.is_some() {
                    return Err(refused_token());
                }
                if !peer.certificate.as_ref().is_some_and(|cert| headers::names_any(cert, proxies)) {
                    return Err(ApiError::unauthenticated(
                        "identity headers count only on connections from the trusted proxy",
                    ));
                }
                let groups = headers::list(headers, group_header)?;
                self.by_header(headers, user_header, &groups)
            }
            Mode::Mtls => self.by_certificate(bearer.is_some(), peer),
            Mode::Token(table) => {
                let token = bearer.ok_or_else(|| missing_token(headers))?;
                let user = table.user(token).ok_or_else(refused_token)?;
                self.known(user, &[])
            }
            Mode::Oidc(verifier) => {
                let token = bearer.ok_or_else(|| missing_token(headers))?;
                let claims = verifier.verify(token, self.clock.as_ref()).await?;
                self.known(&claims.user, &claims.groups)
            }
            Mode::Review(judge) => {
                let token = bearer.ok_or_else(|| missing_token(headers))?;
                let named = single_header(headers, PROJECT_HEADER)?.and_then(|text| text.parse().ok());
                let reviewed = judge.review(token, named.as_ref()).await.map_err(|error| {
                    tracing::warn!(%error, "a token could not be reviewed");
                    ApiError::unavailable().details("the token could not be checked; try again shortly")
                })?;
                let reviewed = reviewed.ok_or_else(refused_token)?;
                let mut caller = self.known(&reviewed.user, &reviewed.groups)?;
                caller.identity.everywhere.extend(reviewed.everywhere);
                for (project, roles) in reviewed.projects {
                    caller.identity.projects.entry(project).or_default().extend(roles);
                }
                caller.identity.home = caller.identity.home.or(reviewed.home);
                Ok(caller)
            }
        }
    }

    fn by_header(&self, headers: &HeaderMap, name: &str, groups: &[String]) -> Result<Caller, ApiError> {
        let email: Email = headers::address(headers, name)?;
        if email.as_str() == RESERVED_ADDRESS {
            return Err(ApiError::unauthenticated(
                "a controller is known by its credential, not by an address; send its token as a bearer",
            ));
        }
        Ok(self.by_address(&email, groups))
    }

    fn by_address(&self, email: &Email, groups: &[String]) -> Caller {
        let identity = if self.bindings.is_empty() {
            Identity::from_email(email)
        } else {
            self.bindings.identity(email.as_str(), groups)
        };
        Caller { name: email.as_str().into(), proof: self.mode(), identity }
    }

    fn by_certificate(&self, sent_bearer: bool, peer: &Peer) -> Result<Caller, ApiError> {
        if sent_bearer {
            return Err(refused_token());
        }
        let certificate = peer.certificate.as_ref().ok_or_else(|| {
            ApiError::unauthenticated("present a client certificate of the configured authority")
        })?;
        if certificate.common_name.is_empty() {
            return Err(ApiError::unauthenticated("the client certificate has no single common name"));
        }
        self.known(&certificate.common_name, &certificate.organizations)
    }

    fn known(&self, user: &str, groups: &[String]) -> Result<Caller, ApiError> {
        if user.is_empty() {
            return Err(ApiError::unauthenticated("the credential names nobody"));
        }
        let identity = self.bindings.identity(user, groups);
        Ok(Caller { name: user.into(), proof: self.mode(), identity })
    }
}

fn refused_token() -> ApiError {
    ApiError::unauthenticated("the bearer token is not valid here")
}

fn missing_token(headers: &HeaderMap) -> ApiError {
    if headers.contains_key(header::AUTHORIZATION) {
        return ApiError::unauthenticated("the Authorization header must be `Bearer TOKEN`");
    }
    ApiError::unauthenticated("send a token: `Authorization: Bearer TOKEN`")
}
