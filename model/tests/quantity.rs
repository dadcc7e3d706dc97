//! Quantities beside the parser of Kubernetes itself: `kubectl create quota` prints what it read.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use muster_model::Quantity;
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

/// Values per call of kubectl; one argument may not be longer than 128 KiB.
const BATCH: usize = 1500;
/// Refusals are checked one call at a time, at about a tenth of a second each.
const REFUSALS: usize = 40;
/// Beyond this the printed form of Kubernetes loses its suffix, and ours does not.
const LARGEST: i128 = 1_000_000_000_000_000_000_000 * 1_000_000_000;

fn kubectl() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/peers/build.sh");
    let output = Command::new(&script).arg("kubectl").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()).join("kubectl")
}

/// What Kubernetes makes of the values, or its complaint.
fn read_back(kubectl: &Path, values: &[String]) -> Result<Vec<String>, String> {
    let pairs: Vec<String> =
        values.iter().enumerate().map(|(index, value)| format!("r{index}={value}")).collect();
    let output = Command::new(kubectl)
        .env("KUBECONFIG", "/dev/null")
        .args(["create", "quota", "q", "--dry-run=client", "-o", "json", "--hard"])
        .arg(pairs.join(","))
        .output()
        .unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let quota: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let hard: BTreeMap<String, String> = serde_json::from_value(quota["spec"]["hard"].clone()).unwrap();
    Ok((0..values.len()).map(|index| hard[&format!("r{index}")].clone()).collect())
}

/// A number in parts, so that it can be spelled with more zeros.
#[derive(Debug, Clone)]
struct Parts {
    sign: &'static str,
    whole: String,
    fraction: Option<String>,
    suffix: String,
}

impl Parts {
    fn spelled(&self, zeros: &str) -> String {
        let Self { sign, whole, fraction, suffix } = self;
        match fraction {
            None if zeros.is_empty() => format!("{sign}{whole}{suffix}"),
            _ => format!("{sign}{whole}.{}{zeros}{suffix}", fraction.as_deref().unwrap_or("")),
        }
    }
}

fn parts() -> impl Strategy<Value = Parts> {
    let plain = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let suffix = prop_oneof![
        6 => prop::sample::select(plain.to_vec()).prop_map(str::to_owned),
        1 => ("[eE][-+]?", 0_u32..14).prop_map(|(e, power)| format!("{e}{power}")),
    ];
    let number = prop_oneof![
        4 => ("[0-9]{1,6}", prop::option::of("[0-9]{0,4}")),
        1 => ("[0-9]{1,19}", prop::option::of("[0-9]{0,12}")),
        1 => ("0{0,3}[0-9]{0,3}", prop::option::of("[0-9]{1,3}000")),
        1 => (prop::sample::select(vec!["1024", "1048576", "2048", "512", "1000", "8"]).prop_map(str::to_owned), Just(None)),
    ];
    (prop::sample::select(vec!["", "", "", "-", "+"]), number, suffix)
        .prop_map(|(sign, (whole, fraction), suffix)| Parts { sign, whole, fraction, suffix })
}

#[test]
fn quantities_print_as_kubernetes_prints_them() {
    let kubectl = kubectl();
    let mut runner = TestRunner::deterministic();
    let drawn = prop::collection::vec(parts(), 3 * BATCH).new_tree(&mut runner).unwrap().current();
    let readable = |parts: &&Parts| {
        parts
            .spelled("")
            .parse::<Quantity>()
            .is_ok_and(|read| read.nanos().unsigned_abs() < LARGEST.unsigned_abs())
    };
    // Kubernetes keeps some spellings as they are; more zeros make it print its own form.
    let spellings =
        drawn.iter().filter(readable).flat_map(|parts| ["", "0", "00"].map(|zeros| parts.spelled(zeros)));
    let spellings: Vec<String> = spellings.filter(|text| text.parse::<Quantity>().is_ok()).collect();
    let (mut compared, mut kept) = (0, 0);
    for batch in spellings.chunks(BATCH) {
        for (text, printed) in batch.iter().zip(read_back(&kubectl, batch).unwrap()) {
            let ours: Quantity = text.parse().unwrap();
            if printed == *text && ours.to_string() != printed {
                kept += 1;
                continue;
            }
            assert_eq!(ours.to_string(), printed, "{text}");
            assert_eq!(printed.parse::<Quantity>().unwrap(), ours, "{text}");
            compared += 1;
        }
    }
    assert!(compared > 3 * kept && compared > 5000, "compared {compared}, kept {kept}");
}

#[test]
fn what_kubernetes_refuses_is_refused() {
    let kubectl = kubectl();
    let mut runner = TestRunner::deterministic();
    let odd = "[-+]?[0-9.]{0,3}[eEinumkKMGTPxi]{0,3}[-+]?[0-9]{0,2}";
    let drawn = prop::collection::vec(odd, 4000).new_tree(&mut runner).unwrap().current();
    let drawn: std::collections::BTreeSet<String> =
        drawn.into_iter().filter(|text| !text.is_empty()).collect();
    let small = |text: &str| {
        text.parse::<Quantity>().is_ok_and(|read| read.nanos().unsigned_abs() < LARGEST.unsigned_abs())
    };
    let refused: Vec<&String> = drawn.iter().filter(|text| text.parse::<Quantity>().is_err()).collect();
    let accepted: Vec<String> = drawn.iter().filter(|text| small(text)).cloned().collect();
    assert!(refused.len() > REFUSALS && accepted.len() > 200, "{} {}", refused.len(), accepted.len());
    for batch in accepted.chunks(BATCH) {
        let printed = read_back(&kubectl, batch).unwrap();
        for (text, printed) in batch.iter().zip(printed) {
            assert_eq!(printed.parse::<Quantity>().unwrap(), text.parse::<Quantity>().unwrap(), "{text}");
        }
    }
    for text in refused.iter().step_by(refused.len().div_ceil(REFUSALS)) {
        assert!(read_back(&kubectl, &[(*text).clone()]).is_err(), "Kubernetes reads {text:?}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,40}") {
        if let Ok(read) = text.parse::<Quantity>() {
            let again: Quantity = read.to_string().parse().unwrap();
            prop_assert!(again == read || read.nanos() == i128::MAX || read.nanos() == -i128::MAX);
        }
    }

    #[test]
    fn arithmetic_saturates_and_rounds_away_from_zero(a in any::<i128>(), b in any::<i128>(), factor in any::<i64>()) {
        let quantity = |nanos| Quantity::from_nanos(nanos, muster_model::quantity::Format::BinarySi);
        prop_assert_eq!((quantity(a) + quantity(b)).nanos(), a.saturating_add(b));
        prop_assert_eq!(quantity(a).saturating_mul(factor).nanos(), a.saturating_mul(i128::from(factor)));
        for (amount, unit, rounded) in [
            (a, 1_000_000_000, quantity(a).value()),
            (a >> 64, 1_000_000_000, quantity(a >> 64).value()),
            (b >> 64, 1_000_000, quantity(b >> 64).milli()),
        ] {
            let magnitude = (amount.unsigned_abs()).div_ceil(unit);
            let capped = if amount < 0 { magnitude.min(1 << 63) } else { magnitude.min((1 << 63) - 1) };
            prop_assert_eq!(u128::from(rounded.unsigned_abs()), capped);
            prop_assert!(rounded == 0 || (rounded < 0) == (amount < 0));
        }
    }
}
