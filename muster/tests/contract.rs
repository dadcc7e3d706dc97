//! The description of the API, tested by programs that are not ours: schemathesis sends what the schemas allow and
//! what they forbid, and a generated Python client does a day's work.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

#[path = "api/harness.rs"]
#[allow(dead_code, unused_macros, unused_imports, reason = "shared with the acceptance rows")]
mod harness;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use harness::{CONTROLLER_TOKEN, Server};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The environment with both programs.
fn environment() -> PathBuf {
    let made = Command::new(format!("{ROOT}/scripts/contract/install.sh")).output().expect("the script runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    PathBuf::from(String::from_utf8(made.stdout).unwrap().trim())
}

fn end(output: &Output) -> String {
    let text =
        format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(150)..].join("\n")
}

fn served() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--seed-example"]);
    (directory, server)
}

#[test]
fn ops_u16_schemathesis_finds_nothing() {
    let (_directory, server) = served();
    let work = tempfile::tempdir().unwrap();
    let output = Command::new(environment().join("bin/schemathesis"))
        .current_dir(work.path())
        .args(["--config-file", &format!("{ROOT}/scripts/contract/schemathesis.toml"), "--no-color"])
        .args(["run", &format!("{}/openapi.json", server.base), "--url", &server.base])
        .args(["-H", "X-User-Email: user@example.com"])
        .args(["--workers", "1", "--request-timeout", "60", "--continue-on-failure"])
        .output()
        .expect("schemathesis runs");
    assert!(output.status.success(), "{}", end(&output));
}

#[test]
fn ops_u16_a_generated_python_client_creates_scales_waits_and_deletes() {
    let (_directory, server) = served();
    let work = tempfile::tempdir().unwrap();
    let environment = environment();
    let generated = work.path().join("client");
    let output = Command::new(environment.join("bin/openapi-python-client"))
        .current_dir(work.path())
        .args(["generate", "--meta", "none", "--fail-on-warning"])
        .args(["--config", &format!("{ROOT}/scripts/contract/client.yml")])
        .args(["--path", &format!("{ROOT}/docs/reference/openapi.json")])
        .args(["--output-path", text(&generated)])
        .output()
        .expect("the generator runs");
    assert!(output.status.success(), "{}", end(&output));
    let output = Command::new(environment.join("bin/python"))
        .current_dir(work.path())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/generated_client.py"))
        .args([server.base.as_str(), CONTROLLER_TOKEN])
        .env("PYTHONPATH", work.path())
        .output()
        .expect("python runs");
    assert!(output.status.success(), "{}", end(&output));
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}
