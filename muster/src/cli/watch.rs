//! Following changes: one line of JSON per event from the server, one row or document on the screen.

use clap::Args;
use futures::StreamExt;
use muster_model::Duration;
use serde_json::Value;

use super::{
    client::Request,
    context::Connection,
    failure::{Exit, Failure, Outcome},
    get::{self, Found, Shape},
    interrupt,
    kinds::{Kind, Scope, text_at},
    list::{self, Selection},
    print::{
        format::Format,
        table::{Cell, Table},
    },
    resolve::{self, Target},
    session::Session,
};

/// Pause before a broken stream is taken up again.
const RECONNECT: Duration = Duration::from_secs(1);
/// Status of an answer about a past that was compacted.
const GONE: u16 = 410;
/// Longest event: the largest body that the API takes, with room for its envelope.
const LONGEST_EVENT: usize = 8 << 20;

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// What to follow: KIND [NAME…] or KIND/NAME…
    #[arg(required = true, value_name = "KIND [NAME]", add = super::complete::targets())]
    what: Vec<String>,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// How events are shown.
#[derive(Debug)]
pub(crate) struct Style {
    pub(crate) shape: Shape,
    pub(crate) events: bool,
}

pub(crate) async fn run(session: &Session, watch: Watch) -> Outcome {
    let targets = resolve::targets(&watch.what)?;
    let (found, failure) = get::collect(session, &targets, &watch.selection).await;
    if let Some(failure) = failure {
        return Err(failure);
    }
    let style = Style { shape: watch.shape, events: true };
    let mut screen = Rows::new(&style, watch.selection.all_projects);
    for group in &found {
        session.know_clusters(group.kind, &group.items).await?;
        for object in &group.items {
            screen.show(session, group.kind, "ADDED", object)?;
        }
    }
    follow_with(session, found, &targets, &watch.selection, screen).await
}

/// Goes on after a list has been shown. Ends with Ctrl-C or when nobody reads any more.
pub(crate) async fn follow(
    session: &Session,
    found: Vec<Found>,
    targets: &[Target],
    selection: &Selection,
    style: Style,
) -> Outcome {
    let mut rows = Rows::new(&style, selection.all_projects);
    rows.headers = found.iter().all(|group| group.items.is_empty()) && !style.shape.no_headers;
    follow_with(session, found, targets, selection, rows).await
}

async fn follow_with(
    session: &Session,
    found: Vec<Found>,
    targets: &[Target],
    selection: &Selection,
    mut rows: Rows<'_>,
) -> Outcome {
    let [target] = targets else {
        return Err(
            Failure::usage("--watch", "one kind or one object at a time").next("start one command for each")
        );
    };
    let kind = target.kind;
    if kind.scope == Scope::OnPool {
        return Err(Failure::usage("--watch", format!("{} cannot be watched", kind.plural))
            .next("watch the pool, whose status follows"));
    }
    let mut source = Source::new(session, found, target, selection).await?;
    let work = async {
        loop {
            let (event, object) = source.next(session).await?;
            session.know_clusters(kind, std::slice::from_ref(&object)).await?;
            rows.show(session, kind, &event, &object)?;
        }
    };
    interrupt::or_ctrl_c(work, || None).await
}

/// Where the events come from: a stream that is taken up again wherever it broke.
struct Source {
    kind: &'static Kind,
    selection: Selection,
    only: Option<String>,
    revision: Option<String>,
    lines: Option<Lines>,
    /// It was open once, so that losing it is worth waiting.
    opened: bool,
    /// The loss was said already.
    lost: bool,
}

impl Source {
    async fn new(
        session: &Session,
        found: Vec<Found>,
        target: &Target,
        selection: &Selection,
    ) -> Outcome<Self> {
        let mut selection = selection.clone();
        let group = found.into_iter().next();
        let only = target
            .name
            .as_ref()
            .and(group.as_ref())
            .and_then(|group| group.items.first())
            .map(|object| text_at(object, "id"));
        if let Some(cluster) = selection.cluster.clone() {
            selection.cluster_id =
                Some(resolve::cluster_id(session, &cluster, selection.all_projects).await?);
        }
        let revision = match group.and_then(|group| group.revision) {
            Some(revision) => Some(revision),
            // A named object was read alone: the list's revision is where to start from.
            None => list::head(session, target.kind).await?,
        };
        Ok(Self { kind: target.kind, selection, only, revision, lines: None, opened: false, lost: false })
    }

    /// The next event about something that was asked for.
    async fn next(&mut self, session: &Session) -> Outcome<(String, Value)> {
        loop {
            let Some(event) = self.event(session).await? else { continue };
            let kind = text_at(&event, "type");
            if let Some(revision) = Some(text_at(&event, "revision")).filter(|text| !text.is_empty()) {
                self.revision = Some(revision);
            }
            let object = event["object"].clone();
            let wanted = self.only.as_ref().is_none_or(|id| *id == text_at(&object, "id"));
            if kind != "BOOKMARK" && wanted && object.is_object() {
                return Ok((kind, object));
            }
        }
    }

    /// One event, or nothing when the stream had to be opened anew.
    async fn event(&mut self, session: &Session) -> Outcome<Option<Value>> {
        if self.lines.is_none() {
            match self.open(session).await {
                Ok(lines) => (self.lines, self.lost, self.opened) = (Some(lines), false, true),
                Err(failure) => return self.recover(session, failure).await.map(|()| None),
            }
        }
        let Some(lines) = &mut self.lines else { return Ok(None) };
        let Some(Ok(line)) = lines.next().await else {
            self.lines = None;
            session.clock.sleep(RECONNECT).await;
            return Ok(None);
        };
        let event: Value = serde_json::from_str(&line).map_err(|error| {
            Failure::new(Exit::Failure, "watch", format!("an event cannot be read: {error}"))
                .next("is this server of the same version? see `muster version`")
        })?;
        if text_at(&event, "type") == "ERROR" {
            return self.broken(session, &event["object"]["error"]).await;
        }
        Ok(Some(event))
    }

    /// The server ended the stream and said why: a past that is gone is skipped, all else is tried again.
    async fn broken(&mut self, session: &Session, error: &Value) -> Outcome<Option<Value>> {
        self.lines = None;
        if text_at(error, "code") == "GONE" {
            session.screen.note("the server no longer has this past; changes may have been missed");
            self.revision = None;
        } else {
            session.screen.note(&format!("the watch broke ({}), trying again", text_at(error, "message")));
            session.clock.sleep(RECONNECT).await;
        }
        Ok(None)
    }

    /// A past that is gone is given up for the present; a server that went away is awaited.
    async fn recover(&mut self, session: &Session, failure: Failure) -> Outcome {
        if failure.status == Some(GONE) && self.revision.is_some() {
            session.screen.note("the server no longer has this past; changes may have been missed");
            self.revision = None;
            return Ok(());
        }
        if !(self.opened && matches!(failure.exit, Exit::Unreachable | Exit::Timeout)) {
            return Err(failure);
        }
        if !self.lost {
            session.screen.note(&format!("{}: connection lost, trying again", failure.object));
            self.lost = true;
        }
        session.clock.sleep(RECONNECT).await;
        Ok(())
    }

    async fn open(&mut self, session: &Session) -> Outcome<Lines> {
        if self.revision.is_none() {
            self.revision = list::head(session, self.kind).await?;
        }
        let mut request = Request::get(self.kind.collection(), self.kind.plural).query("watch", "true");
        request.query.extend(self.selection.query(self.kind));
        request.scope = self.selection.request_scope();
        if let Some(revision) = &self.revision {
            request = request.query("resource_version", revision.clone());
        }
        let response = session.client.stream(request).await?;
        Ok(Lines { body: Box::pin(response.bytes_stream()), pending: Vec::new() })
    }
}

type Bytes = std::pin::Pin<Box<dyn futures::Stream<Item = reqwest::Result<bytes::Bytes>> + Send>>;

/// A body cut into lines.
struct Lines {
    body: Bytes,
    pending: Vec<u8>,
}

impl Lines {
    async fn next(&mut self) -> Option<Result<String, ()>> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                let text = String::from_utf8_lossy(&line).trim().to_owned();
                if text.is_empty() {
                    continue;
                }
                return Some(Ok(text));
            }
            match self.body.next().await {
                Some(Ok(chunk)) if self.pending.len() + chunk.len() <= LONGEST_EVENT => {
                    self.pending.extend_from_slice(&chunk);
                }
                Some(_) => return Some(Err(())),
                None => return None,
            }
        }
    }
}

/// What has been printed, so that later rows stay aligned.
struct Rows<'a> {
    style: &'a Style,
    all_projects: bool,
    headers: bool,
    widths: Vec<usize>,
}

impl<'a> Rows<'a> {
    fn new(style: &'a Style, all_projects: bool) -> Self {
        Self { style, all_projects, headers: !style.shape.no_headers, widths: Vec::new() }
    }

    fn show(&mut self, session: &Session, kind: &'static Kind, event: &str, object: &Value) -> Outcome {
        let shape = &self.style.shape;
        match &shape.output.0 {
            Format::Table | Format::Wide => {
                let mut headers = get::headers(kind, shape, self.all_projects);
                let mut row: Vec<Cell> = get::row(session, kind, object, shape, self.all_projects);
                if self.style.events {
                    headers.insert(0, "EVENT");
                    row.insert(0, event.into());
                }
                let mut table = Table::new(headers);
                table.push(row);
                let text = table.render(self.headers, session.screen.colour, &mut self.widths);
                self.headers = false;
                session.screen.data(&text)
            }
            Format::Name => {
                session.screen.line(&format!("{}/{}", kind.singular, session.full_name(kind, object)))
            }
            Format::Json => {
                let object = get::with_kind(kind, object.clone());
                let document = if self.style.events {
                    serde_json::json!({"type": event, "object": object})
                } else {
                    object
                };
                session.screen.line(&document.to_string())
            }
            other => {
                let text = other.document(&get::with_kind(kind, object.clone()), self.headers)?;
                self.headers = false;
                let separator = if *other == Format::Yaml { "---\n" } else { "" };
                let end = if text.ends_with('\n') { "" } else { "\n" };
                session.screen.data(&format!("{separator}{text}{end}"))
            }
        }
    }
}
