//! One line of the audit log, and how lines are chained.

use muster_model::{Timestamp, field::Choice};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What became of the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The change was committed.
    Done,
    /// The caller was known and not allowed.
    Denied,
    /// The change was refused: invalid, in conflict, or not found.
    Refused,
    /// It could not be carried out, or nobody knows whether it was.
    Failed,
    /// About to be done, by Muster itself: what it came to is in a later line with the same `request_id`. Without one,
    /// the process died in between.
    Begun,
}

impl Choice for Outcome {
    const WHAT: &'static str = "an outcome";
    const ALL: &'static [(&'static str, Self)] = &[
        ("done", Self::Done),
        ("denied", Self::Denied),
        ("refused", Self::Refused),
        ("failed", Self::Failed),
        ("begun", Self::Begun),
    ];
}

/// What happened, without the chain around it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub at: Timestamp,
    /// Who: the caller's name, or `muster` for what Muster does by itself.
    pub actor: String,
    /// How the caller proved it; `leader` for what Muster does by itself.
    pub mode: String,
    /// Address of the connection; the leading process for what Muster does by itself.
    pub source: String,
    /// Of a power call: its operation and its number in it.
    pub request_id: String,
    /// `create`, `replace`, `patch`, `scale`, `delete`, `report`; a power call's own name, like `power-on`.
    pub verb: String,
    /// `clusters/UUID`, `nodepools/UUID`, `hosts/NAME`.
    pub object: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub project: String,
    pub outcome: Outcome,
    /// Status code that the caller was answered with; 0 where nobody asked.
    pub status: u16,
    /// Store revision of the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// SHA-256 of the stored spec before and after, so that a copy can be compared without the log
    /// holding what might be secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Paths of the fields that changed. Never their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// Of a power call: whose wish it follows, and how it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerDeed>,
}

/// One call to a power driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerDeed {
    pub driver: String,
    /// The operation that it belongs to; none for the restart of a stuck BMC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The journaled decision that it follows from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// Why, in words: the decision, the person, or the rule.
    pub cause: String,
    /// The leader's epoch under which it was sent.
    pub epoch: u64,
    /// What came of it, where there is more to say than the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// An event in its place in the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Number of the line, from 1, without gaps, over all files.
    pub seq: u64,
    /// Digest of the line before; 64 zeros before the first.
    pub prev: String,
    #[serde(flatten)]
    pub event: Event,
    /// Digest of this line.
    pub hash: String,
}

/// What stands before the first line.
pub(super) fn genesis() -> String {
    "0".repeat(64)
}

#[derive(Serialize)]
struct Body<'a> {
    seq: u64,
    prev: &'a str,
    #[serde(flatten)]
    event: &'a Event,
}

/// The text of a line and its digest.
///
/// The text is the body with the digest appended as its last member, so that whoever verifies can cut
/// it off again and hash the very bytes that were written.
pub(super) fn seal(seq: u64, prev: &str, event: &Event) -> (String, String) {
    let body = serde_json::to_string(&Body { seq, prev, event })
        .expect("an event holds only text, numbers and lists of text");
    let hash = digest(prev, &body);
    let text = format!("{},\"hash\":\"{hash}\"}}\n", &body[..body.len() - 1]);
    (text, hash)
}

/// Splits a line into the body that was hashed and the digest it claims.
pub(super) fn unseal(text: &str) -> Option<(String, &str)> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let (body, hash) = text.strip_suffix("\"}")?.rsplit_once(",\"hash\":\"")?;
    Some((format!("{body}}}"), hash))
}

pub(super) fn digest(prev: &str, body: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(prev.as_bytes());
    hasher.update(b"\n");
    hasher.update(body.as_bytes());
    hex::encode(hasher.finalize())
}
