//! Messages that prove who sent them, to whom, and that they are fresh: for webhooks and for the agent.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit as _, Mac as _};
use muster_model::{Duration, Timestamp, power::Secret};
use sha2::Sha256;

/// Most nonces that are remembered at once: 160 messages a second with the longest life, of a minute. A flood beyond it is
/// refused rather than forgotten.
const MAX_NONCES: usize = 10_000;
/// The same for the messages of one host: one a second.
const MAX_OF_ONE_HOST: usize = 60;

/// The signature over `parts`, in hexadecimal. Every part is preceded by its length, so that no two lists of
/// parts have the same signature.
pub fn sign(key: &Secret, parts: &[&str]) -> String {
    hex::encode(mac(key, parts).finalize().into_bytes())
}

/// Whether `signature` was made over `parts` with `key`, without telling how much of it is right.
pub fn is_signed(key: &Secret, parts: &[&str], signature: &str) -> bool {
    hex::decode(signature).is_ok_and(|signature| mac(key, parts).verify_slice(&signature).is_ok())
}

fn mac(key: &Secret, parts: &[&str]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.expose()).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    }
    mac
}

/// A number that was never used before: 128 random bits.
pub fn nonce() -> String {
    hex::encode(rand::random::<[u8; 16]>())
}

/// Nonces that were seen, for as long as a message with them could still be fresh.
#[derive(Debug)]
pub struct Seen {
    until: BTreeMap<String, Timestamp>,
    most: usize,
}

impl Default for Seen {
    fn default() -> Self {
        Self { until: BTreeMap::new(), most: MAX_NONCES }
    }
}

impl Seen {
    /// For the messages of one host.
    pub(crate) fn of_one_host() -> Self {
        Self { most: MAX_OF_ONE_HOST, ..Self::default() }
    }

    /// Takes a nonce that is valid until `expires`. `false` when it was seen before, or when too many are.
    pub fn take(&mut self, nonce: &str, expires: Timestamp, now: Timestamp) -> bool {
        self.until.retain(|_, until| *until >= now);
        if self.until.len() >= self.most || self.until.contains_key(nonce) {
            return false;
        }
        self.until.insert(nonce.to_owned(), expires);
        true
    }
}

/// How far two clocks may differ before fresh messages look stale.
pub const CLOCK_SKEW: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cannot_be_moved_across_their_borders() {
        let key = Secret::new("k");
        let signature = sign(&key, &["ab", "c"]);
        assert!(is_signed(&key, &["ab", "c"], &signature));
        assert!(!is_signed(&key, &["a", "bc"], &signature));
        assert!(!is_signed(&Secret::new("other"), &["ab", "c"], &signature));
        assert!(!is_signed(&key, &["ab", "c"], "zz"));
        assert!(!is_signed(&key, &["ab", "c"], &signature[..32]));
    }

    #[test]
    fn a_nonce_passes_once_while_it_could_be_replayed() {
        let (mut seen, at) = (Seen::default(), Timestamp::from_millis);
        assert!(seen.take("a", at(100), at(0)));
        assert!(!seen.take("a", at(100), at(100)));
        assert!(seen.take("b", at(300), at(200)));
        assert_eq!(seen.until.len(), 1, "what has expired is forgotten");
        let mut seen = Seen::of_one_host();
        let taken = (0..1_000).filter(|number| seen.take(&number.to_string(), at(300), at(200))).count();
        assert_eq!(taken, MAX_OF_ONE_HOST, "a flood is refused");
    }
}
