//! From what a person typed to one object: an id, a name, or `cluster/name`.

use serde_json::Value;
use uuid::Uuid;

use super::{
    client::Request,
    failure::{Exit, Failure, Outcome},
    kinds::{self, Kind, Scope, text_at},
    list::{self, Selection},
    session::Session,
    suggest,
};

/// Candidates shown when a name is not clear; more would not help.
const MOST_CANDIDATES: usize = 10;

/// What the words after a verb ask for.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) kind: &'static Kind,
    /// Without a name, all of the kind.
    pub(crate) name: Option<String>,
}

/// Reads `pools`, `pools,clusters`, `all`, `pool a b`, `pool/a cluster/b`.
pub(crate) fn targets(words: &[String]) -> Outcome<Vec<Target>> {
    let Some(first) = words.first() else {
        return Err(
            Failure::usage("command", "it does not say what").next("name a kind, like `muster get pools`")
        );
    };
    if first.contains('/') {
        return words.iter().map(|word| slashed(word)).collect();
    }
    let kinds: Vec<&'static Kind> = if first == "all" {
        kinds::KINDS
            .iter()
            .copied()
            .filter(|kind| !matches!(kind.scope, Scope::OnPool | Scope::Name) && !kind.is_endless())
            .collect()
    } else {
        first.split(',').map(kinds::required).collect::<Outcome<_>>()?
    };
    let names = &words[1..];
    if names.is_empty() {
        return Ok(kinds.into_iter().map(|kind| Target { kind, name: None }).collect());
    }
    let named = |kind: &'static Kind| names.iter().map(move |name| Target { kind, name: Some(name.clone()) });
    Ok(kinds.into_iter().flat_map(named).collect())
}

fn slashed(word: &str) -> Outcome<Target> {
    let Some((kind, name)) = word.split_once('/').filter(|(_, name)| !name.is_empty()) else {
        return Err(Failure::usage(format!("argument {word:?}"), "expected KIND/NAME, as the first one has")
            .next("write all of them as KIND/NAME, or as KIND NAME NAME…"));
    };
    let kind = kinds::required(kind).map_err(|failure| {
        let hint = format!("a pool of a cluster is `pool {word}` or `pool/{word}`; {}", failure.next);
        failure.next(hint)
    })?;
    Ok(Target { kind, name: Some(name.to_owned()) })
}

/// The one object that `name` means.
pub(crate) async fn one(
    session: &Session,
    kind: &'static Kind,
    name: &str,
    selection: &Selection,
) -> Outcome<Value> {
    if kind.scope == Scope::Name {
        return by_own_name(session, kind, name).await;
    }
    if Uuid::parse_str(name).is_ok() {
        let mut request = Request::get(kind.path(name), format!("{} {name}", kind.singular));
        if selection.deleting && kind.can_be_deleting() {
            request = request.query("include_deleted", "true");
        }
        return Ok(session.client.call(request).await?.body);
    }
    match kind.scope {
        Scope::Id if kind.is_endless() => {
            let id: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
            let request = Request::get(kind.path(&id), format!("{} {name}", kind.singular));
            Ok(session.client.call(request).await?.body)
        }
        Scope::Id => Err(Failure::usage(format!("{} {name:?}", kind.singular), "this is not an id")
            .next(format!("copy the id from `muster get {}`", kind.plural))),
        Scope::OnPool => {
            Err(Failure::usage(format!("report {name:?}"), "reports are named after their pool")
                .next("write `muster get reports CLUSTER/POOL`"))
        }
        Scope::Project | Scope::Cluster | Scope::Name => by_name(session, kind, name, selection).await,
    }
}

/// The object whose name is its id. When there is none, names that are nearly the same are offered.
async fn by_own_name(session: &Session, kind: &'static Kind, name: &str) -> Outcome<Value> {
    if name.is_empty() || name.contains(['/', '?', '#']) {
        return Err(Failure::usage(format!("{} {name:?}", kind.singular), "this is not a name")
            .next(format!("see the names with `muster get {}`", kind.plural)));
    }
    let request = Request::get(kind.path(name), format!("{} {name}", kind.singular));
    match session.client.call(request).await {
        Ok(answer) => Ok(answer.body),
        Err(failure) if failure.exit == Exit::NotFound => {
            Err(missing(session, kind, name, name, Selection::visible()).await)
        }
        Err(failure) => Err(failure),
    }
}

async fn by_name(
    session: &Session,
    kind: &'static Kind,
    name: &str,
    selection: &Selection,
) -> Outcome<Value> {
    let (cluster, short) = match name.split_once('/') {
        Some((cluster, short)) if kind.scope == Scope::Cluster => (Some(cluster.to_owned()), short),
        _ => (selection.cluster.clone(), name),
    };
    if short.is_empty() || short.contains('/') {
        let form = if kind.scope == Scope::Cluster { "CLUSTER/NAME, NAME or an id" } else { "NAME or an id" };
        return Err(Failure::usage(format!("{} {name:?}", kind.singular), format!("expected {form}"))
            .next(format!("see the names with `muster get {}`", kind.plural)));
    }
    let mut wanted = Selection::named(short);
    wanted.all_projects = selection.all_projects;
    wanted.deleting = selection.deleting;
    if let (Some(cluster), Scope::Cluster) = (&cluster, kind.scope) {
        wanted.cluster_id = Some(cluster_id(session, cluster, selection.all_projects).await?);
    }
    let mut found = list::all(session, kind, &wanted).await?.items;
    session.know_clusters(kind, &found).await?;
    match found.len() {
        1 => {
            let object = found.remove(0);
            if kind.scope == Scope::Project {
                session.remember(vec![object.clone()]);
            }
            Ok(object)
        }
        0 => Err(missing(session, kind, name, short, wanted).await),
        _ => Err(unclear(session, kind, name, &found)),
    }
}

/// Id of the cluster called `name`, which may be an id already.
pub(crate) async fn cluster_id(session: &Session, name: &str, all_projects: bool) -> Outcome<String> {
    let selection = Selection { all_projects, ..Selection::visible() };
    let cluster = Box::pin(one(session, kinds::required("cluster")?, name, &selection)).await?;
    session.remember(vec![cluster.clone()]);
    Ok(text_at(&cluster, "id"))
}

async fn missing(
    session: &Session,
    kind: &'static Kind,
    name: &str,
    short: &str,
    wanted: Selection,
) -> Failure {
    let all = list::all(session, kind, &Selection { name: None, ..wanted })
        .await
        .map(|listed| listed.items)
        .unwrap_or_default();
    let _ = session.know_clusters(kind, &all).await; // without their names the ids will do
    let near = suggest::nearest(short, all.iter().map(|object| text_at(object, "name")));
    let next = match near.and_then(|near| all.iter().find(|object| text_at(object, "name") == near)) {
        Some(object) => format!(
            "did you mean {}? `muster get {}` lists all",
            session.full_name(kind, object),
            kind.plural
        ),
        None => format!("see what is there with `muster get {}`, in all projects with -A", kind.plural),
    };
    Failure::new(Exit::NotFound, format!("{} {name}", kind.singular), "not found").next(next)
}

fn unclear(session: &Session, kind: &'static Kind, name: &str, found: &[Value]) -> Failure {
    let mut names: Vec<String> = found
        .iter()
        .map(|object| match kind.scope {
            Scope::Cluster => session.full_name(kind, object),
            _ => format!("{} (project {})", text_at(object, "id"), text_at(object, "project")),
        })
        .collect();
    names.sort();
    // The same pair of names in two projects: only ids tell them apart.
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        names = found
            .iter()
            .map(|object| format!("{} (project {})", text_at(object, "id"), text_at(object, "project")))
            .collect();
    }
    let more = names.len().saturating_sub(MOST_CANDIDATES);
    names.truncate(MOST_CANDIDATES);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Failure::usage(
        format!("{} {name}", kind.singular),
        format!("the name is not clear: {}{more}", names.join(", ")),
    )
    .next(format!(
        "use one of these, like `{}/{}`",
        kind.aliases.first().unwrap_or(&kind.singular),
        names[0].split(' ').next().unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_targets() {
        #[track_caller]
        fn check(words: &[&str], expected: &[(&str, Option<&str>)]) {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let found = targets(&words).unwrap();
            let found: Vec<_> =
                found.iter().map(|target| (target.kind.singular, target.name.as_deref())).collect();
            assert_eq!(found, expected);
        }
        check(&["pools"], &[("nodepool", None)]);
        check(&["pools,cl"], &[("nodepool", None), ("cluster", None)]);
        check(&["pool", "a", "b/c"], &[("nodepool", Some("a")), ("nodepool", Some("b/c"))]);
        check(&["pool/a/b", "cluster/x"], &[("nodepool", Some("a/b")), ("cluster", Some("x"))]);
        check(&["all"], &[("cluster", None), ("nodepool", None), ("operation", None)]);
    }

    #[test]
    fn words_that_mean_nothing_say_what_would() {
        let error = targets(&["prod/web".to_owned()]).unwrap_err();
        assert_eq!(error.exit, Exit::Usage);
        assert!(error.next.contains("pool/prod/web"), "{error}");
        assert!(targets(&["pool/".to_owned()]).is_err());
        assert!(targets(&["pool/a".to_owned(), "b".to_owned()]).is_err());
        assert!(targets(&[]).is_err());
    }
}
