//! Where the control plane itself listens, so that no host record makes it call itself or what it depends on: this process,
//! its store, the API servers of its clusters and its Prometheus. They come and go while the process runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use muster_control::inventory::Inventory;
use muster_kube::{Client, Credentials, outline};
use muster_model::{Clock, Duration};
use muster_power::address::OwnAddresses;
use tokio_util::sync::CancellationToken;

use crate::config::Settings;

/// How often addresses are gathered anew: names and interfaces change without telling us.
const EVERY: Duration = Duration::from_secs(5);
/// How long a name may take to be resolved before its last known addresses are used.
const RESOLVE_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);

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
    /// One look at a time.
    looking: tokio::sync::Mutex<()>,
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
            looking: tokio::sync::Mutex::default(),
        });
        own.look().await;
        own
    }

    /// The address that the process listens on after all: the settings may leave the port to the system.
    pub(super) async fn listens(&self, address: SocketAddr) {
        self.lock().listen = Some(address);
        self.look().await;
    }

    /// The API servers of all connected clusters.
    pub(super) async fn connected<'a>(&self, servers: impl Iterator<Item = &'a str>) {
        let servers: BTreeSet<Place> = servers.filter_map(place).collect();
        let changed = {
            let mut known = self.lock();
            let changed = known.api_servers != servers;
            known.api_servers = servers;
            changed
        };
        if changed {
            self.look().await;
        }
    }

    pub(super) async fn run(&self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep(EVERY) => self.look().await,
            }
        }
    }

    async fn look(&self) {
        let _one = self.looking.lock().await;
        let (listen, mut places) = {
            let known = self.lock();
            (known.listen, known.api_servers.union(&self.fixed).cloned().collect::<BTreeSet<Place>>())
        };
        let global = self.inventory.global().config;
        let prometheus = Some(self.prometheus.as_str()).filter(|url| !url.is_empty());
        places.extend(prometheus.or(global.prometheus_url.as_deref()).and_then(place));
        let mut found: Vec<SocketAddr> = listen.into_iter().collect();
        if let Some(listen) = listen.filter(|address| address.ip().is_unspecified()) {
            found.extend(interfaces().into_iter().map(|address| SocketAddr::new(address, listen.port())));
        }
        let mut resolved = BTreeMap::new();
        for place in places {
            let answer =
                tokio::time::timeout(RESOLVE_LIMIT, tokio::net::lookup_host((place.0.as_str(), place.1)));
            let meant = match answer.await {
                Ok(Ok(addresses)) => addresses.collect(),
                // Better the last known addresses than none.
                _ => self.lock().resolved.get(&place).cloned().unwrap_or_default(),
            };
            found.extend(&meant);
            resolved.insert(place, meant);
        }
        self.lock().resolved = resolved;
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

/// Every address of this machine, as the kernel lists them for this process' network.
fn interfaces() -> BTreeSet<IpAddr> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let found: BTreeSet<IpAddr> = local_v4(&read("/proc/net/fib_trie"))
        .map(IpAddr::V4)
        .chain(local_v6(&read("/proc/net/if_inet6")).map(IpAddr::V6))
        .collect();
    if found.is_empty() {
        tracing::warn!("the addresses of this machine cannot be read; keep them out of bmc.allow");
    }
    found
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
