//! Answers in words, for a terminal. Plain text without colour; whoever prints it may add some.

use std::fmt::{self, Write};

use super::{
    Answer, Cause, Fix, HostAnswer, HostRow, Match, Next, NodeAnswer, NodeTally, PodAnswer, PoolAnswer,
    TemplateView,
};

/// Rows of a list that are shown before the rest is counted.
const MOST_ROWS: usize = 20;

/// The whole answer: one line, then what stands behind it.
pub fn render(answer: &Answer) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = match answer {
        Answer::Pod(answer) => pod(&mut out, answer),
        Answer::Node(answer) => node(&mut out, answer),
        Answer::Host(answer) => host(&mut out, answer),
        Answer::Pool(answer) => pool(&mut out, answer),
        Answer::Unknown { headline, near, .. } => unknown(&mut out, headline, near),
    };
    out
}

fn unknown(out: &mut String, headline: &str, near: &[String]) -> fmt::Result {
    writeln!(out, "{headline}")?;
    if near.is_empty() {
        writeln!(
            out,
            "\nNothing has a similar name. Write it like pod/NAMESPACE/NAME, node/NAME, pool/NAME or host/NAME."
        )
    } else {
        writeln!(out, "\nNear it: {}", near.join(", "))
    }
}

/// Columns as wide as their widest cell, the last one as it is.
fn table(out: &mut String, head: &[&str], rows: &[Vec<String>]) -> fmt::Result {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain(std::iter::once(head[column].chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut line = |cells: &[&str]| {
        let last = cells.len() - 1;
        write!(out, "  ")?;
        for (at, cell) in cells.iter().enumerate() {
            if at == last {
                write!(out, "{cell}")?;
            } else {
                write!(out, "{cell:<width$}  ", width = widths[at])?;
            }
        }
        writeln!(out)
    };
    line(head)?;
    for row in rows.iter().take(MOST_ROWS) {
        line(&row.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    if rows.len() > MOST_ROWS {
        writeln!(out, "  … and {} more", rows.len() - MOST_ROWS)?;
    }
    Ok(())
}

fn pod(out: &mut String, answer: &PodAnswer) -> fmt::Result {
    writeln!(out, "{}", answer.headline)?;
    behind(out, &answer.cause)?;
    if let Some(conflict) = &answer.conflict {
        writeln!(out, "\nContradiction")?;
        writeln!(out, "  {}  ({})", conflict.left.text, conflict.left.field)?;
        writeln!(out, "  {}  ({})", conflict.right.text, conflict.right.field)?;
    }
    if !answer.pools.is_empty() {
        writeln!(out, "\nPools")?;
        let rows = answer.pools.iter().map(|row| {
            let matches = match row.matches {
                Match::NoMatch => "no match",
                Match::Unavailable => "matches, not to be had",
                Match::Available => "matches",
            };
            let size = row.max.map_or_else(|| row.nodes.to_string(), |max| format!("{}/{max}", row.nodes));
            let template = row.template.as_deref().unwrap_or("unknown").to_owned();
            vec![
                row.pool.to_string(),
                size,
                template,
                matches.to_owned(),
                row.cause.code.name().to_owned(),
                row.cause.text.clone(),
            ]
        });
        table(out, &["POOL", "NODES", "TEMPLATE", "MATCH", "REASON", "BECAUSE"], &rows.collect::<Vec<_>>())?;
    }
    hosts(out, &answer.hosts)?;
    if !answer.nodes.is_empty() {
        writeln!(out, "\nNodes that are there")?;
        tallies(out, &answer.nodes)?;
    }
    for row in answer.pools.iter().filter(|row| row.would_make.is_some()) {
        if let Some(view) = &row.would_make {
            writeln!(out, "\nThe node that pool {} would make", row.pool)?;
            template(out, view)?;
        }
    }
    fixes(out, &answer.fixes)?;
    next(out, &answer.next)
}

fn behind(out: &mut String, cause: &Cause) -> fmt::Result {
    writeln!(out, "  reason    {}", cause.code.name())?;
    writeln!(out, "  object    {}  {}", cause.object, cause.field)?;
    if !cause.observed.is_empty() || !cause.required.is_empty() {
        let margin =
            if cause.margin.is_empty() { String::new() } else { format!(", short by {}", cause.margin) };
        writeln!(
            out,
            "  numbers   found {}, needed {}{margin}",
            or_none(&cause.observed),
            or_none(&cause.required)
        )?;
    }
    Ok(())
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "nothing" } else { text }
}

fn hosts(out: &mut String, hosts: &[HostRow]) -> fmt::Result {
    if hosts.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nHosts")?;
    let rows = hosts.iter().map(|row| {
        vec![
            row.host.to_string(),
            row.pool.to_string(),
            row.cause.code.name().to_owned(),
            row.cause.text.clone(),
        ]
    });
    table(out, &["HOST", "POOL", "REASON", "BECAUSE"], &rows.collect::<Vec<_>>())
}

fn tallies(out: &mut String, rows: &[NodeTally]) -> fmt::Result {
    let rows = rows.iter().map(|row| {
        vec![row.nodes.to_string(), row.code.name().to_owned(), row.example.clone(), row.text.clone()]
    });
    table(out, &["NODES", "REASON", "FOR EXAMPLE", "BECAUSE"], &rows.collect::<Vec<_>>())
}

fn template(out: &mut String, view: &TemplateView) -> fmt::Result {
    if let Some(stale) = &view.stale {
        writeln!(out, "  stale: {stale}")?;
    }
    let fields =
        view.fields.iter().map(|field| vec![field.name.clone(), field.value.clone(), field.source.clone()]);
    let daemons = view
        .daemons
        .iter()
        .map(|field| vec![format!("- {}", field.name), field.value.clone(), field.source.clone()]);
    table(out, &["FIELD", "VALUE", "FROM"], &fields.chain(daemons).collect::<Vec<_>>())
}

fn fixes(out: &mut String, fixes: &[Fix]) -> fmt::Result {
    if fixes.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nWhat would help")?;
    for (at, fix) in fixes.iter().enumerate() {
        let helps = if fix.helps == 1 { "1 pod".to_owned() } else { format!("{} pods", fix.helps) };
        writeln!(out, "  {}. {} (helps {helps})", at + 1, fix.text)?;
        writeln!(out, "     patch {}: {}", fix.object, fix.patch)?;
    }
    Ok(())
}

fn next(out: &mut String, next: &[Next]) -> fmt::Result {
    if next.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nWhat happens next")?;
    for step in next {
        match step.at {
            Some(at) => writeln!(out, "  {at}  {}", step.text)?,
            None => writeln!(out, "  {}", step.text)?,
        }
    }
    Ok(())
}

fn node(out: &mut String, answer: &NodeAnswer) -> fmt::Result {
    writeln!(out, "{}", answer.headline)?;
    behind(out, &answer.cause)?;
    writeln!(out, "  judged    {}", answer.evaluated)?;
    if !answer.blockers.is_empty() {
        writeln!(out, "\nWhat keeps it")?;
        let rows = answer
            .blockers
            .iter()
            .map(|cause| vec![cause.code.name().to_owned(), cause.object.clone(), cause.text.clone()]);
        table(out, &["REASON", "OBJECT", "BECAUSE"], &rows.collect::<Vec<_>>())?;
    }
    if !answer.usage.is_empty() {
        writeln!(out, "\nRequested")?;
        let rows = answer.usage.iter().map(|row| {
            vec![
                row.resource.clone(),
                row.requested.clone(),
                row.allocatable.clone(),
                format!("{} %", row.percent),
            ]
        });
        table(out, &["RESOURCE", "REQUESTED", "ALLOCATABLE", "SHARE"], &rows.collect::<Vec<_>>())?;
    }
    if !answer.moves.is_empty() {
        writeln!(out, "\nWhere its pods would go")?;
        let rows = answer.moves.iter().map(|step| vec![step.pod.to_string(), step.to.to_string()]);
        table(out, &["POD", "TO"], &rows.collect::<Vec<_>>())?;
    } else if !answer.pods.is_empty() {
        writeln!(out, "\nIts pods")?;
        for pod in answer.pods.iter().take(MOST_ROWS) {
            writeln!(out, "  {pod}")?;
        }
    }
    if !answer.budgets.is_empty() {
        writeln!(out, "\nBudgets")?;
        let rows = answer.budgets.iter().map(|view| {
            let users =
                if view.in_use_by.is_empty() { "nobody".to_owned() } else { view.in_use_by.join(", ") };
            vec![
                view.budget.clone(),
                view.allowed.to_string(),
                format!("{}/{}", view.healthy, view.desired_healthy),
                users,
            ]
        });
        table(out, &["BUDGET", "ALLOWED", "HEALTHY/DESIRED", "IN USE BY"], &rows.collect::<Vec<_>>())?;
    }
    next(out, &answer.next)
}

fn host(out: &mut String, answer: &HostAnswer) -> fmt::Result {
    writeln!(out, "{}", answer.headline)?;
    behind(out, &answer.cause)?;
    writeln!(out, "  pool      {} ({})", answer.pool, answer.template)?;
    if let Some(rack) = &answer.rack {
        writeln!(out, "  rack      {rack}")?;
    }
    next(out, &answer.next)?;
    if let Some(inner) = &answer.node {
        writeln!(out)?;
        node(out, inner)?;
    }
    Ok(())
}

fn pool(out: &mut String, answer: &PoolAnswer) -> fmt::Result {
    writeln!(out, "{}", answer.headline)?;
    behind(out, &answer.cause)?;
    let max = answer.max.map_or_else(|| "no maximum".to_owned(), |max| format!("at most {max}"));
    writeln!(
        out,
        "  size      {} {}: {} ready, {} on their way, {} leaving; at least {}, {max}",
        answer.nodes,
        if answer.nodes == 1 { "node" } else { "nodes" },
        answer.ready,
        answer.upcoming,
        answer.leaving,
        answer.min
    )?;
    writeln!(out, "  plan      {} new, {} removed", answer.new, answer.removed)?;
    if !answer.causes.is_empty() {
        writeln!(out, "\nNew nodes and the pods that cause them")?;
        let rows = answer.causes.iter().map(|cause| {
            let names: Vec<String> = cause.pods.iter().take(4).map(ToString::to_string).collect();
            let more = if cause.pods.len() > 4 {
                format!(", … {} in all", cause.pods.len())
            } else {
                String::new()
            };
            vec![cause.node.to_string(), cause.template.to_string(), format!("{}{more}", names.join(", "))]
        });
        table(out, &["NODE", "TEMPLATE", "PODS"], &rows.collect::<Vec<_>>())?;
    }
    if !answer.why_not_more.is_empty() {
        writeln!(out, "\nWhy not more")?;
        let rows = answer
            .why_not_more
            .iter()
            .map(|cause| vec![cause.code.name().to_owned(), cause.field.clone(), cause.text.clone()]);
        table(out, &["REASON", "FIELD", "BECAUSE"], &rows.collect::<Vec<_>>())?;
    }
    if !answer.why_not_fewer.is_empty() {
        writeln!(out, "\nWhy not fewer")?;
        tallies(out, &answer.why_not_fewer)?;
    }
    hosts(out, &answer.hosts)?;
    for view in &answer.templates {
        writeln!(out, "\nThe node it would make ({})", view.template)?;
        template(out, view)?;
    }
    next(out, &answer.next)
}
