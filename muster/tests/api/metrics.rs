//! What Prometheus scrapes: judged by its own linter, and fine enough to mean something.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    faults::until,
    harness::{Etcd, Server, World, embedded, etcd, gcp_spec, report},
};

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
async fn ops_u13_promtool_finds_nothing_new_on_the_embedded_store() {
    the_linter_is_content(embedded()).await;
}

#[tokio::test]
async fn ops_u13_promtool_finds_nothing_new_on_etcd() {
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

/// Lines that are series, and the size of the scrape.
async fn series(world: &World) -> (usize, String) {
    let text = world.user().request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    (text.lines().filter(|line| !line.starts_with('#')).count(), text)
}

/// OPS-U13 with a fleet of 500 servers in 20 racks and 20 pools: the number of series is bounded, and comings and goings
/// leave nothing behind.
async fn a_fleet_stays_within_its_series(world: World) {
    let user = world.user();
    let hosts: Vec<Value> = (0..500)
        .map(|number| {
            let (rack, place) = (number / 25, number % 25);
            json!({"name": format!("host-{number:03}"), "spec": {"powerInterface": "redfish",
                "mgmtAddress": format!("10.90.{rack}.{}", place + 1), "macAddress": format!("02:90:00:00:{rack:02x}:{place:02x}"),
                "pool": format!("metal-{}", number % 20), "rack": format!("rack-{rack:02}"),
                "resources": {"cpu": "64", "memory": "512Gi"}}})
        })
        .collect();
    for rack in 0..20 {
        let body = json!({"name": format!("rack-{rack:02}"), "spec": {}});
        user.post("/api/v1/racks", &body).await.expect(201);
    }
    let registered = user.post("/api/v1/hosts/bulk", &json!({ "hosts": hosts })).await.expect(200).body;
    assert_eq!(registered["created"], 500, "{registered}");
    let cluster = user.cluster("c").await;
    for number in 0..20 {
        let pool = user.pool(&cluster, &format!("pool-{number:02}")).await;
        user.report(&format!("nodepools/{pool}"), &report("k", 1, ("Ready", "True"))).await.expect(200);
    }
    let churn = async || {
        for number in 0..100 {
            let body = json!({"name": format!("passing-{number}"), "spec": gcp_spec()});
            let made = user.post(&format!("/api/v1/clusters/{cluster}/nodepools"), &body).await.expect(201);
            user.delete(&format!("/api/v1/nodepools/{}", made.id())).await.expect(204);
        }
    };
    churn().await;
    // Hosts take their first turns within half a minute, and from then on their pools have figures. The first scrape is itself a
    // request that is counted from then on.
    until(|| async {
        let (_, text) = series(&world).await;
        (0..20).all(|pool| text.contains(&format!("muster_hosts_power_watts{{pool=\"metal-{pool}\"}}")))
    })
    .await;
    let (before, text) = series(&world).await;
    assert!(before <= 2_000, "{before} series");
    assert!(text.len() <= 5_000_000, "{} bytes", text.len());
    assert!(!text.contains("host-001") && !text.contains("passing-"), "names of servers, or of what is gone");
    churn().await;
    let (after, _) = series(&world).await;
    assert_eq!(after, before, "comings and goings leave series behind");
}

#[tokio::test]
async fn ops_u13_a_fleet_stays_within_its_series_on_the_embedded_store() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    a_fleet_stays_within_its_series(World::new(&server.base, "embedded")).await;
}

#[tokio::test]
async fn ops_u13_a_fleet_stays_within_its_series_on_etcd() {
    let (etcd, directory) = (Etcd::start(), tempfile::tempdir().unwrap());
    let server = Server::start(directory.path(), &["--store", &etcd.store()]);
    a_fleet_stays_within_its_series(World::new(&server.base, "etcd")).await;
}
