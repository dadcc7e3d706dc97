//! `muster create`: from flags or from files.

use clap::{Args, Subcommand};
use muster_model::pool::MAX_NODES;
use serde_json::{Map, Value, json};

use super::{
    apply::{Failures, Printer},
    connect,
    context::Connection,
    declare::{self, DryRun},
    failure::{Failure, Outcome},
    get::FormatArg,
    kinds,
    manifest::{self, Document, Files, Origin},
    session::Session,
};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Create {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    files: Option<Files>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Clone, Default, Args)]
struct How {
    /// Whether to make the change or have it checked only
    #[arg(long, value_enum, default_value = "none", value_name = "WHERE")]
    dry_run: DryRun,
    /// Print the object instead of a line: json, yaml, name, jsonpath=…
    #[arg(short, long, value_name = "FORMAT", add = super::complete::formats())]
    output: Option<FormatArg>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Register a cluster
    #[command(visible_alias = "cl")]
    Cluster(Box<Cluster>),
    /// Create a node pool in a cluster
    #[command(visible_aliases = ["nodepool", "np"])]
    Pool(Box<Pool>),
    /// Register a server
    #[command(visible_alias = "server")]
    Host(Box<Host>),
    /// Create a rack
    Rack(Box<Rack>),
    /// Create a boot profile
    #[command(visible_alias = "profile")]
    BootProfile(Box<BootProfile>),
    /// Store an account of BMCs, or a key
    #[command(visible_alias = "cred")]
    Credential(Box<super::hosts::NewCredential>),
}

#[derive(Debug, Args)]
struct Cluster {
    /// Its name: lower-case letters, digits and dashes
    name: String,
    /// Where its machines come from
    #[arg(long, default_value = "gcp", value_parser = PLATFORMS)]
    platform: String,
    /// Region on that platform
    #[arg(long)]
    region: Option<String>,
    /// Whether decisions are carried out
    #[arg(long, value_parser = ["advise", "active"])]
    mode: Option<String>,
    #[command(flatten)]
    reach: connect::Reach,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    connection: Connection,
}

/// Reads a number of nodes.
pub(super) fn nodes(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|nodes| *nodes <= MAX_NODES)
        .ok_or_else(|| format!("a number of nodes is a whole number from 0 to {MAX_NODES}"))
}

#[derive(Debug, Args)]
struct Pool {
    /// Its name, or CLUSTER/NAME
    name: String,
    /// Cluster it belongs to
    #[arg(long, value_name = "NAME", add = super::complete::clusters())]
    cluster: Option<String>,
    /// Where its machines come from
    #[arg(long, value_parser = PLATFORMS)]
    platform: String,
    /// Type of machine, in the platform's words (n1-standard-4, m5.xlarge)
    #[arg(long, value_name = "TYPE")]
    machine_type: Option<String>,
    /// Size of the boot disk in GB
    #[arg(long, value_name = "GB")]
    disk_size: Option<u32>,
    /// Zones, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "ZONES")]
    zones: Vec<String>,
    /// Use spot or preemptible machines
    #[arg(long)]
    spot: bool,
    /// Name of the pool in the host inventory (baremetal)
    #[arg(long, value_name = "NAME")]
    inventory: Option<String>,
    /// Nodes to have (to start with, when autoscaling)
    #[arg(long, value_name = "NODES", value_parser = nodes, allow_negative_numbers = true)]
    count: Option<u32>,
    /// Fewest nodes; turns autoscaling on
    #[arg(long, value_name = "NODES", requires = "max", value_parser = nodes, allow_negative_numbers = true)]
    min: Option<u32>,
    /// Most nodes; turns autoscaling on
    #[arg(long, value_name = "NODES", value_parser = nodes, allow_negative_numbers = true)]
    max: Option<u32>,
    /// Labels of its nodes: key=value
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    labels: Vec<String>,
    /// Taints of its nodes: key[=value]:effect
    #[arg(long, value_name = "TAINT", value_delimiter = ',')]
    taints: Vec<String>,
    /// Whether decisions are carried out
    #[arg(long, value_parser = ["advise", "active"])]
    mode: Option<String>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Args)]
struct Host {
    /// Its name: lower-case letters, digits and dashes
    name: String,
    /// Inventory pool that it serves
    #[arg(long, value_name = "NAME")]
    pool: String,
    /// How it is switched
    #[arg(long, default_value = "redfish", value_parser = ["redfish", "ipmi", "wol"])]
    driver: String,
    /// Address of its BMC
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// Network card that is woken, and by which its node is known
    #[arg(long, value_name = "MAC")]
    mac: Option<String>,
    /// Where packets that wake it go: the directed broadcast address of its network
    #[arg(long, value_name = "ADDRESS")]
    broadcast: Option<String>,
    /// Credential for its BMC
    #[arg(long, value_name = "NAME")]
    credential: Option<String>,
    /// Rack, or RACK/UNIT
    #[arg(long, value_name = "RACK[/UNIT]")]
    rack: Option<String>,
    /// Resources: cpu=64,memory=512Gi,gpu=8
    #[arg(long, value_name = "NAME=AMOUNT", value_delimiter = ',')]
    resources: Vec<String>,
    /// Labels: key=value
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    labels: Vec<String>,
    /// Boot profile to set before power-on
    #[arg(long, value_name = "NAME")]
    boot_profile: Option<String>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Args)]
struct Rack {
    /// Its name
    name: String,
    /// Height in rack units
    #[arg(long)]
    units: Option<u32>,
    #[arg(long)]
    zone: Option<String>,
    /// Most watts that its servers may draw together
    #[arg(long, value_name = "WATTS")]
    watt_cap: Option<u32>,
    /// Servers that may be on their way up at once
    #[arg(long, value_name = "COUNT")]
    start_limit: Option<u32>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Args)]
struct BootProfile {
    /// Its name
    name: String,
    /// What to boot from
    #[arg(long, value_parser = ["pxe", "uefi-http", "disk", "bios-setup", "none"])]
    target: String,
    #[arg(long, value_parser = ["keep", "uefi", "legacy"])]
    mode: Option<String>,
    /// At every boot, not only at the next
    #[arg(long)]
    always: bool,
    /// Where the image is, for uefi-http
    #[arg(long)]
    url: Option<String>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    connection: Connection,
}

const PLATFORMS: [&str; 6] = ["gcp", "aws", "azure", "baremetal", "byoh", "vsphere"];

impl Create {
    /// Flags of the connection, wherever they stand.
    pub(crate) fn connection(&self) -> &Connection {
        match &self.what {
            Some(What::Cluster(cluster)) => &cluster.connection,
            Some(What::Pool(pool)) => &pool.connection,
            Some(What::Host(host)) => &host.connection,
            Some(What::Rack(rack)) => &rack.connection,
            Some(What::BootProfile(profile)) => &profile.connection,
            Some(What::Credential(credential)) => &credential.connection,
            None => &self.connection,
        }
    }
}

pub(crate) async fn run(session: &Session, create: Create) -> Outcome {
    // Before anything is created: a kubeconfig that cannot be read should leave nothing behind.
    let mut reach = None;
    let (documents, how) = match (create.what, create.files) {
        (Some(What::Cluster(cluster)), _) => {
            reach = cluster.reach.body()?;
            (vec![cluster.document()], cluster.how)
        }
        (Some(What::Pool(pool)), _) => (vec![pool.document()?], pool.how),
        (Some(What::Host(host)), _) => (vec![host.document()?], host.how),
        (Some(What::Rack(rack)), _) => (vec![rack.document()], rack.how),
        (Some(What::BootProfile(profile)), _) => (vec![profile.document()], profile.how),
        (Some(What::Credential(credential)), _) => {
            return super::hosts::create_credential(session, *credential).await;
        }
        (None, Some(files)) => (manifest::read(&files)?, create.how),
        (None, None) => {
            return Err(Failure::usage("create", "it does not say what")
                .next("write `muster create cluster NAME`, `muster create pool NAME --cluster CLUSTER …` or `muster create -f FILE`"));
        }
    };
    let mut printer = Printer::new(session, how.output, how.dry_run);
    let mut failures = Failures::new(session);
    for document in documents {
        let outcome = async {
            let wanted = declare::prepare(session, document).await?;
            let object = wanted.create(session, how.dry_run).await?;
            session.know_clusters(wanted.kind, std::slice::from_ref(&object)).await?;
            printer.done(wanted.kind, &object, "created")?;
            match &reach {
                Some(body) if how.dry_run == DryRun::None => {
                    connect::set(session, wanted.kind, &object, body.clone()).await.map_err(|failure| {
                        let name = kinds::text_at(&object, "name");
                        failure.next(format!(
                            "the cluster is registered, but not connected: put that right and run `muster connect cluster {name} --kubeconfig FILE`"
                        ))
                    })
                }
                _ => Ok(()),
            }
        };
        failures.take(outcome.await)?;
    }
    printer.finish()?;
    failures.end()
}

fn document(kind: &str, body: Map<String, Value>, cluster: Option<String>) -> Document {
    let kind = kinds::find(kind).expect("the kinds that have flags are registered kinds");
    Document { kind, body, cluster, origin: Origin::default() }
}

impl Cluster {
    fn document(&self) -> Document {
        let mut platform = json!({ "type": self.platform });
        if let Some(region) = &self.region {
            platform[&self.platform] = json!({ "region": region });
        }
        let mut spec = json!({ "platform": platform });
        if let Some(mode) = &self.mode {
            spec["mode"] = mode.as_str().into();
        }
        document("cluster", object(json!({ "name": self.name, "spec": spec })), None)
    }
}

/// Members that were given, as a block.
fn given<const N: usize>(members: [(&str, Option<Value>); N]) -> Map<String, Value> {
    members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

impl Host {
    fn document(&self) -> Outcome<Document> {
        let text = |value: &Option<String>| value.clone().map(Value::from);
        let (rack, slot) = match self.rack.as_deref().map(|rack| rack.split_once('/').unwrap_or((rack, ""))) {
            None => (None, None),
            Some((rack, "")) => (Some(rack.into()), None),
            Some((rack, unit)) => {
                let unit = unit.parse::<u32>().map_err(|_| {
                    Failure::usage(format!("--rack {rack}/{unit}"), "the unit is no number")
                        .next("write it like a1/12")
                })?;
                (Some(rack.into()), Some(unit.into()))
            }
        };
        let mut spec = given([
            ("pool", Some(self.pool.as_str().into())),
            ("powerInterface", Some(self.driver.as_str().into())),
            ("mgmtAddress", text(&self.address)),
            ("macAddress", text(&self.mac)),
            ("bmcCredentials", text(&self.credential)),
            ("bootProfile", text(&self.boot_profile)),
            ("rack", rack),
            ("slot", slot),
        ]);
        if let Some(broadcast) = &self.broadcast {
            let wol = json!({ "kind": "wol", "settings": { "broadcast": broadcast } });
            spec.insert("drivers".to_owned(), json!([wol, { "kind": "agent" }]));
        }
        if !self.resources.is_empty() {
            let mut resources =
                self.resources.iter().map(|text| pair(text)).collect::<Outcome<Map<_, _>>>()?;
            if let Some(gpus) =
                resources.get("gpu").and_then(Value::as_str).and_then(|text| text.parse::<u32>().ok())
            {
                resources.insert("gpu".to_owned(), gpus.into());
            }
            spec.insert("resources".to_owned(), resources.into());
        }
        if !self.labels.is_empty() {
            let labels = self.labels.iter().map(|label| pair(label)).collect::<Outcome<Map<_, _>>>()?;
            spec.insert("labels".to_owned(), labels.into());
        }
        Ok(document("host", object(json!({ "name": self.name, "spec": spec })), None))
    }
}

impl Rack {
    fn document(&self) -> Document {
        let spec = given([
            ("units", self.units.map(Value::from)),
            ("zone", self.zone.clone().map(Value::from)),
            ("wattCap", self.watt_cap.map(Value::from)),
            ("startLimit", self.start_limit.map(Value::from)),
        ]);
        document("rack", object(json!({ "name": self.name, "spec": spec })), None)
    }
}

impl BootProfile {
    fn document(&self) -> Document {
        let spec = given([
            ("target", Some(self.target.as_str().into())),
            ("mode", self.mode.clone().map(Value::from)),
            ("once", self.always.then_some(Value::Bool(false))),
            ("url", self.url.clone().map(Value::from)),
        ]);
        document("boot-profile", object(json!({ "name": self.name, "spec": spec })), None)
    }
}

/// What a platform calls machine type, disk size, zones and spot; what it does not have is a usage error.
const fn words(platform: &str) -> Option<[&'static str; 4]> {
    match platform.as_bytes() {
        b"gcp" => Some(["machineType", "diskSize", "zones", "preemptible"]),
        b"aws" => Some(["instanceType", "volumeSize", "availabilityZones", "spotInstances"]),
        b"azure" => Some(["vmSize", "osDiskSizeGB", "availabilityZones", "spotInstances"]),
        _ => None,
    }
}

impl Pool {
    fn document(&self) -> Outcome<Document> {
        let (cluster, name) = match self.name.split_once('/') {
            Some((cluster, name)) => (Some(cluster.to_owned()), name),
            None => (self.cluster.clone(), self.name.as_str()),
        };
        let cluster = cluster.ok_or_else(|| {
            Failure::usage(format!("nodepool {name}"), "it needs a cluster")
                .next("add --cluster NAME; `muster get clusters` lists them")
        })?;
        let mut platform = json!({ "type": self.platform });
        let block = self.block()?;
        if !block.is_empty() {
            platform[&self.platform] = Value::Object(block);
        }
        let mut spec = json!({ "platform": platform });
        if let Some(max) = self.max {
            spec["autoscaling"] =
                json!({ "enabled": true, "minNodes": self.min.unwrap_or(0), "maxNodes": max });
        }
        // With autoscaling the count is where it starts: the least, unless told otherwise.
        if let Some(count) = self.count.or(self.max.and(self.min)) {
            spec["nodeCount"] = count.into();
        }
        if let Some(mode) = &self.mode {
            spec["mode"] = mode.as_str().into();
        }
        if !self.labels.is_empty() {
            spec["labels"] =
                self.labels.iter().map(|label| pair(label)).collect::<Outcome<Map<_, _>>>()?.into();
        }
        if !self.taints.is_empty() {
            spec["taints"] = self.taints.iter().map(|text| taint(text)).collect::<Outcome<Vec<_>>>()?.into();
        }
        Ok(document("nodepool", object(json!({ "name": name, "spec": spec })), Some(cluster)))
    }

    fn block(&self) -> Outcome<Map<String, Value>> {
        let mut block = Map::new();
        let asked = [
            ("--machine-type", self.machine_type.clone().map(Value::from)),
            ("--disk-size", self.disk_size.map(Value::from)),
            ("--zones", (!self.zones.is_empty()).then(|| Value::from(self.zones.clone()))),
            ("--spot", self.spot.then_some(Value::Bool(true))),
        ];
        for (place, (flag, value)) in asked.into_iter().enumerate() {
            let Some(value) = value else { continue };
            let Some(words) = words(&self.platform) else {
                return Err(Failure::usage(
                    format!("nodepool {}", self.name),
                    format!("{flag} means nothing on platform {}", self.platform),
                )
                .next("leave it out; `muster create -f FILE` takes all that the platform knows"));
            };
            block.insert(words[place].to_owned(), value);
        }
        if let Some(inventory) = &self.inventory {
            block.insert("pool".to_owned(), inventory.as_str().into());
        }
        Ok(block)
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn pair(text: &str) -> Outcome<(String, Value)> {
    text.split_once('=').map(|(key, value)| (key.to_owned(), value.into())).ok_or_else(|| {
        Failure::usage(format!("--labels {text:?}"), "expected key=value")
            .next("write it like tier=web,team=shop")
    })
}

/// `key=value:effect` or `key:effect`.
fn taint(text: &str) -> Outcome<Value> {
    let Some((rest, effect)) = text.rsplit_once(':') else {
        return Err(Failure::usage(format!("--taints {text:?}"), "expected key[=value]:effect")
            .next("write it like gpu=yes:NoSchedule"));
    };
    Ok(match rest.split_once('=') {
        Some((key, value)) => json!({ "key": key, "value": value, "effect": effect }),
        None => json!({ "key": rest, "effect": effect }),
    })
}
