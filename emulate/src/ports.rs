//! Ports for programs that have to be told theirs, and may be started again on it.

use std::{
    hash::{BuildHasher as _, RandomState},
    io,
    net::TcpListener,
};

/// The lowest port that is given away.
const FIRST: u64 = 10_000;

/// Free ports on 127.0.0.1 that the kernel gives to nobody who connects somewhere or asks for any port: one of the others could
/// go to a client while its program starts or is down, and then the program has none. They are held until dropped.
pub fn take(count: usize) -> io::Result<Vec<TcpListener>> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let low = range.split_whitespace().next().and_then(|low| low.parse().ok()).unwrap_or(32_768_u64);
    let chance = RandomState::new();
    let below = low.saturating_sub(FIRST).max(1);
    let ports = (0..10_000_u64).map(|number| FIRST + chance.hash_one(number) % below);
    let bound = ports.filter_map(|port| TcpListener::bind(("127.0.0.1", u16::try_from(port).ok()?)).ok());
    let taken: Vec<_> = bound.take(count).collect();
    if taken.len() < count {
        return Err(io::Error::other(format!("there are no {count} free ports below {low}")));
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_all_different() {
        let taken = take(50).unwrap();
        let mut ports: Vec<u16> = taken.iter().map(|one| one.local_addr().unwrap().port()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 50);
        drop(taken);
        TcpListener::bind(("127.0.0.1", ports[0])).unwrap();
    }
}
