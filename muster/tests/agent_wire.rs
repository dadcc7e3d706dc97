//! A host without a BMC, over the wire: woken by a packet that is captured, heard through a real `muster agent`,
//! stood down by its token.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[allow(dead_code, reason = "shared with the tests of the API, which use all of it")]
#[path = "api/harness.rs"]
mod harness;

use std::{
    net::UdpSocket,
    path::Path,
    process::{Child, Command, Stdio},
};

use muster_model::power::Secret;
use muster_power::agent::{Guard, Token};
use serde_json::{Value, json};

use harness::{Caller, Server, World};

/// Time limits are divided by this: a minute of silence becomes six seconds.
const FACTOR: &str = "hosts.time-factor=10";
const USER: &str = "ann@example.com";
const KEY: &str = "the key of edge-1";
const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0a];

/// The agent of one boot; killed when the test ends.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Agent {
    /// `servers` in the order in which they are asked. Its machine goes off as real ones do: the command returns, and a
    /// moment later whatever runs is ended.
    fn start(servers: &[&str], directory: &Path, key: &str, boot: &str) -> Self {
        let script = directory.join("off.sh");
        std::fs::write(&script, "(sleep 1; kill -TERM $PPID) >/dev/null 2>&1 &\n").unwrap();
        let command = format!("sh {}", script.display());
        Self::start_with(servers, directory, key, boot, &["--power-off", &command])
    }

    fn start_with(servers: &[&str], directory: &Path, key: &str, boot: &str, more: &[&str]) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let file = directory.join("agent.key");
        std::fs::write(&file, key).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args(["agent", "--host", "edge-1", "--every", "300ms", "--boot-id", boot]);
        command.args(more);
        command.arg("--key-file").arg(&file);
        for server in servers {
            command.args(["--server", server]);
        }
        Self(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the agent starts"))
    }

    /// Waits for it to end by itself; what it said.
    #[allow(clippy::disallowed_methods, reason = "a test waits for another process here")]
    fn ended(&mut self) -> String {
        for _ in 0..1_200 {
            if let Some(status) = self.0.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                let mut said = String::new();
                std::io::Read::read_to_string(self.0.stdout.as_mut().unwrap(), &mut said).unwrap();
                return said;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("the agent did not take its token");
    }
}

async fn phase(user: &Caller, wanted: &[&str]) -> Value {
    user.until("/api/v1/hosts/edge-1", |host| {
        host["status"]["phase"].as_str().is_some_and(|phase| wanted.contains(&phase))
    })
    .await
}

async fn power(user: &Caller, action: &str) {
    let body = json!({ "action": action, "reason": "a test" });
    user.post("/api/v1/hosts/edge-1/power", &body).await.expect(202);
}

/// Receives one burst and checks every packet of it.
fn captured(listener: &UdpSocket) {
    let mut packet = [0; 256];
    for _ in 0..3 {
        let (size, _) = listener.recv_from(&mut packet).expect("a magic packet");
        assert_eq!((size, &packet[..6]), (102, &[0xff; 6][..]));
        assert!(packet[6..102].chunks(6).all(|chunk| chunk == MAC));
    }
}

/// A host that is woken by packets to `port` and has an agent.
async fn register(user: &Caller, port: u16) {
    let credential = json!({ "name": "edge-1-key", "spec": { "kind": "agent", "password": KEY } });
    user.post("/api/v1/credentials", &credential).await.expect(201);
    let host = json!({ "name": "edge-1", "spec": {
        "powerInterface": "wol", "macAddress": "02:00:00:00:00:0a", "pool": "edge",
        "deadlines": { "bootDeadline": "5h", "enrolDeadline": "5h" },
        "drivers": [
            { "kind": "wol", "settings": { "broadcast": "127.0.0.1", "port": port.to_string() } },
            { "kind": "agent", "credentials": "edge-1-key" },
        ],
    } });
    user.post("/api/v1/hosts", &host).await.expect(201);
}

/// Off by a token, on by a packet; a token of an earlier boot, a stranger and a replay change nothing.
#[tokio::test(flavor = "multi_thread")]
async fn bm_7_24_a_host_without_a_bmc_is_woken_by_packet_and_stood_down_by_its_agent() {
    let listener = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    listener.set_read_timeout(Some(std::time::Duration::from_mins(2))).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--bmc-allow", "127.0.0.0/8", "--set", FACTOR]);
    let follower_directory = tempfile::tempdir().unwrap();
    let follower = Server::start(follower_directory.path(), &["--set", "lead=false"]);
    let user = World::new(&server.base, "embedded").named(USER);
    register(&user, listener.local_addr().unwrap().port()).await;
    // Nobody is heard for long enough: it is at rest.
    phase(&user, &["idle"]).await;

    power(&user, "on").await;
    captured(&listener);
    // A process that does not lead is asked first; the agent finds the one that does.
    let mut agent = Agent::start(&[&follower.base, &server.base], directory.path(), KEY, "boot-1");
    phase(&user, &["powered", "booting"]).await;

    power(&user, "off").await;
    let said = tokio::task::spawn_blocking(move || agent.ended()).await.unwrap();
    assert!(said.contains("goodbye said"), "{said}");
    phase(&user, &["idle"]).await;
    let events = user.get("/api/v1/hosts/edge-1/events").await.expect(200).body.to_string();
    assert!(!events.contains(KEY) && !events.contains("CannotForceOff"), "{events}");
}

/// A host whose command fails, whose agent only tries, or that stays although its agent said goodbye, is on.
#[tokio::test(flavor = "multi_thread")]
async fn bm_7_25_a_host_that_did_not_go_off_is_never_called_off() {
    for (command, ends) in
        [(&["--power-off", "false"][..], false), (&["--dry-run"], true), (&["--power-off", "true"], false)]
    {
        let listener = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        listener.set_read_timeout(Some(std::time::Duration::from_mins(2))).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let server = Server::start(directory.path(), &["--bmc-allow", "127.0.0.0/8", "--set", FACTOR]);
        let user = World::new(&server.base, "embedded").named(USER);
        register(&user, listener.local_addr().unwrap().port()).await;
        phase(&user, &["idle"]).await;
        power(&user, "on").await;
        captured(&listener);
        let mut agent = Agent::start_with(&[&server.base], directory.path(), KEY, "boot-1", command);
        phase(&user, &["powered", "booting"]).await;
        power(&user, "off").await;
        if ends {
            let said = tokio::task::spawn_blocking(move || agent.ended()).await.unwrap();
            assert!(said.contains("token taken"), "{said}");
        }
        // It is told so until the time for it is over, and nobody claims that it is off.
        let host = phase(&user, &["backoff", "idle", "quarantined"]).await;
        assert_eq!(host["status"]["phase"], "backoff", "{command:?}: {host}");
    }
}

/// What is not signed with the host's key is refused, and says nothing about which hosts there are.
#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::disallowed_methods, reason = "a test waits for another process here")]
async fn cba_an_agent_is_believed_by_its_key_alone() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--bmc-allow", "127.0.0.0/8"]);
    let world = World::new(&server.base, "embedded");
    let user = world.named(USER);
    let credential = json!({ "name": "edge-1-key", "spec": { "kind": "agent", "password": KEY } });
    user.post("/api/v1/credentials", &credential).await.expect(201);
    let host = json!({ "name": "edge-1", "spec": {
        "powerInterface": "wol", "macAddress": "02:00:00:00:00:0a", "pool": "edge",
        "drivers": [
            { "kind": "wol", "settings": { "broadcast": "127.0.0.1" } },
            { "kind": "agent", "credentials": "edge-1-key" },
        ],
    } });
    user.post("/api/v1/hosts", &host).await.expect(201);
    let nobody = world.with(&[]);
    let path = "/api/v1/hosts/edge-1/agent/hello";
    let now = || muster_model::Clock::now(&muster_emulate::RealClock::default());
    let guard = Guard::new(Secret::new(KEY), "edge-1", "boot-1");
    let hello = || json!(guard.hello(Vec::new(), now()));

    // The election takes a moment; until then it is somebody else who should be asked.
    let mut answer = nobody.post(path, &hello()).await;
    for _ in 0..600 {
        if answer.status != 503 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        answer = nobody.post(path, &hello()).await;
    }
    assert_eq!(answer.expect(200).body, json!({}));
    let stranger = Guard::new(Secret::new("another key"), "edge-1", "boot-1");
    let forged = nobody.post(path, &json!(stranger.hello(Vec::new(), now()))).await;
    let forged = forged.refused(401, "UNAUTHENTICATED");
    let other = Guard::new(Secret::new(KEY), "edge-9", "boot-1");
    let unknown = nobody
        .post("/api/v1/hosts/edge-9/agent/hello", &json!(other.hello(Vec::new(), now())))
        .await
        .refused(401, "UNAUTHENTICATED");
    assert_eq!(forged.details(), unknown.details(), "an unknown host looks like a wrong key");
    nobody.post(path, &json!(other.hello(Vec::new(), now()))).await.refused(401, "UNAUTHENTICATED");
    let once = hello();
    nobody.post(path, &once).await.expect(200);
    nobody.post(path, &once).await.refused(401, "UNAUTHENTICATED");
    nobody.post(path, &json!({ "host": "edge-1" })).await.refused(400, "VALIDATION_ERROR");
    // A person's account is no agent's, and a token that nobody made cannot have been taken.
    user.post(path, &json!(stranger.hello(Vec::new(), now()))).await.refused(401, "UNAUTHENTICATED");
    let token: Token = serde_json::from_value(json!({
        "host": "edge-1", "bootId": "boot-1", "nonce": "n", "issued": now(), "expires": now(), "signature": "00",
    }))
    .unwrap();
    let taken = json!(guard.taken(&token, now()));
    nobody.post("/api/v1/hosts/edge-1/agent/taken", &taken).await.refused(401, "UNAUTHENTICATED");
}
