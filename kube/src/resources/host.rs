//! The schema of `BareMetalNode`.

use muster_model::host::LimitOverrides;
use serde_json::Value;

use super::{
    parts::{column, labels, resources, status, taints},
    schema::{Field, count, duration, label, list, map, object, quantity, text, time, words, yes_no},
};

const MAX_UNITS: i64 = 60;
const MAX_WATTS: i64 = 100_000;

pub(super) fn columns() -> Vec<Value> {
    vec![
        column("Pool", ".spec.pool", "string", false, "The pool that it serves"),
        column("State", ".status.state", "string", false, "Its state"),
        column("Power", ".status.powerState", "string", false, "Its power, as last read"),
        column("Node", ".status.node", "string", false, "Its node in Kubernetes"),
        column("Status", ".status.summary", "string", false, "The worst reason"),
        column("Age", ".metadata.creationTimestamp", "date", false, "Since when the object exists"),
        column("Phase", ".status.phase", "string", true, "What is being done with it"),
        column("BMC", ".spec.mgmtAddress", "string", true, "Where its BMC answers"),
        column("Rack", ".spec.rack", "string", true, "Where it stands"),
        column("Health", ".status.health", "string", true, "How it is"),
        column("Message", ".status.message", "string", true, "Why it is as it is"),
    ]
}

pub(super) fn spec() -> Field {
    let words_of = |about, all: &[&str]| words(about, all);
    object(
        "What is known about the machine. Its name is that of the object.",
        [
            ("mgmtAddress", text("Where its BMC answers.").most(300)),
            ("macAddress", text("The network card that is woken and recognised.").most(17)),
            ("powerInterface", words_of("The main way to its power.", &["redfish", "ipmi", "wol"])),
            ("bmcCredentials", label("Name of the credential, never its value.")),
            ("bootProfile", label("What it boots from.")),
            ("rack", label("The rack that it stands in.")),
            ("pool", label("The pool that it serves, by its name in the inventory.")),
            ("resources", capacity()),
            (
                "powerState",
                words_of("A request by hand; with a hold it lasts as long as the hold.", &["on", "off"]),
            ),
            ("inventoryId", text("Its id in another inventory.").most(253)),
            ("drivers", list("Ways to its power, in order of preference.", driver(), 8)),
            ("systemId", text("Which system behind a BMC that has several.").most(253)),
            ("serial", text("Serial number.").most(253)),
            (
                "tlsVerify",
                words_of("How its BMC is recognised.", &["pin", "ca", "webpki", "insecure"]).usually("pin"),
            ),
            (
                "pin",
                text("The approved key of its BMC, for tlsVerify pin.")
                    .with("pattern", "^sha256:[0-9a-fA-F]{64}$"),
            ),
            ("slot", count("Lowest rack unit that it takes.", 1, MAX_UNITS)),
            ("height", count("Rack units that it takes.", 1, MAX_UNITS)),
            ("zone", text("Zone that it stands in.").most(253)),
            ("labels", labels("Labels of its node, and what pools select by.")),
            ("taints", taints("Taints of its node.")),
            ("idleWatts", count("Power at rest, where the BMC cannot say.", 0, MAX_WATTS)),
            ("maxWatts", count("Power at most, where the BMC cannot say.", 0, MAX_WATTS)),
            ("nodeMatch", node_match()),
            (
                "admin",
                words_of("Whether it may be used.", &["normal", "maintenance", "disabled"]).usually("normal"),
            ),
            (
                "hold",
                signed(
                    "Keeps the autoscaler away.",
                    ("until", time("Until released, unless given.")),
                    &["by", "reason"],
                ),
            ),
            (
                "acknowledgement",
                signed("A person has seen to it.", ("at", time("When.")), &["by", "reason", "at"]),
            ),
            ("deadlines", deadlines()),
            ("canForceOff", yes_no("Whether its power may be cut.").usually(true)),
        ],
    )
    .required(&["pool", "powerInterface"])
    .rule("!has(self.slot) || has(self.rack)", "a slot needs a rack")
    .rule(
        "!has(self.idleWatts) || !has(self.maxWatts) || self.idleWatts <= self.maxWatts",
        "idleWatts must not be above maxWatts",
    )
    .rule(
        "self.powerInterface != 'wol' || has(self.macAddress) || has(self.drivers)",
        "macAddress is required for wol: the network card that is woken",
    )
    .rule(
        "self.powerInterface == 'wol' || has(self.mgmtAddress) || has(self.drivers)",
        "mgmtAddress is required for redfish and ipmi: the address of the machine's BMC",
    )
}

/// Rules about an object as a whole.
pub(super) const ROOT_RULE: (&str, &str) = (
    "size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",
    "a host's name is one DNS label: 1 to 63 characters, a-z, 0-9 and -",
);

fn capacity() -> Field {
    object(
        "What it has.",
        [
            ("cpu", quantity("Processors.")),
            ("memory", quantity("Memory.")),
            ("gpu", count("Graphics processors.", 0, 1024)),
            ("storage", quantity("Local storage.")),
            ("customResources", resources("Everything else, by the name that Kubernetes knows it under.")),
        ],
    )
}

fn driver() -> Field {
    object(
        "A way to its power.",
        [
            ("kind", words("Which driver.", &["redfish", "ipmi", "wol", "agent", "webhook", "dry-run"])),
            ("address", text("Where it is reached; mgmtAddress unless given.").most(300)),
            ("credentials", label("Name of the credential; bmcCredentials unless given.")),
            ("settings", map("Settings of this driver, by name.", text("").most(32_768), 16)),
        ],
    )
    .required(&["kind"])
}

fn node_match() -> Field {
    object(
        "Which node in Kubernetes is its own.",
        [
            ("by", words("How it is found.", &["providerID", "mac", "name", "label"]).usually("providerID")),
            ("value", text("What to look for; derived from the host unless given.").most(253)),
        ],
    )
}

fn signed(about: &str, time: (&'static str, Field), required: &[&str]) -> Field {
    object(about, [("by", text("Who.").most(253)), ("reason", text("Why.").most(253)), time])
        .required(required)
}

fn deadlines() -> Field {
    let mut schema = Value::from(object("Time limits that differ from the pool's.", []));
    for name in LimitOverrides::NAMES {
        schema["properties"][name] = duration("").into();
    }
    Field::from_value(schema)
}

pub(super) fn host_status() -> Field {
    status([
        ("state", text("off, booting, ready, draining or failed.")),
        ("stateSince", time("Since when.")),
        ("phaseSince", time("Since when it is in its phase.")),
        ("powerState", text("on, off or unknown.")),
        ("lastPowerAction", text("What was last asked of its power.")),
        ("powerActionTime", time("When.")),
        ("powerActionDriver", text("By which driver.")),
        ("kubernetesNode", text("Its node in Kubernetes.")),
        ("node", text("The same for people: - when it has none.")),
        ("nodeReady", yes_no("Whether that node is ready.")),
        ("bmcReachable", yes_no("Whether its BMC answers.")),
        ("bootTime", time("When it last booted.")),
        ("joinTime", time("When it last joined.")),
        ("lastError", text("The last thing that went wrong.")),
        ("retryAt", time("When it is tried again.")),
        ("heldUntil", time("Until when it is left alone.")),
    ])
}
