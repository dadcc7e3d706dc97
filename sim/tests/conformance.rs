//! The recorded answers of the real scheduler, and the runner that compares them.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use muster_sim::conformance::{self, Output, Tally, run_line};
use serde_json::{Value, json};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/conformance")
}

fn lines(file: &str) -> Vec<String> {
    let text = fs::read_to_string(fixtures().join(file)).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn eng_17_every_recorded_answer_is_matched() {
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let tally = conformance::run(&[fixtures()], Output::Summary, &mut out, &mut notes).unwrap();
    assert_eq!(tally, Tally { passed: 2961, failed: 0 }, "{}", String::from_utf8_lossy(&notes));
    assert_eq!(out, b"2961 passed, 0 failed\n");
}

/// Rarer things: capacity of storage drivers, attachments, ephemeral volumes, old disks, resizes, restart
/// rules, namespace selectors that hold without labels.
#[test]
fn eng_17_variants_are_matched() {
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let file = fixtures().with_file_name("conformance-variants.jsonl");
    let tally = conformance::run(&[file], Output::Summary, &mut out, &mut notes).unwrap();
    assert_eq!(tally, Tally { passed: 145, failed: 0 }, "{}", String::from_utf8_lossy(&notes));
}

/// Changes one place of a case that passes; the runner has to notice.
#[test]
fn a_wrong_answer_anywhere_is_noticed() {
    #[track_caller]
    fn check(file: &str, wanted: impl Fn(&Value) -> bool, pointer: &str, wrong: Value) {
        let mut case: Value = lines(file)
            .iter()
            .map(|line| serde_json::from_str(line).unwrap())
            .find(|case| wanted(case) && case.pointer(pointer).is_some())
            .unwrap_or_else(|| panic!("{file} has no case with {pointer}"));
        assert!(run_line(&case.to_string()).passed());
        let place = case.pointer_mut(pointer).unwrap();
        assert_ne!(*place, wrong);
        *place = wrong;
        assert!(!run_line(&case.to_string()).passed(), "{pointer} of {} was not compared", case["id"]);
    }
    let any = |_: &Value| true;
    check("resources.jsonl", any, "/used/0", json!({"cpu": 123_456}));
    check("resources.jsonl", any, "/expect/0/req/cpu", json!(7));
    check("mixed.jsonl", any, "/expect/0/fits", json!([99]));
    check("mixed.jsonl", any, "/expect/0/fails/0/n", json!(99));
    check("mixed.jsonl", any, "/expect/0/fails/0/first", json!("Nobody"));
    check("mixed.jsonl", any, "/expect/0/fails/0/code", json!("X"));
    check("mixed.jsonl", any, "/expect/0/fails/0/why/0", json!("no"));
    check("mixed.jsonl", any, "/expect/0/fails/0/all", json!({}));
    check("nodeaffinity.jsonl", any, "/expect/0/fails/0/stage", json!(null));
    check("mixed.jsonl", any, "/expect/0/msg", json!("no"));
    check("volumes.jsonl", any, "/expect/0/pre/msg", json!("no"));
    check(
        "sequence.jsonl",
        |case| case["expect"][0]["bound"] == json!(true),
        "/expect/0/bound",
        json!(false),
    );
    check("plan.jsonl", |case| case["plan"]["legal"] == json!(true), "/plan/legal", json!(false));
    check("plan.jsonl", |case| case["plan"]["anyOrder"] == json!(false), "/plan/anyOrder", json!(true));
    check("plan.jsonl", any, "/plan/steps/0/ok", json!("neither"));
    check("quantities.jsonl", any, "/value", json!("12345678"));
}

#[test]
fn lines_that_cannot_be_understood_fail_with_a_reason() {
    #[track_caller]
    fn check(line: &str, reason: &str) {
        let outcome = run_line(line);
        assert!(outcome.differences.iter().any(|why| why.contains(reason)), "{:?}", outcome.differences);
    }
    check("{", "not JSON");
    check("[]", "case cannot be read");
    check(r#"{"id":"a"}"#, "missing field `kind`");
    check(r#"{"id":"a","kind":"dream"}"#, "unknown kind \"dream\"");
    check(r#"{"id":"a","kind":"verdict"}"#, "without its expected answer");
    check(
        r#"{"id":"a","kind":"plan","steps":[[0,0]],"plan":{"steps":[],"legal":true,"anyOrder":true}}"#,
        "steps[0]",
    );
    check(
        r#"{"id":"a","kind":"verdict","expect":[],"pending":[{"spec":{"containers":[{"resources":{"requests":{"cpu":"1x"}}}]}}]}"#,
        "pending[0].spec.containers[0].resources.requests",
    );
}

#[test]
fn the_program_prints_its_tally_last_and_says_by_its_exit_code_how_it_went() {
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.jsonl");
    fs::write(&bad, "{\"id\":\"a\",\"kind\":\"dream\"}\n").unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_conformance")).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let named = fixtures().join("named.jsonl");
    let (named, bad) = (named.to_str().unwrap(), bad.to_str().unwrap());
    assert_eq!(run(&[named]), (Some(0), "180 passed, 0 failed\n".to_owned()));
    assert_eq!(run(&[named, bad]), (Some(1), "180 passed, 1 failed\n".to_owned()));
    assert_eq!(run(&["/nowhere"]).0, Some(1));
    assert_eq!(run(&[]).0, Some(2));
    assert_eq!(run(&["-o", "yaml", named]).0, Some(2));
    let (code, text) = run(&["-o", "jsonl", named]);
    assert_eq!((code, text.lines().last()), (Some(0), Some("180 passed, 0 failed")));
    let answers: Vec<Value> =
        text.lines().take(180).map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(answers.iter().all(|answer| answer["expect"].is_array() || answer["plan"].is_object()));
}
