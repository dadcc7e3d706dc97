//! `muster cancel`: withdraws the wish behind operations on servers.

use clap::Args;
use reqwest::Method;

use super::{
    client::Request,
    context::Connection,
    failure::{Failure, Outcome},
    kinds::text_at,
    resolve::{self, Target},
    session::Session,
};

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// operation ID… or operation/ID…
    #[arg(required = true, value_name = "operation ID", add = super::complete::targets())]
    what: Vec<String>,
    /// Why; others will read it in the host's history
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

pub(crate) async fn run(session: &Session, cancel: Cancel) -> Outcome {
    for Target { kind, name } in resolve::targets(&cancel.what)? {
        let Some(id) = name.filter(|_| kind.singular == "operation") else {
            let usage = Failure::usage(
                format!("{} {}", kind.singular, cancel.what.join(" ")),
                "only operations are cancelled",
            );
            return Err(
                usage.next("name one: muster cancel operation ID; `muster get operations` lists them")
            );
        };
        let object = format!("operation {id}");
        let mut request = Request::new(Method::POST, format!("/api/v1/operations/{id}/cancel"), object);
        if let Some(reason) = &cancel.reason {
            request = request.query("reason", reason);
        }
        let operation = session.client.call(request).await?.body;
        let (what, host) = (text_at(&operation, "kind"), text_at(&operation, "host"));
        session.screen.line(&format!("operation/{id} cancelled: {what} of host {host} is withdrawn"))?;
        session.screen.note(&format!("what becomes of it: muster describe host {host}"));
    }
    Ok(())
}
