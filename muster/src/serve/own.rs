//! Where the control plane itself listens, so that no host record makes it call itself or what it depends on: this process,
//! its store, the API servers of its clusters and its Prometheus. They come and go while the process runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
};

use futures::{StreamExt as _, stream};
use muster_control::inventory::Inventory;
use muster_kube::{Client, Credentials, outline};
use muster_model::{Clock, Duration};
use muster_power::address::OwnAddresses;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::config::Settings;

/// How often addresses are gathered anew: names and interfaces change without telling us.
const EVERY: Duration = Duration::from_secs(5);
/// How long names may take to be resolved, all together, before their last known addresses are used.
const RESOLVE_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);
/// How long a server that starts waits for them. Who resolves at all does so in a fraction of it.
const FIRST_LIMIT: std::time::Duration = std::time::Duration::from_secs(1);
/// Names that are asked for at once. Each takes a thread for as long as the system's resolver goes on trying, which may be half a
/// minute; the runtime has 512.
const LOOKUPS: usize = 16;

/// A name or an address, and a port.
type Place = (String, u16);

/// Keeps the rules' own addresses current.
#[derive(Debug)]
pub(super) struct Own {
    addresses: OwnAddresses,
    inventory: Arc<Inventory>,
    clock: Arc<dyn Clock>,
    /// What the settings name; it does not change.
    fixed: BTreeSet<Place>,
    prometheus: String,
    known: Mutex<Known>,
    /// There are names that nobody has resolved yet.
    others: Notify,
    /// That the machine's own addresses cannot be read is said once.
    unreadable: Once,
}

#[derive(Debug, Default)]
struct Known {
    listen: Option<SocketAddr>,
    api_servers: BTreeSet<Place>,
    /// What names meant when they could be resolved.
    resolved: BTreeMap<Place, Vec<SocketAddr>>,
}

impl Own {
    pub(super) async fn open(
        settings: &Settings,
        addresses: OwnAddresses,
        inventory: Arc<Inventory>,
        clock: &Arc<dyn Clock>,
    ) -> Arc<Self> {
        let mut fixed = store_places(&settings.text("store"));
        // The cluster that the server runs in, and those that judge callers and elect leaders.
        if let Ok(client) = Client::connect(&Credentials::InCluster, Arc::clone(clock)).await {
            fixed.extend(place(client.server()));
        }
        for (file, context) in
            [("auth.k8s.kubeconfig", "auth.k8s.context"), ("leader.kubeconfig", "leader.context")]
        {
            let text = settings.optional(file).and_then(|path| std::fs::read_to_string(path).ok());
            let found = text.and_then(|text| outline(&text, settings.optional(context).as_deref()).ok());
            fixed.extend(found.and_then(|found| place(&found.server)));
        }
        let known = Known { listen: settings.text("listen").parse().ok(), ..Known::default() };
        let own = Arc::new(Self {
            addresses,
            inventory,
            clock: Arc::clone(clock),
            fixed,
            prometheus: settings.text("prometheus.url"),
            known: Mutex::new(known),
            others: Notify::new(),
            unreadable: Once::new(),
        });
        own.settle();
        let _ = tokio::time::timeout(FIRST_LIMIT, own.look()).await;
        own
    }

    /// The address that the process listens on after all: the settings may leave the port to the system.
    pub(super) fn listens(&self, address: SocketAddr) {
        self.lock().listen = Some(address);
        self.settle();
    }

    /// The API servers of all connected clusters. Those that are given by name are resolved by the task that runs.
    pub(super) fn connected<'a>(&self, servers: impl Iterator<Item = &'a str>) {
        let servers: BTreeSet<Place> = servers.filter_map(place).collect();
        let changed = {
            let mut known = self.lock();
            let changed = known.api_servers != servers;
            known.api_servers = servers;
            changed
        };
        if changed {
            self.settle();
            self.others.notify_one();
        }
    }

    /// Resolves names anew, now and then and whenever there are others.
    pub(super) async fn run(&self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.look() => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep(EVERY) => {}
                () = self.others.notified() => {}
            }
        }
    }

    async fn look(&self) {
        let names = self.places().into_iter().filter(|place| literal(place).is_none()).collect();
        let found = resolve(names, async |(name, port): &Place| {
            Some(tokio::net::lookup_host((name.as_str(), *port)).await.ok()?.collect())
        });
        let found = found.await;
        self.lock().resolved.extend(found);
        self.settle();
    }

    /// Everything that the control plane listens at or depends on.
    fn places(&self) -> BTreeSet<Place> {
        let mut places: BTreeSet<Place> = self.lock().api_servers.union(&self.fixed).cloned().collect();
        let global = self.inventory.global().config;
        let prometheus = Some(self.prometheus.as_str()).filter(|url| !url.is_empty());
        places.extend(prometheus.or(global.prometheus_url.as_deref()).and_then(place));
        places
    }

    /// Puts in force what is known without asking anybody: addresses at once, names as they were last resolved.
    fn settle(&self) {
        let places = self.places();
        let mut known = self.lock();
        known.resolved.retain(|place, _| places.contains(place));
        let mut found: Vec<SocketAddr> = known.listen.into_iter().collect();
        if let Some(listen) = known.listen.filter(|address| address.ip().is_unspecified()) {
            let interfaces = interfaces();
            if interfaces.is_empty() {
                self.unreadable.call_once(|| {
                    tracing::warn!(
                        "the addresses of this machine cannot be read; keep them out of bmc.allow"
                    );
                });
            }
            found.extend(interfaces.into_iter().map(|address| SocketAddr::new(address, listen.port())));
        }
        found.extend(places.iter().filter_map(literal));
        found.extend(known.resolved.values().flatten());
        self.addresses.set(found);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Name and port of a URL.
fn place(url: &str) -> Option<Place> {
    let url = reqwest::Url::parse(url).ok()?;
    let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some((host, url.port_or_known_default()?))
}

/// The members that a store's address names.
fn store_places(store: &str) -> BTreeSet<Place> {
    let Some((_, list)) = store.split_once("://") else { return BTreeSet::new() };
    let list = list.split('/').next().unwrap_or_default();
    let list = list.rsplit_once('@').map_or(list, |(_, rest)| rest);
    list.split(',').filter_map(|one| place(&format!("etcd://{one}"))).collect()
}

/// What names mean, of those that can be resolved in time: many at once, and one limit for all.
async fn resolve(
    names: Vec<Place>,
    lookup: impl AsyncFn(&Place) -> Option<Vec<SocketAddr>>,
) -> BTreeMap<Place, Vec<SocketAddr>> {
    let lookup = &lookup;
    let answers = stream::iter(names).map(async |name| {
        let meant = lookup(&name).await;
        (name, meant)
    });
    let mut answers = pin!(answers.buffer_unordered(LOOKUPS));
    let (mut found, until) = (BTreeMap::new(), tokio::time::Instant::now() + RESOLVE_LIMIT);
    while let Ok(Some((name, meant))) = tokio::time::timeout_at(until, answers.next()).await {
        found.extend(meant.map(|meant| (name, meant)));
    }
    found
}

/// The address of a place that needs no resolving.
fn literal((name, port): &Place) -> Option<SocketAddr> {
    Some(SocketAddr::new(name.parse().ok()?, *port))
}

/// Every address of this machine, as the kernel lists them for this process' network; none where it cannot be read.
fn interfaces() -> BTreeSet<IpAddr> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    local_v4(&read("/proc/net/fib_trie"))
        .map(IpAddr::V4)
        .chain(local_v6(&read("/proc/net/if_inet6")).map(IpAddr::V6))
        .collect()
}

/// Addresses of the routing table that are delivered here: a leaf `|-- 10.0.0.5` followed by `/32 host LOCAL`.
fn local_v4(table: &str) -> impl Iterator<Item = Ipv4Addr> {
    let mut leaf = None;
    table.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse::<Ipv4Addr>().ok();
            return None;
        }
        leaf.filter(|_| line == "/32 host LOCAL")
    })
}

/// The first column is the address in 32 hexadecimal digits.
fn local_v6(table: &str) -> impl Iterator<Item = Ipv6Addr> {
    table
        .lines()
        .filter_map(|line| u128::from_str_radix(line.split_whitespace().next()?, 16).ok())
        .map(Ipv6Addr::from_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_the_tables_of_the_kernel() {
        let table = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n\
                     \x20          |-- 10.0.0.0\n              /24 link UNICAST\n\
                     \x20          |-- 10.0.0.5\n              /32 host LOCAL\n\
                     \x20       |-- 10.0.0.255\n           /32 link BROADCAST\n";
        assert_eq!(local_v4(table).collect::<Vec<_>>(), [Ipv4Addr::new(10, 0, 0, 5)]);
        let table = "fd000000000000000000000000000002 04 40 00 82     eth0\n\nnonsense\n";
        assert_eq!(local_v6(table).collect::<Vec<_>>(), ["fd00::2".parse::<Ipv6Addr>().unwrap()]);
        assert!(interfaces().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_nobody_resolves_cost_one_limit_together_and_hold_no_other_back() {
        let mut names: Vec<Place> = (0..LOOKUPS - 1).map(|number| (format!("gone-{number}"), 6443)).collect();
        names.extend((0..50).map(|number| (format!("there-{number}"), 6443)));
        let meant: SocketAddr = "10.0.0.7:6443".parse().unwrap();
        let begun = tokio::time::Instant::now();
        let found = resolve(names, async |(name, _): &Place| {
            if name.starts_with("gone") {
                std::future::pending::<()>().await;
            }
            Some(vec![meant])
        })
        .await;
        assert_eq!(begun.elapsed(), RESOLVE_LIMIT);
        assert_eq!(found.len(), 50);
        assert!(found.iter().all(|((name, _), meant_by)| name.starts_with("there") && *meant_by == [meant]));
        let begun = tokio::time::Instant::now();
        assert!(resolve(vec![("no-such-name".into(), 1)], async |_: &Place| None).await.is_empty());
        assert_eq!(begun.elapsed(), std::time::Duration::ZERO, "an answer is not waited for any longer");
    }

    #[test]
    fn members_of_the_store_are_read_from_its_address() {
        let check = |store: &str, expected: &[(&str, u16)]| {
            let expected = expected.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect();
            assert_eq!(store_places(store), expected, "{store}");
        };
        check("etcd://10.0.0.1:2379,etcd-1.etcd:2380/prefix", &[("10.0.0.1", 2379), ("etcd-1.etcd", 2380)]);
        check("etcd://user@[fd00::1]:2379", &[("fd00::1", 2379)]);
        check("embedded", &[]);
        assert_eq!(place("https://[fd00::2]:6443/"), Some(("fd00::2".to_owned(), 6443)));
        assert_eq!(place("https://api.example"), Some(("api.example".to_owned(), 443)));
    }
}
