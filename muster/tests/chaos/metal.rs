//! Stories of one machine without a cluster, for the points at which a process dies.

use std::{
    net::UdpSocket,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use muster_emulate::{
    Power, RealClock, Timing,
    redfish::{Faults, Fleet, Layout, RedfishBmc},
};
use muster_model::{Clock as _, Duration, Timestamp};
use serde_json::{Value, json};

use super::{
    failpoints::Play,
    process::Server,
    witness::{self, Deeds},
};

const HOST: &str = "h";
const KEY: &str = "the key of h";

/// What happens to the machine while the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Story {
    /// Registered, on, off by force after a shutdown that nobody listens to.
    UpAndDown,
    /// Deleted while it is on; its power goes first.
    Deleted,
    /// Its BMC is stuck, and restarted as its pool allows.
    Stuck,
    /// It has no BMC: woken by magic packets, heard by its agent, shut down by a token.
    Packets,
}

/// How far the story has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Registering,
    /// The power-on was asked for.
    On,
    /// The power-off was asked for, or the deletion.
    Off,
}

/// Magic packets that came, with the time of each burst's first.
struct Packets {
    port: u16,
    bursts: Arc<Mutex<Vec<Timestamp>>>,
}

impl Packets {
    /// A burst is three packets.
    const BURST: usize = 3;

    fn listen() -> Self {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        let bursts = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&bursts);
        // It ends with the test's process.
        std::thread::spawn(move || {
            let clock = RealClock::default();
            let mut count = 0;
            while socket.recv_from(&mut [0; 256]).is_ok() {
                if count % Self::BURST == 0 {
                    heard.lock().unwrap().push(clock.now());
                }
                count += 1;
            }
        });
        Self { port, bursts }
    }

    fn bursts(&self) -> Vec<Timestamp> {
        self.bursts.lock().unwrap().clone()
    }
}

/// An agent that is killed with the story.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Metal {
    story: Story,
    stage: Stage,
    fleet: Fleet,
    packets: Packets,
    /// The agent of the machine's only boot, and the server that it speaks to.
    agent: Option<(Agent, String)>,
    directory: PathBuf,
}

impl Metal {
    pub(crate) async fn new(story: Story, directory: PathBuf) -> Self {
        let timing = Timing { boot: Duration::from_hours(1), ..Timing::default() };
        let layout = Layout { timing, tls: true, ..Layout::default() };
        let fleet = Fleet::start(&layout, Arc::new(RealClock::default())).await.unwrap();
        let faults = match story {
            Story::Stuck => Faults { stuck_powering_on: true, ..Faults::default() },
            Story::UpAndDown | Story::Deleted | Story::Packets => {
                Faults { ignore_acpi: true, ..Faults::default() }
            }
        };
        fleet.first().set_faults(faults);
        Self { story, stage: Stage::Registering, fleet, packets: Packets::listen(), agent: None, directory }
    }

    fn bmc(&self) -> &RedfishBmc {
        self.fleet.first()
    }

    fn ons(&self) -> usize {
        self.bmc().counters().resets.iter().filter(|one| *one == "On").count()
    }

    /// What its deadlines are, divided by twenty.
    fn deadlines(&self) -> Value {
        let confirm = if self.story == Story::Stuck { "5h" } else { "2m" };
        json!({ "bootDeadline": "5h", "enrolDeadline": "5h", "forceOffDeadline": "1h",
            "confirmOffDeadline": "1h", "powerConfirmDeadline": confirm, "graceDeadline": "100s" })
    }

    /// Registers the host unless that has been done.
    async fn register(&self, server: &Server) {
        if server.get(&format!("/api/v1/hosts/{HOST}")).await["name"].is_string() {
            return;
        }
        match self.story {
            Story::Packets => {
                let key = json!({ "name": "h-key", "spec": { "kind": "agent", "password": KEY } });
                let _ = server.try_send("POST", "/api/v1/credentials", Some(&key)).await;
                let port = self.packets.port.to_string();
                let drivers = json!([
                    { "kind": "wol", "settings": { "broadcast": "127.0.0.1", "port": port } },
                    { "kind": "agent", "credentials": "h-key" },
                ]);
                let spec = json!({ "powerInterface": "wol", "macAddress": "02:00:00:00:00:0a", "pool": "gpu",
                    "deadlines": self.deadlines(), "drivers": drivers });
                server.post("/api/v1/hosts", &json!({ "name": HOST, "spec": spec })).await;
                return;
            }
            Story::UpAndDown | Story::Deleted | Story::Stuck => {}
        }
        let mut more = json!({ "idleWatts": 100, "deadlines": self.deadlines() });
        if self.story == Story::UpAndDown {
            let profile = json!({ "name": "net", "spec": { "target": "pxe" } });
            let _ = server.try_send("POST", "/api/v1/boot-profiles", Some(&profile)).await;
            more["bootProfile"] = "net".into();
        }
        server.register(HOST, self.bmc().address, more).await;
    }

    /// Where the machine has been woken, its agent speaks to whoever serves now.
    fn speak(&mut self, server: &Server) {
        let spoken_to = self.agent.as_ref().is_some_and(|(_, base)| *base == server.base);
        if self.story != Story::Packets || self.packets.bursts().is_empty() || spoken_to {
            return;
        }
        let file = self.directory.join("agent.key");
        std::fs::write(&file, KEY).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        // A machine that goes off ends what runs on it, a moment after it was told to.
        let off = self.directory.join("off.sh");
        std::fs::write(&off, "(sleep 1; kill -TERM $PPID) >/dev/null 2>&1 &\n").unwrap();
        let off = format!("sh {}", off.display());
        let child = Command::new(env!("CARGO_BIN_EXE_muster"))
            .args(["agent", "--host", HOST, "--power-off", &off, "--every", "300ms", "--boot-id", "boot-1"])
            .args(["--server", &server.base, "--key-file", file.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the agent starts");
        self.agent = Some((Agent(child), server.base.clone()));
    }
}

/// A pool of a cluster that nobody has connected, for its policy alone.
async fn allow_restarts(server: &Server) {
    let cluster = json!({ "name": "lab", "spec": { "platform": { "type": "baremetal" } } });
    let Some((201, cluster)) = server.try_send("POST", "/api/v1/clusters", Some(&cluster)).await else {
        return;
    };
    let metal = json!({ "pool": "gpu", "policy": { "resetBmc": "allowed" } });
    let pool = json!({ "name": "gpu",
        "spec": { "nodeCount": 0, "platform": { "type": "baremetal", "baremetal": metal } } });
    server.post(&format!("/api/v1/clusters/{}/nodepools", cluster["id"].as_str().unwrap()), &pool).await;
}

impl Play for Metal {
    async fn drive(&mut self, server: &Server) -> bool {
        if self.stage == Stage::Registering {
            self.register(server).await;
        }
        self.speak(server);
        let host = server.get(&format!("/api/v1/hosts/{HOST}")).await;
        let phase = host["status"]["phase"].as_str().unwrap_or_default();
        let ask = async |action: &str| {
            let body = json!({ "action": action, "reason": "a test" });
            let _ = server.try_send("POST", &format!("/api/v1/hosts/{HOST}/power"), Some(&body)).await;
        };
        let is_on = matches!(phase, "powered" | "booting");
        match (self.stage, self.story) {
            (Stage::Registering, _) if phase == "idle" => {
                self.stage = Stage::On;
                ask("on").await;
            }
            (Stage::On, Story::Stuck) => {
                // Not before: where a cluster does not answer, off is not proved, and nothing is switched on.
                if is_on {
                    allow_restarts(server).await;
                }
                if self.bmc().counters().restarts > 0 || !host["status"]["bmcResetAt"].is_null() {
                    // A BMC that was restarted shows what is there, and a call that may have been lost is not made
                    // twice in a day.
                    self.bmc().set_faults(Faults { ignore_acpi: true, ..Faults::default() });
                    return is_on;
                }
            }
            (Stage::On, Story::UpAndDown | Story::Packets) if is_on => {
                self.stage = Stage::Off;
                ask("off").await;
            }
            (Stage::On, Story::Deleted) if is_on => {
                self.stage = Stage::Off;
                let path = format!("/api/v1/hosts/{HOST}?powerOff=true");
                let _ = server.try_send("DELETE", &path, None).await;
            }
            (Stage::Off, Story::UpAndDown | Story::Packets) => return phase == "idle",
            (Stage::Off, Story::Deleted) => return server.get("/api/v1/hosts").await["total"] == 0,
            _ => {}
        }
        false
    }

    fn judge(&self, data: &std::path::Path, what: &str) {
        let (counters, machine) = (self.bmc().counters(), &self.bmc().systems[0].machine);
        assert!(counters.sessions_peak <= 1 && counters.in_flight_peak <= 1, "{what}: {counters:?}");
        if self.story == Story::Packets {
            let deeds: Deeds = self.packets.bursts().into_iter().map(|at| (at, "wol-burst")).collect();
            assert!(!deeds.is_empty());
            return witness::tells(data, HOST, &deeds, what);
        }
        witness::tells(data, HOST, &witness::deeds(self.bmc()), what);
        match self.story {
            Story::UpAndDown | Story::Deleted => {
                assert_eq!((self.ons(), machine.look().boots), (1, 1), "{what}: {:?}", counters.resets);
                assert_eq!(machine.power(), Power::Off, "{what}");
            }
            Story::Stuck => assert!(counters.restarts <= 1, "{what}: a BMC is restarted once"),
            Story::Packets => {}
        }
    }
}
