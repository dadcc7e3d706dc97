//! The schema of `NodePool`.

use serde_json::Value;

use super::{
    parts::{
        cloud_labels_and_taints, column, free, labels, mode, name_of, platform, reference, release,
        resources, selector, spot, status, taints, zone_list,
    },
    schema::{
        DNS_NAME, Field, count, duration, label, list, map, number, object, quantity, set, share, tally,
        text, words, yes_no,
    },
};

/// Most nodes of one pool, as everywhere in Muster.
const MAX_NODES: i64 = muster_model::pool::MAX_NODES as i64;

pub(super) fn columns() -> Vec<Value> {
    vec![
        column("Ready", ".status.nodes", "string", false, "Ready nodes of those that are wanted"),
        column("Min", ".status.minNodes", "integer", false, "Least nodes"),
        column("Max", ".status.maxNodes", "integer", false, "Most nodes"),
        column("Mode", ".status.mode", "string", false, "Whether decisions are carried out"),
        column("Status", ".status.summary", "string", false, "The worst reason"),
        column("Age", ".metadata.creationTimestamp", "date", false, "Since when the object exists"),
        column("Cluster", ".spec.cluster", "string", true, "The cluster that the nodes belong to"),
        column("Pool", ".spec.name", "string", true, "The pool's name now"),
        column("Platform", ".spec.platform.type", "string", true, "Where machines come from"),
        column("Id", ".status.id", "string", true, "The pool's id in the API"),
        column("Message", ".status.message", "string", true, "Why the pool is as it is"),
    ]
}

pub(super) fn spec() -> Field {
    object(
        "What the pool should be.",
        [
            (
                "cluster",
                text("The Cluster object of this namespace that the nodes belong to.")
                    .with("minLength", 1)
                    .most(253)
                    .with("pattern", DNS_NAME)
                    .fixed("a pool cannot move to another cluster"),
            ),
            ("name", name_of("pool; the object's own name without the cluster's unless given")),
            ("platform", pool_platform()),
            ("autoscaling", autoscaling()),
            (
                "nodeCount",
                count(
                    "Nodes to hold; with autoscaling, to begin with. Filled in when it is left out.",
                    0,
                    MAX_NODES,
                ),
            ),
            ("labels", labels("Labels of nodes.")),
            ("taints", taints("Taints of nodes.")),
            ("template", template()),
            ("management", management()),
            ("mode", mode("Whether decisions are carried out; as the cluster says unless given.")),
            ("release", release()),
        ],
    )
    .required(&["cluster", "platform"])
}

fn autoscaling() -> Field {
    object(
        "How the size follows demand.",
        [
            ("enabled", yes_no("Whether the autoscaler owns the size.").usually(false)),
            ("minNodes", count("Least nodes.", 0, MAX_NODES).usually(0)),
            ("maxNodes", count("Most nodes.", 1, MAX_NODES)),
            ("targetCPUUtilization", count("High mark of requested cpu, in percent.", 1, 100).usually(70)),
            (
                "targetMemoryUtilization",
                count("High mark of requested memory, in percent.", 1, 100).usually(80),
            ),
            ("scaleDownUtilization", count("Low mark, in percent; at least 20 below the high ones.", 0, 100)),
            ("scaleUpDelay", duration("How long a high mark must hold.").usually("3m")),
            ("scaleDownDelay", duration("How long the low mark must hold.").usually("10m")),
            ("triggers", list("Queries of Prometheus that ask for more or fewer nodes.", trigger(), 20)),
            ("headroom", headroom()),
            ("schedules", list("Other bounds during windows of time.", schedule(), 50)),
        ],
    )
    .rule("self.minNodes <= self.maxNodes || !has(self.maxNodes)", "minNodes must not be above maxNodes")
    .rule("!self.enabled || has(self.maxNodes)", "maxNodes is required when autoscaling is enabled")
}

fn trigger() -> Field {
    object(
        "A query.",
        [
            ("name", text("What it is called.").most(63)),
            ("metricQuery", text("PromQL, without a comparison at its end.").most(4096)),
            ("threshold", number("The value to compare with.")),
            ("duration", duration("How long the threshold must be passed.")),
            ("scaleDirection", words("What it asks for.", &["up", "down"])),
            ("comparator", words("Which side of the threshold fires.", &["above", "below"])),
            ("clearThreshold", number("Where it falls quiet again.")),
            ("onNoData", words("What missing data does.", &["hold", "ignore"])),
            (
                "aggregate",
                words(
                    "How several series become one; single unless given: then several are unknown.",
                    &["single", "any", "all", "max", "avg"],
                ),
            ),
        ],
    )
    .required(&["metricQuery", "threshold", "duration", "scaleDirection"])
}

fn headroom() -> Field {
    object(
        "Room that is kept free: whole nodes, or pods of a shape.",
        [
            ("nodes", count("Empty nodes.", 0, MAX_NODES)),
            ("pods", count("Pods that must fit.", 0, MAX_NODES)),
            ("resources", resources("What each of the pods requests.")),
        ],
    )
    .rule("has(self.nodes) != has(self.pods)", "headroom is given as nodes or as pods")
}

fn schedule() -> Field {
    object(
        "A window.",
        [
            ("name", text("What it is called.").most(63)),
            ("start", text("When it opens: five cron fields.").most(200)),
            ("duration", duration("How long it stays open; or end.")),
            ("end", text("When it closes: five cron fields; or duration.").most(200)),
            ("timeZone", text("An IANA name; UTC unless given.").most(100)),
            ("minNodes", count("Least nodes while it is open.", 0, MAX_NODES)),
            ("maxNodes", count("Most nodes while it is open.", 1, MAX_NODES)),
        ],
    )
    .required(&["start"])
    .rule("has(self.duration) != has(self.end)", "a schedule has a duration or an end")
    .rule("has(self.minNodes) || has(self.maxNodes)", "a schedule sets minNodes, maxNodes or both")
}

fn template() -> Field {
    object(
        "What a node of the pool looks like.",
        [
            ("capacity", resources("What the machine has.")),
            ("reserved", resources("What the system keeps of it.")),
            ("labels", labels("Labels that nodes have anyway.")),
            ("taints", taints("Taints that nodes have anyway.")),
            ("startupTaints", taints("Taints that a starting node carries for a while.")),
            ("maxPods", count("Pods that a node takes.", 1, 10_000)),
            ("arch", words("Processor architecture.", &["amd64", "arm64"])),
            ("os", text("Operating system.").most(63)),
            ("price", quantity("Currency per node and hour, a number or decimal text.")),
        ],
    )
}

fn management() -> Field {
    object(
        "How nodes are replaced, repaired and emptied.",
        [
            ("upgradeType", words("How nodes are upgraded.", &["Replace", "InPlace"]).usually("Replace")),
            (
                "strategy",
                words("When nodes are replaced.", &["RollingUpdate", "OnDelete"]).usually("RollingUpdate"),
            ),
            ("maxSurge", share("Nodes beyond the size during a roll.")),
            ("maxUnavailable", share("Nodes that may be missing during a roll.")),
            ("nodeDrainTimeout", duration("How long a drain may take; for ever unless given.")),
            ("autoRepair", yes_no("Whether broken nodes are replaced.").usually(false)),
        ],
    )
}

fn pool_platform() -> Field {
    platform(
        "Where the machines come from.",
        [
            ("gcp", gcp()),
            ("aws", aws()),
            ("azure", azure()),
            ("baremetal", baremetal()),
            ("byoh", byoh()),
            ("vsphere", vsphere()),
        ],
    )
    .rule(
        "self.type != 'vsphere' || has(self.vsphere)",
        "a pool on vSphere says what its machines are, in vsphere",
    )
}

fn gcp() -> Field {
    let accelerator = object(
        "An accelerator.",
        [("type", text("Its model.").most(63)), ("count", count("How many on each node.", 1, 64))],
    );
    let [labels, taints] = cloud_labels_and_taints();
    object(
        "Machines of Google Cloud.",
        [
            ("machineType", text("Machine type.").most(63)),
            ("diskSize", count("Size of the disk, in GB.", 10, 65_536)),
            ("diskType", words("Type of the disk.", &["pd-standard", "pd-ssd", "pd-balanced"])),
            ("zones", zone_list("Zones, all in the cluster's region.")),
            ("preemptible", spot("Whether machines may be taken away at any time.")),
            ("spot", spot("The same, in the newer word.")),
            (
                "accelerators",
                list("Accelerators of each node.", accelerator.required(&["type", "count"]).open(), 8),
            ),
            labels,
            taints,
            ("subnet", text("Subnet of the machines.").most(253)),
            ("serviceAccount", text("Service account of the machines.").most(253)),
        ],
    )
    .open()
}

fn aws() -> Field {
    let [labels, taints] = cloud_labels_and_taints();
    object(
        "Machines of Amazon Web Services.",
        [
            ("instanceType", text("Instance type.").most(63)),
            ("volumeSize", count("Size of the volume, in GiB.", 8, 65_536)),
            ("volumeType", words("Type of the volume.", &["gp2", "gp3", "io1", "io2"])),
            ("availabilityZones", zone_list("Zones, all in the cluster's region.")),
            ("spotInstances", spot("Whether machines may be taken away at any time.")),
            ("userData", text("Not here: it may hold secrets, and is set over Muster's API.")),
            labels,
            taints,
        ],
    )
    .open()
    .rule("!has(self.userData)", "userData may hold secrets, which everybody who reads this object would see; set it over Muster's API")
}

fn azure() -> Field {
    let [labels, taints] = cloud_labels_and_taints();
    object(
        "Machines of Microsoft Azure.",
        [
            ("vmSize", text("Size of the machine.").most(63)),
            ("osDiskSizeGB", count("Size of the disk, in GiB.", 30, 4_095)),
            ("osDiskType", words("Type of the disk.", &["Standard_LRS", "Premium_LRS", "StandardSSD_LRS"])),
            ("availabilityZones", zone_list("Zones, by number.")),
            ("spotInstances", spot("Whether machines may be taken away at any time.")),
            labels,
            taints,
        ],
    )
    .open()
}

fn baremetal() -> Field {
    object(
        "Servers of the inventory.",
        [
            ("pool", label("The pool's name in the inventory; its own unless given.")),
            ("selector", selector("Which of the pool's hosts may serve.")),
            ("bootProfile", label("What hosts boot from.")),
            ("deadlines", map("Time limits of hosts, by name.", duration(""), 64)),
            ("policy", free("What is done about a host by itself.")),
            ("rackSpread", yes_no("Whether every rack that has a node keeps one.")),
            ("zoneSpread", yes_no("Whether every zone that has a node keeps one.")),
        ],
    )
    .open()
}

fn byoh() -> Field {
    object(
        "Hosts that people bring.",
        [
            ("selector", selector("Which hosts may serve.")),
            ("inventory", text("The pool's name in the inventory.").most(253)),
            ("templateRef", reference("Template of the machines.")),
            ("bootstrapConfigRef", reference("How machines are bootstrapped.")),
            ("installerRef", reference("How machines are installed.")),
            ("joinMode", words("How nodes join.", &["kubeadm", "tlsBootstrap"])),
            ("capacityRequirements", resources("What every host has at least.")),
        ],
    )
    .open()
}

fn vsphere() -> Field {
    let part = |about| text(about).most(400);
    object(
        "Virtual machines on vSphere.",
        [
            ("numCPUs", count("Processors.", 1, 1024)),
            ("memoryMiB", count("Memory, in MiB.", 128, 33_554_432)),
            ("diskGiB", count("Disk, in GiB.", 1, 65_536)),
            ("cloneMode", words("How machines are cloned.", &["fullClone", "linkedClone"])),
            ("template", part("The machine to clone.")),
            ("datacenter", part("Data centre.")),
            ("datastore", part("Data store.")),
            ("storagePolicyName", part("Storage policy.")),
            ("folder", part("Folder.")),
            ("network", part("Network.")),
            ("resourcePool", part("Resource pool.")),
            ("vcIP", part("Address of vCenter.")),
            ("tkgIPFamily", part("IP family.")),
            ("hardwareVersion", part("Version of the virtual hardware.")),
            ("nameservers", set("Name servers.", text("").most(253), 16)),
            ("templateRef", reference("Template of the machines.")),
        ],
    )
    .open()
    .rule(
        "has(self.template) || has(self.templateRef)",
        "name the machine to clone in template, or give templateRef",
    )
}

pub(super) fn pool_status() -> Field {
    let nodes = tally;
    status([
        (
            "nodes",
            text("Ready nodes of those that are wanted, like 2/3; ? for a number that nobody has said."),
        ),
        ("desiredNodes", nodes("The size that is wanted now.")),
        ("currentNodes", nodes("Nodes that exist.")),
        ("readyNodes", nodes("Nodes that are ready.")),
        ("nodesToRemove", list("Nodes to give up when the size goes down.", text(""), 100_000)),
        ("minNodes", nodes("Least nodes.")),
        ("maxNodes", nodes("Most nodes.")),
        ("mode", text("The mode in force: the pool's own, else the cluster's.")),
        ("selector", text("Which nodes are the pool's, as a label selector.")),
        ("readyGeneration", nodes("The last generation in the store at which it was Ready.")),
        ("updatedAt", text("When anything else in here last changed in the store.")),
        ("baremetal", free("The view of its servers, where the pool has some.")),
    ])
}
