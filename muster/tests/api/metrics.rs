//! What Prometheus scrapes: judged by its own linter, and fine enough to mean something.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use crate::harness::{World, embedded, etcd, report};

/// The metrics after requests of every kind.
async fn scraped(world: &World) -> String {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let pool = user.pool(&cluster, "p").await;
    user.report(&format!("nodepools/{pool}"), &report("k", 1, ("Ready", "True"))).await.expect(200);
    user.get("/api/v1/nodepools?status=Ready").await.expect(200);
    user.get("/api/v1/nodepools/11111111-1111-4111-8111-111111111111").await.expect(404);
    user.request("GET", "/metrics").send().await.unwrap().text().await.unwrap()
}

/// What `promtool check metrics` says of a text, line by line.
fn promtool(text: &str) -> Vec<String> {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool can be started; the Debian package prometheus brings it");
    child.stdin.take().expect("standard input is piped").write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    said.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

async fn the_linter_is_content(world: World) {
    let text = scraped(&world).await;
    // OpenMetrics puts a counter's help on the name without `_total`, where this linter does not look for it.
    let known = |line: &String| {
        let (name, what) = line.split_once(' ').unwrap_or((line, ""));
        name.ends_with("_total") && what == "no help text"
    };
    let found = promtool(&text);
    let new: Vec<&String> = found.iter().filter(|line| !known(line)).collect();
    assert!(new.is_empty(), "{new:#?}");
    for line in found.iter().filter(|line| known(line)) {
        let family = line.split("_total").next().unwrap();
        assert!(text.contains(&format!("# HELP {family} ")), "{family} has no help at all");
    }
}

#[tokio::test]
async fn promtool_finds_nothing_new_on_the_embedded_store() {
    the_linter_is_content(embedded()).await;
}

#[tokio::test]
async fn promtool_finds_nothing_new_on_etcd() {
    the_linter_is_content(etcd()).await;
}

#[test]
fn the_linter_is_awake() {
    let found =
        promtool("# HELP up help\n# TYPE up gauge\nup 1\n# TYPE seconds_total gauge\nseconds_total 1\n");
    assert!(!found.is_empty());
}

/// The sum of a histogram, over all its series.
fn sum(text: &str, family: &str) -> f64 {
    let prefix = format!("{family}_sum");
    let values = text.lines().filter(|line| line.starts_with(&prefix));
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

#[tokio::test]
async fn durations_are_finer_than_milliseconds() {
    let text = scraped(&embedded()).await;
    for family in ["muster_http_request_duration_seconds", "muster_store_request_duration_seconds"] {
        let millis = sum(&text, family) * 1_000.0;
        assert!(millis > 0.0, "{family} measures nothing");
        // Whole milliseconds would add up to a whole number; so many readings that do not cannot be chance.
        assert!((millis - millis.round()).abs() > 1e-6, "{family} counts whole milliseconds: {millis}");
    }
}
