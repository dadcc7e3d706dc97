//! Real etcd members on loopback, killed when the test is over.

use std::{
    fs::File,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use muster_store::etcd::{Etcd, Options};

use super::scratch;

/// Where etcd and etcdctl are; built on first use.
pub(crate) fn peers() -> &'static Path {
    static PEERS: OnceLock<PathBuf> = OnceLock::new();
    PEERS.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/peers/build.sh");
        let output = Command::new(&script)
            .args(["etcd", "etcdctl"])
            .stderr(Stdio::inherit())
            .output()
            .expect("the script that builds test peers can be run");
        assert!(output.status.success(), "{} failed", script.display());
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    })
}

/// The etcd under test: `MUSTER_TEST_ETCD` names another one, for trying older versions by hand.
#[allow(clippy::disallowed_methods, reason = "the test harness is its own rim")]
fn etcd() -> PathBuf {
    std::env::var("MUSTER_TEST_ETCD").map_or_else(|_| peers().join("etcd"), PathBuf::from)
}

/// Files for TLS: a server certificate, its key, and the authority that clients must be signed by.
#[derive(Debug, Clone)]
pub(crate) struct ServerTls {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) ca: PathBuf,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Setup {
    pub(crate) members: usize,
    pub(crate) tls: Option<ServerTls>,
    pub(crate) arguments: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Cluster {
    members: Vec<Mutex<Member>>,
    pub(crate) endpoints: Vec<String>,
    _dir: tempfile::TempDir,
}

#[derive(Debug)]
struct Member {
    command: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Member {
    fn start(&mut self) {
        let log = File::options().create(true).append(true).open(&self.log).expect("a log can be written");
        let child = Command::new(&self.command[0])
            .args(&self.command[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd starts");
        self.child = Some(child);
    }

    fn signal(&self, signal: &str) {
        let child = self.child.as_ref().expect("the member runs");
        let status = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(status.expect("kill can be run").success());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Ports that were free a moment ago, below those that the kernel gives to clients: a member that comes back must find its
/// port free, also while somebody keeps connecting to it.
fn free_ports(count: usize) -> Vec<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(131);
    let mut ports = Vec::new();
    while ports.len() < count {
        let place = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        let port = u16::try_from(10_000 + place).expect("below 30,000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            ports.push(port);
        }
    }
    ports
}

impl Cluster {
    /// Three members without TLS.
    pub(crate) async fn three() -> Self {
        Self::start(Setup { members: 3, ..Setup::default() }).await
    }

    pub(crate) async fn start(setup: Setup) -> Self {
        // A port may be taken between looking and binding; then everything is tried again.
        for _ in 0..3 {
            let cluster = Self::launch(&setup);
            if cluster.healthy(&setup).await {
                return cluster;
            }
        }
        panic!("etcd did not come up three times in a row");
    }

    fn launch(setup: &Setup) -> Self {
        let dir = scratch();
        let ports = free_ports(setup.members * 2);
        let (clients, peers) = ports.split_at(setup.members);
        let names: Vec<String> =
            peers.iter().enumerate().map(|(n, port)| format!("m{n}=http://127.0.0.1:{port}")).collect();
        let scheme = if setup.tls.is_some() { "https" } else { "http" };
        let members = (0..setup.members).map(|n| {
            let client = format!("{scheme}://127.0.0.1:{}", clients[n]);
            let peer = format!("http://127.0.0.1:{}", peers[n]);
            let data = dir.path().join(format!("m{n}")).display().to_string();
            let mut command = vec![etcd().display().to_string()];
            let mut flag = |name: &str, value: &str| command.push(format!("--{name}={value}"));
            flag("name", &format!("m{n}"));
            flag("data-dir", &data);
            flag("listen-client-urls", &client);
            flag("advertise-client-urls", &client);
            flag("listen-peer-urls", &peer);
            flag("initial-advertise-peer-urls", &peer);
            flag("initial-cluster", &names.join(","));
            flag("initial-cluster-state", "new");
            flag("heartbeat-interval", "100");
            flag("election-timeout", "1000");
            flag("log-level", "warn");
            // Nobody pulls the machine's plug here, and a disk that many share is slow.
            flag("unsafe-no-fsync", "true");
            if let Some(tls) = &setup.tls {
                flag("cert-file", &tls.certificate.display().to_string());
                flag("key-file", &tls.key.display().to_string());
                flag("trusted-ca-file", &tls.ca.display().to_string());
                flag("client-cert-auth", "true");
            }
            command.extend(setup.arguments.iter().cloned());
            let log = dir.path().join(format!("m{n}.log"));
            let mut member = Member { command, log, child: None };
            member.start();
            Mutex::new(member)
        });
        let endpoints = clients.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        Self { members: members.collect(), endpoints, _dir: dir }
    }

    async fn healthy(&self, setup: &Setup) -> bool {
        for _ in 0..300 {
            let ready = if setup.tls.is_some() {
                // Whether it answers is for the test to see; here it is enough that it listens.
                self.endpoints.iter().all(|endpoint| std::net::TcpStream::connect(endpoint).is_ok())
            } else {
                self.try_open(Options { call_timeout: Duration::from_secs(1), ..options() }).await
            };
            if ready {
                return true;
            }
            if self.members.iter().any(|member| exited(&mut lock(member))) {
                return false;
            }
            wait(Duration::from_millis(100)).await;
        }
        false
    }

    async fn try_open(&self, options: Options) -> bool {
        for endpoint in &self.endpoints {
            let one = std::slice::from_ref(endpoint);
            match Etcd::open(one, options.clone()).await {
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        true
    }

    pub(crate) async fn open(&self, options: Options) -> Etcd {
        Etcd::open(&self.endpoints, options).await.expect("the cluster can be opened")
    }

    /// Ends a member without warning.
    pub(crate) fn kill(&self, n: usize) {
        let mut member = lock(&self.members[n]);
        let mut child = member.child.take().expect("the member runs");
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }

    /// Starts a member that was killed, with its data.
    pub(crate) fn restart(&self, n: usize) {
        lock(&self.members[n]).start();
    }

    /// Stops a member where it stands (SIGSTOP): its connections stay, nothing answers.
    pub(crate) fn freeze(&self, n: usize) {
        lock(&self.members[n]).signal("-STOP");
    }

    pub(crate) fn thaw(&self, n: usize) {
        lock(&self.members[n]).signal("-CONT");
    }

    /// What etcd's own tool says. Panics when it fails.
    pub(crate) fn etcdctl(&self, arguments: &[&str]) -> String {
        let output = Command::new(peers().join("etcdctl"))
            .args(["--endpoints", &self.endpoints.join(","), "--command-timeout=30s"])
            .args(arguments)
            .env("ETCDCTL_API", "3")
            .output()
            .expect("etcdctl can be run");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "etcdctl {arguments:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The member that leads.
    pub(crate) async fn leader(&self) -> usize {
        for _ in 0..300 {
            for (n, endpoint) in self.endpoints.iter().enumerate() {
                let output = Command::new(peers().join("etcdctl"))
                    .args([
                        "--endpoints",
                        endpoint,
                        "--command-timeout=2s",
                        "endpoint",
                        "status",
                        "-w",
                        "json",
                    ])
                    .env("ETCDCTL_API", "3")
                    .output()
                    .expect("etcdctl can be run");
                let Ok(status) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
                    continue;
                };
                let status = &status[0]["Status"];
                if status["leader"].is_u64() && status["leader"] == status["header"]["member_id"] {
                    return n;
                }
            }
            wait(Duration::from_millis(100)).await;
        }
        panic!("no member leads");
    }
}

fn lock(member: &Mutex<Member>) -> MutexGuard<'_, Member> {
    member.lock().unwrap_or_else(PoisonError::into_inner)
}

fn exited(member: &mut Member) -> bool {
    member.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))))
}

/// Options with times for tests: the same proportions, sooner.
pub(crate) fn options() -> Options {
    Options {
        connect_timeout: Duration::from_secs(1),
        attempt_timeout: Duration::from_secs(1),
        call_timeout: Duration::from_secs(20),
        ..Options::default()
    }
}

#[allow(clippy::disallowed_methods, reason = "waits between looks at a real process")]
pub(crate) async fn wait(length: Duration) {
    tokio::time::sleep(length).await;
}

/// One cluster for all tests that run at the same time and do it no harm.
pub(crate) async fn shared() -> Arc<Cluster> {
    static SHARED: tokio::sync::Mutex<Weak<Cluster>> = tokio::sync::Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(cluster) = shared.upgrade() {
        return cluster;
    }
    let cluster = Arc::new(Cluster::three().await);
    *shared = Arc::downgrade(&cluster);
    cluster
}

/// Held by a test that looks at revisions, which the whole cluster shares.
pub(crate) async fn alone() -> tokio::sync::MutexGuard<'static, ()> {
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    ALONE.lock().await
}
