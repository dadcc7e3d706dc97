//! Accounts on BMCs, and where drivers get them from.

use std::fmt;

use async_trait::async_trait;
use thiserror::Error;

use crate::Secret;

/// An account on a BMC, or a key in [`Credential::password`] for drivers that sign.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credential {
    pub user: String,
    pub password: Secret,
    /// Changes whenever the user or password does. A refused version is not tried again.
    pub version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("credential {name} cannot be used: {why}")]
pub struct CredentialError {
    pub name: String,
    pub why: String,
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
    use super::*;

    #[test]
    fn a_secret_is_in_no_debug_text() {
        let account =
            Credential { user: "admin".into(), password: Secret::new("canary-4711"), version: "1".into() };
        let text = format!("{account:?} {account:#?}");
        assert!(!text.contains("canary") && text.contains("[secret]"), "{text}");
    }
}
