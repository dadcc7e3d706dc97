//! `muster explain`: why a pod, a node, a host, a pool or a decision is as it is.

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::{
    client::Request,
    context::Connection,
    failure::{Failure, Outcome},
    get::FormatArg,
    kinds::{self, text_at},
    list::Selection,
    print::format::Format,
    resolve,
    session::Session,
};

/// What can be explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum About {
    /// Why it has the place it has, or none: NAMESPACE/NAME
    #[value(alias = "pods")]
    Pod,
    /// Why it stays, goes, or is gone
    #[value(alias = "nodes")]
    Node,
    /// What it could do, and why it does not
    #[value(alias = "hosts", alias = "baremetalnode")]
    Host,
    /// Why it has the size it has: CLUSTER/NAME, NAME or id
    #[value(alias = "pools", alias = "nodepool")]
    Pool,
    /// What it did and why, and whether it would be made again
    #[value(alias = "decisions")]
    Decision,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// What to explain
    #[arg(value_enum)]
    about: About,
    /// Its name: NAMESPACE/NAME of a pod (default without a namespace), CLUSTER/NAME of a pool, id of a decision
    name: String,
    /// In this cluster, where several have one of that name
    #[arg(long, value_name = "NAME", add = super::complete::clusters())]
    cluster: Option<String>,
    /// As it was when this decision was made
    #[arg(long, value_name = "DECISION")]
    at: Option<String>,
    /// text, json, yaml, jsonpath=…
    #[arg(short, long, default_value = "text", value_name = "FORMAT", value_parser = format)]
    output: FormatArg,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `text` is the form without a table.
pub(super) fn format(text: &str) -> Result<FormatArg, String> {
    match text {
        "text" => Ok(FormatArg::default()),
        "wide" | "name" | "table" => {
            Err(format!("{text:?} is for lists; use text, json, yaml or jsonpath=…"))
        }
        other => other.parse(),
    }
}

pub(crate) async fn run(session: &Session, explain: Explain) -> Outcome {
    let object = format!("{} {}", word(explain.about), explain.name);
    let mut request = Request::get(path(session, &explain).await?, object);
    if explain.about != About::Decision {
        if let Some(cluster) = explain.cluster.as_ref().filter(|_| explain.about != About::Pool) {
            request = request.query("cluster_id", resolve::cluster_id(session, cluster, false).await?);
        }
        if let Some(at) = &explain.at {
            request = request.query("at", at);
        }
    } else if explain.at.is_some() {
        return Err(Failure::usage("--at", "a decision has its own time").next(format!(
            "see what changed since the one before with `muster compare decision {}`, or leave --at out",
            explain.name
        )));
    }
    let answer = session.client.call(request).await?.body;
    match &explain.output.0 {
        Format::Table => session.screen.data(&text(&answer)),
        other => session.screen.data(&other.document(&answer, true)?),
    }
}

const fn word(about: About) -> &'static str {
    match about {
        About::Pod => "pod",
        About::Node => "node",
        About::Host => "host",
        About::Pool => "pool",
        About::Decision => "decision",
    }
}

async fn path(session: &Session, explain: &Explain) -> Outcome<String> {
    let (kind, name) = (word(explain.about), explain.name.as_str());
    Ok(match explain.about {
        About::Pod => {
            let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
            format!("/api/v1/explain/pod/{}/{}", part(namespace)?, part(name)?)
        }
        About::Pool => {
            let selection = Selection { cluster: explain.cluster.clone(), ..Selection::visible() };
            let pool = resolve::one(session, kinds::required("pool")?, name, &selection).await?;
            format!("/api/v1/explain/pool/{}", text_at(&pool, "id"))
        }
        About::Node | About::Host | About::Decision => format!("/api/v1/explain/{kind}/{}", part(name)?),
    })
}

/// A name that may stand in a path: what Kubernetes takes.
pub(super) fn part(name: &str) -> Outcome<&str> {
    let fine = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':'));
    if fine {
        return Ok(name);
    }
    Err(Failure::usage(format!("name {name:?}"), "no object has such a name")
        .next("write NAMESPACE/NAME for a pod, the plain name for others"))
}

/// The answer in words, with its cluster when there may be several.
pub(super) fn text(answer: &Value) -> String {
    let mut text = text_at(answer, "text");
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_change_the_path_are_refused() {
        for fine in ["web-0", "ip-10-0-0-1.ec2.internal", "550e8400-42", "a_b"] {
            assert_eq!(part(fine).ok(), Some(fine));
        }
        for wrong in ["", "a/b", "a?b", "a%2fb", "a b", "ä", "#"] {
            assert!(part(wrong).is_err(), "{wrong:?} was accepted");
        }
        assert!(format("wide").is_err());
        assert!(format("json").is_ok());
    }
}
