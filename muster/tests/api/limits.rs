//! What one caller can take of the service, and what a slow one can hold: through the real binary.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    faults::until,
    harness::{Caller, Server, World},
};

/// Longest wait for something that must happen; the machine may be slow, the server may not hang.
const AT_MOST: Duration = Duration::from_mins(2);

fn start(settings: &[&str]) -> (Server, World, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let arguments: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let server = Server::start(directory.path(), &arguments);
    let world = World::new(&server.base, "limits");
    (server, world, directory)
}

#[tokio::test]
async fn an_identity_that_sends_too_much_is_told_to_wait_and_nobody_else_is() {
    let (_server, world, _directory) = start(&["limits.requests-per-second=2"]);
    let (alice, bob) = (world.user(), world.user());
    let mut refused = None;
    for _ in 0..200 {
        // All at once: however slow the machine is, some of them come within a second.
        let ask = || alice.get("/api/v1/whoami");
        let replies = futures::future::join_all((0..20).map(|_| ask())).await;
        refused = replies.into_iter().find(|reply| reply.status != 200);
        if refused.is_some() {
            break;
        }
    }
    let refused = refused.expect("a limit of 2 a second is never reached").refused(429, "RATE_LIMITED");
    let seconds: u64 = refused.header("retry-after").parse().expect("Retry-After is in seconds");
    assert!((1..=2).contains(&seconds), "{seconds}");
    assert!(refused.details().contains("2 a second"), "{}", refused.details());
    bob.get("/api/v1/whoami").await.expect(200);
    until(|| async { alice.get("/api/v1/whoami").await.status == 200 }).await;
    let metrics = world.user().request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    let counted = metrics.lines().find_map(|line| line.strip_prefix("muster_http_rate_limited_total "));
    assert!(counted.expect("the counter is there").parse::<u64>().unwrap() >= 1);
}

/// A watch that stays open as long as the answer is kept.
async fn watch(user: &Caller) -> (u16, reqwest::Response) {
    let response = user.request("GET", "/api/v1/nodepools?watch=true").send().await.expect("an answer");
    (response.status().as_u16(), response)
}

#[tokio::test]
async fn watches_are_capped_by_identity_and_in_all_and_places_come_back() {
    let (_server, world, _directory) = start(&["limits.watches-per-identity=2", "limits.watches=3"]);
    let (alice, bob) = (world.user(), world.user());
    let (first, second) = (watch(&alice).await, watch(&alice).await);
    assert_eq!((first.0, second.0), (200, 200));
    let (status, refused) = watch(&alice).await;
    assert_eq!(status, 429);
    assert!(refused.headers().contains_key("retry-after"));
    let body: Value = refused.json().await.unwrap();
    assert_eq!(body["error"]["code"], "RATE_LIMITED");
    let third = watch(&bob).await;
    assert_eq!(third.0, 200, "her watches are not his");
    assert_eq!(watch(&bob).await.0, 429, "all places are taken");
    assert_eq!(alice.get("/api/v1/nodepools").await.status, 200, "a list is no watch");
    drop(first);
    until(|| async { watch(&bob).await.0 == 200 }).await;
}

async fn connect(world: &World) -> TcpStream {
    let address: SocketAddr = world.base.trim_start_matches("http://").parse().unwrap();
    TcpStream::connect(address).await.unwrap()
}

/// All that the server still sends before it closes the connection.
async fn until_closed(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let ended = timeout(AT_MOST, stream.read_to_end(&mut text)).await.is_ok(); // a reset is an end, too
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(ended, "the server still holds the connection; it said {text:?}");
    text
}

#[tokio::test]
async fn a_head_that_does_not_come_to_its_end_loses_the_connection() {
    let (_server, world, _directory) = start(&["limits.header-timeout=5s"]);
    let mut silent = connect(&world).await;
    let mut half = connect(&world).await;
    half.write_all(b"GET /api/v1/nodepools HTTP/1.1\r\nhost: x\r\nx-user-email: a@exam").await.unwrap();
    // One byte now and then does not buy time.
    let trickle = connect(&world).await;
    let (mut read, mut write) = trickle.into_split();
    let (_, (), ()) = tokio::join!(
        async { (until_closed(&mut silent).await, until_closed(&mut half).await) },
        async {
            write.write_all(b"GET / HTTP/1.1\r\nx-a: ").await.unwrap();
            while write.write_all(b"b").await.is_ok() {
                if timeout(Duration::from_millis(50), std::future::pending::<()>()).await.is_ok() {
                    return;
                }
            }
        },
        async {
            let mut text = Vec::new();
            let ended = timeout(AT_MOST, read.read_to_end(&mut text)).await;
            assert!(ended.is_ok(), "a trickle holds the connection");
        }
    );
    world.user().get("/api/v1/nodepools").await.expect(200);
}

/// Sends the head of a create with a body of which only the beginning ever comes.
async fn half_a_body(world: &World, identity: &str) -> TcpStream {
    let mut stream = connect(world).await;
    let head = format!(
        "POST /api/v1/clusters HTTP/1.1\r\nhost: x\r\n{identity}content-type: application/json\r\n\
         content-length: 500\r\n\r\n{{\"name\":"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// Reads an answer's head and the envelope behind it.
async fn answer(stream: &mut TcpStream) -> (u16, Value) {
    let mut text = Vec::new();
    let read = async {
        loop {
            let mut chunk = [0; 4096];
            let count = stream.read(&mut chunk).await.expect("the server answers");
            text.extend_from_slice(&chunk[..count]);
            let whole = String::from_utf8_lossy(&text).into_owned();
            if let Some((head, body)) = whole.split_once("\r\n\r\n")
                && let Ok(body) = serde_json::from_str::<Value>(body)
            {
                return (head.split(' ').nth(1).unwrap().parse().unwrap(), body);
            }
            assert!(count > 0, "the answer broke off: {whole}");
        }
    };
    timeout(AT_MOST, read).await.expect("the server answers at last")
}

#[tokio::test]
async fn a_body_that_does_not_come_is_refused_and_the_server_goes_on() {
    let (_server, world, _directory) = start(&["limits.body-timeout=5s"]);
    let mut known = half_a_body(&world, "x-user-email: slow@example.com\r\n").await;
    let mut stranger = half_a_body(&world, "").await;
    let (status, body) = answer(&mut known).await;
    assert_eq!((status, &body["error"]["code"]), (400, &json!("VALIDATION_ERROR")));
    assert!(body["error"]["details"].as_str().unwrap().contains("within 5s"), "{body}");
    let (status, body) = answer(&mut stranger).await;
    assert_eq!((status, &body["error"]["code"]), (401, &json!("UNAUTHENTICATED")));
    until_closed(&mut known).await;
    until_closed(&mut stranger).await;
    world.user().cluster("c").await;
}

/// Reads server-sent events until there are as many that are no bookmarks; each as (id, event, data).
async fn events(user: &Caller, query: &str, count: usize) -> Vec<(String, String, Value)> {
    let request = user.request("GET", &format!("/api/v1/nodepools?watch=true{query}"));
    let mut response = request.send().await.expect("the watch opens");
    assert_eq!(response.status().as_u16(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (mut text, mut found) = (String::new(), Vec::new());
    while found.len() < count {
        let chunk = timeout(AT_MOST, response.chunk()).await.expect("an event comes");
        text.push_str(std::str::from_utf8(&chunk.expect("it goes on").expect("it has not ended")).unwrap());
        while let Some((event, rest)) = text.split_once("\n\n") {
            let field = |name: &str| {
                let line =
                    event.lines().find_map(|line| line.strip_prefix(name)).expect("the field is there");
                line.trim_start().to_owned()
            };
            let data: Value = serde_json::from_str(&field("data:")).expect("data is one JSON document");
            assert_eq!(data["type"], field("event:"));
            if data["type"] != "BOOKMARK" {
                found.push((field("id:"), field("event:"), data));
            }
            text = rest.to_owned();
        }
    }
    found
}

#[tokio::test]
async fn a_watch_comes_as_server_sent_events_and_resumes_by_its_last_id() {
    let world = crate::harness::embedded();
    let user = world.user();
    let cluster = user.cluster("c").await;
    let pool = user.pool(&cluster, "p").await;
    let browser = user.and("accept", "text/event-stream");
    let first = events(&browser, "", 1).await;
    assert_eq!((first[0].1.as_str(), &first[0].2["object"]["id"]), ("ADDED", &json!(pool)));
    user.patch(&format!("/api/v1/nodepools/{pool}"), &json!({"spec": {"nodeCount": 4}})).await.expect(200);
    user.delete(&format!("/api/v1/nodepools/{pool}")).await.expect(204);
    let again = events(&browser.and("last-event-id", &first[0].0), "", 2).await;
    let seen: Vec<&str> = again.iter().map(|(_, event, _)| event.as_str()).collect();
    assert_eq!(seen, ["MODIFIED", "DELETED"]);
    assert_eq!(again[0].2["object"]["spec"]["nodeCount"], 4);
    let ids: Vec<u64> = again.iter().map(|(id, ..)| id.parse().unwrap()).collect();
    assert!(ids[0] > first[0].0.parse().unwrap() && ids[1] > ids[0], "{ids:?}");
    let wrong = browser.and("last-event-id", "yesterday").get("/api/v1/nodepools?watch=true").await;
    wrong.refused(400, "VALIDATION_ERROR");
}
