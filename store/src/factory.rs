//! From what a user wrote (`--data-dir DIR`, `--store etcd://…`) to a store that is ready.
//!
//! Ready means: it answers, no import into it was left half done, and what it holds has a format that this
//! version understands. Something newer is refused; something older is exported first and then migrated.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use muster_model::{
    Clock,
    store::{Committed, Expect, Revision, Store, StoreError, Txn},
};
use serde::{Deserialize, Serialize};

use crate::{
    embedded::{self, Embedded, HistoryLimits},
    etcd::{self, Etcd},
    portable,
};

/// Where the format of everything else is written.
pub const FORMAT_KEY: &str = "/muster/format";
/// The format that this version writes.
pub const FORMAT: u32 = 1;

/// Which store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A directory of our own.
    Directory(PathBuf),
    /// Members of an etcd cluster, `host:port` each.
    Etcd { endpoints: Vec<String> },
}

impl Target {
    /// Reads `etcd://host:port[,host:port…]`, `file:///path`, or a plain path.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let invalid = |why: String| StoreError::Invalid { why };
        if let Some(rest) = text.strip_prefix("etcd://") {
            let endpoints: Vec<String> =
                rest.trim_end_matches('/').split(',').map(|host| host.trim().to_owned()).collect();
            for endpoint in &endpoints {
                let port = endpoint.rsplit_once(':').filter(|(host, _)| !host.is_empty());
                if port.is_none_or(|(_, port)| port.parse::<u16>().is_err())
                    || endpoint.contains(['/', '@', ' '])
                {
                    return Err(invalid(format!(
                        "store {text:?} names the member {endpoint:?}; write etcd://host:port[,host:port…]"
                    )));
                }
            }
            return Ok(Self::Etcd { endpoints });
        }
        let path = text.strip_prefix("file://").unwrap_or(text);
        if path.is_empty() || path.contains("://") {
            return Err(invalid(format!(
                "store {text:?} is not one; write a directory or etcd://host:port[,host:port…]"
            )));
        }
        Ok(Self::Directory(PathBuf::from(path)))
    }
}

/// How to open a store of either kind.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// What this process is called, for whoever finds the directory taken.
    pub command: String,
    pub clock: Arc<dyn Clock>,
    /// Page cache of an embedded store.
    pub cache_bytes: usize,
    pub history: HistoryLimits,
    pub etcd: etcd::Options,
    /// Whether the format is looked at and brought up to date. Off for `muster store verify` and the like.
    pub check_format: bool,
    /// Where the export goes that is made before a migration. An embedded store's own directory by default.
    pub backup_dir: Option<PathBuf>,
}

impl OpenOptions {
    pub fn new(command: impl Into<String>, clock: Arc<dyn Clock>) -> Self {
        Self {
            command: command.into(),
            clock,
            cache_bytes: 48 << 20,
            history: HistoryLimits::default(),
            etcd: etcd::Options::default(),
            check_format: true,
            backup_dir: None,
        }
    }
}

/// Opens the store that `target` names. Stop it with [`Store::close`].
pub async fn open(target: &Target, options: OpenOptions) -> Result<Arc<dyn Store>, StoreError> {
    let (store, backup_dir): (Arc<dyn Store>, _) = match target {
        Target::Directory(dir) => {
            let mut embedded = embedded::Options::new(options.command.clone(), options.clock.now());
            embedded.cache_bytes = options.cache_bytes;
            embedded.history = options.history;
            let path = dir.clone();
            // Checking a large file takes a while; it must not hold the runtime up.
            let opened = tokio::task::spawn_blocking(move || Embedded::open(path, embedded)).await;
            let store = opened.map_err(|error| StoreError::Unavailable {
                store: dir.display().to_string(),
                why: format!("opening it was cut off: {error}"),
            })??;
            (Arc::new(store), Some(dir.clone()))
        }
        Target::Etcd { endpoints } => (Arc::new(Etcd::open(endpoints, options.etcd.clone()).await?), None),
    };
    if options.check_format {
        let backup = Backup { dir: options.backup_dir.or(backup_dir), clock: options.clock };
        if let Err(error) = ready(&store, backup).await {
            let _ = store.close().await; // what went wrong first is what the user needs to hear
            return Err(error);
        }
    }
    Ok(store)
}

async fn ready(store: &Arc<dyn Store>, backup: Backup) -> Result<(), StoreError> {
    portable::refuse_half_restored(&**store).await?;
    upgrade(&**store, FORMAT, &[], backup.dir.as_deref(), &*backup.clock).await
}

struct Backup {
    dir: Option<PathBuf>,
    clock: Arc<dyn Clock>,
}

/// One step from a format to the next.
#[async_trait]
pub trait Migration: Send + Sync {
    /// The format that it reads; it leaves the next one.
    fn from(&self) -> u32;
    /// Changes what is stored. Must be able to start again after it was cut off.
    async fn run(&self, store: &dyn Store) -> Result<(), StoreError>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Format {
    format: u32,
}

/// Brings `store` to `newest`: writes the format where there is none, refuses what is newer, and takes what
/// is older through `migrations` after an export into `backup_dir`.
pub async fn upgrade(
    store: &dyn Store,
    newest: u32,
    migrations: &[&dyn Migration],
    backup_dir: Option<&std::path::Path>,
    clock: &dyn Clock,
) -> Result<(), StoreError> {
    let mut saved = false;
    loop {
        let Some((found, revision)) = read_format(store).await? else {
            let first = Txn::new().expect(FORMAT_KEY, Expect::Absent).put(FORMAT_KEY, encode(newest));
            match store.commit(first).await? {
                Committed::Done { .. } => return Ok(()),
                Committed::Refused { .. } => continue, // someone else was first; look at what they wrote
            }
        };
        let name = store.stats().await?.kind;
        if found == newest {
            return Ok(());
        }
        if found > newest {
            return Err(StoreError::Format { store: name, found, newest });
        }
        let Some(step) = migrations.iter().find(|step| step.from() == found) else {
            return Err(StoreError::Damaged {
                store: name,
                why: format!("format {found} is older than this version can migrate to {newest}"),
            });
        };
        if !saved {
            let dir = backup_dir.ok_or_else(|| StoreError::Invalid {
                why: format!(
                    "the store has format {found} and is to be migrated to {newest}; say where its backup may \
                     be written"
                ),
            })?;
            portable::export_to_file(store, &dir.join(format!("backup-format-{found}.jsonl")), clock.now())
                .await?;
            saved = true;
        }
        step.run(store).await?;
        let txn =
            Txn::new().expect(FORMAT_KEY, Expect::Modified(revision)).put(FORMAT_KEY, encode(found + 1));
        // Refused: another process migrates too; the next round sees how far it is.
        let _: Committed = store.commit(txn).await?;
        tracing::info!(from = found, to = found + 1, "the store was migrated");
    }
}

fn encode(format: u32) -> Vec<u8> {
    serde_json::to_vec(&Format { format }).expect("a number is plain data")
}

async fn read_format(store: &dyn Store) -> Result<Option<(u32, Revision)>, StoreError> {
    let Some(entry) = store.get(FORMAT_KEY).await? else { return Ok(None) };
    let format: Format = serde_json::from_slice(&entry.value).map_err(|error| StoreError::Damaged {
        store: FORMAT_KEY.to_owned(),
        why: format!("what is written there is not a format: {error}"),
    })?;
    Ok(Some((format.format, entry.modified)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys are a contract: the reference names those that the store itself writes.
    #[test]
    fn own_keys_are_in_the_reference() {
        let text = include_str!("../../docs/reference/store-keys.md");
        for key in [FORMAT_KEY, portable::RESTORED_KEY, portable::RESTORING_KEY] {
            assert!(text.contains(&format!("| `{key}` |")), "docs/reference/store-keys.md lacks {key}");
        }
        assert!(text.contains(&format!("| `{}…` |", muster_model::store::RESERVED)));
    }

    #[test]
    fn a_target_is_a_directory_or_a_list_of_members() {
        #[track_caller]
        fn check(text: &str, want: Option<Target>) {
            assert_eq!(Target::parse(text).ok(), want, "{text:?}");
        }
        let etcd = |endpoints: &[&str]| {
            Some(Target::Etcd { endpoints: endpoints.iter().map(|&endpoint| endpoint.to_owned()).collect() })
        };
        let directory = |path: &str| Some(Target::Directory(path.into()));
        check("etcd://127.0.0.1:2379", etcd(&["127.0.0.1:2379"]));
        check("etcd://a:1,b:2,[::1]:3", etcd(&["a:1", "b:2", "[::1]:3"]));
        check("etcd://a:1/", etcd(&["a:1"]));
        check("etcd://", None);
        check("etcd://a", None);
        check("etcd://a:x", None);
        check("etcd://a:1,", None);
        check("etcd://user:secret@a:1", None);
        check("/var/lib/muster", directory("/var/lib/muster"));
        check("file:///var/lib/muster", directory("/var/lib/muster"));
        check("data", directory("data"));
        check("http://a:1", None);
        check("", None);
    }
}
