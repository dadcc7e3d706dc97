//! specs/operations.md §5.2: no host record makes Muster call itself, or what it depends on.

use std::net::{SocketAddr, TcpListener};

use serde_json::{Value, json};

use crate::harness::{Caller, Etcd, Reply, Server, World};

const OURS: &str = "of this control plane";

async fn discover(user: &Caller, address: &str) -> Reply {
    user.post("/api/v1/discover", &json!({ "address": address, "tlsVerify": "insecure" })).await
}

/// Somebody who listens and says nothing that a BMC would say.
fn somebody() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// What is connected is refused from then on.
#[allow(clippy::disallowed_methods, reason = "a test waits for another process here")]
async fn until_refused(user: &Caller, address: &str) {
    let mut said = String::new();
    for _ in 0..300 {
        discover(user, address).await.details().clone_into(&mut said);
        if said.contains(OURS) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    panic!("{address} is still called: {said}");
}

fn kubeconfig(server: SocketAddr) -> Value {
    json!(format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: 'http://{server}'}}}}]\n\
         contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\nusers: [{{name: a, user: {{}}}}]\n"
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_muster_nor_what_it_depends_on_is_called_as_a_bmc() {
    let (etcd, directory) = (Etcd::start(), tempfile::tempdir().unwrap());
    let server = Server::start(directory.path(), &["--store", &etcd.store(), "--bmc-allow", "127.0.0.0/8"]);
    let user = World::new(&server.base, "etcd").named("own@example.com");
    let listens = server.base.split_once("://").unwrap().1;
    // Itself, on the port that the system chose for it, and its store.
    for address in [listens, etcd.address.as_str()] {
        let address = address.split_once("://").map_or(address, |(_, rest)| rest);
        let reply = discover(&user, address).await.refused(409, "CONFLICT");
        assert!(reply.details().contains(OURS), "{address}: {}", reply.details());
    }
    // An API server, from when its cluster is connected until it is not.
    let (_listening, api_server) = somebody();
    let reply = discover(&user, &api_server.to_string()).await;
    assert!(!reply.details().contains(OURS), "{}", reply.details());
    let connection = format!("/api/v1/clusters/{}/connection", user.cluster("own").await);
    user.put(&connection, &json!({ "kubeconfig": kubeconfig(api_server) })).await.expect(200);
    until_refused(&user, &api_server.to_string()).await;
    // A Prometheus, from when the settings of all hosts name it.
    let (_listening, prometheus) = somebody();
    user.put("/api/v1/inventory/config", &json!({ "prometheusUrl": format!("http://{prometheus}/") }))
        .await
        .expect(200);
    until_refused(&user, &prometheus.to_string()).await;
    // Others on the same address are still called: emulators live there.
    let (_listening, other) = somebody();
    let reply = discover(&user, &other.to_string()).await;
    assert!(!reply.details().contains(OURS), "{}", reply.details());
}
