//! OPS-R3: bugs planted in production code, one for every row of the table of failure modes, and days on which the
//! simulated world notices each. The invariants know nothing of what is planted.
//!
//! A bug is looked for on days that are full of what provokes it. The seed that found it last is tried first, then
//! others: a change of the code moves seeds, and only a bug that none of them finds is one that is not seen any more.
//! On the same day without the bug everything has to be as it should be.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use muster_model::{Duration, planted};
use muster_sim::world::{
    Violation,
    fleet::on_one_thread,
    fuzz::{self, Day},
    trouble::Class::{self, *},
};

/// A bug, what it does, what a day has to be full of to show it, and the seed that showed it last.
struct Bug(&'static str, &'static str, &'static [Class], u64);

const BUGS: [Bug; 24] = [
    Bug("F1", "the pool's maximum is not kept", &[Bounds, Herds], 1),
    Bug("F2", "nodes without any pod anywhere are plausible", &[Views], 2),
    Bug("F3", "an old view is trusted", &[Views], 2),
    Bug("F4", "a wish that was spent is taken to stand", &[Herds], 0),
    Bug("F5", "records are written without the fence", &[Pauses], 0),
    Bug("F6", "a trigger that is not known asks for less", &[Metrics], 0),
    Bug("F7", "the pool's minimum is not kept", &[Bounds], 0),
    Bug("F8", "a drain has no end", &[Drains], 16),
    Bug("F9", "pods that are told to go count as gone", &[Drains], 9),
    Bug("F10", "a cordon is taken for granted", &[Drains], 6),
    Bug("F11", "our cordon stays on a node that serves", &[Drains], 48),
    Bug("F12", "the BMC's word is enough for off", &[Lies], 0),
    Bug("F13", "a power-on that is accepted is taken for power", &[Boots], 1),
    Bug("F14", "a refused account is tried again", &[Accounts], 0),
    Bug("F15", "nobody asks which machine answers", &[Cables], 0),
    Bug("F16", "the breaker never opens", &[Storms], 0),
    Bug("F17", "a startup taint that was refused once stays", &[Drains], 1),
    Bug("F18", "a clock that went back is not noticed", &[Clocks], 42),
    Bug("F19", "effects do not wait for their record", &[Stores, Boots], 17),
    Bug("F20", "starts are not spread over time", &[Herds], 0),
    Bug("F21", "opposite calls follow at once", &[People], 0),
    Bug("F22", "guarded nodes are not guarded", &[Guards], 0),
    Bug("F23", "a call is waited for for an hour", &[Silence], 0),
    Bug("F24", "events are never thrown away", &[Blips], 1),
];

/// Bugs that show in another row than their own as well, and why: each of them lets happen what that row is about.
const ALSO: [(&str, &str, &str); 2] = [
    ("F17", "F11", "a startup taint that stays where it was refused once is a mark that nobody needs"),
    (
        "F18",
        "F4",
        "a wait that was stored by a clock that went back ends when it has come there again; until then nobody is woken",
    ),
];

/// Long enough for drains that time out twice and for a rest of an hour at the end.
const HOURS: u64 = 6;
/// A day without the bug is looked at for this much longer than the bug took to show.
const BEYOND: Duration = Duration::from_mins(10);
/// Seeds that are tried for one bug.
const SEEDS: u64 = 20;

/// What is broken on a day, with a bug or without, up to a moment of it.
fn broken(bug: Option<&'static str>, day: &Day, until: Duration) -> Vec<Violation> {
    planted::plant(bug);
    let lived = on_one_thread(fuzz::live_until(day, until, &fuzz::quick(), false));
    planted::plant(None);
    lived.unwrap().0.violations
}

impl Bug {
    fn day(&self, seed: u64) -> Day {
        Day::full_of(seed, Duration::from_hours(HOURS), self.2, None)
    }

    /// Whether a violation is about what this bug breaks.
    fn is_shown_by(&self, violation: &Violation) -> bool {
        let also = ALSO.iter().find(|(row, ..)| *row == self.0).map_or("", |(_, also, _)| also);
        [self.0, also].contains(&violation.row)
    }

    /// The first seed that shows it, and how. What breaks something else that is not said of it shows nothing.
    fn find(&self, seeds: u64) -> Result<(Day, Violation), Vec<Violation>> {
        let others = (0..seeds).filter(|seed| *seed != self.3);
        let mut strange = Vec::new();
        for seed in std::iter::once(self.3).chain(others) {
            let day = self.day(seed);
            let violations = broken(Some(self.0), &day, day.length);
            match violations.iter().find(|one| self.is_shown_by(one)) {
                Some(violation) => return Ok((day, violation.clone())),
                None => strange.extend(violations),
            }
        }
        Err(strange)
    }
}

/// Asks something about each bug, on as many threads as a small machine has cores. A bug is planted on one thread only.
fn ask_each(ask: impl Fn(&Bug) -> Option<String> + Sync) -> Vec<String> {
    let (next, answers) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(bug) = BUGS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(answer) = ask(bug) {
                        answers.lock().unwrap().push(answer);
                    }
                }
            });
        }
    });
    answers.into_inner().unwrap()
}

#[test]
fn ops_r3_every_planted_bug_is_caught_and_the_same_day_without_it_is_clean() {
    let wrong = ask_each(|bug| {
        let Bug(row, what, ..) = bug;
        let (day, violation) = match bug.find(SEEDS) {
            Ok(found) => found,
            Err(strange) => {
                let rows: BTreeSet<&str> = strange.iter().map(|one| one.row).collect();
                return Some(format!(
                    "{row}: on {SEEDS} days nobody noticed that {what}; other rows: {rows:?}"
                ));
            }
        };
        let clean = broken(None, &day, violation.at.saturating_add(BEYOND)).into_iter().next()?;
        Some(format!(
            "{row}: seed {} has {:?} with the bug, and without it {clean:?}: {}",
            day.seed,
            violation.text,
            day.command(&fuzz::quick())
        ))
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Files of production code.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A bug that nobody looks for, or a row without one, is a gap in the proof.
#[test]
fn ops_r3_there_is_one_bug_for_every_row_and_one_row_for_every_bug() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for part in ["model", "engine", "control", "store", "power", "kube", "server", "muster"] {
        sources(&root.join(part).join("src"), &mut files);
    }
    let mut planted = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for part in text.split("planted::is(\"").skip(1) {
            planted.push(part.split('"').next().unwrap().to_owned());
        }
    }
    let once: BTreeSet<&str> = planted.iter().map(String::as_str).collect();
    assert_eq!(once, BUGS.iter().map(|bug| bug.0).collect());
    assert_eq!(
        once,
        (1..=24).map(|row| format!("F{row}")).collect::<Vec<_>>().iter().map(String::as_str).collect()
    );
}

/// Looks for the first seed of each bug: `cargo test --release -p muster-sim --test planted -- --ignored --nocapture`,
/// with `MUSTER_ROWS=F1,F2` for some of them. All 200 days that `OPS-R3` allows are tried.
#[test]
#[ignore = "a tool: it takes minutes"]
#[allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a tool that is told what to look for")]
fn search() {
    let only = std::env::var("MUSTER_ROWS").unwrap_or_default();
    ask_each(|bug| {
        if !only.is_empty() && !only.split(',').any(|one| one == bug.0) {
            return None;
        }
        match bug.find(200) {
            Ok((day, violation)) => {
                let until = violation.at.saturating_add(BEYOND);
                let clean = broken(None, &day, until)
                    .first()
                    .map_or_else(|| "clean".to_owned(), |one| format!("DIRTY {one:?}"));
                println!(
                    "{} {} // {} after {}: {}; {clean}",
                    bug.0, day.seed, violation.row, violation.at, violation.text
                );
            }
            Err(strange) => {
                let rows: BTreeSet<(&str, &str)> =
                    strange.iter().map(|one| (one.row, one.text.as_str())).collect();
                println!("{}: not found; other rows: {rows:#?}", bug.0);
            }
        }
        None
    });
}
