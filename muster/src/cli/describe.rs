//! `muster describe`: everything about an object that a person may want to know, in sections.

use std::fmt::Write as _;

use clap::Args;
use serde_json::{Value, json};

use super::{
    client::Request,
    context::Connection,
    failure::{Exit, Outcome},
    get,
    kinds::{self, Kind, Scope, Section, View, text_at},
    list::{self, Selection},
    print::table::Table,
    resolve,
    session::Session,
};

/// Operations shown under a pool.
const LAST_OPERATIONS: &str = "5";

/// Events shown under a host.
const LAST_EVENTS: &str = "12";

#[derive(Debug, Args)]
pub(crate) struct Describe {
    /// What to describe: KIND [NAME…] or KIND/NAME…
    #[arg(required = true, value_name = "KIND [NAME]", add = super::complete::targets())]
    what: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

pub(crate) async fn run(session: &Session, describe: Describe) -> Outcome {
    let targets = resolve::targets(&describe.what)?;
    let (found, failure) = get::collect(session, &targets, &describe.selection).await;
    let mut first = true;
    for group in &found {
        session.know_clusters(group.kind, &group.items).await?;
        for object in &group.items {
            let related = related(session, group.kind, object).await?;
            let clusters = session.clusters();
            let view = View { object, clusters: &clusters, now: session.now(), related: &related };
            let text = render(&(group.kind.describe)(&view), session.screen.colour);
            session.screen.data(&if first { text } else { format!("\n\n{text}") })?;
            first = false;
        }
    }
    failure.map_or(Ok(()), Err)
}

/// What belongs to the object and has a place in its description.
async fn related(session: &Session, kind: &'static Kind, object: &Value) -> Outcome<Value> {
    let id = text_at(object, "id");
    match kind.scope {
        Scope::Cluster => {
            let reports = list::reports_on(session, kind, object).await?;
            let energy = pool_energy(session, object).await?;
            let operations = kinds::required("operations")?;
            let request = Request::get(operations.collection(), operations.plural)
                .query("nodepool_id", id)
                .query("limit", LAST_OPERATIONS);
            let answer = match session.client.call(request).await {
                Ok(answer) => answer.body,
                // Those who may see the pool but not its operations still get the rest.
                Err(failure) if matches!(failure.exit, Exit::Denied | Exit::NotFound) => Value::Null,
                Err(failure) => return Err(failure),
            };
            Ok(json!({ "reports": reports, "operations": answer[operations.plural], "energy": energy }))
        }
        Scope::Project => {
            let pools = kinds::required("pools")?;
            let selection = Selection { cluster_id: Some(id.clone()), ..Selection::visible() };
            let items = list::all(session, pools, &selection).await?.items;
            let request = Request::get(format!("{}/connection", kind.path(&id)), format!("cluster {id}"));
            // An older server knows no connections; the rest is worth seeing all the same.
            let connection = match session.client.call(request).await {
                Ok(answer) => answer.body,
                Err(failure) if matches!(failure.exit, Exit::Denied | Exit::NotFound) => Value::Null,
                Err(failure) => return Err(failure),
            };
            Ok(json!({ "pools": items, "connection": connection }))
        }
        Scope::Name if kind.singular == "host" => {
            let request = Request::get(format!("{}/events", kind.path(&id)), format!("host {id}"))
                .query("limit", LAST_EVENTS);
            let events = session.client.call(request).await?.body["events"].clone();
            let request = Request::get(format!("{}/boot", kind.path(&id)), format!("host {id}"));
            // Most hosts have never told how far their boot has come.
            let boot = optional(session, request).await?;
            let request = Request::get(format!("{}/energy", kind.path(&id)), format!("host {id}"));
            let energy = optional(session, request).await?;
            Ok(json!({ "events": events, "boot": boot, "energy": energy }))
        }
        Scope::Id | Scope::OnPool | Scope::Name => Ok(Value::Null),
    }
}

/// What there is to say, or nothing where the caller may not see it or an older server does not know it.
async fn optional(session: &Session, request: Request) -> Outcome<Value> {
    match session.client.call(request).await {
        Ok(answer) => Ok(answer.body),
        Err(failure) if matches!(failure.exit, Exit::Denied | Exit::NotFound) => Ok(Value::Null),
        Err(failure) => Err(failure),
    }
}

/// What the servers of a pool draw, used and saved, with the price that holds.
async fn pool_energy(session: &Session, pool: &Value) -> Outcome<Value> {
    if !text_at(pool, "spec.platform.type").eq_ignore_ascii_case("baremetal") {
        return Ok(Value::Null);
    }
    let own = text_at(pool, "spec.platform.baremetal.pool");
    let name = if own.is_empty() { text_at(pool, "name") } else { own };
    let report =
        optional(session, Request::get("/api/v1/energy".to_owned(), format!("energy of {name}"))).await?;
    let rows = report["pools"].as_array();
    let mut row =
        rows.and_then(|rows| rows.iter().find(|row| row["name"] == name)).cloned().unwrap_or_default();
    if row.is_object() {
        row["currency"] = report["currency"].clone();
    }
    Ok(row)
}

pub(super) fn render(sections: &[Section], colour: bool) -> String {
    let mut out = String::new();
    for section in sections {
        match section {
            Section::Facts(title, facts) => {
                if facts.is_empty() {
                    continue;
                }
                heading(title, &mut out);
                let mut table = Table::new(["", ""]);
                for (key, value) in facts {
                    table.push(vec![format!("{key}:").into(), value.clone()]);
                }
                indent(&table.render(false, colour, &mut Vec::new()), title, &mut out);
            }
            Section::Table(title, headers, rows) => {
                heading(title, &mut out);
                if rows.is_empty() {
                    out.push_str("  none\n");
                    continue;
                }
                let mut table = Table::new(headers.iter().copied());
                for row in rows {
                    table.push(row.clone());
                }
                indent(&table.render(true, colour, &mut Vec::new()), title, &mut out);
            }
            Section::Lines(title, lines) => {
                if !lines.is_empty() {
                    heading(title, &mut out);
                    indent(&crate::cli::print::lines(lines), title, &mut out);
                }
            }
        }
    }
    out
}

fn heading(title: &str, out: &mut String) {
    if !title.is_empty() {
        let _ = write!(out, "\n{title}:\n");
    }
}

/// Lines under a heading stand in from the margin.
fn indent(text: &str, title: &str, out: &mut String) {
    let margin = if title.is_empty() { "" } else { "  " };
    for line in text.lines() {
        let _ = writeln!(out, "{margin}{line}");
    }
}
