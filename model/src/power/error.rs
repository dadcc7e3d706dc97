//! Why a power driver could not do what was asked, in words that help and never contain a secret.

use std::fmt;

use thiserror::Error;

use super::{Bmc, DriverKind, Pin};
use crate::Duration;

/// A failed call: which machine, through which address, and what went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("BMC {address} of host {host} {fault}")]
pub struct PowerError {
    pub host: String,
    pub address: String,
    pub fault: Fault,
}

/// What the caller can do about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// The same call may work later.
    Later,
    /// Read the power state; do not send again before that.
    ReadFirst,
    /// This driver will not do it; another one may.
    OtherDriver,
    /// Nothing works until a person changes something. Calls stop.
    Person,
}

/// What went wrong. The texts continue "BMC … of host … ".
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    #[error(
        "refused the account in credential {credential}; may that account switch power, and is its password current?"
    )]
    Denied { credential: String },
    #[error(
        "demands a new password for the account in credential {credential}; change it on the BMC, then rotate the credential"
    )]
    PasswordChangeRequired { credential: String },
    #[error("cannot be asked: {why}")]
    NoCredential { why: String },
    #[error("was not asked: {why}")]
    NotAsked { why: String },
    #[error("was sent nothing that changes it: {why}")]
    Withheld { why: String },
    #[error("did not answer within {limit}; is it reachable from here?")]
    Silent { limit: Duration },
    #[error("cannot be reached: {why}")]
    Unreachable { why: String },
    #[error(
        "presented a certificate that its trust setting does not accept ({why}); its key is {found}, nothing secret was sent"
    )]
    Untrusted { why: String, found: Pin },
    #[error(
        "is not trusted yet; its key is {found}: compare it with the BMC's own display and approve it, nothing secret was sent"
    )]
    Unapproved { found: Pin },
    #[error("is not called: {why}")]
    AddressRefused { why: String },
    #[error("cannot do {what} through {driver}")]
    Unsupported { what: String, driver: DriverKind },
    #[error("answered {asked} with something unusable: {why}")]
    Malformed { asked: String, why: String },
    #[error("is busy: {why}; try again later")]
    Busy { why: String },
    #[error("refused {asked}: {answer}")]
    Refused { asked: String, answer: String },
    #[error("is not the expected machine: {what} should be {expected} and is {found}; nothing was switched")]
    WrongHost { what: &'static str, expected: String, found: String },
    #[error("does not say now which machine it is: its {what} should be {expected}; nothing was switched")]
    Unidentified { what: &'static str, expected: String },
    #[error("keeps boot setting {found} although {wanted} was set and accepted")]
    BootIgnored { wanted: String, found: String },
    #[error("has {count} systems ({found}); name one of them in the host's record")]
    AmbiguousSystem { count: usize, found: String },
    #[error("may or may not have carried out {action}: {why}; read the power state before anything else")]
    OutcomeUnknown { action: String, why: String },
    #[error("cannot be used as recorded: {why}")]
    Invalid { why: String },
}

impl Fault {
    pub fn unsupported(what: impl Into<String>, driver: DriverKind) -> Self {
        Self::Unsupported { what: what.into(), driver }
    }

    pub fn malformed(asked: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Malformed { asked: asked.into(), why: why.into() }
    }

    /// Stable name for metrics, API answers and documentation.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Denied { .. } => "POWER_DENIED",
            Self::PasswordChangeRequired { .. } => "POWER_PASSWORD_CHANGE_REQUIRED",
            Self::NoCredential { .. } => "POWER_NO_CREDENTIAL",
            Self::NotAsked { .. } => "POWER_NOT_ASKED",
            Self::Withheld { .. } => "POWER_WITHHELD",
            Self::Silent { .. } => "POWER_SILENT",
            Self::Unreachable { .. } => "POWER_UNREACHABLE",
            Self::Untrusted { .. } => "POWER_UNTRUSTED_CERTIFICATE",
            Self::Unapproved { .. } => "POWER_UNAPPROVED_CERTIFICATE",
            Self::AddressRefused { .. } => "POWER_ADDRESS_REFUSED",
            Self::Unsupported { .. } => "POWER_UNSUPPORTED",
            Self::Malformed { .. } => "POWER_MALFORMED_ANSWER",
            Self::Busy { .. } => "POWER_BUSY",
            Self::Refused { .. } => "POWER_REFUSED",
            Self::WrongHost { .. } => "POWER_WRONG_HOST",
            Self::Unidentified { .. } => "POWER_UNIDENTIFIED",
            Self::BootIgnored { .. } => "POWER_BOOT_OVERRIDE_IGNORED",
            Self::AmbiguousSystem { .. } => "POWER_AMBIGUOUS_SYSTEM",
            Self::OutcomeUnknown { .. } => "POWER_OUTCOME_UNKNOWN",
            Self::Invalid { .. } => "POWER_INVALID",
        }
    }

    pub const fn advice(&self) -> Advice {
        match self {
            Self::Denied { .. }
            | Self::PasswordChangeRequired { .. }
            | Self::NoCredential { .. }
            | Self::Untrusted { .. }
            | Self::Unapproved { .. }
            | Self::AddressRefused { .. }
            | Self::WrongHost { .. }
            | Self::AmbiguousSystem { .. }
            | Self::Invalid { .. } => Advice::Person,
            Self::NotAsked { .. }
            | Self::Withheld { .. }
            | Self::Silent { .. }
            | Self::Unreachable { .. }
            | Self::Malformed { .. }
            | Self::Unidentified { .. }
            | Self::Busy { .. } => Advice::Later,
            Self::Unsupported { .. } | Self::Refused { .. } | Self::BootIgnored { .. } => Advice::OtherDriver,
            Self::OutcomeUnknown { .. } => Advice::ReadFirst,
        }
    }
}

impl PowerError {
    pub fn new(bmc: &Bmc, fault: Fault) -> Self {
        Self { host: bmc.host.clone(), address: bmc.address(), fault }
    }

    /// See [`Fault::code`].
    pub const fn code(&self) -> &'static str {
        self.fault.code()
    }

    /// See [`Fault::advice`].
    pub const fn advice(&self) -> Advice {
        self.fault.advice()
    }
}

/// Longest piece of foreign text that is shown. A sentence fits; a page of HTML does not.
const MAX_SHOWN: usize = 200;

/// Text from a machine, made fit to show: control characters escaped, cut to a sentence.
pub fn shown(text: &str) -> impl fmt::Display {
    let mut out = String::new();
    for character in text.trim().chars() {
        if out.len() >= MAX_SHOWN {
            out.push('…');
            break;
        }
        match character {
            '\n' | '\r' | '\t' => out.push(' '),
            // Markup and direction marks could disguise the text where it is shown.
            '<' | '>' => out.extend(character.escape_unicode()),
            plain if plain.is_control() || ('\u{200b}'..='\u{206f}').contains(&plain) => {
                out.extend(plain.escape_unicode());
            }
            plain => out.push(plain),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_cut_and_escaped() {
        assert_eq!(shown(" ok\n").to_string(), "ok");
        assert_eq!(shown("a\u{1b}[31mb").to_string(), "a\\u{1b}[31mb");
        assert_eq!(shown("<script>").to_string(), "\\u{3c}script\\u{3e}");
        assert!(shown(&"x".repeat(5000)).to_string().chars().count() <= MAX_SHOWN + 1);
        assert!(!shown("a\u{202e}b").to_string().contains('\u{202e}'));
    }

    /// People find every code in the reference, and none that there is not.
    #[test]
    fn every_code_is_in_the_reference() {
        let codes = |text: &str, begin: &str, end: &str| -> std::collections::BTreeSet<String> {
            let parts = text.split(begin).skip(1).filter_map(|rest| rest.split_once(end));
            parts.map(|(code, _)| code.to_owned()).collect()
        };
        let source = include_str!("error.rs").split("#[cfg(test)]").next().unwrap_or_default();
        let (here, told) = (
            codes(source, "=> \"POWER_", "\""),
            codes(include_str!("../../../docs/reference/errors.md"), "\n| `POWER_", "` |"),
        );
        assert!(here.len() >= 19, "{here:?}");
        assert_eq!(here, told, "docs/reference/errors.md lists the codes of power drivers");
    }

    #[test]
    fn every_text_reads_as_a_sentence_about_the_machine() {
        let error = PowerError {
            host: "n1".into(),
            address: "https://10.0.0.1".into(),
            fault: Fault::Silent { limit: Duration::from_secs(30) },
        };
        assert_eq!(
            error.to_string(),
            "BMC https://10.0.0.1 of host n1 did not answer within 30s; is it reachable from here?"
        );
        assert_eq!(error.code(), "POWER_SILENT");
    }
}
