//! The data directory: what lies in it, and what is believed after which kind of stop.
//!
//! ```text
//! store.redb    everything
//! store.id      written once the store exists, so that a missing or emptied file is noticed
//! store.lock    who holds the directory
//! store.clean   written at a clean stop, removed at the next start: length and checksum of store.redb
//! ```
//!
//! After a clean stop the file must be byte for byte what was left: one sequential read tells, far quicker
//! than looking at its pages. After any other stop, or when the file differs, redb checks every page and we
//! check every record before anything is served.

use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use muster_model::store::StoreError;
use redb::{Database, ReadableDatabase};
use serde::{Deserialize, Serialize};

use super::{
    disk::{Disk, Faults, Trouble, guarded},
    pages::{self, HISTORY, META, PRESENT, STATE, VERSIONS},
    record::{FILE_FORMAT, State},
};

const DATA: &str = "store.redb";
const FRESH: &str = "store.redb.tmp";
const ID: &str = "store.id";
const CLEAN: &str = "store.clean";

/// Where the file is, and how to open it.
#[derive(Debug, Clone)]
pub(super) struct Files {
    pub(super) dir: PathBuf,
    pub(super) cache_bytes: usize,
    pub(super) faults: Option<Arc<dyn Faults>>,
    /// Whether redb has written what decides over a commit since this was last reset.
    pub(super) header_touched: Arc<AtomicBool>,
}

/// What a clean stop leaves behind.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Clean {
    length: u64,
    crc32c: u32,
}

impl Files {
    pub(super) fn data(&self) -> PathBuf {
        self.dir.join(DATA)
    }

    /// Opens the file, or creates it in a directory that never had one, and makes sure that it can be
    /// believed.
    pub(super) fn open(&self, store: &str) -> Result<Database, StoreError> {
        self.open_or_create().map_err(|trouble| match trouble {
            OpenTrouble::Trouble(trouble) => trouble.error(store),
            OpenTrouble::Newer(found) => {
                StoreError::Format { store: store.to_owned(), found, newest: FILE_FORMAT }
            }
        })
    }

    fn open_or_create(&self) -> Result<Database, OpenTrouble> {
        let data = self.data();
        let length = match fs::metadata(&data) {
            Ok(data) => Some(data.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let known = self.dir.join(ID).try_exists()?;
        match length {
            None if !known => self.create()?,
            None => {
                return Err(Trouble::damaged(format!(
                    "its file {} is gone (to begin with an empty store, remove {} too)",
                    data.display(),
                    self.dir.join(ID).display()
                ))
                .into());
            }
            Some(0) => {
                return Err(Trouble::damaged(format!("its file {} is empty", data.display())).into());
            }
            Some(_) => {}
        }
        let clean = self.take_clean_marker()?;
        let believed = clean.is_some() && clean == Some(fingerprint(&data)?);
        if clean.is_some() && !believed {
            tracing::warn!(file = %data.display(), "the store's file changed since its clean stop, checking it");
        }
        let mut database = self.database()?;
        let found = guarded(|| Ok(pages::state(&database.begin_read()?)?.format))?;
        if found > FILE_FORMAT {
            return Err(OpenTrouble::Newer(found));
        }
        if !believed {
            check(&mut database)?;
        }
        if !known {
            // The last step of creating, which a crash may have cut off.
            write_durably(&self.dir, ID, format!("muster store, file format {FILE_FORMAT}\n").as_bytes())?;
        }
        Ok(database)
    }

    /// Opens the file again after an I/O error, trusting redb to recover as after a crash.
    pub(super) fn database(&self) -> Result<Database, Trouble> {
        self.database_at(&self.data())
    }

    fn database_at(&self, path: &Path) -> Result<Database, Trouble> {
        let disk = Disk::open(path, self.faults.clone(), Arc::clone(&self.header_touched))?;
        guarded(|| Ok(Database::builder().set_cache_size(self.cache_bytes).create_with_backend(disk)?))
    }

    /// Makes an empty store under another name first, so that a crash leaves either nothing or all of it.
    fn create(&self) -> Result<(), Trouble> {
        let fresh = self.dir.join(FRESH);
        fs::File::create(&fresh)?;
        let database = self.database_at(&fresh)?;
        let txn = database.begin_write()?;
        txn.open_table(PRESENT)?;
        txn.open_table(VERSIONS)?;
        txn.open_table(HISTORY)?;
        txn.open_table(META)?.insert(STATE, State::new().encode().as_slice())?;
        txn.commit()?;
        drop(database);
        fs::File::open(&fresh)?.sync_all()?;
        fs::rename(&fresh, self.data())?;
        sync_dir(&self.dir)?;
        Ok(())
    }

    fn take_clean_marker(&self) -> Result<Option<Clean>, Trouble> {
        let path = self.dir.join(CLEAN);
        let marker = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        fs::remove_file(&path)?;
        sync_dir(&self.dir)?;
        Ok(marker)
    }

    /// To be called once redb has let go of the file.
    pub(super) fn leave_clean_marker(&self) -> Result<(), Trouble> {
        let clean = fingerprint(&self.data())?;
        let text = serde_json::to_vec(&clean).expect("a marker is plain data");
        Ok(write_durably(&self.dir, CLEAN, &text)?)
    }
}

#[derive(Debug)]
enum OpenTrouble {
    Trouble(Trouble),
    Newer(u32),
}

impl<E: Into<Trouble>> From<E> for OpenTrouble {
    fn from(error: E) -> Self {
        Self::Trouble(error.into())
    }
}

/// Every page by redb, every record by us.
fn check(database: &mut Database) -> Result<(), Trouble> {
    let repaired = guarded(|| Ok(!database.check_integrity()?))?;
    if repaired {
        tracing::warn!("the store's free pages were not as they should be, and were put in order");
    }
    let keys = guarded(|| pages::check_all(&database.begin_read()?))?;
    tracing::info!(keys, "the store was checked in full after an unclean stop");
    Ok(())
}

fn fingerprint(path: &Path) -> io::Result<Clean> {
    // Large enough that the calls do not matter, small enough not to matter itself.
    let mut buffer = vec![0; 1 << 20];
    let mut file = fs::File::open(path)?;
    let mut clean = Clean { length: 0, crc32c: 0 };
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(clean);
        }
        clean.length += read as u64;
        clean.crc32c = crc32c::crc32c_append(clean.crc32c, &buffer[..read]);
    }
}

fn write_durably(dir: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    let temporary = dir.join(format!("{name}.tmp"));
    let mut file = fs::File::create(&temporary)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&temporary, dir.join(name))?;
    sync_dir(dir)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}
