//! What the demo prints: where to look, what to try, and short lines as the story goes on.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use muster_control::{inventory::Inventory, journal::Journal};
use muster_model::{Clock, Timestamp, host::Phase};
use muster_sim::world::site;

use super::{Plan, site::Yard};
use crate::output;

/// The port that the command line asks when nothing else is said.
const DEFAULT_PORT: u16 = 8080;
/// Hosts that one line names.
const MOST_NAMED: usize = 6;

/// Where to look and what to try.
pub(super) fn opening(
    plan: &Plan,
    yard: &Yard,
    address: SocketAddr,
    never_fits: &str,
    blocked: Option<&str>,
) {
    let server = format!("http://{address}");
    let flag = if address.port() == DEFAULT_PORT { String::new() } else { format!(" --server {server}") };
    let bad = &yard.odd.never_boots;
    let held = blocked.unwrap_or("web-01");
    let parts = [
        if plan.wire { "BMCs that speak Redfish on loopback" } else { "BMCs in memory" },
        if plan.store.starts_with("etcd") { "records in etcd" } else { "records in an embedded store" },
    ];
    let head = [
        format!("muster demo on {server}"),
        String::new(),
        format!(
            "  {} servers in {} racks, {} pools, a cluster whose load breathes; {}, {}.",
            yard.site.hosts.len(),
            yard.site.racks.len(),
            yard.site.pools.len(),
            parts[0],
            parts[1]
        ),
        format!(
            "  Time runs {} times as fast as life; seed {}, history {:016x}.",
            plan.speed, plan.seed, plan.digest
        ),
        "  Nothing here is real but Muster itself. Ctrl-C stops it and leaves nothing behind.".to_owned(),
        String::new(),
        format!("  open   {server}/"),
        String::new(),
        "  try in another terminal (alias muster=target/release/muster):".to_owned(),
    ];
    let tries = [
        (format!("muster get hosts{flag}"), "the fleet".to_owned()),
        (format!("muster describe host {bad}{flag}"), "the server that never boots".to_owned()),
        (format!("muster explain pod {never_fits}{flag}"), "the pod that can never run, and why".to_owned()),
        (format!("muster explain host {held}{flag}"), "a drain that a disruption budget holds up".to_owned()),
        (format!("muster get decisions{flag}"), "what was decided, and why".to_owned()),
        (
            format!("muster freeze --reason 'I said so'{flag}"),
            "stop every action; `muster unfreeze` ends it".to_owned(),
        ),
    ];
    let width = tries.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let tries = tries.iter().map(|(command, what)| format!("    {command:width$}   # {what}"));
    for line in head.into_iter().chain(tries).chain([String::new(), "  what happens:".to_owned()]) {
        if !output::line(&line) {
            return;
        }
    }
}

/// One line of the story.
pub(super) fn say(at: Timestamp, text: &str) {
    let minutes = at.millis().div_euclid(60_000).rem_euclid(24 * 60);
    output::line(&format!("  {:02}:{:02}  {text}", minutes / 60, minutes % 60));
}

/// Follows decisions and hosts, and says what is worth a line.
pub(super) struct Teller {
    journal: Journal,
    inventory: Arc<Inventory>,
    clock: Arc<dyn Clock>,
    /// The number of the last decision that was told.
    told: u64,
    phases: BTreeMap<String, Phase>,
}

impl Teller {
    pub(super) fn new(journal: Journal, inventory: Arc<Inventory>, clock: Arc<dyn Clock>) -> Self {
        let mut teller = Self { journal, inventory, clock, told: u64::MAX, phases: BTreeMap::new() };
        teller.look();
        teller
    }

    /// Tells what is new since the last time.
    pub(super) async fn tell(&mut self) {
        let cluster = site::cluster_id();
        if let Ok(Some(last)) = self.journal.last(cluster).await {
            let from = if self.told == u64::MAX { last.number } else { self.told };
            for number in from + 1..=last.number {
                if let Ok(Some(decision)) = self.journal.read(cluster, number).await
                    && decision.new_nodes + decision.removals > 0
                {
                    say(decision.at, &format!("decision {number}: {}", decision.headline));
                }
            }
            self.told = last.number;
        }
        let now = self.clock.now();
        for line in self.look() {
            say(now, &line);
        }
    }

    /// What became of hosts since the last look.
    fn look(&mut self) -> Vec<String> {
        let (mut ready, mut off, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        let phases = &mut self.phases;
        self.inventory.each(|host| {
            let Some(status) = host.status.as_deref() else { return };
            let before = phases.insert(host.name.to_string(), status.phase);
            let Some(before) = before.filter(|before| *before != status.phase) else { return };
            match status.phase {
                Phase::Serving if before != Phase::Degraded => ready.push(host.name.to_string()),
                Phase::Idle => off.push(host.name.to_string()),
                Phase::Quarantined | Phase::Backoff | Phase::Lost => {
                    lines.push(format!("{} is {}: {}", host.name, status.phase.as_str(), status.reason));
                }
                _ => {}
            }
        });
        for (names, state) in [(ready, "ready"), (off, "off")] {
            if !names.is_empty() {
                lines.push(format!("{} {state}", named(&names)));
            }
        }
        lines
    }
}

/// `web-01 is`, `web-01 and web-02 are`, `web-01, web-02 and 5 more are`.
fn named(names: &[String]) -> String {
    match names {
        [one] => format!("{one} is"),
        [some @ .., last] if names.len() <= MOST_NAMED => format!("{} and {last} are", some.join(", ")),
        _ => format!("{} and {} more are", names[..MOST_NAMED].join(", "), names.len() - MOST_NAMED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_hosts_are_one_line() {
        let names =
            |count: usize| -> Vec<String> { (1..=count).map(|number| format!("w{number}")).collect() };
        assert_eq!(named(&names(1)), "w1 is");
        assert_eq!(named(&names(3)), "w1, w2 and w3 are");
        assert_eq!(named(&names(8)), "w1, w2, w3, w4, w5, w6 and 2 more are");
    }
}
