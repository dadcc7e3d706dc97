//! Series of clusters under the names that triggers and dashboards already use, exactly as written.
//!
//! Two of them count what is there now and yet end in `_total`. They are written without a type, because neither a
//! counter nor a gauge of that name would be true; Prometheus takes them as they are.

use std::fmt::Write as _;

use muster_control::planner::{Board, Load};
use muster_model::Timestamp;

/// Clusters that get series; the rest is left out.
const MAX_CLUSTERS: usize = 100;

/// A name, its help text, whether it is a gauge, and how it is read. What is not known is left out.
type Series = (&'static str, &'static str, bool, fn(&Load) -> Option<f64>);

const SERIES: [Series; 4] = [
    ("pending_pods_total", "Pods without a node now", false, |load| Some(whole(load.pending))),
    ("unschedulable_pods_total", "Pods that the scheduler finds no node for now", false, |load| {
        Some(whole(load.unschedulable))
    }),
    ("pod_creation_rate", "Pods per second that came in the last five minutes", true, |load| {
        Some(whole(load.pods_created) / 1e6)
    }),
    ("job_completion_rate", "Jobs per second that were completed in the last five minutes", true, |load| {
        load.jobs_completed.map(|rate| whole(rate) / 1e6)
    }),
];

#[allow(clippy::cast_precision_loss, reason = "counts of pods are far below what a float holds exactly")]
const fn whole(number: u64) -> f64 {
    number as f64
}

/// The series of every cluster that is in sight. A cluster that is not connected, or was last seen a while ago, has none: unknown
/// is neither zero nor what it was.
pub fn text(board: &Board, now: Timestamp) -> String {
    let clusters = board.all();
    let mut text = String::new();
    for (name, help, gauge, read) in SERIES {
        let rows: Vec<_> = clusters
            .iter()
            .filter_map(|live| Some((live, live.load_at(now).and_then(read)?)))
            .take(MAX_CLUSTERS)
            .collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "# HELP {name} {help}");
        if gauge {
            let _ = writeln!(text, "# TYPE {name} gauge");
        }
        for (live, value) in rows {
            let (project, cluster) = (escaped(&live.project), escaped(&live.cluster_name));
            let _ = writeln!(text, "{name}{{project=\"{project}\",cluster=\"{cluster}\"}} {value}");
        }
    }
    text
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
