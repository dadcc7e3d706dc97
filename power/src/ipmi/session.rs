//! One RMCP+ session over UDP: opened, used, closed.

use muster_model::{
    Clock, Duration,
    power::{CipherSuite, Credential, Fault, Leave, Privilege},
};
use tokio::net::UdpSocket;
use zeroize::Zeroizing;

use super::{
    keys::{self, Keys, Suite},
    wire::{self, Command, Packet, Payload, Window},
};
use crate::address::Approved;

/// A BMC answers within a few milliseconds; a busy one has been seen to take most of a second.
const WAIT: Duration = Duration::from_millis(1500);
/// One packet and three repetitions: a BMC that is silent for six seconds is silent.
const TRIES: u32 = 4;
const SILENT: Duration = Duration::from_millis(WAIT.millis() * TRIES as u64);
/// The first packet is repeated from a second port: a BMC that never forgets an old session may take the
/// first port for that one's and stay silent.
const TRIES_PER_PORT: u32 = TRIES / 2;
/// IPMI 2.0 names have at most 16 bytes, passwords 20.
const MAX_USER: usize = 16;
const MAX_PASSWORD: usize = 20;

/// Whether a lost packet may be sent again. A BMC should notice a repetition; not every one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Yes,
    Never,
}

/// Why a command has no data to show.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The BMC answered with this completion code.
    Code(u8),
    Fault(Fault),
}

pub(super) struct Session<'a> {
    link: Link<'a>,
    keys: Keys,
    /// The id that the BMC gave to itself.
    remote: u32,
    local: u32,
    sequence: u32,
    request: u8,
    window: Window,
}

/// A socket that talks to one address only.
struct Link<'a> {
    socket: UdpSocket,
    clock: &'a dyn Clock,
}

impl Link<'_> {
    async fn send(&self, packet: &[u8]) -> Result<(), Fault> {
        self.socket.send(packet).await.map(drop).map_err(|error| unreachable_because(&error))
    }

    /// The next packet that `wanted` accepts, or `None` after `wait`.
    async fn receive<T>(
        &self,
        wait: Duration,
        mut wanted: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        let mut buffer = [0; wire::MAX_PACKET];
        let over = self.clock.sleep(wait);
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = &mut over => return Ok(None),
                received = self.socket.recv(&mut buffer) => {
                    let length = received.map_err(|error| unreachable_because(&error))?;
                    if let Some(found) = wanted(&buffer[..length]) {
                        return Ok(Some(found));
                    }
                }
            }
        }
    }

    /// Sends until an answer of `kind` with the right tag comes.
    async fn exchange(&self, tries: u32, ask: Payload, body: &[u8], kind: Payload) -> Result<Vec<u8>, Fault> {
        self.exchange_each(tries, WAIT, ask, body, kind).await
    }

    /// The same with a wait of one's own after each packet.
    async fn exchange_each(
        &self,
        tries: u32,
        wait: Duration,
        ask: Payload,
        body: &[u8],
        kind: Payload,
    ) -> Result<Vec<u8>, Fault> {
        let packet = wire::plain(ask, body);
        for _ in 0..tries {
            self.send(&packet).await?;
            let answer = self.receive(wait, |bytes| {
                let Packet { kind: found, payload, .. } = wire::read(bytes, None)?;
                (found == kind as u8 && payload.first() == body.first()).then_some(payload)
            });
            if let Some(payload) = answer.await? {
                return Ok(payload);
            }
        }
        Err(Fault::Silent { limit: SILENT })
    }
}

fn unreachable_because(error: &std::io::Error) -> Fault {
    Fault::Unreachable { why: error.to_string() }
}

impl<'a> Session<'a> {
    /// Logs in and takes the privilege. Nothing is left behind when it fails.
    pub(super) async fn open(
        clock: &'a dyn Clock,
        approved: &Approved,
        suite: CipherSuite,
        privilege: Privilege,
        name: &str,
        credential: &Credential,
    ) -> Result<Self, Fault> {
        let user = credential.user.as_bytes();
        let password = credential.password.expose();
        if user.len() > MAX_USER || password.len() > MAX_PASSWORD {
            let why =
                format!("credential {name} does not fit IPMI: a name has at most 16 bytes, a password 20");
            return Err(Fault::NoCredential { why });
        }
        let mut link = Link { socket: connect(approved).await?, clock };
        let denied = || Fault::Denied { credential: name.to_owned() };
        let mut hand = Handshake { suite, role: level(privilege), user, password, tag: 0, local: fresh_id() };
        let remote = match hand.open(&link, denied).await {
            Err(Fault::Silent { .. }) => {
                link.socket = connect(approved).await?;
                hand.open(&link, denied).await?
            }
            other => other?,
        };
        let (remote, keys) = match hand.rakp(&link, remote, denied).await {
            Err(Fault::Silent { .. }) => {
                // A packet was lost, and the one that asks about the account is not repeated.
                let remote = hand.open(&link, denied).await?;
                (remote, hand.rakp(&link, remote, denied).await?)
            }
            keys => (remote, keys?),
        };
        let mut session = Self {
            link,
            keys,
            remote,
            local: hand.local,
            sequence: 0,
            request: 0,
            window: Window::default(),
        };
        // A session starts with the right to read; control is refused until more is asked for.
        let level = Command { function: 0x06, number: 0x3b, data: vec![level(privilege)] };
        match session.command(&level, Repeat::Yes).await {
            Ok(_) => Ok(session),
            Err(trouble) => {
                session.close().await;
                Err(match trouble {
                    Trouble::Fault(fault) => fault,
                    Trouble::Code(0x80 | 0x81 | 0x82 | 0xd4) => denied(),
                    Trouble::Code(code) => super::completion("the privilege level", code, name),
                })
            }
        }
    }

    /// Sends a command that changes nothing and returns its data.
    pub(super) async fn command(&mut self, command: &Command, repeat: Repeat) -> Result<Vec<u8>, Trouble> {
        self.perform(command, repeat, None).await
    }

    /// Sends a command that changes the machine, each packet of it with the caller's leave.
    pub(super) async fn change(
        &mut self,
        command: &Command,
        repeat: Repeat,
        leave: &Leave,
    ) -> Result<Vec<u8>, Trouble> {
        self.perform(command, repeat, Some(leave)).await
    }

    async fn perform(
        &mut self,
        command: &Command,
        repeat: Repeat,
        leave: Option<&Leave>,
    ) -> Result<Vec<u8>, Trouble> {
        self.request = (self.request + 1) & 0x3f;
        let message = wire::message(command, self.request);
        let tries = if repeat == Repeat::Yes { TRIES } else { 1 };
        for sent in 0..tries {
            match leave.map(Leave::ask).transpose() {
                Ok(_) => {}
                Err(fault) if sent == 0 => return Err(Trouble::Fault(fault)),
                // What was sent before may have arrived: nobody knows.
                Err(_) => break,
            }
            self.sequence += 1;
            let packet =
                wire::protected(&self.keys, self.remote, self.sequence, &message, rand::random::<[u8; 16]>());
            self.link.send(&packet).await.map_err(Trouble::Fault)?;
            let (keys, local, window, request) = (&self.keys, self.local, &mut self.window, self.request);
            let answer = self.link.receive(WAIT, |bytes| {
                let packet = wire::read(bytes, Some(keys))?;
                let ours = packet.kind == Payload::Message as u8 && packet.session == local;
                if !ours || !window.admit(packet.sequence) {
                    return None;
                }
                wire::response(&packet.payload, command, request)
            });
            match answer.await.map_err(Trouble::Fault)? {
                Some((0, data)) => return Ok(data),
                Some((code, _)) => return Err(Trouble::Code(code)),
                None => {}
            }
        }
        Err(Trouble::Fault(Fault::Silent { limit: SILENT }))
    }

    /// Ends the session. A BMC that does not answer ends it by itself after a minute.
    pub(super) async fn close(mut self) {
        let id = self.remote.to_le_bytes().to_vec();
        let close = Command { function: 0x06, number: 0x3c, data: id };
        if self.command(&close, Repeat::Never).await.is_err() {
            tracing::debug!("an ipmi session was left to expire");
        }
    }
}

async fn connect(approved: &Approved) -> Result<UdpSocket, Fault> {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    let from: IpAddr = match approved.socket.ip() {
        IpAddr::V4(to) if to.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(to) if to.is_loopback() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((from, 0)).await.map_err(|error| unreachable_because(&error))?;
    socket.connect(approved.socket).await.map_err(|error| unreachable_because(&error))?;
    Ok(socket)
}

fn fresh_id() -> u32 {
    rand::random::<u32>() | 1 // zero means "no session"
}

const fn level(privilege: Privilege) -> u8 {
    match privilege {
        Privilege::Operator => 3,
        Privilege::Administrator => 4,
    }
}

/// The four steps of RAKP, seen from the side that asks.
struct Handshake<'a> {
    suite: Suite,
    role: u8,
    user: &'a [u8],
    password: &'a [u8],
    tag: u8,
    local: u32,
}

impl Handshake<'_> {
    fn next_tag(&mut self) -> u8 {
        self.tag = self.tag.wrapping_add(1);
        self.tag
    }

    /// Proposes the suite, and nothing weaker. Returns the BMC's session id.
    async fn open(&mut self, link: &Link<'_>, denied: impl Fn() -> Fault) -> Result<u32, Fault> {
        let (authentication, integrity) = match self.suite {
            Suite::Sha1 => (0x01, 0x01),
            Suite::Sha256 => (0x03, 0x04),
        };
        let mut body = vec![self.next_tag(), self.role, 0, 0];
        body.extend(self.local.to_le_bytes());
        for (kind, algorithm) in [(0, authentication), (1, integrity), (2, 0x01)] {
            body.extend([kind, 0, 0, 8, algorithm, 0, 0, 0]);
        }
        let answer =
            link.exchange(TRIES_PER_PORT, Payload::OpenRequest, &body, Payload::OpenResponse).await?;
        self.check_status(&answer, "a session", denied)?;
        let field = |at: usize| answer.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        let chosen = [16, 24, 32].map(|at| answer.get(at).map(|byte| byte & 0x3f));
        let ours = field(4) == Some(self.local.to_le_bytes());
        match (ours, field(8), chosen) {
            (true, Some(remote), [Some(a), Some(i), Some(1)]) if a == authentication && i == integrity => {
                Ok(u32::from_le_bytes(remote))
            }
            _ => Err(Fault::malformed("a session", "the BMC chose other algorithms than it was offered")),
        }
    }

    async fn rakp(
        &mut self,
        link: &Link<'_>,
        remote: u32,
        denied: impl Fn() -> Fault,
    ) -> Result<Keys, Fault> {
        let ours: [u8; 16] = rand::random();
        // Bit 4: look the account up by name alone, not by name and privilege.
        let role = self.role | 0x10;
        let (remote_id, local_id) = (remote.to_le_bytes(), self.local.to_le_bytes());
        let account =
            [&[role, u8::try_from(self.user.len()).expect("checked to be at most 16")], self.user].concat();

        let mut first = vec![self.next_tag(), 0, 0, 0];
        first.extend(remote_id);
        first.extend(ours);
        first.extend([role, 0, 0, account[1]]);
        first.extend(self.user);
        // Sent once: a BMC takes a new random number for each copy, and by the number of one its answer to another is
        // wrong. Slow firmware takes seconds for this answer.
        let second = link.exchange_each(1, SILENT, Payload::Rakp1, &first, Payload::Rakp2).await?;
        self.check_status(&second, "the account", &denied)?;
        let split =
            second.get(8..).and_then(|rest| rest.split_at_checked(32)).filter(|_| second[4..8] == local_id);
        let Some((marks, code)) = split else { return Err(short("RAKP message 2")) };
        let (theirs, guid) = marks.split_at(16);

        let padded = Zeroizing::new([self.password, &vec![0; MAX_PASSWORD - self.password.len()]].concat());
        let suite = self.suite;
        let code_of = |parts: &[&[u8]]| keys::hmac(suite, &padded, parts);
        let expected = code_of(&[&local_id, &remote_id, &ours, theirs, guid, &account]);
        if code.len() < keys::hash_length(self.suite) || !keys::same(&expected, &code[..expected.len()]) {
            return Err(denied()); // the BMC knows another password than we do
        }
        let mut third = vec![self.next_tag(), 0, 0, 0];
        third.extend(remote_id);
        third.extend_from_slice(&code_of(&[theirs, &local_id, &account]));
        let fourth = link.exchange(TRIES, Payload::Rakp3, &third, Payload::Rakp4).await?;
        if let Some(0x0d..=0x0f) = fourth.get(1) {
            // It has proved above that it knows the same password: this says nothing about the account.
            return Err(Fault::Busy { why: "it has mixed up the steps of a login".into() });
        }
        self.check_status(&fourth, "the account", &denied)?;

        let session_key = code_of(&[&ours, theirs, &account]);
        let proof = keys::hmac(self.suite, &session_key, &[&ours, &remote_id, guid]);
        let length = keys::code_length(self.suite);
        let proved = fourth.get(8..8 + length).is_some_and(|code| keys::same(code, &proof[..length]));
        if proved { Ok(Keys::derive(self.suite, &session_key)) } else { Err(short("RAKP message 4")) }
    }

    /// An error unless the status in the second byte is zero.
    fn check_status(&self, answer: &[u8], asked: &str, denied: impl Fn() -> Fault) -> Result<(), Fault> {
        let suite = u8::from(self.suite);
        let other = if suite == 17 { 3 } else { 17 };
        match answer.get(1) {
            Some(0x00) => Ok(()),
            Some(0x01 | 0x02 | 0x08) => Err(Fault::Busy { why: "it has no room for a session".into() }),
            Some(0x04 | 0x05 | 0x10 | 0x11 | 0x06) => Err(Fault::Refused {
                asked: format!("cipher suite {suite}"),
                answer: format!("set suite {other} for this host if its firmware is older or newer"),
            }),
            Some(0x09 | 0x0a | 0x0c | 0x0d | 0x0e | 0x0f) => Err(denied()),
            Some(status) => {
                Err(Fault::Refused { asked: asked.into(), answer: format!("RMCP+ status {status:#04x}") })
            }
            None => Err(short(asked)),
        }
    }
}

fn short(what: &str) -> Fault {
    Fault::malformed(what, "it is cut short or its proof is wrong")
}
