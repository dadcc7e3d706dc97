//! Passwords and keys, held so that they are hard to spill.

use std::fmt;

use async_trait::async_trait;
use thiserror::Error;
use zeroize::Zeroizing;

/// A secret value. It is wiped when dropped, cannot be serialised, and prints as a placeholder.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    pub fn new(value: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(value.into()))
    }

    /// The value itself. Whoever calls this answers for where it goes.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

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
