//! `muster compare decisions A B`: what differs between two decisions, and what made them differ.

use clap::{Args, ValueEnum};

use super::{
    client::Request,
    context::Connection,
    explain::{self, part},
    failure::Outcome,
    get::FormatArg,
    print::format::Format,
    session::Session,
};

/// What can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum About {
    /// What they looked at, what they did, and why the one is not the other
    #[value(alias = "decision", alias = "dec")]
    Decisions,
}

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// What to compare
    #[arg(value_enum)]
    about: About,
    /// One id: with the decision before it. Two: from the first to the second
    #[arg(required = true, num_args = 1..=2, value_name = "ID")]
    ids: Vec<String>,
    /// text, json, yaml, jsonpath=…
    #[arg(short, long, default_value = "text", value_name = "FORMAT", value_parser = explain::format)]
    output: FormatArg,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

pub(crate) async fn run(session: &Session, compare: Compare) -> Outcome {
    let About::Decisions = compare.about;
    let first = part(&compare.ids[0])?;
    let object = match compare.ids.get(1) {
        Some(second) => format!("decision {first} beside {second}"),
        None => format!("decision {first} beside the one before it"),
    };
    let mut request = Request::get(format!("/api/v1/decisions/{first}/compare"), object);
    if let Some(second) = compare.ids.get(1) {
        request = request.query("with", part(second)?);
    }
    let answer = session.client.call(request).await?.body;
    match &compare.output.0 {
        Format::Table => session.screen.data(&explain::text(&answer)),
        other => session.screen.data(&other.document(&answer, true)?),
    }
}
