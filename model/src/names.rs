//! Rules for names, labels and taints, as Kubernetes has them, with texts that say which rule was broken.

use std::{borrow::Borrow, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, de};
use thiserror::Error;

/// Longest DNS label, and longest label value.
pub const MAX_LABEL: usize = 63;
/// Longest DNS subdomain: the prefix of a label key.
pub const MAX_SUBDOMAIN: usize = 253;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct NameError {
    pub problem: &'static str,
}

const fn fault<T>(problem: &'static str) -> Result<T, NameError> {
    Err(NameError { problem })
}

/// What a name may look like, for "allowed: …".
pub const DNS_LABEL: &str = "1 to 63 characters: a-z, 0-9 and -, first and last a letter or digit";

/// The name of clusters, pools, hosts and projects: it becomes part of DNS names and label values.
pub fn check_dns_label(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return fault("must not be empty");
    }
    if name.len() > MAX_LABEL {
        return fault("must have at most 63 characters");
    }
    if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return fault("may only hold a-z, 0-9 and -");
    }
    if name.starts_with('-') || name.ends_with('-') {
        return fault("must start and end with a letter or digit");
    }
    Ok(())
}

/// DNS labels with dots between them.
pub fn check_dns_subdomain(name: &str) -> Result<(), NameError> {
    if name.is_empty() || name.len() > MAX_SUBDOMAIN {
        return fault("must have 1 to 253 characters");
    }
    name.split('.').try_for_each(check_dns_label)
}

/// A label key: an optional DNS subdomain and a slash, then a name.
pub fn check_label_key(key: &str) -> Result<(), NameError> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if name.contains('/') {
        return fault("must have at most one /");
    }
    if prefix.is_some_and(|prefix| check_dns_subdomain(prefix).is_err()) {
        return fault("must have a DNS name before the /");
    }
    if name.is_empty() {
        return fault("must have a name");
    }
    check_name_part(name, "must have at most 63 characters after the /")
}

/// A label value; it may be empty.
pub fn check_label_value(value: &str) -> Result<(), NameError> {
    if value.is_empty() { Ok(()) } else { check_name_part(value, "must have at most 63 characters") }
}

fn check_name_part(part: &str, too_long: &'static str) -> Result<(), NameError> {
    if part.len() > MAX_LABEL {
        return fault(too_long);
    }
    if !part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        return fault("may only hold letters, digits, -, _ and .");
    }
    let ends = [part.as_bytes()[0], part.as_bytes()[part.len() - 1]];
    if !ends.iter().all(u8::is_ascii_alphanumeric) {
        return fault("must start and end with a letter or digit");
    }
    Ok(())
}

/// Prefixes under `kubernetes.io` and `k8s.io` that are meant for cluster operators.
const OPEN_PREFIXES: [&str; 4] = [
    "node-role.kubernetes.io",
    "node-restriction.kubernetes.io",
    "node.kubernetes.io",
    "kubelet.kubernetes.io",
];

/// The owner of a label key that users may not set on a pool, if it has one.
pub fn reserved_by(key: &str) -> Option<&'static str> {
    let Some((prefix, _)) = key.split_once('/') else {
        return (key == crate::NODEPOOL_LABEL).then_some("Muster");
    };
    let under =
        |domain: &str| prefix == domain || prefix.strip_suffix(domain).is_some_and(|p| p.ends_with('.'));
    if under(crate::API_GROUP) {
        Some("Muster")
    } else if OPEN_PREFIXES.contains(&prefix) {
        None
    } else if under("kubernetes.io") || under("k8s.io") {
        Some("Kubernetes")
    } else {
        None
    }
}

/// The owner of a taint key that users may not set on a pool: its controllers put it on and take it off.
pub fn taint_reserved_by(key: &str) -> Option<&'static str> {
    match key.split_once('/') {
        Some(("node.kubernetes.io", _)) => Some("Kubernetes"),
        _ => reserved_by(key).filter(|_| key != crate::NODEPOOL_LABEL),
    }
}

macro_rules! dns_name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                check_dns_label(text).map(|()| Self(text.to_owned()))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                match check_dns_label(&text) {
                    Ok(()) => Ok(Self(text)),
                    Err(error) => Err(de::Error::custom(format!("the name {text:?} {error}"))),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

dns_name!(
    /** The name of a cluster or pool. */
    Name
);
dns_name!(
    /** The name of a project: the wall between tenants. */
    Project
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_n16_n17_names_are_dns_labels() {
        for good in ["a", "0", "9lives", "worker-pool-1", &"x".repeat(63)] {
            assert!(good.parse::<Name>().is_ok(), "{good:?} was refused");
        }
        for bad in ["", &"x".repeat(64), "Prod", "a_b", "a b", "-a", "a-", "ünï", "a.b", "a\0b"] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn api_n38_label_keys_and_values() {
        for good in ["a", "a/b", "example.com/team", "A_b.c-d", "x-1.example.com/0"] {
            assert!(check_label_key(good).is_ok(), "{good:?} was refused");
        }
        for bad in [
            "",
            "a/b/c",
            "/a",
            "a/",
            "-a",
            "a b",
            "Upper.com/x",
            "ü",
            &"x".repeat(64),
            &format!("{}/x", "a".repeat(300)),
        ] {
            assert!(check_label_key(bad).is_err(), "{bad:?} was accepted");
        }
        for good in ["", "x", "1.2", &"v".repeat(63)] {
            assert!(check_label_value(good).is_ok(), "{good:?} was refused");
        }
        for bad in ["a b", "-", "x/y", &"v".repeat(64)] {
            assert!(check_label_value(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn api_n38_reserved_keys_have_an_owner() {
        #[track_caller]
        fn check(key: &str, owner: Option<&str>) {
            assert_eq!(reserved_by(key), owner, "{key}");
        }
        check("kubernetes.io/os", Some("Kubernetes"));
        check("topology.kubernetes.io/zone", Some("Kubernetes"));
        check("x.k8s.io/y", Some("Kubernetes"));
        check("muster.dev/off", Some("Muster"));
        check("x.muster.dev/off", Some("Muster"));
        check("nodepool", Some("Muster"));
        check("node-role.kubernetes.io/gpu", None);
        check("notkubernetes.io/os", None);
        check("team", None);
        assert_eq!(taint_reserved_by("node.kubernetes.io/not-ready"), Some("Kubernetes"));
        assert_eq!(taint_reserved_by("nodepool"), None);
    }
}
