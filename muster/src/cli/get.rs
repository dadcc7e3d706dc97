//! `muster get`: objects in any form.

use clap::Args;
use serde_json::Value;

use super::{
    context::Connection,
    failure::{Exit, Failure, Outcome},
    jsonpath::{self, Template},
    kinds::{Kind, Scope, View, text_at},
    list::{self, Selection},
    print::{
        format::{self, Format},
        lines,
        table::{Cell, Table},
    },
    resolve::{self, Target},
    session::Session,
    watch,
};

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// What to show: KIND [NAME…], KIND/NAME…, or all
    #[arg(required = true, value_name = "KIND [NAME]", add = super::complete::targets())]
    pub(crate) what: Vec<String>,
    #[command(flatten)]
    pub(crate) shape: Shape,
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Go on and show changes as they happen
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// With --watch: say what happened to each object
    #[arg(long, requires = "watch")]
    pub(crate) output_watch_events: bool,
    /// Succeed quietly when a named object does not exist
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// How objects are shown.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Shape {
    /// table, wide, json, yaml, name, jsonpath=…, custom-columns=… (or …-file=FILE)
    #[arg(short, long, default_value = "table", value_name = "FORMAT", add = super::complete::formats())]
    pub(crate) output: FormatArg,
    /// Order by a column or by a path, like age or .spec.nodeCount
    #[arg(long, value_name = "COLUMN")]
    pub(crate) sort_by: Option<String>,
    /// Leave the headers out
    #[arg(long)]
    pub(crate) no_headers: bool,
}

/// [`Format`] as an argument: the parser needs its own error type.
#[derive(Debug, Clone, Default)]
pub(crate) struct FormatArg(pub(crate) Format);

impl std::str::FromStr for FormatArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// Objects of one kind, found for one command.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) kind: &'static Kind,
    pub(crate) items: Vec<Value>,
    pub(crate) revision: Option<String>,
}

pub(crate) async fn run(session: &Session, get: Get) -> Outcome {
    let targets = resolve::targets(&get.what)?;
    let single = targets.len() == 1 && targets[0].name.is_some();
    let (mut found, failure) = collect(session, &targets, &get.selection).await;
    let failure = failure.filter(|failure| !(get.ignore_not_found && failure.exit == Exit::NotFound));
    for group in &mut found {
        sort(group, get.shape.sort_by.as_deref())?;
        session.know_clusters(group.kind, &group.items).await?;
    }
    let shown = if found.iter().all(|group| group.items.is_empty()) && failure.is_some() {
        Ok(())
    } else {
        show(session, &found, &get.shape, &get.selection, single && !get.watch)
    };
    match failure {
        Some(failure) => Err(failure),
        None if get.watch => {
            shown?;
            let style = watch::Style { shape: get.shape, events: get.output_watch_events };
            watch::follow(session, found, &targets, &get.selection, style).await
        }
        None => shown,
    }
}

/// Everything that was asked for; of what cannot be had, the first reason.
pub(crate) async fn collect(
    session: &Session,
    targets: &[Target],
    selection: &Selection,
) -> (Vec<Found>, Option<Failure>) {
    let (mut found, mut failure): (Vec<Found>, Option<Failure>) = (Vec::new(), None);
    for target in targets {
        match fetch(session, target, selection).await {
            Ok(group) => match found.last_mut().filter(|last| last.kind.kind == group.kind.kind) {
                Some(last) => last.items.extend(group.items),
                None => found.push(group),
            },
            Err(problem) => {
                if let Some(first) = &failure {
                    session.screen.note(&first.to_string());
                }
                failure = Some(problem);
            }
        }
    }
    (found, failure)
}

async fn fetch(session: &Session, target: &Target, selection: &Selection) -> Outcome<Found> {
    let kind = target.kind;
    match &target.name {
        Some(name) if kind.scope == Scope::OnPool => {
            let items = reports(session, name, selection).await?;
            Ok(Found { kind, items, revision: None })
        }
        Some(name) => {
            let object = resolve::one(session, kind, name, selection).await?;
            Ok(Found { kind, items: vec![object], revision: None })
        }
        None => {
            let mut selection = selection.clone();
            if let Some(cluster) = &selection.cluster {
                selection.cluster_id =
                    Some(resolve::cluster_id(session, cluster, selection.all_projects).await?);
            }
            let listed = list::all(session, kind, &selection).await?;
            if kind.scope == Scope::Project && selection.name.is_none() {
                session.remember(listed.items.clone());
            }
            Ok(Found { kind, items: listed.items, revision: listed.revision })
        }
    }
}

/// Reports on `pool`, `cluster/pool`, or the one of `cluster/pool/controller`.
async fn reports(session: &Session, name: &str, selection: &Selection) -> Outcome<Vec<Value>> {
    let pools = super::kinds::required("pool")?;
    let (pool, controller) = match name.splitn(3, '/').collect::<Vec<_>>()[..] {
        [cluster, pool, controller] => (format!("{cluster}/{pool}"), Some(controller.to_owned())),
        _ => (name.to_owned(), None),
    };
    let object = resolve::one(session, pools, &pool, selection).await?;
    session.know_clusters(pools, std::slice::from_ref(&object)).await?;
    let mut reports = list::reports_on(session, pools, &object).await?;
    if let Some(controller) = controller {
        reports.retain(|report| text_at(report, "controller_name") == controller);
        if reports.is_empty() {
            return Err(Failure::new(
                Exit::NotFound,
                format!("report {name}"),
                format!("{controller} has not reported on this pool"),
            )
            .next(format!("see who has with `muster get reports {pool}`")));
        }
    }
    Ok(reports)
}

/// Sorts by a column's header or by a path. What lacks the value comes first.
fn sort(group: &mut Found, by: Option<&str>) -> Outcome {
    let Some(by) = by else { return Ok(()) };
    let column = group.kind.columns.iter().find(|column| column.header.eq_ignore_ascii_case(by));
    let path = column.map_or(by, |column| column.path);
    let template = Template::parse_relaxed(path).map_err(|error| {
        Failure::usage("--sort-by", error.to_string())
            .next("use a column's header or a path like .spec.nodeCount")
    })?;
    let key = |value: &Value| template.find(value).first().map(|found| (*found).clone());
    if !group.items.is_empty() && group.items.iter().all(|item| key(item).is_none()) && column.is_none() {
        let headers: Vec<String> =
            group.kind.columns.iter().map(|column| column.header.to_ascii_lowercase()).collect();
        let text = format!("no {} has {by:?}", group.kind.singular);
        let next = format!("use a column ({}) or a path like .spec.nodeCount", headers.join(", "));
        return Err(Failure::usage("--sort-by", text).next(next));
    }
    group.items.sort_by(|left, right| match (key(left), key(right)) {
        (Some(left), Some(right)) => {
            jsonpath::order(&left, &right).unwrap_or_else(|| left.to_string().cmp(&right.to_string()))
        }
        (left, right) => left.is_some().cmp(&right.is_some()),
    });
    Ok(())
}

/// Prints what was found; `single` means one named object, which is not wrapped into a list.
pub(crate) fn show(
    session: &Session,
    found: &[Found],
    shape: &Shape,
    selection: &Selection,
    single: bool,
) -> Outcome {
    match &shape.output.0 {
        Format::Table | Format::Wide => tables(session, found, shape, selection),
        Format::Name => {
            let names = found.iter().flat_map(|group| {
                let name =
                    |object| format!("{}/{}", group.kind.singular, session.full_name(group.kind, object));
                group.items.iter().map(name)
            });
            session.screen.data(&lines(names))
        }
        other => {
            let mut items: Vec<Value> = found
                .iter()
                .flat_map(|group| group.items.iter().map(|object| with_kind(group.kind, object.clone())))
                .collect();
            let revision =
                found.first().filter(|_| found.len() == 1).and_then(|group| group.revision.as_deref());
            let document =
                if single && items.len() == 1 { items.remove(0) } else { format::list(items, revision) };
            session.screen.data(&other.document(&document, !shape.no_headers)?)
        }
    }
}

/// An object as it is shown: with its kind, so that it can be fed back.
pub(crate) fn with_kind(kind: &Kind, mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.entry("kind").or_insert_with(|| kind.kind.into());
    }
    object
}

fn tables(session: &Session, found: &[Found], shape: &Shape, selection: &Selection) -> Outcome {
    let mut printed = 0;
    for group in found {
        if group.items.is_empty() {
            if found.len() == 1 {
                session.screen.note(&nothing(session, group.kind, selection));
            }
            continue;
        }
        if printed > 0 {
            session.screen.line("")?;
        }
        let table = table(session, group.kind, &group.items, shape, selection.all_projects);
        session.screen.data(&table.render(!shape.no_headers, session.screen.colour, &mut Vec::new()))?;
        printed += 1;
    }
    Ok(())
}

/// An empty list says what to do about it.
fn nothing(session: &Session, kind: &Kind, selection: &Selection) -> String {
    let place = match (&session.settings.project, selection.all_projects) {
        (_, true) => " in any project that you may see".to_owned(),
        (Some(project), false) => format!(" in project {}", project.value),
        (None, false) => String::new(),
    };
    let narrowed =
        selection.selector.is_some() || selection.field_selector.is_some() || selection.cluster.is_some();
    let hint = match kind.singular {
        _ if narrowed => " with this selection",
        "cluster" => "; make one with `muster create cluster NAME --platform gcp`",
        "nodepool" => "; make one with `muster create pool NAME --cluster CLUSTER …`",
        "host" => "; register yours with `muster register hosts -f FILE` or `muster create host NAME …`",
        "credential" => "; make one with `muster create credential NAME --user USER --password-file FILE`",
        _ => "",
    };
    format!("no {}{place}{hint}", kind.plural)
}

pub(crate) fn headers(kind: &Kind, shape: &Shape, all_projects: bool) -> Vec<&'static str> {
    let own = columns(kind, shape).map(|column| column.header);
    if all_projects && !own_project(kind, shape) {
        std::iter::once("PROJECT").chain(own).collect()
    } else {
        own.collect()
    }
}

fn own_project(kind: &Kind, shape: &Shape) -> bool {
    columns(kind, shape).any(|column| column.header == "PROJECT")
}

fn columns<'a>(kind: &'a Kind, shape: &Shape) -> impl Iterator<Item = &'a super::kinds::Column> + use<'a> {
    let wide = shape.output.0 == Format::Wide;
    kind.columns.iter().filter(move |column| wide || !column.wide)
}

/// One row; [`headers`] has the same order.
pub(crate) fn row(
    session: &Session,
    kind: &Kind,
    object: &Value,
    shape: &Shape,
    all_projects: bool,
) -> Vec<Cell> {
    let clusters = session.clusters();
    row_of(
        kind,
        &View { object, clusters: &clusters, now: session.now(), related: &Value::Null },
        shape,
        all_projects,
    )
}

fn row_of(kind: &Kind, view: &View<'_>, shape: &Shape, all_projects: bool) -> Vec<Cell> {
    let mut row = Vec::new();
    if all_projects && !own_project(kind, shape) {
        row.push(view.or_dash("project").into());
    }
    row.extend(columns(kind, shape).map(|column| (column.cell)(view)));
    row
}

fn table(session: &Session, kind: &Kind, items: &[Value], shape: &Shape, all_projects: bool) -> Table {
    let mut table = Table::new(headers(kind, shape, all_projects));
    let (clusters, now) = (session.clusters(), session.now());
    for object in items {
        table.push(row_of(
            kind,
            &View { object, clusters: &clusters, now, related: &Value::Null },
            shape,
            all_projects,
        ));
    }
    table
}
