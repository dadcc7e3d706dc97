//! The questions that people could not get answered elsewhere, one fixture each.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::{collections::BTreeSet, fs, path::PathBuf};

use muster_engine::{
    Snapshot,
    explain::{Answer, Explainer, Fix, LONGEST_LINE, Match, PatchKind, Scene, text},
    plan,
    snapshot::{Member, MemberState},
};
use muster_model::patch::merge_patch;
use muster_sim::simulate::{Source, load};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/explain")
}

struct Fixture {
    name: String,
    question: Value,
    objects: Vec<Value>,
}

impl Fixture {
    fn read(number: &str) -> Self {
        let mut files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
        let wanted = format!("{number}-");
        let path = files
            .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&wanted))
            .expect("the fixture exists");
        let text = fs::read_to_string(&path).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        let (question, objects) = documents.into_iter().partition(|value| value["kind"] == "Question");
        let question: Vec<Value> = question;
        Self { name: path.display().to_string(), question: question[0].clone(), objects }
    }

    /// All objects must be readable; a fixture with a typo would prove nothing.
    fn snapshot(&self) -> Snapshot {
        let text = json!({"kind": "List", "items": self.objects}).to_string();
        let loaded =
            load(&[Source { name: self.name.clone(), text }], Some("2026-11-16T02:00:00Z".parse().unwrap()));
        assert!(loaded.set_aside.is_empty(), "{}: {:#?}", self.name, loaded.set_aside);
        loaded.snapshot
    }

    /// Applies a patch to the object that it names.
    fn patched(&self, fix: &Fix) -> Self {
        let (kind, name) = fix.object.split_once('/').unwrap();
        let mut objects = self.objects.clone();
        let object = objects
            .iter_mut()
            .find(|object| {
                let said = &object["metadata"];
                match kind {
                    "pods" => {
                        object["kind"] == "Pod"
                            && name
                                == format!(
                                    "{}/{}",
                                    said["namespace"].as_str().unwrap_or(""),
                                    said["name"].as_str().unwrap()
                                )
                    }
                    "nodepools" => object["kind"] == "NodePool" && said["name"] == name,
                    "baremetalnodes" => object["kind"] == "BareMetalNode" && said["name"] == name,
                    "config" => object["kind"] == "Snapshot",
                    other => panic!("no object is called {other}"),
                }
            })
            .unwrap_or_else(|| panic!("{} is not among the objects", fix.object));
        let mut patch = fix.patch.clone();
        if fix.kind == PatchKind::Strategic {
            by_name(object, &mut patch);
        }
        merge_patch(object, &patch);
        Self { name: self.name.clone(), question: self.question.clone(), objects }
    }
}

/// Containers are merged by name, as the API server does it.
fn by_name(object: &Value, patch: &mut Value) {
    let Some(changes) = patch["spec"]["containers"].as_array().cloned() else { return };
    let mut containers = object["spec"]["containers"].as_array().unwrap().clone();
    for change in changes {
        let container = containers
            .iter_mut()
            .find(|container| container["name"] == change["name"])
            .expect("a named container");
        merge_patch(container, &change);
    }
    patch["spec"]["containers"] = Value::Array(containers);
}

fn ask(snapshot: &Snapshot, question: &str) -> Answer {
    let plan = plan::scale_up(snapshot).plan;
    Explainer::new(&Scene::new(snapshot, &plan)).ask(question)
}

/// The first line names the planted cause, object and field are given, and the suggested patch helps.
#[track_caller]
fn check(number: &str) {
    let fixture = Fixture::read(number);
    let snapshot = fixture.snapshot();
    let question = fixture.question["ask"].as_str().unwrap();
    let answer = ask(&snapshot, question);
    let text = text::render(&answer);
    let expected = &fixture.question["expect"];
    let said = |field: &str| expected[field].as_str().unwrap();
    assert!(answer.headline().contains(said("line")), "{}\nwanted: {}\n{text}", fixture.name, said("line"));
    assert!(answer.headline().chars().count() <= LONGEST_LINE, "{}", answer.headline());
    assert_eq!(text.lines().next(), Some(answer.headline()));
    let cause = answer.cause();
    assert_eq!(
        (cause.code.name(), &*cause.object, &*cause.field),
        (said("code"), said("object"), said("field")),
        "{text}"
    );
    for part in expected["contains"].as_array().into_iter().flatten() {
        assert!(text.contains(part.as_str().unwrap()), "{}\nwanted: {part}\n{text}", fixture.name);
    }
    assert_eq!(text, text::render(&ask(&snapshot, question)), "equal input, equal text");
    if fixture.question["fixable"] == true {
        helps(&fixture, &answer, &text);
    }
}

/// Every suggested patch that names an object of the fixture gives the pod a place.
#[track_caller]
fn helps(fixture: &Fixture, answer: &Answer, text: &str) {
    let Answer::Pod(pod) = answer else { panic!("only pods are fixed") };
    assert!(!pod.fixes.is_empty(), "{}: no fix\n{text}", fixture.name);
    for fix in &pod.fixes {
        let patched = fixture.patched(fix).snapshot();
        let plan = plan::scale_up(&patched).plan;
        assert!(!plan.unplaced.contains(&pod.pod), "{}: {} does not help\n{text}", fixture.name, fix.text);
        assert!(muster_engine::audit(&patched, &plan).is_empty());
    }
}

macro_rules! questions {
    ($($name:ident = $number:literal;)*) => {
        $(#[test] fn $name() { check($number); })*

        /// Fixtures without a test would be dead letters.
        #[test]
        fn every_fixture_is_asked() {
            let asked: BTreeSet<String> = [$($number.to_owned()),*].into();
            let there: BTreeSet<String> = fs::read_dir(folder())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().to_str().unwrap()[..3].to_owned())
                .collect();
            assert_eq!(asked, there);
        }
    };
}

questions! {
    ops_u8_q01_a_verdict_per_pool_always = "q01";
    ops_u8_q03_which_limit_of_which_pool = "q03";
    ops_u8_q04_which_label_is_missing = "q04";
    ops_u8_q05_the_node_that_a_pool_at_zero_would_make = "q05";
    ops_u8_q06_a_stale_template_says_so = "q06";
    ops_u8_q07_a_stuck_machine_holds_the_pool = "q07";
    ops_u8_q08_which_pods_caused_the_node = "q08";
    ops_u8_q09_the_limit_comes_first = "q09";
    ops_u8_q10_sold_out_is_not_no_match = "q10";
    ops_u8_q11_the_minimal_contradiction = "q11";
    ops_u8_q12_one_row_per_pool = "q12";
    ops_u8_q13_past_errors_are_past = "q13";
    ops_u8_q14_why_each_host_was_rejected = "q14";
    ops_u8_q15_everything_that_blocks_a_node = "q15";
    ops_u8_q16_the_reason_is_on_the_node = "q16";
    ops_u8_q17_self_service = "q17";
    ops_u8_q18_which_pod_and_which_budget = "q18";
    ops_u8_q19_when_was_it_judged = "q19";
    ops_u8_q20_policy_is_a_reason = "q20";
    ops_u8_q21_where_pods_would_go = "q21";
    ops_u8_q22_what_a_budget_allows = "q22";
    ops_u8_q26_the_dominant_resource = "q26";
    ops_u8_q27_a_pool_at_a_glance = "q27";
}

#[test]
fn ops_u8_at_least_ten_answers_can_be_applied() {
    let files =
        fs::read_dir(folder()).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let fixable = files.filter(|text| text.contains("fixable: true")).count();
    assert!(fixable >= 10, "{fixable}");
}

/// A node that comes to a pool whose nodes do not take the pod changes nothing for it, and is not spoken of.
#[test]
fn what_happens_next_is_about_pools_that_could_take_the_pod() {
    let mut told = 0;
    for path in fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()) {
        let number = path.file_name().unwrap().to_str().unwrap().split('-').next().unwrap().to_owned();
        let fixture = Fixture::read(&number);
        let question = fixture.question["ask"].as_str().unwrap();
        let mut snapshot = fixture.snapshot();
        let Answer::Pod(before) = ask(&snapshot, question) else { continue };
        let others: Vec<_> = before.pools.iter().filter(|row| row.matches == Match::NoMatch).collect();
        for row in &others {
            let state = MemberState::Upcoming { expected: snapshot.now };
            let member = Member { pool: row.pool.clone(), state, ..Member::default() };
            snapshot.members.insert(format!("comes-to-{}", row.pool).into(), member);
        }
        let Answer::Pod(after) = ask(&snapshot, question) else { panic!("{number}: no longer a pod") };
        let lines: Vec<&str> = after.next.iter().map(|step| &*step.text).collect();
        assert!(!lines.iter().any(|line| line.contains("comes-to-")), "{number}: {lines:?}");
        told += others.len();
    }
    assert!(told >= 3, "fixtures with pools that do not match: {told}");
}

#[test]
fn unknown_objects_get_an_answer_with_names_that_are_near() {
    let snapshot = Fixture::read("q03").snapshot();
    let answer = ask(&snapshot, "pod/default/trainn");
    assert!(answer.headline().starts_with("pod/default/trainn is neither"), "{}", answer.headline());
    assert!(text::render(&answer).contains("pod/default/train"));
}

#[test]
fn the_reference_of_reasons_is_up_to_date() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/reasons.md");
    let found = fs::read_to_string(&path).unwrap_or_default();
    let wanted = muster_sim::reasons();
    assert_eq!(found, wanted, "docs/reference/reasons.md differs; write the text below into it");
}
