//! Zones and the regions they lie in.

use crate::field::{FieldError, Findings, Object};

/// Zones that one pool may span: no region has more.
const MAX_ZONES: usize = 20;

/// Checks a list of zones: their form, and that all lie in the cluster's region, or else in one region.
pub(super) fn check(
    block: &mut Object<'_>,
    name: &'static str,
    region: Option<&str>,
    region_of: fn(&str) -> Option<&str>,
    example: &str,
    findings: &mut Findings,
) {
    let Some(zones) = block.strings(name, MAX_ZONES, findings) else { return };
    let mut home = region.map(|region| (region, "its cluster is in"));
    for (path, zone) in zones {
        let Some(lies_in) = region_of(zone) else {
            findings.push(
                FieldError::new(path, "is not a zone").found_text(zone).allowed(format!("like {example}")),
            );
            continue;
        };
        match home {
            Some((home, why)) if home != lies_in => findings.push(
                FieldError::new(path, format!("is outside of the region {home} that {why}")).found_text(zone),
            ),
            Some(_) => {}
            None => home = Some((lies_in, "the zones before it are in")),
        }
    }
}

/// `us-central1-a` lies in `us-central1`.
pub(super) fn gcp_region(zone: &str) -> Option<&str> {
    let (region, zone) = zone.rsplit_once('-')?;
    let parts: Vec<&str> = region.split('-').collect();
    let (last, first) = parts.split_last()?;
    let good = !zone.is_empty()
        && zone.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        && !first.is_empty()
        && first.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase()))
        && last.starts_with(|c: char| c.is_ascii_lowercase())
        && last.ends_with(|c: char| c.is_ascii_digit())
        && last.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    good.then_some(region)
}

/// `us-west-2a` and the local zone `us-west-2-lax-1a` lie in `us-west-2`.
pub(super) fn aws_region(zone: &str) -> Option<&str> {
    let mut end = 0;
    for part in zone.split('-') {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            let rest = &part[digits..];
            let region = &zone[..end + digits];
            let local = &zone[end + part.len()..];
            let good = region.split('-').count() >= 3
                && if rest.is_empty() { local.len() > 1 } else { local.is_empty() }
                && rest.bytes().all(|b| b.is_ascii_lowercase())
                && local.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
            return good.then_some(region);
        }
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_lowercase()) {
            return None;
        }
        end += part.len() + 1;
    }
    None
}

/// Azure numbers the zones of each region; the number says nothing about the region.
pub(super) fn azure_region(zone: &str) -> Option<&str> {
    matches!(zone.as_bytes(), [b'1'..=b'9']).then_some("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_know_their_region() {
        assert_eq!(gcp_region("us-central1-a"), Some("us-central1"));
        assert_eq!(gcp_region("northamerica-northeast1-b"), Some("northamerica-northeast1"));
        for wrong in ["us-central1", "a", "", "us-central1-", "-a", "US-central1-a", "us--a", "ü-b1-a"] {
            assert_eq!(gcp_region(wrong), None, "{wrong}");
        }
        assert_eq!(aws_region("us-west-2a"), Some("us-west-2"));
        assert_eq!(aws_region("us-gov-east-1b"), Some("us-gov-east-1"));
        assert_eq!(aws_region("us-west-2-lax-1a"), Some("us-west-2"));
        for wrong in ["us-west-2", "us-west-2-", "west", "", "us-2a", "us-west-2a-", "us-west-ü2a", "-2a"] {
            assert_eq!(aws_region(wrong), None, "{wrong}");
        }
        assert_eq!((azure_region("1"), azure_region("eastus-1")), (Some(""), None));
    }
}
