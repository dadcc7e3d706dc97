//! The schema of `Cluster`.

use muster_model::cluster::MAX_REPLICAS;
use serde_json::Value;

use super::{
    parts::{column, free, mode, name_of, platform, release, status},
    schema::{Field, count, list, map, object, set, tally, text, words},
};

pub(super) fn columns() -> Vec<Value> {
    vec![
        column("Platform", ".spec.platform.type", "string", false, "Where machines come from"),
        column("Mode", ".status.mode", "string", false, "Whether decisions are carried out"),
        column("Pools", ".status.pools.total", "integer", false, "Pools of the cluster"),
        column("Ready", ".status.nodes", "string", false, "Ready nodes of those that are wanted"),
        column("Status", ".status.summary", "string", false, "The worst reason"),
        column("Age", ".metadata.creationTimestamp", "date", false, "Since when the object exists"),
        column("Cluster", ".spec.name", "string", true, "The cluster's name now"),
        column("Id", ".status.id", "string", true, "The cluster's id in the API"),
        column("Message", ".status.message", "string", true, "Why the cluster is as it is"),
    ]
}

pub(super) fn spec() -> Field {
    object(
        "What is known about the cluster. How it is reached is not part of it.",
        [
            ("name", name_of("cluster; the object's own unless given")),
            (
                "targetProjectId",
                text("The project that machines are made in, where the platform has such.").most(253),
            ),
            (
                "infraID",
                text("The beginning of the names of what belongs to the cluster.")
                    .most(63)
                    .with("pattern", "^[a-z][-a-z0-9]*$"),
            ),
            ("platform", cluster_platform()),
            ("mode", mode("Whether decisions are carried out; a new cluster only gives advice.")),
            ("drain", drain()),
            ("release", release()),
            ("networking", networking()),
            ("dns", dns()),
            (
                "issuerURL",
                text("Who issues the tokens of service accounts.").most(2048).with("pattern", "^https://"),
            ),
        ],
    )
    .required(&["platform"])
    .rule(
        "self.platform.type != 'gcp' || !has(self.infraID) || size(self.infraID) <= 15",
        "infraID has at most 15 characters on Google Cloud",
    )
}

fn drain() -> Field {
    let keep = |about| words(about, &["keep", "evict"]);
    object(
        "Which pods keep their nodes although others could leave; keep unless given.",
        [
            ("barePods", keep("Pods without a controller: nobody makes them again.")),
            ("localStorage", keep("Pods with an emptyDir on disk or a hostPath, which they would lose.")),
            ("systemPods", keep("Pods of kube-system without a budget.")),
            (
                "minReplicas",
                count(
                    "Controllers with fewer replicas than this keep theirs where they are.",
                    0,
                    i64::from(MAX_REPLICAS),
                ),
            ),
        ],
    )
}

fn networking() -> Field {
    let cidr = |about| text(about).most(49);
    let network = object(
        "A network of pods.",
        [
            ("cidr", cidr("Addresses.")),
            ("hostPrefix", count("Length of the prefix that a node gets.", 1, 128)),
        ],
    );
    object(
        "Networks of the cluster.",
        [
            ("clusterNetwork", list("Networks of pods.", network.required(&["cidr"]), 16)),
            ("serviceNetwork", set("Networks of services.", cidr(""), 16)),
            ("podCIDR", cidr("Addresses of pods.")),
            ("serviceCIDR", cidr("Addresses of services.")),
        ],
    )
}

fn dns() -> Field {
    let part = |about| text(about).most(253);
    object(
        "Names of the cluster.",
        [
            ("baseDomain", part("Domain that names end in.")),
            ("publicZone", part("Zone for names that everybody sees.")),
            ("privateZone", part("Zone for names that only the cluster sees.")),
        ],
    )
}

fn cluster_platform() -> Field {
    let part = |about| text(about).most(400);
    let gcp = object(
        "Google Cloud.",
        [
            ("projectID", part("Project.")),
            ("region", part("Region.")),
            ("network", part("Network.")),
            ("subnet", part("Subnet.")),
            ("endpointAccess", part("Who reaches the API server.")),
            ("workloadIdentity", free("How service accounts are known to the cloud.")),
        ],
    );
    let aws = object(
        "Amazon Web Services.",
        [("region", part("Region.")), ("accountID", part("Account.")), ("vpcID", part("Virtual network."))],
    );
    let azure = object(
        "Microsoft Azure.",
        [
            ("location", part("Location.")),
            ("resourceGroup", part("Resource group.")),
            ("subscriptionID", part("Subscription.")),
        ],
    );
    let vsphere = object(
        "vSphere.",
        [
            ("server", part("Address of vCenter.")),
            ("datacenter", part("Data centre.")),
            ("datastore", part("Data store.")),
            ("network", part("Network.")),
            ("folder", part("Folder.")),
            ("resourcePool", part("Resource pool.")),
        ],
    );
    platform(
        "Where the cluster runs.",
        [
            ("gcp", gcp.open()),
            ("aws", aws.open()),
            ("azure", azure.open()),
            ("baremetal", free("Servers of the inventory.")),
            ("byoh", free("Hosts that people bring.")),
            ("vsphere", vsphere.open()),
        ],
    )
}

pub(super) fn cluster_status() -> Field {
    let nodes = tally;
    let pools = object(
        "The cluster's pools, counted.",
        [
            ("total", nodes("How many.")),
            ("byPhase", map("By phase.", nodes(""), 16)),
            ("byHealth", map("By health.", nodes(""), 16)),
            ("desiredNodes", nodes("Sizes that are wanted, added up.")),
            ("currentNodes", nodes("Nodes that exist; left out when one pool does not say.")),
            ("readyNodes", nodes("Nodes that are ready; left out when one pool does not say.")),
        ],
    );
    status([
        (
            "nodes",
            text("Ready nodes of those that are wanted, like 2/3; ? for a number that nobody has said."),
        ),
        ("mode", text("The mode in force.")),
        ("pools", pools),
        ("readyGeneration", nodes("The last generation in the store at which it was Ready.")),
        ("updatedAt", text("When anything else in here last changed in the store.")),
    ])
}
