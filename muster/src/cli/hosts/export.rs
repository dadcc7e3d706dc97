//! `muster export hosts`: specs, as `register` and `sync` take them.

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::cli::{
    client::Request,
    context::Connection,
    failure::Outcome,
    list::Selection,
    print::{format::Format, yaml},
    session::Session,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Csv,
    Yaml,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// What to export
    #[arg(value_parser = ["hosts", "host", "servers"])]
    what: String,
    /// csv (a table, without drivers, taints and holds), yaml or json
    #[arg(short, long, value_enum, default_value = "yaml", value_name = "FORMAT")]
    output: Form,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

pub(crate) async fn export(session: &Session, args: Export) -> Outcome {
    let form = if args.output == Form::Csv { "csv" } else { "json" };
    let mut request = Request::get("/api/v1/hosts/export", "hosts").query("format", form);
    for (name, value) in
        [("labelSelector", &args.selection.selector), ("fieldSelector", &args.selection.field_selector)]
    {
        if let Some(value) = value {
            request = request.query(name, value.clone());
        }
    }
    request.scope = args.selection.request_scope();
    let answer = session.client.call(request).await?.body;
    match (&answer, args.output) {
        // A table is no JSON and comes as text, without the line end of its last line.
        (Value::String(table), _) => session.screen.data(&format!("{table}\n")),
        (document, Form::Json) => session.screen.data(&Format::Json.document(document, true)?),
        (document, _) => {
            session.screen.data(&yaml::to_string(&serde_json::json!({ "hosts": document["hosts"] })))
        }
    }
}
