//! `muster history host NAME` and `muster history pool CLUSTER/NAME`: what happened to a server, or to all servers of a pool, oldest
//! first.

use clap::Args;
use serde_json::{Value, json};

use super::{names, path};
use crate::cli::{
    client::Request,
    context::Connection,
    failure::Outcome,
    kinds::{self, event_row, text_at},
    list::Selection,
    print::{format::Format, table::Table},
    resolve,
    session::Session,
};

/// Servers of a pool whose histories are read: at a few milliseconds each, as long as somebody waits for an answer.
const MOST_HOSTS: usize = 100;

#[derive(Debug, Args)]
pub(crate) struct History {
    /// host NAME or host/NAME; pool NAME, pool CLUSTER/NAME or pool/CLUSTER/NAME for all servers of a pool
    #[arg(required = true, value_name = "WHAT", add = crate::cli::complete::targets())]
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
    for name in pools(&args.what) {
        of_pool(session, &name, &args).await?;
    }
    if !pools(&args.what).is_empty() {
        return Ok(());
    }
    for name in names(&args.what)? {
        let answer = events(session, &name, args.limit).await?;
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

async fn events(session: &Session, host: &str, limit: u32) -> Outcome<Value> {
    let request = Request::get(format!("{}/events", path(host)), format!("host {host}"))
        .query("limit", limit.to_string());
    Ok(session.client.call(request).await?.body)
}

/// The pools that are meant, where the words mean pools.
fn pools(words: &[String]) -> Vec<String> {
    let is_pool = |word: &str| kinds::find(word).is_some_and(|kind| kind.singular == "nodepool");
    match words.split_first() {
        Some((first, names)) if is_pool(first) && !names.is_empty() => names.to_vec(),
        _ => words
            .iter()
            .filter_map(|word| word.split_once('/').filter(|(kind, _)| is_pool(kind)))
            .map(|(_, name)| name.to_owned())
            .collect(),
    }
}

/// The events of all servers of a pool, each with its server.
async fn of_pool(session: &Session, name: &str, args: &History) -> Outcome {
    let pool = resolve::one(session, kinds::required("pool")?, name, &Selection::visible()).await?;
    let own = text_at(&pool, "spec.platform.baremetal.pool");
    let called = if own.is_empty() { text_at(&pool, "name") } else { own };
    let request = Request::get("/api/v1/hosts", format!("servers of pool {name}"))
        .query("pool", &called)
        .query("limit", MOST_HOSTS.to_string());
    let listed = session.client.call(request).await?.body;
    let hosts: Vec<String> =
        listed["hosts"].as_array().into_iter().flatten().map(|host| text_at(host, "name")).collect();
    let total = listed["total"].as_u64().and_then(|total| usize::try_from(total).ok()).unwrap_or(hosts.len());
    if hosts.len() < total {
        session.screen.note(&format!("pool {name}: the first {} of {total} servers are shown", hosts.len()));
    }
    let mut all = Vec::new();
    for host in hosts {
        let answer = events(session, &host, args.limit).await?;
        for mut event in answer["events"].as_array().cloned().unwrap_or_default() {
            event["host"] = json!(host);
            all.push(event);
        }
    }
    // Times of one form, which sort as text.
    all.sort_by_key(|event| text_at(event, "at"));
    let skip = all.len().saturating_sub(usize::try_from(args.limit).unwrap_or(usize::MAX));
    let shown = &all[skip..];
    if args.output == "json" {
        let document = json!({ "events": shown, "total": all.len() });
        return session.screen.data(&Format::Json.document(&document, true)?);
    }
    if shown.is_empty() {
        session.screen.note(&format!("pool {name}: nothing has happened to its servers yet"));
        return Ok(());
    }
    let mut table = Table::new(["AGE", "HOST", "WHO", "WHAT", "MESSAGE"]);
    for event in shown {
        let mut row = event_row(event, session.now());
        row.insert(1, text_at(event, "host").into());
        table.push(row);
    }
    session.screen.data(&table.render(true, session.screen.colour, &mut Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_say_whether_pools_are_meant() {
        #[track_caller]
        fn check(words: &[&str], expected: &[&str]) {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            assert_eq!(pools(&words), expected, "{words:?}");
        }
        check(&["pool", "lab/web", "gpu"], &["lab/web", "gpu"]);
        check(&["pool/lab/web"], &["lab/web"]);
        check(&["host", "gpu-07"], &[]);
        check(&["host/gpu-07"], &[]);
        check(&["pool"], &[]); // a host may be called so
    }
}
