//! Which addresses may be called, so that a host record cannot turn Muster into someone's proxy.
//!
//! Whoever may write a host record chooses where Muster sends authenticated requests. So an address is taken
//! apart strictly, resolved once, judged by every address it resolves to, and then connected to by number.
//! Nothing here can be loosened by the record itself.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
    sync::{Arc, PoisonError, RwLock},
};

use async_trait::async_trait;
use muster_model::power::shown;

/// A block of addresses, `10.0.0.0/8` or `fd00::/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    base: IpAddr,
    bits: u8,
}

impl Cidr {
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                base.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                base.to_bits() & mask == address.to_bits() & mask
            }
            _ => false,
        }
    }

    /// Whether the block names loopback on purpose, not merely by being wide.
    fn is_loopback(&self) -> bool {
        self.base.is_loopback() && self.bits >= if self.base.is_ipv4() { 8 } else { 128 }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} is not a block of addresses; write it like 10.20.0.0/16");
        let (base, bits) = text.split_once('/').ok_or_else(wrong)?;
        let base: IpAddr = base.parse().map_err(|_| wrong())?;
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        if bits > most { Err(wrong()) } else { Ok(Self { base, bits }) }
    }
}

/// How names become addresses. The real one asks the operating system.
#[async_trait]
pub trait Resolver: Send + Sync + fmt::Debug {
    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, String>;
}

/// The operating system's resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        let found = tokio::net::lookup_host((name, 0)).await.map_err(|error| error.to_string())?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Where the control plane itself listens: this process, its API servers, its store, its Prometheus. They come and go, so
/// all copies share what was set last.
#[derive(Debug, Clone, Default)]
pub struct OwnAddresses(Arc<RwLock<Vec<SocketAddr>>>);

impl OwnAddresses {
    pub fn set(&self, addresses: Vec<SocketAddr>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// A machine of the control plane is none that it switches, whatever the port. Only loopback is shared with emulators;
    /// there the port tells them apart, and whoever listens on every address answers on all of loopback.
    fn has(&self, socket: SocketAddr) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let everywhere = |mine: &SocketAddr| mine.ip().is_unspecified() && mine.port() == socket.port();
        known.iter().any(|mine| {
            if socket.ip().is_loopback() {
                *mine == socket || everywhere(mine)
            } else {
                mine.ip() == socket.ip()
            }
        })
    }
}

impl FromIterator<SocketAddr> for OwnAddresses {
    fn from_iter<T: IntoIterator<Item = SocketAddr>>(addresses: T) -> Self {
        Self(Arc::new(RwLock::new(addresses.into_iter().collect())))
    }
}

/// The rules of one Muster process.
#[derive(Debug, Clone)]
pub struct AddressRules {
    /// Blocks that may be called (`bmc.allow`). Without any, nothing is called.
    pub allow: Vec<Cidr>,
    /// Ports that may be called. Blocks that name loopback are free of this: emulators live there.
    pub ports: Vec<u16>,
    /// Whether `http` is permitted beside `https`.
    pub plain_http: bool,
    /// Where this process and what it depends on listen.
    pub own: OwnAddresses,
    pub resolver: Arc<dyn Resolver>,
}

/// HTTPS and its usual alternative, HTTP where it is permitted, RMCP+, and the two ports of Wake-on-LAN.
pub const DEFAULT_PORTS: [u16; 6] = [443, 8443, 80, 623, 9, 7];

impl Default for AddressRules {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            ports: DEFAULT_PORTS.to_vec(),
            plain_http: false,
            own: OwnAddresses::default(),
            resolver: Arc::new(SystemResolver),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
    /// Bare `address[:port]`, for UDP.
    Udp,
}

/// An address that passed the rules. Connections go to `socket` and nowhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approved {
    pub scheme: Scheme,
    /// As written, for the Host header and for the certificate's name.
    pub host: String,
    pub socket: SocketAddr,
    /// What follows the authority; only webhooks may have it.
    pub path: String,
}

impl Approved {
    /// Scheme and authority, to which a path is appended.
    pub fn origin(&self) -> String {
        let scheme = if self.scheme == Scheme::Https { "https" } else { "http" };
        let port = self.socket.port();
        if self.host.contains(':') {
            format!("{scheme}://[{}]:{port}", self.host)
        } else {
            format!("{scheme}://{}:{port}", self.host)
        }
    }
}

impl AddressRules {
    /// Judges `https://address[:port]`. `path` says whether something may follow.
    pub async fn approve_url(&self, url: &str, path: Path) -> Result<Approved, String> {
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| format!("{} has no scheme; write https://…", shown(url)))?;
        let (scheme, port) = match scheme {
            "https" => (Scheme::Https, 443),
            "http" if self.plain_http => (Scheme::Http, 80),
            "http" => return Err("plain http is not permitted here; use https".into()),
            other => return Err(format!("the scheme {} is not permitted; use https", shown(other))),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        if path == Path::None && !matches!(tail, "" | "/") {
            return Err("a BMC's URL ends after its address; leave the path out".into());
        }
        if tail.contains('#') || tail.contains("..") || !tail.is_ascii() {
            return Err("the URL's path has characters that are not permitted".into());
        }
        let (host, port) = split_authority(authority, port)?;
        let socket = self.approve(&host, port).await?;
        Ok(Approved { scheme, host, socket, path: tail.to_owned() })
    }

    /// Judges `address[:port]`.
    pub async fn approve_udp(&self, address: &str, default_port: u16) -> Result<Approved, String> {
        let (host, port) = split_authority(address, default_port)?;
        let socket = self.approve(&host, port).await?;
        Ok(Approved { scheme: Scheme::Udp, host, socket, path: String::new() })
    }

    async fn approve(&self, host: &str, port: u16) -> Result<SocketAddr, String> {
        if let Some(literal) = literal(host)? {
            return self.judge(literal, port);
        }
        let mut approved = None;
        for address in self
            .resolver
            .resolve(host)
            .await
            .map_err(|error| format!("the name {} cannot be resolved: {}", shown(host), shown(&error)))?
        {
            // One bad answer condemns the name: which one is used would be the attacker's choice.
            let socket = self.judge(address, port).map_err(|why| format!("{host} means {address}: {why}"))?;
            approved.get_or_insert(socket);
        }
        approved.ok_or_else(|| format!("the name {} has no address", shown(host)))
    }

    /// Judges one address by number.
    pub fn judge(&self, address: IpAddr, port: u16) -> Result<SocketAddr, String> {
        let socket = SocketAddr::new(address, port);
        if let Some(what) = never(address) {
            return Err(format!("{address} is {what}, which is never a BMC"));
        }
        let loopback = address.is_loopback();
        let Some(block) =
            self.allow.iter().find(|block| block.contains(address) && (!loopback || block.is_loopback()))
        else {
            return Err(if loopback {
                format!("{address} is loopback; emulators need bmc.allow to name 127.0.0.0/8 itself")
            } else {
                format!("{address} lies in no block of bmc.allow; add its network there")
            });
        };
        if self.own.has(socket) {
            return Err(format!("{address} is an address of this control plane"));
        }
        if port == 0 || !(block.is_loopback() || self.ports.contains(&port)) {
            return Err(format!(
                "port {port} is not permitted; add it to bmc.ports, which has {:?}",
                self.ports
            ));
        }
        Ok(socket)
    }
}

/// Whether a URL may go on after its authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    None,
    Allowed,
}

/// Kinds of addresses that no allow-list can permit, by name.
fn never(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => never_v4(v4),
        IpAddr::V6(v6) => never_v6(v6),
    }
}

fn never_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [0, ..] => Some("unspecified"),
        [169, 254, ..] => Some("link-local (metadata services live there)"),
        [100, 100, 100, 200] | [192, 0, 0, 192] => Some("a cloud's metadata service"),
        [255, 255, 255, 255] => Some("the free broadcast address"),
        [224..=239, ..] => Some("multicast"),
        [240..=255, ..] => Some("reserved"),
        _ => None,
    }
}

fn never_v6(address: Ipv6Addr) -> Option<&'static str> {
    /// AWS answers metadata questions there.
    const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("unspecified"),
        [0, 0, 0, 0, 0, 0, 0, 1] => None, // loopback has its own rule
        // Mapped, compatible, translated, NAT64, 6to4 and Teredo addresses all carry an IPv4 address inside.
        [0, 0, 0, 0, 0, 0 | 0xffff, ..]
        | [0, 0, 0, 0, 0xffff, 0, ..]
        | [0x64, 0xff9b, ..]
        | [0x2001, 0, ..]
        | [0x2002, ..] => Some("an IPv4 address in disguise; write it as IPv4"),
        [0xfe80..=0xfebf, ..] => Some("link-local"),
        [0xfec0..=0xfeff, ..] => Some("site-local, which is abolished"),
        [0xff00..=0xffff, ..] => Some("multicast"),
        _ if address == METADATA => Some("a cloud's metadata service"),
        _ => None,
    }
}

fn split_authority(authority: &str, default_port: u16) -> Result<(String, u16), String> {
    if authority.contains('@') {
        return Err("the address contains a user name; accounts belong into a credential".into());
    }
    if !authority.is_ascii()
        || authority.contains(|c: char| c.is_ascii_whitespace() || "%\\,;<>\"'".contains(c))
    {
        return Err(format!("{} has characters that no address has", shown(authority)));
    }
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("an IPv6 address is missing its closing bracket")?;
        if host.parse::<Ipv6Addr>().is_err() {
            return Err(format!("[{}] is not an IPv6 address", shown(host)));
        }
        (host, rest.strip_prefix(':').or(if rest.is_empty() { Some("") } else { None }))
    } else {
        match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("write an IPv6 address in brackets, like [fd00::1]".into());
            }
            Some((host, port)) if !port.is_empty() => (host, Some(port)),
            Some(_) => return Err("a port is missing after the colon".into()),
            None => (authority, Some("")),
        }
    };
    let port = match port {
        Some("") => default_port,
        Some(port) if port.bytes().all(|digit| digit.is_ascii_digit()) => {
            port.parse().map_err(|_| format!("{} is not a port", shown(port)))?
        }
        _ => return Err("what follows the address is not a port".into()),
    };
    if host.is_empty() { Err("the address is empty".into()) } else { Ok((host.to_ascii_lowercase(), port)) }
}

/// The address that `host` spells, `None` for a name, an error for spellings that only some parsers read.
fn literal(host: &str) -> Result<Option<IpAddr>, String> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(Some(address));
    }
    let trimmed = host.strip_suffix('.').unwrap_or(host);
    let last = trimmed.rsplit('.').next().unwrap_or(trimmed);
    let hexadecimal = last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    if last.is_empty() || hexadecimal || last.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(format!("{} is an odd way to write an address; write four decimal numbers", shown(host)));
    }
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if trimmed.len() > 253 || !trimmed.split('.').all(label) {
        return Err(format!("{} is neither an address nor a name", shown(host)));
    }
    Ok(None)
}
