//! The fixed corpus of the fuzz targets, through the same code, without a fuzzer.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::{fs, path::PathBuf};

use muster_engine::{Plan, Snapshot};
use muster_sim::{fuzzing::TARGETS, scenario};

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target)
}

#[test]
fn the_fixed_corpus_finds_nothing() {
    for (target, run) in TARGETS {
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(files.len() >= 2, "{target} has no corpus");
        for file in files {
            run(&fs::read(&file).unwrap());
        }
    }
}

/// A corpus that is refused at the door would test nothing.
#[test]
fn the_corpus_gets_past_the_readers() {
    let plan = fs::read(folder("plan").join("one")).unwrap();
    let (snapshot, _) = serde_json::from_slice::<(Snapshot, Plan)>(&plan).unwrap();
    assert_eq!((snapshot.cluster.pods.len(), snapshot.hosts.len()), (2, 1));
    for name in ["baremetal", "gpu", "odd"] {
        scenario::load(&fs::read(folder("scenario").join(name)).unwrap()).unwrap();
    }
}

#[test]
fn every_target_has_a_program() {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let cargo = fs::read_to_string(manifest.join("Cargo.toml")).unwrap();
    for (target, _) in TARGETS {
        assert!(cargo.contains(&format!("name = \"{target}\"")), "{target}");
        assert!(manifest.join(format!("fuzz_targets/{target}.rs")).exists(), "{target}");
    }
}
