//! Changing the settings of all hosts at `/baremetal/global/config`.

use muster_model::{
    FieldErrors,
    field::FieldError,
    host::{GlobalConfig, keys},
    store::{Committed, Expect, Revision, Store, StoreError, Txn},
};
use serde_json::Value;
use thiserror::Error;

use super::encode;
use crate::registry::Guard;

/// Compare-and-set tries of one change.
const MAX_TRIES: usize = 16;
/// What belongs to `muster freeze`.
const FREEZE: [&str; 4] = ["freeze", "freezeReason", "freezeBy", "freezeSince"];

#[derive(Debug, Error)]
pub enum SettingsError {
    #[error("the settings cannot be used")]
    Invalid(FieldErrors),
    #[error("the settings are being changed by many at once; try again")]
    Busy,
    #[error("the settings were changed meanwhile; read them and try again")]
    Changed { current: Revision },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a body says, with every fault. A freeze is not part of it.
fn read(sent: &Value) -> Result<GlobalConfig, SettingsError> {
    let one =
        |path: &str, why: String| SettingsError::Invalid(FieldErrors::one(FieldError::sentence(path, why)));
    let named = FREEZE.into_iter().find(|name| sent.get(name).is_some_and(|value| *value != "none"));
    if let Some(name) = named {
        return Err(one(name, format!("{name} is changed by PUT /api/v1/freeze or `muster freeze`.")));
    }
    GlobalConfig::read(sent, "").map_err(SettingsError::Invalid)
}

/// Makes the settings as `sent` says; what it leaves out gets its default, and a freeze stays as it is. Only while
/// `precondition` takes the revision that they are at.
pub async fn set_settings(
    store: &dyn Store,
    sent: &Value,
    precondition: Guard<'_>,
) -> Result<(GlobalConfig, Revision), SettingsError> {
    let wanted = read(sent)?;
    for _ in 0..MAX_TRIES {
        let entry = store.get(keys::GLOBAL_CONFIG).await?;
        let at = entry.as_ref().map_or(Revision::ZERO, |entry| entry.modified);
        if !precondition(at) {
            return Err(SettingsError::Changed { current: at });
        }
        // Settings that cannot be read freeze everything; whoever writes good ones lifts that, and not what a person froze.
        let now = entry.as_ref().map(|entry| {
            serde_json::from_slice(&entry.value).unwrap_or_else(|_| GlobalConfig::freeze_of(&entry.value))
        });
        let now: GlobalConfig = now.unwrap_or_default();
        let config = GlobalConfig {
            freeze: now.freeze,
            freeze_reason: now.freeze_reason,
            freeze_by: now.freeze_by,
            freeze_since: now.freeze_since,
            ..wanted.clone()
        };
        let expect = entry.map_or(Expect::Absent, |entry| Expect::Modified(entry.modified));
        let txn = Txn::new().expect(keys::GLOBAL_CONFIG, expect).put(keys::GLOBAL_CONFIG, encode(&config));
        match store.commit(txn).await? {
            Committed::Done { revision } => return Ok((config, revision)),
            Committed::Refused { .. } => {}
        }
    }
    Err(SettingsError::Busy)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bad_settings_are_refused_with_the_rule() {
        #[track_caller]
        fn check(sent: &Value, expected: &str) {
            match read(sent) {
                Ok(_) => assert_eq!(expected, ""),
                Err(SettingsError::Invalid(faults)) => {
                    let found = faults.details();
                    assert!(!expected.is_empty() && found.contains(expected), "{found}");
                }
                Err(other) => panic!("{other}"),
            }
        }
        check(&json!({}), "");
        check(&json!({ "maxPowerOperations": 40, "freeze": "none" }), "");
        check(&json!({ "maxPowerOperations": 0 }), "must be at least 1");
        check(&json!({ "freeze": "frozen" }), "muster freeze");
        check(&json!({ "highMarkPercent": 40, "lowMarkPercent": 30 }), "at least 20 below");
        check(&json!({ "maxPowerOperations": "many" }), "maxPowerOperations: ");
        check(&json!({ "deadlines": { "callTimeout": "0s" } }), "deadlines.callTimeout: ");
        check(&json!({ "prometheusUrl": "prometheus" }), "prometheusUrl: must be an address");
    }
}
