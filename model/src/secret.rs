//! One type for every password and key, made so that it is hard to spill.

use std::fmt;

use zeroize::Zeroizing;

/// A secret value. It is wiped when dropped, has no serialised form of its own, and prints as a placeholder.
///
/// A field that has to be stored in the clear says so with [`as_text`]; nothing else can write one down.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    pub fn new(value: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(value.into()))
    }

    /// The value itself. Whoever calls this answers for where it goes.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The value as text; `None` for bytes that are none.
    pub fn expose_text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// For `#[serde(with = "…")]` on an optional secret text whose record is meant to hold it.
pub mod as_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};

    use super::Secret;

    pub fn serialize<S: Serializer>(value: &Option<Secret>, serializer: S) -> Result<S::Ok, S::Error> {
        let text = value
            .as_ref()
            .map(|secret| secret.expose_text().ok_or_else(|| ser::Error::custom("the secret is not text")));
        text.transpose()?.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(Secret::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_in_no_debug_text() {
        let text = format!("{:?} {:#?}", Secret::new("canary-4711"), Some(Secret::new("canary-4711")));
        assert!(!text.contains("canary") && text.contains("[secret]"), "{text}");
    }
}
