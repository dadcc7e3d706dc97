//! `muster enable` and `muster disable`: whether decisions about a cluster or a pool are carried out.

use clap::Args;
use reqwest::Method;
use serde_json::json;

use super::{
    client::Request,
    context::Connection,
    failure::{Failure, Outcome},
    kinds::text_at,
    list::Selection,
    resolve,
    session::Session,
};

#[derive(Debug, Args)]
pub(crate) struct Mode {
    /// What: cluster NAME, pool NAME, KIND/NAME…
    #[arg(required = true, value_name = "KIND NAME", add = super::complete::targets())]
    what: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Sets `spec.mode` of everything named, and nothing else.
pub(crate) async fn set(session: &Session, args: Mode, mode: &str, word: &str) -> Outcome {
    for target in resolve::targets(&args.what)? {
        let (kind, Some(name)) = (target.kind, target.name) else {
            return Err(
                Failure::usage(word, "it needs names").next(format!("write `muster {word} cluster NAME`"))
            );
        };
        if kind.written.is_empty() {
            return Err(Failure::usage(format!("{} {name}", kind.singular), "it has no mode")
                .next("name a cluster or a pool"));
        }
        let object = resolve::one(session, kind, &name, &args.selection).await?;
        session.know_clusters(kind, std::slice::from_ref(&object)).await?;
        let mut request =
            Request::new(Method::PATCH, kind.path(&text_at(&object, "id")), session.title(kind, &object))
                .body(json!({ "spec": { "mode": mode } }));
        request.content_type = "application/merge-patch+json";
        session.client.call(request).await?;
        session.screen.line(&format!(
            "{}/{} {word}d: mode {mode}",
            kind.singular,
            session.full_name(kind, &object)
        ))?;
    }
    Ok(())
}
