//! `muster history host NAME`: what happened to a server, oldest first.

use clap::Args;

use super::{names, path};
use crate::cli::{
    client::Request,
    context::Connection,
    failure::Outcome,
    kinds::event_row,
    print::{format::Format, table::Table},
    session::Session,
};

#[derive(Debug, Args)]
pub(crate) struct History {
    /// host NAME or host/NAME
    #[arg(required = true, value_name = "HOST", add = crate::cli::complete::targets())]
    what: Vec<String>,
    /// At most this many, the last ones
    #[arg(long, default_value = "200", value_name = "COUNT")]
    limit: u32,
    /// table or json
    #[arg(short, long, default_value = "table", value_name = "FORMAT", value_parser = ["table", "json"])]
    output: String,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

pub(crate) async fn history(session: &Session, args: History) -> Outcome {
    for name in names(&args.what)? {
        let request = Request::get(format!("{}/events", path(&name)), format!("host {name}"))
            .query("limit", args.limit.to_string());
        let answer = session.client.call(request).await?.body;
        if args.output == "json" {
            session.screen.data(&Format::Json.document(&answer, true)?)?;
            continue;
        }
        let events = answer["events"].as_array().cloned().unwrap_or_default();
        if events.is_empty() {
            session.screen.note(&format!("host {name}: nothing has happened yet"));
            continue;
        }
        let mut table = Table::new(["AGE", "WHO", "WHAT", "MESSAGE"]);
        for event in &events {
            table.push(event_row(event, session.now()));
        }
        session.screen.data(&table.render(true, session.screen.colour, &mut Vec::new()))?;
    }
    Ok(())
}
