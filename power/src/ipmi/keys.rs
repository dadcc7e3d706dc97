//! The keys of an RMCP+ session and what is done with them.

use aes::{
    Aes128,
    cipher::{BlockModeDecrypt as _, BlockModeEncrypt as _, KeyIvInit as _, block_padding::NoPadding},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use sha2::Sha256;
use zeroize::Zeroizing;

pub(super) use muster_model::power::CipherSuite as Suite;

/// HMAC with the suite's hash, in full length.
pub(super) fn hmac(suite: Suite, key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(match suite {
        Suite::Sha1 => {
            let mut mac = Hmac::<Sha1>::new_from_slice(key).expect("HMAC takes keys of any length");
            for part in parts {
                mac.update(part);
            }
            mac.finalize().into_bytes().to_vec()
        }
        Suite::Sha256 => {
            let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
            for part in parts {
                mac.update(part);
            }
            mac.finalize().into_bytes().to_vec()
        }
    })
}

/// Compares without telling by the time it takes where the first difference is.
pub(super) fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// Bytes of the code at the end of a packet, and of RAKP message 4.
pub(super) const fn code_length(suite: Suite) -> usize {
    match suite {
        Suite::Sha1 => 12,
        Suite::Sha256 => 16,
    }
}

/// Bytes of the codes in RAKP messages 2 and 3.
pub(super) const fn hash_length(suite: Suite) -> usize {
    match suite {
        Suite::Sha1 => 20,
        Suite::Sha256 => 32,
    }
}

/// Keys for packets, derived from the session's key.
pub(super) struct Keys {
    suite: Suite,
    integrity: Zeroizing<Vec<u8>>,
    cipher: Zeroizing<[u8; 16]>,
}

impl Keys {
    pub(super) fn derive(suite: Suite, session: &[u8]) -> Self {
        let integrity = hmac(suite, session, &[&[1; 20]]);
        let long = hmac(suite, session, &[&[2; 20]]);
        let mut cipher = Zeroizing::new([0; 16]);
        cipher.copy_from_slice(&long[..16]);
        Self { suite, integrity, cipher }
    }

    pub(super) const fn code_length(&self) -> usize {
        code_length(self.suite)
    }

    pub(super) fn authenticate(&self, bytes: &[u8]) -> Vec<u8> {
        hmac(self.suite, &self.integrity, &[bytes])[..self.code_length()].to_vec()
    }

    pub(super) fn is_authentic(&self, bytes: &[u8], code: &[u8]) -> bool {
        same(&self.authenticate(bytes), code)
    }

    /// The initialisation vector, then the payload with its padding 1, 2, 3 … and the padding's length.
    pub(super) fn encrypt(&self, payload: &[u8], iv: [u8; 16]) -> Vec<u8> {
        let mut padded = Zeroizing::new(payload.to_vec());
        let pad = 15 - u8::try_from(payload.len() % 16).expect("a remainder of 16");
        padded.extend(1..=pad);
        padded.push(pad);
        let cipher = cbc::Encryptor::<Aes128>::new((&*self.cipher).into(), (&iv).into());
        let mut out = iv.to_vec();
        out.extend(cipher.encrypt_padded_vec::<NoPadding>(&padded));
        out
    }

    /// The payload; `None` when it cannot have been made with these keys.
    pub(super) fn decrypt(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (iv, blocks) = sealed.split_first_chunk::<16>()?;
        let cipher = cbc::Decryptor::<Aes128>::new((&*self.cipher).into(), iv.into());
        let mut payload = cipher.decrypt_padded_vec::<NoPadding>(blocks).ok()?;
        let pad = payload.pop()?;
        let length = payload.len().checked_sub(usize::from(pad))?;
        let padding = payload.get(length..)?;
        if !padding.iter().copied().eq(1..=pad) {
            return None;
        }
        payload.truncate(length);
        Some(payload)
    }

    #[cfg(test)]
    pub(super) fn for_tests(suite: Suite) -> Self {
        Self::derive(suite, &[5; 20])
    }
}
