//! kill -9 at any moment, under concurrent writers: everything acknowledged is there, and nothing is half
//! there.
//!
//! The child is this test binary itself, asked to run [`child`] only. It prints what was acknowledged, and
//! the parent kills it after a random number of lines.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use muster_model::store::{Committed, Expect, List, Revision, Store, Txn};
use muster_store::embedded::{Embedded, HistoryLimits};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::support::{options, scratch};

const ROUNDS: usize = 50;
const WRITERS: usize = 8;
const DIR: &str = "MUSTER_CRASH_DIR";

fn store(dir: &Path) -> Embedded {
    let history = HistoryLimits { commits: 200, ..HistoryLimits::default() };
    let with = muster_store::embedded::Options { history, ..options() };
    Embedded::open(dir, with).expect("the store opens after a crash")
}

/// Writes for ever: each writer moves its two keys on together by compare-and-set, adds a key, and removes
/// an older one. Prints `writer step revision` for each acknowledged commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child of the crash test, not a test"]
#[allow(clippy::disallowed_methods, reason = "how the parent tells its child where to write")]
async fn child() {
    let dir = std::env::var(DIR).expect("the parent says where");
    let store = Arc::new(store(Path::new(&dir)));
    let writers = (0..WRITERS).map(|writer| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let (left, right) = (format!("/left/{writer}"), format!("/right/{writer}"));
            let found = store.get(&left).await.expect("it reads");
            let mut step: u64 = found.as_ref().map_or(0, |entry| number(&entry.value));
            let mut expect = found.map_or(Expect::Absent, |entry| Expect::Modified(entry.modified));
            loop {
                step += 1;
                let text = step.to_string();
                let txn = Txn::new()
                    .expect(&left, expect)
                    .put(&left, text.clone())
                    .put(&right, text)
                    .put(
                        format!("/log/{writer}/{step}"),
                        vec![b'x'; usize::try_from(step % 900).unwrap_or(0)],
                    )
                    .delete(format!("/log/{writer}/{}", step.saturating_sub(5)));
                match store.commit(txn).await.expect("it commits") {
                    Committed::Done { revision } => {
                        expect = Expect::Modified(revision);
                        println!("{writer} {step} {revision}");
                    }
                    refused @ Committed::Refused { .. } => panic!("{refused:?}"),
                }
            }
        })
    });
    futures::future::join_all(writers).await;
}

fn number(value: &[u8]) -> u64 {
    String::from_utf8_lossy(value).parse().expect("it is a number")
}

#[tokio::test]
async fn ops_r13_nothing_acknowledged_is_lost_in_fifty_crashes() {
    let dir = scratch();
    let mut random = StdRng::seed_from_u64(42);
    // The last step of each writer that was acknowledged, and the last revision.
    let mut acknowledged: BTreeMap<usize, u64> = BTreeMap::new();
    let mut last = Revision::ZERO;
    let mut commits = 0;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().expect("this test has a file"))
            .args(["--ignored", "--exact", "embedded::crash::child", "--nocapture", "--test-threads=1"])
            .env(DIR, dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the child starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let enough = random.random_range(1..250);
        let mut read = 0;
        while read < enough {
            let line = lines.next().unwrap_or_else(|| panic!("the child of round {round} ended by itself"));
            read += usize::from(note(&line.expect("it can be read"), &mut acknowledged, &mut last));
        }
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        // What it had still printed counts as well.
        for line in lines.map_while(Result::ok) {
            read += usize::from(note(&line, &mut acknowledged, &mut last));
        }
        commits += read;
        last = check(dir.path(), &mut acknowledged, last, round).await;
    }
    assert!(commits > ROUNDS, "hardly anything was written");
}

fn note(line: &str, acknowledged: &mut BTreeMap<usize, u64>, last: &mut Revision) -> bool {
    // The first line follows what the test runner prints before it, on the same line.
    let line = line.rsplit("... ").next().unwrap_or(line);
    let numbers: Vec<u64> = line.split(' ').map_while(|part| part.parse().ok()).collect();
    let [writer, step, revision] = numbers[..] else { return false };
    let writer = usize::try_from(writer).expect("it is small");
    let before = acknowledged.insert(writer, step);
    assert!(before.is_none_or(|before| before < step), "writer {writer} went back to {step}");
    *last = Revision(revision).max(*last);
    true
}

async fn check(
    dir: &Path,
    acknowledged: &mut BTreeMap<usize, u64>,
    last: Revision,
    round: usize,
) -> Revision {
    let store = store(dir);
    for (writer, step) in acknowledged {
        let left = store.get(&format!("/left/{writer}")).await.expect("it reads").expect("it was written");
        let right = store.get(&format!("/right/{writer}")).await.expect("it reads").expect("it was written");
        assert_eq!(left.value, right.value, "round {round}: a commit is half there");
        assert_eq!(left.modified, right.modified);
        let found = number(&left.value);
        assert!(found >= *step, "round {round}: writer {writer} was told {step} and finds {found}");
        assert!(found <= *step + 1, "round {round}: writer {writer} did {step} and finds {found}");
        *step = found; // one that was never acknowledged may be there; from now on it counts
        let log = store.list(List::prefix(format!("/log/{writer}/"))).await.expect("it lists");
        let mut steps: Vec<u64> = log
            .entries
            .iter()
            .map(|entry| entry.key.rsplit('/').next().map_or(0, |n| n.parse().unwrap_or(0)))
            .collect();
        steps.sort_unstable();
        let first = found.saturating_sub(4).max(1);
        assert_eq!(
            steps,
            (first..=found).collect::<Vec<_>>(),
            "round {round}: deletes and puts belong together"
        );
    }
    let revision = store.revision().await.expect("it answers");
    assert!(revision >= last, "round {round}: revisions went back from {last} to {revision}");
    // The history within its bounds is whole.
    let stats = store.stats().await.expect("it has numbers");
    let past =
        store.list(List { at: Some(stats.oldest), ..List::default() }).await.expect("it lists the past");
    assert!(past.entries.iter().all(|entry| entry.modified <= stats.oldest));
    revision
}
