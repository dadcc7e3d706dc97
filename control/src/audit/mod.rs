//! The audit log: who changed what, in lines that cannot be changed, dropped or reordered unnoticed.
//!
//! One JSON document per line. Each line carries its number and the digest of the line before it; the
//! digest of a line is SHA-256 over the previous digest and the line's own text without its `hash`
//! member. Files are rotated by size; the first line of a file continues the chain of the file before
//! it, and verifying walks all files in order.
//!
//! A line is on the disk before the change that it records is acknowledged. Writers that arrive
//! together share one fsync. A crash between a commit and its line leaves a change that nobody was told
//! about; such a change is unacknowledged by contract, and its object still names who made it.
//!
//! Power calls are Muster's own deeds: each has a line that is on the disk before the call is sent, and one with what it
//! came to. A call whose line cannot be written is not made.
//!
//! What the chain cannot show: that the whole tail was cut off after its last line. Keep the head that
//! [`verify`] prints somewhere else to notice that.

mod line;
mod log;
mod read;

pub use line::{Event, Line, Outcome, PowerDeed};
pub use log::{AuditError, AuditLog, AuditOptions};
pub use read::{Finding, Query, Verdict, last_revision, list, page, verify};

/// Name of the file that is written to; rotated ones carry the number of their first line.
pub const ACTIVE_FILE: &str = "audit.jsonl";
