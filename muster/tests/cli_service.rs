//! The commands around the verbs: freezing, the audit log, exports of a store in use, retired controllers.

mod cli_support;

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use cli_support::{MUSTER, Ran, Running, Server, clean};
use serde_json::Value;

#[test]
fn a_freeze_is_set_shown_and_lifted() {
    let server = Server::start();
    server.fill();
    assert!(server.run(&["freeze"]).ok().starts_with("not frozen"));
    let frozen = server.run(&["freeze", "--reason", "cooling fails"]).ok();
    assert!(
        frozen.contains("nothing acts, by user@example.com") && frozen.contains("cooling fails"),
        "{frozen}"
    );
    let scaled = server.run(&["scale", "pool", "web", "--to", "4"]);
    assert_eq!(scaled.code, 0);
    assert!(scaled.err.contains("frozen") && scaled.err.contains("cooling fails"), "{}", scaled.err);
    let doctor = server.json(&["doctor"]);
    let check = doctor["checks"].as_array().expect("checks").iter().find(|check| check["id"] == "freeze");
    let check = check.expect("doctor looks at the freeze");
    assert_eq!(check["result"], "warning");
    assert!(check["remedy"].as_str().expect("a remedy").contains("muster unfreeze"), "{check}");
    let woken = server.run(&["freeze", "--all-on", "--reason", "drill"]).ok();
    assert!(woken.contains("every host is woken"), "{woken}");
    assert_eq!(server.json(&["freeze"])["mode"], "all-on");
    server.run(&["freeze", "--all-on"]).failed_as_usage();
    assert!(server.run(&["unfreeze"]).ok().starts_with("not frozen"));
    assert_eq!(server.json(&["freeze"])["may_act"], true);
}

trait Usage {
    fn failed_as_usage(self);
}

impl Usage for Ran {
    #[track_caller]
    fn failed_as_usage(self) {
        assert_eq!(self.code, 2, "{}{}", self.out, self.err);
    }
}

#[test]
fn the_audit_log_is_read_from_the_server_and_from_its_directory() {
    let server = Server::start();
    server.fill();
    server.run(&["scale", "pool", "web", "--to", "4"]).ok();
    let table = server.run(&["audit", "list"]).ok();
    assert!(table.starts_with("SEQ") && table.contains("scale") && table.contains("web"), "{table}");
    let directory = server.home().join("data/audit");
    let directory = directory.to_str().expect("UTF-8");
    for place in [&[][..], &["--directory", directory]] {
        let lines = server.json(&[&["audit", "list", "--verb", "create"], place].concat());
        let names: Vec<&str> = lines["items"]
            .as_array()
            .expect("items")
            .iter()
            .filter_map(|line| line["name"].as_str())
            .collect();
        assert_eq!(names, ["web", "prod"], "newest first, {place:?}");
        let one = server.json(&[&["audit", "list", "--limit", "1"], place].concat());
        assert_eq!(
            (one["items"].as_array().map(Vec::len), &one["items"][0]["verb"]),
            (Some(1), &Value::from("scale"))
        );
        for form in ["table", "wide", "yaml", "name", "jsonpath={.items[0].verb}"] {
            assert!(!server.run(&[&["audit", "list", "-o", form], place].concat()).ok().is_empty(), "{form}");
        }
        assert!(
            server.run(&[&["audit", "verify"], place].concat()).ok().contains("3 lines, the chain holds")
        );
    }
    server.run(&["audit", "list", "--outcome", "dome"]).failed(1, "audit log");
    server.run(&["audit", "list", "--outcome", "dome", "--directory", directory]).failed(2, "--outcome");
    server.run(&["audit", "verify", "--directory", "/nowhere"]).failed(3, "/nowhere");
    server.run(&["audit", "list", "--server", "http://127.0.0.1:1"]).failed(7, "server");
    // Somebody edits the log.
    let file = std::path::Path::new(directory).join("audit.jsonl");
    let text = std::fs::read_to_string(&file).expect("the log is there");
    std::fs::write(&file, text.replacen("prod", "prud", 1)).expect("it can be changed");
    for place in [&[][..], &["--directory", directory]] {
        let found = server.run(&[&["audit", "verify"], place].concat()).failed(1, "audit log");
        assert!(found.out.contains("was changed after it was written"), "{}", found.out);
    }
}

/// An embedded store that is being served is exported by its server, asked for or not.
#[test]
fn a_store_in_use_is_exported_by_its_server() {
    let server = Server::start();
    server.fill();
    let data = server.home().join("data");
    let data = data.to_str().expect("UTF-8");
    let file = server.home().join("all.jsonl");
    let file = file.to_str().expect("UTF-8");
    for how in [&["--online"][..], &["--data-dir", data]] {
        let done = server.run(&[&["store", "export", file], how].concat());
        assert_eq!(done.code, 0, "{how:?}: {}", done.err);
        assert!(server.run(&["store", "verify", file]).ok().contains("whole"));
        std::fs::remove_file(file).expect("it was made");
    }
    let text = server.run(&["store", "export", "-", "--online"]).ok();
    assert!(text.lines().last().is_some_and(|line| line.contains("\"end\":true")), "{text:.300}");
    // Without a server to ask there is nothing to be had, and no half a file is left.
    let refused = server.run(&["store", "export", file, "--online", "--server", "http://127.0.0.1:1"]);
    refused.failed(7, "server");
    assert!(!std::path::Path::new(file).exists() && !std::path::Path::new(&format!("{file}.part")).exists());
    // What was exported while serving is a store like any other.
    server.run(&["store", "export", file, "--online"]).ok();
    let home = tempfile::tempdir().expect("a folder");
    let other = home.path().join("other");
    let import = Ran::of(
        clean(Command::new(MUSTER), home.path())
            .args(["store", "import", file, "--data-dir", other.to_str().expect("UTF-8")])
            .output()
            .expect("the binary runs"),
    );
    assert!(import.ok().contains("keys imported"));
}

#[test]
fn a_retired_controller_is_forgotten() {
    let server = Server::start();
    server.fill();
    server.report(&server.id("web"), 3, 1);
    server.run(&["delete", "report", "prod/web", "--yes"]).failed_as_usage();
    server.run(&["delete", "report", "prod/web/nobody", "--yes"]).failed(3, "report");
    let gone = server.run(&["delete", "report", "prod/web/gcp-nodepool-controller", "--yes"]).ok();
    assert!(gone.contains("deleted"), "{gone}");
    assert_eq!(server.run(&["get", "reports", "prod/web", "-o", "name"]).ok(), "");
}

#[test]
fn a_difference_says_what_replaces_nodes() {
    let server = Server::start();
    server.fill();
    let yaml = server.run(&["get", "pool", "web", "-o", "yaml"]).ok();
    let file = server.file(
        "pool.yaml",
        &yaml.replace("n1-standard-4", "n1-standard-8").replace("nodeCount: 3", "nodeCount: 4"),
    );
    let diff = server.run(&["diff", "-f", file.to_str().expect("UTF-8")]);
    assert_eq!(diff.code, 1, "{}", diff.err);
    assert!(diff.out.contains("# replaces nodes: spec.platform.gcp.machineType"), "{}", diff.out);
    assert!(diff.out.contains("# applies in place: spec.nodeCount"), "{}", diff.out);
}

#[test]
fn clusters_show_their_nodes_and_operations_can_be_watched() {
    let server = Server::start();
    server.fill();
    let table = server.run(&["get", "clusters"]).ok();
    assert!(table.contains("?/3"), "nobody has said how many are ready: {table}");
    server.report(&server.id("web"), 3, 1);
    assert!(server.run(&["get", "clusters"]).ok().contains("3/3"));
    let mut watch = Running(
        server
            .command(&["watch", "operations", "-o", "json"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs"),
    );
    let mut events = BufReader::new(watch.0.stdout.take().expect("piped"))
        .lines()
        .map_while(Result::ok)
        .map(|line| serde_json::from_str::<Value>(&line).expect("an event is one line of JSON"));
    server.run(&["scale", "pool", "web", "--to", "5"]).ok();
    assert!(events.any(|event| event["object"]["target_nodes"] == 5));
}
