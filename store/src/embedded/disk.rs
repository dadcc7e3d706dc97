//! The file under redb, with a place to inject faults, and what its errors mean to a person.

use std::{
    fmt, fs, io,
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use muster_model::store::StoreError;

/// What to do about a damaged store. Part of every error that says so.
const RESTORE: &str = "keep the damaged directory for analysis and restore the last export into a new one: \
    `muster store import FILE --data-dir NEW-DIR`";

/// Decides over each access to the file, for tests of full, read-only and dying disks.
pub trait Faults: fmt::Debug + Send + Sync {
    /// Before `length` bytes are written so that the file will be at least `end` bytes long.
    fn write(&self, _end: u64, _length: usize) -> io::Result<()> {
        Ok(())
    }

    /// Before written data is made durable.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The file that redb keeps its pages in.
#[derive(Debug)]
pub(super) struct Disk {
    file: fs::File,
    faults: Option<Arc<dyn Faults>>,
    header_touched: Arc<AtomicBool>,
}

/// redb keeps the pointers to what is committed in the first page. As long as that page is not written, a
/// transaction has not happened, whatever else was.
const HEADER: u64 = 4096;

impl Disk {
    /// `header_touched` is set with the first write to the header.
    pub(super) fn open(
        path: &Path,
        faults: Option<Arc<dyn Faults>>,
        header_touched: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        Ok(Self { file: fs::OpenOptions::new().read(true).write(true).open(path)?, faults, header_touched })
    }
}

impl redb::StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        if let Some(faults) = &self.faults {
            faults.write(length, 0)?;
        }
        self.file.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        if let Some(faults) = &self.faults {
            faults.sync()?;
        }
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if let Some(faults) = &self.faults {
            faults.write(offset + data.len() as u64, data.len())?;
        }
        if offset < HEADER {
            self.header_touched.store(true, Ordering::SeqCst);
        }
        self.file.write_all_at(data, offset)
    }
}

/// A reason why the store does not serve; unlike [`StoreError`] it can be told to many callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    Damaged(String),
    Full(String),
    Unavailable(String),
}

impl Trouble {
    pub(super) fn damaged(what: impl fmt::Display) -> Self {
        Self::Damaged(format!("{what}; {RESTORE}"))
    }

    pub(super) fn closed() -> Self {
        Self::Unavailable("it was closed".to_owned())
    }

    pub(super) fn error(&self, store: &str) -> StoreError {
        let store = store.to_owned();
        match self.clone() {
            Self::Damaged(why) => StoreError::Damaged { store, why },
            Self::Full(why) => StoreError::Full { store, why },
            Self::Unavailable(why) => StoreError::Unavailable { store, why },
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => Self::Full(format!(
                "{error}; make room on its file system, nothing is lost and writes go on by themselves then"
            )),
            Kind::ReadOnlyFilesystem => {
                Self::Full(format!("{error}; mount its file system for writing, then start again"))
            }
            Kind::PermissionDenied => {
                Self::Full(format!("{error}; give this process's user write permission, then start again"))
            }
            Kind::UnexpectedEof | Kind::InvalidData => Self::damaged(error),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<redb::Error> for Trouble {
    fn from(error: redb::Error) -> Self {
        use redb::Error as E;
        match error {
            E::Io(error) => error.into(),
            E::PreviousIo | E::DatabaseClosed => Self::Unavailable(error.to_string()),
            other => Self::damaged(other),
        }
    }
}

impl From<super::record::Broken> for Trouble {
    fn from(broken: super::record::Broken) -> Self {
        Self::damaged(broken.0)
    }
}

macro_rules! through_redb_error {
    ($($error:ty),*) => {
        $(impl From<$error> for Trouble {
            fn from(error: $error) -> Self {
                redb::Error::from(error).into()
            }
        })*
    };
}
through_redb_error!(
    redb::StorageError,
    redb::TableError,
    redb::TransactionError,
    redb::CommitError,
    redb::DatabaseError
);

/// Runs `work` on pages that may be damaged: where redb panics over what it finds, that is damage.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, Trouble>) -> Result<T, Trouble> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(Trouble::damaged(format!("reading its pages failed ({text})")))
    })
}
