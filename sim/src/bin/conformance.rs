//! `conformance [-o jsonl] PATH…`: runs recorded scheduler cases and compares every answer.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use muster_sim::conformance::{self, ConformanceError, Output};

const USAGE: &str = "usage: conformance [-o jsonl] PATH...\n\
    Runs the cases of .jsonl files, or of all such files in folders, and compares every answer.\n\
    -o jsonl  also print each computed result\n";

fn main() -> ExitCode {
    let (mut out, mut notes) = (io::stdout().lock(), io::stderr().lock());
    let (paths, output) = match arguments(std::env::args().skip(1)) {
        Ok(parsed) => parsed,
        Err(problem) => {
            let _ = write!(notes, "conformance: {problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut buffered = io::BufWriter::new(&mut out);
    let ran = conformance::run(&paths, output, &mut buffered, &mut notes)
        .and_then(|tally| buffered.flush().map(|()| tally).map_err(ConformanceError::from));
    match ran {
        Ok(tally) if tally.failed == 0 && tally.passed > 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            let _ = writeln!(notes, "conformance: {error}{}", cause.unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

fn arguments(mut given: impl Iterator<Item = String>) -> Result<(Vec<PathBuf>, Output), String> {
    let (mut paths, mut output) = (Vec::new(), Output::Summary);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "-o" | "--output" => match given.next().as_deref() {
                Some("jsonl") => output = Output::Jsonl,
                Some(other) => return Err(format!("unknown output {other:?}; the only one is jsonl")),
                None => return Err(format!("{argument} needs a value; the only one is jsonl")),
            },
            "-ojsonl" | "--output=jsonl" => output = Output::Jsonl,
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag:?}")),
            path => paths.push(PathBuf::from(path)),
        }
    }
    if paths.is_empty() {
        return Err("no path given".to_owned());
    }
    Ok((paths, output))
}
