//! Lists, however long: pages are followed by cursor until there are no more.

use clap::Args;
use serde_json::Value;

use super::{
    client::{Projects, Request},
    failure::{Exit, Failure, Outcome},
    kinds::{self, Kind, Scope, text_at},
    session::Session,
};

/// Objects asked for at once: the most that the API gives.
const PAGE: usize = 100;
/// Pages after which a list that does not end is taken for a fault of the server: 100 million objects.
const MOST_PAGES: usize = 1_000_000;
/// Objects shown of a collection without end.
const NEWEST: usize = 200;
/// Pools whose reports are fetched at the same time.
const REPORTS_AT_ONCE: usize = 8;

/// Which objects of a kind.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Selection {
    /// Only objects with these labels: a=b, a!=b, a in (b,c), a, !a
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(crate) selector: Option<String>,
    /// Only objects with these fields: status.phase=Ready, name=web
    #[arg(long, value_name = "FIELDS")]
    pub(crate) field_selector: Option<String>,
    /// Only pools of this cluster
    #[arg(long, value_name = "NAME", add = super::complete::clusters())]
    pub(crate) cluster: Option<String>,
    /// Objects of all projects that you may see
    #[arg(short = 'A', long)]
    pub(crate) all_projects: bool,
    /// Only objects called this.
    #[arg(skip)]
    pub(crate) name: Option<String>,
    /// Only pools of the cluster with this id.
    #[arg(skip)]
    pub(crate) cluster_id: Option<String>,
    /// In this project instead of the session's.
    #[arg(skip)]
    pub(crate) project: Option<String>,
    /// Also objects that are being torn down.
    #[arg(skip)]
    pub(crate) deleting: bool,
}

impl Selection {
    /// Everything that the caller can see where it works.
    pub(crate) fn visible() -> Self {
        Self::default()
    }

    pub(crate) fn named(name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::default() }
    }

    /// The projects that a list or a watch is about.
    pub(crate) fn request_scope(&self) -> Projects {
        match &self.project {
            Some(project) => Projects::One(project.clone()),
            None if self.all_projects => Projects::All,
            None => Projects::Session,
        }
    }

    /// The query of a list or a watch.
    pub(crate) fn query(&self, kind: &Kind) -> Vec<(String, String)> {
        let mut query = Vec::new();
        let mut put = |name: &str, value: &Option<String>| {
            if let Some(value) = value {
                query.push((name.to_owned(), value.clone()));
            }
        };
        put("labelSelector", &self.selector);
        put("fieldSelector", &self.field_selector);
        put("name", &self.name);
        if kind.scope == Scope::Cluster || kind.is_endless() {
            put("cluster_id", &self.cluster_id);
        }
        if self.deleting && kind.can_be_deleting() {
            query.push(("include_deleted".to_owned(), "true".to_owned()));
        }
        query
    }
}

#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) items: Vec<Value>,
    pub(crate) revision: Option<String>,
}

/// All objects of `kind` in `selection`, which names no cluster that is not resolved yet.
pub(crate) async fn all(session: &Session, kind: &Kind, selection: &Selection) -> Outcome<Listed> {
    if kind.scope == Scope::OnPool {
        reports(session, selection).await
    } else {
        pages(session, kind, selection).await
    }
}

/// All pages of a collection.
pub(crate) async fn pages(session: &Session, kind: &Kind, selection: &Selection) -> Outcome<Listed> {
    let mut listed = Listed::default();
    let mut next = ("offset", "0".to_owned());
    for _ in 0..MOST_PAGES {
        let page = page(session, kind, selection, &next).await?;
        let items = page[kind.plural].as_array().cloned().ok_or_else(|| {
            Failure::new(
                Exit::Failure,
                kind.plural,
                format!("the server's answer has no list {:?}", kind.plural),
            )
            .next("is this a Muster server? `muster doctor` looks closer")
        })?;
        let ended = items.is_empty();
        listed.items.extend(items);
        // The first page's revision: a watch from there misses nothing.
        listed.revision =
            listed.revision.or_else(|| Some(text_at(&page, "revision")).filter(|text| !text.is_empty()));
        let cursor = page["next_cursor"].as_str().filter(|next| !next.is_empty());
        if kind.is_endless() && listed.items.len() >= NEWEST {
            if cursor.is_some() {
                session.screen.note(&format!(
                    "the newest {} are shown; older ones are at {}?cursor=…",
                    listed.items.len(),
                    kind.collection()
                ));
            }
            return Ok(listed);
        }
        let total = page["total"].as_u64().unwrap_or(0);
        // A list without cursors is followed by its offset.
        next = match cursor {
            Some(cursor) => ("cursor", cursor.to_owned()),
            None if matches!(kind.scope, Scope::Id | Scope::Name)
                && !ended
                && (listed.items.len() as u64) < total =>
            {
                ("offset", listed.items.len().to_string())
            }
            None => return Ok(listed),
        };
    }
    Err(Failure::new(Exit::Failure, kind.plural, "the list does not end")
        .next("`muster doctor` looks closer"))
}

async fn page(
    session: &Session,
    kind: &Kind,
    selection: &Selection,
    from: &(&str, String),
) -> Outcome<Value> {
    let mut request = Request::get(kind.collection(), kind.plural).query("limit", PAGE.to_string());
    request.query.extend(selection.query(kind));
    request = request.query(from.0, from.1.clone());
    request.scope = selection.request_scope();
    Ok(session.client.call(request).await?.body)
}

/// The reports on every pool of the selection.
async fn reports(session: &Session, selection: &Selection) -> Outcome<Listed> {
    use futures::{StreamExt, TryStreamExt};
    let pools = kinds::required("pool")?;
    let listed = pages(session, pools, selection).await?;
    session.know_clusters(pools, &listed.items).await?;
    let found: Vec<Vec<Value>> = futures::stream::iter(&listed.items)
        .map(|pool| reports_on(session, pools, pool))
        .buffered(REPORTS_AT_ONCE)
        .try_collect()
        .await?;
    Ok(Listed { items: found.into_iter().flatten().collect(), revision: None })
}

/// What controllers said about one pool, each with the pool's name.
pub(crate) async fn reports_on(session: &Session, pools: &Kind, pool: &Value) -> Outcome<Vec<Value>> {
    let name = session.full_name(pools, pool);
    let id = text_at(pool, "id");
    let request = Request::get(format!("{}/status", pools.path(&id)), format!("nodepool {name}"));
    let answer = session.client.call(request).await?.body;
    let reports = answer["controller_status"].as_array().cloned().unwrap_or_default();
    Ok(reports
        .into_iter()
        .map(|mut report| {
            report["pool"] = name.clone().into();
            report["nodepool_id"] = id.clone().into();
            report
        })
        .collect())
}

/// The store's revision now, as a list of this kind tells it.
pub(crate) async fn head(session: &Session, kind: &Kind) -> Outcome<Option<String>> {
    let request = Request::get(kind.collection(), kind.plural).query("limit", "1");
    let page = session.client.call(request).await?.body;
    Ok(Some(text_at(&page, "revision")).filter(|revision| !revision.is_empty()))
}
