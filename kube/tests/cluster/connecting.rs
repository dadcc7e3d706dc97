//! Clusters by their credentials.

use std::sync::Arc;

use muster_emulate::cluster::TestCluster;
use muster_kube::{Clusters, Credentials, Options};
use muster_model::ClusterId;

use crate::support::{clock, view_with};

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_watched_once_until_its_credentials_change() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    let clusters = Clusters::new(clock(), Options::default());
    let id: ClusterId = "00000000-0000-4000-8000-000000000001".parse().unwrap();
    let file = Credentials::File { path: cluster.kubeconfig(), context: None };
    let first = clusters.connect(id, &file).await.unwrap();
    let again = clusters.connect(id, &file).await.unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    view_with(&first, "everything is in sync", |_| Some(())).await;

    let wrong = Credentials::File { path: cluster.kubeconfig(), context: Some("absent".into()) };
    let error = clusters.connect(id, &wrong).await.unwrap_err();
    assert_eq!(error.code(), "credentials");
    let text = error.to_string();
    assert!(text.contains("kubeconfig /") && text.contains("absent"), "{text}");
    assert!(Arc::ptr_eq(&clusters.get(id).unwrap(), &first), "the good connection stays");

    let named = Credentials::File { path: cluster.kubeconfig(), context: Some("test".into()) };
    let second = clusters.connect(id, &named).await.unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(clusters.disconnect(id) && clusters.get(id).is_none());

    let missing = Credentials::File { path: "/nonexistent/kubeconfig".into(), context: None };
    let text = clusters.connect(id, &missing).await.unwrap_err().to_string();
    assert!(text.starts_with("cannot reach a cluster with kubeconfig /nonexistent/kubeconfig: "), "{text}");
}
