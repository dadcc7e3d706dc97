//! Hosts. Their names are unique in the inventory, so a host's object has the host's name; its namespace is the host's
//! project, because that is who may see and change it.

use std::sync::Arc;

use muster_model::{
    FieldErrors, Parsed,
    host::{BareMetalNodeSpec, DeletionMode, NamedHost},
    patch::merge_patch,
    resource::{Resource, shape},
};
use serde_json::Value;

use super::{Held, Reason, Record, Refusal, Side, Trouble, Wish, invalid, status};
use crate::{
    inventory::{Act, Host, InventoryError},
    registry::AuditNote,
};

/// Where hosts belong that name no project.
const NO_PROJECT: &str = "default";

pub(super) fn project(host: &Host) -> &str {
    host.project().unwrap_or(NO_PROJECT)
}

impl Side {
    /// A record that cannot be read has no object: there is nothing that it could show.
    pub(super) fn read_host(&self, name: &str) -> Option<Held> {
        let host = self.inventory.host(name)?;
        let spec = host.readable()?.clone();
        Some(Held {
            id: name.to_owned(),
            project: project(&host).to_owned(),
            object_name: name.to_owned(),
            version: host.version(),
            generation: host.version().0,
            deleting: host.is_deleting(),
            spec: shape::host_spec(&spec),
            status: status::host(&host),
            record: Record::Host(host),
        })
    }

    pub(super) async fn apply_host(
        &self,
        host: &Arc<Host>,
        object: &Resource,
        patch: &Value,
    ) -> Result<AuditNote, Trouble> {
        let (context, base) = (self.context(object), host.version());
        let written = self
            .inventory
            .update(
                &context,
                Act::new("patch"),
                &host.name,
                &|version| version == base,
                |host| {
                    let spec = host.readable().ok_or(InventoryError::NotFound { kind: "BareMetalNode" })?;
                    let update = update(spec, patch)?;
                    Ok((update.value, update.warnings))
                },
                |txn, _| txn,
            )
            .await?;
        Ok(written.audit)
    }

    pub(super) async fn create_host(&self, wish: &Wish<'_>) -> Result<AuditNote, Trouble> {
        let parsed = BareMetalNodeSpec::read(&wish.spec, "spec").map_err(|faults| invalid(&faults))?;
        let mut spec = parsed.value;
        spec.project = Some(wish.object.namespace().to_owned());
        let host = NamedHost { name: wish.object.name().to_owned(), spec };
        let made = self.inventory.create(&self.context(wish.object), &host, parsed.warnings).await;
        match made {
            Ok(written) => Ok(written.audit),
            // Its project is nobody else's business.
            Err(InventoryError::Taken { name, .. }) => Err(Trouble::Refused(Refusal::new(
                Reason::NameTaken,
                format!(
                    "metadata.name: a host {name} is registered already, and names are unique in the inventory"
                ),
            ))),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn delete_host(
        &self,
        host: &Arc<Host>,
        object: &Resource,
    ) -> Result<AuditNote, Trouble> {
        let context = self.context(object);
        Ok(self.inventory.delete(&context, &host.name, &|_| true, DeletionMode::Keep).await?.audit)
    }
}

fn update(spec: &BareMetalNodeSpec, patch: &Value) -> Result<Parsed<BareMetalNodeSpec>, FieldErrors> {
    let mut merged = serde_json::to_value(spec).unwrap_or_default();
    let mut patch = patch.clone();
    if let Some(members) = patch.as_object_mut() {
        for owned in shape::HOST_OWNED {
            members.remove(owned);
        }
    }
    merge_patch(&mut merged, &patch);
    let mut update = BareMetalNodeSpec::read(&merged, "spec")?;
    // As with a PATCH of the API.
    if patch.get("pin").is_none() {
        update.warnings.extend(update.value.forget_key_of(spec));
    }
    Ok(update)
}

pub(super) fn agrees(host: &Host, patch: &Value) -> bool {
    host.readable().is_some_and(|spec| update(spec, patch).is_ok_and(|update| update.value == **spec))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_moves_a_bmc_drops_the_key_that_was_approved_for_the_old_place() {
        let pin = format!("sha256:{}", "ab".repeat(32));
        let stored = json!({"powerInterface": "redfish", "pool": "p", "mgmtAddress": "10.0.0.1", "pin": pin});
        let stored = BareMetalNodeSpec::read(&stored, "spec").unwrap().value;
        let pin_after = |patch: Value| update(&stored, &patch).unwrap().value.pin.map(|pin| pin.to_string());
        assert_eq!(pin_after(json!({"zone": "z"})), Some(pin.clone()));
        assert_eq!(pin_after(json!({"mgmtAddress": "10.0.0.2"})), None);
        assert_eq!(pin_after(json!({"mgmtAddress": "10.0.0.2", "pin": pin})), Some(pin));
    }
}
