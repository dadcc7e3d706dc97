//! An etcd of three members that can be killed and started again one by one.

use std::{process::Command, sync::Mutex};

use super::process::Process;

pub(crate) struct Etcd {
    members: Vec<Mutex<Option<Process>>>,
    commands: Vec<Vec<String>>,
    endpoints: Vec<String>,
    binaries: String,
    directory: tempfile::TempDir,
}

impl Etcd {
    pub(crate) async fn three() -> Self {
        let built = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/peers/build.sh"))
            .args(["etcd", "etcdctl"])
            .output()
            .expect("scripts/peers/build.sh can be run");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let binaries = String::from_utf8(built.stdout).unwrap().trim().to_owned();
        let directory = tempfile::tempdir().unwrap();
        let listeners = muster_emulate::ports::take(6).unwrap();
        let url = |at: usize| format!("http://{}", listeners[at].local_addr().unwrap());
        let cluster = (0..3).map(|at| format!("m{at}={}", url(3 + at))).collect::<Vec<_>>().join(",");
        let commands: Vec<Vec<String>> = (0..3)
            .map(|at| {
                let flags = [
                    ("name", format!("m{at}")),
                    ("data-dir", directory.path().join(format!("m{at}")).display().to_string()),
                    ("listen-client-urls", url(at)),
                    ("advertise-client-urls", url(at)),
                    ("listen-peer-urls", url(3 + at)),
                    ("initial-advertise-peer-urls", url(3 + at)),
                    ("initial-cluster", cluster.clone()),
                    ("heartbeat-interval", "100".into()),
                    ("election-timeout", "1000".into()),
                    ("log-level", "error".into()),
                    // Nobody pulls the machine's plug here, and a disk that many share is slow.
                    ("unsafe-no-fsync", "true".into()),
                ];
                let flags = flags.into_iter().map(|(name, value)| format!("--{name}={value}"));
                std::iter::once(format!("{binaries}/etcd")).chain(flags).collect()
            })
            .collect();
        let endpoints = (0..3).map(|at| listeners[at].local_addr().unwrap().to_string()).collect();
        drop(listeners);
        let members = (0..3).map(|_| Mutex::new(None)).collect();
        let etcd = Self { members, commands, endpoints, binaries, directory };
        for at in 0..3 {
            etcd.start(at);
        }
        etcd.leading().await;
        etcd
    }

    pub(crate) fn store(&self) -> String {
        format!("etcd://{}", self.endpoints.join(","))
    }

    pub(crate) fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    pub(crate) fn start(&self, at: usize) {
        let command: Vec<&str> = self.commands[at].iter().map(String::as_str).collect();
        let log = self.directory.path().join(format!("m{at}.log"));
        let (process, _) = Process::start(&command, &[], &log);
        *self.members[at].lock().unwrap() = Some(process);
    }

    /// `kill -9`.
    pub(crate) fn kill(&self, at: usize) {
        drop(self.members[at].lock().unwrap().take());
    }

    /// The member that leads, once there is one.
    pub(crate) async fn leading(&self) -> usize {
        let mut found = None;
        super::eventually("a leader of etcd", async || {
            found = self.leader();
            found.is_some()
        })
        .await;
        found.unwrap()
    }

    /// Which member says that it leads now.
    fn leader(&self) -> Option<usize> {
        (0..3).find(|at| {
            let asked = Command::new(format!("{}/etcdctl", self.binaries))
                .args([&format!("--endpoints=http://{}", self.endpoints[*at]), "--command-timeout=2s"])
                .args(["endpoint", "status", "-w", "json"])
                .output()
                .unwrap();
            let Ok(answer) = serde_json::from_slice::<serde_json::Value>(&asked.stdout) else { return false };
            let status = &answer[0]["Status"];
            status["leader"].is_u64() && status["leader"] == status["header"]["member_id"]
        })
    }
}
