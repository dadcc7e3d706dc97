//! Fake kubelets on a real control plane: power and Kubernetes agree, as the adapter sees them.

use std::sync::Arc;

use muster_emulate::{
    Machine, Power, Timing,
    cluster::TestCluster,
    kubelet::{Kubelet, NodeSpec, STOP_AFTER},
    rack::Rack,
    redfish::Layout,
};
use muster_model::{
    Duration,
    host::{BareMetalNodeSpec, MAC_KEY, MatchBy, PowerInterface, node_of},
    k8s::Node,
    observe::{Acted, ClusterPort, ClusterView, NodeAction},
};

use crate::{
    proxy::raw_client,
    support::{clock, namespace, until, view_with, watch},
};

fn node<'a>(view: &'a ClusterView, name: &str) -> Option<&'a Node> {
    view.objects.nodes.iter().find(|node| node.name() == name)
}

fn is_ready(node: &Node) -> bool {
    node.status.condition("Ready").is_some_and(|condition| &*condition.status == "True")
}

#[tokio::test(flavor = "multi_thread")]
async fn bm_e3_a_node_is_joined_by_its_boot_and_its_lease_not_by_ready_alone() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "kubelet");
    let kube = watch(cluster).await;
    let timing = Timing { boot: Duration::from_millis(500), ..Timing::default() };
    let machine = Machine::new(clock(), timing);
    let mut spec = NodeSpec::new("metal-1");
    spec.provider_id = Some("muster://rack-1/srv-1".into());
    spec.renew = Duration::from_secs(1);
    spec.taints = vec![serde_json::json!({"key": "muster.dev/startup", "effect": "NoSchedule"})];
    let _kubelet = Kubelet::start(raw_client(cluster).await, Arc::clone(&machine), spec, clock());
    let (view, ()) = view_with(&kube, "everything is in sync", |_| Some(())).await;
    assert!(node(&view, "metal-1").is_none(), "a machine without power has not joined");

    machine.switch_on();
    let (view, first) = view_with(&kube, "the node has joined", |view| {
        let node = node(view, "metal-1")?;
        (is_ready(node) && view.renewed.contains_key("metal-1"))
            .then(|| node.status.node_info.boot_id.clone())
    })
    .await;
    assert_eq!(*first, *machine.look().boot_id);
    let host = BareMetalNodeSpec::new("p", PowerInterface::Redfish);
    let found = node_of("srv-1", &host, &view.objects.nodes).unwrap();
    assert_eq!(found.map(Node::name), Some("metal-1"), "by its provider id");

    // The scheduler places a pod once the startup taint is gone.
    cluster.kubectl(&["-n", "kubelet", "create", "-f", "-"], DEPLOYMENT);
    assert_eq!(
        kube.act("metal-1", &NodeAction::RemoveTaint { key: "muster.dev/startup".into() }).await,
        Ok(Acted::Done)
    );
    let (_, pod) = view_with(&kube, "its pod runs there", |view| {
        let mut pods = view.objects.pods.iter().filter(|pod| &*pod.metadata.namespace == "kubelet");
        let running =
            pods.find(|pod| pod.status.condition("Ready").is_some_and(|one| &*one.status == "True"))?;
        (running.spec.node_name.as_deref() == Some("metal-1")).then(|| running.clone())
    })
    .await;

    // Power goes: the lease ends, node and pod stay, and the node still says Ready.
    machine.cut();
    let off = clock().now();
    until("no lease is renewed any more", || async {
        let view = kube.view().unwrap();
        let renewed = view.renewed["metal-1"];
        (clock().now().since(renewed) > Duration::from_secs(3)).then_some(())
    })
    .await;
    let view = kube.view().unwrap();
    assert!(view.renewed["metal-1"] <= off.saturating_add(Duration::from_secs(1)));
    let stale = node(&view, "metal-1").expect("the node object stays");
    assert!(is_ready(stale) && stale.status.node_info.boot_id == first, "a stale node looks alive");
    assert!(view.objects.pods.iter().any(|one| one.metadata.uid == pod.metadata.uid), "its pods stay");

    machine.switch_on();
    let (view, second) = view_with(&kube, "it has joined again", |view| {
        let boot = &node(view, "metal-1")?.status.node_info.boot_id;
        (*boot != first && view.renewed["metal-1"] > off).then(|| boot.clone())
    })
    .await;
    assert_eq!(*second, *machine.look().boot_id);
    assert!(node(&view, "metal-1").is_some_and(is_ready));
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_f9_an_evicted_pod_is_gone_only_after_its_grace() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "grace");
    let kube = watch(cluster).await;
    let machine = Machine::new(clock(), Timing { boot: Duration::from_millis(100), ..Timing::default() });
    let spec = NodeSpec::new("metal-2");
    let _kubelet = Kubelet::start(raw_client(cluster).await, Arc::clone(&machine), spec, clock());
    machine.switch_on();
    let slow = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"slow","namespace":"grace","annotations":{{"{STOP_AFTER}":"4"}}}},
        "spec":{{"nodeName":"metal-2","terminationGracePeriodSeconds":30,"containers":[{{"name":"c","image":"none"}}]}}}}"#
    );
    cluster.kubectl(&["create", "-f", "-"], &slow);
    let (_, pod) = view_with(&kube, "it runs", |view| {
        let mut pods = view.objects.pods.iter();
        pods.find(|pod| &*pod.metadata.name == "slow" && pod.status.condition("Ready").is_some()).cloned()
    })
    .await;
    let watch = clock();
    let asked = watch.monotonic();
    let evict = NodeAction::Evict { pod: pod.key(), uid: pod.metadata.uid.to_string(), grace_seconds: None };
    assert_eq!(kube.act("metal-2", &evict).await, Ok(Acted::Done));
    view_with(&kube, "it is terminating and still there", |view| {
        view.objects
            .pods
            .iter()
            .any(|one| one.metadata.uid == pod.metadata.uid && one.is_terminating())
            .then_some(())
    })
    .await;
    view_with(&kube, "it is gone", |view| {
        (!view.objects.pods.iter().any(|one| one.metadata.uid == pod.metadata.uid)).then_some(())
    })
    .await;
    let took = watch.monotonic().saturating_sub(asked);
    assert!(took >= Duration::from_secs(3), "an accepted eviction is not a pod that is gone: {took}");
    assert_eq!(machine.power(), Power::On);
}

/// Asks a BMC to switch its machine, as a driver would.
async fn reset(rack: &Rack, kind: &str) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let bmc = rack.fleet.first();
    let body = format!(r#"{{"ResetType":"{kind}"}}"#);
    // The account is admin:emulated.
    let request = format!(
        "POST /redfish/v1/Systems/{}/Actions/ComputerSystem.Reset HTTP/1.1\r\nHost: bmc\r\nConnection: close\r\n\
         Authorization: Basic YWRtaW46ZW11bGF0ZWQ=\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        bmc.systems[0].id,
        body.len(),
    );
    let mut stream = tokio::net::TcpStream::connect(bmc.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_switched_on_over_redfish_becomes_a_node() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    let kube = watch(cluster).await;
    let layout = Layout {
        timing: Timing { boot: Duration::from_millis(300), ..Timing::default() },
        ..Layout::default()
    };
    let rack = Rack::start(&layout, &raw_client(cluster).await, &clock(), |system| {
        let mut spec = NodeSpec::new("racked-1");
        spec.annotations.insert(MAC_KEY.into(), system.mac.clone());
        spec.renew = Duration::from_secs(1);
        spec
    })
    .await
    .unwrap();
    assert_eq!(rack.machines(), 1);
    let (view, ()) = view_with(&kube, "everything is in sync", |_| Some(())).await;
    assert!(node(&view, "racked-1").is_none());
    reset(&rack, "On").await;
    let (view, ()) = view_with(&kube, "it has joined", |view| {
        (node(view, "racked-1").is_some_and(is_ready) && view.renewed.contains_key("racked-1")).then_some(())
    })
    .await;
    let mut host = BareMetalNodeSpec::new("p", PowerInterface::Redfish);
    host.node_match.by = MatchBy::Mac;
    host.mac_address = Some(rack.fleet.first().systems[0].mac.parse().unwrap());
    let found = node_of("any", &host, &view.objects.nodes).unwrap();
    assert_eq!(found.map(Node::name), Some("racked-1"), "by its hardware address");

    reset(&rack, "GracefulShutdown").await;
    rack.fleet.first().systems[0].machine.until(|seen| seen.power == Power::Off).await;
    until("no lease is renewed any more", || async {
        let renewed = kube.view().unwrap().renewed["racked-1"];
        (clock().now().since(renewed) > Duration::from_secs(3)).then_some(())
    })
    .await;
    assert!(node(&kube.view().unwrap(), "racked-1").is_some(), "the node object stays");
}

const DEPLOYMENT: &str = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"app"},"spec":{"replicas":1,
"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a"}},"spec":{
"nodeSelector":{"kubernetes.io/hostname":"metal-1"},
"containers":[{"name":"c","image":"none","resources":{"requests":{"cpu":"1"}}}]}}}}"#;
