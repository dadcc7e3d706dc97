//! How a command ends when it does not end well: an exit code, the object, the cause, and what to do next.

use std::{fmt, io};

/// The documented exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok = 0,
    Failure = 1,
    Usage = 2,
    NotFound = 3,
    Conflict = 4,
    Denied = 5,
    Timeout = 6,
    Unreachable = 7,
    /// Stopped by Ctrl-C; the number is what shells use for it.
    Interrupted = 130,
}

impl Exit {
    pub(crate) const ALL: [(Self, &'static str); 9] = [
        (Self::Ok, "it worked"),
        (Self::Failure, "the server or a file refused it, or `diff` found a difference"),
        (Self::Usage, "the command line is wrong"),
        (Self::NotFound, "there is no such object"),
        (Self::Conflict, "it exists already, or somebody changed it in the meantime"),
        (Self::Denied, "not signed in, or not allowed"),
        (Self::Timeout, "a wait or a request ran out of time"),
        (Self::Unreachable, "the server cannot be reached or is not ready"),
        (Self::Interrupted, "stopped with Ctrl-C; the last line says how to resume"),
    ];

    pub(crate) const fn code(self) -> u8 {
        self as u8
    }
}

/// One fault of a body, as the server found it, with its place in the file it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) path: String,
    pub(crate) message: String,
    pub(crate) place: Option<String>,
}

/// Why a command failed. Printed once, at the end, on standard error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// What the command was about: `nodepool prod/web`, `file pools.yaml`, `server http://…`.
    pub(crate) object: String,
    pub(crate) cause: String,
    pub(crate) faults: Vec<Fault>,
    pub(crate) next: String,
    /// HTTP status, when a server refused.
    pub(crate) status: Option<u16>,
    /// Everything was said already, or nobody is listening.
    pub(crate) silent: bool,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(exit: Exit, object: impl Into<String>, cause: impl Into<String>) -> Self {
        Self {
            exit,
            object: object.into(),
            cause: cause.into(),
            faults: Vec::new(),
            next: String::new(),
            status: None,
            silent: false,
        }
    }

    pub(crate) fn usage(object: impl Into<String>, cause: impl Into<String>) -> Self {
        Self::new(Exit::Usage, object, cause)
    }

    #[must_use]
    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    /// An end without words: the code alone tells.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self { silent: true, ..Self::new(exit, "", "") }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}: {}", self.object, self.cause)?;
        for fault in &self.faults {
            write!(f, "\n  {}: {}", fault.path, fault.message)?;
            if let Some(place) = &fault.place {
                write!(f, " ({place})")?;
            }
        }
        if !self.next.is_empty() {
            write!(f, "\nnext: {}", self.next)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Output that cannot be written: a closed pipe is the reader's good right, everything else is a failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::silent(Exit::Ok);
        }
        Self::new(Exit::Failure, "standard output", error.to_string())
            .next("make room or choose another place for the output")
    }
}
