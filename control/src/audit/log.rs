//! Writing the audit log: one thread owns the file, callers wait until their line is on the disk.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::JoinHandle,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::oneshot;

use super::{
    ACTIVE_FILE, Event, Line,
    line::{genesis, seal},
};

/// Lines that wait for the writer at most: ten fsyncs' worth of the largest groups. When it is full,
/// writers wait, which slows requests down instead of losing lines.
const QUEUE: usize = 8_192;
/// Lines that one fsync covers at most; it bounds the memory of a group to a few MiB.
const GROUP: usize = 1_024;

#[derive(Debug, Clone)]
pub struct AuditOptions {
    pub directory: PathBuf,
    /// A file is closed and a new one begun once it has reached this size.
    pub rotate_bytes: u64,
    /// Files that are kept beside the active one; older ones are deleted. Zero keeps all.
    pub keep_files: usize,
}

#[derive(Debug, Error)]
pub enum AuditError {
    #[error("the audit log {path} cannot be opened; may this account write there?")]
    Open { path: String, source: io::Error },
    #[error("the audit log {path} ends in a line that cannot be read; look at it with `muster audit verify`")]
    Tail { path: String },
    #[error("the audit log could not be written, so the change is not acknowledged")]
    Write,
}

enum Message {
    Line { event: Box<Event>, done: oneshot::Sender<bool> },
    Stop,
}

/// The writing end. Dropping it writes what is queued and closes the file.
#[derive(Debug)]
pub struct AuditLog {
    directory: PathBuf,
    queue: SyncSender<Message>,
    thread: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl AuditLog {
    /// Opens the log and continues its chain. A last line that a crash cut short was never acknowledged;
    /// it is removed.
    pub fn open(options: AuditOptions) -> Result<Self, AuditError> {
        let directory = options.directory.clone();
        let file = Active::open(options)?;
        let (queue, inbox) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("audit".into())
            .spawn(move || write_loop(file, &inbox))
            .map_err(|source| AuditError::Open { path: "writer thread".into(), source })?;
        Ok(Self { directory, queue, thread: std::sync::Mutex::new(Some(thread)) })
    }

    /// Where it is written.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns once the event is on the disk.
    pub async fn record(&self, event: Event) -> Result<(), AuditError> {
        let (done, wait) = oneshot::channel();
        let mut message = Message::Line { event: Box::new(event), done };
        // The queue is only full when the disk cannot keep up; then give way until it can.
        loop {
            match self.queue.try_send(message) {
                Ok(()) => break,
                Err(std::sync::mpsc::TrySendError::Full(back)) => {
                    message = back;
                    tokio::task::yield_now().await;
                }
                Err(std::sync::mpsc::TrySendError::Disconnected(_)) => return Err(AuditError::Write),
            }
        }
        match wait.await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(AuditError::Write),
        }
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        let _ = self.queue.send(Message::Stop);
        let thread = self.thread.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn write_loop(mut file: Active, inbox: &Receiver<Message>) {
    while let Ok(first) = inbox.recv() {
        let mut waiting = Vec::new();
        let mut text = String::new();
        let mut next = Some(first);
        let mut stop = false;
        let mut chain = file.chain.clone();
        while let Some(message) = next.take() {
            match message {
                Message::Stop => {
                    stop = true;
                    break;
                }
                Message::Line { event, done } => {
                    text.push_str(&chain.append(&event));
                    waiting.push(done);
                }
            }
            if waiting.len() < GROUP {
                next = inbox.try_recv().ok();
            }
        }
        let written = text.is_empty() || file.append(&text, chain);
        for done in waiting {
            let _ = done.send(written);
        }
        if stop {
            return;
        }
    }
}

/// Where the chain stands.
#[derive(Debug, Clone)]
struct Chain {
    seq: u64,
    hash: String,
}

impl Chain {
    fn append(&mut self, event: &Event) -> String {
        let (text, hash) = seal(self.seq + 1, &self.hash, event);
        *self = Self { seq: self.seq + 1, hash };
        text
    }
}

/// The file that is written to.
struct Active {
    options: AuditOptions,
    file: File,
    bytes: u64,
    first: u64,
    chain: Chain,
}

impl Active {
    fn open(options: AuditOptions) -> Result<Self, AuditError> {
        let path = options.directory.join(ACTIVE_FILE);
        let wrong = |source| AuditError::Open { path: path.display().to_string(), source };
        fs::create_dir_all(&options.directory).map_err(wrong)?;
        let file = private_file(&path).map_err(wrong)?;
        let whole = whole_lines(&path).map_err(wrong)?;
        if whole < file.metadata().map_err(wrong)?.len() {
            tracing::warn!(path = %path.display(), "removed an unfinished line from the audit log");
            file.set_len(whole).map_err(wrong)?;
        }
        let (first, chain) = tail(&options.directory)?;
        Ok(Self { options, file, bytes: whole, first, chain })
    }

    /// Writes a group and makes it durable. After a failure the file is cut back to what was durable.
    fn append(&mut self, text: &str, chain: Chain) -> bool {
        let result = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        if let Err(error) = result {
            tracing::error!(%error, "the audit log could not be written");
            let _ = self.file.set_len(self.bytes);
            return false;
        }
        self.bytes += text.len() as u64;
        self.chain = chain;
        if self.bytes >= self.options.rotate_bytes
            && let Err(error) = self.rotate()
        {
            tracing::error!(%error, "the audit log could not be rotated; it grows on");
        }
        true
    }

    fn rotate(&mut self) -> io::Result<()> {
        let path = self.options.directory.join(ACTIVE_FILE);
        fs::rename(&path, self.options.directory.join(format!("audit-{:020}.jsonl", self.first)))?;
        self.file = private_file(&path)?;
        File::open(&self.options.directory)?.sync_all()?;
        self.bytes = 0;
        self.first = self.chain.seq + 1;
        if self.options.keep_files > 0 {
            self.forget_oldest()?;
        }
        Ok(())
    }
}

impl Active {
    /// Removes the oldest files. Where the chain begins from now on is written down first.
    fn forget_oldest(&self) -> io::Result<()> {
        let closed = closed_files(&self.options.directory)?;
        let (gone, _) = closed.split_at(closed.len().saturating_sub(self.options.keep_files));
        let Some(newest_gone) = gone.last() else { return Ok(()) };
        let last = BufReader::new(File::open(newest_gone)?).lines().last().transpose()?.unwrap_or_default();
        if let Ok(line) = serde_json::from_str::<Line>(&last) {
            let anchor = Anchor { seq: line.seq, hash: line.hash };
            let draft = self.options.directory.join("audit.anchor.new");
            fs::write(&draft, serde_json::to_vec(&anchor)?)?;
            fs::rename(draft, self.options.directory.join(ANCHOR_FILE))?;
        }
        gone.iter().try_for_each(fs::remove_file)
    }
}

/// Names the last line that was removed with the oldest files.
pub(super) const ANCHOR_FILE: &str = "audit.anchor";

/// The line after which the kept files begin.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Anchor {
    pub(super) seq: u64,
    pub(super) hash: String,
}

impl Anchor {
    /// The anchor beside the log, or the beginning of everything.
    pub(super) fn read(directory: &Path) -> Self {
        fs::read(directory.join(ANCHOR_FILE))
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_else(|| Self { seq: 0, hash: genesis() })
    }
}

fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Closed files, oldest first.
pub(super) fn closed_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with("audit-") && name.strip_suffix(".jsonl").is_some())
        })
        .collect();
    files.sort();
    Ok(files)
}

/// How much of a file's end is read at once to find its last line: longer than almost every line.
const STEP: u64 = 16 * 1024;

/// The end of a file from the last `breaks`-th line break before `end` on, and where that is. Only the end is read: the
/// log may be large, and the service waits for this when it starts.
fn from_break(file: &mut File, end: u64, breaks: usize) -> io::Result<(u64, Vec<u8>)> {
    let mut start = end;
    let mut text: Vec<u8> = Vec::new();
    while start > 0 {
        let step = STEP.min(start);
        start -= step;
        let mut part = vec![0; usize::try_from(step).map_err(io::Error::other)?];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut part)?;
        part.append(&mut text);
        text = part;
        let found = text.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').nth(breaks - 1);
        if let Some((place, _)) = found {
            return Ok((start + place as u64 + 1, text.split_off(place + 1)));
        }
    }
    Ok((0, text))
}

/// Bytes up to and including the last line break.
fn whole_lines(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    from_break(&mut file, length, 1).map(|(start, _)| start)
}

/// The first and the last line of a file that ends in a line break; `None` when it is empty.
fn edges(path: &Path) -> io::Result<Option<(String, String)>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok(None);
    }
    let (_, last) = from_break(&mut file, length, 2)?;
    file.seek(SeekFrom::Start(0))?;
    let mut first = String::new();
    BufReader::new(file).read_line(&mut first)?;
    let last = String::from_utf8(last).map_err(io::Error::other)?;
    Ok(Some((first, last)))
}

/// Number of the active file's first line, and where the chain stands.
fn tail(directory: &Path) -> Result<(u64, Chain), AuditError> {
    let active = directory.join(ACTIVE_FILE);
    let open = |path: &Path, source| AuditError::Open { path: path.display().to_string(), source };
    let edges = |path: &Path| -> Result<Option<(Line, Line)>, AuditError> {
        let edges = edges(path).map_err(|error| open(path, error))?;
        let read = |text: &str| {
            serde_json::from_str::<Line>(text)
                .map_err(|_| AuditError::Tail { path: path.display().to_string() })
        };
        edges.map(|(first, last)| Ok((read(&first)?, read(&last)?))).transpose()
    };
    if let Some((first, last)) = edges(&active)? {
        return Ok((first.seq, Chain { seq: last.seq, hash: last.hash }));
    }
    let closed = closed_files(directory).map_err(|error| open(directory, error))?;
    match closed.last().map(|path| edges(path)).transpose()?.flatten() {
        Some((_, last)) => Ok((last.seq + 1, Chain { seq: last.seq, hash: last.hash })),
        None => Ok((1, Chain { seq: 0, hash: genesis() })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_of_a_file_are_found_without_reading_all_of_it() {
        #[track_caller]
        fn check(content: &str, whole: u64, first_last: Option<(&str, &str)>) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("log");
            fs::write(&path, content).unwrap();
            assert_eq!(whole_lines(&path).unwrap(), whole);
            fs::write(&path, &content[..usize::try_from(whole).unwrap()]).unwrap();
            let found = edges(&path).unwrap();
            let found = found.as_ref().map(|(first, last)| (first.trim_end(), last.trim_end()));
            assert_eq!(found, first_last);
        }
        check("", 0, None);
        check("unfinished", 0, None);
        check("a\n", 2, Some(("a", "a")));
        check("a\nb\n", 4, Some(("a", "b")));
        check("a\nb\nc", 4, Some(("a", "b")));
        let long = "x".repeat(40_000);
        check(&format!("{long}\n"), 40_001, Some((&long, &long)));
        check(&format!("a\n{long}\nb\n{long}"), 40_005, Some(("a", "b")));
        check(&format!("a\nb\n{long}\n"), 40_005, Some(("a", &long)));
    }
}
