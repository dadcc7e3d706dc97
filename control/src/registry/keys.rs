//! Where the registry keeps things in the store. This layout is a contract; `docs/reference/store-keys.md`
//! repeats it for people.
//!
//! ```text
//! /muster/clusters/{id}                        the cluster: metadata and spec
//! /muster/pools/{id}                           the pool: metadata and spec
//! /muster/names/clusters/{project}/{name}      id of the cluster of that name
//! /muster/names/pools/{cluster id}/{name}      id of the pool of that name
//! /muster/status/clusters/{id}                 aggregated status; absent before the first report
//! /muster/status/pools/{id}                    the same for pools
//! /muster/reports/clusters/{id}/{controller}   the last report of a controller
//! /muster/reports/pools/{id}/{controller}
//! /muster/operations/{id}                      a scale action and what became of it
//! /muster/idempotency/{digest}                 what a request with an Idempotency-Key created
//! ```
//!
//! An object and its name are written and deleted in one transaction. The revision at which
//! `/muster/{clusters,pools}/{id}` was last written is the object's resource version; status has keys of
//! its own so that reports do not touch it.

use uuid::Uuid;

/// Everything of ours; the feed of changes watches this prefix.
pub const ROOT: &str = "/muster/";
pub const NAMES: &str = "/muster/names/";
pub const OPERATIONS: &str = "/muster/operations/";
pub const REPORTS: &str = "/muster/reports/";
pub const IDEMPOTENCY: &str = "/muster/idempotency/";

/// The kinds of objects that lists show and watches follow. Controllers report on the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Cluster,
    Pool,
    Operation,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Cluster, Self::Pool, Self::Operation];

    /// The noun in key paths.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Cluster => "clusters",
            Self::Pool => "pools",
            Self::Operation => "operations",
        }
    }

    /// The noun in API paths and lists.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Cluster => "clusters",
            Self::Pool => "nodepools",
            Self::Operation => "operations",
        }
    }

    /// What people read in messages.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Pool => "NodePool",
            Self::Operation => "Operation",
        }
    }

    pub fn objects(self) -> String {
        format!("/muster/{}/", self.noun())
    }

    pub fn statuses(self) -> String {
        format!("/muster/status/{}/", self.noun())
    }

    pub fn object(self, id: Uuid) -> String {
        format!("/muster/{}/{id}", self.noun())
    }

    pub fn status(self, id: Uuid) -> String {
        format!("/muster/status/{}/{id}", self.noun())
    }

    pub fn reports(self, id: Uuid) -> String {
        format!("/muster/reports/{}/{id}/", self.noun())
    }

    pub fn report(self, id: Uuid, controller: &str) -> String {
        format!("/muster/reports/{}/{id}/{controller}", self.noun())
    }
}

pub fn cluster_name(project: &str, name: &str) -> String {
    format!("{NAMES}clusters/{project}/{name}")
}

/// Prefix of the names of a cluster's pools.
pub fn pool_names(cluster: Uuid) -> String {
    format!("{NAMES}pools/{cluster}/")
}

pub fn pool_name(cluster: Uuid, name: &str) -> String {
    format!("{NAMES}pools/{cluster}/{name}")
}

pub fn operation(id: Uuid) -> String {
    Kind::Operation.object(id)
}

pub fn idempotency(digest: &str) -> String {
    format!("{IDEMPOTENCY}{digest}")
}

/// Whether a key is that of a cluster, a pool or an operation itself.
pub fn is_object(key: &str) -> bool {
    let noun = key.strip_prefix(ROOT).and_then(|rest| rest.split_once('/')).map(|(noun, _)| noun);
    noun.is_some_and(|noun| Kind::ALL.iter().any(|kind| kind.noun() == noun))
}

/// What a changed key means to the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Object(Kind, Uuid),
    Status(Kind, Uuid),
}

/// Reads a key back; `None` for everything that lists do not show.
pub fn place(key: &str) -> Option<Place> {
    let rest = key.strip_prefix(ROOT)?;
    let (first, rest) = rest.split_once('/')?;
    match first {
        "clusters" => Some(Place::Object(Kind::Cluster, rest.parse().ok()?)),
        "pools" => Some(Place::Object(Kind::Pool, rest.parse().ok()?)),
        "operations" => Some(Place::Object(Kind::Operation, rest.parse().ok()?)),
        "status" => {
            let (noun, id) = rest.split_once('/')?;
            let kind = match noun {
                "clusters" => Kind::Cluster,
                "pools" => Kind::Pool,
                _ => return None,
            };
            Some(Place::Status(kind, id.parse().ok()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout is a contract: every key has its row in the reference.
    #[test]
    fn every_key_is_in_the_reference() {
        use muster_model::host::keys as hosts;
        let text = include_str!("../../../docs/reference/store-keys.md");
        let id = Uuid::nil();
        let plain = |key: String| key.replace(&id.to_string(), "{id}");
        let mut keys = vec![
            plain(operation(id)),
            idempotency("{digest}"),
            cluster_name("{project}", "{name}"),
            pool_name(id, "{name}").replace(&id.to_string(), "{cluster id}"),
            hosts::GLOBAL_CONFIG.to_owned(),
            hosts::GLOBAL_STATS.to_owned(),
            format!("{}{{name}}", muster_model::lease::LEASES),
        ];
        for kind in [Kind::Cluster, Kind::Pool] {
            keys.extend([kind.object(id), kind.status(id), kind.report(id, "{controller}")].map(plain));
        }
        keys.extend(hosts::HostRecord::ALL.map(|record| hosts::host("{host}", record)));
        keys.extend(hosts::PoolRecord::ALL.map(|record| hosts::pool("{pool}", record)));
        for key in keys {
            assert!(text.contains(&format!("`{key}`")), "docs/reference/store-keys.md lacks {key}");
        }
    }

    #[test]
    fn keys_are_read_back() {
        let id = Uuid::from_u128(0x1234);
        for kind in [Kind::Cluster, Kind::Pool] {
            assert_eq!(place(&kind.object(id)), Some(Place::Object(kind, id)));
            assert_eq!(place(&kind.status(id)), Some(Place::Status(kind, id)));
            assert_eq!(place(&kind.report(id, "gcp")), None);
        }
        assert_eq!(place(&operation(id)), Some(Place::Object(Kind::Operation, id)));
        for kind in Kind::ALL {
            assert!(
                is_object(&kind.object(id)) && !is_object(&kind.status(id)) && !is_object(&kind.reports(id))
            );
        }
        assert_eq!(Kind::Operation.object(id), operation(id));
        for foreign in ["/muster/format", "/muster/pools/", "/baremetal/nodes/a/spec", "/muster/journal/7"] {
            assert_eq!(place(foreign), None, "{foreign}");
        }
    }
}
