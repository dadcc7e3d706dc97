//! A comparison for a terminal. Its first line is the sentence.

use std::fmt::Write as _;

use super::{Change, Comparison, Heading, counted};

pub(super) fn of(comparison: &Comparison) -> String {
    let mut out = format!("{}\n\n", comparison.summary);
    for (name, one) in [("from:", &comparison.from), ("to:", &comparison.to)] {
        let Heading { id, at, outcome, headline, .. } = one;
        let _ = writeln!(out, "{name:<6} {id}  {at}  {}: {headline}", outcome.as_str());
    }
    for note in &comparison.notes {
        let _ = writeln!(out, "note:  {note}");
    }
    section(&mut out, "looked at", &comparison.inputs);
    section(&mut out, "did", &comparison.outcome);
    out
}

fn section(out: &mut String, title: &str, changes: &[Change]) {
    if changes.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title} ({}):", counted(changes.len(), "difference"));
    let wide = changes.iter().map(|change| change.title().chars().count()).max().unwrap_or(0).min(44);
    for change in changes {
        let title = change.title();
        let _ = writeln!(out, "  {title:<wide$}  {} → {}", change.from, change.to);
        if !change.details.is_empty() {
            let _ = writeln!(out, "      {}", change.details.join(", "));
        }
        for (which, because) in [("then", &change.from_because), ("now", &change.to_because)] {
            if let Some(because) = because {
                let _ = writeln!(out, "      {which}: {because}");
            }
        }
    }
}
