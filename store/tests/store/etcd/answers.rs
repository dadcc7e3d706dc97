//! Answers that never come, and requests that come too late: a write is carried out once all the same.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use muster_model::store::{Committed, Expect, Revision, Store, Txn, WatchEvent};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

use crate::support::cluster::{self, options, wait};

/// A network between client and member that loses answers and delays requests, on connections made so far.
#[derive(Debug)]
struct Network {
    address: String,
    connections: AtomicUsize,
    /// Connections below this number lose what the member says.
    muted: AtomicUsize,
    /// Connections below this number keep what the client says until released.
    held: AtomicUsize,
    released: watch::Sender<bool>,
}

impl Network {
    async fn before(member: &str) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let network = Arc::new(Self {
            address: listener.local_addr().expect("it is bound").to_string(),
            connections: AtomicUsize::new(0),
            muted: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            released: watch::Sender::new(false),
        });
        let (weak, member) = (Arc::downgrade(&network), member.to_owned());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Some(network) = weak.upgrade() else { return };
                let number = network.connections.fetch_add(1, Ordering::SeqCst);
                let server = TcpStream::connect(&member).await.expect("the member listens");
                let (client_reads, client_writes) = client.into_split();
                let (server_reads, server_writes) = server.into_split();
                tokio::spawn(Arc::clone(&network).requests(number, client_reads, server_writes));
                tokio::spawn(network.answers(number, server_reads, client_writes));
            }
        });
        network
    }

    async fn requests(self: Arc<Self>, number: usize, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            if number < self.held.load(Ordering::SeqCst) {
                // The whole request, and not yet that the client gives up on it a second later.
                let mut request = buffer[..length].to_vec();
                while let Ok(Ok(length @ 1..)) =
                    tokio::time::timeout(Duration::from_millis(300), from.read(&mut buffer)).await
                {
                    request.extend_from_slice(&buffer[..length]);
                }
                let _ = self.released.subscribe().wait_for(|released| *released).await;
                let _ = to.write_all(&request).await;
                // Before what takes it back: a late request is one that nobody waits for any more.
                wait(Duration::from_millis(500)).await;
            } else if to.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    }

    async fn answers(self: Arc<Self>, number: usize, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let muted = number < self.muted.load(Ordering::SeqCst).max(self.held.load(Ordering::SeqCst));
            if !muted && to.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    }

    /// Everything up to now.
    fn all(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn done(committed: Committed) -> Revision {
    match committed {
        Committed::Done { revision } => revision,
        refused @ Committed::Refused { .. } => panic!("{refused:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_without_an_answer_is_found_not_repeated() {
    let cluster = cluster::shared().await;
    let _alone = cluster::alone().await;
    let root = "/unanswered".to_owned();
    let network = Network::before(&cluster.endpoints[0]).await;
    let with = muster_store::etcd::Options { root, ..options() };
    let through = muster_store::etcd::Etcd::open(std::slice::from_ref(&network.address), with.clone())
        .await
        .expect("it opens");
    let direct = cluster.open(with).await;
    let start = done(through.commit(Txn::new().put("/n", "0")).await.expect("it commits"));
    let mut wanted = Vec::new();
    for n in 1..=3_u32 {
        network.muted.store(network.all(), Ordering::SeqCst);
        let revision = done(through.commit(Txn::new().put("/n", n.to_string())).await.expect("it finds out"));
        wanted.push((revision, Some(n.to_string())));
    }
    // The same with what compares, and with what deletes.
    network.muted.store(network.all(), Ordering::SeqCst);
    let last = wanted.last().map(|(revision, _)| *revision).expect("there were three");
    let txn = Txn::new().expect("/n", Expect::Modified(last)).put("/n", "4");
    wanted.push((done(through.commit(txn).await.expect("it finds out")), Some("4".to_owned())));
    network.muted.store(network.all(), Ordering::SeqCst);
    wanted.push((done(through.commit(Txn::new().delete("/n")).await.expect("it finds out")), None));

    let mut watch = direct.watch("/n", start).await.expect("it watches");
    let end = done(direct.commit(Txn::new().put("/n/end", "x")).await.expect("it commits"));
    let mut heard = Vec::new();
    loop {
        let event = tokio::time::timeout(Duration::from_mins(1), watch.next()).await.expect("it goes on");
        let WatchEvent::Changes(changes) = event.expect("it goes on").expect("it does not fail") else {
            continue;
        };
        if changes[0].revision == end {
            break;
        }
        let value = changes[0].entry.as_ref().map(|entry| String::from_utf8_lossy(&entry.value).into_owned());
        heard.push((changes[0].revision, value));
    }
    assert_eq!(heard, wanted, "each was carried out once, at the revision that was told");
    through.close().await.expect("it closes");
    direct.close().await.expect("it closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_comes_too_late_does_nothing() {
    let cluster = cluster::shared().await;
    let _alone = cluster::alone().await;
    let network = Network::before(&cluster.endpoints[0]).await;
    let with = muster_store::etcd::Options { root: "/late".to_owned(), ..options() };
    let through = muster_store::etcd::Etcd::open(std::slice::from_ref(&network.address), with.clone())
        .await
        .expect("it opens");
    done(through.commit(Txn::new().put("/n", "0")).await.expect("it commits"));
    network.held.store(network.all(), Ordering::SeqCst);
    done(through.commit(Txn::new().put("/n", "1")).await.expect("the second copy gets through"));
    let second = done(through.commit(Txn::new().put("/n", "2")).await.expect("it commits"));
    network.released.send_replace(true);
    // Time for the late copy to arrive, be judged, and be answered to nobody.
    wait(Duration::from_secs(2)).await;
    let entry = through.get("/n").await.expect("it reads").expect("it is there");
    assert_eq!((entry.modified, &*entry.value), (second, &b"2"[..]), "a late copy was carried out");
    through.close().await.expect("it closes");
}
