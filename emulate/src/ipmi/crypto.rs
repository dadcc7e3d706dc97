//! Hashes and the cipher of the two suites, from the BMC's side.

use aes::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit, block_padding::NoPadding};
use hmac::{Hmac, KeyInit, Mac};

/// The algorithms of one cipher suite by their RMCP+ numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Algorithms {
    pub suite: u8,
    pub authentication: u8,
    pub integrity: u8,
}

pub(super) const SUITES: [Algorithms; 2] = [
    Algorithms { suite: 3, authentication: 1, integrity: 1 },
    Algorithms { suite: 17, authentication: 3, integrity: 4 },
];

impl Algorithms {
    /// A full hash over the chunks, one after the other.
    pub(super) fn hash(self, key: &[u8], chunks: &[&[u8]]) -> Vec<u8> {
        let message = chunks.concat();
        if self.authentication == 1 {
            let mut mac = <Hmac<sha1::Sha1> as KeyInit>::new_from_slice(key).expect("any length is a key");
            mac.update(&message);
            mac.finalize().into_bytes().to_vec()
        } else {
            let mut mac = <Hmac<sha2::Sha256> as KeyInit>::new_from_slice(key).expect("any length is a key");
            mac.update(&message);
            mac.finalize().into_bytes().to_vec()
        }
    }

    /// How many bytes of a hash end a packet.
    pub(super) const fn trailer(self) -> usize {
        if self.integrity == 1 { 12 } else { 16 }
    }
}

/// Keys K1 and K2 of a session.
#[derive(Debug, Clone)]
pub(super) struct SessionKeys {
    pub algorithms: Algorithms,
    k1: Vec<u8>,
    k2: [u8; 16],
}

impl SessionKeys {
    pub(super) fn new(algorithms: Algorithms, sik: &[u8]) -> Self {
        let second = algorithms.hash(sik, &[&[0x02; 20]]);
        let mut k2 = [0; 16];
        k2.copy_from_slice(&second[..16]);
        Self { algorithms, k1: algorithms.hash(sik, &[&[0x01; 20]]), k2 }
    }

    pub(super) fn code(&self, covered: &[u8]) -> Vec<u8> {
        let mut code = self.algorithms.hash(&self.k1, &[covered]);
        code.truncate(self.algorithms.trailer());
        code
    }

    pub(super) fn seal(&self, clear: &[u8]) -> Vec<u8> {
        let vector: [u8; 16] = rand::random();
        let mut text = clear.to_vec();
        let mut fill = 0_u8;
        while !(text.len() + 1).is_multiple_of(16) {
            fill += 1;
            text.push(fill);
        }
        text.push(fill);
        let engine = cbc::Encryptor::<aes::Aes128>::new(&self.k2.into(), &vector.into());
        [vector.to_vec(), engine.encrypt_padded_vec::<NoPadding>(&text)].concat()
    }

    pub(super) fn unseal(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        if sealed.len() < 32 {
            return None;
        }
        let (vector, text) = sealed.split_at(16);
        let vector: [u8; 16] = vector.try_into().ok()?;
        let engine = cbc::Decryptor::<aes::Aes128>::new(&self.k2.into(), &vector.into());
        let mut clear = engine.decrypt_padded_vec::<NoPadding>(text).ok()?;
        let fill = usize::from(clear.pop()?);
        clear.truncate(clear.len().checked_sub(fill)?);
        Some(clear)
    }
}
