//! What the inventory keeps beside `/baremetal/`, whose keys are in [`muster_model::host::keys`].
//!
//! ```text
//! /muster/inventory/guard                          compared and rewritten by every write of ours
//! /muster/inventory/changes/{host}                 the last changes that people and tools made to a spec
//! /muster/inventory/pools/{pool}                   id of the pool whose inventory name this is
//! /muster/inventory/racks/{name}                   a rack
//! /muster/inventory/boot-profiles/{name}           a boot profile
//! /muster/inventory/credentials/{project}/{name}   a credential, its value encrypted
//! /muster/inventory/boot-tokens/{host}             digest of the token that a PXE server reports with
//! /muster/connections/{id}                         how the cluster of that id is reached, its kubeconfig encrypted
//! /muster/inventory/events                         what was set aside, restored or applied lately
//! ```

pub const ROOT: &str = "/muster/inventory/";
pub const GUARD: &str = "/muster/inventory/guard";
pub const EVENTS: &str = "/muster/inventory/events";
pub const CREDENTIALS: &str = "/muster/inventory/credentials/";

/// How clusters are reached, under the cluster's id.
pub const CONNECTIONS: &str = "/muster/connections/";

pub fn connection(cluster: impl std::fmt::Display) -> String {
    format!("{CONNECTIONS}{cluster}")
}

pub fn changes(host: &str) -> String {
    format!("{ROOT}changes/{host}")
}

pub fn pool_owner(pool: &str) -> String {
    format!("{ROOT}pools/{pool}")
}

pub fn credential(project: &str, name: &str) -> String {
    format!("{CREDENTIALS}{project}/{name}")
}

pub fn boot_token(host: &str) -> String {
    format!("{ROOT}boot-tokens/{host}")
}

/// Records that are one JSON document under their name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NamedKind {
    Rack,
    BootProfile,
}

impl NamedKind {
    /// The noun in keys and API paths.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Rack => "racks",
            Self::BootProfile => "boot-profiles",
        }
    }

    /// What people read in messages.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Rack => "Rack",
            Self::BootProfile => "BootProfile",
        }
    }

    pub fn prefix(self) -> String {
        format!("{ROOT}{}/", self.plural())
    }

    pub fn key(self, name: &str) -> String {
        format!("{ROOT}{}/{name}", self.plural())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_the_reference() {
        let text = include_str!("../../../docs/reference/store-keys.md");
        for key in [
            GUARD.to_owned(),
            EVENTS.to_owned(),
            changes("{host}"),
            pool_owner("{pool}"),
            credential("{project}", "{name}"),
            boot_token("{host}"),
            connection("{id}"),
            NamedKind::Rack.key("{name}"),
            NamedKind::BootProfile.key("{name}"),
            muster_model::host::keys::boot_progress("{host}"),
        ] {
            assert!(text.contains(&format!("`{key}`")), "docs/reference/store-keys.md lacks {key}");
        }
    }
}
