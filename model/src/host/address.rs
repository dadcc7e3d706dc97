//! Addresses of machines in one spelling each, so that the same machine is recognised as the same.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use crate::names;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct AddressError {
    pub problem: &'static str,
}

/// An Ethernet address, written as `aa:bb:cc:00:11:22`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress([u8; 6]);

impl MacAddress {
    pub const fn bytes(self) -> [u8; 6] {
        self.0
    }
}

impl FromStr for MacAddress {
    type Err = AddressError;

    /// Reads `aa:bb:cc:00:11:22`, `AA-BB-CC-00-11-22`, `aabb.cc00.1122` and `aabbcc001122`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = |problem| Err(AddressError { problem });
        let groups: Vec<&str> = match text.chars().find(|c| matches!(c, ':' | '-' | '.')) {
            Some(mark) => text.split(mark).collect(),
            None => vec![text],
        };
        let width = match groups.len() {
            6 => 2,
            3 => 4,
            1 => 12,
            _ => return fault("is not a MAC address"),
        };
        if groups.iter().any(|group| group.len() != width || !group.bytes().all(|b| b.is_ascii_hexdigit())) {
            return fault("is not a MAC address");
        }
        let digits = groups.concat();
        let mut bytes = [0; 6];
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[place * 2..place * 2 + 2], 16)
                .map_err(|_| AddressError { problem: "is not a MAC address" })?;
        }
        if bytes == [0; 6] || bytes == [0xff; 6] {
            return fault("is not the address of one machine");
        }
        if bytes[0] & 1 == 1 {
            return fault("is a group address, not that of one machine");
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            let mark = if place == 0 { "" } else { ":" };
            write!(f, "{mark}{byte:02x}")?;
        }
        Ok(())
    }
}

impl Serialize for MacAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MacAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error| de::Error::custom(format!("{text:?} {error}")))
    }
}

/// The address of a BMC: a host or address, and a port where it is not the usual one. No scheme, path,
/// user or odd notation: whoever may write it makes Muster connect to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MgmtAddress(String);

impl MgmtAddress {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As a URL writes it: an IPv6 address in brackets.
    pub fn authority(&self) -> String {
        if self.0.parse::<Ipv6Addr>().is_ok() { format!("[{}]", self.0) } else { self.0.clone() }
    }

    /// The part without the port.
    pub fn host(&self) -> &str {
        split_port(&self.0).map_or(&self.0, |(host, _)| host)
    }

    pub fn port(&self) -> Option<u16> {
        split_port(&self.0).and_then(|(_, port)| port.parse().ok())
    }
}

/// `host:port` or `[v6]:port` in its parts. A bare IPv6 address has no port.
fn split_port(text: &str) -> Option<(&str, &str)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, tail) = rest.split_once(']')?;
        return tail.strip_prefix(':').map(|port| (host, port));
    }
    let (host, port) = text.rsplit_once(':')?;
    (!host.contains(':')).then_some((host, port))
}

impl FromStr for MgmtAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = |problem| Err(AddressError { problem });
        let text = text.trim();
        if text.contains("://") {
            return fault("must be an address without a scheme");
        }
        if text.contains(['/', '@', '?', '#', ' ', '%']) {
            return fault("must be an address alone");
        }
        let (host, port) = match split_port(text) {
            Some((host, port)) => (host, Some(port)),
            None => (text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text), None),
        };
        let port = match port.map(str::parse::<u16>) {
            None => None,
            Some(Ok(port)) if port > 0 => Some(port),
            Some(_) => return fault("must have a port from 1 to 65535"),
        };
        let host = match host.parse::<IpAddr>() {
            Ok(IpAddr::V6(v6)) => match v6.to_ipv4_mapped() {
                Some(v4) => v4.to_string(),
                None if port.is_some() => format!("[{v6}]"),
                None => v6.to_string(),
            },
            Ok(IpAddr::V4(v4)) => v4.to_string(),
            Err(_) => {
                let name = host.trim_end_matches('.').to_ascii_lowercase();
                // What begins like a number and is no address is an odd notation of one.
                let last = name.rsplit('.').next().unwrap_or_default();
                if last.is_empty() || last.starts_with(|c: char| c.is_ascii_digit()) {
                    return fault("is not an IP address or host name");
                }
                if names::check_dns_subdomain(&name).is_err() {
                    return fault("is not an IP address or host name");
                }
                name
            }
        };
        Ok(Self(port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"))))
    }
}

impl fmt::Display for MgmtAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for MgmtAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for MgmtAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error| de::Error::custom(format!("{text:?} {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_machine_has_one_spelling() {
        for text in ["AA:BB:CC:00:11:22", "aa-bb-cc-00-11-22", "aabb.cc00.1122", "AABBCC001122"] {
            assert_eq!(text.parse::<MacAddress>().unwrap().to_string(), "aa:bb:cc:00:11:22");
        }
        for text in [
            "",
            "aa:bb:cc:00:11",
            "aa:bb:cc:00:11:2g",
            "00:00:00:00:00:00",
            "ff:ff:ff:ff:ff:ff",
            "01:bb:cc:00:11:22",
            "aa:bb-cc:00:11:22",
            "ａa:bb:cc:00:11:22",
        ] {
            assert!(text.parse::<MacAddress>().is_err(), "{text:?} was accepted");
        }
        for (text, read) in [
            ("10.0.0.5", "10.0.0.5"),
            (" 10.0.0.5:8443 ", "10.0.0.5:8443"),
            ("BMC-7.Rack.Example.", "bmc-7.rack.example"),
            ("[2001:DB8::1]:443", "[2001:db8::1]:443"),
            ("2001:db8:0::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("::ffff:10.0.0.5", "10.0.0.5"),
        ] {
            let address: MgmtAddress = text.parse().unwrap();
            assert_eq!(address.as_str(), read, "{text}");
            assert_eq!(address.as_str().parse::<MgmtAddress>().unwrap(), address, "reads its own text");
        }
        for (text, authority) in [
            ("2001:db8::1", "[2001:db8::1]"),
            ("[2001:db8::1]:443", "[2001:db8::1]:443"),
            ("10.0.0.5:1", "10.0.0.5:1"),
            ("bmc", "bmc"),
        ] {
            assert_eq!(text.parse::<MgmtAddress>().unwrap().authority(), authority);
        }
        let address: MgmtAddress = "[2001:db8::1]:443".parse().unwrap();
        assert_eq!((address.host(), address.port()), ("2001:db8::1", Some(443)));
    }

    #[test]
    fn what_is_no_plain_address_is_refused() {
        for text in [
            "",
            "https://10.0.0.5",
            "10.0.0.5/redfish",
            "user@10.0.0.5",
            "10.0.0.5:0",
            "10.0.0.5:99999",
            "2130706433",
            "0x7f.1",
            "127.1",
            "10.0.0.256",
            "bmc_1",
            "fe80::1%eth0",
            "a b",
        ] {
            assert!(text.parse::<MgmtAddress>().is_err(), "{text:?} was accepted");
        }
    }
}
