//! Who a token belongs to, and what its bearer may do.

use std::collections::BTreeSet;

use muster_emulate::cluster::TestCluster;
use muster_kube::review::Reviewer;
use muster_model::{Project, identity::Role};

use crate::support::{connect, namespace};

#[tokio::test(flavor = "multi_thread")]
async fn a_token_names_its_bearer_and_rbac_names_the_roles() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "team-a");
    for account in ["everywhere", "in-project", "nobody"] {
        cluster.kubectl(&["-n", "team-a", "create", "serviceaccount", account], "");
    }
    cluster.kubectl(&["create", "-f", "-"], ROLES);
    let account = |name: &str| format!("system:serviceaccount:team-a:{name}");
    for verb in ["viewer", "auditor"] {
        cluster.until_allowed(&account("everywhere"), verb, "projects.muster.dev", None);
    }
    cluster.until_allowed(&account("in-project"), "operator", "projects.muster.dev", Some("team-a"));
    let token = |account: &str, audience: &str| {
        let audience = format!("--audience={audience}");
        cluster.kubectl(&["-n", "team-a", "create", "token", account, &audience], "").trim().to_owned()
    };
    let reviewer = Reviewer::new(connect(cluster).await, vec!["muster".into()]);
    let project: Project = "team-a".parse().unwrap();
    let review = async |token: &str| reviewer.review(token, Some(&project)).await.unwrap();

    let all = review(&token("everywhere", "muster")).await.expect("a good token");
    assert_eq!(all.user, "system:serviceaccount:team-a:everywhere");
    assert!(all.groups.contains(&"system:serviceaccounts:team-a".to_owned()), "{:?}", all.groups);
    assert_eq!(all.everywhere, BTreeSet::from([Role::Viewer, Role::Auditor]));

    let one = review(&token("in-project", "muster")).await.expect("a good token");
    assert!(one.everywhere.is_empty());
    assert_eq!(one.projects.get(&project), Some(&BTreeSet::from([Role::Operator])));
    let at_home = reviewer.review(&token("in-project", "muster"), None).await.unwrap().unwrap();
    assert_eq!((at_home.home.as_ref(), &at_home.projects), (Some(&project), &one.projects), "its namespace");
    let elsewhere: Project = "team-b".parse().unwrap();
    let there = reviewer.review(&token("in-project", "muster"), Some(&elsewhere)).await.unwrap().unwrap();
    assert!(there.projects.is_empty(), "a right in one project is none in another");

    let nobody = review(&token("nobody", "muster")).await.expect("known, but without a role");
    assert!(nobody.everywhere.is_empty() && nobody.projects.is_empty());
    assert_eq!(review(&token("everywhere", "somebody-else")).await, None, "not made for us");
    assert_eq!(review("not.a.token").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_let_in_while_the_cluster_cannot_be_asked() {
    let cluster = TestCluster::shared();
    let _alone = cluster.alone().await;
    let reviewer = Reviewer::new(connect(cluster).await, Vec::new());
    cluster.signal("kube-apiserver", "STOP");
    let answer = reviewer.review("any", None).await;
    cluster.signal("kube-apiserver", "CONT");
    let error = answer.expect_err("no answer is no yes");
    assert!(["timeout", "unreachable"].contains(&error.code()), "{error}");
}

const ROLES: &str = r"
apiVersion: v1
kind: List
items:
- {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: review-all},
   rules: [{apiGroups: [muster.dev], resources: [projects], verbs: [viewer, auditor]}]}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: review-all},
   roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: review-all},
   subjects: [{kind: ServiceAccount, name: everywhere, namespace: team-a}]}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: review-one, namespace: team-a},
   rules: [{apiGroups: [muster.dev], resources: [projects], verbs: [operator]}]}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: review-one, namespace: team-a},
   roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: review-one},
   subjects: [{kind: ServiceAccount, name: in-project, namespace: team-a}]}
";
