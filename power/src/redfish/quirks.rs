//! What is known about single vendors' habits, as data in `quirks.json`.
//!
//! A quirk changes an order or names a code; what every BMC may do (409 for "already there", an `ETag` that is
//! demanded late) is handled for all of them alike and is not listed.

use std::sync::LazyLock;

use serde::Deserialize;

/// One entry. An entry applies when each of its marks is contained in what the BMC says, whatever the case.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    vendor: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    firmware: String,
    #[serde(flatten)]
    quirks: Quirks,
}

/// Habits that apply to one BMC.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Quirks {
    /// Ends of message ids that mean "not now" rather than "no".
    pub busy: Vec<String>,
    /// Reset types that are offered and do harm.
    pub avoid: Vec<String>,
    /// Boot settings are taken only when all fields come together.
    pub full_boot: bool,
    /// Appended to the system's path to find where boot settings are written.
    pub boot_settings: Option<String>,
}

static TABLE: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("quirks.json")).expect("the shipped table is read by a test")
});

/// Everything that applies, merged.
pub(crate) fn lookup(vendor: &str, model: &str, firmware: &str) -> Quirks {
    let has = |text: &str, mark: &str| text.to_lowercase().contains(&mark.to_lowercase());
    let mut all = Quirks::default();
    for entry in TABLE.iter().filter(|entry| {
        has(vendor, &entry.vendor) && has(model, &entry.model) && has(firmware, &entry.firmware)
    }) {
        all.busy.extend(entry.quirks.busy.iter().cloned());
        all.avoid.extend(entry.quirks.avoid.iter().cloned());
        all.full_boot |= entry.quirks.full_boot;
        all.boot_settings = all.boot_settings.or_else(|| entry.quirks.boot_settings.clone());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_readable_and_matches_by_mark() {
        assert!(lookup("Dell Inc.", "PowerEdge R760", "7.00").busy.contains(&"SYS518".to_owned()));
        assert!(lookup("LENOVO", "ThinkSystem SR675 V3", "").avoid.contains(&"ForceRestart".to_owned()));
        assert!(!lookup("Lenovo", "SR630", "").avoid.contains(&"ForceRestart".to_owned()));
        assert_eq!(lookup("ami", "", "").boot_settings.as_deref(), Some("/SD"));
        assert!(lookup("", "", "").busy.is_empty());
    }
}
