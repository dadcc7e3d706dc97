//! Accounts on BMCs, and where drivers get them from.

use std::fmt;

use async_trait::async_trait;
use thiserror::Error;

use super::Fault;
use crate::Secret;

/// An account on a BMC, or a key in [`Credential::password`] for drivers that sign.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credential {
    pub user: String,
    pub password: Secret,
    /// Changes whenever the user or password does, and never comes back under the same name. A refused version is not
    /// tried again.
    pub version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CredentialError {
    /// It is missing or broken: a person has to do something.
    #[error("credential {name} cannot be used: {why}")]
    Unusable { name: String, why: String },
    /// Where it is kept does not answer: nothing is known about it.
    #[error("credential {name} cannot be read now: {why}")]
    Away { name: String, why: String },
}

impl From<CredentialError> for Fault {
    fn from(error: CredentialError) -> Self {
        let why = error.to_string();
        match error {
            CredentialError::Unusable { .. } => Self::NoCredential { why },
            CredentialError::Away { .. } => Self::NotAsked { why },
        }
    }
}

/// Where drivers get accounts from, at the time of use, so that a rotation needs no restart.
///
/// A name is `project/name`, or `name` alone in the project of hosts that name none. A host never reaches a
/// credential of another project: [`crate::host::BareMetalNodeSpec::credential`] makes the name.
#[async_trait]
pub trait Credentials: Send + Sync + fmt::Debug {
    async fn credential(&self, name: &str) -> Result<Credential, CredentialError>;
}

#[cfg(test)]
mod tests {
    use super::{super::Advice, *};

    #[test]
    fn a_secret_is_in_no_debug_text() {
        let account =
            Credential { user: "admin".into(), password: Secret::new("canary-4711"), version: "1".into() };
        let text = format!("{account:?} {account:#?}");
        assert!(!text.contains("canary") && text.contains("[secret]"), "{text}");
    }

    #[test]
    fn only_what_a_person_must_mend_stops_calls() {
        let (name, why) = (String::from("rack-a"), String::from("the store does not answer"));
        let away = Fault::from(CredentialError::Away { name: name.clone(), why: why.clone() });
        let broken = Fault::from(CredentialError::Unusable { name, why });
        assert_eq!((away.advice(), broken.advice()), (Advice::Later, Advice::Person));
        assert_eq!(
            away.to_string(),
            "was not asked: credential rack-a cannot be read now: the store does not answer"
        );
    }
}
