//! What is known about a credential without knowing it: values never appear in a type of this crate.

use serde::{Deserialize, Serialize};

use crate::{Timestamp, field::choice};

choice! {
    pub enum CredentialKind("a kind of credential") {
        /// User name and password of a BMC.
        Bmc = "bmc",
        /// User name, password and Kg key.
        Ipmi = "ipmi",
        /// Key that signs calls to a webhook.
        Webhook = "webhook",
        /// Key that signs power-off tokens.
        Agent = "agent",
    }
}

/// Where the value is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum CredentialSource {
    /// Encrypted in Muster's own store, so that it is there when the cluster is not.
    Store,
    /// A Kubernetes Secret by name, in the project's namespace.
    Secret { name: String },
}

/// A credential as it is listed and described.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialMeta {
    pub name: String,
    pub kind: CredentialKind,
    pub source: CredentialSource,
    /// Rises with every rotation; a BMC that refused one version is tried again with the next.
    pub version: u64,
    pub created_at: Timestamp,
    pub rotated_at: Timestamp,
    /// The Secret's own version when it was last looked at, for a credential that is kept in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_version: Option<String>,
    /// The last version that a BMC accepted, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<CredentialUse>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<CredentialUse>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialUse {
    pub version: u64,
    pub at: Timestamp,
    /// The host whose BMC said so.
    pub host: String,
}

impl CredentialMeta {
    /// Whether the version in force was refused and not accepted since.
    pub fn is_refused(&self) -> bool {
        let at = |one: &Option<CredentialUse>| {
            one.as_ref().filter(|one| one.version == self.version).map(|one| one.at)
        };
        at(&self.refused).is_some_and(|refused| at(&self.accepted).is_none_or(|accepted| accepted < refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_forgets_the_refusal() {
        let time = Timestamp::from_millis;
        let used = |version, at| Some(CredentialUse { version, at: time(at), host: "a".into() });
        let mut meta = CredentialMeta {
            name: "rack-a".into(),
            kind: CredentialKind::Bmc,
            source: CredentialSource::Store,
            version: 1,
            created_at: time(0),
            rotated_at: time(0),
            secret_version: None,
            accepted: used(1, 5),
            refused: used(1, 9),
        };
        assert!(meta.is_refused());
        meta.accepted = used(1, 12);
        assert!(!meta.is_refused());
        meta.accepted = None;
        meta.version = 2;
        assert!(!meta.is_refused());
    }
}
