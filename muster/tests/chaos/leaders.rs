//! `OPS-R7`: the leader is stopped in the middle of a power-off, or cut off from etcd, and goes on when somebody else
//! leads.

use std::sync::Arc;

use muster_emulate::{
    Power, RealClock, Timing,
    redfish::{Faults, Fleet, Layout},
};
use muster_model::Duration;
use serde_json::json;

use super::{etcd::Etcd, eventually, everything, pause, process::Server, wire::Wire};

/// How long a leader that goes on is watched: a call that it still wanted to make would be long sent.
const WATCHED: u64 = 4_000;

/// Where in the power-off the leader is stopped.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// The operation is stored, nothing is sent.
    Stored,
    /// A call is under way: the BMC takes its time.
    Calling,
    /// The BMC has taken the order, and nobody has read back.
    Sent,
}

const MOMENTS: [Moment; 3] = [Moment::Stored, Moment::Calling, Moment::Sent];

/// What happens to the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// SIGSTOP, and SIGCONT.
    Stopped,
    /// It runs and is reached, and does not reach etcd.
    CutOff,
}

struct Scene {
    fleet: Fleet,
    servers: [Server; 2],
    /// The ways of each server to the members of etcd.
    wires: [Vec<Wire>; 2],
}

impl Scene {
    async fn leader(&self) -> usize {
        let mut found = None;
        eventually("a leader", async || {
            for at in 0..2 {
                if self.servers[at].leads().await {
                    found = Some(at);
                    return true;
                }
            }
            false
        })
        .await;
        found.unwrap()
    }

    fn strike(&self, server: usize, fate: Fate, begins: bool) {
        match fate {
            Fate::Stopped => self.servers[server].process.signal(if begins { "-STOP" } else { "-CONT" }),
            Fate::CutOff => self.wires[server].iter().for_each(|wire| wire.cut(begins)),
        }
    }

    async fn run(&self, number: usize, moment: Moment, fate: Fate) {
        let bmc = self.fleet.bmcs().nth(number).unwrap();
        let machine = &bmc.systems[0].machine;
        let old = self.leader().await;
        let (stopped, other) = (&self.servers[old], &self.servers[1 - old]);
        let name = format!("h{number}");
        other.register(&name, bmc.address, json!({})).await;
        other.until(&name, &["idle"]).await;
        other.power(&name, "on").await;
        other.until(&name, &["powered", "booting"]).await;
        let before = bmc.counters().resets.len();
        let slow = Duration::from_secs(2);
        match moment {
            Moment::Stored => {}
            Moment::Calling => bmc.set_faults(Faults { delay: slow, ..Faults::default() }),
            // It is accepted and comes late, so that reading back still shows a machine that is on.
            Moment::Sent => bmc.set_faults(Faults { late: Duration::from_secs(5), ..Faults::default() }),
        }
        other.power(&name, "off").await;
        eventually("the moment", async || match moment {
            Moment::Stored => {
                let host = other.get(&format!("/api/v1/hosts/{name}")).await;
                host["status"]["state"] == "draining" || bmc.counters().resets.len() > before
            }
            Moment::Calling => {
                bmc.counters().in_flight > 0 && {
                    let host = other.get(&format!("/api/v1/hosts/{name}")).await;
                    host["status"]["state"] == "draining"
                }
            }
            Moment::Sent => bmc.counters().resets.len() > before,
        })
        .await;
        self.strike(old, fate, true);
        bmc.set_faults(Faults::default());
        // Somebody else takes over and brings it to rest.
        eventually("the other one leads", async || other.leads().await).await;
        other.until(&name, &["idle"]).await;
        assert_eq!(machine.power(), Power::Off);
        let resets = bmc.counters().resets.clone();
        // A person switches it on. Whoever still wants it off from before would take its power away now.
        machine.press_button();
        eventually("power", async || machine.power() == Power::On).await;
        self.strike(old, fate, false);
        eventually("the old one knows", async || {
            !stopped.phase(&name).await.is_empty() && !stopped.leads().await
        })
        .await;
        pause(WATCHED).await;
        assert_eq!(bmc.counters().resets, resets, "run {number}, {moment:?}: the old leader still acts");
        assert_eq!(machine.power(), Power::On, "run {number}, {moment:?}");
        assert!(other.leads().await, "run {number}: the new leader stays");
        let counters = bmc.counters();
        assert!(counters.in_flight_peak <= 2, "{counters:?}"); // the stopped one's and the new one's
    }
}

/// Two servers on one etcd, each with wires of its own to it, and so many emulated BMCs.
async fn scene(directory: &std::path::Path, etcd: &Etcd, runs: usize) -> Scene {
    let clock = Arc::new(RealClock::default());
    let timing = Timing { boot: Duration::from_hours(1), ..Timing::default() };
    let layout = Layout { bmcs: u32::try_from(runs).unwrap(), timing, tls: true, ..Layout::default() };
    let fleet = Fleet::start(&layout, clock).await.expect("emulated BMCs");
    let mut wires = [Vec::new(), Vec::new()];
    for of_server in &mut wires {
        for endpoint in etcd.endpoints() {
            of_server.push(Wire::to(endpoint).await);
        }
    }
    let start = |name: &str, wires: &[Wire]| {
        let ends: Vec<String> = wires.iter().map(|wire| wire.address.to_string()).collect();
        let store = format!("etcd://{}", ends.join(","));
        Server::start(&directory.join(name), directory, &["--store", &store], &[])
    };
    let servers = [start("a", &wires[0]), start("b", &wires[1])];
    servers[0].account().await;
    Scene { fleet, servers, wires }
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_r7_bm_7_20_a_leader_that_was_stopped_in_a_power_off_does_nothing_when_it_goes_on() {
    let runs = if everything() { 100 } else { MOMENTS.len() };
    let etcd = Etcd::three().await;
    let directory = tempfile::tempdir().unwrap();
    let scene = scene(directory.path(), &etcd, runs).await;
    for number in 0..runs {
        scene.run(number, MOMENTS[number % MOMENTS.len()], Fate::Stopped).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_r7_a_leader_that_is_cut_off_from_etcd_in_a_power_off_does_nothing_more() {
    let runs = if everything() { 30 } else { 1 };
    let etcd = Etcd::three().await;
    let directory = tempfile::tempdir().unwrap();
    let scene = scene(directory.path(), &etcd, runs).await;
    for number in 0..runs {
        // One that reads back what the BMC took is the hardest: it has a reason to go on.
        scene.run(number, MOMENTS[(number + 2) % MOMENTS.len()], Fate::CutOff).await;
    }
}
