//! What a machine says it is, for discovery.

use muster_model::{
    Duration,
    power::{Fault, Identity, Mac, given_uuid, shown},
};
use serde_json::Value;

use super::conversation::{Conversation, link, links};

/// Most parts (network interfaces, processors) that are asked about one by one.
const MAX_PARTS: usize = 32;

/// After so long nothing more is asked for. The host loop waits half a minute for an identity, and one that never comes
/// back in time is never learnt.
const ENOUGH: Duration = Duration::from_secs(20);

impl Conversation<'_> {
    pub(super) async fn identify(&mut self, path: &str) -> Result<Identity, Fault> {
        let until = self.now().saturating_add(ENOUGH);
        let (system, _) = self.get(path, "the system").await?;
        let mut identity = summary(&system);
        identity.system = path.trim_end_matches('/').rsplit('/').next().map(str::to_owned);
        self.until = Some(until);
        if let Err(fault) = self.look_inside(&system, &mut identity).await {
            // Who the machine is matters more than what is in it.
            let (bmc, code) = (self.approved.socket, fault.code());
            tracing::warn!(%bmc, code, "not all parts of a machine were read");
        }
        Ok(identity)
    }

    /// What other resources say of the machine: its BMC, its ports and its processors.
    async fn look_inside(&mut self, system: &Value, identity: &mut Identity) -> Result<(), Fault> {
        if let Some(manager) = links(system, "/Links/ManagedBy")?.first()
            && let Some(manager) = self.get_if_there(manager, "the manager").await?
        {
            identity.bmc_firmware = text(&manager, "/FirmwareVersion");
        }
        let ports = |interface: &Value| {
            let mac = interface.get("PermanentMACAddress").or(interface.get("MACAddress"));
            if let Some(mac) = mac.and_then(Value::as_str).and_then(|text| text.parse::<Mac>().ok())
                && !identity.macs.contains(&mac)
            {
                identity.macs.push(mac);
            }
        };
        self.parts(system, "/EthernetInterfaces", "network interfaces", ports).await?;
        let gpus = |processor: &Value| {
            if processor.get("ProcessorType").and_then(Value::as_str) == Some("GPU") {
                identity.gpus.push(text(processor, "/Model").unwrap_or_else(|| "unnamed".to_owned()));
            }
        };
        self.parts(system, "/Processors", "processors", gpus).await
    }

    /// Shows each part to `note`, one at a time: a hostile BMC could fill the memory with all of them.
    async fn parts(
        &mut self,
        system: &Value,
        pointer: &str,
        what: &str,
        mut note: impl FnMut(&Value) + Send,
    ) -> Result<(), Fault> {
        let Some(path) = link(system, pointer)? else { return Ok(()) };
        let Some(collection) = self.get_if_there(&path, what).await? else { return Ok(()) };
        for member in links(&collection, "/Members")?.into_iter().take(MAX_PARTS) {
            if let Some(part) = self.get_if_there(&member, what).await? {
                note(&part);
            }
        }
        Ok(())
    }
}

fn text(value: &Value, pointer: &str) -> Option<String> {
    let text = value.pointer(pointer)?.as_str()?.trim();
    (!text.is_empty()).then(|| shown(text).to_string())
}

fn summary(system: &Value) -> Identity {
    let number = |pointer: &str| {
        system.pointer(pointer).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok())
    };
    // Half a gibibyte is a legal amount, so the figure may have a fraction.
    let gibibytes = system.pointer("/MemorySummary/TotalSystemMemoryGiB").and_then(Value::as_f64);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded to 0..=2^20 GiB")]
    let memory = gibibytes
        .filter(|gib| (0.0..=1_048_576.0).contains(gib))
        .map(|gib| (gib * 1024.0).round() as u64 * 1024 * 1024);
    Identity {
        vendor: text(system, "/Manufacturer"),
        model: text(system, "/Model"),
        serial: text(system, "/SerialNumber"),
        uuid: text(system, "/UUID").filter(|uuid| given_uuid(uuid).is_some()),
        cpu_model: text(system, "/ProcessorSummary/Model"),
        cpu_sockets: number("/ProcessorSummary/Count"),
        cpu_cores: number("/ProcessorSummary/CoreCount"),
        cpu_threads: number("/ProcessorSummary/LogicalProcessorCount"),
        memory_bytes: memory,
        ..Identity::default()
    }
}
