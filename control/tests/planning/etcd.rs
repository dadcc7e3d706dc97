//! One real etcd member on loopback, killed when the test is over.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use muster_model::store::Store;
use muster_store::etcd::{Etcd, Options};

/// A member that does not outlive its test.
#[derive(Debug)]
pub(crate) struct Member {
    child: Child,
    endpoint: String,
    _directory: tempfile::TempDir,
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/peers/build.sh");
    let output = Command::new(&script).args(["etcd", "etcdctl"]).stderr(Stdio::inherit()).output();
    let output = output.expect("the script that builds test peers can be run");
    assert!(output.status.success(), "{} failed", script.display());
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).join("etcd")
}

fn launch() -> Member {
    let directory = tempfile::tempdir().unwrap();
    let free = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (client, peer) = (free(), free());
    let url = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
    let (client_url, peer_url) = (url(&client), url(&peer));
    let endpoint = client.local_addr().unwrap().to_string();
    drop((client, peer));
    let child = Command::new(program())
        .arg(format!("--data-dir={}", directory.path().join("data").display()))
        .args([format!("--listen-client-urls={client_url}"), format!("--advertise-client-urls={client_url}")])
        .args([format!("--listen-peer-urls={peer_url}"), format!("--initial-advertise-peer-urls={peer_url}")])
        .args([format!("--initial-cluster=default={peer_url}"), "--log-level=error".to_owned()])
        // Nobody pulls the machine's plug here, and a disk that many share is slow.
        .arg("--unsafe-no-fsync")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd starts");
    Member { child, endpoint, _directory: directory }
}

/// A store on a fresh member. A port may be taken between looking and binding; then all is tried again.
#[allow(clippy::disallowed_methods, reason = "a test waits for a real process")]
pub(crate) async fn store() -> (Arc<dyn Store>, Member) {
    for _ in 0..3 {
        let mut member = launch();
        for _ in 0..600 {
            if let Ok(store) = Etcd::open(std::slice::from_ref(&member.endpoint), Options::default()).await {
                return (Arc::new(store), member);
            }
            if member.child.try_wait().unwrap().is_some() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
    panic!("etcd did not come up three times in a row");
}
