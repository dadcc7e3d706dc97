//! The verbs of the command line, run as a user runs them, against a real server.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

mod cli_support;

use std::{
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    process::{Command, Stdio},
};

use cli_support::{MUSTER, On, Ran, Running, Server, clean, many_pools, on_each_store};
use serde_json::Value;

const FORMATS: [&str; 8] = [
    "table",
    "wide",
    "json",
    "yaml",
    "name",
    "jsonpath={.kind}{\"\\n\"}",
    "jsonpath={range .items[*]}{.name}{\"\\n\"}{end}",
    "custom-columns=NAME:.name,N:.spec.nodeCount",
];

/// OPS-U3: every list and get, in every form, through a pipe.
fn ops_u3_every_form_parses_and_holds_data_only(on: On) {
    let server = Server::on(on);
    server.fill();
    server.report(&server.id("web"), 3, 1);
    server.run(&["scale", "pool", "web", "--to", "4"]).ok();
    for what in [
        &["get", "clusters"][..],
        &["get", "cluster", "prod"],
        &["get", "pools"],
        &["get", "pool", "prod/web"],
        &["get", "reports"],
        &["get", "reports", "prod/web"],
        &["get", "operations"],
        &["get", "all"],
    ] {
        for format in FORMATS {
            let ran = server.run(&[what, &["-o", format]].concat());
            assert_eq!(ran.code, 0, "{what:?} -o {format}: {}", ran.err);
            let only_lists = format.contains("range");
            assert!(only_lists || !ran.out.is_empty(), "{what:?} -o {format} printed nothing");
            assert!(
                !ran.out.contains('\u{1b}') && !ran.err.contains('\u{1b}'),
                "{what:?} -o {format}: ANSI bytes"
            );
            match format {
                "json" => drop(serde_json::from_str::<Value>(&ran.out).expect("one JSON document")),
                "yaml" => drop(serde_saphyr::from_str::<Value>(&ran.out).expect("one YAML document")),
                "name" => assert!(ran.out.lines().all(|line| line.contains('/')), "{}", ran.out),
                "table" | "wide" => assert!(ran.out.lines().count() >= 2, "{}", ran.out),
                _ => {}
            }
        }
    }
    assert_eq!(server.run(&["get", "pools", "--no-headers"]).ok().lines().count(), 1);
}

/// OPS-U3: a long list is one document, whatever the page size of the API.
fn ops_u3_five_thousand_objects_are_one_document(on: On) {
    let server = Server::on(on);
    server.run(&["create", "cluster", "prod"]).ok();
    many_pools(&server, 5_000);
    let document = server.json(&["get", "pools"]);
    let items = document["items"].as_array().expect("a list");
    assert_eq!(items.len(), 5_000);
    let names: std::collections::BTreeSet<&str> =
        items.iter().filter_map(|item| item["name"].as_str()).collect();
    assert_eq!(names.len(), 5_000, "no object twice, none left out");
    // OPS-U6's neighbour: a reader that goes away early is no fault.
    let mut child = Running(
        server
            .command(&["get", "pools", "-o", "yaml"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut first = [0_u8; 64];
    child.0.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let status = child.0.wait().unwrap();
    let mut words = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    assert!(status.success() && words.is_empty(), "{status}: {words}");
}

/// OPS-U1: the default table is short, and tells what is wrong.
fn ops_u1_the_table_fits_and_names_the_worst_reason(on: On) {
    let server = Server::on(on);
    server.fill();
    server.run(&["create", "cluster", "a-cluster-with-a-long-name"]).ok();
    let long = ["create", "pool", "a-pool-with-a-long-name/x", "--platform", "gcp"];
    server
        .run(
            &[
                &long[..2],
                &[
                    "a-cluster-with-a-long-name/production-workers",
                    "--platform",
                    "gcp",
                    "--machine-type",
                    "n1-standard-4",
                    "--count",
                    "1",
                ],
            ]
            .concat(),
        )
        .ok();
    let table = server.run(&["get", "pools"]).ok();
    let header = table.lines().next().unwrap();
    assert_eq!(
        header.split_whitespace().collect::<Vec<_>>(),
        ["CLUSTER", "NAME", "DESIRED", "READY", "ON", "MIN", "MAX", "MODE", "STATUS", "AGE"]
    );
    assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
    assert!(table.lines().skip(1).all(|line| line.contains("NoControllers")), "{table}");
    assert!(!table.contains("<none>") && !table.contains("<unknown>"));
    server.report(&server.id("web"), 3, 1);
    let table = server.run(&["get", "pool", "web"]).ok();
    assert!(table.contains("Ready"), "{table}");
    let described = server.run(&["describe", "pool", "prod/web"]).ok();
    for part in [
        "Bounds:",
        "1 to 10",
        "70 % (default)",
        "gcp-nodepool-controller",
        "2h30m, 1h45m, 30m",
        "Conditions:",
        "Next steps:",
        "tier=web",
    ] {
        assert!(described.contains(part), "{part:?} is missing in:\n{described}");
    }
}

/// OPS-U4: eight codes; every error names object, cause and next step.
fn ops_u4_exit_codes(on: On) {
    let server = Server::on(on);
    assert_eq!(server.run(&["get", "pools"]).code, 0);
    server.fill();
    server.run(&["scale", "pool", "web", "--to", "50"]).failed(1, "nodepool prod/web");
    server.run(&["get", "poools"]).failed(2, "kind \"poools\"");
    assert_eq!(server.run(&["get"]).code, 2);
    assert_eq!(server.run(&["get", "pools", "-o", "jsn"]).code, 2);
    let missing = server.run(&["get", "pool", "wbe"]).failed(3, "nodepool wbe");
    assert!(missing.err.contains("did you mean prod/web"), "{}", missing.err);
    server.run(&["create", "cluster", "prod"]).failed(4, "cluster prod");
    server
        .run(&["patch", "pool", "web", "--patch", "{spec: {nodeCount: 4}}", "--resource-version", "1"])
        .failed(4, "nodepool prod/web");
    server.run(&["scale", "pool", "web", "--to", "4", "--current", "9"]).failed(4, "nodepool prod/web");
    server.run(&["get", "pools", "--as-email", "not-an-address"]).failed(5, "nodepools");
    server.run(&["get", "pools", "--project", "somebody-elses"]).failed(5, "nodepools");
    server.run(&["wait", "pool/prod/web", "--timeout", "200ms"]).failed(6, "nodepool prod/web");
    server.run(&["get", "pools", "--server", "http://127.0.0.1:1"]).failed(7, "server http://");
    // A listener that never answers: the request runs out of time.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    server
        .run(&["get", "pools", "--server", &address, "--request-timeout", "300ms"])
        .failed(6, "server http://");
    // A cluster with pools is not deleted without a word.
    let refused = server.run(&["delete", "cluster", "prod"]).failed(4, "cluster prod");
    assert!(refused.err.contains("--cascade"), "{}", refused.err);
}

/// OPS-U5: what a dry run prints can be applied, changes nothing, and stays unchanged.
fn ops_u5_a_dry_run_is_valid_input(on: On) {
    // Nobody else may write: planners would.
    let server = Server::on_with(on, &["--set", "lead=false"]);
    server.fill();
    let before = server.state();
    let pool = [
        "create",
        "pool",
        "prod/gpu",
        "--platform",
        "gcp",
        "--machine-type",
        "n1-standard-8",
        "--min",
        "0",
        "--max",
        "4",
        "--spot",
    ];
    let printed = server
        .run(&[&pool[..], &["--taints", "gpu=yes:NoSchedule", "--dry-run=server", "-o", "yaml"]].concat())
        .ok();
    assert_eq!(server.state(), before, "a dry run changed the store");
    assert_eq!(server.feed(&["apply", "-f", "-"], &printed).ok(), "nodepool/prod/gpu created\n");
    let after = server.state();
    assert_ne!(after, before, "a write is seen");
    assert_eq!(server.feed(&["apply", "-f", "-"], &printed).ok(), "nodepool/prod/gpu unchanged\n");
    assert_eq!(server.state(), after, "an unchanged apply changed the store");
    assert_eq!(server.feed(&["diff", "-f", "-"], &printed).ok(), "");
    // Whole objects can be fed back too.
    let all = server.run(&["get", "clusters,pools", "-o", "yaml"]).ok();
    let applied = server.feed(&["apply", "-f", "-"], &all).ok();
    assert!(
        applied.lines().count() == 3 && applied.lines().all(|line| line.ends_with("unchanged")),
        "{applied}"
    );
}

#[test]
fn files_say_how_things_shall_be() {
    let server = Server::start();
    let fleet = "kind: Cluster\nname: prod\nspec:\n  platform:\n    type: gcp\n---\nkind: NodePool\nname: web\ncluster: prod\nspec:\n  platform: {type: gcp, gcp: {machineType: n1-standard-4}}\n  nodeCount: 2\n";
    server.file("fleet/a.yaml", fleet);
    server.file("fleet/b.json", r#"{"name":"db","cluster":"prod","spec":{"platform":{"type":"gcp","gcp":{"machineType":"n1-standard-8"}},"nodeCount":1}}"#);
    server.file("fleet/notes.txt", "not an object");
    let folder = server.home().join("fleet");
    let folder = folder.to_str().unwrap();
    let tried = server.run(&["apply", "-f", folder, "--dry-run=server"]);
    assert!(tried.out.contains("cluster/prod created (server dry run)"), "{}", tried.out);
    assert_eq!(server.run(&["get", "clusters"]).out, "", "a dry run created something");
    let ran = server.run(&["diff", "-f", folder]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.out.contains("+++ file/cluster/prod") && ran.out.contains("+name: web"), "{}", ran.out);
    assert_eq!(
        server.run(&["apply", "-f", folder]).ok(),
        "cluster/prod created\nnodepool/prod/web created\nnodepool/prod/db created\n"
    );
    // A change is shown as one, and made.
    let changed = server.file("web.yaml", &fleet.replace("nodeCount: 2", "nodeCount: 5"));
    let changed = changed.to_str().unwrap();
    let ran = server.run(&["diff", "-f", changed]);
    assert!(ran.code == 1 && ran.out.contains("-  nodeCount: 2\n+  nodeCount: 5"), "{}", ran.out);
    assert_eq!(
        server.run(&["apply", "-f", changed]).ok(),
        "cluster/prod unchanged\nnodepool/prod/web configured\n"
    );
    // Faults are named field by field, with their lines; the other objects go on.
    let wrong = fleet.replace("  nodeCount: 2", "  nodeCount: -2\n  nodecount: 3");
    let path = server.file("wrong.yaml", &wrong);
    let ran = server.run(&["apply", "-f", path.to_str().unwrap()]).failed(1, "nodepool prod/web");
    assert!(ran.err.contains("wrong.yaml:12") && ran.err.contains("wrong.yaml:13"), "{}", ran.err);
    assert!(ran.out.contains("cluster/prod unchanged"), "{}", ran.out);
    assert_eq!(server.run(&["diff", "-f", path.to_str().unwrap()]).code, 2, "1 means a difference");
    server.run(&["delete", "-f", folder, "--cascade"]).ok();
    assert_eq!(server.run(&["get", "clusters"]).out, "");
}

/// `edit` gives a text with a fault back to the editor, and keeps it when the person gives up.
#[test]
fn an_edit_is_never_lost() {
    let server = Server::start();
    server.fill();
    let edit = |script: &str| {
        let editor = server.file("editor.sh", &format!("#!/bin/sh\n{script}\n"));
        let mut command = server.command(&["edit", "pool", "prod/web"]);
        Ran::of(
            command.env("EDITOR", format!("sh {}", editor.display())).stdin(Stdio::null()).output().unwrap(),
        )
    };
    assert_eq!(edit("sed -i 's/nodeCount: 3/nodeCount: 4/' \"$1\"").ok(), "nodepool/prod/web edited\n");
    assert_eq!(server.run(&["get", "pool", "web", "-o", "jsonpath={.spec.nodeCount}"]).ok(), "4");
    let unchanged = edit("true");
    assert!(unchanged.code == 0 && unchanged.err.contains("nothing changed"), "{}", unchanged.err);
    // First a fault; seeing it as a comment, the editor corrects it.
    let corrected = edit(
        "if grep -q '^# *spec.nodeCount' \"$1\"; then sed -i 's/nodeCount: 40/nodeCount: 7/' \"$1\"; else sed -i 's/nodeCount: 4$/nodeCount: 40/' \"$1\"; fi",
    );
    assert_eq!(corrected.ok(), "nodepool/prod/web edited\n");
    // Saved with the fault twice: the text is kept in a file that is named.
    let kept = edit("sed -i 's/nodeCount: 7$/nodeCount: 70/' \"$1\"").failed(1, "nodepool prod/web");
    let path = kept
        .err
        .split("kept in ")
        .nth(1)
        .and_then(|rest| rest.split(": correct").next())
        .expect("the file is named");
    assert!(std::fs::read_to_string(path).unwrap().contains("nodeCount: 70"));
    std::fs::remove_file(path).unwrap();
}

/// OPS-U6: waiting that succeeds, that runs out of time, and that is interrupted and resumed.
fn ops_u6_waiting(on: On) {
    let server = Server::on(on);
    server.fill();
    let id = server.id("web");
    server.report(&id, 3, 1);
    let mut scale = Running(
        server
            .command(&["scale", "pool", "prod/web", "--to", "5", "--wait", "--timeout", "5m"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut notes = BufReader::new(scale.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let first = notes.next().expect("a line of progress");
    assert!(first.contains("/5 ready"), "{first}");
    server.report(&id, 5, 2);
    let rest: Vec<String> = notes.collect();
    assert!(scale.0.wait().unwrap().success(), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("has 5 nodes ready")), "{rest:?}");
    assert!(rest.len() <= 3, "one line for each transition: {rest:?}");

    let late = server
        .run(&["scale", "pool", "prod/web", "--to", "6", "--wait", "--timeout", "300ms"])
        .failed(6, "operation");
    assert!(late.err.contains("muster wait operation/"), "{}", late.err);

    let mut wait = Running(
        server
            .command(&["scale", "pool", "prod/web", "--to", "7", "--wait"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut notes = BufReader::new(wait.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    notes.next().expect("it waits now");
    let sent = Command::new("kill").args(["-INT", &wait.0.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let words = notes.collect::<Vec<_>>().join("\n");
    assert_eq!(wait.0.wait().unwrap().code(), Some(130), "{words}");
    let resume = words.split("next: muster wait ").nth(1).expect("how to resume").trim().to_owned();
    server.report(&id, 7, 4);
    let resumed = server.run(&["wait", &resume, "--timeout", "5m"]).ok();
    assert_eq!(resumed, format!("{resume} condition met\n"));
    server.run(&["wait", "pool/prod/web", "--for=phase=Ready", "--timeout", "5m"]).ok();
    server.run(&["wait", "pool/prod/web", "--for=jsonpath={.status.ready_nodes}=7", "--timeout", "5m"]).ok();
}

#[test]
fn a_watch_shows_changes_as_they_happen() {
    let server = Server::start();
    server.fill();
    let mut watch =
        Running(server.command(&["watch", "pools", "-o", "json"]).stdout(Stdio::piped()).spawn().unwrap());
    let mut events = BufReader::new(watch.0.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .map(|line| serde_json::from_str::<Value>(&line).expect("an event is one line of JSON"));
    assert_eq!(events.next().unwrap()["type"], "ADDED");
    server.run(&["patch", "pool", "web", "--patch", "{\"spec\":{\"nodeCount\":8}}"]).ok();
    let changed = events.find(|event| event["object"]["spec"]["nodeCount"] == 8).unwrap();
    assert_eq!(changed["type"], "MODIFIED");
    server.run(&["delete", "pool", "web", "--yes"]).ok();
    assert!(
        events.any(|event| event["type"] == "DELETED" || event["object"]["status"]["phase"] == "Deleting")
    );
}

#[test]
fn a_name_that_is_not_clear_lists_the_candidates() {
    let server = Server::start();
    server.fill();
    server.run(&["create", "cluster", "test"]).ok();
    server
        .run(&[
            "create",
            "pool",
            "test/web",
            "--platform",
            "gcp",
            "--machine-type",
            "n1-standard-4",
            "--count",
            "1",
        ])
        .ok();
    let unclear = server.run(&["get", "pool", "web"]).failed(2, "nodepool web");
    assert!(unclear.err.contains("prod/web, test/web"), "{}", unclear.err);
    assert_eq!(server.json(&["get", "pool", "test/web"])["name"], "web");
    assert_eq!(server.run(&["get", "pools", "--cluster", "test", "-o", "name"]).ok(), "nodepool/test/web\n");
    assert_eq!(server.run(&["get", "pools", "-l", "tier=web", "-o", "name"]).ok(), "nodepool/prod/web\n");
    assert_eq!(
        server.run(&["get", "pools", "--field-selector", "name=web", "-o", "name"]).ok().lines().count(),
        2
    );
    let sorted = server.run(&["get", "pools", "--sort-by", "desired", "-o", "name"]).ok();
    assert_eq!(sorted, "nodepool/test/web\nnodepool/prod/web\n");
    server.run(&["delete", "cluster", "test", "--cascade", "--wait", "--timeout", "5m"]).ok();
    assert_eq!(server.run(&["get", "pools", "-o", "name"]).ok(), "nodepool/prod/web\n");
    assert_eq!(server.run(&["enable", "cluster", "prod"]).ok(), "cluster/prod enabled: mode active\n");
}

/// What people type at night: the message says what is wrong with it, and nothing is made or changed.
#[test]
fn bad_input_is_named() {
    #[track_caller]
    fn check(ran: Ran, code: i32, words: &str) {
        assert_eq!(ran.code, code, "{}{}", ran.out, ran.err);
        assert!(ran.err.contains(words), "no {words:?} in: {}", ran.err);
    }
    let server = Server::start();
    server.fill();
    check(server.run(&["scale", "pool", "web", "--to", "-1"]), 2, "whole number from 0 to 100000");
    check(server.run(&["scale", "pool", "web", "--to", "many"]), 2, "whole number from 0 to 100000");
    check(server.run(&["get", "pools", "--sort-by", "nope"]), 2, "no nodepool has \"nope\"");
    check(server.run(&["get", "pools", "-l", "tier in web"]), 1, "no list in parentheses");
    check(
        server.feed(&["apply", "-f", "-"], "kind: NodePool\ncluster: prod\n"),
        1,
        "it has no name (stdin:1)",
    );
    check(server.feed(&["apply", "-f", "-"], "kind: NodePool\ncluster: prod\nname: 5\n"), 1, "name: must be");
    check(server.feed(&["apply", "-f", "-"], ": : :\n"), 1, "a name is missing before the colon");
    check(server.run(&["delete", "cluster", "prod"]), 4, "still has 1 pool: web");
    let nowhere = server.home().join("nowhere");
    let nowhere = nowhere.to_str().unwrap();
    for verb in [&["store", "stats"][..], &["store", "verify"], &["store", "export", "-"]] {
        check(server.run(&[verb, &["--data-dir", nowhere]].concat()), 3, "there is no store in");
    }
    assert!(!std::path::Path::new(nowhere).exists(), "looking at a store makes none");
    assert_eq!(server.run(&["get", "pools", "-o", "name"]).ok(), "nodepool/prod/web\n");
}

/// OPS-U1: whatever is wrong with a pool, its row says so, and the wide one says it in words.
fn ops_u1_every_fault_is_visible_in_its_row(on: On) {
    const FAULTS: [(&str, &str, &str); 5] = [
        (r#""last_error":{"errorType":"Fatal","message":"MESSAGE"}"#, "False", "FatalError"),
        (r#""last_error":{"errorType":"Configuration","message":"MESSAGE"}"#, "False", "ConfigurationError"),
        (r#""last_error":{"errorType":"Transient","message":"MESSAGE"}"#, "False", "ControllersProvisioning"),
        (r#""last_error":{"errorType":"System","message":"MESSAGE"}"#, "True", "ControllersWithErrors"),
        (r#""metadata":{"active_nodes":1}"#, "False", "ControllersProvisioning"),
    ];
    let server = Server::on(on);
    server.run(&["create", "cluster", "prod"]).ok();
    many_pools(&server, 20);
    for place in 0..20 {
        let (fault, available, _) = FAULTS[place % FAULTS.len()];
        let fault = fault.replace("MESSAGE", &format!("fault number {place:02}"));
        let report = format!(
            r#"{{"controller_name":"k","observed_generation":1,"conditions":[{{"type":"Available","status":"{available}"}}],{fault}}}"#
        );
        let path = format!("/api/v1/nodepools/{}/status", server.id(&format!("pool-{place:04}")));
        let (status, answer) = server.http("PUT", &path, Some(cli_support::CONTROLLER_TOKEN), &report);
        assert_eq!(status, 200, "{answer}");
    }
    let (table, wide) =
        (server.run(&["get", "pools"]).ok(), server.run(&["get", "pools", "-o", "wide"]).ok());
    for place in 0..20 {
        let (fault, _, reason) = FAULTS[place % FAULTS.len()];
        let name = format!("pool-{place:04}");
        let row = |table: &str| table.lines().find(|line| line.contains(&name)).map(str::to_owned).unwrap();
        assert!(row(&table).contains(reason), "{name} hides {reason}:\n{table}");
        let words = fault.contains("Fatal") || fault.contains("Configuration");
        assert!(!words || row(&wide).contains(&format!("fault number {place:02}")), "{wide}");
        assert!(!row(&wide).contains("<none>") && !row(&wide).contains("<unknown>"), "{wide}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
}

/// `12s`, `(3m`: how long ago something was.
fn is_age(word: &str) -> bool {
    let word = word.trim_start_matches('(');
    word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with(['s', 'm', 'h'])
}

/// OPS-U1: the binary is a plugin of kubectl under another name, and the real kubectl finds it.
fn ops_u1_the_same_through_kubectl(on: On) {
    let server = Server::on(on);
    server.fill();
    let folder = server.home().join("plugins");
    std::fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(MUSTER, folder.join("kubectl-muster")).unwrap();
    let built = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/peers/build.sh"))
        .arg("kubectl")
        .output()
        .unwrap();
    assert!(built.status.success(), "kubectl: {}", String::from_utf8_lossy(&built.stderr));
    let kubectl = std::path::Path::new(String::from_utf8_lossy(&built.stdout).trim()).join("kubectl");
    let run = |args: &[&str]| {
        let mut command = clean(Command::new(&kubectl), server.home());
        command.env("PATH", format!("{}:/usr/bin:/bin", folder.display())).env("MUSTER_SERVER", &server.url);
        Ran::of(command.arg("muster").args(args).stdin(Stdio::null()).output().unwrap())
    };
    // Ages go on while one looks.
    let ageless =
        |text: String| text.split_whitespace().filter(|word| !is_age(word)).collect::<Vec<_>>().join(" ");
    for args in [&["get", "pools"][..], &["get", "pools", "-o", "wide"], &["describe", "pool", "prod/web"]] {
        assert_eq!(ageless(run(args).ok()), ageless(server.run(args).ok()), "kubectl muster {args:?}");
    }
    run(&["get", "pool", "nowhere"]).failed(3, "nodepool nowhere");
    let usage = run(&["get", "--help"]).ok();
    assert!(usage.contains("kubectl muster get"), "{usage}");
}

on_each_store!(
    ops_u3_every_form_parses_and_holds_data_only,
    ops_u3_five_thousand_objects_are_one_document,
    ops_u1_the_table_fits_and_names_the_worst_reason,
    ops_u4_exit_codes,
    ops_u5_a_dry_run_is_valid_input,
    ops_u6_waiting,
    ops_u1_every_fault_is_visible_in_its_row,
    ops_u1_the_same_through_kubectl,
);
