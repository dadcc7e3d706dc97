//! What the stories share: the control plane, a rack with kubelets, and a Muster that can be killed.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use base64::Engine as _;
use muster_emulate::{
    Power, RealClock, Timing,
    cluster::TestCluster,
    kubelet::NodeSpec,
    rack::Rack,
    redfish::{Layout, RedfishBmc},
};
use muster_model::Clock;
use serde_json::{Value, json};

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_mins(3);
/// What is taken away from a cluster whose API server was slow: only after it has been quick for five minutes.
pub(crate) const AFTER_SLOWNESS: Duration = Duration::from_mins(10);
/// Divides the host loop's times: a debounce of 20 s becomes two.
const FACTOR: &str = "hosts.time-factor=10";
/// Looks of the planner after which it would have acted on what it sees.
const LOOKS: u64 = 8;
const MUSTER: &str = env!("CARGO_BIN_EXE_muster");
const EMAIL: &str = "user@example.com";

/// A running `muster serve`. It is killed with -9 when dropped.
pub(crate) struct Muster {
    child: Child,
    pub(crate) url: String,
    log: PathBuf,
}

/// What a pod has: the files of its service account, and where its API server is.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    files: PathBuf,
    server: String,
}

/// Gives the program after it a view of the files in which those of the service account are where a pod has them. Only the
/// program sees them, and no right is needed for it.
const IN_A_POD: &str = r#"
here=/run/secrets/kubernetes.io/serviceaccount
mount -t tmpfs none /run && mkdir -p $here && cp "$FILES"/* $here && exec "$@"
"#;

impl Pod {
    /// A pod with this service account, which must be there.
    pub(crate) fn new(cluster: &TestCluster, namespace: &str, account: &str, directory: &Path) -> Self {
        let files = directory.join("serviceaccount");
        std::fs::create_dir(&files).unwrap();
        let admin = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
        let quoted =
            |field: &str| admin.split_once(field).and_then(|(_, rest)| rest.split('"').nth(1)).unwrap();
        std::fs::copy(quoted("certificate-authority:"), files.join("ca.crt")).unwrap();
        let token = cluster.kubectl(&["-n", namespace, "create", "token", account], "");
        std::fs::write(files.join("token"), token.trim()).unwrap();
        std::fs::write(files.join("namespace"), namespace).unwrap();
        Self { files, server: quoted("server:").trim_start_matches("https://").to_owned() }
    }

    /// The program, to be given its arguments.
    fn command(&self) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", IN_A_POD, "sh", MUSTER]);
        let (host, port) = self.server.split_once(':').expect("an address and a port");
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("FILES", &self.files);
        command.env("KUBERNETES_SERVICE_HOST", host).env("KUBERNETES_SERVICE_PORT", port);
        command
    }
}

impl Muster {
    pub(crate) fn start(directory: &Path, name: &str, arguments: &[&str]) -> Self {
        Self::start_in(None, directory, name, arguments)
    }

    /// The same in a pod.
    pub(crate) fn start_in(pod: Option<&Pod>, directory: &Path, name: &str, arguments: &[&str]) -> Self {
        let log = directory.join(format!("{name}.log"));
        let file = File::options().append(true).create(true).open(&log).unwrap();
        let mut command = pod.map_or_else(
            || {
                let mut command = Command::new(MUSTER);
                command.env_clear();
                command
            },
            Pod::command,
        );
        let mut child = command
            .args(["serve", "--listen", "127.0.0.1:0", "--set", FACTOR, "--bmc-allow", "127.0.0.0/8"])
            .args(["--set", "log.format=text"])
            .args(["--data-dir", directory.join(name).to_str().unwrap()])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let url = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("muster serves on ").map(str::to_owned));
        let Some(url) = url else {
            panic!("it does not serve: {}", std::fs::read_to_string(&log).unwrap_or_default());
        };
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url, log }
    }

    /// Sends it a signal, for example `STOP`.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([&format!("-{signal}"), &pid]).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot send {signal}");
    }

    /// How its name in an election begins.
    pub(crate) fn holder(&self) -> String {
        format!("muster-{}-", self.child.id())
    }

    /// Whether it has said so in its log.
    pub(crate) fn said(&self, text: &str) -> bool {
        std::fs::read_to_string(&self.log).is_ok_and(|log| log.contains(text))
    }

    fn log(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(300)..].join("\n")
    }
}

impl Drop for Muster {
    #[allow(clippy::print_stderr, reason = "a test that fails shows what its server said")]
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the last lines of {}:\n{}", self.log.display(), self.log());
        }
    }
}

/// What a story's servers are like.
pub(crate) struct Machines {
    pub(crate) count: u32,
    pub(crate) gpus: u32,
    /// Whether they are shown only when the node is annotated so, as by a device plugin that starts late.
    pub(crate) late_gpus: bool,
    pub(crate) boot: Duration,
    /// Labels and taints of the pool.
    pub(crate) labels: Value,
    pub(crate) taints: Value,
    /// Whether their nodes are recognised each by another rule: provider id, name, MAC address, label, and so on.
    pub(crate) every_rule: bool,
    /// What the pool's policy says beyond its defaults.
    pub(crate) policy: Value,
}

impl Default for Machines {
    fn default() -> Self {
        Self {
            count: 2,
            gpus: 0,
            late_gpus: false,
            boot: Duration::from_millis(500),
            labels: json!({}),
            taints: json!([]),
            every_rule: false,
            policy: json!({}),
        }
    }
}

impl Machines {
    /// The rule by which the node of a host is recognised, for the host's spec.
    fn rule(&self, name: &str, number: usize) -> Value {
        match number % 4 {
            2 if self.every_rule => json!({ "nodeMatch": { "by": "name" } }),
            3 if self.every_rule => json!({ "nodeMatch": { "by": "mac" }, "macAddress": mac(number) }),
            0 if self.every_rule => {
                json!({ "nodeMatch": { "by": "label", "value": format!("example.com/serial={name}-{number}") } })
            }
            _ => json!({}),
        }
    }

    /// What its kubelet says by itself so that it can be.
    fn recognised(&self, node: &mut NodeSpec, name: &str, number: usize) {
        node.provider_id = None;
        match number % 4 {
            2 if self.every_rule => {}
            3 if self.every_rule => {
                node.annotations.insert("muster.dev/mac-address".into(), mac(number));
            }
            0 if self.every_rule => {
                node.labels.insert("example.com/serial".into(), format!("{name}-{number}"));
            }
            _ => node.provider_id = Some(format!("muster://{name}/{name}-{number}")),
        }
    }
}

fn mac(number: usize) -> String {
    format!("02:00:00:00:00:{number:02x}")
}

/// One story's world. Its name is its namespace, its pool, and the beginning of its hosts' names.
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) cluster: &'static TestCluster,
    pub(crate) rack: Rack,
    pub(crate) muster: Option<Arc<Muster>>,
    pub(crate) arguments: Vec<String>,
    /// Where Muster runs in a pod.
    pod: Option<Pod>,
    pub(crate) directory: tempfile::TempDir,
    /// The pool's id.
    pub(crate) pool: String,
    http: reqwest::Client,
}

impl Story {
    /// Starts everything: a connected cluster that may act, a pool of servers that are off.
    pub(crate) async fn begin(name: &'static str, machines: Machines) -> Self {
        let mut story = Self::set(name, &machines, &[]).await;
        let kubeconfig = story.cluster.kubeconfig();
        story.create(&kubeconfig, &machines).await;
        story.muster(&["enable", "cluster", name]);
        story
    }

    /// Starts the parts, and registers nothing.
    pub(crate) async fn set(name: &'static str, machines: &Machines, arguments: &[&str]) -> Self {
        Self::set_on(TestCluster::shared(), name, machines, arguments).await
    }

    /// The same on a control plane of its own.
    pub(crate) async fn set_on(
        cluster: &'static TestCluster,
        name: &'static str,
        machines: &Machines,
        arguments: &[&str],
    ) -> Self {
        Self::set_in(cluster, name, machines, arguments, None).await
    }

    /// The same, and Muster runs in a pod of that cluster.
    pub(crate) async fn set_in(
        cluster: &'static TestCluster,
        name: &'static str,
        machines: &Machines,
        arguments: &[&str],
        pod: Option<Pod>,
    ) -> Self {
        let mut story = Self::alone(cluster, name, machines).await;
        story.arguments = arguments.iter().map(|one| (*one).to_owned()).collect();
        story.pod = pod;
        story.restart();
        story
    }

    /// The parts of another cluster that the same Muster serves.
    pub(crate) async fn beside(
        &self,
        cluster: &'static TestCluster,
        name: &'static str,
        machines: &Machines,
    ) -> Self {
        let mut story = Self::alone(cluster, name, machines).await;
        story.muster.clone_from(&self.muster);
        story
    }

    /// Everything but a Muster.
    async fn alone(cluster: &'static TestCluster, name: &'static str, machines: &Machines) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        cluster.kubectl(&["apply", "-f", "-"], &namespace.to_string());
        // As in any cluster, something runs on every node. A cluster without a single pod is not believed.
        let agent = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": { "name": format!("agent-{name}"), "namespace": "kube-system" },
            "spec": { "selector": { "matchLabels": { "agent": name } }, "template": {
                "metadata": { "labels": { "agent": name } },
                "spec": { "nodeSelector": { "nodepool": name }, "tolerations": [{ "operator": "Exists" }],
                    "containers": [{ "name": "c", "image": "none" }] } } } });
        cluster.kubectl(&["create", "-f", "-"], &agent.to_string());
        let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
        let boot = muster_model::Duration::from_millis(u64::try_from(machines.boot.as_millis()).unwrap());
        let layout = Layout {
            bmcs: machines.count,
            tls: true,
            timing: Timing { boot, ..Timing::default() },
            ..Layout::default()
        };
        let numbers = std::sync::atomic::AtomicUsize::new(1);
        let rack = Rack::start(&layout, &cluster.client().await, &clock, |_| {
            let number = numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut node = NodeSpec::new(format!("{name}-{number}"));
            machines.recognised(&mut node, name, number);
            node.renew = muster_model::Duration::from_millis(600);
            node.taints = vec![json!({"key": "muster.dev/startup", "effect": "NoSchedule"})];
            if machines.gpus > 0 {
                let devices = if machines.late_gpus { &mut node.devices } else { &mut node.capacity };
                devices.insert("nvidia.com/gpu".into(), machines.gpus.to_string());
            }
            node
        })
        .await
        .expect("emulated servers");
        Self {
            name,
            cluster,
            rack,
            muster: None,
            arguments: Vec::new(),
            pod: None,
            directory: tempfile::tempdir().unwrap(),
            pool: String::new(),
            http: reqwest::Client::new(),
        }
    }

    /// Starts Muster, after a kill -9 if it runs.
    pub(crate) fn restart(&mut self) {
        self.muster = None;
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let pod = self.pod.as_ref();
        self.muster = Some(Arc::new(Muster::start_in(pod, self.directory.path(), "muster", &arguments)));
    }

    pub(crate) fn server(&self) -> &Muster {
        self.muster.as_deref().expect("it runs")
    }

    /// Registers cluster, servers and pool as a person would.
    pub(crate) async fn create(&mut self, kubeconfig: &Path, machines: &Machines) {
        self.register(&["--kubeconfig", kubeconfig.to_str().unwrap()], machines).await;
        let cluster =
            self.get(&format!("/api/v1/clusters?name={}", self.name)).await["clusters"][0]["id"].clone();
        self.hides(kubeconfig, cluster.as_str().unwrap()).await;
    }

    /// The same with another way to the cluster.
    pub(crate) async fn register(&mut self, access: &[&str], machines: &Machines) {
        let name = self.name;
        let mut command = vec!["create", "cluster", name, "--platform", "baremetal"];
        command.extend(access);
        let said = self.muster(&command);
        assert!(
            ["https", "http"].iter().any(|way| said.contains(&format!("connected to {way}://127.0.0.1"))),
            "{said}"
        );
        assert!(said.contains("mode advise: decisions are recorded and shown"), "{said}");
        std::fs::write(self.directory.path().join("password"), "emulated\n").unwrap();
        let file = self.directory.path().join("password");
        let account = format!("bmc-{name}");
        self.muster(&[
            "create",
            "credential",
            &account,
            "--user",
            "admin",
            "--password-file",
            file.to_str().unwrap(),
        ]);
        for (number, bmc) in self.bmcs().into_iter().enumerate() {
            let mut resources = json!({ "cpu": "4", "memory": "8Gi" });
            if machines.gpus > 0 {
                resources["gpu"] = machines.gpus.into();
            }
            let mut host = json!({ "name": format!("{name}-{}", number + 1), "spec": {
                "powerInterface": "redfish", "mgmtAddress": bmc.address.to_string(), "pool": name,
                "bmcCredentials": account, "tlsVerify": "insecure", "resources": resources, "deadlines": {
                    "minOnTime": "10s", "minOffTime": "10s", "oppositeActionDelay": "10s",
                    "minPowerCycleInterval": "10s", "joinDeadline": "20m", "bootDeadline": "20m",
                    "notReadyDeadline": "10m", "drainDeadline": "20m", "leaseSilence": "50s",
                    "enrolDeadline": "5h", "cordonDeadline": "20m", "graceDeadline": "20m",
                    "confirmOffDeadline": "20m",
                },
            } });
            let rule = machines.rule(name, number + 1);
            host["spec"].as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
            self.post("/api/v1/hosts", &host).await;
        }
        let spec = json!({
            "platform": { "type": "baremetal", "baremetal": { "pool": name, "policy": machines.policy } },
            "autoscaling": { "enabled": true, "minNodes": 0, "maxNodes": machines.count,
                "scaleUpDelay": "1s", "scaleDownDelay": "1s" },
            "labels": machines.labels, "taints": machines.taints,
        });
        let cluster = self.get(&format!("/api/v1/clusters?name={name}")).await["clusters"][0]["id"].clone();
        let path = format!("/api/v1/clusters/{}/nodepools", cluster.as_str().unwrap());
        let pool = self.post(&path, &json!({ "name": name, "spec": spec })).await;
        self.pool = pool["id"].as_str().map(str::to_owned).unwrap();
    }

    /// What was handed in is in no answer, no export and no log.
    async fn hides(&self, kubeconfig: &Path, cluster: &str) {
        let text = std::fs::read_to_string(kubeconfig).unwrap();
        let long = |c: char| c.is_ascii_alphanumeric() || "+/=-_.".contains(c);
        let mut secrets: Vec<String> =
            text.split(|c: char| !long(c)).filter(|word| word.len() > 200).map(str::to_owned).collect();
        if let Some((_, rest)) = text.split_once("client-key: \"") {
            let key = std::fs::read(rest.split('"').next().unwrap()).unwrap();
            secrets.push(base64::engine::general_purpose::STANDARD.encode(key));
        }
        assert!(!secrets.is_empty(), "the kubeconfig holds keys or a token");
        let url = format!("{}/api/v1/store/export", self.server().url);
        let export =
            self.http.get(url).header("x-user-email", EMAIL).send().await.unwrap().text().await.unwrap();
        let connection = self.get(&format!("/api/v1/clusters/{cluster}/connection")).await.to_string();
        assert!(connection.contains("kubeconfig"), "{connection}");
        let log = std::fs::read_to_string(&self.server().log).unwrap();
        for secret in secrets {
            assert!(
                ![&export, &connection, &log].iter().any(|place| place.contains(&secret)),
                "a secret is told"
            );
        }
    }

    pub(crate) fn bmcs(&self) -> Vec<Arc<RedfishBmc>> {
        self.rack.fleet.bmcs().cloned().collect()
    }

    /// Everything that was asked of the machine's power, in order.
    pub(crate) fn resets(&self, number: usize) -> Vec<String> {
        self.bmcs()[number - 1].counters().resets
    }

    pub(crate) fn power(&self, number: usize) -> Power {
        self.bmcs()[number - 1].systems[0].machine.power()
    }

    /// Runs the command line; what it said on both streams.
    #[track_caller]
    pub(crate) fn muster(&self, arguments: &[&str]) -> String {
        let output = Command::new(MUSTER)
            .args(arguments)
            .env_clear()
            .env("HOME", self.directory.path())
            .env("MUSTER_SERVER", &self.server().url)
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "muster {arguments:?}: {said}");
        said.into_owned()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let url = format!("{}{path}", self.server().url);
        let answer = self.http.get(url).header("x-user-email", EMAIL).send().await;
        match answer {
            Ok(answer) => answer.json().await.unwrap_or(Value::Null),
            Err(_) => Value::Null,
        }
    }

    /// An answer that is no JSON; empty when there is none.
    pub(crate) async fn text(&self, path: &str) -> String {
        let url = format!("{}{path}", self.server().url);
        match self.http.get(url).header("x-user-email", EMAIL).send().await {
            Ok(answer) => answer.text().await.unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}{path}", self.server().url);
        let answer = self.http.post(url).header("x-user-email", EMAIL).json(body).send().await.unwrap();
        let status = answer.status();
        let answer: Value = answer.json().await.unwrap();
        assert!(status.is_success(), "{path}: {answer}");
        answer
    }

    /// Objects of the cluster, as JSON.
    pub(crate) fn kube(&self, arguments: &[&str]) -> Value {
        let mut all = vec!["-n", self.name];
        all.extend(arguments);
        all.extend(["-o", "json"]);
        serde_json::from_str(&self.cluster.kubectl(&all, "")).unwrap()
    }

    /// Applies a manifest in the story's namespace.
    pub(crate) fn apply(&self, manifest: &Value) {
        self.cluster.kubectl(&["-n", self.name, "apply", "-f", "-"], &manifest.to_string());
    }

    /// A Deployment whose pods ask for this much and go to the story's pool alone.
    pub(crate) fn deploy(&self, replicas: u32, requests: &Value, more: &Value) {
        let mut more = more.as_object().unwrap().clone();
        let annotations = more.remove("annotations").unwrap_or(json!({}));
        let mut pod = json!({
            "nodeSelector": { "nodepool": self.name }, "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "c", "image": "none", "resources": { "requests": requests, "limits": requests } }],
        });
        pod.as_object_mut().unwrap().extend(more);
        self.apply(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "app" }, "spec": {
                "replicas": replicas, "selector": { "matchLabels": { "app": "app" } },
                "template": { "metadata": { "labels": { "app": "app" }, "annotations": annotations }, "spec": pod },
            },
        }));
    }

    pub(crate) fn scale(&self, replicas: u32) {
        self.cluster
            .kubectl(&["-n", self.name, "scale", "deployment/app", &format!("--replicas={replicas}")], "");
    }

    /// Nodes on which the story's pods are ready, one for each.
    pub(crate) fn running(&self) -> Vec<String> {
        let pods = self.kube(&["get", "pods"]);
        let ready = |pod: &&Value| {
            pod["metadata"]["deletionTimestamp"].is_null()
                && pod["status"]["conditions"].as_array().is_some_and(|all| {
                    all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
                })
        };
        let all = pods["items"].as_array().unwrap();
        let mut nodes: Vec<String> = all
            .iter()
            .filter(ready)
            .map(|pod| pod["spec"]["nodeName"].as_str().unwrap().to_owned())
            .collect();
        nodes.sort();
        nodes
    }

    /// A node, or null.
    pub(crate) fn node(&self, number: usize) -> Value {
        let name = format!("{}-{number}", self.name);
        let found = self.cluster.kubectl(&["get", "node", &name, "--ignore-not-found", "-o", "json"], "");
        serde_json::from_str(&found).unwrap_or(Value::Null)
    }

    pub(crate) async fn host(&self, number: usize) -> Value {
        self.get(&format!("/api/v1/hosts/{}-{number}", self.name)).await
    }

    pub(crate) async fn phase(&self, number: usize) -> String {
        self.host(number).await["status"]["phase"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until one of the first two servers is in a phase, and says which.
    pub(crate) async fn either_in(&self, phase: &str) -> usize {
        self.until(&format!("a server is {phase}"), async || {
            for number in [1, 2] {
                if self.phase(number).await == phase {
                    return Some(number);
                }
            }
            None
        })
        .await
    }

    /// Waits until something is so.
    pub(crate) async fn until<T>(&self, what: &str, check: impl AsyncFnMut() -> Option<T>) -> T {
        self.until_within(LIMIT, what, check).await
    }

    /// Waits longer: for what Muster puts off on purpose.
    pub(crate) async fn until_within<T>(
        &self,
        limit: Duration,
        what: &str,
        mut check: impl AsyncFnMut() -> Option<T>,
    ) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = check().await {
                return found;
            }
            if began.elapsed() > limit {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let decisions = self.muster(&["get", "decisions", "-o", "wide"]);
        let hosts = self.muster(&["get", "hosts", "-o", "wide"]);
        let nodes = self.cluster.kubectl(&["get", "nodes", "-o", "wide"], "");
        let pods = self.cluster.kubectl(&["-n", self.name, "get", "pods", "-o", "wide"], "");
        let why = self.muster(&["explain", "node", &format!("{}-1", self.name)]);
        let link = self.muster(&["describe", "cluster", self.name]);
        panic!(
            "{}: waited too long until {what}\n{decisions}\n{hosts}\n{nodes}\n{pods}\n{why}\n{link}",
            self.name
        );
    }

    /// How often the planner has looked.
    async fn looks(&self) -> u64 {
        let text = self.text("/metrics").await;
        let line = text.lines().find_map(|line| line.strip_prefix("muster_planner_turns_total "));
        line.and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// Waits until the planner has looked so often that it would have acted on what it sees.
    pub(crate) async fn until_looked(&self) {
        let before = self.looks().await;
        let mut pokes = 0;
        self.until("the planner has looked again and again", async || {
            // Looks are for something: a cluster in which nothing happens is looked at every ten seconds.
            pokes += 1;
            let poke = format!("poke=x{pokes}");
            self.cluster.kubectl(&["annotate", "--overwrite", "namespace", self.name, &poke], "");
            (self.looks().await >= before + LOOKS).then_some(())
        })
        .await;
    }

    /// Waits until so many pods run, and says where.
    pub(crate) async fn until_running(&self, count: usize) -> Vec<String> {
        self.until(&format!("{count} pods run"), async || {
            let nodes = self.running();
            (nodes.len() == count).then_some(nodes)
        })
        .await
    }

    /// Waits until every host has been seen off.
    pub(crate) async fn until_idle(&self) {
        for number in 1..=self.bmcs().len() {
            self.until(&format!("host {number} rests"), async || {
                (self.phase(number).await == "idle").then_some(())
            })
            .await;
        }
    }
}

/// The kubeconfig of a service account, which must be there.
pub(crate) fn account(cluster: &TestCluster, namespace: &str, name: &str, directory: &Path) -> PathBuf {
    let token = cluster.kubectl(&["-n", namespace, "create", "token", name], "");
    let admin = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let lines: Vec<&str> = admin.lines().filter(|line| !line.starts_with("users:")).collect();
    let users = format!("users: [{{name: admin, user: {{token: \"{}\"}}}}]\n", token.trim());
    let path = directory.join(format!("{name}.kubeconfig"));
    std::fs::write(&path, format!("{}\n{users}", lines.join("\n"))).unwrap();
    path
}

/// Applies Muster's definitions and waits until they are served. `kubectl wait` gives up on one that says nothing yet.
pub(crate) async fn define(cluster: &TestCluster) {
    for definition in muster_kube::resources::definitions() {
        cluster.kubectl(&["apply", "--server-side", "-f", "-"], &definition.to_string());
    }
    let began = Instant::now();
    loop {
        let ours = ["get", "crd", "-l", "app.kubernetes.io/part-of=muster", "-o", "json"];
        let all: Value = serde_json::from_str(&cluster.kubectl(&ours, "")).unwrap();
        let all = all["items"].as_array().unwrap();
        if all.len() == 3 && all.iter().all(|one| condition(one, "Established")["status"] == "True") {
            return;
        }
        assert!(began.elapsed() < LIMIT, "the definitions are not served: {all:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A condition of an object, or null.
pub(crate) fn condition(object: &Value, kind: &str) -> Value {
    let all = object["status"]["conditions"].as_array();
    all.into_iter().flatten().find(|one| one["type"] == kind).cloned().unwrap_or(Value::Null)
}

/// Whether a node carries a taint.
pub(crate) fn has_taint(node: &Value, key: &str) -> bool {
    node["spec"]["taints"].as_array().is_some_and(|all| all.iter().any(|taint| taint["key"] == key))
}

impl Drop for Story {
    fn drop(&mut self) {
        // Before its servers: it should not see them vanish. The control plane goes on for the others, to whom nodes that
        // nobody plays any more would look like an outage.
        self.muster = None;
        let nodes: Vec<String> = (1..=self.bmcs().len()).map(|n| format!("{}-{n}", self.name)).collect();
        let mut command = vec!["delete", "node", "--ignore-not-found", "--wait=false"];
        command.extend(nodes.iter().map(String::as_str));
        // A control plane that is gone already needs no tidying.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.cluster.kubectl(&command, "")));
    }
}
