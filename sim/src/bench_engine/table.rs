//! The table that a person reads.

use std::fmt::Write;

use super::Outcome;

pub(super) fn render(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "{:<22} {:>5} {:>7} {:>9} {:>9} {:>9} {:>9} {:>8} {:>6} {:>11} {:>11} {:>7} {:>6} {:>6} {:>5} {:>7}  {}\n",
        "case",
        "bars",
        "pods",
        "min ms",
        "median",
        "cpu ms",
        "bare",
        "bar ms",
        "nodes",
        "cost",
        "bound",
        "ratio",
        "bar",
        "unpl.",
        "soft",
        "MiB",
        "audit"
    );
    let option =
        |value: Option<f64>, digits: usize| value.map_or_else(|| "-".into(), |v| format!("{v:.digits$}"));
    for o in outcomes {
        let _ = writeln!(
            text,
            "{:<22} {:>5} {:>7} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>8} {:>6} {:>11.4} {:>11.4} {:>7.4} {:>6} {:>6} {:>5} {:>7}  {} {}",
            o.case,
            o.bars,
            o.pods,
            o.min_ms,
            o.median_ms,
            o.cpu_ms,
            o.bare_ms,
            option(o.limit_ms, 0),
            o.nodes,
            o.cost,
            o.bound,
            o.ratio,
            option(o.limit_ratio, 2),
            o.unplaced,
            option(o.preferences_kept, 2),
            o.max_rss_kb / 1024,
            o.audit,
            o.note
        );
    }
    text
}
