//! A watch that survives the members it runs on.
//!
//! A task holds etcd's stream and knows the last revision that it handed on. When the stream breaks, stops
//! answering or loses its leader, the task connects to another member and asks for what came after, drops
//! what it has handed on before, and goes on. Only three things end it: the history it needs was compacted,
//! the store went back behind what was handed on (it was restored), or access is denied.
//!
//! The task reads no faster than its caller, so a slow caller makes etcd keep the events, not us.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use muster_model::store::{Change, Revision, StoreError, WatchEvent, WatchStream, prefix_end};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_stream::wrappers::ReceiverStream;

use super::{
    Shared,
    call::{Miss, Verdict, number, pause, revision},
    proto::{
        Event, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse, event,
        watch_client::WatchClient, watch_request,
    },
};

/// Events between the task and its caller.
const QUEUE: usize = 64;
/// How often etcd is asked how far it is, which also shows that it is there.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// How long it may be silent then.
const SILENCE: Duration = Duration::from_secs(7);
/// Between attempts to connect, growing.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LONGEST: Duration = Duration::from_secs(2);

pub(super) fn follow(shared: Arc<Shared>, prefix: &str, after: Revision) -> WatchStream {
    let (events, receiver) = mpsc::channel(QUEUE);
    // Every key starts with a slash, so that an empty prefix does not reach out of the root.
    let prefix = if prefix.is_empty() { "/" } else { prefix }.to_owned();
    let mut task = Task { shared, prefix, asked: after, position: after, told: after, events };
    tokio::spawn(async move { task.run().await });
    Box::pin(ReceiverStream::new(receiver))
}

struct Task {
    shared: Arc<Shared>,
    prefix: String,
    /// Where the caller began.
    asked: Revision,
    /// Everything up to here was handed on, or is nobody's concern.
    position: Revision,
    /// The last revision that the caller was told.
    told: Revision,
    events: mpsc::Sender<Result<WatchEvent, StoreError>>,
}

/// Why one stream ended.
enum End {
    /// Nobody listens any more.
    Unheard,
    /// Connect again.
    Broken(String),
    Failed(StoreError),
}

impl Task {
    async fn run(&mut self) {
        let mut wait = PAUSE_FIRST;
        loop {
            let began = self.position;
            let events = self.events.clone();
            let end = tokio::select! {
                end = self.stream() => end,
                () = events.closed() => End::Unheard,
            };
            match end {
                End::Unheard => return,
                End::Failed(error) => {
                    let _ = self.events.send(Err(error)).await; // nobody may be listening
                    return;
                }
                End::Broken(why) => {
                    tracing::debug!(store = %self.shared.name, "a watch connects again: {why}");
                }
            }
            if self.position > began {
                wait = PAUSE_FIRST;
            }
            pause(wait).await;
            wait = (wait * 2).min(PAUSE_LONGEST);
            if self.events.is_closed() {
                return;
            }
        }
    }

    /// One stream on one member, until it ends.
    async fn stream(&mut self) -> End {
        let shared = Arc::clone(&self.shared);
        // Whoever answers must know at least what was handed on; a member that lags catches up by itself.
        match shared.revision().await {
            Ok(current) if current < self.position => {
                return End::Failed(StoreError::Future { asked: self.position, current });
            }
            Ok(_) => {}
            Err(error @ (StoreError::Future { .. } | StoreError::Denied { .. })) => {
                return End::Failed(error);
            }
            Err(error) => return End::Broken(error.to_string()),
        }
        let member = shared.members.pick();
        let connection = match shared.members.connect(member).await {
            Ok(connection) => connection,
            Err(why) => return End::Broken(why),
        };
        let ticket = match shared.ticket(&connection.channel).await {
            Ok(ticket) => ticket,
            Err(Miss::Definite(error)) => return End::Failed(error),
            Err(Miss::NotDone(why) | Miss::Open(why)) => return End::Broken(why),
        };
        let login = ticket.login;
        let (ask, asked) = mpsc::channel(4);
        if ask.send(self.create()).await.is_err() {
            return End::Broken("the stream ended before it began".to_owned());
        }
        let mut client = WatchClient::with_interceptor(connection.channel.clone(), ticket)
            .max_decoding_message_size(usize::MAX);
        let opened = timeout(shared.options.attempt_timeout, client.watch(ReceiverStream::new(asked))).await;
        let end = match opened {
            Err(_) => End::Broken("the watch was not answered".to_owned()),
            Ok(Err(status)) => self.refused(&status, login).await,
            Ok(Ok(answer)) => {
                let truthful = connection.version.as_deref().is_some_and(tells_progress_truly);
                self.pump(answer.into_inner(), &ask, truthful, login).await
            }
        };
        if matches!(end, End::Broken(_)) {
            member.failed(&connection).await;
        }
        end
    }

    fn create(&self) -> WatchRequest {
        let full = self.shared.full(&self.prefix);
        // Begins one too early and drops it: so etcd refuses exactly when a change may be missing, also where
        // a delete at the compacted revision itself was forgotten. Zero would mean "from now on".
        let start = number(self.position).max(1);
        let create = WatchCreateRequest {
            range_end: prefix_end(&full).unwrap_or_default().into(),
            key: Bytes::from(full),
            start_revision: start,
            progress_notify: true,
            fragment: true,
        };
        request(watch_request::RequestUnion::CreateRequest(create))
    }

    async fn refused(&self, status: &tonic::Status, login: u64) -> End {
        match self.shared.judge(status) {
            Verdict::LoginExpired => {
                self.shared.login.lock().await.expired(login);
                End::Broken("the login has expired".to_owned())
            }
            Verdict::Miss(Miss::Definite(error)) => End::Failed(error),
            Verdict::Miss(Miss::NotDone(why) | Miss::Open(why)) => End::Broken(why),
        }
    }

    async fn pump(
        &mut self,
        mut answers: impl Stream<Item = Result<WatchResponse, tonic::Status>> + Unpin,
        ask: &mpsc::Sender<WatchRequest>,
        truthful: bool,
        login: u64,
    ) -> End {
        let mut heard = Instant::now();
        let mut pieces: Vec<Event> = Vec::new();
        loop {
            let answer = match timeout(ASK_EVERY, answers.next()).await {
                Ok(Some(Ok(answer))) => answer,
                Ok(Some(Err(status))) => return self.refused(&status, login).await,
                Ok(None) => return End::Broken("the member ended the stream".to_owned()),
                Err(_) if heard.elapsed() > SILENCE => return End::Broken("the member is silent".to_owned()),
                Err(_) => {
                    let progress = watch_request::RequestUnion::ProgressRequest(WatchProgressRequest {});
                    let _ = ask.try_send(request(progress)); // a full queue was asked enough
                    continue;
                }
            };
            if answer.canceled {
                return self.canceled(&answer, login).await;
            }
            let at = revision(answer.header.unwrap_or_default().revision);
            let progress = answer.events.is_empty() && !answer.created && !answer.fragment;
            pieces.extend(answer.events);
            if !answer.fragment && !self.hand_on(std::mem::take(&mut pieces)).await {
                return End::Unheard;
            }
            if progress && truthful && !self.progress(at).await {
                return End::Unheard;
            }
            // After handing on: the caller may have taken its time.
            heard = Instant::now();
        }
    }

    async fn canceled(&self, answer: &WatchResponse, login: u64) -> End {
        if answer.compact_revision > 0 {
            let oldest = revision(answer.compact_revision);
            let asked = if self.told > self.asked { self.told } else { self.asked };
            return End::Failed(StoreError::Compacted { asked, oldest });
        }
        let reason = &answer.cancel_reason;
        if reason.contains("auth token") || reason.contains("auth store is old") {
            self.shared.login.lock().await.expired(login);
        } else if reason.contains("permission denied") {
            let (store, why) = (self.shared.name.clone(), reason.clone());
            return End::Failed(StoreError::Denied { store, why });
        }
        End::Broken(format!("the member canceled the watch: {reason}"))
    }

    /// Hands on whole commits; `false` when nobody listens.
    async fn hand_on(&mut self, events: Vec<Event>) -> bool {
        let mut events =
            events.into_iter().filter_map(|event| event.kv.clone().map(|kv| (event, kv))).peekable();
        while let Some((first, kv)) = events.next() {
            let at = revision(kv.mod_revision);
            let mut changes: Vec<Change> = self.change(&first, at).into_iter().collect();
            while let Some((next, _)) = events.next_if(|(_, kv)| revision(kv.mod_revision) == at) {
                changes.extend(self.change(&next, at));
            }
            if at <= self.position {
                continue; // handed on before the stream was begun anew
            }
            self.position = at;
            if changes.is_empty() {
                continue;
            }
            self.told = at;
            changes.sort_by(|a, b| a.key.cmp(&b.key));
            if self.events.send(Ok(WatchEvent::Changes(changes))).await.is_err() {
                return false;
            }
        }
        true
    }

    fn change(&self, event: &Event, at: Revision) -> Option<Change> {
        let kv = event.kv.as_ref()?;
        let key = self.shared.short(&kv.key)?;
        let entry = if event.r#type() == event::EventType::Delete { None } else { self.shared.entry(kv) };
        Some(Change { revision: at, key, entry })
    }

    async fn progress(&mut self, at: Revision) -> bool {
        if at <= self.told {
            return true;
        }
        self.position = self.position.max(at);
        self.told = at;
        self.events.send(Ok(WatchEvent::Progress(at))).await.is_ok()
    }
}

fn request(union: watch_request::RequestUnion) -> WatchRequest {
    WatchRequest { request_union: Some(union) }
}

/// Versions before 3.4.25 and 3.5.8 may tell a revision before they have delivered the events up to it.
fn tells_progress_truly(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    let mut next = || numbers.next().flatten();
    match (next(), next(), next()) {
        (Some(3), Some(4), Some(patch)) => patch >= 25,
        (Some(3), Some(5), Some(patch)) => patch >= 8,
        (Some(3), Some(minor), _) => minor > 5,
        (Some(major), ..) => major > 3,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::tells_progress_truly;

    #[test]
    fn progress_is_believed_from_the_version_that_fixed_it() {
        for (version, truly) in [
            ("3.4.23", false),
            ("3.4.25", true),
            ("3.5.1", false),
            ("3.5.8", true),
            ("3.5.8-rc.1", true),
            ("3.6.8", true),
            ("3.3.0", false),
            ("4.0.0", true),
            ("", false),
        ] {
            assert_eq!(tells_progress_truly(version), truly, "{version}");
        }
    }
}
