//! What Muster says will fit, fits; what it says will not, does not, for the reason that it gave. Runs in `make e2e`.

use muster_emulate::cluster::{Nodes, TestCluster};
use serde_json::{Value, json};

use crate::lab::{Machines, Story};

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let place = usize::try_from(self.0 >> 33).unwrap() % all.len();
        all[place]
    }
}

/// A pod of some size that may ask for what the pool does not have.
fn pod(number: u32, dice: &mut Dice) -> Value {
    let cpu = dice.of(&["250m", "500m", "1", "1500m", "3", "5"]);
    let memory = dice.of(&["256Mi", "512Mi", "1Gi", "2Gi", "9Gi"]);
    let tolerations = if dice.of(&[true, true, true, false]) {
        json!([{"key": "team", "operator": "Equal", "value": "red", "effect": "NoSchedule"}])
    } else {
        json!([])
    };
    let zone = dice.of(&["a", "a", "a", "a", "b"]);
    let mut spec = json!({
        "nodeSelector": { "zone": zone }, "tolerations": tolerations, "terminationGracePeriodSeconds": 1,
        "containers": [{ "name": "c", "image": "none", "resources": { "requests": { "cpu": cpu, "memory": memory } } }],
    });
    if dice.of(&[true, false, false, false]) {
        spec["affinity"] = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "alone": "yes" } } }] } });
    }
    let labels = if spec["affinity"].is_null() { json!({}) } else { json!({ "alone": "yes" }) };
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": format!("p{number}"), "labels": labels }, "spec": spec })
}

/// Reasons that time does not change.
const HOPELESS: [&str; 4] = ["TaintNotTolerated", "LabelMissing", "LabelDiffers", "ResourceShort"];

/// What the scheduler says about a pod of which Muster says this.
fn scheduler_says(code: &str) -> &'static str {
    match code {
        "TaintNotTolerated" => "untolerated taint",
        "LabelMissing" | "LabelDiffers" => "didn't match Pod's node affinity/selector",
        "ResourceShort" => "Insufficient",
        other => panic!("a reason that no pod of this test can have: {other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn verdicts_are_those_of_the_scheduler() {
    let cluster: &'static TestCluster =
        Box::leak(Box::new(TestCluster::start(Nodes::Own).expect("a control plane of its own")));
    let machines = Machines {
        count: 10,
        labels: json!({ "zone": "a" }),
        taints: json!([{"key": "team", "value": "red", "effect": "NoSchedule"}]),
        ..Machines::default()
    };
    let mut story = Story::set_on(cluster, "verdicts", &machines, &[]).await;
    story.create(&cluster.kubeconfig(), &machines).await;
    story.until_idle().await;
    // One node first: a scheduler without any gives no reasons.
    let red = json!({ "tolerations": [{ "key": "team", "operator": "Exists" }] });
    story.deploy(1, &json!({ "cpu": "100m" }), &red);
    story.muster(&["enable", "cluster", "verdicts"]);
    story.until_running(1).await;
    story.muster(&["disable", "cluster", "verdicts"]);
    let mut dice = Dice(4711);
    let pods: Vec<Value> = (1..=24).map(|number| pod(number, &mut dice)).collect();
    for pod in &pods {
        story.apply(pod);
    }
    // Advice: a verdict for every pod, before anything runs.
    let mut verdicts = Vec::new();
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let path = format!("/api/v1/explain/pod/verdicts/{name}");
        let verdict = story
            .until(&format!("there is a verdict on {name}"), async || {
                let said = story.get(&path).await;
                let code = said["answer"]["cause"]["code"].as_str()?.to_owned();
                (code != "Unknown").then_some(code)
            })
            .await;
        verdicts.push((name.to_owned(), verdict));
    }
    // Everything else is a place now, or one that comes: not all servers start at once.
    let hopeless = |code: &str| HOPELESS.contains(&code);
    let fits = verdicts.iter().filter(|(_, code)| !hopeless(code)).count();
    assert!(fits >= 6 && verdicts.len() - fits >= 6, "the dice give some of both: {verdicts:?}");
    story.muster(&["enable", "cluster", "verdicts"]);
    story.until_running(fits + 1).await;
    for (name, code) in &verdicts {
        let pod = story.kube(&["get", "pod", name]);
        let scheduled = pod["status"]["conditions"].as_array().into_iter().flatten();
        let scheduled =
            scheduled.into_iter().find(|one| one["type"] == "PodScheduled").cloned().unwrap_or(Value::Null);
        if !hopeless(code) {
            assert_eq!(scheduled["status"], "True", "{name} was to fit: {pod}");
            continue;
        }
        assert_eq!(scheduled["reason"], "Unschedulable", "{name} ({code}) was not to fit: {pod}");
        let said = scheduled["message"].as_str().unwrap();
        // What we say is wrong with it is wrong with it. The scheduler's word on a pod with several faults is the first that
        // it meets on each node; on one with a single fault it is ours.
        let own = faults(pods.iter().find(|one| one["metadata"]["name"] == name.as_str()).unwrap());
        let ours = scheduler_says(code);
        assert!(own.contains(&ours), "{name}: we say {code}, and its faults are {own:?}");
        assert!(own.iter().any(|fault| said.contains(fault)), "{name}: {own:?}, the scheduler says {said}");
        if own.len() == 1 {
            assert!(said.contains(ours), "{name}: we say {code}, the scheduler {said}");
        }
    }
}

/// What the scheduler calls the things about a pod that the pool cannot satisfy.
fn faults(pod: &Value) -> Vec<&'static str> {
    let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
    let large = requests["cpu"] == "5" || requests["memory"] == "9Gi";
    let strange = pod["spec"]["tolerations"].as_array().is_some_and(Vec::is_empty);
    let elsewhere = pod["spec"]["nodeSelector"]["zone"] == "b";
    let all = [(strange, "TaintNotTolerated"), (elsewhere, "LabelDiffers"), (large, "ResourceShort")];
    all.into_iter().filter(|(is, _)| *is).map(|(_, code)| scheduler_says(code)).collect()
}
