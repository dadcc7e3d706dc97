//! What a benchmark found, for people and for programs.

use serde::Serialize;

use super::{Bar, Measure, machine::Machine};
use crate::cli::table::{Cell, Table, Tone};

/// Version of the JSON document. Fields are added under the same version; one is never renamed or removed.
const FORMAT: &str = "muster-bench/1";

/// Everything that `-o json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    format: &'static str,
    bench: &'static str,
    version: &'static str,
    /// `release`, or `debug`, whose figures say nothing about the product.
    build: &'static str,
    machine: Machine,
    measures: Vec<Measure>,
}

impl Report {
    pub(super) fn new(bench: &'static str, measures: Vec<Measure>) -> Self {
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        let version = env!("CARGO_PKG_VERSION");
        Self { format: FORMAT, bench, version, build, machine: Machine::read(), measures }
    }

    pub(super) fn missed(&self) -> bool {
        self.measures.iter().any(|measure| measure.met() == Some(false))
    }

    pub(super) fn table(&self) -> String {
        let mut table =
            Table::new(["CASE", "MEASURE", "UNIT", "MEDIAN", "MIN", "MAX", "RUNS", "BAR", "", "NOTE"]);
        for measure in &self.measures {
            let bar = match measure.bar {
                Bar::None => String::new(),
                Bar::AtLeast(bar) => format!("≥ {}", number(bar)),
                Bar::AtMost(bar) => format!("≤ {}", number(bar)),
            };
            let verdict = match measure.met() {
                None => Cell::from(""),
                Some(true) => Cell::toned("met", Tone::Good),
                Some(false) => Cell::toned("missed", Tone::Bad),
            };
            table.push(vec![
                measure.case.into(),
                measure.name.as_str().into(),
                measure.unit.into(),
                number(measure.median()).into(),
                number(measure.minimum()).into(),
                number(measure.maximum()).into(),
                measure.runs.len().to_string().into(),
                bar.into(),
                verdict,
                measure.note.as_str().into(),
            ]);
        }
        let Machine { processor, cores, memory_mib, kernel, load } = &self.machine;
        let warning =
            if self.build == "debug" { "\nThis is a debug build: measure with a release build." } else { "" };
        let colour = std::io::IsTerminal::is_terminal(&std::io::stdout());
        format!(
            "{}\nmuster {} ({}), {cores} × {processor}, {memory_mib} MiB, Linux {kernel}, load {load}{warning}\n",
            table.render(true, colour, &mut Vec::new()),
            self.version,
            self.build,
        )
    }
}

/// Three figures that matter, no more.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        small if small >= 0.01 || small == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let measures = vec![
            Measure::new("get", "requests", "1/s", vec![9.0, 30.0, 20.0]).bar(Bar::AtLeast(10.0)),
            Measure::new("list", "p99", "ms", vec![6.25]).bar(Bar::AtMost(5.0)).note("status filter"),
            Measure::new("list", "p50", "ms", vec![0.5]),
        ];
        Report::new("api", measures)
    }

    #[test]
    fn the_document_keeps_its_shape() {
        let document = serde_json::to_value(report()).unwrap();
        assert_eq!(document["format"], "muster-bench/1");
        assert_eq!(document["bench"], "api");
        let machine = document["machine"].as_object().unwrap();
        for field in ["processor", "cores", "memory_mib", "kernel", "load"] {
            assert!(machine.contains_key(field), "{field}");
        }
        let expected = serde_json::json!({
            "case": "get", "name": "requests", "unit": "1/s", "better": "higher", "median": 20.0, "minimum": 9.0,
            "maximum": 30.0, "runs": [9.0, 30.0, 20.0], "bar": 10.0, "met": true, "note": "",
        });
        assert_eq!(document["measures"][0], expected);
        assert_eq!(document["measures"][2]["bar"], serde_json::Value::Null);
        assert_eq!(document["measures"][2]["met"], serde_json::Value::Null);
    }

    #[test]
    fn the_table_says_what_was_missed() {
        let report = report();
        assert!(report.missed());
        let table = report.table();
        let missed = table.lines().find(|line| line.contains("p99")).unwrap();
        assert!(
            missed.contains("6.25") && missed.contains("≤ 5.00") && missed.contains("missed"),
            "{missed}"
        );
    }

    #[test]
    fn numbers_keep_the_digits_that_matter() {
        let shown = [23_456.7, 34.56, 4.567, 0.0, 0.001_23].map(number);
        assert_eq!(shown, ["23457", "34.6", "4.57", "0.00", "0.0012"]);
    }
}
