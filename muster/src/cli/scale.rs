//! `muster scale`: a pool to a number of nodes.

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    apply::Printer,
    client::Request,
    context::Connection,
    declare::DryRun,
    failure::{Exit, Failure, Outcome},
    get::FormatArg,
    kinds::{self, Scope, text_at},
    list::Selection,
    resolve,
    session::Session,
    wait::{self, Limit, Until},
};

#[derive(Debug, Args)]
pub(crate) struct Scale {
    /// Which pool: pool NAME, pool/NAME, CLUSTER/NAME
    #[arg(required = true, value_name = "pool NAME", add = super::complete::targets())]
    what: Vec<String>,
    /// Nodes that it should have
    #[arg(long, visible_alias = "replicas", value_name = "NODES", value_parser = super::create::nodes, allow_negative_numbers = true)]
    to: u32,
    /// Only when this many are wanted now
    #[arg(long, visible_alias = "current-replicas", value_name = "NODES")]
    current: Option<u64>,
    /// Wait until the nodes are there
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    limit: Limit,
    /// Whether to make the change or have it checked only
    #[arg(long, value_enum, default_value = "none", value_name = "WHERE")]
    dry_run: DryRun,
    /// Print the answer instead of a line: json, yaml, name, jsonpath=…
    #[arg(short, long, value_name = "FORMAT", add = super::complete::formats())]
    output: Option<FormatArg>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

pub(crate) async fn run(session: &Session, mut scale: Scale) -> Outcome {
    // Only pools can be scaled, so that `scale prod/web` is clear without the word.
    if let [name] = scale.what.as_slice()
        && kinds::find(name.split('/').next().unwrap_or_default()).is_none()
    {
        scale.what = vec!["pool".to_owned(), name.clone()];
    }
    for target in resolve::targets(&scale.what)? {
        let (kind, Some(name)) = (target.kind, target.name) else {
            return Err(Failure::usage("scale", "it needs the name of a pool")
                .next("write `muster scale pool CLUSTER/NAME --to N`"));
        };
        if kind.scope != Scope::Cluster {
            return Err(Failure::usage(format!("{} {name}", kind.singular), "only pools can be scaled")
                .next("write `muster scale pool CLUSTER/NAME --to N`"));
        }
        let pool = resolve::one(session, kind, &name, &scale.selection).await?;
        session.know_clusters(kind, std::slice::from_ref(&pool)).await?;
        one(session, kind, &pool, &scale).await?;
    }
    Ok(())
}

async fn one(session: &Session, kind: &'static kinds::Kind, pool: &Value, scale: &Scale) -> Outcome {
    let name = session.full_name(kind, pool);
    let title = format!("{} {name}", kind.singular);
    let wanted = pool["status"]["desired_nodes"].as_u64();
    if let Some(current) = scale.current.filter(|current| Some(*current) != wanted) {
        let wanted = wanted.map_or_else(|| "unknown".to_owned(), |nodes| nodes.to_string());
        return Err(Failure::new(
            Exit::Conflict,
            title,
            format!("it should have {wanted} nodes now, not {current}"),
        )
        .next("look at it, then repeat with the right --current or without it"));
    }
    let mut request =
        Request::new(Method::POST, format!("{}/scale", kind.path(&text_at(pool, "id"))), &title)
            .body(json!({ "nodeCount": scale.to }));
    if scale.current.is_some() {
        request = request.if_match(Some(text_at(pool, "resource_version").as_str()));
    }
    if scale.dry_run == DryRun::Server {
        request = request.query("dryRun", "true");
    }
    let operation = session.client.call(request).await?.body;
    let id = text_at(&operation, "id");
    let operations = kinds::required("operation")?;
    if let Some(format) = &scale.output {
        let mut printer = Printer::new(session, Some(format.clone()), DryRun::None);
        printer.done(operations, &operation, "")?;
        printer.finish()?;
    } else {
        let suffix = match scale.dry_run {
            DryRun::Server => " (server dry run)".to_owned(),
            DryRun::None => format!(", operation/{id}"),
        };
        session.screen.line(&format!("{}/{name} scaled to {}{suffix}", kind.singular, scale.to))?;
    }
    if scale.wait && scale.dry_run == DryRun::None {
        wait::wait_for(session, operations, &id, &id, &Until::Done, scale.limit).await?;
        session.screen.note(&format!("{}/{name} has {} nodes ready", kind.singular, scale.to));
    }
    Ok(())
}
