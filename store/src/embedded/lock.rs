//! One process at a time: the lock on the data directory, and who holds it.
//!
//! The lock itself is the kernel's (`flock`), so it dies with its holder and cannot go stale. What is written
//! into the file is for people: who to look for.

use std::{
    fs::{self, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
};

use muster_model::{Timestamp, store::StoreError};
use serde::{Deserialize, Serialize};

use super::disk::Trouble;

pub(super) const FILE: &str = "store.lock";

/// Who holds a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    pub host: String,
    pub command: String,
    pub since: Timestamp,
}

impl Holder {
    /// This process, under the name that `command` gives it.
    pub fn this_process(command: impl Into<String>, since: Timestamp) -> Self {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = if host.trim().is_empty() { "an unknown host" } else { host.trim() };
        Self { pid: std::process::id(), host: host.to_owned(), command: command.into(), since }
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { pid, host, command, since } = self;
        write!(f, "process {pid} on {host} (`{command}`, since {since})")
    }
}

/// A held lock; dropping it lets go.
#[derive(Debug)]
pub(super) struct Lock {
    file: fs::File,
}

impl Lock {
    pub(super) fn take(dir: &Path, store: &str, holder: &Holder) -> Result<Self, StoreError> {
        let path = dir.join(FILE);
        let open = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(|error| Trouble::from(error).error(store))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = match read(&mut file) {
                    Some(holder) => holder.to_string(),
                    None => format!(
                        "another process, which has not said who it is (see `fuser {}`)",
                        path.display()
                    ),
                };
                return Err(StoreError::Locked { store: store.to_owned(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(Trouble::from(error).error(store)),
        }
        if let Some(last) = read(&mut file) {
            tracing::warn!(store, holder = %last, "the store's last holder ended without letting go");
        }
        let mut lock = Self { file };
        let text = serde_json::to_string(holder).expect("a holder is plain data");
        lock.write(&text).map_err(|error| Trouble::from(error).error(store))?;
        Ok(lock)
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())
    }

    /// Lets go, and leaves the file empty: a file that names someone tells of a crash.
    pub(super) fn release(mut self) {
        if let Err(error) = self.write("") {
            tracing::warn!(error = %error, "the lock file could not be emptied");
        }
    }
}

impl Drop for Lock {
    /// Closing the file is not enough: a child that another thread is just starting has it open, too.
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::warn!(error = %error, "the lock could not be let go; it ends with this process");
        }
    }
}

fn read(file: &mut fs::File) -> Option<Holder> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}
