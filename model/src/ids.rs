//! The ids of objects: UUIDs, a type for each kind so that they cannot be mixed up.
//!
//! Making one needs randomness and happens at the rim: `PoolId::from(uuid)`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{found:?} is not a UUID; write it like 123e4567-e89b-12d3-a456-426614174000")]
pub struct IdError {
    pub found: String,
}

/// Reads the usual form with dashes, in either case.
fn parse(text: &str) -> Result<Uuid, IdError> {
    let wrong = || IdError { found: text.chars().take(60).collect() };
    if text.len() != 36 {
        return Err(wrong());
    }
    let id = Uuid::try_parse(text).map_err(|_| wrong())?;
    if id.is_nil() { Err(wrong()) } else { Ok(id) }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                parse(text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }
    };
}

id!(/** Names a [`crate::cluster::Cluster`]. */ ClusterId);
id!(/** Names a [`crate::pool::NodePool`]. */ PoolId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_dashed_form_is_an_id() {
        let text = "123e4567-e89b-12d3-a456-426614174000";
        assert_eq!(text.to_uppercase().parse::<PoolId>().unwrap().to_string(), text);
        for wrong in [
            "",
            "non-existent-id",
            "123e4567e89b12d3a456426614174000",
            "{123e4567-e89b-12d3-a456-426614174000}",
            "00000000-0000-0000-0000-000000000000",
            "..",
            "123e4567-e89b-12d3-a456-42661417400ü",
        ] {
            assert!(wrong.parse::<ClusterId>().is_err(), "{wrong:?} was accepted");
        }
    }
}
