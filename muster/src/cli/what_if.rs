//! `muster simulate --live`: the question goes to a server, which answers on a copy of this moment.

use std::fmt::Write as _;

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    client::Request,
    context::Connection,
    failure::Outcome,
    kinds::text_at,
    print::table::{Cell, Table},
    resolve,
    session::Session,
};

/// Machines that one line names.
const MOST_NAMED: usize = 20;

/// A question for a server.
#[derive(Debug)]
pub(crate) struct Ask {
    /// As the API takes it, without the cluster.
    pub(crate) question: Value,
    /// The cluster's name, where there are several.
    pub(crate) cluster: Option<String>,
    /// The answer as it came, instead of words.
    pub(crate) json: bool,
    pub(crate) connection: Connection,
}

pub(crate) async fn run(session: &Session, ask: Ask) -> Outcome {
    let mut question = ask.question;
    if let Some(cluster) = &ask.cluster {
        question["cluster_id"] = json!(resolve::cluster_id(session, cluster, false).await?);
    }
    let request = Request::new(Method::POST, "/api/v1/what-if", "what-if question").body(question);
    let answer = session.client.call(request).await?.body;
    if ask.json {
        return session.screen.data(&(format!("{answer:#}") + "\n"));
    }
    session.screen.data(&text(&answer))
}

/// The answer in words: what changes first, then who is called up, stood down, and left without a place.
fn text(answer: &Value) -> String {
    let mut out = format!("{}\n\n", text_at(answer, "summary"));
    out += &figures(&answer["before"], &answer["after"], answer["currency"].as_str());
    let list = |name: &str| answer[name].as_array().map(Vec::as_slice).unwrap_or_default();
    for row in list("new_nodes") {
        let place = text_at(row, "place");
        let _ = writeln!(out, "called up   {} in {} ({place})", row["count"], text_at(row, "pool"));
    }
    let gone: Vec<String> = list("removals").iter().map(|row| text_at(row, "node")).collect();
    if !gone.is_empty() {
        let more = if gone.len() > MOST_NAMED {
            format!(" and {} more", gone.len() - MOST_NAMED)
        } else {
            String::new()
        };
        let named: Vec<&str> = gone.iter().take(MOST_NAMED).map(String::as_str).collect();
        let _ = writeln!(out, "stood down  {}{more}", named.join(", "));
    }
    for row in list("unplaced") {
        let _ = writeln!(out, "no place    {}", text_at(row, "headline"));
        if let Some(fix) = row["fix"]["text"].as_str() {
            let _ = writeln!(out, "            would help: {fix}");
        }
    }
    for name in ["warnings", "notes", "findings"] {
        for line in list(name).iter().filter_map(Value::as_str) {
            let _ = writeln!(out, "note        {line}");
        }
    }
    out += "nothing was changed\n";
    out
}

/// How a figure is written.
type Show = fn(i64) -> String;

fn whole(value: i64) -> String {
    value.to_string()
}

fn watts(milliwatts: i64) -> String {
    format!("{} W", milliwatts / 1000)
}

fn price(micros: i64) -> String {
    format!("{}.{:02}", micros / 1_000_000, micros.abs() % 1_000_000 / 10_000)
}

fn figures(before: &Value, after: &Value, currency: Option<&str>) -> String {
    let number = |side: &Value, name: &str| side[name].as_i64().unwrap_or(0);
    let priced = match currency.map(str::trim).filter(|name| !name.is_empty()) {
        Some(name) => format!("price an hour, {name}"),
        None => "price an hour (currency not set)".to_owned(),
    };
    let rows: [(&str, &str, Show); 4] = [
        ("machines", "machines", whole),
        ("watts at rest", "milliwatts", watts),
        (&priced, "micros_per_hour", price),
        ("pods without a place", "waiting_pods", whole),
    ];
    let mut table = Table::new(["", "NOW", "THEN", "DIFFERENCE"]);
    for (title, name, show) in rows {
        let (now, then) = (number(before, name), number(after, name));
        let sign = match then - now {
            0 => "±0".to_owned(),
            more if more > 0 => format!("+{}", show(more)),
            fewer => format!("-{}", show(-fewer)),
        };
        table.push([title.to_owned(), show(now), show(then), sign].map(Cell::from).to_vec());
    }
    table.render(true, false, &mut Vec::new()) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_reads_from_the_difference_to_the_names() {
        let side = |machines: i64, waiting: i64| json!({ "machines": machines, "milliwatts": machines * 180_000, "micros_per_hour": machines * 190_000, "waiting_pods": waiting });
        let answer = json!({ "summary": "6 machines more", "before": side(2, 3), "after": side(8, 1),
            "new_nodes": [{ "pool": "batch", "count": 6, "place": "host batch-03", "template": "t", "pods": 40 }],
            "removals": [{ "node": "web-01", "pool": "web", "moves": 2 }],
            "unplaced": [{ "headline": "default/huge: too large", "fix": { "text": "raise web.max to 9" } }],
            "warnings": [], "notes": ["prices are declared"], "findings": [], "currency": "EUR" });
        let text = text(&answer);
        for part in [
            "6 machines more\n",
            "+6",
            "+1080 W",
            "price an hour, EUR",
            "+1.14",
            "-2",
            "called up   6 in batch (host batch-03)",
            "stood down  web-01",
            "no place    default/huge: too large",
            "would help: raise web.max to 9",
            "note        prices are declared",
            "nothing was changed",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
