//! Stories of machines with nodes in a real cluster, for the points at which a process dies.

use std::{path::Path, process::Command, sync::Arc};

use muster_emulate::{
    Power, RealClock, Timing,
    cluster::TestCluster,
    kubelet::NodeSpec,
    rack::Rack,
    redfish::{Layout, RedfishBmc},
};
use muster_model::{
    Clock, Duration,
    observe::{CORDON_MARK, OFF_TAINT, OUT_OF_SERVICE_TAINT, STARTUP_TAINT},
};
use serde_json::{Value, json};

use super::{failpoints::Play, process::Server, witness};

/// What happens to the machines while the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Story {
    /// Two serve; the one with the pod is stood down, and the pod goes to the other.
    Drained,
    /// Stood down, which a budget forbids, and wanted again.
    Returned,
    /// On, off, and on again.
    Again,
    /// Off, and its node is deleted, as its pool says.
    Removed,
    /// Its power goes while a pod is on it; a person sees to it.
    Fenced,
    /// Its system dies; its pool allows one power cycle.
    Cycled,
}

/// How far the story has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Registering,
    /// The power-on was asked for.
    On,
    /// It serves, and the pod is made where the story has one.
    Busy,
    /// What the story is about has begun.
    Off,
    /// The second power-on was asked for.
    Again,
}

pub(crate) struct Nodes {
    story: Story,
    stage: Stage,
    /// Of the namespace, the pool and the cluster; the hosts are numbered.
    name: String,
    cluster: &'static TestCluster,
    rack: Rack,
    /// The host that the story is about.
    host: usize,
    /// The pod's uid.
    pod: String,
}

impl Nodes {
    pub(crate) async fn new(story: Story, point: &str) -> Self {
        let cluster = TestCluster::shared();
        let name = point.replace('/', "-");
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        cluster.kubectl(&["apply", "-f", "-"], &namespace.to_string());
        // A cluster without a single pod is not believed.
        let agent = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": { "name": format!("agent-{name}"), "namespace": "kube-system" },
            "spec": { "selector": { "matchLabels": { "agent": name } }, "template": {
                "metadata": { "labels": { "agent": name } },
                "spec": { "nodeSelector": { "nodepool": name }, "tolerations": [{ "operator": "Exists" }],
                    "containers": [{ "name": "c", "image": "none" }] } } } });
        cluster.kubectl(&["create", "-f", "-"], &agent.to_string());
        let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
        let timing = Timing { boot: Duration::from_millis(500), ..Timing::default() };
        let bmcs = if story == Story::Drained { 2 } else { 1 };
        let layout = Layout { bmcs, tls: true, timing, ..Layout::default() };
        let numbers = std::sync::atomic::AtomicUsize::new(1);
        let rack = Rack::start(&layout, &cluster.client().await, &clock, |_| {
            let number = numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut node = NodeSpec::new(format!("{name}-{number}"));
            node.provider_id = Some(format!("muster://{name}/{name}-{number}"));
            node.renew = Duration::from_millis(600);
            node.taints = vec![json!({ "key": STARTUP_TAINT, "effect": "NoSchedule" })];
            node
        })
        .await
        .unwrap();
        Self { story, stage: Stage::Registering, name, cluster, rack, host: 1, pod: String::new() }
    }

    fn bmc(&self, number: usize) -> &RedfishBmc {
        self.rack.fleet.bmcs().nth(number - 1).unwrap()
    }

    fn hosts(&self) -> Vec<String> {
        (1..=self.rack.machines()).map(|number| format!("{}-{number}", self.name)).collect()
    }

    fn host(&self) -> String {
        format!("{}-{}", self.name, self.host)
    }

    /// Registers everything as a person would. All points come later.
    async fn register(&self, server: &Server) {
        let kubeconfig = self.cluster.kubeconfig();
        let created = Command::new(env!("CARGO_BIN_EXE_muster"))
            .args(["create", "cluster", &self.name, "--platform", "baremetal", "--kubeconfig"])
            .arg(kubeconfig)
            .args(["--server", &server.base, "--as-email", super::process::USER])
            .output()
            .unwrap();
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        for (number, name) in self.hosts().into_iter().enumerate() {
            let limits = json!({ "minOnTime": "10s", "minOffTime": "10s", "oppositeActionDelay": "10s",
                "minPowerCycleInterval": "10s", "joinDeadline": "1h", "bootDeadline": "1h", "drainDeadline": "1h",
                "leaseSilence": "100s", "enrolDeadline": "5h", "cordonDeadline": "1h", "graceDeadline": "1h",
                "forceOffDeadline": "1h", "confirmOffDeadline": "1h", "drainRetryDelay": "1s",
                "notReadyDeadline": if self.story == Story::Cycled { "20s" } else { "1h" } });
            let more = json!({ "pool": self.name, "resources": { "cpu": "4", "memory": "8Gi" }, "deadlines": limits });
            server.register(&name, self.bmc(number + 1).address, more).await;
        }
        let policy = match self.story {
            Story::Removed => json!({ "nodeAtOff": "delete" }),
            Story::Cycled => json!({ "cycleLost": "allowed" }),
            Story::Drained | Story::Returned | Story::Again | Story::Fenced => json!({}),
        };
        let machines = self.rack.machines();
        let least = if self.is_released() { machines } else { 0 };
        let spec = json!({ "platform": { "type": "baremetal", "baremetal": { "pool": self.name, "policy": policy } },
            "autoscaling": { "enabled": true, "minNodes": least, "maxNodes": machines } });
        let clusters = server.get(&format!("/api/v1/clusters?name={}", self.name)).await;
        let path = format!("/api/v1/clusters/{}/nodepools", clusters["clusters"][0]["id"].as_str().unwrap());
        server.post(&path, &json!({ "name": self.name, "spec": spec })).await;
    }

    /// Stories of what befalls a machine that nobody holds: one that a person switched on is left to that person.
    const fn is_released(&self) -> bool {
        matches!(self.story, Story::Fenced | Story::Cycled)
    }

    async fn ask(&self, server: &Server, host: &str, action: &str) {
        let body = json!({ "action": action, "reason": "a test" });
        let _ = server.try_send("POST", &format!("/api/v1/hosts/{host}/power"), Some(&body)).await;
    }

    async fn all(&self, server: &Server, wanted: &str) -> bool {
        for host in self.hosts() {
            if server.phase(&host).await != wanted {
                return false;
            }
        }
        true
    }

    fn node(&self) -> Value {
        let found = ["get", "node", &self.host(), "--ignore-not-found", "-o", "json"];
        serde_json::from_str(&self.cluster.kubectl(&found, "")).unwrap_or(Value::Null)
    }

    fn is_tainted(&self, key: &str) -> bool {
        self.node()["spec"]["taints"].as_array().is_some_and(|all| all.iter().any(|one| one["key"] == key))
    }

    /// A node that is dressed, takes pods, and carries nothing of ours that should have gone.
    fn is_clean(&self) -> bool {
        let node = self.node();
        node["metadata"]["labels"]["nodepool"] == self.name.as_str()
            && node["spec"]["unschedulable"].is_null()
            && node["metadata"]["annotations"][CORDON_MARK].is_null()
            && ![STARTUP_TAINT, OFF_TAINT, OUT_OF_SERVICE_TAINT].iter().any(|key| self.is_tainted(key))
    }

    fn has_pod(&self) -> bool {
        matches!(self.story, Story::Drained | Story::Returned | Story::Fenced)
    }

    fn deploy(&self) {
        if !self.has_pod() {
            return;
        }
        let budget = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "all" },
            "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "app" } } } });
        let app = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "app" }, "spec": {
            "replicas": 1, "selector": { "matchLabels": { "app": "app" } }, "template": {
                "metadata": { "labels": { "app": "app" } }, "spec": {
                    "nodeSelector": { "nodepool": self.name }, "terminationGracePeriodSeconds": 1,
                    "containers": [{ "name": "c", "image": "none" }] } } } });
        let mut objects = vec![app];
        if self.story == Story::Returned {
            objects.push(budget);
        }
        for object in objects {
            self.cluster.kubectl(&["-n", &self.name, "apply", "-f", "-"], &object.to_string());
        }
    }

    /// The pod that is ready and stays: its node and its uid.
    fn running(&self) -> Option<(String, String)> {
        let pods = self.cluster.kubectl(&["-n", &self.name, "get", "pods", "-o", "json"], "");
        let pods: Value = serde_json::from_str(&pods).unwrap();
        let ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array();
            pod["metadata"]["deletionTimestamp"].is_null()
                && conditions
                    .into_iter()
                    .flatten()
                    .any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        let pod = pods["items"].as_array().unwrap().iter().find(ready)?;
        Some((pod["spec"]["nodeName"].as_str()?.to_owned(), pod["metadata"]["uid"].as_str()?.to_owned()))
    }

    /// Begins what the story is about.
    async fn begin(&self, server: &Server) {
        let machine = &self.bmc(self.host).systems[0].machine;
        match self.story {
            Story::Drained | Story::Returned | Story::Again | Story::Removed => {
                self.ask(server, &self.host(), "off").await;
            }
            Story::Fenced => machine.cut(),
            Story::Cycled => {
                machine.hang(true);
                machine.restart();
            }
        }
    }

    /// Goes on once the first part is over; whether everything is.
    async fn go_on(&mut self, server: &Server) -> bool {
        let phase = server.phase(&self.host()).await;
        match self.story {
            Story::Drained => {
                let other = format!("{}-{}", self.name, 3 - self.host);
                phase == "idle"
                    && self.is_tainted(OFF_TAINT)
                    && self.running().is_some_and(|(node, _)| node == other)
            }
            Story::Removed => phase == "idle" && self.node().is_null(),
            Story::Returned | Story::Again | Story::Fenced if self.stage == Stage::Again => {
                if self.story == Story::Fenced {
                    let body = json!({ "reason": "a fuse" });
                    let path = format!("/api/v1/hosts/{}/acknowledge", self.host());
                    let _ = server.try_send("POST", &path, Some(&body)).await;
                }
                phase == "serving" && self.is_clean()
            }
            Story::Returned | Story::Again | Story::Fenced => {
                let ready = match self.story {
                    Story::Returned => phase == "evicting",
                    Story::Fenced => self.is_tainted(OUT_OF_SERVICE_TAINT),
                    _ => phase == "idle" && self.is_tainted(OFF_TAINT),
                };
                if ready {
                    self.stage = Stage::Again;
                    self.ask(server, &self.host(), "on").await;
                }
                false
            }
            Story::Cycled => {
                let bmc = self.bmc(self.host);
                // The next boot succeeds. A cycle that may have been made is not made again.
                bmc.systems[0].machine.hang(phase != "lost");
                let lost = server.get(&format!("/api/v1/hosts/{}/events", self.host())).await;
                let cycled = bmc.counters().resets.iter().any(|one| one == "PowerCycle");
                (cycled && phase == "serving")
                    || (lost.to_string().contains("power cycle")
                        && matches!(phase.as_str(), "backoff" | "idle"))
            }
        }
    }
}

impl Play for Nodes {
    async fn drive(&mut self, server: &Server) -> bool {
        match self.stage {
            Stage::Registering => {
                if server.get("/api/v1/hosts").await["total"] == 0 {
                    self.register(server).await;
                }
                if self.all(server, "idle").await {
                    self.stage = Stage::On;
                    for host in self.hosts() {
                        self.ask(server, &host, "on").await;
                    }
                }
                false
            }
            Stage::On => {
                if self.all(server, "serving").await && self.is_clean() {
                    self.stage = Stage::Busy;
                    for host in self.hosts().into_iter().filter(|_| self.is_released()) {
                        server.post(&format!("/api/v1/hosts/{host}/release"), &json!({})).await;
                    }
                    self.deploy();
                }
                false
            }
            Stage::Busy => {
                if let Some((node, uid)) = self.running().filter(|_| self.has_pod()) {
                    self.host = node.rsplit('-').next().unwrap().parse().unwrap();
                    self.pod = uid;
                }
                if !self.has_pod() || !self.pod.is_empty() {
                    self.stage = Stage::Off;
                    self.begin(server).await;
                }
                false
            }
            Stage::Off | Stage::Again => self.go_on(server).await,
        }
    }

    fn judge(&self, data: &Path, what: &str) {
        for (number, host) in self.hosts().iter().enumerate() {
            witness::tells(data, host, &witness::deeds(self.bmc(number + 1)), what);
        }
        let bmc = self.bmc(self.host);
        let (counters, power) = (bmc.counters(), bmc.systems[0].machine.power());
        assert!(counters.sessions_peak <= 1 && counters.in_flight_peak <= 1, "{what}: {counters:?}");
        let resets: Vec<&str> = counters.resets.iter().map(String::as_str).collect();
        match self.story {
            Story::Drained => {
                assert_eq!((resets, power), (vec!["On", "GracefulShutdown"], Power::Off), "{what}");
                let other = self.bmc(3 - self.host);
                assert_eq!(other.counters().resets, ["On"], "{what}");
                assert_eq!(other.systems[0].machine.power(), Power::On, "{what}");
            }
            Story::Removed => {
                assert_eq!((resets, power), (vec!["On", "GracefulShutdown"], Power::Off), "{what}");
            }
            Story::Returned => {
                assert_eq!((resets, power), (vec!["On"], Power::On), "{what}");
                assert_eq!(
                    self.running(),
                    Some((self.host(), self.pod.clone())),
                    "{what}: it was never evicted"
                );
            }
            Story::Again => {
                assert_eq!((resets, power), (vec!["On", "GracefulShutdown", "On"], Power::On), "{what}");
            }
            Story::Fenced => assert_eq!((resets, power), (vec!["On", "On"], Power::On), "{what}"),
            Story::Cycled => {
                assert!(resets.iter().filter(|one| **one == "PowerCycle").count() <= 1, "{what}: {resets:?}");
            }
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // Nodes that nobody plays any more would look like an outage to the others.
        let mut command = vec!["delete", "node", "--ignore-not-found", "--wait=false"];
        let hosts = self.hosts();
        command.extend(hosts.iter().map(String::as_str));
        let _ = self.cluster.try_kubectl(&command, "");
    }
}
