//! Volumes of a pod: only what binds it to a node or to a limit.

use serde::{Deserialize, Serialize};

use super::{List, ObjectMeta, PvcSpec, read::nullable};

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub struct Volume {
    pub name: Box<str>,
    pub source: VolumeSource,
}

/// Where a volume comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum VolumeSource {
    /// A claim in the pod's namespace.
    Claim {
        name: Box<str>,
        read_only: bool,
    },
    /// A claim that is made for the pod, called `<pod>-<volume>`.
    Ephemeral {
        template: Box<ClaimTemplate>,
    },
    /// Scratch space on the node. It is lost when the pod moves.
    EmptyDir {
        in_memory: bool,
    },
    /// A path on the node. It is lost when the pod moves.
    HostPath,
    /// A volume that its driver makes for the pod.
    Csi {
        driver: Box<str>,
    },
    GceDisk {
        name: Box<str>,
        read_only: bool,
    },
    AwsDisk {
        id: Box<str>,
    },
    AzureDisk {
        name: Box<str>,
    },
    Rbd {
        monitors: List<Box<str>>,
        pool: Box<str>,
        image: Box<str>,
        read_only: bool,
    },
    Iscsi {
        iqn: Box<str>,
        read_only: bool,
    },
    /// Content from the API server (secrets, config maps, …) or anything else that ties the pod to nothing.
    #[default]
    Other,
}

/// The claim that an ephemeral volume makes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimTemplate {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: PvcSpec,
}

/// The wire form: one optional member per kind of source.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Wire {
    #[serde(deserialize_with = "nullable")]
    name: Box<str>,
    persistent_volume_claim: Option<WireClaim>,
    ephemeral: Option<WireEphemeral>,
    empty_dir: Option<WireEmptyDir>,
    host_path: Option<WireNothing>,
    csi: Option<WireCsi>,
    gce_persistent_disk: Option<WireGce>,
    aws_elastic_block_store: Option<WireAws>,
    azure_disk: Option<WireAzure>,
    rbd: Option<WireRbd>,
    iscsi: Option<WireIscsi>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireClaim {
    #[serde(deserialize_with = "nullable")]
    claim_name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    read_only: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireEphemeral {
    #[serde(deserialize_with = "nullable")]
    volume_claim_template: ClaimTemplate,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct WireEmptyDir {
    #[serde(deserialize_with = "nullable")]
    medium: Box<str>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct WireNothing {}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct WireCsi {
    #[serde(deserialize_with = "nullable")]
    driver: Box<str>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireGce {
    #[serde(deserialize_with = "nullable")]
    pd_name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    read_only: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct WireAws {
    #[serde(rename = "volumeID", deserialize_with = "nullable")]
    volume_id: Box<str>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireAzure {
    #[serde(deserialize_with = "nullable")]
    disk_name: Box<str>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireRbd {
    monitors: List<Box<str>>,
    #[serde(deserialize_with = "nullable")]
    pool: Box<str>,
    #[serde(deserialize_with = "nullable")]
    image: Box<str>,
    #[serde(deserialize_with = "nullable")]
    read_only: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireIscsi {
    #[serde(deserialize_with = "nullable")]
    iqn: Box<str>,
    #[serde(deserialize_with = "nullable")]
    read_only: bool,
}

impl From<Wire> for Volume {
    fn from(wire: Wire) -> Self {
        let source = if let Some(claim) = wire.persistent_volume_claim {
            VolumeSource::Claim { name: claim.claim_name, read_only: claim.read_only }
        } else if let Some(ephemeral) = wire.ephemeral {
            VolumeSource::Ephemeral { template: Box::new(ephemeral.volume_claim_template) }
        } else if let Some(dir) = wire.empty_dir {
            VolumeSource::EmptyDir { in_memory: &*dir.medium == "Memory" }
        } else if wire.host_path.is_some() {
            VolumeSource::HostPath
        } else if let Some(csi) = wire.csi {
            VolumeSource::Csi { driver: csi.driver }
        } else if let Some(disk) = wire.gce_persistent_disk {
            VolumeSource::GceDisk { name: disk.pd_name, read_only: disk.read_only }
        } else if let Some(disk) = wire.aws_elastic_block_store {
            VolumeSource::AwsDisk { id: disk.volume_id }
        } else if let Some(disk) = wire.azure_disk {
            VolumeSource::AzureDisk { name: disk.disk_name }
        } else if let Some(WireRbd { monitors, pool, image, read_only }) = wire.rbd {
            VolumeSource::Rbd { monitors, pool, image, read_only }
        } else if let Some(disk) = wire.iscsi {
            VolumeSource::Iscsi { iqn: disk.iqn, read_only: disk.read_only }
        } else {
            VolumeSource::Other
        };
        Self { name: wire.name, source }
    }
}

impl From<Volume> for Wire {
    fn from(volume: Volume) -> Self {
        let mut wire = Self { name: volume.name, ..Self::default() };
        match volume.source {
            VolumeSource::Claim { name, read_only } => {
                wire.persistent_volume_claim = Some(WireClaim { claim_name: name, read_only });
            }
            VolumeSource::Ephemeral { template } => {
                wire.ephemeral = Some(WireEphemeral { volume_claim_template: *template });
            }
            VolumeSource::EmptyDir { in_memory } => {
                let medium = if in_memory { "Memory" } else { "" }.into();
                wire.empty_dir = Some(WireEmptyDir { medium });
            }
            VolumeSource::HostPath => wire.host_path = Some(WireNothing {}),
            VolumeSource::Csi { driver } => wire.csi = Some(WireCsi { driver }),
            VolumeSource::GceDisk { name, read_only } => {
                wire.gce_persistent_disk = Some(WireGce { pd_name: name, read_only });
            }
            VolumeSource::AwsDisk { id } => wire.aws_elastic_block_store = Some(WireAws { volume_id: id }),
            VolumeSource::AzureDisk { name } => wire.azure_disk = Some(WireAzure { disk_name: name }),
            VolumeSource::Rbd { monitors, pool, image, read_only } => {
                wire.rbd = Some(WireRbd { monitors, pool, image, read_only });
            }
            VolumeSource::Iscsi { iqn, read_only } => wire.iscsi = Some(WireIscsi { iqn, read_only }),
            VolumeSource::Other => {}
        }
        wire
    }
}
