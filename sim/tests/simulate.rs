//! What `muster simulate` reads and answers.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::{fs, path::PathBuf};

use muster_sim::simulate::{
    Add, Colour, Question, QuestionError, Shape, Simulation, Source, draw, load, simulate,
};

fn source(text: &str) -> Source {
    Source { name: "dump.yaml".to_owned(), text: text.to_owned() }
}

const CLUSTER: &str = r#"
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: n1, labels: {kubernetes.io/hostname: n1, eks.amazonaws.com/nodegroup: web, topology.kubernetes.io/rack: r1}}
  status: {allocatable: {cpu: "4", memory: 16Gi, pods: "110"}, capacity: {cpu: "4", memory: 16Gi, pods: "110"}}
- apiVersion: v1
  kind: Node
  metadata: {name: n2, labels: {kubernetes.io/hostname: n2, eks.amazonaws.com/nodegroup: web, topology.kubernetes.io/rack: r2}}
  status: {allocatable: {cpu: "4", memory: 16Gi, pods: "110"}, capacity: {cpu: "4", memory: 16Gi, pods: "110"}}
- apiVersion: v1
  kind: Pod
  metadata:
    name: web-1
    namespace: default
    ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: u, controller: true}]
  spec: {nodeName: n1, containers: [{name: app, resources: {requests: {cpu: "2", memory: 2Gi}}}]}
  status: {phase: Running}
- apiVersion: v1
  kind: Pod
  metadata:
    name: web-2
    namespace: default
    ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: u, controller: true}]
  spec: {nodeName: n2, containers: [{name: app, resources: {requests: {cpu: "2", memory: 2Gi}}}]}
  status: {phase: Running}
- apiVersion: apps/v1
  kind: ReplicaSet
  metadata: {name: web, namespace: default}
  spec: {replicas: 2}
"#;

fn ask(question: &Question) -> Simulation {
    simulate(load(&[source(CLUSTER)], None), question, &[]).unwrap()
}

fn shape(count: u32, cpu: &str, memory: &str) -> Add {
    Add::Shape(Shape { count, cpu: Some(cpu.into()), memory: Some(memory.into()), ..Shape::default() })
}

#[test]
fn bad_objects_are_set_aside_with_file_line_and_field() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: good\n  namespace: default\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\n  namespace: default\nspec:\n  containers:\n    - name: a\n      resources:\n        requests:\n          cpu: 1x\n---\nkind: NodePool\nmetadata:\n  name: p\nspec:\n  platform: {type: gcp}\n  autoscaling:\n    minNodes: -1\n---\nmetadata: {name: what}\n";
    let loaded = load(&[source(text)], None);
    assert_eq!(loaded.snapshot.cluster.pods.len(), 1);
    let faults: Vec<(u64, &str, &str)> =
        loaded.set_aside.iter().map(|fault| (fault.line, &*fault.object, &*fault.field)).collect();
    assert!(
        faults.contains(&(17, "Pod default/bad", "spec.containers[0].resources.requests.cpu")),
        "{:#?}",
        loaded.set_aside
    );
    assert!(
        faults.iter().any(|fault| fault.0 == 25 && fault.2 == "spec.autoscaling.minNodes"),
        "{:#?}",
        loaded.set_aside
    );
    assert!(faults.contains(&(27, "object what", "kind")), "{:#?}", loaded.set_aside);
}

#[test]
fn a_file_that_is_no_yaml_is_one_fault_and_the_others_go_on() {
    let broken = Source { name: "broken.yaml".to_owned(), text: "a: [1\nb: }".to_owned() };
    let loaded = load(&[broken, source(CLUSTER)], None);
    assert_eq!((loaded.set_aside.len(), &*loaded.set_aside[0].file), (1, "broken.yaml"));
    assert_eq!(loaded.snapshot.cluster.nodes.len(), 2);
}

#[test]
fn json_and_yaml_of_one_cluster_are_the_same() {
    let value: serde_json::Value = serde_saphyr::from_str(CLUSTER).unwrap();
    let json = load(&[source(&value.to_string())], None);
    assert_eq!(json.snapshot, load(&[source(CLUSTER)], None).snapshot);
}

#[test]
fn pools_are_inferred_from_the_labels_of_nodes_and_may_not_grow() {
    let loaded = load(&[source(CLUSTER)], None);
    let pool = loaded.snapshot.pool("web").unwrap();
    assert_eq!((pool.max, pool.templates.len()), (2, 1));
    assert!(loaded.notes[0].contains("pool web was inferred"), "{:?}", loaded.notes);
}

#[test]
fn adding_pods_says_where_they_go_or_what_stops_them() {
    let now = ask(&Question::default());
    assert_eq!(now.question, "what would be done now?");
    let fits = ask(&Question { add: Some(shape(2, "2", "1Gi")), ..Question::default() });
    assert!(fits.summary.contains("no new machine is needed"), "{}", fits.summary);
    let stuck = ask(&Question { add: Some(shape(3, "2", "1Gi")), ..Question::default() });
    assert_eq!((stuck.unplaced.len(), stuck.unplaced[0].pods), (1, 1));
    assert!(
        stuck.unplaced[0].headline.contains("pool web has 2 of at most 2 nodes"),
        "{}",
        stuck.unplaced[0].headline
    );
    let raised = ask(&Question {
        add: Some(shape(3, "2", "1Gi")),
        set: vec!["web.max=3".into()],
        ..Question::default()
    });
    assert_eq!((raised.plan.new_nodes.len(), raised.unplaced.len()), (1, 0));
    assert!(raised.audit.is_empty(), "{:?}", raised.audit);
}

#[test]
fn ops_u8_q21_removing_or_losing_a_machine_shows_where_its_pods_go() {
    for lost in ["n1", "node/n1", "r1"] {
        let failed = ask(&Question { fail: vec![lost.into()], ..Question::default() });
        assert_eq!(failed.plan.placements.len(), 1, "{lost}");
        assert!(failed.summary.starts_with("1 pod loses its node."), "{}", failed.summary);
    }
    let both = ask(&Question { fail: vec!["n1".into(), "n2".into()], ..Question::default() });
    assert_eq!(both.before.nodes, 2);
    assert!(both.plan.unplaced.is_empty() || !both.unplaced.is_empty());
    let unknown = simulate(
        load(&[source(CLUSTER)], None),
        &Question { fail: vec!["nowhere".into()], ..Question::default() },
        &[],
    );
    assert_eq!(unknown.unwrap_err(), QuestionError::NoSuchMachine { name: "nowhere".into() });
}

#[test]
fn fewer_machines_are_found_and_pass_the_audit() {
    let fewer = ask(&Question { consolidate: true, ..Question::default() });
    assert_eq!((fewer.removals.len(), fewer.after.nodes), (1, 1), "{}", fewer.summary);
    assert!(fewer.audit.is_empty(), "{:?}", fewer.audit);
    assert!(
        fewer.summary.starts_with("Yes: 1 node could go, 1 would remain; 1 pod moves."),
        "{}",
        fewer.summary
    );
}

#[test]
fn a_question_is_answered_before_what_waited_anyway() {
    let huge = "apiVersion: v1\nkind: Pod\nmetadata: {name: huge, namespace: default}\nspec: {containers: [{name: a, resources: {requests: {cpu: \"64\"}}}]}\n";
    let loaded = || load(&[source(CLUSTER), Source { name: "huge.yaml".into(), text: huge.into() }], None);
    let add = Question { add: Some(shape(2, "2", "1Gi")), ..Question::default() };
    let added = simulate(loaded(), &add, &[]).unwrap();
    let told = "Both added pods fit nodes that are there; no new machine is needed. The pod that waited before finds no place. What keeps those that waited before: default/huge";
    assert!(added.summary.starts_with(told), "{}", added.summary);
    let fail = Question { fail: vec!["n1".into()], ..Question::default() };
    let failed = simulate(loaded(), &fail, &[]).unwrap();
    assert!(
        failed.summary.starts_with("1 pod loses its node. The pod fits a node that is there."),
        "{}",
        failed.summary
    );
}

#[test]
fn what_is_done_now_waits_for_the_delays_of_the_pool() {
    // The pool is inferred, so it has the service's defaults; fewer machines would do, but not at once.
    let now = ask(&Question::default());
    assert!(now.removals.is_empty() && now.summary == "No pod waits for a node.", "{}", now.summary);
}

#[test]
fn a_budget_slows_consolidation_down_and_does_not_forbid_it() {
    let budget = |allowed: u32| {
        let text = format!(
            "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: b, namespace: default}}\nspec: {{selector: {{}}}}\nstatus: {{disruptionsAllowed: {allowed}}}\n"
        );
        Source { name: "budget.yaml".to_owned(), text }
    };
    let fewer = |allowed: u32| {
        let question = Question { consolidate: true, ..Question::default() };
        simulate(load(&[source(CLUSTER), budget(allowed)], None), &question, &[]).unwrap()
    };
    let slow = fewer(1);
    assert_eq!(slow.removals.len(), 1, "{}", slow.summary);
    assert!(slow.read.notes.iter().any(|note| note.contains("several rounds")), "{:?}", slow.read.notes);
    assert!(fewer(0).removals.is_empty());
}

#[test]
fn objects_that_are_given_twice_are_set_aside() {
    let loaded = load(&[source(CLUSTER), Source { name: "again.yaml".into(), text: CLUSTER.into() }], None);
    assert_eq!((loaded.snapshot.cluster.nodes.len(), loaded.set_aside.len()), (2, 5));
    let text = loaded.set_aside[0].to_string();
    assert!(text.starts_with("again.yaml:") && text.contains("was given before, at dump.yaml:"), "{text}");
}

const METAL: &str = r"
kind: NodePool
metadata: {name: metal}
spec:
  platform: {type: baremetal, baremetal: {pool: metal}}
  autoscaling: {enabled: true, minNodes: 0, maxNodes: 4}
---
kind: BareMetalNode
metadata: {name: h1}
spec: {pool: metal, rack: r1, resources: {cpu: 8, memory: 32Gi}, idleWatts: 60, maxWatts: 200}
status: {state: off}
---
kind: BareMetalNode
metadata: {name: h2}
spec: {pool: metal, rack: r2, resources: {cpu: 8, memory: 32Gi}, idleWatts: 60, maxWatts: 200}
status: {state: off}
";

/// Pools of servers without marks of their own have those of all hosts, wherever they stand in the input.
#[test]
fn the_settings_of_all_hosts_hold_for_pools_of_servers_that_say_no_marks() {
    let marks = |settings: &str, own: &str| {
        let pools = METAL.replace("maxNodes: 4", &format!("maxNodes: 4{own}"));
        let cloud = "---\nkind: NodePool\nmetadata: {name: cloud}\nspec:\n  platform: {type: gcp, gcp: {machineType: n2-standard-4, zones: [europe-west1-b]}}\n  autoscaling: {enabled: true, minNodes: 0, maxNodes: 4}\n";
        let loaded = load(&[source(&format!("{pools}{cloud}{settings}"))], None);
        let of = |name: &str| {
            let demand = &loaded.snapshot.pool(name).unwrap().demand;
            (demand.target_cpu_percent, demand.target_memory_percent, demand.scale_down_percent)
        };
        (of("metal"), of("cloud"), loaded.set_aside.len())
    };
    let (plain, cloud) = ((Some(70), Some(80), Some(30)), (Some(70), Some(80), Some(30)));
    assert_eq!(marks("", ""), (plain, cloud, 0));
    let settings = "---\nkind: HostSettings\nspec: {highMarkPercent: 90, lowMarkPercent: 45}\n";
    assert_eq!(marks(settings, ""), ((Some(90), Some(90), Some(45)), cloud, 0));
    let own = ", targetCPUUtilization: 60";
    assert_eq!(marks(settings, own), ((Some(60), Some(90), Some(40)), cloud, 0));
    let wrong = "---\nkind: HostSettings\nspec: {highMarkPercent: 190}\n";
    assert_eq!(marks(wrong, ""), (plain, cloud, 1), "settings that make no sense are set aside");
}

#[test]
fn groups_that_are_objects_are_read_from_a_dump() {
    let text = r"
apiVersion: v1
kind: List
items:
- {apiVersion: scheduling.k8s.io/v1alpha2, kind: PodGroup, metadata: {name: g, namespace: default},
   spec: {schedulingPolicy: {gang: {minCount: 3}}}}
- {apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: g, namespace: default}, spec: {minMember: 9}}
- {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: default}, spec: {schedulingGroup: {podGroupName: g}}}
- {apiVersion: v1, kind: Pod, metadata: {name: b, namespace: default}, spec: {schedulingGroup: {podGroupName: g}}}
";
    let loaded = load(&[source(text)], None);
    assert!(
        loaded.set_aside.is_empty() && loaded.notes.is_empty(),
        "{:?} {:?}",
        loaded.set_aside,
        loaded.notes
    );
    let groups: Vec<_> = loaded.snapshot.groups.iter().map(|group| (&*group.name, group.min)).collect();
    assert_eq!(groups, [("default/g", 3)]);
}

#[test]
fn hosts_are_read_as_the_service_reads_them() {
    let text = format!(
        "{METAL}---\nkind: BareMetalNode\nmetadata: {{name: h3}}\nspec:\n  pool: metal\n  idleWatts: 300\n  maxWatts: 200\n  colour: red\n"
    );
    let loaded = load(&[source(&text)], None);
    assert_eq!(loaded.snapshot.hosts.len(), 2, "{:#?}", loaded.set_aside);
    let fields: Vec<&str> = loaded.set_aside.iter().map(|fault| &*fault.field).collect();
    assert!(fields.contains(&"spec.idleWatts") && fields.contains(&"spec.colour"), "{:#?}", loaded.set_aside);
    assert!(loaded.set_aside.iter().all(|fault| fault.line > 17), "{:#?}", loaded.set_aside);
}

#[test]
fn hosts_and_racks_can_fail() {
    let run = |fail: &[&str]| {
        let question = Question {
            add: Some(shape(6, "2", "2Gi")),
            fail: fail.iter().map(|name| (*name).to_owned()).collect(),
            ..Question::default()
        };
        simulate(load(&[source(METAL)], None), &question, &[]).unwrap()
    };
    let both = run(&[]);
    assert_eq!((both.plan.new_nodes.len(), both.plan.unplaced.len()), (2, 0), "{}", both.summary);
    assert!(both.audit.is_empty(), "{:?}", both.audit);
    for name in ["h1", "host/h1", "r1", "rack/r1"] {
        let one = run(&[name]);
        assert_eq!(one.plan.new_nodes.len(), 1, "{name}: {}", one.summary);
        assert!(!one.plan.unplaced.is_empty());
    }
}

#[test]
fn a_machine_that_is_bought_may_join_any_pool() {
    let question = Question {
        add: Some(Add::Shape(Shape {
            count: 8,
            cpu: Some("2".into()),
            memory: Some("1Gi".into()),
            selector: vec!["eks.amazonaws.com/nodegroup=web".into()],
            ..Shape::default()
        })),
        buy: Some("cpu=8,memory=32Gi".into()),
        ..Question::default()
    };
    let bought = ask(&question);
    // Two fit what is there, six need 12 cpu in machines of 8 that carry the label of the pool.
    assert_eq!((bought.plan.new_nodes.len(), bought.plan.unplaced.len()), (2, 0), "{}", bought.summary);
    assert_eq!(bought.new_nodes[0].template, "for pool web");
}

#[test]
fn buying_counts_machines() {
    let question = Question {
        add: Some(shape(20, "2", "2Gi")),
        buy: Some("cpu=8,memory=32Gi".into()),
        ..Question::default()
    };
    let bought = ask(&question);
    // Two pods fit what is there, eighteen need 36 cpu in machines of 8.
    assert_eq!(bought.plan.new_nodes.len(), 5, "{}", bought.summary);
    assert!(bought.summary.contains("You would have to buy 5 machines."), "{}", bought.summary);
    assert_eq!(bought.after.price_per_hour_micros, 0); // nobody said what they cost
}

#[test]
fn workloads_can_be_added_from_their_manifest() {
    let deployment = source(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api}\nspec:\n  replicas: 2\n  template:\n    spec:\n      containers: [{name: a, resources: {limits: {cpu: 500m}}}]\n",
    );
    let added = ask(&Question {
        add: Some(Add::From { source: deployment, replicas: Some(4) }),
        ..Question::default()
    });
    assert_eq!(added.plan.placements.len(), 4);
    assert!(added.question.contains("4 more pods of 0.5 cpu"), "{}", added.question); // limits became requests
}

#[test]
fn wrong_flags_say_what_is_right() {
    #[track_caller]
    fn check(question: Question, part: &str) {
        let error = simulate(load(&[source(CLUSTER)], None), &question, &[]).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    check(Question { set: vec!["web.max".into()], ..Question::default() }, "POOL.max=N");
    check(Question { set: vec!["wob.max=3".into()], ..Question::default() }, "(web)");
    check(Question { add: Some(shape(1, "much", "1Gi")), ..Question::default() }, "--cpu is \"much\"");
    check(Question { buy: Some("cpu=8".into()), ..Question::default() }, "needs memory");
    check(Question { pools: vec!["x:cpu=8,memory=lots".into()], ..Question::default() }, "not an amount");
}

#[test]
fn the_text_is_plain_off_a_terminal_and_says_that_nothing_was_changed() {
    let answer = ask(&Question { add: Some(shape(3, "2", "1Gi")), ..Question::default() });
    let text = answer.text(Colour::No);
    assert!(!text.contains('\u{1b}'));
    assert!(text.ends_with("This was a simulation: nothing was changed.\n"));
    assert!(answer.text(Colour::Yes).contains('\u{1b}'));
    assert_eq!(
        text,
        ask(&Question { add: Some(shape(3, "2", "1Gi")), ..Question::default() }).text(Colour::No)
    );
    let json: serde_json::Value = serde_json::to_value(&answer).unwrap();
    assert_eq!((&json["format"], &json["nothingChanged"]), (&"muster-simulation/1".into(), &true.into()));
}

#[test]
fn the_picture_is_well_formed() {
    let answer = ask(&Question { add: Some(shape(3, "2", "1Gi")), ..Question::default() });
    let picture = draw("a < b & c", &answer.nodes_before, &answer.nodes_after);
    assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"));
    assert!(picture.contains("a &lt; b &amp; c"));
    assert_eq!(picture.matches("<g>").count(), picture.matches("</g>").count());
    assert_eq!(picture.matches("<g>").count(), 4);
}

/// Fields of the JSON are documented; a new one needs a line in the reference.
#[test]
fn every_field_of_the_answer_is_documented() {
    let answer = ask(&Question { add: Some(shape(3, "2", "1Gi")), consolidate: true, ..Question::default() });
    let value = serde_json::to_value(&answer).unwrap();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/simulate.md");
    let reference = fs::read_to_string(path).unwrap();
    for field in value.as_object().unwrap().keys() {
        assert!(
            reference.contains(&format!("| `{field}` |")),
            "{field} is not in docs/reference/simulate.md"
        );
    }
}
