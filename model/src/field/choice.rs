//! Enumerations that users write as words.

/// A closed set of words.
pub trait Choice: Copy + 'static {
    /// What one of them is called in an error: "a taint effect".
    const WHAT: &'static str;
    /// Every value with the word that stands for it, in the order in which they are listed to people.
    const ALL: &'static [(&'static str, Self)];

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == word).map(|(_, value)| *value)
    }

    /// All words, for "allowed: …".
    fn words() -> String {
        Self::ALL.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ")
    }
}

/// Declares an enumeration with its words, and with text and serde forms that use them.
macro_rules! choice {
    ($(#[$meta:meta])* $vis:vis enum $name:ident ($what:literal) {
        $($(#[$doc:meta])* $variant:ident = $word:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name { $($(#[$doc])* $variant),+ }

        impl $crate::field::Choice for $name {
            const WHAT: &'static str = $what;
            const ALL: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];
        }

        impl $name {
            $vis const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                <Self as $crate::field::Choice>::from_word(&word).ok_or_else(|| {
                    serde::de::Error::custom(format!(
                        "{word:?} is not {}; allowed: {}", $what, <Self as $crate::field::Choice>::words()
                    ))
                })
            }
        }
    };
}
pub(crate) use choice;
