//! What a person does about a BMC that is not called any more. Every cause has a way out of its own: a new password does
//! not help against a key that nobody has approved.

use super::{BareMetalNodeSpec, BlockCause, BmcBlocked, DriverSpec, TlsVerify};

impl BlockCause {
    /// What it means, and what to do about it, for the reference.
    const fn told(self) -> [&'static str; 2] {
        match self {
            Self::CredentialsRefused => [
                "The BMC refuses the account, or there is none.",
                "`muster rotate credential NAME` with the right password.",
            ],
            Self::PasswordChangeRequired => [
                "The BMC demands a new password for the account.",
                "Log in to the BMC, change it there, then `muster rotate credential NAME`.",
            ],
            Self::KeyNotApproved => [
                "First contact under `tlsVerify: pin`: nobody has approved the key yet. No account was sent.",
                "Compare the key with what the BMC shows itself, then `muster approve host NAME`.",
            ],
            Self::CertificateMismatch => [
                "Another key than the approved one, or a certificate that `ca` or `webpki` does not accept. No account was sent.",
                "Find out why. If the new key is right, `muster approve host NAME`; never done by itself.",
            ],
            Self::IdentityChanged => [
                "Another machine answers: its serial number or UUID differs.",
                "Correct the record, or `muster acknowledge host NAME` if the machine was replaced.",
            ],
        }
    }

    /// The causes as a section of the reference.
    pub fn reference() -> String {
        let mut text = String::from(
            "## Why a BMC is not called\n\n\
             `status.bmcBlocked` of a host has one of these causes, and its condition `BMCBlocked` has it as its reason. Nothing calls the BMC\n\
             meanwhile, so that no account is locked and no stranger is told a password. A new version of the credential, another address and an\n\
             approved key lift it by themselves.\n\n\
             | Cause | Meaning | What to do |\n|---|---|---|\n",
        );
        for cause in Self::ALL {
            let [meaning, remedy] = cause.told();
            for part in ["| `", cause.as_str(), "` | ", meaning, " | ", remedy, " |\n"] {
                text.push_str(part);
            }
        }
        text
    }
}

/// The way out of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// What is the matter, to follow the host's name.
    pub says: String,
    /// What to do first and why, to stand in front of the command.
    pub step: String,
    pub command: String,
}

impl BmcBlocked {
    pub fn remedy(&self, name: &str, spec: &BareMetalNodeSpec) -> Remedy {
        let drivers = spec.effective_drivers();
        let driver = self.driver.and_then(|place| drivers.get(place));
        match self.cause {
            BlockCause::CredentialsRefused => self.account(name, spec, driver, &drivers),
            BlockCause::PasswordChangeRequired => {
                let credential = credential(spec, driver, &drivers).unwrap_or("NAME");
                Remedy {
                    says: format!(
                        "has a BMC that demands a new password for the account in credential {credential}"
                    ),
                    step: "log in to its BMC and change the password there, then put the new one in".into(),
                    command: rotate(credential),
                }
            }
            BlockCause::KeyNotApproved => {
                let command = approve(name, self);
                Remedy {
                    says: "has a BMC whose key nobody has approved yet, so nothing is asked of it".into(),
                    step: format!("compare {} with what its BMC shows itself, then approve it", self.shown()),
                    command,
                }
            }
            BlockCause::CertificateMismatch => self.certificate(name, spec, driver.or(drivers.first())),
            BlockCause::IdentityChanged => {
                let record = if spec.serial.is_some() {
                    format!(", correct `serial` in its record (muster edit host {name})")
                } else {
                    String::new()
                };
                Remedy {
                    says: format!("answers as another machine: {}", self.message),
                    step: format!(
                        "look which machine is behind that address; if it was replaced on purpose{record} and say so"
                    ),
                    command: acknowledge(name, "what was replaced"),
                }
            }
        }
    }

    fn account(
        &self,
        name: &str,
        spec: &BareMetalNodeSpec,
        driver: Option<&DriverSpec>,
        drivers: &[DriverSpec],
    ) -> Remedy {
        match credential(spec, driver, drivers) {
            Some(credential) => Remedy {
                says: format!(
                    "has a BMC that refuses the account in credential {credential}, so nothing is asked of it"
                ),
                step: "put the right account in".into(),
                command: rotate(credential),
            },
            None => Remedy {
                says: format!("has a BMC that cannot be asked without an account: {}", self.message),
                step: "name a credential in bmcCredentials".into(),
                command: format!("muster edit host {name}"),
            },
        }
    }

    fn certificate(&self, name: &str, spec: &BareMetalNodeSpec, driver: Option<&DriverSpec>) -> Remedy {
        if spec.tls_verify != TlsVerify::Pin {
            return Remedy {
                says: format!(
                    "has a BMC whose certificate tlsVerify {} does not accept: {}",
                    spec.tls_verify, self.message
                ),
                step: "give its BMC a certificate that its authority signed, or correct its trust (muster edit host), then say so"
                    .into(),
                command: acknowledge(name, "new certificate"),
            };
        }
        let approved = driver.and_then(|driver| spec.pin_of(driver)).unwrap_or_else(|| "none".into());
        Remedy {
            says: format!("has a BMC with another key than the approved one: {} instead of {approved}", self.shown()),
            step: "find out why it changed, as it may be a stranger; if the new key is what its BMC shows itself, approve it"
                .into(),
            command: approve(name, self),
        }
    }

    fn shown(&self) -> String {
        self.seen_key.map_or_else(|| "the key".into(), |key| key.to_string())
    }
}

/// The credential in use, by its name: that of the driver which was refused, else the first that any driver names.
fn credential<'a>(
    spec: &'a BareMetalNodeSpec,
    driver: Option<&'a DriverSpec>,
    drivers: &'a [DriverSpec],
) -> Option<&'a str> {
    let common = spec.bmc_credentials.as_deref();
    match driver {
        Some(driver) => driver.credentials.as_deref().or(common),
        None => common.or_else(|| drivers.iter().find_map(|driver| driver.credentials.as_deref())),
    }
}

fn rotate(credential: &str) -> String {
    format!("muster rotate credential {credential} --password-file FILE")
}

fn approve(name: &str, blocked: &BmcBlocked) -> String {
    let key = blocked.seen_key.map(|key| format!(" --pin {key}")).unwrap_or_default();
    format!("muster approve host {name}{key}")
}

fn acknowledge(name: &str, reason: &str) -> String {
    format!("muster acknowledge host {name} --reason '{reason}'")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Timestamp,
        host::{DriverKind, PowerInterface},
        power::Pin,
    };

    #[test]
    fn every_cause_has_its_own_way_out() {
        #[track_caller]
        fn check(cause: BlockCause, change: impl FnOnce(&mut BareMetalNodeSpec), says: &str, command: &str) {
            let mut spec = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
            spec.bmc_credentials = Some("rack-a".into());
            change(&mut spec);
            let blocked = BmcBlocked {
                cause,
                message: "serial S2 answers where S1 was registered".into(),
                since: Timestamp::from_millis(0),
                credential_version: 1,
                driver: Some(spec.effective_drivers().len() - 1),
                seen_key: Some(Pin([2; 32])),
            };
            let remedy = blocked.remedy("h1", &spec);
            assert!(remedy.says.contains(says), "{}", remedy.says);
            assert_eq!(remedy.command, command);
        }
        let (old, new) = (Pin([1; 32]), Pin([2; 32]));
        let rotate = "muster rotate credential rack-a --password-file FILE";
        check(BlockCause::CredentialsRefused, |_| {}, "credential rack-a", rotate);
        check(
            BlockCause::CredentialsRefused,
            |spec| {
                let own = DriverSpec { credentials: Some("own".into()), ..DriverSpec::new(DriverKind::Ipmi) };
                (spec.bmc_credentials, spec.drivers) =
                    (None, vec![DriverSpec::new(DriverKind::Redfish), own]);
            },
            "credential own",
            "muster rotate credential own --password-file FILE",
        );
        check(
            BlockCause::CredentialsRefused,
            |spec| spec.bmc_credentials = None,
            "without an account",
            "muster edit host h1",
        );
        check(BlockCause::PasswordChangeRequired, |_| {}, "demands a new password", rotate);
        let approve = format!("muster approve host h1 --pin {new}");
        check(BlockCause::KeyNotApproved, |_| {}, "nobody has approved", &approve);
        let changed = format!("{new} instead of {old}");
        check(BlockCause::CertificateMismatch, |spec| spec.pin = Some(old), &changed, &approve);
        check(
            BlockCause::CertificateMismatch,
            |spec| spec.tls_verify = TlsVerify::Webpki,
            "tlsVerify webpki does not accept",
            "muster acknowledge host h1 --reason 'new certificate'",
        );
        check(
            BlockCause::IdentityChanged,
            |_| {},
            "serial S2 answers where S1",
            "muster acknowledge host h1 --reason 'what was replaced'",
        );
    }
}
