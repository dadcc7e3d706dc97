//! Which machine, and how it is reached: what the inventory records about power.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::DriverKind;
use crate::field::serde_as_text;

/// One way to one machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bmc {
    /// The host's name in the inventory, for messages.
    pub host: String,
    pub endpoint: Endpoint,
    /// Name of the credential to use; some endpoints need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// What must be true of the machine before it is stopped.
    #[serde(default)]
    pub expect: Expected,
}

/// Marks that tell one machine from another, checked before every action that interrupts it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Expected {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
}

/// Where a driver finds a machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase", tag = "driver")]
pub enum Endpoint {
    Redfish {
        /// `https://address[:port]`, or `http://…` where that is allowed.
        url: String,
        /// The system's id when there are several behind the BMC.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        system: Option<String>,
        #[serde(default)]
        trust: Trust,
        #[serde(default)]
        auth: RedfishAuth,
    },
    Ipmi {
        /// `address[:port]`; the port is 623 unless given.
        address: String,
        #[serde(default)]
        suite: CipherSuite,
        #[serde(default)]
        privilege: Privilege,
    },
    Wol {
        mac: Mac,
        /// The subnet's directed broadcast address.
        broadcast: String,
        #[serde(default = "discard_port")]
        port: u16,
        /// Six bytes that the network card wants to see. They travel in the clear.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secure_on: Option<Mac>,
        /// The network interface that packets leave by; the routing table decides unless given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interface: Option<String>,
    },
    /// The agent on the host itself; the credential holds the key that both sides sign with.
    Agent,
    Webhook {
        url: String,
        #[serde(default)]
        trust: Trust,
    },
    DryRun,
}

const fn discard_port() -> u16 {
    9
}

/// How a BMC proves who it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase", tag = "verify")]
pub enum Trust {
    /// By its public key. Without one, the first contact only tells which key was found.
    Pin {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pin: Option<Pin>,
    },
    /// By a certificate that one of these authorities signed.
    Ca {
        /// One or more certificates in PEM.
        pem: String,
        /// The name to expect when it differs from the address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        server_name: Option<String>,
    },
    /// By a certificate that the operating system's authorities signed.
    Webpki,
    /// Not at all. Raises a condition for as long as it is set.
    Insecure,
}

impl Default for Trust {
    /// A key that is still to be approved.
    fn default() -> Self {
        Self::Pin { pin: None }
    }
}

/// How a Redfish client logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RedfishAuth {
    /// A session where there is a session service with room, else basic.
    #[default]
    Auto,
    Basic,
}

/// The RMCP+ cipher suites that authenticate, protect and encrypt. Others are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum CipherSuite {
    /// HMAC-SHA1 and AES-128.
    Sha1,
    /// HMAC-SHA256 and AES-128.
    #[default]
    Sha256,
}

impl TryFrom<u8> for CipherSuite {
    type Error = String;

    fn try_from(id: u8) -> Result<Self, Self::Error> {
        match id {
            3 => Ok(Self::Sha1),
            17 => Ok(Self::Sha256),
            0 => Err("cipher suite 0 needs no password and is never used; set 17 or 3".into()),
            other => Err(format!("cipher suite {other} is not supported; set 17 or 3")),
        }
    }
}

impl From<CipherSuite> for u8 {
    fn from(suite: CipherSuite) -> Self {
        match suite {
            CipherSuite::Sha1 => 3,
            CipherSuite::Sha256 => 17,
        }
    }
}

/// What an IPMI session may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Privilege {
    Operator,
    #[default]
    Administrator,
}

impl Bmc {
    pub const fn driver(&self) -> DriverKind {
        match self.endpoint {
            Endpoint::Redfish { .. } => DriverKind::Redfish,
            Endpoint::Ipmi { .. } => DriverKind::Ipmi,
            Endpoint::Wol { .. } => DriverKind::Wol,
            Endpoint::Agent => DriverKind::Agent,
            Endpoint::Webhook { .. } => DriverKind::Webhook,
            Endpoint::DryRun => DriverKind::DryRun,
        }
    }

    /// The address for messages. A user name or password that someone wrote into a URL is left out.
    pub fn address(&self) -> String {
        match &self.endpoint {
            Endpoint::Redfish { url, .. } | Endpoint::Webhook { url, .. } => without_user_info(url),
            Endpoint::Ipmi { address, .. } => address.clone(),
            Endpoint::Wol { mac, broadcast, .. } => format!("{mac} via {broadcast}"),
            Endpoint::Agent => "agent".to_owned(),
            Endpoint::DryRun => "dry-run".to_owned(),
        }
    }
}

fn without_user_info(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let Some((_, host)) = authority.rsplit_once('@') else { return url.to_owned() };
    if scheme.is_empty() { format!("{host}{path}") } else { format!("{scheme}://{host}{path}") }
}

/// A hardware address of six bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{found:?} is not a MAC address; write six bytes like 02:00:00:00:00:01")]
pub struct MacError {
    pub found: String,
}

impl FromStr for Mac {
    type Err = MacError;

    /// Six pairs of hexadecimal digits, joined by colons or by hyphens.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || MacError { found: text.to_owned() };
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut bytes = [0; 6];
        let mut parts = text.split(separator);
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(wrong)?;
            if !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Self(bytes)) }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if index == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

/// The SHA-256 of a certificate's public key, written `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pin(pub [u8; 32]);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{found:?} is not a key pin; write sha256: and 64 hexadecimal digits")]
pub struct PinError {
    pub found: String,
}

impl FromStr for Pin {
    type Err = PinError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || PinError { found: text.to_owned() };
        let digits = text.strip_prefix("sha256:").ok_or_else(wrong)?;
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

serde_as_text!(Mac);
serde_as_text!(Pin);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macs_are_read_strictly_and_printed_one_way() {
        for text in ["02:00:00:00:00:0A", "02-00-00-00-00-0a"] {
            assert_eq!(text.parse::<Mac>().unwrap().to_string(), "02:00:00:00:00:0a");
        }
        for text in ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "02:00:00:00:00:zz", "+2:00:00:00:00:00"] {
            assert!(text.parse::<Mac>().is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn pins_round_trip() {
        let pin = Pin([0xab; 32]);
        assert_eq!(pin.to_string().parse::<Pin>(), Ok(pin));
        assert!("sha256:12".parse::<Pin>().is_err());
    }

    #[test]
    fn addresses_in_messages_have_no_user_info() {
        let bmc = |url: &str| Bmc {
            host: "n1".into(),
            endpoint: Endpoint::Redfish {
                url: url.into(),
                system: None,
                trust: Trust::default(),
                auth: RedfishAuth::default(),
            },
            credential: None,
            expect: Expected::default(),
        };
        assert_eq!(bmc("https://root:canary@10.0.0.1/x").address(), "https://10.0.0.1/x");
        assert_eq!(bmc("https://10.0.0.1/a@b").address(), "https://10.0.0.1/a@b");
    }

    #[test]
    fn records_read_as_they_are_documented() {
        let bmc: Bmc = serde_json::from_str(
            r#"{"host":"n1","credential":"rack1",
                "endpoint":{"driver":"redfish","url":"https://10.0.0.1","trust":{"verify":"insecure"}}}"#,
        )
        .unwrap();
        assert_eq!(bmc.driver(), DriverKind::Redfish);
        let weak = r#"{"host":"n1","endpoint":{"driver":"ipmi","address":"10.0.0.1","suite":0}}"#;
        let error = serde_json::from_str::<Bmc>(weak).unwrap_err().to_string();
        assert!(error.contains("cipher suite 0"), "{error}");
    }
}
