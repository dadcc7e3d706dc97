//! A real Kubernetes control plane for tests, on loopback: `scripts/cluster/cluster.sh` behind a handle.
//!
//! It ends with the handle, and also when the program that holds it dies without dropping it: the script stops
//! everything when its standard input ends.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What to start beside etcd, the API server, the controller manager and the scheduler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Nodes {
    /// None: whoever needs nodes brings a [`Kubelet`](crate::kubelet::Kubelet).
    #[default]
    Own,
    /// kwok plays the kubelet of nodes annotated `kwok.x-k8s.io/node=fake`.
    Kwok,
}

/// A running control plane.
#[derive(Debug)]
pub struct TestCluster {
    directory: PathBuf,
    child: Child,
    /// The script ends when this does.
    stdin: Option<ChildStdin>,
    quiet: RwLock<()>,
}

impl TestCluster {
    /// Starts one and waits until pods can be made. Builds the programs first, when they are missing.
    pub fn start(nodes: Nodes) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("muster-cluster-{}-{number}", std::process::id()));
        let log = directory.with_extension("log");
        let mut child = Command::new(script())
            .arg("run")
            .arg(&directory)
            .env("KWOK", if nodes == Nodes::Kwok { "yes" } else { "no" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("it was piped a moment ago");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let cluster = Self { directory, child, stdin, quiet: RwLock::new(()) };
        let said = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(&log); // it is of no use to anyone but us
        if line.trim() == "ready" {
            return Ok(cluster);
        }
        Err(io::Error::other(format!("the test cluster did not start:\n{said}")))
    }

    /// The one cluster that the tests of a program share. It is started by whoever asks first, and ends with
    /// the program.
    ///
    /// # Panics
    /// When it cannot be started: a test that needs it fails, it does not skip.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<TestCluster> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(Nodes::Own).expect("the test cluster starts"))
    }

    /// For tests that need an API server that behaves. They run side by side.
    pub async fn in_peace(&self) -> RwLockReadGuard<'_, ()> {
        self.quiet.read().await
    }

    /// For tests that stop or restart parts of the cluster. They run alone.
    pub async fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.quiet.write().await
    }

    /// An administrator's.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.join("admin.kubeconfig")
    }

    /// A client with an administrator's rights, for [`Kubelet`](crate::kubelet::Kubelet)s.
    ///
    /// # Panics
    /// When the kubeconfig cannot be used.
    pub async fn client(&self) -> kube::Client {
        let file = kube::config::Kubeconfig::read_from(self.kubeconfig()).expect("written when it started");
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(file, &options).await.expect("it is complete");
        kube::Client::try_from(config).expect("it is complete")
    }

    /// Runs kubectl as an administrator, with `input` on its standard input.
    ///
    /// # Panics
    /// When it fails, with what it said.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        let (succeeded, said) = self.try_kubectl(arguments, input);
        assert!(succeeded, "kubectl {arguments:?}: {said}");
        said
    }

    /// The same where it may fail: whether it succeeded, and what it wrote: results then, else also what it complained of.
    ///
    /// # Panics
    /// When it cannot be run.
    pub fn try_kubectl(&self, arguments: &[&str], input: &str) -> (bool, String) {
        use io::Write;
        let programs = fs::read_to_string(self.directory.join("bin")).expect("written when it started");
        let mut child = Command::new(Path::new(programs.trim()).join("kubectl"))
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl was built");
        let mut stdin = child.stdin.take().expect("it was piped a moment ago");
        stdin.write_all(input.as_bytes()).expect("kubectl reads its input");
        drop(stdin);
        let output = child.wait_with_output().expect("kubectl ends");
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            said.push_str(&String::from_utf8_lossy(&output.stderr));
        }
        (output.status.success(), said)
    }

    /// Waits until a right that was given has come to the authorizer: it learns of roles a moment after they are written.
    /// `resource` is with its group, as in `projects.muster.dev`; without a namespace the right is one everywhere.
    ///
    /// # Panics
    /// When that takes minutes.
    pub fn until_allowed(&self, user: &str, verb: &str, resource: &str, namespace: Option<&str>) {
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let mut attributes = serde_json::json!({ "verb": verb, "group": group, "resource": resource });
        if let Some(namespace) = namespace {
            attributes["namespace"] = namespace.into();
        }
        let review = serde_json::json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": { "user": user, "resourceAttributes": attributes } });
        for _ in 0..600 {
            let answer =
                self.kubectl(&["create", "-f", "-", "-o", "jsonpath={.status.allowed}"], &review.to_string());
            if answer.trim() == "true" {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{user} may not {verb} {resource}");
    }

    /// What service accounts in the namespace `audited` asked the API server for, one JSON object per request.
    ///
    /// # Panics
    /// When the log cannot be read.
    pub fn audited(&self) -> String {
        fs::read_to_string(self.directory.join("log/audit.log")).expect("the API server writes it")
    }

    /// Sends a signal to one component, for example `STOP` to `kube-apiserver`.
    ///
    /// # Panics
    /// When there is no such component.
    pub fn signal(&self, component: &str, signal: &str) {
        let pid = fs::read_to_string(self.directory.join("pid").join(component)).expect("a component's name");
        let status = Command::new("kill").arg(format!("-{signal}")).arg(pid.trim()).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot send {signal} to {component}");
    }

    /// Kills one component with -9 and starts it again; an API server is waited for.
    ///
    /// # Panics
    /// When it does not come back.
    pub fn restart(&self, component: &str) {
        self.restart_with(component, &[]);
    }

    /// The same with these flags on top, which stay for later restarts.
    ///
    /// # Panics
    /// When it does not come back.
    pub fn restart_with(&self, component: &str, flags: &[&str]) {
        self.script("restart", &[&[component], flags].concat());
    }

    /// Makes etcd forget everything but the present. An API server that is started after this answers 410 to whoever
    /// goes on from before it.
    ///
    /// # Panics
    /// When etcd cannot be reached.
    pub fn forget(&self) {
        self.script("forget", &[]);
    }

    fn script(&self, verb: &str, arguments: &[&str]) {
        let status = Command::new(script())
            .arg(verb)
            .arg(&self.directory)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        assert!(status.is_ok_and(|status| status.success()), "cluster.sh {verb} {arguments:?} failed");
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/cluster/cluster.sh")
}
