//! `OPS-R11`: whole processes that poll fifty BMCs and are killed over and over, with the ledger of sessions that production keeps.

use std::sync::Arc;

use muster_emulate::{
    RealClock,
    redfish::{Fleet, Layout},
};
use serde_json::json;

use super::{eventually, everything, process::Server};

const BMCS: u32 = 50;

/// Lives of a process, and looks at BMCs in all of them together.
fn extent() -> (u32, u64) {
    if everything() { (100, 10_000) } else { (3, 150) }
}

/// How often this process has read a machine's power.
async fn looks(server: &Server) -> u64 {
    let page = server.text("/metrics").await;
    let line =
        page.lines().find_map(|line| line.strip_prefix("muster_host_looks_total{outcome=\"answered\"} "));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_r11_killed_over_and_over_one_session_at_a_time_and_none_left_over() {
    let layout = Layout { bmcs: BMCS, tls: true, ..Layout::default() };
    let fleet = Fleet::start(&layout, Arc::new(RealClock::default())).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (lives, least) = extent();
    let mut polls = 0;
    for life in 0..=lives {
        let server = Server::start(&data, directory.path(), &[], &[]);
        if life == 0 {
            server.account().await;
            for (number, bmc) in fleet.bmcs().enumerate() {
                server.register(&format!("h{number:02}"), bmc.address, json!({})).await;
            }
        }
        let before: Vec<u64> = fleet.bmcs().map(|bmc| bmc.counters().calls).collect();
        // Each was asked in this life, and as often as this life has to.
        let share = least.div_ceil(u64::from(lives));
        eventually("every BMC is asked again", async || {
            let asked = fleet.bmcs().zip(&before).all(|(bmc, before)| bmc.counters().calls > *before);
            asked && looks(&server).await >= share
        })
        .await;
        polls += looks(&server).await;
        if life % 3 == 0 || life == lives {
            server.process.signal("-TERM");
            eventually("sessions end with their process", async || {
                fleet.bmcs().all(|bmc| bmc.counters().sessions == 0)
            })
            .await;
        }
        drop(server); // kill -9
    }
    assert!(polls >= least, "{polls}");
    for bmc in fleet.bmcs() {
        let counters = bmc.counters();
        assert_eq!(counters.sessions, 0, "{}: {counters:?}", bmc.name);
        assert_eq!((counters.sessions_peak, counters.in_flight_peak), (1, 1), "{}: {counters:?}", bmc.name);
        assert!(counters.logins > u64::from(lives), "{}: each life logs in anew: {counters:?}", bmc.name);
    }
}
