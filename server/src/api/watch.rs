//! `?watch=true`: a stream of changes, one JSON document per line, or as server-sent events.

use std::convert::Infallible;

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use bytes::{BufMut, Bytes, BytesMut};
use futures::Stream;
use muster_control::{
    inventory::{HostWatch, RecordWatch},
    registry::{Kind, Watch, WatchItem},
};
use muster_model::{Duration, field::FieldError, store::Revision};
use uuid::Uuid;

use super::{Call, selection::read_filter};
use crate::{
    error::{ApiError, Code},
    frame::RequestId,
    limits::WatchSlot,
    query::Query,
};

/// A watch may be asked to end by itself after at most this long.
pub(super) const MAX_SECONDS: u64 = 86_400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Lines,
    Events,
}

/// What a stream comes from.
#[derive(Debug)]
pub(super) enum Source {
    Objects(Watch),
    Hosts(HostWatch),
    Records(RecordWatch),
}

impl Source {
    async fn next(&mut self) -> Result<WatchItem, ApiError> {
        match self {
            Self::Objects(watch) => watch.next().await.map_err(ApiError::from),
            Self::Hosts(watch) => watch.next().await.map_err(ApiError::from),
            Self::Records(watch) => watch.next().await.map_err(ApiError::from),
        }
    }
}

/// What a request for a stream says, apart from its filters.
#[derive(Debug)]
pub(super) struct Request {
    form: Form,
    /// Deliver what came after this.
    pub(super) from: Option<Revision>,
    seconds: Option<u64>,
}

impl Request {
    /// Reads the parameters that all watches take; the caller reads its filters and finishes the query.
    pub(super) fn read(call: &Call, query: &mut Query) -> Self {
        let form = form_of(call);
        let resume = match query.text("resource_version") {
            Some(text) => Some(text),
            // A browser that reconnects says where it was.
            None => call
                .headers
                .get("last-event-id")
                .and_then(|value| value.to_str().ok())
                .filter(|_| form == Form::Events)
                .map(str::to_owned),
        };
        let from = resume.and_then(|text| {
            let revision = text.parse().ok().map(Revision);
            if revision.is_none() {
                query.fault(
                    FieldError::new("resource_version", "is not a revision")
                        .found_text(&text)
                        .hint("use revision of a list or of an event"),
                );
            }
            revision
        });
        Self { form, from, seconds: query.number("timeout_seconds", 1, MAX_SECONDS) }
    }

    /// Streams what `source` delivers.
    pub(super) fn answer(self, call: &Call, source: Source) -> Result<Response, ApiError> {
        let place = Place::take(call)?;
        let form = self.form;
        let stream = Streaming {
            source,
            form,
            stop: call.app.stop.clone(),
            request: RequestId(call.id.clone()),
            deadline: self.seconds.map(Duration::from_secs),
            clock: std::sync::Arc::clone(&call.app.clock),
            _place: place,
        };
        Ok(response(Body::from_stream(stream.into_stream()), form))
    }
}

/// The stream of clusters or pools, when the request asks for one.
pub(super) async fn asked(
    call: &Call,
    query: &mut Query,
    kind: Kind,
    cluster: Option<Uuid>,
) -> Result<Option<Response>, ApiError> {
    if !query.flag("watch") {
        return Ok(None);
    }
    let mut query = std::mem::replace(query, Query::read(None)?);
    let _ = query.flag("watch");
    let request = Request::read(call, &mut query);
    let mut filter = read_filter(call, &mut query, kind);
    query.finish()?;
    filter.cluster = cluster.or(filter.cluster);
    let sight = {
        let call = call.clone();
        Box::new(move |project: &str| call.secrets(project))
    };
    let watch = call.app.registry.watch(kind, filter, request.from, sight).await?;
    request.answer(call, Source::Objects(watch)).map(Some)
}

/// The head of a stream's answer.
pub(super) fn response(body: Body, form: Form) -> Response {
    let mut response = Response::new(body);
    let kind = match form {
        Form::Lines => "application/json; stream=watch",
        Form::Events => "text/event-stream",
    };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    // Proxies that buffer would hold changes back.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

pub(super) fn form_of(call: &Call) -> Form {
    let accept = call.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    if accept
        .split(',')
        .any(|part| part.split(';').next().is_some_and(|kind| kind.trim() == "text/event-stream"))
    {
        Form::Events
    } else {
        Form::Lines
    }
}

/// A place among the open streams, counted while it is held.
pub(super) struct Place {
    metrics: std::sync::Arc<crate::metrics::Metrics>,
    _slot: WatchSlot,
}

impl Place {
    /// # Errors
    ///
    /// When the server or the identity has as many as it may have.
    pub(super) fn take(call: &Call) -> Result<Self, ApiError> {
        let slot = call.app.watches.take(&call.caller.name).ok_or_else(|| {
            ApiError::new(Code::RateLimited, "Too many watches")
                .details("close one before opening another")
                .header(header::RETRY_AFTER, "5")
        })?;
        call.app.metrics.watches.inc();
        Ok(Self { metrics: std::sync::Arc::clone(&call.app.metrics), _slot: slot })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.watches.dec();
    }
}

struct Streaming {
    source: Source,
    form: Form,
    stop: tokio_util::sync::CancellationToken,
    request: RequestId,
    deadline: Option<Duration>,
    clock: std::sync::Arc<dyn muster_model::Clock>,
    _place: Place,
}

impl Streaming {
    fn into_stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        let until = self.deadline.map(|deadline| self.clock.monotonic().saturating_add(deadline));
        futures::stream::unfold(Some(self), move |state| async move {
            let mut state = state?;
            let left = until.map(|until| until.saturating_sub(state.clock.monotonic()));
            let clock = std::sync::Arc::clone(&state.clock);
            let item = tokio::select! {
                biased;
                () = state.stop.cancelled() => return None,
                () = async { match left {
                    Some(left) => clock.sleep(left).await,
                    None => std::future::pending().await,
                } } => return None,
                item = state.source.next() => item,
            };
            let (text, next) = match item {
                Ok(item) => (render(&item, state.form), Some(state)),
                Err(error) => (render_error(&error, &state.request.0, state.form), None),
            };
            Some((Ok(text), next))
        })
    }
}

pub(super) fn render(item: &WatchItem, form: Form) -> Bytes {
    let (kind, revision, object): (&str, Revision, &[u8]) = match item {
        WatchItem::Object { change, revision, text } => (change.as_str(), *revision, text),
        WatchItem::Bookmark { revision } => ("BOOKMARK", *revision, b"{}"),
    };
    let mut line = BytesMut::with_capacity(object.len() + 96);
    if form == Form::Events {
        line.put_slice(format!("id: {revision}\nevent: {kind}\ndata: ").as_bytes());
    }
    line.put_slice(format!("{{\"type\":\"{kind}\",\"revision\":\"{revision}\",\"object\":").as_bytes());
    line.put_slice(object);
    line.put_slice(if form == Form::Events { b"}\n\n" } else { b"}\n" });
    line.freeze()
}

/// A watch that fails says so in its last line, in the same envelope as any error.
fn render_error(error: &ApiError, request: &str, form: Form) -> Bytes {
    let envelope = error.render(request);
    let mut line = BytesMut::with_capacity(envelope.len() + 64);
    if form == Form::Events {
        line.put_slice(b"event: ERROR\ndata: ");
    }
    line.put_slice(b"{\"type\":\"ERROR\",\"object\":");
    line.put_slice(&envelope);
    line.put_slice(if form == Form::Events { b"}\n\n" } else { b"}\n" });
    line.freeze()
}
