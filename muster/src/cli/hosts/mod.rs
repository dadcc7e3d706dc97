//! What people do with servers: register, hold, switch, follow, export.

mod act;
mod approve;
mod credential;
mod discover;
mod export;
mod file;
mod history;
mod register;
mod sync;

pub(crate) use act::{Acknowledge, Hold, Label, Maintenance, Power, Release};
pub(crate) use act::{acknowledge, hold, label, maintenance, power, release};
pub(crate) use approve::{Approve, approve};
pub(crate) use credential::{NewCredential, Rotate, create as create_credential, rotate};
pub(crate) use discover::{Discover, discover};
pub(crate) use export::{Export, export};
pub(crate) use history::{History, history};
pub(crate) use register::{Register, register};
pub(crate) use sync::{Sync, sync};

use super::failure::{Failure, Outcome};

/// The names after an optional word `host` or `hosts`, also as `host/NAME`.
pub(super) fn names(words: &[String]) -> Outcome<Vec<String>> {
    let is_kind = |word: &str| super::kinds::find(word).is_some_and(|kind| kind.singular == "host");
    let words = match words.split_first() {
        Some((first, rest)) if is_kind(first) && !rest.is_empty() => rest,
        _ => words,
    };
    let mut names = Vec::with_capacity(words.len());
    for word in words {
        match word.split_once('/') {
            Some((kind, name)) if is_kind(kind) && !name.is_empty() => names.push(name.to_owned()),
            Some(_) => {
                return Err(Failure::usage(format!("argument {word:?}"), "this is not a host")
                    .next("write host/NAME or NAME"));
            }
            None => names.push(word.clone()),
        }
    }
    Ok(names)
}

/// The path of one host.
pub(super) fn path(name: &str) -> String {
    format!("/api/v1/hosts/{name}")
}
