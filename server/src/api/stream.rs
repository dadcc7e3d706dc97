//! `GET /api/v1/stream`: what changes, as server-sent events, for pages that stay open.
//!
//! Every event carries its `sequence` and, as `after`, the sequence of the event before it on this connection: a reader
//! that finds anything else has missed something, or is told something twice. A heartbeat every two seconds carries the
//! sequence too. A reader that comes back says where it was, and gets what it missed or the word to begin anew.
//!
//! A token that opened a stream is looked at again while the stream is open: one that has run out, or was taken back,
//! ends it.

use std::{convert::Infallible, fmt::Write as _, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use bytes::Bytes;
use muster_control::news::{Audience, Notice, RESYNC, Start};
use muster_model::{field::FieldError, identity::Resource};
use serde_json::json;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{Call, watch};
use crate::{
    error::{ApiError, Code},
    peer::Peer,
};

/// A page that has heard nothing for two of these says so.
const BEAT: Duration = Duration::from_secs(2);
/// Between two looks at the token that opened the stream: a page asks for something about as often.
const PROOF: muster_model::Duration = muster_model::Duration::from_secs(15);
/// Bytes of pieces that are put together into one write.
const BATCH: usize = 64;

/// `GET /api/v1/stream`
pub async fn stream(call: Call) -> Result<Response, ApiError> {
    call.check_list(Resource::NodePools)?;
    let mut query = call.query()?;
    let last = call.headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let after = query.text("after").or(last).and_then(|text| {
        let number = text.parse::<u64>().ok();
        if number.is_none() {
            let fault = FieldError::new("after", "is not a sequence number").found_text(&text);
            query.fault(fault.hint("use the sequence of the last event"));
        }
        number
    });
    let seconds = query.number("timeout_seconds", 1, watch::MAX_SECONDS);
    query.finish()?;
    let place = watch::Place::take(&call)?;
    let (start, last, receiver) = call.app.desk.news.subscribe(after);
    let proved = call.app.clock.monotonic();
    let mut open = Open {
        proved,
        until: seconds.map(|seconds| {
            call.app.clock.monotonic().saturating_add(muster_model::Duration::from_secs(seconds))
        }),
        call,
        receiver,
        last: after.unwrap_or(last),
        _place: place,
    };
    let first = match start {
        Start::Resumed(missed) => {
            let mut text = String::new();
            for notice in missed {
                open.tell(&notice, &mut text);
            }
            text.push_str(&open.beat());
            text
        }
        Start::Anew => open.anew(last),
    };
    let stream = futures::stream::unfold((Some(first), open), |(first, mut open)| async move {
        let text = match first {
            Some(text) => text,
            None => open.next().await?,
        };
        Some((Ok::<Bytes, Infallible>(Bytes::from(text)), (None, open)))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Proxies that buffer would hold changes back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

struct Open {
    call: Call,
    receiver: Receiver<Arc<Notice>>,
    /// The sequence of the last event that was sent.
    last: u64,
    until: Option<muster_model::Duration>,
    /// When the token was last looked at.
    proved: muster_model::Duration,
    _place: watch::Place,
}

impl Open {
    /// The next piece of text, or `None` when the stream ends.
    #[allow(clippy::disallowed_methods, reason = "a heartbeat is for people: it keeps the time of the wall")]
    async fn next(&mut self) -> Option<String> {
        loop {
            let clock = Arc::clone(&self.call.app.clock);
            if !self.is_proved().await {
                return None;
            }
            let left = self.until.map(|until| until.saturating_sub(clock.monotonic()));
            let received = tokio::select! {
                biased;
                () = self.call.app.stop.cancelled() => return None,
                () = async { match left {
                    Some(left) => clock.sleep(left).await,
                    None => std::future::pending().await,
                } } => return None,
                received = self.receiver.recv() => received,
                () = tokio::time::sleep(BEAT) => return Some(self.beat()),
            };
            let mut text = String::new();
            match received {
                Ok(notice) => self.tell(&notice, &mut text),
                Err(RecvError::Lagged(_)) => {
                    let (_, last, receiver) = self.call.app.desk.news.subscribe(None);
                    self.receiver = receiver;
                    return Some(self.anew(last));
                }
                Err(RecvError::Closed) => return None,
            }
            for _ in 0..BATCH {
                match self.receiver.try_recv() {
                    Ok(notice) => self.tell(&notice, &mut text),
                    Err(_) => break,
                }
            }
            if !text.is_empty() {
                return Some(text);
            }
        }
    }

    /// Whether the token still counts; whoever holds it may see more or less than at first. Other proofs belong to the
    /// connection, which is the same one.
    async fn is_proved(&mut self) -> bool {
        let now = self.call.app.clock.monotonic();
        if now.saturating_sub(self.proved) < PROOF || !self.call.headers.contains_key(header::AUTHORIZATION) {
            return true;
        }
        self.proved = now;
        let peer = Peer { address: self.call.source, certificate: None };
        match self.call.app.identity.authenticate(&self.call.headers, &peer).await {
            Ok(caller) => {
                self.call.caller = Arc::new(caller);
                true
            }
            // Whoever judges tokens may be away for a moment: that says nothing about this one.
            Err(error) => error.code != Code::Unauthenticated,
        }
    }

    /// Adds the notice, if the caller may know of it.
    fn tell(&mut self, notice: &Notice, text: &mut String) {
        if notice.kind == RESYNC {
            text.push_str(&self.anew(notice.sequence));
            return;
        }
        let visible = match &notice.audience {
            Audience::Everyone => true,
            Audience::Project(project) => self.call.sees(project),
            Audience::Unowned => self.call.sees(&self.call.project_of(None)),
            Audience::Nobody => false,
        };
        if !visible {
            return;
        }
        let data = json!({ "sequence": notice.sequence, "after": self.last, "kind": notice.kind,
            "part": notice.part, "name": notice.name, "deleted": notice.deleted });
        self.last = notice.sequence;
        let _ = write!(text, "id: {}\nevent: change\ndata: {data}\n\n", notice.sequence); // a text takes everything
    }

    fn anew(&mut self, last: u64) -> String {
        self.last = last;
        format!("id: {last}\nevent: resync\ndata: {}\n\n", json!({ "sequence": last }))
    }

    fn beat(&self) -> String {
        format!("event: beat\ndata: {}\n\n", json!({ "sequence": self.last }))
    }
}
