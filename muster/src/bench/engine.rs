//! `muster bench engine`: the planner on generated and recorded problems, against bars and lower bounds.

use std::path::PathBuf;

use anyhow::anyhow;
use muster_sim::bench_engine::{self, DLRM, Options, Outcome};

use super::{Bar, Bench, Case, Measure, Request, note};

/// The planner: time from raw pods to a plan with reasons, cost over a computed lower bound, memory
///
/// Reads its fixtures from the checkout that this binary was built from. Every plan is judged by the audit, except
/// those too large for it. Run memory cases on their own: what a process once used does not show what it needs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The trace of instances of recommendation models (CSV), for the case dlrm
    #[arg(long, value_name = "FILE")]
    dlrm: Option<PathBuf>,
    /// Do not audit plans: the audit is the slow, obvious implementation
    #[arg(long)]
    no_audit: bool,
}

impl Bench for Args {
    fn name(&self) -> &'static str {
        "engine"
    }

    fn cases(&self) -> Vec<Case> {
        let names = bench_engine::all_names().into_iter().filter(|name| *name != DLRM || self.dlrm.is_some());
        names.map(|name| Case { name, about: about(name) }).collect()
    }

    fn run(&self, request: &Request) -> anyhow::Result<Vec<Measure>> {
        let mut measures = Vec::new();
        for &case in &request.cases {
            note(&format!("engine: {case}"));
            let options = Options {
                cases: vec![case.to_owned()],
                repeat: request.repeat as usize,
                json: false,
                audit: !self.no_audit,
                dlrm: self.dlrm.clone(),
            };
            for outcome in bench_engine::outcomes(&options).map_err(|error| anyhow!(error))? {
                measures.extend(figures(case, &outcome));
            }
        }
        Ok(measures)
    }
}

/// What a case measures, in a few words.
fn about(case: &str) -> &'static str {
    match case {
        _ if case.starts_with("memory") => "peak memory with loaded state and one plan",
        _ if case.starts_with("burst") => "pending pods in a large cluster",
        _ if case.starts_with("growth") => "how time grows with size",
        _ if case.starts_with("diverse") => "a mix of spread, affinity and anti-affinity on 400 types",
        _ if case.starts_with("hopeless") => "pods that fit nowhere",
        _ if case.starts_with("binpack") => "51,000 pods on one type",
        "explanations" => "the share of the time that reasons take",
        "scale-down-2000" | "drain-15k-450k" => "verdicts on nodes",
        "drain-quality" => "how full nodes are after scale-down",
        DLRM => "a recorded trace in five dimensions",
        _ => "a plan for pending pods",
    }
}

fn figures(case: &'static str, outcome: &Outcome) -> Vec<Measure> {
    let at_most = |limit: Option<f64>| limit.map_or(Bar::None, Bar::AtMost);
    let mut figures = Vec::new();
    if !outcome.runs_ms.is_empty() {
        let told = format!("{} {}", outcome.audit, outcome.note);
        figures.push(
            Measure::new(case, "time", "ms", outcome.runs_ms.clone())
                .bar(at_most(outcome.limit_ms))
                .note(format!("audit {}", told.trim())),
        );
    }
    if outcome.cpu_ms > 0.0 {
        figures.push(
            Measure::new(case, "processor time", "ms", vec![outcome.cpu_ms])
                .note(format!("without reasons {:.2}", outcome.bare_ms)),
        );
    }
    let (name, unit) = match outcome.bars.as_str() {
        "11" => ("peak memory", "MiB"),
        "10" => ("exponent", ""),
        "18" => ("share of reasons", ""),
        _ => ("cost over bound", ""),
    };
    if outcome.limit_ratio.is_some() || outcome.bound > 0.0 {
        let told = if outcome.runs_ms.is_empty() {
            outcome.note.clone()
        } else {
            format!("{:.4} over {:.4}, {} machines", outcome.cost, outcome.bound, outcome.nodes)
        };
        figures.push(
            Measure::new(case, name, unit, vec![outcome.ratio]).bar(at_most(outcome.limit_ratio)).note(told),
        );
    }
    if let Some(kept) = outcome.preferences_kept {
        figures.push(Measure::new(case, "preferences kept", "", vec![kept]).higher());
    }
    figures
}
