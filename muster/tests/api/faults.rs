//! API-N73 and API-N75: what holds when the server or its store dies.

use std::time::Duration;

use serde_json::json;

use crate::{
    harness::{Etcd, Server, World},
    status::watched,
};

/// Waits until something is so.
#[allow(clippy::disallowed_methods, reason = "a test waits for another process here")]
pub(crate) async fn until<F: Future<Output = bool>>(is_so: impl Fn() -> F) {
    for _ in 0..1_800 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it was not so after minutes");
}

/// Whatever was committed before the server died is delivered to whoever resumes after the restart.
async fn killed_between_write_and_publish(arguments: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), arguments);
    let user = World::new(&server.base, "killed").user();
    let cluster = user.cluster("c").await;
    let body = user.get("/api/v1/nodepools").await.expect(200).body;
    let start = body["revision"].as_str().unwrap().to_owned();
    let pool = user.pool(&cluster, "p").await;
    drop(server); // kill -9: nobody has been told of the pool
    let server = Server::start(directory.path(), arguments);
    let mut again = user.clone();
    again.world = World::new(&server.base, "killed");
    let events = watched(&again, &format!("resource_version={start}"), 1).await;
    assert_eq!((&events[0]["type"], &events[0]["object"]["id"]), (&json!("ADDED"), &json!(pool)));
}

#[tokio::test]
async fn api_n73_embedded_a_commit_is_delivered_after_a_crash() {
    killed_between_write_and_publish(&[]).await;
}

#[tokio::test]
async fn api_n73_etcd_a_commit_is_delivered_after_a_crash() {
    let etcd = Etcd::start();
    killed_between_write_and_publish(&["--store", &etcd.store()]).await;
}

#[tokio::test]
async fn api_n75_etcd_a_dead_store_is_503_and_the_process_lives() {
    let etcd = Etcd::start();
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--store", &etcd.store()]);
    let user = World::new(&server.base, "dead-store").user();
    let cluster = user.cluster("c").await;
    let pool = format!("/api/v1/nodepools/{}", user.pool(&cluster, "p").await);
    user.get("/readyz").await.expect(200);
    drop(etcd);
    user.get(&pool).await.refused(503, "UNAVAILABLE");
    user.get("/health").await.expect(200);
    user.get("/livez").await.expect(200);
    user.get("/readyz").await.refused(503, "UNAVAILABLE");
    user.post("/api/v1/clusters", &json!({"name": "d", "spec": {"platform": {"type": "gcp"}}}))
        .await
        .refused(503, "UNAVAILABLE");
}
