//! A wire to the API server that can be cut: bytes pass as they are, TLS and all.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// Ends when dropped.
pub(crate) struct Wire {
    address: SocketAddr,
    server: String,
    pub(crate) cuts: Arc<AtomicU64>,
    severed: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Wire {
    /// Every connection is cut after this time.
    pub(crate) async fn start(kubeconfig: &Path, cut_after: Duration) -> Self {
        let text = std::fs::read_to_string(kubeconfig).unwrap();
        let (_, rest) = text.split_once("https://").expect("a server");
        let server: String = rest.chars().take_while(|c| c.is_ascii_digit() || ".:".contains(*c)).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cuts = Arc::new(AtomicU64::new(0));
        let severed = Arc::new(AtomicBool::new(false));
        let (upstream, counter, broken) = (server.clone(), Arc::clone(&cuts), Arc::clone(&severed));
        let task = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                if broken.load(Ordering::Relaxed) {
                    continue;
                }
                let (upstream, counter) = (upstream.clone(), Arc::clone(&counter));
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(&upstream).await else { return };
                    let pass = tokio::io::copy_bidirectional(&mut near, &mut far);
                    if tokio::time::timeout(cut_after, pass).await.is_err() {
                        counter.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        Self { address, server, cuts, severed, task }
    }

    /// From now on nobody gets through; what passes is cut when its time is over.
    pub(crate) fn sever(&self) {
        self.severed.store(true, Ordering::Relaxed);
    }

    /// A kubeconfig that leads through the wire.
    pub(crate) fn kubeconfig(&self, original: &Path, directory: &Path) -> PathBuf {
        let text = std::fs::read_to_string(original).unwrap();
        let path = directory.join("wire.kubeconfig");
        std::fs::write(&path, text.replace(&self.server, &self.address.to_string())).unwrap();
        path
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}
