//! The controller of the guide, run as the guide says: it makes a pool ready, follows its size, and lets it go.

mod cli_support;

use std::{
    path::Path,
    process::{Command, Stdio},
};

use cli_support::{CONTROLLER_TOKEN, Running, Server};

/// Starts the example; it ends with the returned value.
fn controller(server: &Server) -> Running {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/controller.py");
    let child = Command::new("python3")
        .arg(script)
        .args(["--server", &server.url, "--boot-seconds", "0.2", "--lease", "60"])
        .env("MUSTER_CONTROLLER_TOKEN", CONTROLLER_TOKEN)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("python3 is installed");
    Running(child)
}

#[test]
fn the_example_controller_makes_scales_and_tears_down() {
    let server = Server::start();
    server.fill();
    let mut running = controller(&server);
    server.run(&["wait", "pool/prod/web", "--for=condition=Ready", "--timeout", "2m"]).ok();
    let pool = server.json(&["get", "pool", "prod/web"]);
    assert_eq!(pool["status"]["ready_nodes"], 3, "{pool}");
    assert_eq!(pool["status"]["health"], "Healthy", "{pool}");

    server.run(&["scale", "pool", "prod/web", "--to", "5", "--wait", "--timeout", "2m"]).ok();

    // A pool that a controller has reported on goes only when the controller confirms it.
    server.run(&["delete", "pool", "prod/web", "--wait", "--yes", "--timeout", "2m"]).ok();
    let (status, body) = server.http(
        "GET",
        &format!("/api/v1/nodepools/{}?include_deleted=true", pool["id"].as_str().expect("an id")),
        None,
        "",
    );
    assert_eq!(status, 404, "{body}");
    assert!(running.0.try_wait().expect("it can be asked").is_none(), "the example ended by itself");
}
