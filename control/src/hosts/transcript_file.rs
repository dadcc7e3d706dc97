//! What was said to BMCs, beyond a restart: lines in a file of the data directory, which gives way to the next when it is
//! full. Two are kept, so that the oldest lines go by themselves.
//!
//! It is a convenience for people and not a record: the audit log and the events of a host are those. So nobody waits
//! for it, nothing is synced, and what cannot be written or read is left out with a warning.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread,
};

use serde::{Deserialize, Serialize};

use super::transcript::Line;

const FILE: &str = "bmc-calls.jsonl";
const BEFORE: &str = "bmc-calls.old.jsonl";
/// A file is full at this size: about 40,000 lines, the last twenty of each of 2,000 hosts.
const FULL: u64 = 8 << 20;
/// Lines that wait to be written. A disk that is slower than this many calls loses some of them here, and nothing else.
const QUEUE: usize = 4_096;

#[derive(Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) host: String,
    #[serde(flatten)]
    pub(super) line: Line,
}

/// Where new lines go.
#[derive(Debug)]
pub(super) struct Writer {
    to: SyncSender<Vec<u8>>,
}

impl Writer {
    /// Begins to write into `directory`.
    pub(super) fn start(directory: &Path, full: u64) -> std::io::Result<Self> {
        let (to, from) = sync_channel(QUEUE);
        let ring = Ring::open(directory, full)?;
        // Ends with the sender.
        thread::Builder::new().name("bmc-calls".to_owned()).spawn(move || ring.write_all(&from))?;
        Ok(Self { to })
    }

    pub(super) fn keep(&self, host: &str, line: &Line) {
        let entry = Entry { host: host.to_owned(), line: line.clone() };
        let Ok(mut text) = serde_json::to_vec(&entry) else { return };
        text.push(b'\n');
        match self.to.try_send(text) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                tracing::debug!(host, "a call to a bmc is not written down");
            }
        }
    }
}

/// What was written down before, oldest first.
pub(super) fn read(directory: &Path) -> Vec<Entry> {
    let mut entries = Vec::new();
    for name in [BEFORE, FILE] {
        let Ok(file) = File::open(directory.join(name)) else { continue };
        // A line that is cut off, or not ours, is left out.
        let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
        entries.extend(lines.filter_map(|line| serde_json::from_slice::<Entry>(&line).ok()));
    }
    entries
}

struct Ring {
    directory: PathBuf,
    file: File,
    size: u64,
    full: u64,
}

impl Ring {
    fn open(directory: &Path, full: u64) -> std::io::Result<Self> {
        let mut file = append(&directory.join(FILE))?;
        // After a crash the last line may lack its end; the next one then begins on its own.
        file.write_all(b"\n")?;
        let size = file.metadata()?.len();
        Ok(Self { directory: directory.to_owned(), file, size, full })
    }

    fn write_all(mut self, from: &Receiver<Vec<u8>>) {
        while let Ok(line) = from.recv() {
            if let Err(error) = self.write(&line) {
                tracing::warn!(
                    %error,
                    file = %self.directory.join(FILE).display(),
                    "calls to bmcs are not written down any more; what was said is kept in memory only"
                );
                return;
            }
        }
    }

    fn write(&mut self, line: &[u8]) -> std::io::Result<()> {
        if self.size >= self.full {
            fs::rename(self.directory.join(FILE), self.directory.join(BEFORE))?;
            self.file = append(&self.directory.join(FILE))?;
            self.size = 0;
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }
}

/// Addresses of BMCs are not everybody's business.
fn append(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// See [`FULL`].
pub(super) const fn full() -> u64 {
    FULL
}
