//! `muster wait`, and the waiting of `--wait` elsewhere.

use std::str::FromStr;

use clap::Args;
use muster_model::Duration;
use serde_json::Value;

use super::{
    client::Request,
    context::Connection,
    failure::{Exit, Failure, Outcome},
    interrupt,
    kinds::{self, Kind, Scope, condition, dash, text_at, verdict},
    list::Selection,
    progress::{Progress, Step},
    resolve::{self, Target},
    session::Session,
};

/// Pause between two looks: short at first, for what is done at once, then easy on the server.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// What to wait for: operation/ID, pool/NAME, cluster/NAME…
    #[arg(required = true, value_name = "KIND/NAME", add = super::complete::targets())]
    what: Vec<String>,
    /// condition=TYPE[=STATUS], phase=PHASE, delete, or jsonpath={.path}=VALUE; operations: until they end
    #[arg(long = "for", value_name = "WHAT")]
    until: Option<Until>,
    #[command(flatten)]
    limit: Limit,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// How long to wait.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Limit {
    /// Give up waiting after this time (the work itself goes on)
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub(crate) timeout: Duration,
}

/// What is waited for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Until {
    Condition {
        kind: String,
        status: String,
    },
    Phase(String),
    Delete,
    Path(super::jsonpath::Template, String),
    /// An operation has ended, well or not.
    Done,
}

impl FromStr for Until {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (what, rest) = text.split_once('=').unwrap_or((text, ""));
        match (what, rest) {
            ("delete", "") => Ok(Self::Delete),
            ("done", "") => Ok(Self::Done),
            ("phase", phase) if !phase.is_empty() => Ok(Self::Phase(phase.to_owned())),
            ("condition", condition) if !condition.is_empty() => {
                let (kind, status) = condition.split_once('=').unwrap_or((condition, "True"));
                let status = match status.to_ascii_lowercase().as_str() {
                    "true" => "True",
                    "false" => "False",
                    "unknown" => "Unknown",
                    _ => return Err(format!("condition status {status:?} must be True, False or Unknown")),
                };
                Ok(Self::Condition { kind: kind.to_owned(), status: status.to_owned() })
            }
            ("jsonpath", rest) => {
                let (path, value) = rest
                    .rsplit_once("}=")
                    .map(|(path, value)| (format!("{path}}}"), value.to_owned()))
                    .ok_or("write it like jsonpath={.status.ready_nodes}=3")?;
                let template = super::jsonpath::Template::parse(&path).map_err(|error| error.to_string())?;
                Ok(Self::Path(template, value))
            }
            _ => Err(format!(
                "{text:?} is not known; use condition=TYPE[=STATUS], phase=PHASE, delete or jsonpath={{.path}}=VALUE"
            )),
        }
    }
}

impl Until {
    fn words(&self) -> String {
        match self {
            Self::Condition { kind, status } => format!("condition {kind}={status}"),
            Self::Phase(phase) => format!("phase {phase}"),
            Self::Path(_, value) => format!("the value {value}"),
            Self::Delete | Self::Done => "end".to_owned(),
        }
    }

    /// As it would be typed again.
    fn flag(&self) -> String {
        match self {
            Self::Condition { kind, status } => format!(" --for=condition={kind}={status}"),
            Self::Phase(phase) => format!(" --for=phase={phase}"),
            Self::Delete => " --for=delete".to_owned(),
            Self::Path(..) => " --for=jsonpath=…".to_owned(),
            Self::Done => String::new(),
        }
    }

    fn holds(&self, object: &Value) -> Outcome<bool> {
        Ok(match self {
            Self::Condition { kind, status } => {
                condition(object, kind).is_some_and(|c| text_at(c, "status") == *status)
            }
            Self::Phase(phase) => text_at(object, "status.phase") == *phase,
            Self::Path(template, value) => template.render(object) == *value,
            Self::Delete => false,
            Self::Done => return operation_ended(object),
        })
    }
}

/// Where to look when an operation did not end well.
fn look(operation: &Value) -> String {
    let host = text_at(operation, "host");
    if host.is_empty() {
        format!("look at the pool: muster describe pool {}", text_at(operation, "nodepool_id"))
    } else {
        format!("look at the host: muster describe host {host}")
    }
}

/// Whether an operation is over; one that failed is a failure.
fn operation_ended(operation: &Value) -> Outcome<bool> {
    if operation["done"] != Value::Bool(true) {
        return Ok(false);
    }
    let (state, message) = (text_at(operation, "state"), text_at(operation, "message"));
    let object = format!("operation {}", text_at(operation, "id"));
    match state.as_str() {
        "Succeeded" => Ok(true),
        "Superseded" => {
            Err(Failure::new(Exit::Conflict, object, format!("another change took its place: {message}"))
                .next(look(operation)))
        }
        _ => Err(Failure::new(Exit::Failure, object, format!("{state}: {message}")).next(look(operation))),
    }
}

pub(crate) async fn run(session: &Session, wait: Wait) -> Outcome {
    for target in resolve::targets(&wait.what)? {
        let Target { kind, name: Some(name) } = target else {
            return Err(Failure::usage(format!("kind {}", target.kind.plural), "wait needs a name")
                .next(format!("write {}/NAME", target.kind.singular)));
        };
        let until = wait.until.clone().unwrap_or_else(|| match kind.scope {
            Scope::Id => Until::Done,
            _ => Until::Condition { kind: "Ready".into(), status: "True".into() },
        });
        let deleting = until == Until::Delete;
        let selection = Selection { deleting, ..wait.selection.clone() };
        let object = match resolve::one(session, kind, &name, &selection).await {
            Err(failure) if until == Until::Delete && failure.exit == Exit::NotFound => {
                session.screen.line(&format!("{}/{name} is gone", kind.singular))?;
                continue;
            }
            other => other?,
        };
        session.know_clusters(kind, std::slice::from_ref(&object)).await?;
        let name = session.full_name(kind, &object);
        wait_for(session, kind, &text_at(&object, "id"), &name, &until, wait.limit).await?;
        let word = if until == Until::Delete { "is gone" } else { "condition met" };
        session.screen.line(&format!("{}/{name} {word}", kind.singular))?;
    }
    Ok(())
}

/// Looks again and again until it is so, the time is over, or Ctrl-C comes.
pub(crate) async fn wait_for(
    session: &Session,
    kind: &'static Kind,
    id: &str,
    name: &str,
    until: &Until,
    limit: Limit,
) -> Outcome {
    let again = format!("muster wait {}/{name}{}", kind.singular, until.flag());
    // A bar has one line: the id of an operation would fill most of it.
    let short = session.screen.lively && kind.scope == Scope::Id;
    let title = if short { kind.singular.to_owned() } else { format!("{}/{name}", kind.singular) };
    let object = format!("{} {name}", kind.singular);
    let mut progress = Progress::new(session.screen, title);
    let work = poll(session, kind, id, &object, until, limit, &mut progress);
    let outcome = interrupt::or_ctrl_c(work, || Some((object.clone(), again.clone()))).await;
    if let Err(failure) = &outcome
        && failure.exit == Exit::Timeout
        && failure.next.is_empty()
    {
        return outcome
            .map_err(|failure| failure.next(format!("it goes on; wait longer with `{again} --timeout …`")));
    }
    outcome
}

async fn poll(
    session: &Session,
    kind: &'static Kind,
    id: &str,
    title: &str,
    until: &Until,
    limit: Limit,
    progress: &mut Progress,
) -> Outcome {
    let start = session.clock.monotonic();
    let mut pause = FIRST_PAUSE;
    loop {
        let mut request = Request::get(kind.path(id), title);
        if *until == Until::Delete && kind.can_be_deleting() {
            // What is being torn down is hidden, and not gone.
            request = request.query("include_deleted", "true");
        }
        match session.client.call(request).await {
            Ok(answer) => {
                show(session, kind, &answer.body, progress).await;
                if until.holds(&answer.body)? {
                    return Ok(());
                }
                if *until != Until::Delete && !text_at(&answer.body, "deleted_at").is_empty() {
                    return Err(Failure::new(Exit::NotFound, title, "it is being deleted")
                        .next("nothing to wait for but --for=delete"));
                }
            }
            Err(failure) if failure.exit == Exit::NotFound && *until == Until::Delete => return Ok(()),
            Err(failure) => return Err(failure),
        }
        let passed = session.clock.monotonic().saturating_sub(start);
        if passed >= limit.timeout {
            let state = progress.last().map(|text| format!("; it is at: {text}")).unwrap_or_default();
            return Err(Failure::new(
                Exit::Timeout,
                title,
                format!("no {} within {}{state}", until.words(), limit.timeout),
            ));
        }
        let left = limit.timeout.saturating_sub(passed);
        session.clock.sleep(pause.min(left)).await;
        pause = Duration::from_millis(pause.millis() * 2).min(LONGEST_PAUSE);
    }
}

/// Where the object stands. For an operation that is where its pool stands.
async fn show(session: &Session, kind: &'static Kind, object: &Value, progress: &mut Progress) {
    if kind.scope != Scope::Id {
        progress.show(step(object, object["status"]["desired_nodes"].as_u64()));
        return;
    }
    let wanted = object["target_nodes"].as_u64();
    if object.get("host").is_some() {
        return progress.show(Step { text: dash(text_at(object, "message")), done: 0, of: 0 });
    }
    let Ok(pools) = kinds::required("pool") else { return };
    let pool =
        session.client.call(Request::get(pools.path(&text_at(object, "nodepool_id")), "nodepool")).await;
    match pool {
        Ok(answer) => progress.show(step(&answer.body, wanted)),
        Err(_) => {
            progress.show(Step { text: dash(text_at(object, "message")), done: 0, of: wanted.unwrap_or(0) });
        }
    }
}

fn step(object: &Value, wanted: Option<u64>) -> Step {
    let verdict = verdict(object);
    let ready = object["status"]["ready_nodes"].as_u64();
    let text = match (ready, wanted) {
        (Some(ready), Some(wanted)) => format!("{ready}/{wanted} ready, {}", verdict.reason),
        (None, Some(wanted)) => format!("?/{wanted} ready, {}", verdict.reason),
        _ => verdict.reason,
    };
    Step { text, done: ready.unwrap_or(0), of: wanted.unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_to_wait_for_is_read_as_kubectl_does() {
        let pool = json!({"status": {"phase": "Ready", "ready_nodes": 3, "conditions": [{"type": "Ready", "status": "True"}]}});
        for (text, holds) in [
            ("condition=Ready", true),
            ("condition=Ready=true", true),
            ("condition=Ready=False", false),
            ("condition=Paused", false),
            ("phase=Ready", true),
            ("phase=Failed", false),
            ("jsonpath={.status.ready_nodes}=3", true),
            ("delete", false),
        ] {
            assert_eq!(text.parse::<Until>().unwrap().holds(&pool).unwrap(), holds, "{text}");
        }
        for text in ["", "condition=", "phase=", "condition=Ready=Maybe", "ready", "jsonpath=x"] {
            assert!(text.parse::<Until>().is_err(), "{text}");
        }
    }

    #[test]
    fn operations_end_well_or_say_why_not() {
        let operation = |state: &str, done: bool| json!({"id": "x", "state": state, "done": done, "message": "m", "nodepool_id": "p"});
        assert!(!Until::Done.holds(&operation("Running", false)).unwrap());
        assert!(Until::Done.holds(&operation("Succeeded", true)).unwrap());
        assert_eq!(Until::Done.holds(&operation("Superseded", true)).unwrap_err().exit, Exit::Conflict);
        assert_eq!(Until::Done.holds(&operation("Failed", true)).unwrap_err().exit, Exit::Failure);
    }
}
