//! Addresses as identities, and the project that belongs to one.

use std::{fmt, str::FromStr};

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{Project, names};

/// Longest address, as the mail protocols have it.
const MAX_ADDRESS: usize = 254;
/// Characters of the hash in a project's name: 50 bits, so that a million addresses meet by chance with a
/// probability of less than one in a thousand, and nobody finds a second address for a given project.
const HASH_CHARS: usize = 10;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{found:?} is not an e-mail address; write it like user@example.com")]
pub struct EmailError {
    pub found: String,
}

/// An address of the form `name@domain.tld`. Case is ignored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Email(String);

impl Email {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The project of somebody without configuration: readable, the same every time, and never the same
    /// for two addresses.
    pub fn project(&self) -> Project {
        let mut readable = String::new();
        for c in self.0.chars() {
            if c.is_ascii_alphanumeric() {
                readable.push(c);
            } else if !readable.ends_with('-') && !readable.is_empty() {
                readable.push('-');
            }
        }
        readable.truncate(names::MAX_LABEL - HASH_CHARS - 1);
        let readable = readable.trim_end_matches('-');
        let hash = hash(&self.0);
        let name = if readable.is_empty() { hash } else { format!("{readable}-{hash}") };
        name.parse().expect("letters, digits and inner dashes, at most 63")
    }
}

/// The first bits of SHA-256, five to a character.
fn hash(text: &str) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let digest = Sha256::digest(text.as_bytes());
    let bits = digest.iter().take(8).fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    (0..HASH_CHARS).map(|index| char::from(ALPHABET[(bits >> (59 - 5 * index) & 31) as usize])).collect()
}

impl FromStr for Email {
    type Err = EmailError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || EmailError { found: text.chars().take(60).collect() };
        let (name, domain) = text.split_once('@').ok_or_else(wrong)?;
        let plain = text.len() <= MAX_ADDRESS
            && text.chars().all(|c| !c.is_control() && !c.is_whitespace() && !",;:<>()[]\\\"".contains(c));
        let labels_good = domain.split('.').all(|label| !label.is_empty());
        if name.is_empty() || domain.contains('@') || !domain.contains('.') || !labels_good || !plain {
            return Err(wrong());
        }
        Ok(Self(text.to_lowercase()))
    }
}

impl fmt::Display for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn api_n2_what_is_not_an_address_is_refused() {
        for bad in [
            "",
            "not-an-email",
            "a@b",
            "a@@b.c",
            "@b.c",
            "a@",
            "a@.c",
            "a@b.",
            "a@b..c",
            "a b@c.d",
            "a@b.c, d@e.f",
            "a@b.c\n",
            "a@b.c@d.e",
        ] {
            assert!(bad.parse::<Email>().is_err(), "{bad:?} was accepted");
        }
        for good in ["user@example.com", "first.last+tag@sub.example.co", "controller@system.local"] {
            assert!(good.parse::<Email>().is_ok(), "{good:?} was refused");
        }
    }

    #[test]
    fn a_project_is_readable_and_its_own() {
        let project = |text: &str| text.parse::<Email>().unwrap().project().to_string();
        assert_eq!(project("user@example.com"), project("User@Example.COM"));
        assert!(project("user@example.com").starts_with("user-example-com-"));
        // The same readable part, and yet two projects.
        assert_ne!(project("a.b@example.com"), project("a-b@example.com"));
        assert_ne!(project("a@b.example.com"), project("a.b@example.com"));
        assert_eq!(project("user@example.com"), "user-example-com-wte2fcjshm");
    }

    proptest! {
        #[test]
        fn every_address_has_a_valid_project(text in "\\PC{1,80}@\\PC{1,80}\\.\\PC{1,20}") {
            if let Ok(email) = text.parse::<Email>() {
                prop_assert!(email.project().as_str().parse::<Project>().is_ok());
            }
        }
    }
}
