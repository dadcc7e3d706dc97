//! The listening side: sessions, the four RAKP steps, and what faults do to answers.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use muster_model::Duration;
use tokio::net::UdpSocket;

use super::{
    Account, Level, Shared, commands,
    crypto::{Algorithms, SUITES, SessionKeys},
    packet::{self, Incoming, Request},
};

/// The type of the message with which it proves that it knows the account.
const RAKP2: u8 = 0x13;
/// Sessions end by themselves after a minute without a packet.
const IDLE: Duration = Duration::from_secs(60);

/// A session from its opening on.
#[derive(Debug)]
struct Session {
    console: [u8; 4],
    algorithms: Algorithms,
    used: Duration,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Opened,
    Named { console_random: Vec<u8>, own_random: [u8; 16], account: Account, role: u8 },
    Up(Up),
}

#[derive(Debug)]
struct Up {
    keys: SessionKeys,
    most: Level,
    level: u8,
    received: u32,
    sent: u32,
    /// The last request and its answer: a repetition is answered again and not carried out again.
    last: Option<(Request, u8, Vec<u8>)>,
    /// The message that completed the handshake.
    welcome: Vec<u8>,
}

struct Server {
    shared: Arc<Shared>,
    sessions: BTreeMap<u32, Session>,
}

/// Serves packets until the task is dropped.
pub(super) async fn run(socket: UdpSocket, shared: Arc<Shared>) {
    let mut server = Server { shared, sessions: BTreeMap::new() };
    let mut buffer = [0; 2048];
    loop {
        let Ok((size, from)) = socket.recv_from(&mut buffer).await else { continue };
        let answer = server.take(&buffer[..size]);
        if let Some(answer) = answer {
            server.send(&socket, from, answer).await;
        }
    }
}

impl Server {
    async fn send(&self, socket: &UdpSocket, to: SocketAddr, answer: Vec<u8>) {
        let about_account = answer.get(5) == Some(&RAKP2);
        let (faults, lost) = {
            let mut inner = self.shared.inner();
            inner.answers += 1;
            let every = inner.faults.lose_every;
            let lost = about_account && inner.faults.lose_account > 0;
            inner.faults.lose_account -= u32::from(lost);
            (inner.faults.clone(), lost || every > 0 && inner.answers.is_multiple_of(every))
        };
        let delay = if about_account { faults.delay.max(faults.slow_account) } else { faults.delay };
        if delay > Duration::ZERO {
            self.shared.clock.sleep(delay).await;
        }
        if lost {
            return;
        }
        let sealed = answer.get(5).is_some_and(|kind| kind & 0xc0 == 0xc0);
        if faults.forge && sealed {
            let mut forged = answer.clone();
            if let Some(last) = forged.last_mut() {
                *last ^= 0x55;
            }
            let _ = socket.send_to(&forged, to).await;
        }
        for _ in 0..=u8::from(faults.duplicate) {
            let _ = socket.send_to(&answer, to).await; // a client that is gone needs no answer
        }
    }

    fn take(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        let now = self.shared.clock.monotonic();
        self.sessions.retain(|_, session| now.saturating_sub(session.used) < IDLE);
        let silent = {
            let mut inner = self.shared.inner();
            inner.counters.packets += 1;
            inner.faults.silent
        };
        let answer = match packet::parse(datagram)? {
            _ if silent => None,
            Incoming::Old(message) => {
                let request = packet::request(message)?;
                // IPMI 2.0 only; accounts have names; the key of the BMC itself is not set.
                (request.function == 6 && request.command == 0x38)
                    .then(|| packet::old(&packet::reply(&request, 0, &[1, 0x80, 0x04, 0x02, 0, 0, 0, 0])))
            }
            Incoming::Open(0x00, message) => {
                let request = packet::request(message)?;
                let answer = sessionless(&request)?;
                Some(packet::open(0x00, &answer))
            }
            Incoming::Open(0x10, payload) => Some(packet::open(0x11, &self.open(payload, now)?)),
            Incoming::Open(0x12, payload) => Some(packet::open(RAKP2, &self.rakp1(payload)?)),
            Incoming::Open(0x14, payload) => Some(packet::open(0x15, &self.rakp3(payload)?)),
            Incoming::Open(..) => None,
            Incoming::Sealed { session, covered, payload } => self.sealed(session, covered, payload, now),
        };
        let mut inner = self.shared.inner();
        let up = self.sessions.values().filter(|session| matches!(session.step, Step::Up(_))).count() as u64;
        inner.counters.sessions = up;
        inner.counters.sessions_peak = inner.counters.sessions_peak.max(up);
        answer
    }

    fn open(&mut self, payload: &[u8], now: Duration) -> Option<Vec<u8>> {
        let (tag, console) = (*payload.first()?, payload.get(4..8)?);
        let refuse = |status: u8| [&[tag, status, 0, 0][..], console].concat();
        let mut inner = self.shared.inner();
        if inner.faults.no_room > 0 {
            inner.faults.no_room -= 1;
            return Some(refuse(0x01));
        }
        let (authentication, integrity, privacy) =
            (*payload.get(12)? & 0x3f, *payload.get(20)? & 0x3f, *payload.get(28)? & 0x3f);
        let Some(algorithms) = SUITES
            .into_iter()
            .filter(|known| !inner.faults.refuse_suites.contains(&known.suite))
            .find(|known| {
                known.authentication == authentication && known.integrity == integrity && privacy == 1
            })
        else {
            return Some(refuse(0x11));
        };
        inner.counters.opened += 1;
        let id = loop {
            let id = rand::random::<u32>();
            if id != 0 && !self.sessions.contains_key(&id) {
                break id;
            }
        };
        let console_id: [u8; 4] = console.try_into().ok()?;
        self.sessions.insert(id, Session { console: console_id, algorithms, used: now, step: Step::Opened });
        let mut answer = [&[tag, 0, Level::Administrator as u8, 0][..], console, &id.to_le_bytes()].concat();
        for (kind, algorithm) in [(0, authentication), (1, integrity), (2, privacy)] {
            answer.extend([kind, 0, 0, 8, algorithm, 0, 0, 0]);
        }
        Some(answer)
    }

    fn rakp1(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        let tag = *payload.first()?;
        let id = u32::from_le_bytes(payload.get(4..8)?.try_into().ok()?);
        let console_random = payload.get(8..24)?.to_vec();
        let role = *payload.get(24)?;
        let size = usize::from(*payload.get(27)?);
        let name = payload.get(28..28 + size)?;
        let session = self.sessions.get_mut(&id)?;
        let mut inner = self.shared.inner();
        let found = self.shared.accounts.iter().find(|account| account.user.as_bytes() == name);
        let Some(account) = found.filter(|_| !inner.faults.refuse_account) else {
            inner.counters.refused += 1;
            return Some([&[tag, 0x0d, 0, 0][..], &session.console].concat());
        };
        let own_random: [u8; 16] = rand::random();
        let code = session.algorithms.hash(
            account.password.as_bytes(),
            &[
                &session.console,
                &id.to_le_bytes(),
                &console_random,
                &own_random,
                &self.shared.guid,
                &[role, payload[27]],
                name,
            ],
        );
        session.step = Step::Named { console_random, own_random, account: account.clone(), role };
        Some([&[tag, 0, 0, 0][..], &session.console, &own_random, &self.shared.guid, &code].concat())
    }

    fn rakp3(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        let (tag, status) = (*payload.first()?, *payload.get(1)?);
        let id = u32::from_le_bytes(payload.get(4..8)?.try_into().ok()?);
        let session = self.sessions.get_mut(&id)?;
        let (console_random, own_random, account, role) = match &session.step {
            Step::Named { console_random, own_random, account, role } => {
                (console_random, own_random, account, role)
            }
            // Our last message was lost: the console repeats its own.
            Step::Up(up) if up.received == 0 && up.welcome.first() == Some(&tag) => {
                return Some(up.welcome.clone());
            }
            _ => return None,
        };
        if status != 0 {
            // The console did not like our proof; there is nothing to say to that.
            self.shared.inner().counters.refused += 1;
            self.sessions.remove(&id);
            return None;
        }
        let key = account.password.as_bytes();
        let size = u8::try_from(account.user.len()).ok()?;
        let named = [&[*role, size][..], account.user.as_bytes()].concat();
        let algorithms = session.algorithms;
        let expected = algorithms.hash(key, &[own_random, &session.console, &named]);
        if payload.get(8..) != Some(&expected[..]) || self.shared.inner().faults.refuse_proof {
            self.shared.inner().counters.refused += 1;
            let answer = [&[tag, 0x0f, 0, 0][..], &session.console].concat();
            self.sessions.remove(&id);
            return Some(answer);
        }
        let sik = algorithms.hash(key, &[console_random, own_random, &named]);
        let proof = algorithms.hash(&sik, &[console_random, &id.to_le_bytes(), &self.shared.guid]);
        let answer = [&[tag, 0, 0, 0][..], &session.console, &proof[..algorithms.trailer()]].concat();
        session.step = Step::Up(Up {
            keys: SessionKeys::new(algorithms, &sik),
            most: account.level,
            level: Level::User as u8,
            received: 0,
            sent: 0,
            last: None,
            welcome: answer.clone(),
        });
        Some(answer)
    }

    fn sealed(&mut self, id: u32, covered: &[u8], payload: &[u8], now: Duration) -> Option<Vec<u8>> {
        let session = self.sessions.get_mut(&id)?;
        let Step::Up(up) = &mut session.step else { return None };
        let signed = covered.len().checked_sub(up.keys.algorithms.trailer())?;
        if up.keys.code(&covered[..signed]) != covered[signed..] {
            return None;
        }
        let sequence = u32::from_le_bytes(covered.get(6..10)?.try_into().ok()?);
        if sequence <= up.received || sequence > up.received.saturating_add(16) {
            return None; // old, repeated or far ahead
        }
        up.received = sequence;
        session.used = now;
        let request = packet::request(&up.keys.unseal(payload)?)?;
        let (code, data) = match &up.last {
            Some((last, code, data)) if *last == request => (*code, data.clone()),
            _ => {
                let answered = up.answer(&self.shared, id, &request);
                up.last = Some((request.clone(), answered.0, answered.1.clone()));
                answered
            }
        };
        up.sent += 1;
        let answer =
            packet::sealed(&up.keys, session.console, up.sent, &packet::reply(&request, code, &data));
        if (request.function, request.command, code) == (0x06, 0x3c, 0) {
            self.sessions.remove(&id);
        }
        Some(answer)
    }
}

impl Up {
    fn answer(&mut self, shared: &Shared, id: u32, request: &Request) -> (u8, Vec<u8>) {
        match (request.function, request.command, request.data.as_slice()) {
            (0x06, 0x3b, [wanted, ..]) => {
                if *wanted > self.most as u8 {
                    return (0x81, Vec::new());
                }
                if *wanted > 0 {
                    self.level = *wanted;
                }
                (0, vec![self.level])
            }
            (0x06, 0x3c, data) => {
                let ours = data.get(..4) == Some(&id.to_le_bytes());
                (if ours { 0 } else { 0x87 }, Vec::new())
            }
            _ => commands::answer(shared, request, self.level),
        }
    }
}

/// The questions that are answered to anyone: which suites there are.
fn sessionless(request: &Request) -> Option<Vec<u8>> {
    match (request.function, request.command) {
        (0x06, 0x54) => {
            let first = request.data.get(2).is_some_and(|index| index.trailing_zeros() >= 6);
            let mut data = vec![1];
            if first {
                for known in SUITES {
                    data.extend([0xc0, known.suite, known.authentication, 0x40 | known.integrity, 0x81]);
                }
            }
            Some(packet::reply(request, 0, &data))
        }
        (0x06, 0x38) => Some(packet::reply(request, 0, &[1, 0x80, 0x04, 0x02, 0, 0, 0, 0])),
        _ => None,
    }
}
