//! Conformance with the real scheduler: runs recorded cases and compares everything they say.
//!
//! The format of the files is described in `fixtures/conformance/README.md`.

pub mod case;
pub mod compare;
pub mod compute;
pub mod quantities;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use muster_model::k8s::{self, ReadError};
use serde::Serialize;
use serde_json::{Value, json};
use thiserror::Error;

use case::Case;
use compare::Differences;

#[derive(Debug, Error)]
pub enum ConformanceError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} holds no .jsonl file")]
    Empty { path: PathBuf },
    #[error("cannot write the results")]
    Write(#[from] io::Error),
}

/// What came of one line.
#[derive(Debug)]
pub struct Outcome {
    pub id: String,
    /// Our own answer, in the format of the files; nothing if the line could not be understood.
    pub computed: Option<Value>,
    /// Empty means passed.
    pub differences: Vec<String>,
}

impl Outcome {
    fn failed(id: &str, why: String) -> Self {
        Self { id: id.to_owned(), computed: None, differences: vec![why] }
    }

    pub fn passed(&self) -> bool {
        self.differences.is_empty()
    }
}

/// How many lines passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: usize,
    pub failed: usize,
}

/// Whether each computed result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Summary,
    Jsonl,
}

/// Runs all files and folders. Results go to `out`, differences to `notes`.
pub fn run(
    paths: &[PathBuf],
    output: Output,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<Tally, ConformanceError> {
    let mut tally = Tally::default();
    for path in paths {
        for file in case_files(path)? {
            run_file(&file, output, out, notes, &mut tally)?;
        }
    }
    writeln!(out, "{} passed, {} failed", tally.passed, tally.failed)?;
    Ok(tally)
}

fn run_file(
    file: &Path,
    output: Output,
    out: &mut dyn Write,
    notes: &mut dyn Write,
    tally: &mut Tally,
) -> Result<(), ConformanceError> {
    let read = |source| ConformanceError::Read { path: file.to_owned(), source };
    let text = fs::read_to_string(file).map_err(read)?;
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let outcome = run_line(line);
        if let (Output::Jsonl, Some(computed)) = (output, &outcome.computed) {
            writeln!(out, "{computed}")?;
        }
        for difference in &outcome.differences {
            writeln!(notes, "{}:{} {}: {difference}", file.display(), number + 1, outcome.id)?;
        }
        if outcome.passed() {
            tally.passed += 1;
        } else {
            tally.failed += 1;
        }
    }
    Ok(())
}

/// A file as it is, a folder as all `.jsonl` files in and below it, by name.
fn case_files(path: &Path) -> Result<Vec<PathBuf>, ConformanceError> {
    let read = |source| ConformanceError::Read { path: path.to_owned(), source };
    if !fs::metadata(path).map_err(read)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(read)? {
            let path = entry.map_err(read)?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "jsonl") {
                files.push(path);
            }
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(ConformanceError::Empty { path: path.to_owned() });
    }
    Ok(files)
}

/// Computes and compares one line of any kind.
pub fn run_line(line: &str) -> Outcome {
    let value: Value = match serde_json::from_str(line) {
        Ok(value) => value,
        Err(error) => return Outcome::failed("?", format!("not JSON: {error}")),
    };
    if value.get("in").is_some() && value.get("kind").is_none() {
        return run_quantity(&value);
    }
    let id = value.get("id").and_then(Value::as_str).unwrap_or("?").to_owned();
    match k8s::from_value::<Case>("case", &value) {
        Ok(case) => run_case(&case),
        Err(error) => Outcome::failed(&id, describe(&error)),
    }
}

fn describe(error: &ReadError) -> String {
    error.to_string()
}

fn run_quantity(value: &Value) -> Outcome {
    match k8s::from_value::<quantities::QuantityCase>("quantity", value) {
        Ok(case) => {
            let found = quantities::compute(&case.text);
            let mut differences = Differences::default();
            quantities::compare(&found, &case, &mut differences);
            let id = format!("quantity {:?}", case.text);
            Outcome { id, computed: Some(as_json(&found)), differences: differences.0 }
        }
        Err(error) => Outcome::failed("quantity", describe(&error)),
    }
}

fn run_case(case: &Case) -> Outcome {
    if let Some(step) = case.bad_step() {
        return Outcome::failed(&case.id, format!("steps[{step}] names a pod or node that is not listed"));
    }
    let mut differences = Differences::default();
    let used = compute::used(&case.world());
    if let Some(expected) = &case.used {
        differences.value("used", &used, expected);
    }
    let mut computed = json!({ "id": case.id, "kind": case.kind, "used": used });
    match (case.kind.as_str(), &case.expect, &case.plan) {
        (kind @ ("verdict" | "sequence"), Some(expected), _) => {
            let found = if kind == "verdict" { compute::verdicts(case) } else { compute::sequence(case) };
            differences.answers(&found, expected);
            computed["expect"] = as_json(&found);
        }
        ("plan", _, Some(expected)) => {
            let found = compute::plan(case);
            differences.plan(&found, expected);
            computed["plan"] = as_json(&found);
        }
        ("verdict" | "sequence" | "plan", ..) => {
            return Outcome::failed(&case.id, format!("a {} case without its expected answer", case.kind));
        }
        (kind, ..) => return Outcome::failed(&case.id, format!("unknown kind {kind:?}")),
    }
    Outcome { id: case.id.clone(), computed: Some(computed), differences: differences.0 }
}

fn as_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("plain records with text keys always become JSON")
}
