//! `muster approve host NAME…`: a person has compared the key of a BMC and says that it is the right one.
//!
//! What is sent is always the key itself. A BMC that shows another one a moment later is not approved with it.

use clap::Args;
use muster_model::power::Pin;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    act::{Which, send, with_suffix},
    names, path,
};
use crate::cli::{
    client::Request,
    declare::DryRun,
    failure::{Exit, Failure, Outcome},
    kinds::text_at,
    session::Session,
};

#[derive(Debug, Args)]
pub(crate) struct Approve {
    #[command(flatten)]
    pub(crate) which: Which,
    /// A key that you have compared; give it once for each key. Without it, the keys that were seen are shown
    #[arg(long = "pin", value_name = "SHA256", value_parser = key)]
    pins: Vec<Pin>,
    /// How it was compared; others will read it
    #[arg(long)]
    reason: Option<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// A key, with or without the word in front of its digits.
fn key(text: &str) -> Result<Pin, String> {
    let bare = text.len() == 64 && !text.contains(':');
    let whole = if bare { format!("sha256:{text}") } else { text.to_owned() };
    whole.parse::<Pin>().map_err(|error| error.to_string())
}

/// One host, and the key to approve for it.
#[derive(Debug, PartialEq, Eq)]
struct Choice {
    name: String,
    pin: Pin,
    /// What the person is shown before it is approved; nothing when the key was named.
    question: Option<String>,
}

pub(crate) async fn approve(session: &Session, args: Approve) -> Outcome {
    let hosts = names(&args.which.what)?;
    let mut chosen = Vec::with_capacity(hosts.len());
    for name in &hosts {
        let request = Request::new(Method::GET, path(name), format!("host {name}"));
        let host = session.client.call(request).await?.body;
        chosen.push(choose(name, &host, &args.pins, hosts.len() == 1)?);
    }
    let questions: Vec<&str> = chosen.iter().filter_map(|one| one.question.as_deref()).collect();
    if !questions.is_empty() {
        for question in &questions {
            session.screen.note(question);
        }
        ask(session, questions.len(), &args)?;
    }
    for one in chosen {
        let mut body = json!({ "pin": one.pin.to_string() });
        if let Some(reason) = &args.reason {
            body["reason"] = reason.as_str().into();
        }
        send(session, &one.name, "approve", body, args.which.dry_run).await?;
        let text = format!("host/{} approved: {}", one.name, one.pin);
        session.screen.line(&with_suffix(text, args.which.dry_run))?;
    }
    Ok(())
}

/// Nobody approves by accident: a person says yes, a script says `--yes` or names the keys.
fn ask(session: &Session, count: usize, args: &Approve) -> Outcome {
    if args.yes || args.which.dry_run == DryRun::Server {
        return Ok(());
    }
    if !session.screen.person {
        return Err(Failure::usage("approve", "nobody is there to compare the keys above").next(
            "compare them with what each BMC shows itself, then repeat with --pin and the key, or with --yes",
        ));
    }
    let question = match count {
        1 => "Is this the key that the BMC shows itself?".to_owned(),
        many => format!("Are these the keys that the {many} BMCs show themselves?"),
    };
    if session.screen.confirm(&question) {
        return Ok(());
    }
    Err(Failure::new(Exit::Failure, "approve", "nothing was approved").next("answer y, or repeat with --yes"))
}

/// Which key of a host is meant.
fn choose(name: &str, host: &Value, pins: &[Pin], alone: bool) -> Outcome<Choice> {
    let object = || format!("host {name}");
    let shown = text_at(host, "status.bmcBlocked.seenKey").parse::<Pin>().ok();
    let choice = |pin, question| Ok(Choice { name: name.to_owned(), pin, question });
    match (shown, pins) {
        (Some(shown), []) => choice(shown, Some(question(name, host, shown))),
        (Some(shown), pins) if pins.contains(&shown) => choice(shown, None),
        (Some(shown), _) => Err(Failure::new(
            Exit::Conflict,
            object(),
            format!("its BMC showed {shown}, and that is none of the keys given"),
        )
        .next(format!(
            "compare again; if its BMC got a new certificate since, `muster acknowledge host {name} --reason …` has it looked at again"
        ))),
        (None, [pin]) if alone => choice(*pin, None),
        (None, _) => Err(Failure::new(Exit::Conflict, object(), "no key of its BMC waits for an approval")
            .next(format!("see what it waits for: muster describe host {name}"))),
    }
}

fn question(name: &str, host: &Value, shown: Pin) -> String {
    let address = text_at(host, "spec.mgmtAddress");
    let at = host.pointer("/status/bmcBlocked/driver").and_then(Value::as_u64).unwrap_or_default();
    let own = host.pointer(&format!("/spec/drivers/{at}/settings/pin")).and_then(Value::as_str);
    let approved = own.map_or_else(|| text_at(host, "spec.pin"), str::to_owned);
    if approved.is_empty() {
        return format!("host/{name}: the BMC {address} showed {shown}");
    }
    format!("host/{name}: the BMC {address} showed {shown}; approved until now was {approved}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_was_seen_is_meant_and_no_other() {
        let (one, two) = (Pin([1; 32]), Pin([2; 32]));
        let host = |seen: Option<Pin>| {
            let key = seen.map(|pin| pin.to_string());
            json!({ "spec": { "mgmtAddress": "10.0.0.1", "pin": two.to_string() },
                "status": { "bmcBlocked": { "cause": "KeyNotApproved", "driver": 0, "seenKey": key } } })
        };
        let asked = choose("a", &host(Some(one)), &[], true).unwrap();
        assert_eq!(asked.pin, one);
        let question = asked.question.unwrap();
        assert!(question.contains(&one.to_string()) && question.contains(&two.to_string()), "{question}");
        assert_eq!(choose("a", &host(Some(one)), &[two, one], false).unwrap().question, None);
        let other = choose("a", &host(Some(one)), &[two], true).unwrap_err();
        assert_eq!(other.exit, Exit::Conflict);
        assert!(other.cause.contains(&one.to_string()), "{}", other.cause);
        assert_eq!(choose("a", &host(None), &[two], true).unwrap().pin, two, "approved before it was seen");
        assert_eq!(
            choose("a", &host(None), &[two], false).unwrap_err().exit,
            Exit::Conflict,
            "whose key is it?"
        );
        assert_eq!(choose("a", &host(None), &[], true).unwrap_err().exit, Exit::Conflict);
    }

    #[test]
    fn a_key_may_be_given_as_bare_digits() {
        assert_eq!(key(&"01".repeat(32)), Ok(Pin([1; 32])));
        assert_eq!(key(&Pin([1; 32]).to_string()), Ok(Pin([1; 32])));
        assert!(key("01").unwrap_err().contains("64 hexadecimal digits"));
    }
}
