//! Snapshot and plan as bytes: one text, compressed, whole or as what changed.

use std::io::{Read, Write};

use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};
use muster_engine::{Plan, Snapshot};
use muster_model::{ClusterId, store::List};
use sha2::{Digest, Sha256};

use super::{Frame, FrameKind, Journal, JournalError, decode, delta, frame_key, frames};

/// Largest piece: what one value may hold, less room for the key beside it.
const PIECE: usize = 1_000_000;
/// A frame unpacks to at most this much; whoever writes more into our keys is not believed.
const LARGEST: u64 = 1 << 30;

/// A key frame's text, to say what changed against.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) number: u64,
    pub(super) text: Vec<u8>,
}

/// A frame ready to be stored.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) frame: Frame,
    pub(super) bytes: Vec<u8>,
}

/// The two as one text: equal values give equal bytes.
pub(super) fn text(snapshot: &Snapshot, plan: &Plan) -> Vec<u8> {
    serde_json::to_vec(&(snapshot, plan)).expect("a snapshot has text keys and no floats")
}

pub(super) fn parse(key: &str, text: &[u8]) -> Result<(Snapshot, Plan), JournalError> {
    decode(key, text)
}

/// Packs a text. A change that is hardly smaller than the whole becomes a key frame.
pub(super) fn pack(text: &[u8], number: u64, base: Option<&Base>) -> Packed {
    let digest = hex::encode(Sha256::digest(text));
    let bytes = text.len() as u64;
    let change = base.map(|base| (base.number, deflate(&delta::encode(&base.text, text))));
    if let Some((key, packed)) = change
        && packed.len() < text.len() / 20 + 512
    {
        let frame = Frame { kind: FrameKind::Delta, key, pieces: count(&packed), bytes, sha256: digest };
        return Packed { frame, bytes: packed };
    }
    let packed = deflate(text);
    let frame = Frame { kind: FrameKind::Key, key: number, pieces: count(&packed), bytes, sha256: digest };
    Packed { frame, bytes: packed }
}

fn count(packed: &[u8]) -> usize {
    pieces(packed).count()
}

pub(super) fn pieces(packed: &[u8]) -> impl Iterator<Item = &[u8]> {
    packed.chunks(PIECE)
}

fn deflate(text: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    encoder.write_all(text).and_then(|()| encoder.finish()).expect("writing to memory does not fail")
}

fn inflate(packed: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    DeflateDecoder::new(packed).take(LARGEST).read_to_end(&mut text)?;
    Ok(text)
}

impl Journal {
    /// The text of a key frame.
    pub(super) async fn key_text(&self, cluster: ClusterId, number: u64) -> Result<Vec<u8>, JournalError> {
        inflate(&self.stored(cluster, number).await?)
            .map_err(|error| damaged(cluster, number, &error.to_string()))
    }

    /// The text of any frame, checked against its digest.
    pub(super) async fn frame_text(
        &self,
        cluster: ClusterId,
        number: u64,
        frame: &Frame,
    ) -> Result<Vec<u8>, JournalError> {
        let own = self.key_text(cluster, number).await?;
        let text = match frame.kind {
            FrameKind::Key => own,
            FrameKind::Delta => {
                let base = self.key_text(cluster, frame.key).await?;
                delta::decode(&base, &own)
                    .ok_or_else(|| damaged(cluster, number, "it does not belong to its key frame"))?
            }
        };
        if hex::encode(Sha256::digest(&text)) == frame.sha256 {
            Ok(text)
        } else {
            Err(damaged(cluster, number, "its digest is another one"))
        }
    }

    async fn stored(&self, cluster: ClusterId, number: u64) -> Result<Vec<u8>, JournalError> {
        let prefix = format!("{}{number:016}/", frames(cluster));
        let mut bytes = Vec::new();
        let parts = List { limit: 4, ..List::prefix(prefix) };
        parts.each(&*self.store, |entry| bytes.extend_from_slice(&entry.value)).await?;
        if bytes.is_empty() { Err(damaged(cluster, number, "it is not there")) } else { Ok(bytes) }
    }
}

fn damaged(cluster: ClusterId, number: u64, why: &str) -> JournalError {
    JournalError::Damaged { key: frame_key(cluster, number, 0), why: why.to_owned() }
}
