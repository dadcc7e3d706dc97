//! One call, and what its failure means.
//!
//! A failure is *definite* (etcd said no), *not done* (nothing was sent, or etcd refused before doing
//! anything), or *open*: the call may have been carried out, or may still be. Reads are repeated in all but
//! the first case. Writes are repeated too, because each can be carried out only once (see [`super::slots`]);
//! what differs is what a caller is told when time runs out.

use std::{sync::atomic::Ordering, time::Duration};

use muster_model::store::{Revision, StoreError};
use tokio::time::{Instant, timeout};
use tonic::{
    Code, Request, Status,
    metadata::AsciiMetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

use super::{
    Shared,
    members::whole,
    proto::{AuthenticateRequest, ResponseHeader, auth_client::AuthClient, kv_client::KvClient},
};

/// Between rounds over all members.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_LONGEST: Duration = Duration::from_millis(500);

/// Why one attempt gave no answer.
#[derive(Debug)]
pub(super) enum Miss {
    /// etcd's answer is no.
    Definite(StoreError),
    /// Nothing happened, and another attempt may succeed.
    NotDone(String),
    /// It may have happened, or may still.
    Open(String),
}

/// The state of a login.
#[derive(Debug, Default)]
pub(super) struct Login {
    token: Option<AsciiMetadataValue>,
    /// Counts logins, so that many callers with an expired token cause one new login.
    count: u64,
}

/// A client, ready for one call.
pub(super) type Kv = KvClient<InterceptedService<Channel, Ticket>>;

/// Answers that tell the store's revision.
pub(super) trait Answer {
    fn header(&self) -> Option<&ResponseHeader>;
}

macro_rules! answers {
    ($($name:ident),*) => {
        $(impl Answer for super::proto::$name {
            fn header(&self) -> Option<&ResponseHeader> {
                self.header.as_ref()
            }
        })*
    };
}
answers!(RangeResponse, TxnResponse, CompactionResponse);

/// Paces repeated attempts within a total time.
#[derive(Debug)]
pub(super) struct Pace {
    until: Instant,
    attempts: usize,
    members: usize,
    pause: Duration,
}

impl Pace {
    pub(super) fn new(total: Duration, members: usize) -> Self {
        Self { until: Instant::now() + total, attempts: 0, members, pause: PAUSE_FIRST }
    }

    /// Waits before the next attempt; `false` when time is up.
    pub(super) async fn again(&mut self) -> bool {
        self.attempts += 1;
        if Instant::now() >= self.until {
            return false;
        }
        if self.attempts.is_multiple_of(self.members) {
            pause(self.pause).await;
            self.pause = (self.pause * 2).min(PAUSE_LONGEST);
        }
        true
    }
}

#[allow(clippy::disallowed_methods, reason = "waits for a real network, which no simulated clock moves")]
pub(super) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}

impl Shared {
    pub(super) fn unavailable(&self, why: String) -> StoreError {
        StoreError::Unavailable { store: self.name.clone(), why }
    }

    /// Repeats a read until it is answered or time is up.
    pub(super) async fn read<T: Answer, F>(&self, call: impl Fn(Kv) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let mut pace = Pace::new(self.options.call_timeout, self.members.len());
        loop {
            match self.attempt(&call).await {
                Ok(answer) => return Ok(answer),
                Err(Miss::Definite(error)) => return Err(error),
                Err(Miss::NotDone(why) | Miss::Open(why)) => {
                    if !pace.again().await {
                        return Err(self.unavailable(why));
                    }
                }
            }
        }
    }

    /// Asks one member once.
    pub(super) async fn attempt<T: Answer, F>(&self, call: impl Fn(Kv) -> F) -> Result<T, Miss>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let member = self.members.pick();
        let at = |why: &str| format!("{}: {why}", member.address);
        let connection = self.members.connect(member).await.map_err(|why| Miss::NotDone(at(&why)))?;
        let ticket = match self.ticket(&connection.channel).await {
            Ok(ticket) => ticket,
            Err(miss) => {
                if !matches!(miss, Miss::Definite(_)) {
                    member.failed(&connection).await;
                }
                return Err(miss);
            }
        };
        let login = ticket.login;
        let client = KvClient::with_interceptor(connection.channel.clone(), ticket)
            .max_decoding_message_size(usize::MAX);
        let before = self.seen.load(Ordering::SeqCst);
        match timeout(self.options.attempt_timeout, call(client)).await {
            Ok(Ok(response)) => {
                member.answered();
                let answer = response.into_inner();
                self.check_header(answer.header(), before).map_err(Miss::Definite)?;
                Ok(answer)
            }
            Ok(Err(status)) => match self.judge(&status) {
                Verdict::Miss(miss @ Miss::Definite(_)) => {
                    member.answered();
                    Err(miss)
                }
                Verdict::Miss(Miss::Open(why)) => {
                    member.failed(&connection).await;
                    Err(Miss::Open(at(&why)))
                }
                Verdict::Miss(Miss::NotDone(why)) => {
                    member.failed(&connection).await;
                    Err(Miss::NotDone(at(&why)))
                }
                Verdict::LoginExpired => {
                    self.login.lock().await.expired(login);
                    Err(Miss::NotDone(at("the login has expired")))
                }
            },
            Err(_) => {
                member.failed(&connection).await;
                Err(Miss::Open(at(&format!("no answer within {:?}", self.options.attempt_timeout))))
            }
        }
    }

    /// Refuses an answer from before what this process has already seen: the store was restored.
    fn check_header(&self, header: Option<&ResponseHeader>, before: u64) -> Result<(), StoreError> {
        let Some(header) = header else { return Ok(()) };
        self.members.same_cluster(header.cluster_id).map_err(|why| self.unavailable(why))?;
        let revision = revision(header.revision);
        if revision.0 < before {
            return Err(StoreError::Future { asked: Revision(before), current: revision });
        }
        self.seen.fetch_max(revision.0, Ordering::SeqCst);
        Ok(())
    }

    /// What every call carries. Logs in first where that is needed.
    pub(super) async fn ticket(&self, channel: &Channel) -> Result<Ticket, Miss> {
        let Some(user) = &self.options.user else { return Ok(Ticket { token: None, login: 0 }) };
        let mut login = self.login.lock().await;
        if login.token.is_none() {
            let request =
                AuthenticateRequest { name: user.name.clone(), password: user.password.reveal().to_owned() };
            let mut client = AuthClient::new(channel.clone());
            let answer = timeout(self.options.attempt_timeout, client.authenticate(request)).await;
            let answer = answer.map_err(|_| Miss::NotDone("the login was not answered".to_owned()))?;
            let answer = answer.map_err(|status| match self.judge(&status) {
                Verdict::Miss(Miss::Open(why)) => Miss::NotDone(why), // a login changes nothing
                Verdict::Miss(miss) => miss,
                Verdict::LoginExpired => Miss::NotDone(status.message().to_owned()),
            })?;
            let token = AsciiMetadataValue::try_from(answer.into_inner().token)
                .map_err(|_| Miss::Definite(self.unavailable("its token cannot be sent back".to_owned())))?;
            login.token = Some(token);
            login.count += 1;
        }
        Ok(Ticket { token: login.token.clone(), login: login.count })
    }

    /// What a failed call means.
    pub(super) fn judge(&self, status: &Status) -> Verdict {
        let text = status.message();
        let store = self.name.clone();
        let definite = |error| Verdict::Miss(Miss::Definite(error));
        let says = |part: &str| text.contains(part);
        if says("invalid auth token") || says("revision of auth store is old") {
            return Verdict::LoginExpired;
        }
        if says("database space exceeded") {
            let why = "etcd's space quota is used up; compact and defragment it or raise its quota, then disarm the alarm";
            return definite(StoreError::Full { store, why: why.to_owned() });
        }
        if says("corrupt cluster") {
            return definite(StoreError::Damaged { store, why: text.to_owned() });
        }
        if says("user name is empty") {
            let why = "etcd asks for a login and none is configured; give a user and a password".to_owned();
            return definite(StoreError::Denied { store, why });
        }
        if says("permission denied") || says("authentication failed") || says("permission not given") {
            return definite(StoreError::Denied { store, why: text.to_owned() });
        }
        if says("authentication is not enabled") {
            let why = "a user is configured, and etcd has authentication switched off".to_owned();
            return definite(StoreError::Denied { store, why });
        }
        // Told apart by the callers that know what was asked for.
        if says("required revision") {
            return definite(StoreError::Invalid { why: text.to_owned() });
        }
        match status.code() {
            Code::InvalidArgument | Code::OutOfRange => {
                definite(StoreError::Invalid { why: format!("etcd refuses it: {text}") })
            }
            Code::Unimplemented => {
                definite(self.unavailable(format!("it is no etcd with the v3 API: {text}")))
            }
            // Both are said before anything is done.
            Code::ResourceExhausted if says("too many requests") => {
                Verdict::Miss(Miss::NotDone(text.to_owned()))
            }
            Code::Unavailable if says("etcdserver: no leader") => {
                Verdict::Miss(Miss::NotDone(text.to_owned()))
            }
            Code::FailedPrecondition => Verdict::Miss(Miss::NotDone(text.to_owned())),
            _ if never_sent(status) => Verdict::Miss(Miss::NotDone(whole(status))),
            _ => Verdict::Miss(Miss::Open(whole(status))),
        }
    }
}

/// Whether there was no connection to send anything on.
fn never_sent(status: &Status) -> bool {
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(status);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>()
            && error.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return true;
        }
        cause = error.source();
    }
    false
}

pub(super) enum Verdict {
    Miss(Miss),
    LoginExpired,
}

impl Login {
    /// The token of login number `count` was refused.
    pub(super) fn expired(&mut self, count: u64) {
        if self.count == count {
            self.token = None;
        }
    }
}

/// What every call carries: the login, and that a member without a leader is to refuse at once.
#[derive(Debug, Clone)]
pub(super) struct Ticket {
    token: Option<AsciiMetadataValue>,
    pub(super) login: u64,
}

impl Interceptor for Ticket {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("hasleader", AsciiMetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        Ok(request)
    }
}

/// etcd counts in signed numbers that are never negative.
pub(super) fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or(0))
}

/// A revision as etcd counts; what it could never have reached becomes what it never reaches.
pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}
