//! Around the verbs: completion, contexts, doctor, the reference.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

mod cli_support;

use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use cli_support::{MUSTER, On, Ran, Server, clean, many_pools, on_each_store};
use serde_json::Value;

fn complete(server: &Server, words: &[&str]) -> Vec<String> {
    let mut command = server.command(&["--"]);
    let index = words.len() - 1;
    command
        .env("MUSTER_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", index.to_string())
        .env("_CLAP_COMPLETE_COMP_TYPE", "9")
        .env("_CLAP_COMPLETE_SPACE", "false")
        .env("_CLAP_IFS", "\n")
        .args(words);
    Ran::of(command.output().expect("the binary runs")).ok().lines().map(str::to_owned).collect()
}

/// OPS-U7: scripts that shells accept, and names from the server.
fn ops_u7_completion(on: On) {
    let server = Server::on(on);
    server.run(&["create", "cluster", "prod"]).ok();
    many_pools(&server, 500);
    for (shell, checker) in [("bash", Some("bash")), ("zsh", None), ("fish", None)] {
        let script = server.run(&["completion", shell]).ok();
        assert!(script.contains("muster"), "{shell}: {script}");
        if let Some(program) = checker {
            let path = server.file("completion", &script);
            let checked = Command::new(program).arg("-n").arg(path).stderr(Stdio::piped()).output().unwrap();
            assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        }
    }
    let pools = complete(&server, &["muster", "get", "pool", ""]);
    assert_eq!(pools.iter().filter(|name| name.starts_with("prod/pool-")).count(), 500, "{:?}", &pools[..5]);
    assert_eq!(complete(&server, &["muster", "get", "pool", "prod/pool-049"]).len(), 10);
    assert_eq!(complete(&server, &["muster", "scale", "pool/prod/pool-0499"]), ["pool/prod/pool-0499"]);
    assert!(complete(&server, &["muster", "describe", "c"]).contains(&"clusters".to_owned()));
    assert_eq!(complete(&server, &["muster", "get", "pools", "--cluster", "pr"]), ["prod"]);
    assert!(
        complete(&server, &["muster", "get", "pools", "-o", "cus"]).contains(&"custom-columns=".to_owned())
    );
    assert!(complete(&server, &["muster", "get", "pools", "--sor"]).contains(&"--sort-by".to_owned()));
    let cobra = server.run(&["__complete", "get", "pool", "prod/pool-0001"]).ok();
    assert_eq!(cobra, "prod/pool-0001\n:4\n");
    // Without a server there are no names, and no noise.
    assert_eq!(
        complete(&server, &["muster", "get", "pool", "--server", "http://127.0.0.1:1", "x"]),
        Vec::<String>::new()
    );
}

#[test]
fn contexts_choose_the_server_and_the_identity() {
    let server = Server::start();
    server.fill();
    let run =
        |args: &[&str]| Ran::of(clean(Command::new(MUSTER), server.home()).args(args).output().unwrap());
    assert_eq!(run(&["config", "current-context"]).failed(3, "current context").code, 3);
    assert_eq!(
        run(&["config", "set-context", "here", "--server", &server.url]).ok(),
        "context here created\n"
    );
    assert_eq!(run(&["get", "pools", "-o", "name"]).ok(), "nodepool/prod/web\n");
    run(&["config", "set-context", "other", "--server", &server.url, "--as-email", "bob@example.com"]).ok();
    assert_eq!(
        run(&["--context", "other", "get", "pools", "-o", "name"]).ok(),
        "",
        "bob sees nothing of ours"
    );
    run(&["config", "use-context", "other"]).ok();
    assert_eq!(run(&["config", "current-context"]).ok(), "other\n");
    run(&["config", "use-context", "nowhere"]).failed(3, "context nowhere");
    let listed: Value = serde_json::from_str(&run(&["config", "get-contexts", "-o", "json"]).ok()).unwrap();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(2));
    let connection = run(&["config", "connection"]).ok();
    assert!(connection.contains("bob@example.com") && connection.contains("context other"), "{connection}");
    let settings = run(&["config", "view", "--origin"]).ok();
    assert!(settings.contains("listen: ") && settings.contains("# default"), "{settings}");
    let mode =
        std::fs::metadata(server.home().join(".config/muster/config.yaml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "the file is its owner's alone");
    run(&["config", "delete-context", "other"]).ok();
    assert!(run(&["config", "get-contexts"]).ok().contains("here"));
}

#[track_caller]
fn failed_check(ran: Ran, code: i32, id: &str, object: &str, remedy: &str) {
    assert_eq!(ran.code, code, "{}", ran.out);
    let report: Value = serde_json::from_str(&ran.out).expect("the report of doctor has this");
    let found = report["checks"]
        .as_array()
        .expect("the report of doctor has this")
        .iter()
        .find(|check| check["id"] == id && check["result"] == "failed");
    let found = found.unwrap_or_else(|| panic!("no failed check {id} in {report:#}"));
    assert!(found["object"].as_str().expect("the report of doctor has this").contains(object), "{found}");
    assert!(found["remedy"].as_str().expect("the report of doctor has this").contains(remedy), "{found}");
}

/// OPS-U20, the part that needs no cluster: a clean set-up passes, a broken one is named with its remedy.
fn ops_u20_doctor_names_what_is_wrong(on: On) {
    let server = Server::on(on);
    server.fill();
    let clean_run = server.run(&["doctor", "-o", "json"]);
    assert_eq!(clean_run.code, 0, "{}{}", clean_run.out, clean_run.err);
    let report: Value = serde_json::from_str(&clean_run.out).unwrap();
    assert_eq!(report["ok"], true);
    for check in report["checks"].as_array().unwrap() {
        assert!(
            check["id"].is_string() && check["object"].is_string() && check["found"].is_string(),
            "{check}"
        );
    }
    let doctor = |extra: &[&str]| server.run(&[&["doctor", "-o", "json"], extra].concat());
    failed_check(doctor(&["--server", "http://127.0.0.1:1"]), 7, "server", "127.0.0.1:1", "muster serve");
    failed_check(doctor(&["--as-email", "nobody"]), 5, "identity", "server", "--as-email");
    failed_check(doctor(&["--context", "nowhere"]), 3, "config", "context nowhere", "set-context");
    let token = server.file("token", "secret");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).unwrap();
    failed_check(
        doctor(&["--token-file", token.to_str().unwrap()]),
        1,
        "file-permissions",
        "token",
        "chmod 600",
    );
    let config = server.file("bad.yaml", "contexts:\n  a:\n    sever: x\n");
    failed_check(
        doctor(&["--client-config", config.to_str().unwrap()]),
        1,
        "config",
        "bad.yaml",
        "correct the file",
    );
    // A pool whose controller gave up.
    let fatal = r#"{"controller_name":"k","observed_generation":1,"conditions":[{"type":"Available","status":"False"}],"last_error":{"errorType":"Fatal","message":"no quota"}}"#;
    let path = format!("/api/v1/nodepools/{}/status", server.id("web"));
    assert_eq!(server.http("PUT", &path, Some(cli_support::CONTROLLER_TOKEN), fatal).0, 200);
    let report: Value = serde_json::from_str(&doctor(&[]).out).unwrap();
    let mut checks = report["checks"].as_array().unwrap().iter();
    let sick = checks.find(|check| check["id"] == "pools" && check["result"] == "warning").unwrap();
    assert_eq!(sick["object"], "nodepool prod/web");
    assert!(sick["remedy"].as_str().unwrap().contains("muster describe pool prod/web"), "{sick}");
    let short = server.run(&["doctor", "-o", "short", "--server", "http://127.0.0.1:1"]);
    assert!(short.out.contains("failed") && !short.out.contains(" ok "), "{}", short.out);
    assert_eq!(server.run(&["version", "--client"]).ok().lines().count(), 1);
}

/// The reference is made from the program: `muster reference > docs/reference/cli.md` brings it up to date.
#[test]
fn the_reference_matches_the_program() {
    let home = tempfile::tempdir().unwrap();
    for what in ["cli", "configuration"] {
        let mut command = clean(Command::new(MUSTER), home.path());
        let made = Ran::of(command.args(["reference", what]).output().unwrap()).ok();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/reference/{what}.md"));
        let kept =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(
            kept == made,
            "docs/reference/{what}.md is out of date: run `cargo run -p muster -- reference {what} > docs/reference/{what}.md`"
        );
    }
}

/// What a server left behind can be exported, checked, and put into another store; damage is found.
#[test]
fn a_store_travels_by_export_and_import() {
    let server = Server::start();
    server.fill();
    let home = tempfile::tempdir().unwrap();
    let data = server.home().join("data").to_str().unwrap().to_owned();
    let run = |args: &[&str]| Ran::of(clean(Command::new(MUSTER), home.path()).args(args).output().unwrap());
    let file = home.path().join("all.jsonl");
    let file = file.to_str().unwrap();
    run(&["store", "stats", "--data-dir", &data]).failed(4, "store"); // the server holds it
    let kept = server.stop();
    run(&["store", "export", file, "--data-dir", &data]).ok();
    assert!(run(&["store", "verify", file]).ok().contains("whole"));
    assert!(run(&["store", "verify", "--data-dir", &data]).ok().contains("all readable"));
    let other = home.path().join("other");
    let other = other.to_str().unwrap();
    assert!(run(&["store", "import", file, "--data-dir", other]).ok().contains("keys imported"));
    let full = run(&["store", "import", file, "--data-dir", other]).failed(1, "all.jsonl");
    assert!(full.err.contains("--overwrite"), "{}", full.err);
    run(&["store", "import", file, "--overwrite", "--data-dir", other]).ok();
    let text = std::fs::read_to_string(file).unwrap();
    std::fs::write(file, text.replacen("web", "wab", 1)).unwrap();
    let damaged = run(&["store", "verify", file]).failed(1, "all.jsonl");
    assert!(damaged.err.contains("another copy") && !damaged.err.contains("--overwrite"), "{}", damaged.err);
    drop(kept);
}

on_each_store!(ops_u7_completion, ops_u20_doctor_names_what_is_wrong,);
