//! The fixed corpus of the fuzz targets, through the same code, without a fuzzer.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod common;

use std::{fs, path::PathBuf};

use common::{Dice, spoil};
use muster_engine::{Plan, Snapshot};
use muster_sim::{fuzzing::TARGETS, scenario};
use serde_json::Value;

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

fn scribble(text: &[u8], dice: &mut Dice) -> Vec<u8> {
    let words: [&[u8]; 12] =
        [b"-", b": ", b"[", b"{", b"\n", b"e9", b"Ei", b"n", b".", b"kind: Pod\n", b"null", b"\xff"];
    let mut text = text.to_vec();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(text.len() + 1);
        match dice.roll(3) {
            0 if at < text.len() => drop(text.remove(at)),
            1 if at < text.len() => text[at] = u8::try_from(dice.roll(128)).unwrap(),
            _ => {
                let word = words[dice.roll(words.len())];
                text.splice(at..at, word.iter().copied());
            }
        }
    }
    text
}

/// Inputs near the corpus; `FUZZ_CASES` sets how many for each target.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test that may run longer on request")]
fn inputs_near_the_corpus_find_nothing() {
    let cases = std::env::var("FUZZ_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(200_u64);
    for (target, run) in TARGETS {
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let texts: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
        for seed in 0..cases {
            let mut dice = Dice(seed);
            let text = &texts[dice.roll(texts.len())];
            let input = match serde_json::from_slice::<Value>(text) {
                Ok(mut value) if target != "quantity" => {
                    for _ in 0..=dice.roll(4) {
                        spoil(&mut value, &mut dice);
                    }
                    value.to_string().into_bytes()
                }
                _ => scribble(text, &mut dice),
            };
            let kept = std::panic::catch_unwind(|| run(&input));
            assert!(kept.is_ok(), "{target}, seed {seed}: {}", String::from_utf8_lossy(&input));
        }
    }
}
