//! How records look in the file. Each starts with a CRC-32C over its key and its contents, which is compared
//! every time the record is read: a flipped bit or a record under the wrong key is noticed, never returned.

use bytes::Bytes;
use muster_model::store::{Entry, Revision};

/// The file's own format, independent of the format of what Muster stores in it.
pub(super) const FILE_FORMAT: u32 = 1;

/// A record that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broken(pub(super) String);

/// A key's last value, or one of its past values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) entry: Entry,
    /// The commit that replaced it; zero for a present value.
    pub(super) superseded: Revision,
}

/// One commit in the history. Values are not repeated here: they are present, or kept as versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PastCommit {
    pub(super) changes: Vec<PastChange>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PastChange {
    pub(super) key: String,
    pub(super) deleted: bool,
    /// The commit whose value this change replaced.
    pub(super) replaced: Option<Revision>,
}

/// Where the store stands. Written with every commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    pub(super) format: u32,
    pub(super) revision: Revision,
    /// History up to here is gone, or on its way out.
    pub(super) oldest: Revision,
    /// Commits in the history, and the bytes of them and of the versions they replaced.
    pub(super) commits: u64,
    pub(super) bytes: u64,
}

fn sealed(key: &[u8], body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut record = vec![0; 4];
    body(&mut record);
    let sum = crc32c::crc32c_append(crc32c::crc32c(key), &record[4..]);
    record[..4].copy_from_slice(&sum.to_le_bytes());
    record
}

fn unsealed<'a>(what: &str, key: &[u8], record: &'a [u8]) -> Result<Reader<'a>, Broken> {
    let broken =
        || Broken(format!("the checksum of {what} {:?} does not match", String::from_utf8_lossy(key)));
    let (sum, body) = record.split_first_chunk::<4>().ok_or_else(broken)?;
    if crc32c::crc32c_append(crc32c::crc32c(key), body) != u32::from_le_bytes(*sum) {
        return Err(broken());
    }
    Ok(Reader(body))
}

/// Reads a record whose checksum held, so running out of bytes means a writer's bug; it is still an error.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Broken> {
        let (head, rest) =
            self.0.split_at_checked(length).ok_or_else(|| Broken("a record is too short".to_owned()))?;
        self.0 = rest;
        Ok(head)
    }

    fn u64(&mut self) -> Result<u64, Broken> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes were taken")))
    }

    fn u32(&mut self) -> Result<u32, Broken> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes were taken")))
    }

    fn byte(&mut self) -> Result<u8, Broken> {
        Ok(self.take(1)?[0])
    }
}

fn text(bytes: &[u8]) -> Result<String, Broken> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Broken("a key is not UTF-8".to_owned()))
}

impl Version {
    pub(super) fn encode(&self) -> Vec<u8> {
        sealed(self.entry.key.as_bytes(), |out| {
            out.reserve(24 + self.entry.value.len());
            out.extend_from_slice(&self.superseded.0.to_le_bytes());
            out.extend_from_slice(&self.entry.created.0.to_le_bytes());
            out.extend_from_slice(&self.entry.modified.0.to_le_bytes());
            out.extend_from_slice(&self.entry.value);
        })
    }

    pub(super) fn decode(key: &[u8], record: &[u8]) -> Result<Self, Broken> {
        let mut reader = unsealed("the record of key", key, record)?;
        let superseded = Revision(reader.u64()?);
        let created = Revision(reader.u64()?);
        let modified = Revision(reader.u64()?);
        let value = Bytes::copy_from_slice(reader.0);
        Ok(Self { entry: Entry { key: text(key)?, value, created, modified }, superseded })
    }
}

impl PastCommit {
    pub(super) fn encode(&self, revision: Revision) -> Vec<u8> {
        sealed(&revision.0.to_le_bytes(), |out| {
            for change in &self.changes {
                out.push(u8::from(change.deleted));
                out.extend_from_slice(&change.replaced.map_or(0, |revision| revision.0).to_le_bytes());
                let length = u32::try_from(change.key.len()).expect("keys are at most MAX_KEY_BYTES long");
                out.extend_from_slice(&length.to_le_bytes());
                out.extend_from_slice(change.key.as_bytes());
            }
        })
    }

    pub(super) fn decode(revision: Revision, record: &[u8]) -> Result<Self, Broken> {
        let mut reader = unsealed("the commit", &revision.0.to_le_bytes(), record)
            .map_err(|_| Broken(format!("the checksum of commit {revision} does not match")))?;
        let mut changes = Vec::new();
        while !reader.0.is_empty() {
            let deleted = reader.byte()? != 0;
            let replaced = Some(Revision(reader.u64()?)).filter(|revision| *revision != Revision::ZERO);
            let length = reader.u32()? as usize;
            changes.push(PastChange { key: text(reader.take(length)?)?, deleted, replaced });
        }
        Ok(Self { changes })
    }
}

const STATE: &[u8] = b"state";

impl State {
    pub(super) const fn new() -> Self {
        Self { format: FILE_FORMAT, revision: Revision::ZERO, oldest: Revision::ZERO, commits: 0, bytes: 0 }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        sealed(STATE, |out| {
            out.extend_from_slice(&self.format.to_le_bytes());
            for number in [self.revision.0, self.oldest.0, self.commits, self.bytes] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        })
    }

    pub(super) fn decode(record: &[u8]) -> Result<Self, Broken> {
        let mut reader = unsealed("the record", STATE, record)?;
        Ok(Self {
            format: reader.u32()?,
            revision: Revision(reader.u64()?),
            oldest: Revision(reader.u64()?),
            commits: reader.u64()?,
            bytes: reader.u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version() -> Version {
        let value = Bytes::from_static(b"{\"a\":1}");
        let entry = Entry { key: "/ä".to_owned(), value, created: Revision(3), modified: Revision(9) };
        Version { entry, superseded: Revision(12) }
    }

    #[test]
    fn records_come_back_as_they_were_written() {
        let written = version();
        assert_eq!(Version::decode("/ä".as_bytes(), &written.encode()), Ok(written));

        let change = |key: &str, replaced| PastChange { key: key.to_owned(), deleted: false, replaced };
        let commit = PastCommit { changes: vec![change("/a", None), change("/b", Some(Revision(7)))] };
        assert_eq!(PastCommit::decode(Revision(8), &commit.encode(Revision(8))), Ok(commit));

        let state =
            State { revision: Revision(5), oldest: Revision(2), commits: 3, bytes: 99, ..State::new() };
        assert_eq!(State::decode(&state.encode()), Ok(state));
    }

    #[test]
    fn every_flipped_bit_and_every_wrong_key_is_noticed() {
        let record = version().encode();
        for bit in 0..record.len() * 8 {
            let mut damaged = record.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Version::decode("/ä".as_bytes(), &damaged).is_err(), "bit {bit}");
        }
        assert!(Version::decode(b"/a", &record).is_err());
        assert!(Version::decode("/ä".as_bytes(), &record[..record.len() - 1]).is_err());
        assert!(Version::decode("/ä".as_bytes(), b"").is_err());
    }
}
