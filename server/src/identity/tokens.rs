//! Bearer tokens that we know only by their digest.
//!
//! Tokens are random and long (`muster config token` makes them), so one SHA-256 is enough: there is
//! nothing to guess, and a request costs a microsecond, not the 50 ms of a password hash.

use std::{collections::BTreeMap, fmt};

use sha2::{Digest, Sha256};

/// SHA-256 of a token.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Reads `sha256:` followed by 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut digest = [0; 32];
        hex::decode_to_slice(text.strip_prefix("sha256:")?, &mut digest).ok()?;
        Some(Self(digest))
    }

    /// Compares in time that does not depend on where the digests differ.
    pub fn matches(&self, token: &str) -> bool {
        let other = Self::of(token);
        self.0.iter().zip(other.0).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(..)")
    }
}

impl fmt::Display for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex::encode(self.0))
    }
}

/// Users by the digest of their token.
#[derive(Debug, Clone, Default)]
pub struct TokenTable(BTreeMap<TokenDigest, String>);

impl TokenTable {
    pub fn new(tokens: impl IntoIterator<Item = (TokenDigest, String)>) -> Self {
        Self(tokens.into_iter().collect())
    }

    /// Looked up by digest: an attacker who measures the search learns about digests, not tokens.
    pub fn user(&self, token: &str) -> Option<&str> {
        self.0.get(&TokenDigest::of(token)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_prints_as_it_is_read_and_hides_in_debug() {
        let digest = TokenDigest::of("secret");
        assert_eq!(TokenDigest::parse(&digest.to_string()), Some(digest.clone()));
        assert!(digest.matches("secret") && !digest.matches("secre") && !digest.matches(""));
        assert!(!format!("{digest:?}").contains(&hex::encode(digest.0)));
        for bad in ["", "sha256:", "sha256:zz", "md5:00", "secret"] {
            assert!(TokenDigest::parse(bad).is_none(), "{bad}");
        }
    }
}
