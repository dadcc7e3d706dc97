//! A kubelet without containers: it lives and dies with its emulated machine.
//!
//! When the machine's operating system runs, it registers the node (or takes up the one that is there) with the
//! boot id of this boot, renews its lease, and runs the pods that are bound to it. When the power goes it is
//! simply gone, as on real hardware: the lease ends, and node and pods stay as they were.
//!
//! Pods can say how they behave by annotations: [`RUN_FOR`] and [`STOP_AFTER`].

mod api;
mod pods;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use muster_model::{Clock, Duration};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::Machine;
use api::{Answer, Api};

/// How many seconds a pod runs before it has succeeded; for ever without it.
pub const RUN_FOR: &str = "emulate.muster.dev/run-for";
/// How many seconds a pod takes to stop, at most its grace period; none without it.
pub const STOP_AFTER: &str = "emulate.muster.dev/stop-after";

/// What a node looks like.
#[derive(Debug, Clone)]
pub struct NodeSpec {
    pub name: String,
    pub provider_id: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Taints of its registration, as in the API.
    pub taints: Vec<Value>,
    /// Also what is allocatable.
    pub capacity: BTreeMap<String, String>,
    /// The same for what a device plugin brings: it is there once the node is annotated [`DEVICES`].
    pub devices: BTreeMap<String, String>,
    /// Between two renewals of the lease; the lease lasts four times as long.
    pub renew: Duration,
    /// From the start of the operating system to the registration.
    pub join: Duration,
}

impl NodeSpec {
    pub fn new(name: impl Into<String>) -> Self {
        let capacity = [("cpu", "4"), ("memory", "8Gi"), ("pods", "110"), ("ephemeral-storage", "100Gi")];
        Self {
            name: name.into(),
            provider_id: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            capacity: capacity.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            devices: BTreeMap::new(),
            renew: Duration::from_secs(10),
            join: Duration::from_millis(200),
        }
    }
}

/// Annotation of a node whose devices are to be shown.
pub const DEVICES: &str = "emulate.muster.dev/devices";

/// How often the kubelet looks after its pods.
const LOOK: Duration = Duration::from_millis(300);

/// A running kubelet. It ends when this is dropped; the machine goes on.
#[derive(Debug)]
pub struct Kubelet {
    task: JoinHandle<()>,
}

impl Kubelet {
    /// Follows `machine` and keeps its node in the cluster that `client` reaches.
    pub fn start(client: kube::Client, machine: Arc<Machine>, spec: NodeSpec, clock: Arc<dyn Clock>) -> Self {
        let work = Work { api: Api::new(client), machine, spec, clock, devices: AtomicBool::new(false) };
        Self { task: tokio::spawn(work.run()) }
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Work {
    api: Api,
    machine: Arc<Machine>,
    spec: NodeSpec,
    clock: Arc<dyn Clock>,
    /// Whether the devices are there.
    devices: AtomicBool,
}

impl Work {
    async fn run(self) {
        loop {
            let seen = self.machine.until(|seen| seen.running).await;
            self.clock.sleep(self.spec.join).await;
            tokio::select! {
                () = self.serve(&seen.boot_id) => {}
                _ = self.machine.until(|now| !now.running || now.boot_id != seen.boot_id) => {}
            }
        }
    }

    /// One boot, until the machine stops.
    async fn serve(&self, boot_id: &str) {
        while let Err(error) = self.register(boot_id).await {
            tracing::debug!(node = self.spec.name, error, "a fake kubelet cannot register yet");
            self.clock.sleep(LOOK).await;
        }
        let mut pods = pods::Pods::new(&self.api, &self.spec.name, Arc::clone(&self.clock));
        let mut renewed: Option<Duration> = None;
        loop {
            let now = self.clock.monotonic();
            if renewed.is_none_or(|at| now.saturating_sub(at) >= self.spec.renew) {
                match self.renew().await {
                    Ok(()) => renewed = Some(now),
                    Err(error) => tracing::debug!(node = self.spec.name, error, "a lease is not renewed"),
                }
                // Somebody may have deleted the node: a kubelet registers again only when it starts, but goes
                // on reporting its status to one that is there.
                let _ = self.report(boot_id).await;
            }
            if let Err(error) = pods.look_after().await {
                tracing::debug!(node = self.spec.name, error, "a fake kubelet cannot see its pods");
            }
            self.clock.sleep(LOOK).await;
        }
    }

    /// Makes the node unless it is there, and reports its status.
    async fn register(&self, boot_id: &str) -> Result<(), String> {
        let mut labels = self.spec.labels.clone();
        labels.insert("kubernetes.io/hostname".into(), self.spec.name.clone());
        labels.insert("kubernetes.io/os".into(), "linux".into());
        labels.insert("kubernetes.io/arch".into(), "amd64".into());
        let body = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": self.spec.name, "labels": labels, "annotations": self.spec.annotations},
            "spec": {"providerID": self.spec.provider_id, "taints": self.spec.taints},
        });
        match self.api.post("/api/v1/nodes", &body).await? {
            Answer::Done(_) | Answer::Conflict => {}
            Answer::Gone => return Err("the API server has no nodes".to_owned()),
        }
        match self.report(boot_id).await? {
            Answer::Done(_) => Ok(()),
            Answer::Gone | Answer::Conflict => Err("the node is gone again".to_owned()),
        }
    }

    async fn report(&self, boot_id: &str) -> Result<Answer, String> {
        let now = self.clock.now();
        let mut capacity = self.spec.capacity.clone();
        if self.devices.load(Ordering::Relaxed) {
            capacity.extend(self.spec.devices.clone());
        }
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({"type": kind, "status": status, "reason": reason, "message": "emulated",
                "lastHeartbeatTime": now, "lastTransitionTime": now})
        };
        let status = json!({"status": {
            "capacity": capacity, "allocatable": capacity,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": self.spec.name}],
            "conditions": [
                condition("Ready", "True", "KubeletReady"),
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            ],
            "nodeInfo": {
                "bootID": boot_id, "machineID": self.spec.name, "systemUUID": self.spec.name,
                "kubeletVersion": "v1.36.3", "kubeProxyVersion": "", "kernelVersion": "emulated",
                "osImage": "emulated", "containerRuntimeVersion": "emulated://1", "operatingSystem": "linux",
                "architecture": "amd64",
            },
        }});
        let answer = self.api.merge(&format!("/api/v1/nodes/{}/status", self.spec.name), &status).await?;
        if let Answer::Done(node) = &answer {
            let there = node["metadata"]["annotations"].get(DEVICES).is_some();
            self.devices.store(there, Ordering::Relaxed);
        }
        Ok(answer)
    }

    async fn renew(&self) -> Result<(), String> {
        let base = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let lasts = (self.spec.renew.millis() * 4).div_ceil(1000);
        let spec = json!({
            "holderIdentity": self.spec.name, "leaseDurationSeconds": lasts, "renewTime": api::micro(self.clock.now()),
        });
        let patch = json!({"spec": spec});
        match self.api.merge(&format!("{base}/{}", self.spec.name), &patch).await? {
            Answer::Done(_) | Answer::Conflict => Ok(()),
            Answer::Gone => {
                let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": self.spec.name}, "spec": spec});
                self.api.post(base, &lease).await.map(drop)
            }
        }
    }
}
