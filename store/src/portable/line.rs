//! Lines of an export: writing them, reading them, and finding what was done to them.

use std::io::{self, BufRead, Write};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use muster_model::{
    Timestamp,
    store::{Entry, Revision, StoreError, check_key},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The version of the file's own shape.
pub(super) const EXPORT_FORMAT: u32 = 1;
/// A value of 1 MiB in base64, its key and the rest; nothing longer was ever written.
const MAX_LINE: u64 = 3 << 20;

#[derive(Debug, Error)]
pub enum PortableError {
    #[error("line {line} of the export cannot be read: {why}")]
    Line { line: u64, why: String },
    #[error("the export is cut off after line {line}: its last line, with the totals, is missing")]
    Truncated { line: u64 },
    #[error("the export has format {found}, and this version reads {EXPORT_FORMAT}; use a newer Muster")]
    Format { found: u32 },
    #[error("the export could not be read or written")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the target is not empty: it holds {key:?}; import into an empty store, or ask to overwrite it")]
    NotEmpty { key: String },
    #[error(
        "another export (of revision {revision}, taken {time}) was being imported and is not finished; \
         finish that one, or ask to overwrite"
    )]
    OtherImport { revision: Revision, time: Timestamp },
    #[error("{key:?} was changed in the target during the import; stop what writes there, then import again")]
    Disturbed { key: String },
}

impl PortableError {
    /// Stable name for metrics and documentation.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Line { .. } => "EXPORT_DAMAGED",
            Self::Truncated { .. } => "EXPORT_TRUNCATED",
            Self::Format { .. } => "EXPORT_FORMAT",
            Self::Io(_) => "EXPORT_IO",
            Self::Store(error) => error.code(),
            Self::NotEmpty { .. } => "IMPORT_NOT_EMPTY",
            Self::OtherImport { .. } => "IMPORT_UNFINISHED",
            Self::Disturbed { .. } => "IMPORT_DISTURBED",
        }
    }
}

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub muster_export: u32,
    /// The moment that the file shows.
    pub revision: Revision,
    pub time: Timestamp,
    /// The kind of store it was taken from.
    pub store: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct EntryLine {
    n: u64,
    key: String,
    created: Revision,
    modified: Revision,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    json: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// A field that is there has a value, also when that value is `null`.
fn present<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Deserialize::deserialize(input).map(Some)
}

#[derive(Debug, Serialize, Deserialize)]
struct Trailer {
    end: bool,
    count: u64,
    sha256: String,
}

/// As much of the first line as every format has.
#[derive(Deserialize)]
struct Version {
    muster_export: u32,
}

/// What a sound export says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub header: Header,
    pub count: u64,
    /// Names this export among all others.
    pub sha256: String,
}

/// Writes lines, and the sums over them.
pub(super) struct Lines<W> {
    out: W,
    chain: u32,
    digest: Sha256,
    count: u64,
}

impl<W: Write> Lines<W> {
    pub(super) fn new(out: W, header: &Header) -> Result<Self, PortableError> {
        let mut lines = Self { out, chain: 0, digest: Sha256::new(), count: 0 };
        lines.line(header)?;
        Ok(lines)
    }

    fn line(&mut self, document: &impl Serialize) -> Result<(), PortableError> {
        let text = serde_json::to_string(document).map_err(io::Error::from)?;
        self.chain = crc32c::crc32c_append(self.chain, text.as_bytes());
        let open = text.strip_suffix('}').expect("a struct is written as an object");
        let line = format!("{open},\"crc\":\"{:08x}\"}}\n", self.chain);
        self.digest.update(line.as_bytes());
        Ok(self.out.write_all(line.as_bytes())?)
    }

    pub(super) fn entry(&mut self, entry: &Entry) -> Result<(), PortableError> {
        self.count += 1;
        let json = as_json(&entry.value);
        let base64 = if json.is_none() { Some(BASE64.encode(&entry.value)) } else { None };
        self.line(&EntryLine {
            n: self.count,
            key: entry.key.clone(),
            created: entry.created,
            modified: entry.modified,
            json,
            base64,
        })
    }

    pub(super) fn end(mut self) -> Result<(u64, String, W), PortableError> {
        let sha256 = hex::encode(self.digest.clone().finalize());
        self.line(&Trailer { end: true, count: self.count, sha256: sha256.clone() })?;
        self.out.flush()?;
        Ok((self.count, sha256, self.out))
    }
}

/// The value as JSON, if it is JSON that stays the same byte for byte inside a line.
fn as_json(value: &[u8]) -> Option<Box<RawValue>> {
    let text = std::str::from_utf8(value).ok()?;
    if text.contains(['\n', '\r']) {
        return None;
    }
    let raw: &RawValue = serde_json::from_str(text).ok()?;
    (raw.get() == text).then(|| raw.to_owned())
}

/// Reads lines, and compares the sums over them.
pub(super) struct Reader<R> {
    input: R,
    line: u64,
    chain: u32,
    digest: Sha256,
    count: u64,
}

pub(super) enum Next {
    Entry(Entry),
    End(String),
}

impl<R: BufRead> Reader<R> {
    pub(super) fn new(input: R) -> Result<(Self, Header), PortableError> {
        let mut reader = Self { input, line: 0, chain: 0, digest: Sha256::new(), count: 0 };
        let Some(text) = reader.text()? else { return Err(PortableError::Truncated { line: 0 }) };
        // Looked at before the checksum: a newer format may sum differently.
        let version: Version = serde_json::from_str(text.trim_end())
            .map_err(|_| reader.fault("it is not the first line of an export"))?;
        if version.muster_export != EXPORT_FORMAT {
            return Err(PortableError::Format { found: version.muster_export });
        }
        let header = reader.document(&text)?;
        Ok((reader, header))
    }

    fn fault(&self, why: impl Into<String>) -> PortableError {
        PortableError::Line { line: self.line, why: why.into() }
    }

    /// The next line as it stands in the file.
    fn text(&mut self) -> Result<Option<String>, PortableError> {
        let mut bytes = Vec::new();
        let read = io::Read::take(&mut self.input, MAX_LINE).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            return Ok(None);
        }
        self.line += 1;
        if bytes.last() != Some(&b'\n') {
            return if read as u64 == MAX_LINE {
                Err(self.fault("it is longer than any line of an export"))
            } else {
                Err(PortableError::Truncated { line: self.line - 1 })
            };
        }
        String::from_utf8(bytes).map(Some).map_err(|_| self.fault("it is not UTF-8"))
    }

    /// Compares a line's checksum, and reads what it says.
    fn document<T: DeserializeOwned>(&mut self, line: &str) -> Result<T, PortableError> {
        const TAIL: usize = r#","crc":"00000000"}"#.len();
        let text = line.strip_suffix('\n').unwrap_or(line);
        let cut = text.len().checked_sub(TAIL).filter(|cut| text.is_char_boundary(*cut));
        let (open, tail) = cut.map(|cut| text.split_at(cut)).ok_or_else(|| self.fault("it is too short"))?;
        let chain = crc32c::crc32c_append(crc32c::crc32c_append(self.chain, open.as_bytes()), b"}");
        if tail != format!(",\"crc\":\"{chain:08x}\"}}") {
            return Err(self.fault(
                "its checksum does not match: this line was changed, or lines before it were changed, removed or moved",
            ));
        }
        self.chain = chain;
        self.digest.update(line.as_bytes());
        serde_json::from_str(&format!("{open}}}")).map_err(|error| self.fault(error.to_string()))
    }

    pub(super) fn next(&mut self) -> Result<Next, PortableError> {
        let Some(text) = self.text()? else { return Err(PortableError::Truncated { line: self.line }) };
        if text.starts_with("{\"end\":") {
            let sha256 = hex::encode(self.digest.clone().finalize());
            let trailer: Trailer = self.document(&text)?;
            if trailer.count != self.count || trailer.sha256 != sha256 {
                return Err(self.fault("its totals do not match the lines before it"));
            }
            if self.text()?.is_some() {
                return Err(self.fault("something follows the last line"));
            }
            return Ok(Next::End(sha256));
        }
        let line: EntryLine = self.document(&text)?;
        self.count += 1;
        if line.n != self.count {
            return Err(self.fault(format!("it should be entry {} and is {}", self.count, line.n)));
        }
        check_key(&line.key)?;
        let value = match (line.json, line.base64) {
            (Some(json), None) => Bytes::copy_from_slice(json.get().as_bytes()),
            (None, Some(text)) => BASE64
                .decode(text)
                .map_err(|error| self.fault(format!("its value is not base64: {error}")))?
                .into(),
            _ => return Err(self.fault("it must have one value, as json or as base64")),
        };
        Ok(Next::Entry(Entry { key: line.key, value, created: line.created, modified: line.modified }))
    }
}

/// Reads a whole export and compares everything that can be compared.
pub fn verify(input: impl BufRead) -> Result<Verified, PortableError> {
    let (mut reader, header) = Reader::new(input)?;
    let mut count = 0;
    loop {
        match reader.next()? {
            Next::Entry(_) => count += 1,
            Next::End(sha256) => return Ok(Verified { header, count, sha256 }),
        }
    }
}
