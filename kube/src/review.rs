//! Who the bearer of a token is, and what the cluster lets them do with Muster.
//!
//! A `TokenReview` names the user and the groups. `SubjectAccessReviews` then ask, for each role, whether they
//! may use it: the verb is the role, the resource is `projects` of the group `muster.dev`, and a project is a
//! namespace. So who may do what is written down in the cluster's own RBAC. Answers are remembered for a
//! short time; when the cluster cannot be asked, nobody is let in on old ones that have run out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use muster_model::{API_GROUP, Duration, Project, field::Choice, identity::Role};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    client::{Call, Client},
    error::KubeError,
};

/// The resource that stands for a project in RBAC rules.
pub const PROJECTS: &str = "projects";
/// How long an answer is believed. A right that is taken away ends this much later at most.
const BELIEVED: Duration = Duration::from_secs(10);
/// Answers that are remembered. Anyone can send tokens, so there is an end to it.
const REMEMBERED: usize = 4096;

/// What the cluster says about a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    pub user: String,
    pub groups: Vec<String>,
    /// Roles in every project.
    pub everywhere: BTreeSet<Role>,
    /// Roles in the project that was asked about.
    pub projects: BTreeMap<Project, BTreeSet<Role>>,
    /// The project of a service account: its namespace.
    pub home: Option<Project>,
}

/// Asks one cluster about tokens.
#[derive(Debug)]
pub struct Reviewer {
    client: Client,
    /// For whom tokens have to be made; any that the API server takes, when empty.
    audiences: Vec<String>,
    answers: Mutex<BTreeMap<[u8; 32], Answer>>,
}

#[derive(Debug, Clone)]
struct Answer {
    bearer: Option<Bearer>,
    /// On the monotonic clock.
    at: Duration,
}

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    status: TokenStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    audiences: Vec<String>,
    user: UserInfo,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UserInfo {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct AccessAnswer {
    #[serde(default)]
    status: AccessStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AccessStatus {
    allowed: bool,
    denied: bool,
}

impl Reviewer {
    pub fn new(client: Client, audiences: Vec<String>) -> Self {
        Self { client, audiences, answers: Mutex::default() }
    }

    /// The bearer and their roles, everywhere and in `project` (a service account's own, when none is named).
    /// `None`: the token is not valid here.
    pub async fn review(&self, token: &str, project: Option<&Project>) -> Result<Option<Bearer>, KubeError> {
        let key = key(token, project);
        let now = self.client.clock().monotonic();
        if let Some(answer) = self.remembered(&key, now) {
            return Ok(answer.bearer);
        }
        let bearer = match self.authenticate(token).await? {
            None => None,
            Some(user) => Some(self.with_roles(user, project).await?),
        };
        self.remember(key, Answer { bearer: bearer.clone(), at: now });
        Ok(bearer)
    }

    async fn authenticate(&self, token: &str) -> Result<Option<UserInfo>, KubeError> {
        let mut spec = json!({"token": token});
        if !self.audiences.is_empty() {
            spec["audiences"] = json!(self.audiences);
        }
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let answer: TokenAnswer = self.client.call("review a token", Call::post(path, body)).await?;
        let status = answer.status;
        // A server that does not know audiences answers without any: the token may be for somebody else.
        let for_us = self.audiences.is_empty()
            || status.audiences.iter().any(|audience| self.audiences.contains(audience));
        Ok((status.authenticated && for_us && !status.user.username.is_empty()).then_some(status.user))
    }

    async fn with_roles(&self, user: UserInfo, project: Option<&Project>) -> Result<Bearer, KubeError> {
        let home = home_of(&user.username);
        let project = project.or(home.as_ref());
        let mut bearer = Bearer {
            user: user.username.clone(),
            groups: user.groups.clone(),
            everywhere: BTreeSet::new(),
            projects: BTreeMap::new(),
            home: None,
        };
        for (word, role) in Role::ALL {
            if self.may(&user, word, None).await? {
                bearer.everywhere.insert(*role);
            } else if let Some(project) = project
                && self.may(&user, word, Some(project)).await?
            {
                bearer.projects.entry(project.clone()).or_default().insert(*role);
            }
        }
        bearer.home = home;
        Ok(bearer)
    }

    async fn may(&self, user: &UserInfo, verb: &str, project: Option<&Project>) -> Result<bool, KubeError> {
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra,
                "resourceAttributes": {
                    "group": API_GROUP, "resource": PROJECTS, "verb": verb,
                    "namespace": project.map_or("", |project| project.as_str()),
                },
            },
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer: AccessAnswer = self.client.call("review an access", Call::post(path, body)).await?;
        Ok(answer.status.allowed && !answer.status.denied)
    }

    fn remembered(&self, key: &[u8; 32], now: Duration) -> Option<Answer> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(key).filter(|answer| now.saturating_sub(answer.at) < BELIEVED).cloned()
    }

    fn remember(&self, key: [u8; 32], answer: Answer) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= REMEMBERED {
            let now = answer.at;
            answers.retain(|_, old| now.saturating_sub(old.at) < BELIEVED);
            if answers.len() >= REMEMBERED {
                return; // it is asked again next time
            }
        }
        answers.insert(key, answer);
    }
}

/// The namespace of a service account, where that is a project's name.
fn home_of(user: &str) -> Option<Project> {
    user.strip_prefix("system:serviceaccount:")?.split(':').next()?.parse().ok()
}

/// Tokens themselves are not kept.
fn key(token: &str, project: Option<&Project>) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(token.as_bytes());
    hash.update([0]);
    hash.update(project.map_or("", |project| project.as_str()).as_bytes());
    hash.finalize().into()
}
