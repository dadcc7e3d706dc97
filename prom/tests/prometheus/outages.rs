//! OPS-R6: ways of not having metrics, each judged on a server that has it. None of them is read as idle.

use std::sync::{Arc, Mutex};

use tokio::{net::TcpListener, task::JoinHandle};

use super::*;

fn low(extra: Value) -> Value {
    let mut body = down();
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// The same condition, asked by a trigger that adds nodes.
fn raises(extra: Value) -> Value {
    low(extra).as_object().cloned().map_or(Value::Null, |mut body| {
        body.insert("scaleDirection".into(), json!("up"));
        body.insert("comparator".into(), json!("below"));
        Value::Object(body)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_r6_what_is_missing_never_lowers() {
    let server = Server::start().await;
    let half = Err("1 of 2 targets of job node are down");
    let cases: &[Case<'_>] = &[
        // An empty answer, no number, 10 minutes old, and a label that has another name now.
        ("sum(absent_series)", down(), Err("0 series")),
        ("avg(not_a_number)", down(), Err("NaN")),
        ("vanished", down(), Err("old")),
        ("long_gone", down(), Err("0 series")),
        (r#"renamed{pool="a"}"#, down(), Err("0 series")),
        (r#"sum(renamed{pool="a"})"#, down(), Err("0 series")),
        // Half of the targets are missing, however the query puts the others together.
        ("load", down(), half),
        ("load", low(json!({ "aggregate": "avg", "duration": "0s" })), half),
        ("load", low(json!({ "aggregate": "max" })), half),
        ("avg(load)", down(), half),
        ("avg(load)", low(json!({ "duration": "0s" })), half),
        ("sum(load) / count(load) # of all", down(), half),
        (r#"avg({__name__="load",instance=~".+"})"#, down(), half),
        ("avg(flapping)", down(), Err("the targets of job flap were down for")),
        ("avg(flapping)", low(json!({ "duration": "0s" })), Ok(true)),
        // More nodes are asked for on what is known.
        ("avg(load)", raises(json!({})), Ok(true)),
        // Whoever is whole, and whoever is no target, lowers as ever.
        ("avg(whole)", down(), Ok(true)),
        ("whole", down(), Ok(true)),
        ("pushed", down(), Ok(true)),
        ("avg(steady_low)", down(), Ok(true)),
        ("vector(0.1)", down(), Ok(true)),
    ];
    check(&server.client(), cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_r6_a_server_that_is_overloaded_or_hangs_lowers_nothing() {
    let arguments = &["--query.timeout=1ms"];
    let server = Server::start_with(Setup { arguments, ..Setup::default() }).await;
    let heavy = r#"max_over_time(count({__name__=~".+"})[50m:1s]) * 0"#;
    for extra in [down(), raises(json!({}))] {
        check(&server.client(), &[(heavy, extra, Err("Prometheus answers 503"))]).await;
    }
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &server.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    };
    signal("-STOP");
    let hasty = Settings { timeout: Duration::from_millis(500), ..Settings::new(server.url()) };
    let client = Prometheus::new(hasty).unwrap();
    for extra in [down(), raises(json!({}))] {
        check(&client, &[("steady_low", extra, Err("did not answer in time"))]).await;
    }
    signal("-CONT");
}

/// Exporters of one value each, as Prometheus scrapes them.
struct Exporter {
    port: u16,
    body: &'static str,
    serves: Option<JoinHandle<()>>,
}

impl Exporter {
    async fn start(body: &'static str) -> Self {
        let mut exporter = Self { port: 0, body, serves: None };
        exporter.serve().await;
        exporter
    }

    async fn serve(&mut self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        self.port = listener.local_addr().unwrap().port();
        let body = self.body;
        self.serves = Some(tokio::spawn(async move {
            answering(listener, move |_| body.to_owned()).await;
        }));
    }

    async fn stop(&mut self) {
        let serves = self.serves.take().unwrap();
        serves.abort();
        let _ = serves.await;
    }
}

/// A server of HTTP that says what `body` makes of a request, each on a connection of its own.
async fn answering(listener: TcpListener, body: impl Fn(&str) -> String) {
    while let Ok((mut near, _)) = listener.accept().await {
        let mut request = Vec::new();
        let mut part = [0; 4096];
        while !is_complete(&request) {
            match near.read(&mut part).await {
                Ok(0) | Err(_) => break,
                Ok(length) => request.extend_from_slice(&part[..length]),
            }
        }
        let body = body(&String::from_utf8_lossy(&request));
        let head = format!(
            "HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nconnection: close\r\n\
             content-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let _ = near.write_all(format!("{head}{body}").as_bytes()).await;
        let _ = near.shutdown().await;
    }
}

fn is_complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn targets(job: &str, exporters: &[Exporter]) -> String {
    let targets: Vec<String> = exporters.iter().map(|one| format!("'127.0.0.1:{}'", one.port)).collect();
    format!("- {{job_name: {job}, static_configs: [{{targets: [{}]}}]}}\n", targets.join(", "))
}

#[allow(clippy::disallowed_methods, reason = "Prometheus has a clock of its own")]
async fn until(client: &Prometheus, query: &str, extra: Value) {
    for _ in 0..600 {
        if ask(client, query, extra.clone()).await.value().is_some_and(|finding| finding.fires) {
            return;
        }
        tokio::time::sleep(Wait::from_millis(200)).await;
    }
    panic!("{query} {extra} never comes true");
}

/// The busy half of the exporters dies, as it does when the machines are too busy to answer: what is left looks idle.
#[tokio::test(flavor = "multi_thread")]
async fn ops_r6_half_of_the_exporters_stop() {
    let (mut busy, mut idle, mut batch) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..5 {
        busy.push(Exporter::start("heat 0.9\nqueue 0.1\n").await);
        idle.push(Exporter::start("heat 0.1\nqueue 0.1\n").await);
    }
    batch.push(Exporter::start("queue 9\n").await);
    let mut all: Vec<Exporter> = idle;
    all.append(&mut busy);
    let scrape = format!("scrape_configs:\n{}{}", targets("host", &all), targets("batch", &batch));
    let server = Server::start_with(Setup { scrape: &scrape, ..Setup::default() }).await;
    let client = server.client();
    let now = || json!({ "duration": "0s" });
    until(&client, "count(heat)", json!({ "threshold": 9.5, "duration": "0s" })).await;
    until(&client, "max(queue)", json!({ "threshold": 8, "duration": "0s" })).await;
    check(&client, &[("avg(heat)", low(now()), Ok(false)), ("avg(queue)", low(now()), Ok(false))]).await;

    for one in &mut all[5..] {
        one.stop().await;
    }
    for length in ["0s", "3s"] {
        let extra = json!({ "duration": length });
        until(&client, "avg(heat)", raises(extra.clone())).await;
        let mut avg = low(extra.clone());
        avg["aggregate"] = json!("avg");
        let half = Err("5 of 10 targets of job host are down");
        let cases: &[Case<'_>] = &[("avg(heat)", low(extra), half), ("heat", avg, half)];
        check(&client, cases).await;
    }
    // All of a job are gone, and with them every series that names it.
    batch[0].stop().await;
    for one in &mut all[5..] {
        one.serve().await;
    }
    until(&client, "count(heat)", json!({ "threshold": 9.5, "duration": "0s" })).await;
    until(&client, "avg(queue)", raises(now())).await;
    check(&client, &[("avg(queue)", low(now()), Err("1 of 1 target of job batch is down"))]).await;
    batch[0].serve().await;
    until(&client, "max(queue)", json!({ "threshold": 8, "duration": "0s" })).await;
    check(&client, &[("avg(queue)", low(now()), Ok(false)), ("min(queue)", low(now()), Ok(true))]).await;
}

/// A layer in front of several servers says that one of them is silent. Nothing but the warning is played.
#[tokio::test(flavor = "multi_thread")]
async fn ops_r6_a_partial_answer_lowers_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // Which requests are answered in part.
    let partial = Arc::new(Mutex::new("none"));
    let which = Arc::clone(&partial);
    tokio::spawn(answering(listener, move |request| {
        let value = r#"[1767225600,"0.1"]"#;
        let data = if request.contains("/label/job/") {
            json!(["node"])
        } else if request.contains("count_values") {
            json!({ "resultType": "vector", "result": [{ "metric": { "job": "node", "up": "1" }, "value": [1, "10"] }] })
        } else {
            json!({ "resultType": "vector", "result": [{ "metric": { "pool": "a" },
                "value": serde_json::from_str::<Value>(value).unwrap() }] })
        };
        let mut answer = json!({ "status": "success", "data": data });
        if request.contains(*which.lock().unwrap()) {
            answer["warnings"] = json!(["1 of 2 stores did not answer"]);
        }
        answer.to_string()
    }));
    let client = prometheus(Settings::new(url));
    let now = json!({ "duration": "0s" });
    check(&client, &[("sum(load)", low(now.clone()), Ok(true))]).await;
    for part in ["query=sum", "/label/job/", "count_values"] {
        *partial.lock().unwrap() = part;
        check(&client, &[("sum(load)", low(now.clone()), Err("1 of 2 stores did not answer"))]).await;
        check(&client, &[("sum(load)", raises(now.clone()), Ok(true))]).await;
    }
}
