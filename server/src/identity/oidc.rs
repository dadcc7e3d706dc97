//! Tokens of an `OpenID` Connect issuer.
//!
//! Accepted: a signed JWT with a key id that the issuer publishes, an asymmetric algorithm that fits the
//! key, the configured issuer and audience, an expiry in the future and no start in the future. Refused:
//! everything else, without saying more than that to the caller; the reason is logged.
//!
//! Keys are fetched when first needed and again when a token names an unknown one, but not more often
//! than [`REFRESH_PAUSE`], so that made-up key ids cannot make us hammer the issuer.

use std::{collections::BTreeMap, fmt, time::Duration};

use jsonwebtoken::{
    Algorithm, DecodingKey, Validation,
    jwk::{AlgorithmParameters, JwkSet},
};
use muster_model::{Clock, Timestamp};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::error::ApiError;

/// Unknown key ids lead to at most one fetch in this time.
pub const REFRESH_PAUSE: muster_model::Duration = muster_model::Duration::from_secs(10);
/// Keys are fetched anew after this time even if all tokens verify, so that withdrawn keys go away.
const KEY_LIFE: muster_model::Duration = muster_model::Duration::from_mins(60);
/// Clocks of issuer and server may differ by this much.
const SKEW: muster_model::Duration = muster_model::Duration::from_secs(60);
/// A token is a few hundred bytes to a few KiB; longer ones are not worth parsing.
const MAX_TOKEN: usize = 16 * 1024;
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Algorithms that are accepted at all: signatures with a public key. Neither `none` nor shared secrets.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// What is configured about an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// Compared exactly with the claim `iss`.
    pub url: String,
    pub audience: String,
    /// Where the keys are; by default what the issuer's discovery document says.
    pub keys: Option<String>,
    /// The claim that names the user (`email`, which then must be verified, or `sub`).
    pub user_claim: String,
    pub groups_claim: String,
}

/// Who a verified token speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    pub user: String,
    pub groups: Vec<String>,
}

pub struct Verifier {
    issuer: Issuer,
    client: reqwest::Client,
    keys: Mutex<Keys>,
}

#[derive(Default)]
struct Keys {
    by_id: BTreeMap<String, Key>,
    fetched: Option<muster_model::Duration>,
}

#[derive(Clone)]
struct Key {
    key: DecodingKey,
    algorithms: Vec<Algorithm>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl Verifier {
    /// Fails when no HTTP client can be built.
    pub fn new(issuer: Issuer) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .timeout(FETCH_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self { issuer, client, keys: Mutex::new(Keys::default()) })
    }

    /// The claims of a token that passes every check.
    pub async fn verify(&self, token: &str, clock: &dyn Clock) -> Result<Claims, ApiError> {
        self.judge(token, clock).await.map_err(|fault| match fault {
            Fault::Token(why) => {
                tracing::info!(why, "a token was refused");
                ApiError::unauthenticated("the token is not valid here")
            }
            Fault::Issuer(why) => {
                tracing::warn!(issuer = %self.issuer.url, why, "the issuer's keys could not be fetched");
                ApiError::unavailable().details("the token could not be checked; try again shortly")
            }
        })
    }

    async fn judge(&self, token: &str, clock: &dyn Clock) -> Result<Claims, Fault> {
        if token.len() > MAX_TOKEN {
            return Err(Fault::Token("too long".into()));
        }
        let head = jsonwebtoken::decode_header(token).map_err(|error| Fault::Token(error.to_string()))?;
        if !ALGORITHMS.contains(&head.alg) {
            return Err(Fault::Token(format!("algorithm {:?}", head.alg)));
        }
        let kid = head.kid.ok_or_else(|| Fault::Token("no key id".into()))?;
        let key = self.key(&kid, clock).await?;
        if !key.algorithms.contains(&head.alg) {
            return Err(Fault::Token(format!("algorithm {:?} does not fit key {kid}", head.alg)));
        }
        let mut rules = Validation::new(head.alg);
        rules.algorithms = vec![head.alg];
        rules.set_issuer(&[&self.issuer.url]);
        rules.set_audience(&[&self.issuer.audience]);
        rules.set_required_spec_claims(&["exp", "iss", "aud"]);
        // Times are compared below, with the clock that the rest of the system runs on.
        rules.validate_exp = false;
        rules.validate_nbf = false;
        let claims: Value = jsonwebtoken::decode(token, &key.key, &rules)
            .map_err(|error| Fault::Token(error.to_string()))?
            .claims;
        check_times(&claims, clock.now())?;
        self.claims(&claims)
    }

    fn claims(&self, claims: &Value) -> Result<Claims, Fault> {
        let user = claims
            .get(&self.issuer.user_claim)
            .and_then(Value::as_str)
            .filter(|user| !user.is_empty())
            .ok_or_else(|| Fault::Token(format!("no claim {}", self.issuer.user_claim)))?;
        if self.issuer.user_claim == "email" && claims.get("email_verified") == Some(&Value::Bool(false)) {
            return Err(Fault::Token("the e-mail address is not verified".into()));
        }
        let groups = claims
            .get(&self.issuer.groups_claim)
            .and_then(Value::as_array)
            .map(|groups| groups.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            .unwrap_or_default();
        Ok(Claims { user: user.to_owned(), groups })
    }

    async fn key(&self, kid: &str, clock: &dyn Clock) -> Result<Key, Fault> {
        let mut keys = self.keys.lock().await;
        let age = keys.fetched.map(|at| clock.monotonic().saturating_sub(at));
        let stale = age.is_none_or(|age| age > KEY_LIFE);
        if !stale && let Some(key) = keys.by_id.get(kid) {
            return Ok(key.clone());
        }
        if stale || age.is_some_and(|age| age >= REFRESH_PAUSE) {
            match self.fetch().await {
                Ok(by_id) => *keys = Keys { by_id, fetched: Some(clock.monotonic()) },
                Err(why) if keys.by_id.contains_key(kid) => {
                    tracing::warn!(why, "the issuer's keys could not be refreshed; the old ones serve on");
                }
                Err(why) => return Err(Fault::Issuer(why)),
            }
        }
        keys.by_id.get(kid).cloned().ok_or_else(|| Fault::Token(format!("unknown key {kid}")))
    }

    async fn fetch(&self) -> Result<BTreeMap<String, Key>, String> {
        let address = match &self.issuer.keys {
            Some(address) => address.clone(),
            None => self.discover().await?,
        };
        let set: JwkSet = self.get(&address).await?;
        Ok(set
            .keys
            .iter()
            .filter_map(|jwk| {
                let id = jwk.common.key_id.clone()?;
                let algorithms = algorithms_of(jwk)?;
                Some((id, Key { key: DecodingKey::from_jwk(jwk).ok()?, algorithms }))
            })
            .collect())
    }

    async fn discover(&self) -> Result<String, String> {
        let address = format!("{}/.well-known/openid-configuration", self.issuer.url.trim_end_matches('/'));
        let document: Value = self.get(&address).await?;
        if document.get("issuer").and_then(Value::as_str) != Some(&self.issuer.url) {
            return Err("the discovery document names another issuer".into());
        }
        document
            .get("jwks_uri")
            .and_then(Value::as_str)
            .map(str::to_owned)
            .ok_or_else(|| "the discovery document has no jwks_uri".into())
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, address: &str) -> Result<T, String> {
        let answer = self.client.get(address).send().await.map_err(|error| error.to_string())?;
        let answer = answer.error_for_status().map_err(|error| error.to_string())?;
        answer.json().await.map_err(|error| error.to_string())
    }
}

enum Fault {
    Token(String),
    Issuer(String),
}

/// The algorithms that a published key may be used with. Shared secrets are not keys for us.
fn algorithms_of(jwk: &jsonwebtoken::jwk::Jwk) -> Option<Vec<Algorithm>> {
    use jsonwebtoken::jwk::{EllipticCurve, PublicKeyUse};
    if jwk.common.public_key_use.as_ref().is_some_and(|purpose| *purpose != PublicKeyUse::Signature) {
        return None;
    }
    let fitting: Vec<Algorithm> = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => ALGORITHMS[..6].to_vec(),
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => vec![Algorithm::ES256],
            EllipticCurve::P384 => vec![Algorithm::ES384],
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(_) => vec![Algorithm::EdDSA],
        _ => return None,
    };
    match jwk.common.key_algorithm {
        None => Some(fitting),
        Some(stated) => {
            let stated: Algorithm = stated.to_string().parse().ok()?;
            fitting.contains(&stated).then(|| vec![stated])
        }
    }
}

fn check_times(claims: &Value, now: Timestamp) -> Result<(), Fault> {
    let time = |name: &str| -> Result<Option<Timestamp>, Fault> {
        let Some(value) = claims.get(name) else { return Ok(None) };
        let seconds = value
            .as_i64()
            .or_else(|| value.as_f64().filter(|s| s.is_finite() && s.abs() < 1e15).map(whole_seconds))
            .ok_or_else(|| Fault::Token(format!("claim {name} is no time")))?;
        Ok(Some(Timestamp::from_millis(seconds.saturating_mul(1000))))
    };
    let expiry = time("exp")?.ok_or_else(|| Fault::Token("no expiry".into()))?;
    if now >= expiry.saturating_add(SKEW) {
        return Err(Fault::Token("expired".into()));
    }
    if time("nbf")?.is_some_and(|start| now.saturating_add(SKEW) < start) {
        return Err(Fault::Token("not valid yet".into()));
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "bounded to 1e15 by the caller; fractions are dropped")]
fn whole_seconds(seconds: f64) -> i64 {
    seconds as i64
}
