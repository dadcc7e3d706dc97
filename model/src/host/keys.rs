//! Every key under `/baremetal/`: a documented contract with tools that read or write the inventory.

pub const ROOT: &str = "/baremetal/";
pub const NODES: &str = "/baremetal/nodes/";
pub const POOLS: &str = "/baremetal/pools/";
/// Validated and read live: marks, limits, Prometheus, energy price, freeze.
pub const GLOBAL_CONFIG: &str = "/baremetal/global/config";
/// Hosts by state, resources by pool, watts.
pub const GLOBAL_STATS: &str = "/baremetal/global/stats";

/// Boot progress that a PXE server reports, by host; outside the inventory's contract.
pub const BOOT_PROGRESS: &str = "/muster/boot-progress/";

pub fn boot_progress(host: &str) -> String {
    format!("{BOOT_PROGRESS}{host}")
}

/// What an agent said before it powered its host off, by host; outside the inventory's contract.
pub const AGENT_GOODBYES: &str = "/muster/agent-goodbyes/";

pub fn agent_goodbye(host: &str) -> String {
    format!("{AGENT_GOODBYES}{host}")
}

/// One record of a host, by its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostRecord {
    /// People, a DCIM, importers.
    Spec,
    /// The actuator.
    Intent,
    /// The host loop, as are the rest.
    Op,
    Status,
    Metrics,
    Events,
}

impl HostRecord {
    pub const ALL: [Self; 6] =
        [Self::Spec, Self::Intent, Self::Op, Self::Status, Self::Metrics, Self::Events];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Spec => "spec",
            Self::Intent => "intent",
            Self::Op => "op",
            Self::Status => "status",
            Self::Metrics => "metrics",
            Self::Events => "events",
        }
    }
}

/// One record of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PoolRecord {
    /// The pool's settings.
    Config,
    /// The names of its hosts, derived from their specs.
    Members,
}

impl PoolRecord {
    pub const ALL: [Self; 2] = [Self::Config, Self::Members];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Members => "members",
        }
    }
}

/// What a key under `/baremetal/` stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key<'a> {
    Host { host: &'a str, record: HostRecord },
    Pool { pool: &'a str, record: PoolRecord },
    GlobalConfig,
    GlobalStats,
}

pub fn host(host: &str, record: HostRecord) -> String {
    format!("{NODES}{host}/{}", record.as_str())
}

/// All records of one host, and of no host whose name merely begins alike.
pub fn host_prefix(host: &str) -> String {
    format!("{NODES}{host}/")
}

pub fn pool(pool: &str, record: PoolRecord) -> String {
    format!("{POOLS}{pool}/{}", record.as_str())
}

pub fn pool_prefix(pool: &str) -> String {
    format!("{POOLS}{pool}/")
}

/// Reads a key; `None` for what is not part of the contract, which is left alone.
pub fn parse(key: &str) -> Option<Key<'_>> {
    if key == GLOBAL_CONFIG {
        return Some(Key::GlobalConfig);
    }
    if key == GLOBAL_STATS {
        return Some(Key::GlobalStats);
    }
    let split = |rest: &'static str| {
        let (name, record) = key.strip_prefix(rest)?.split_once('/')?;
        (!name.is_empty()).then_some((name, record))
    };
    if let Some((host, record)) = split(NODES) {
        let record = HostRecord::ALL.into_iter().find(|one| one.as_str() == record)?;
        return Some(Key::Host { host, record });
    }
    let (pool, record) = split(POOLS)?;
    let record = PoolRecord::ALL.into_iter().find(|one| one.as_str() == record)?;
    Some(Key::Pool { pool, record })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_documented_paths() {
        let hosts: Vec<_> = HostRecord::ALL.iter().map(|one| host("gpu-07", *one)).collect();
        assert_eq!(
            hosts,
            [
                "/baremetal/nodes/gpu-07/spec",
                "/baremetal/nodes/gpu-07/intent",
                "/baremetal/nodes/gpu-07/op",
                "/baremetal/nodes/gpu-07/status",
                "/baremetal/nodes/gpu-07/metrics",
                "/baremetal/nodes/gpu-07/events",
            ]
        );
        let pools: Vec<_> = PoolRecord::ALL.iter().map(|one| pool("gpu", *one)).collect();
        assert_eq!(pools, ["/baremetal/pools/gpu/config", "/baremetal/pools/gpu/members"]);
    }

    #[test]
    fn what_is_written_is_read_back_and_nothing_else_is() {
        for record in HostRecord::ALL {
            assert_eq!(parse(&host("a", record)), Some(Key::Host { host: "a", record }));
        }
        for record in PoolRecord::ALL {
            assert_eq!(parse(&pool("a", record)), Some(Key::Pool { pool: "a", record }));
        }
        assert_eq!(parse(GLOBAL_CONFIG), Some(Key::GlobalConfig));
        assert_eq!(parse(GLOBAL_STATS), Some(Key::GlobalStats));
        for foreign in [
            "/baremetal/nodes/a",
            "/baremetal/nodes//spec",
            "/baremetal/nodes/a/notes",
            "/baremetal/nodes/a/spec/x",
            "/baremetal/pools/a/spec",
            "/muster/pools/a",
        ] {
            assert_eq!(parse(foreign), None, "{foreign}");
        }
        assert!(!host("gpu-1", HostRecord::Spec).starts_with(&host_prefix("gpu")));
    }
}
