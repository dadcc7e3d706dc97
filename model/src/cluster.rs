//! A Kubernetes cluster whose pods need nodes.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ClusterId, Name, Project, Secret, Timestamp,
    field::{FieldError, FieldErrors, Findings, Object, Parsed, choice},
    identity::Secrets,
    patch::merge_patch,
    platform::{PlatformKind, PlatformSpec},
    pool::{Mode, REDACTED, Release, as_text, check_unchanged, read_name},
    status::ClusterStatus,
    store::Revision,
};

/// Longest `infraID` on Google Cloud, whose resource names are built from it.
const MAX_GCP_INFRA_ID: usize = 15;
const MAX_NETWORKS: usize = 16;
/// Most replicas that a controller may be asked to have before its pods may move.
pub const MAX_REPLICAS: u32 = 1_000;
/// Longest base64 text of a signing key.
const MAX_KEY: usize = 64 * 1024;

/// A cluster as it is stored. Its revision is the store's and is not part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    pub id: ClusterId,
    pub name: Name,
    pub project: Project,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target_project_id: Option<String>,
    /// Rises by one with every change of `spec`.
    pub generation: u64,
    pub spec: ClusterSpec,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub created_by: String,
    /// Since when it is being torn down.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deleted_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    #[serde(rename = "infraID", skip_serializing_if = "Option::is_none")]
    pub infra_id: Option<String>,
    pub platform: PlatformSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networking: Option<Networking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<Dns>,
    /// A private key. It is stored, given to controllers, and shown to nobody else.
    #[serde(default, with = "crate::secret::as_text", skip_serializing_if = "Option::is_none")]
    pub service_account_signing_key: Option<Secret>,
    #[serde(rename = "issuerURL", skip_serializing_if = "Option::is_none")]
    pub issuer_url: Option<String>,
}

choice! {
    /// What becomes of pods of a kind when their node could go.
    pub enum Keep("what becomes of them") {
        /// They keep their node.
        Keep = "keep",
        /// They are evicted like others.
        Evict = "evict",
    }
}

/// Which pods keep their nodes although others could leave. What is not said is `keep`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drain {
    /// Pods without a controller: nobody makes them again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare_pods: Option<Keep>,
    /// Pods with an `emptyDir` on disk or a `hostPath`, which they would lose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_storage: Option<Keep>,
    /// Pods of `kube-system` without a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_pods: Option<Keep>,
    /// Controllers with fewer replicas than this keep theirs where they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Networking {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_network: Option<Vec<ClusterNetwork>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_network: Option<Vec<String>>,
    #[serde(rename = "podCIDR", skip_serializing_if = "Option::is_none")]
    pub pod_cidr: Option<String>,
    #[serde(rename = "serviceCIDR", skip_serializing_if = "Option::is_none")]
    pub service_cidr: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNetwork {
    pub cidr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_prefix: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dns {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_domain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_zone: Option<String>,
}

/// What a create request says.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterDraft {
    pub name: Name,
    pub target_project_id: Option<String>,
    pub spec: ClusterSpec,
}

/// What a replace or patch request says.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterUpdate {
    pub name: Name,
    pub target_project_id: Option<String>,
    pub spec: ClusterSpec,
    /// The revision that the caller saw, if the body says so: another one is a conflict.
    pub resource_version: Option<String>,
}

const SERVER_OWNED: [&str; 9] = [
    "id",
    "project",
    "generation",
    "status",
    "created_at",
    "updated_at",
    "created_by",
    "deleted_at",
    "resource_version",
];

impl ClusterDraft {
    /// The cluster that this draft asks for.
    pub fn into_cluster(
        self,
        id: ClusterId,
        project: Project,
        created_by: String,
        now: Timestamp,
    ) -> Cluster {
        Cluster {
            id,
            name: self.name,
            project,
            target_project_id: self.target_project_id,
            generation: 1,
            spec: self.spec,
            created_at: now,
            updated_at: now,
            created_by,
            deleted_at: None,
        }
    }
}

impl Cluster {
    /// Reads the body of a create request.
    pub fn parse_create(body: &Value) -> Result<Parsed<ClusterDraft>, FieldErrors> {
        let mut findings = Findings::new();
        let draft = Self::read_create(body, &mut findings);
        findings.result_of(draft)
    }

    fn read_create(body: &Value, findings: &mut Findings) -> Option<ClusterDraft> {
        let mut object = Object::read(body, "", findings)?;
        let name = read_name(&mut object, "cluster", findings);
        let target_project_id = object.text("target_project_id", 253, findings).map(str::to_owned);
        for name in SERVER_OWNED {
            object.server_owned(name, findings);
        }
        let mut spec = ClusterSpec::read(&mut object, findings);
        if let Some(spec) = &mut spec {
            spec.restore_secrets(None, findings);
        }
        object.finish(findings);
        Some(ClusterDraft { name: name?, target_project_id, spec: spec? })
    }

    /// Reads the body of a replace request. Envelope fields may be sent back if they are unchanged.
    pub fn parse_replace(&self, body: &Value) -> Result<Parsed<ClusterUpdate>, FieldErrors> {
        let mut findings = Findings::new();
        let update = self.read_update(body, &mut findings);
        findings.result_of(update)
    }

    /// Applies a JSON merge patch (RFC 7396) and reads the result like a replace request.
    pub fn merge_patch(&self, patch: &Value) -> Result<Parsed<ClusterUpdate>, FieldErrors> {
        if !patch.is_object() {
            return Err(FieldErrors::one(FieldError::new("", "must be an object").found(patch)));
        }
        let mut body = serde_json::json!({ "name": self.name, "spec": self.spec });
        if let Some(project) = &self.target_project_id {
            body["target_project_id"] = Value::String(project.clone());
        }
        merge_patch(&mut body, patch);
        self.parse_replace(&body)
    }

    fn read_update(&self, body: &Value, findings: &mut Findings) -> Option<ClusterUpdate> {
        let mut object = Object::read(body, "", findings)?;
        let name = if object.get("name").is_some() {
            read_name(&mut object, "cluster", findings)
        } else {
            Some(self.name.clone())
        };
        let target_project_id = object.text("target_project_id", 253, findings).map(str::to_owned);
        let resource_version = object.string("resource_version", findings).map(str::to_owned);
        let text = |at: Timestamp| Value::String(at.to_string());
        let envelope = [
            ("id", Value::String(self.id.to_string())),
            ("project", Value::String(self.project.to_string())),
            ("generation", self.generation.into()),
            ("created_at", text(self.created_at)),
            ("updated_at", text(self.updated_at)),
            ("created_by", Value::String(self.created_by.clone())),
            ("deleted_at", self.deleted_at.map_or(Value::Null, text)),
            ("status", Value::Null),
        ];
        check_unchanged(&mut object, &envelope, findings);
        let mut spec = ClusterSpec::read(&mut object, findings);
        if let Some(spec) = &mut spec {
            if spec.platform.kind != self.spec.platform.kind {
                findings.push(
                    FieldError::new(
                        "spec.platform.type",
                        format!("cannot be changed, it is {}", self.spec.platform.kind),
                    )
                    .found_text(spec.platform.kind.as_str()),
                );
            }
            spec.restore_secrets(Some(&self.spec), findings);
        }
        object.finish(findings);
        Some(ClusterUpdate { name: name?, target_project_id, spec: spec?, resource_version })
    }

    /// Carries out an update: generation rises only when the spec changed. Returns whether anything did.
    pub fn apply(&mut self, update: ClusterUpdate, now: Timestamp) -> bool {
        let changed = self.spec != update.spec;
        let envelope = self.name != update.name || self.target_project_id != update.target_project_id;
        if changed {
            self.generation += 1;
            self.spec = update.spec;
        }
        self.name = update.name;
        self.target_project_id = update.target_project_id;
        if changed || envelope {
            self.updated_at = now;
        }
        changed || envelope
    }

    /// The object as the API gives it, as bytes.
    pub fn to_api_bytes(
        &self,
        revision: Revision,
        status: Option<&ClusterStatus>,
        secrets: Secrets,
    ) -> Vec<u8> {
        let hidden = self.spec_for(secrets);
        let api = ApiCluster::of(self, hidden.as_ref().unwrap_or(&self.spec), revision, status);
        serde_json::to_vec(&api).expect("a cluster has string keys and finite numbers only")
    }

    /// The object as the API gives it.
    pub fn to_api(&self, revision: Revision, status: Option<&ClusterStatus>, secrets: Secrets) -> Value {
        let hidden = self.spec_for(secrets);
        let api = ApiCluster::of(self, hidden.as_ref().unwrap_or(&self.spec), revision, status);
        serde_json::to_value(api).expect("a cluster has string keys and finite numbers only")
    }

    fn spec_for(&self, secrets: Secrets) -> Option<ClusterSpec> {
        let hide = secrets != Secrets::All && self.spec.service_account_signing_key.is_some();
        hide.then(|| {
            let mut spec = self.spec.clone();
            spec.service_account_signing_key = Some(Secret::new(REDACTED));
            spec
        })
    }
}

impl ClusterSpec {
    /// A new cluster only gives advice.
    pub fn mode(&self) -> Mode {
        self.mode.unwrap_or(Mode::Advise)
    }

    /// The region of its platform, where that is known.
    pub fn region(&self) -> Option<&str> {
        self.platform.region()
    }

    fn read(body: &mut Object<'_>, findings: &mut Findings) -> Option<Self> {
        let spec = body.required("spec", "{\"platform\": {\"type\": \"gcp\"}}", findings)?;
        let mut object = Object::read(spec, "spec", findings)?;
        let o = &mut object;
        let platform = o
            .required("platform", "{\"type\": \"gcp\"}", findings)
            .and_then(|value| PlatformSpec::read_cluster(value, "spec.platform", findings));
        let infra_id = read_infra_id(o, platform.as_ref().map(|platform| platform.kind), findings);
        let mode = o.choice("mode", findings);
        let drain = o.object("drain", findings).map(|object| Drain::read(object, findings));
        let release = Release::read(o, findings);
        let networking = o.object("networking", findings).map(|object| Networking::read(object, findings));
        let dns = o.object("dns", findings).map(|object| Dns::read(object, findings));
        let key = o.secret("serviceAccountSigningKey", MAX_KEY, findings).map(Secret::new);
        let issuer_url = o.text("issuerURL", 2048, findings).map(str::to_owned);
        if let Some(url) = issuer_url.as_deref()
            && !url.starts_with("https://")
        {
            findings.push(FieldError::new("spec.issuerURL", "must start with https://").found_text(url));
        }
        object.finish(findings);
        Some(Self {
            infra_id,
            platform: platform?,
            mode,
            drain,
            release,
            networking,
            dns,
            service_account_signing_key: key,
            issuer_url,
        })
    }

    fn restore_secrets(&mut self, old: Option<&Self>, findings: &mut Findings) {
        if self.service_account_signing_key != Some(Secret::new(REDACTED)) {
            return;
        }
        match old.and_then(|old| old.service_account_signing_key.clone()) {
            Some(key) => self.service_account_signing_key = Some(key),
            None => findings.push(
                FieldError::new(
                    "spec.serviceAccountSigningKey",
                    "holds the text that stands for a hidden value",
                )
                .hint("send the key itself, or leave it out"),
            ),
        }
    }
}

fn read_infra_id(o: &mut Object<'_>, kind: Option<PlatformKind>, findings: &mut Findings) -> Option<String> {
    let text = o.text("infraID", 63, findings)?;
    let most = if kind == Some(PlatformKind::Gcp) { MAX_GCP_INFRA_ID } else { 63 };
    let good = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !good || text.len() > most {
        findings.push(
            FieldError::new("spec.infraID", "is not valid")
                .found_text(text)
                .allowed(format!("1 to {most} characters: a-z, 0-9 and -, the first one a letter")),
        );
    }
    Some(text.to_owned())
}

impl Drain {
    fn read(mut object: Object<'_>, findings: &mut Findings) -> Self {
        let o = &mut object;
        let drain = Self {
            bare_pods: o.choice("barePods", findings),
            local_storage: o.choice("localStorage", findings),
            system_pods: o.choice("systemPods", findings),
            min_replicas: o.count("minReplicas", 0..=MAX_REPLICAS, findings),
        };
        object.finish(findings);
        drain
    }
}

impl Networking {
    fn read(mut object: Object<'_>, findings: &mut Findings) -> Self {
        let o = &mut object;
        let cluster_network = o.list("clusterNetwork", MAX_NETWORKS, findings).map(|items| {
            items.into_iter().filter_map(|(path, item)| ClusterNetwork::read(item, path, findings)).collect()
        });
        let service_network = o.strings("serviceNetwork", MAX_NETWORKS, findings).map(|items| {
            items
                .into_iter()
                .map(|(path, text)| {
                    check_cidr(&path, text, findings);
                    text.to_owned()
                })
                .collect()
        });
        let pod_cidr = read_cidr(o, "podCIDR", findings);
        let service_cidr = read_cidr(o, "serviceCIDR", findings);
        object.finish(findings);
        Self { cluster_network, service_network, pod_cidr, service_cidr }
    }
}

impl ClusterNetwork {
    fn read(item: &Value, path: String, findings: &mut Findings) -> Option<Self> {
        let mut object = Object::read(item, path, findings)?;
        let cidr = read_cidr(&mut object, "cidr", findings);
        let host_prefix = object.count("hostPrefix", 1..=128, findings);
        if object.get("cidr").is_none() {
            findings.push(FieldError::new(object.at("cidr"), "is required"));
        }
        object.finish(findings);
        Some(Self { cidr: cidr?, host_prefix })
    }
}

fn read_cidr(o: &mut Object<'_>, name: &'static str, findings: &mut Findings) -> Option<String> {
    let text = o.text(name, 64, findings)?;
    check_cidr(&o.at(name), text, findings);
    Some(text.to_owned())
}

fn check_cidr(path: &str, text: &str, findings: &mut Findings) {
    let valid = text.split_once('/').is_some_and(|(address, bits)| {
        let most = match address.parse() {
            Ok(std::net::IpAddr::V4(_)) => 32,
            Ok(std::net::IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        !bits.starts_with('+') && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
    });
    if !valid {
        findings
            .push(FieldError::new(path, "is not a network").found_text(text).allowed("like 10.128.0.0/14"));
    }
}

impl Dns {
    fn read(mut object: Object<'_>, findings: &mut Findings) -> Self {
        let mut text = |name| object.text(name, 253, findings).map(str::to_owned);
        let dns = Self {
            base_domain: text("baseDomain"),
            public_zone: text("publicZone"),
            private_zone: text("privateZone"),
        };
        object.finish(findings);
        dns
    }
}

/// The envelope, in the order in which people read it.
#[derive(Serialize)]
struct ApiCluster<'a> {
    id: ClusterId,
    name: &'a Name,
    project: &'a Project,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_project_id: Option<&'a str>,
    generation: u64,
    #[serde(serialize_with = "as_text")]
    resource_version: Revision,
    spec: &'a ClusterSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a ClusterStatus>,
    created_at: Timestamp,
    updated_at: Timestamp,
    created_by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_at: Option<Timestamp>,
}

impl<'a> ApiCluster<'a> {
    fn of(
        cluster: &'a Cluster,
        spec: &'a ClusterSpec,
        revision: Revision,
        status: Option<&'a ClusterStatus>,
    ) -> Self {
        Self {
            id: cluster.id,
            name: &cluster.name,
            project: &cluster.project,
            target_project_id: cluster.target_project_id.as_deref(),
            generation: cluster.generation,
            resource_version: revision,
            spec,
            status,
            created_at: cluster.created_at,
            updated_at: cluster.updated_at,
            created_by: &cluster.created_by,
            deleted_at: cluster.deleted_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn create(spec: Value) -> Result<Parsed<ClusterDraft>, String> {
        Cluster::parse_create(&json!({"name": "c", "spec": spec})).map_err(|errors| errors.details())
    }

    fn cluster(spec: Value) -> Cluster {
        let id = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
        let draft = create(spec).unwrap().value;
        draft.into_cluster(id, "team".parse().unwrap(), "user@example.com".to_owned(), Timestamp::EPOCH)
    }

    #[test]
    fn api_r3_the_minimal_body_works() {
        let body = json!({"name": "simple-test-cluster", "spec": {"platform": {"type": "gcp"}}});
        let parsed = Cluster::parse_create(&body).unwrap();
        assert_eq!(serde_json::to_value(&parsed.value.spec).unwrap(), body["spec"]);
        assert_eq!(parsed.value.spec.mode(), Mode::Advise);
        assert_eq!(parsed.warnings, Vec::<String>::new());
    }

    #[test]
    fn a_full_spec_comes_back_as_it_was_sent() {
        let spec = json!({
            "infraID": "prod-1",
            "platform": {"type": "gcp", "gcp": {"projectID": "p", "region": "us-central1", "network": "n", "subnet": "s",
                "workloadIdentity": {"projectNumber": "1", "poolID": "x", "providerID": "y",
                    "serviceAccountsRef": {"nodePoolEmail": "a@b.c"}}}},
            "mode": "active",
            "release": {"image": "i", "version": "4.20", "channelGroup": "stable"},
            "networking": {"clusterNetwork": [{"cidr": "10.128.0.0/14", "hostPrefix": 23}], "serviceNetwork": ["fd00::/108"],
                "podCIDR": "10.0.0.0/8", "serviceCIDR": "172.30.0.0/16"},
            "dns": {"baseDomain": "example.com"},
            "serviceAccountSigningKey": "c2VjcmV0",
            "issuerURL": "https://issuer.example.com"
        });
        let parsed = create(spec.clone()).unwrap();
        assert_eq!(parsed.warnings, Vec::<String>::new());
        assert_eq!(serde_json::to_value(&parsed.value.spec).unwrap(), spec);
        assert_eq!(parsed.value.spec.region(), Some("us-central1"));
        let stored = serde_json::to_string(&cluster(spec.clone())).unwrap();
        assert_eq!(serde_json::from_str::<Cluster>(&stored).unwrap(), cluster(spec));
    }

    #[test]
    fn faults_of_a_cluster() {
        #[track_caller]
        fn check(name: &str, value: Value, expected: &str) {
            let mut spec = json!({"platform": {"type": "gcp"}});
            spec[name] = value;
            let fault = create(spec).unwrap_err();
            assert!(fault.contains(expected), "{fault}");
        }
        check("platform", Value::Null, "spec.platform: is required");
        check("platform", json!({"type": "gcp", "aws": {}}), "spec.platform.aws: does not belong");
        check("infraID", json!("more-than-fifteen"), "allowed: 1 to 15 characters");
        check("infraID", json!("1x"), "spec.infraID: is not valid");
        check("mode", json!("on"), "spec.mode: is not a mode, found \"on\", allowed: advise, active");
        check("release", json!({"channelGroup": "slow"}), "allowed: stable, fast, candidate, eus");
        check("networking", json!({"podCIDR": "10.0.0.0"}), "spec.networking.podCIDR: is not a network");
        check(
            "networking",
            json!({"clusterNetwork": [{"cidr": "10.0.0.0/33"}]}),
            "clusterNetwork[0].cidr: is not a network",
        );
        check("networking", json!({"clusterNetwork": [{}]}), "clusterNetwork[0].cidr: is required");
        check("issuerURL", json!("http://x"), "must start with https://");
        check("serviceAccountSigningKey", json!(REDACTED), "stands for a hidden value");
        check("plattform", json!({}), "did you mean platform?");
        let unnamed = Cluster::parse_create(&json!({"spec": {"platform": {"type": "gcp"}}})).unwrap_err();
        assert_eq!(unnamed.details(), "cluster name is required");
        let owned =
            Cluster::parse_create(&json!({"name": "c", "id": "x", "spec": {"platform": {"type": "gcp"}}}));
        assert!(owned.unwrap_err().details().contains("id: is set by the server"));
    }

    #[test]
    fn api_r5_replace_and_patch() {
        let before = cluster(json!({"platform": {"type": "gcp", "gcp": {"region": "us-central1"}}}));
        let mut after = before.clone();
        let body = json!({"spec": {"platform": {"type": "gcp", "gcp": {"region": "us-east1"}}}});
        assert!(after.apply(before.parse_replace(&body).unwrap().value, Timestamp::from_millis(1)));
        assert_eq!((after.generation, after.name.as_str(), after.spec.region()), (2, "c", Some("us-east1")));
        let mut same = before.clone();
        let read = before.to_api(Revision(3), None, Secrets::Writer);
        assert!(!same.apply(before.parse_replace(&read).unwrap().value, Timestamp::from_millis(1)));
        assert_eq!(same, before);
        let active = before.merge_patch(&json!({"spec": {"mode": "active"}})).unwrap().value;
        assert_eq!((active.spec.mode(), active.spec.region()), (Mode::Active, Some("us-central1")));
        assert!(before.parse_replace(&json!({})).unwrap_err().details().contains("spec: is required"));
        let moved = before.parse_replace(&json!({"spec": {"platform": {"type": "aws"}}}));
        assert!(moved.unwrap_err().details().contains("spec.platform.type: cannot be changed"));
    }

    #[test]
    fn api_n76_the_signing_key_is_for_controllers_only() {
        let cluster = cluster(json!({"platform": {"type": "gcp"}, "serviceAccountSigningKey": "c2VjcmV0"}));
        let shown =
            |secrets| cluster.to_api(Revision(1), None, secrets)["spec"]["serviceAccountSigningKey"].clone();
        assert_eq!(shown(Secrets::Hidden), json!(REDACTED));
        assert_eq!(shown(Secrets::Writer), json!(REDACTED));
        assert_eq!(shown(Secrets::All), json!("c2VjcmV0"));
        assert!(!format!("{cluster:?}").contains("c2VjcmV0"));
        let back = cluster.to_api(Revision(1), None, Secrets::Writer);
        assert_eq!(cluster.parse_replace(&back).unwrap().value.spec, cluster.spec);
    }
}
