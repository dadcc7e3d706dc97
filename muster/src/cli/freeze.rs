//! `muster freeze` and `muster unfreeze`: stop every action at once, wake everything, or let Muster act again.

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    client::Request, context::Connection, failure::Outcome, get::FormatArg, kinds::text_at,
    print::format::Format, session::Session,
};

#[derive(Debug, Args)]
pub(crate) struct Freeze {
    /// Why, for those who find everything frozen; without it the present state is shown
    #[arg(long, value_name = "TEXT", required_if_eq("all_on", "true"))]
    reason: Option<String>,
    /// Also wake every host, whatever was decided
    #[arg(long)]
    all_on: bool,
    /// table, json, yaml or jsonpath=…
    #[arg(short, long, default_value = "table", value_name = "FORMAT", add = super::complete::formats())]
    output: FormatArg,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Args)]
pub(crate) struct Unfreeze {
    /// table, json, yaml or jsonpath=…
    #[arg(short, long, default_value = "table", value_name = "FORMAT", add = super::complete::formats())]
    output: FormatArg,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

const PATH: &str = "/api/v1/freeze";

pub(crate) async fn freeze(session: &Session, args: Freeze) -> Outcome {
    let request = match &args.reason {
        None => Request::get(PATH, "freeze"),
        Some(reason) => {
            let mode = if args.all_on { "all-on" } else { "frozen" };
            Request::new(Method::PUT, PATH, "freeze").body(json!({ "mode": mode, "reason": reason }))
        }
    };
    let answer = session.client.call(request).await?.body;
    show(session, &answer, &args.output.0)
}

pub(crate) async fn unfreeze(session: &Session, args: Unfreeze) -> Outcome {
    let request = Request::new(Method::PUT, PATH, "freeze").body(json!({ "mode": "none" }));
    let answer = session.client.call(request).await?.body;
    show(session, &answer, &args.output.0)
}

fn show(session: &Session, answer: &Value, format: &Format) -> Outcome {
    if !matches!(format, Format::Table | Format::Wide | Format::Name) {
        return session.screen.data(&format.document(answer, true)?);
    }
    session.screen.line(&sentence(answer))?;
    let waiting = &answer["waiting"];
    for what in waiting["first"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        session.screen.line(&format!("  not heard of since the restore: {what}"))?;
    }
    let count = waiting["count"].as_u64().unwrap_or(0);
    let named = waiting["first"].as_array().map_or(0, |first| first.len() as u64);
    if count > named {
        session.screen.line(&format!("  and {} more", count - named))?;
    }
    if answer["may_act"] == json!(false) {
        session.screen.note("`muster unfreeze` lets Muster act again");
    }
    Ok(())
}

/// `frozen by ada@example.com since …: reason`.
pub(crate) fn sentence(answer: &Value) -> String {
    let mode = text_at(answer, "mode");
    let by = text_at(answer, "by");
    let since = text_at(answer, "since");
    let mut text = match mode.as_str() {
        "none" => return "not frozen: Muster acts where it is enabled".to_owned(),
        "all-on" => "frozen, and every host is woken".to_owned(),
        _ => "frozen: nothing acts".to_owned(),
    };
    if !by.is_empty() {
        text = format!("{text}, by {by}");
    }
    if !since.is_empty() {
        text = format!("{text}, since {since}");
    }
    format!("{text}; {}", text_at(answer, "reason"))
}
