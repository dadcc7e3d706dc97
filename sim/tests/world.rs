//! Stories of the simulated world, compared with what is stored beside them.
//!
//! `MUSTER_BLESS=1 cargo test -p muster-sim --test world` stores what happens now; read it before you commit it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use muster_model::Duration;
use muster_sim::world::{
    Disturbance, Outage, Quirk, What,
    fleet::{self, on_one_thread},
    fuzz::{self, Day},
    process::Manner,
    script,
    trouble::Class,
};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

/// Runs a story on one thread.
fn tell(text: &str) -> (String, Result<(), script::ScriptError>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(script::run(text, fuzz::exact()))
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "whether to store is asked of the environment, as everywhere in tests"
)]
fn stories_go_as_stored() {
    let bless = std::env::var("MUSTER_BLESS").is_ok();
    let only = std::env::var("MUSTER_STORY").ok();
    let mut paths: Vec<PathBuf> = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "world"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    let mut wrong = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let (output, result) = tell(&fs::read_to_string(&path).unwrap());
        let stored = path.with_extension("out");
        if bless {
            fs::write(&stored, &output).unwrap();
        }
        if let Err(error) = result {
            wrong.push(format!("{name}: {error}\n{output}"));
        } else if fs::read_to_string(&stored).unwrap_or_default() != output {
            wrong.push(format!("{name}: not as stored in {}\n{output}", stored.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// OPS-R1, R2, a sample: days full of trouble break nothing and come to rest. The full count is `make chaos`.
#[test]
fn ops_r1_r2_days_full_of_trouble_break_nothing() {
    let fleet = fleet::Fleet {
        first: 0,
        end: 8,
        length: Duration::from_hours(8),
        focus: Vec::new(),
        size: None,
        threads: 2,
        manner: fuzz::quick(),
        stop_at_first: false,
    };
    let result = fleet::live(&fleet, &|_| {});
    assert!(result.errors.is_empty(), "{:?}", result.errors);
    assert_eq!(result.outcomes.len(), 8);
    let broken: Vec<_> = result.outcomes.iter().filter(|outcome| !outcome.violations.is_empty()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    // A day on which nothing happens proves nothing.
    assert!(result.outcomes.iter().any(|outcome| outcome.power_offs > 0 && outcome.evictions > 0));
}

/// `make chaos` lives days full of each kind of trouble, and people can read which kinds there are.
#[test]
fn every_kind_of_trouble_is_lived_and_written_down() {
    let read = |path: &str| fs::read_to_string(directory().join("../..").join(path)).unwrap();
    let (script, reference) = (read("scripts/chaos.sh"), read("docs/reference/simulation.md"));
    let list = script.split("for kind in ").nth(1).unwrap().split(';').next().unwrap();
    let lived: Vec<&str> = list.split_whitespace().filter(|word| *word != "\\").collect();
    assert_eq!(lived, Class::ALL.map(Class::as_str));
    for kind in lived {
        assert!(reference.contains(&format!("`{kind}`")), "{kind} is not in docs/reference/simulation.md");
    }
}

/// OPS-R1: over a thousand days of which nothing more is asked than their seeds, everything comes that can go wrong.
#[test]
fn ops_r1_days_have_faults_of_every_class() {
    let length = Duration::from_hours(24);
    let days: Vec<Day> = (0..1_000).map(|seed| Day::new(seed, length)).collect();
    let all = || days.iter().flat_map(|day| &day.disturbances).map(|one| &one.what);
    let outages = [
        Outage::ApiDown,
        Outage::ApiStalled,
        Outage::ApiSlow,
        Outage::NoPods,
        Outage::HalfThePods,
        Outage::OldView,
        Outage::Finalizers,
        Outage::BudgetsClosed,
        Outage::ActsRefused,
    ];
    for outage in outages.into_iter().chain(Outage::METRICS) {
        let many = all().filter(|what| **what == What::Outage(outage)).count();
        assert!(many >= 30, "{outage:?} comes {many} times");
    }
    for quirk in Quirk::ALL {
        assert!(
            all().any(|what| matches!(what, What::Quirk { quirk: one, .. } if *one == quirk)),
            "{quirk:?}"
        );
    }
    let year = 365 * 24 * 3_600_000;
    let rare = |what: &What| match what {
        What::BindTo { .. } => Some("a pod that is bound past the scheduler"),
        What::ClockJump { millis } if *millis == year => Some("a year ahead"),
        What::ClockJump { millis } if *millis == -year => Some("a year behind"),
        What::Ask { .. } => Some("a change of mind"),
        What::Replicas { workload, replicas: 1.. } if workload == "herd" => Some("a herd"),
        _ => None,
    };
    let mut on_days: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for day in &days {
        for name in day.disturbances.iter().filter_map(|one| rare(&one.what)) {
            on_days.entry(name).or_default().insert(day.seed);
        }
    }
    assert!(on_days.len() == 5 && on_days.values().all(|days| days.len() >= 5), "{on_days:?}");
    let hangs = |day: &&Day| {
        let mut at = BTreeMap::<_, usize>::new();
        for one in &day.disturbances {
            if matches!(one.what, What::Quirk { quirk: Quirk::KubeletHangs, .. }) {
                *at.entry(one.at).or_default() += 1;
            }
        }
        at.into_values().any(|many| many * 2 > day.site.hosts.len())
    };
    assert!(days.iter().filter(hangs).count() >= 30, "most kubelets at once");
    // A lease is ten times as long here as in production: 190 seconds.
    let deposed = |day: &&Day| {
        let long = |one: &&Disturbance| one.what == What::PauseLeader && one.lasts > Duration::from_secs(200);
        day.processes > 1 && day.disturbances.iter().any(|one| long(&one))
    };
    assert!(days.iter().filter(deposed).count() >= 30, "leaders that stand still until another leads");
    let floors = all().filter(|what| matches!(what, What::Bounds { min: 1.., .. })).count();
    assert!(floors >= 30, "{floors} minimums that are edited in");
}

/// Days on which something was broken once, and what. Each is as it should be since.
const ONCE_BROKEN: [(u64, u64, &[Class], &str); 4] = [
    (
        15,
        6,
        &[Class::Kubelets],
        "a host without a BMC that was woken and stayed silent was taken for off, and its rack drew 1600 W of 1200 W",
    ),
    (860, 24, &[], "a machine that was asked late to shut down lost its power 10 s later"),
    (620, 24, &[], "a drain that was given up left a host serving that had lost its power"),
    (
        132,
        24,
        &[Class::Stores],
        "a host took up what was wanted five minutes before, when another was woken instead",
    ),
];

#[test]
fn days_that_once_broke_an_invariant_are_clean() {
    for (seed, hours, focus, what) in ONCE_BROKEN {
        let day = Day::full_of(seed, Duration::from_hours(hours), focus, None);
        let manner = fuzz::quick();
        let (outcome, _) = on_one_thread(fuzz::live(&day, &manner, false)).unwrap();
        let repeat = day.command(&manner);
        assert!(outcome.violations.is_empty(), "again: {what}: {:#?}\n{repeat}", outcome.violations);
    }
}

/// OPS-R1: one command repeats a day, with everything that makes it that day.
#[test]
fn ops_r1_the_command_of_a_day_says_everything_that_makes_it() {
    #[track_caller]
    fn check(day: &Day, manner: &Manner, command: &str) {
        assert_eq!(day.command(manner), format!("muster sim fuzz {command} --trace"));
    }
    let length = Duration::from_hours(24);
    check(&Day::new(7, length), &fuzz::quick(), "--seeds 7..8 --hours 24");
    check(&Day::new(7, length), &fuzz::exact(), "--seeds 7..8 --hours 24 --exact");
    let full = Day::full_of(9, Duration::from_hours(6), &[Class::Views, Class::Drains], Some(5));
    check(&full, &fuzz::quick(), "--seeds 9..10 --hours 6 --focus views,drains --hosts 5");
    check(&full, &fuzz::exact(), "--seeds 9..10 --hours 6 --focus views,drains --hosts 5 --exact");
    // And what it says matters: the lease is renewed at other times.
    let day = Day::new(7, Duration::from_hours(3));
    let lived = |manner| on_one_thread(fuzz::live(&day, &manner, false)).unwrap().0.digest;
    assert_ne!(lived(fuzz::quick()), lived(fuzz::exact()));
}

/// OPS-R1: the same seed is the same day, byte for byte.
#[test]
fn ops_r1_the_same_seed_has_the_same_trace() {
    let live = || fleet::one(3, Duration::from_hours(6), &fuzz::quick(), true).unwrap();
    let ((one, lines), (other, others)) = (live(), live());
    let differs = lines.iter().zip(&others).find(|(a, b)| a != b);
    assert_eq!(differs, None);
    assert_eq!((one.digest, one.lines), (other.digest, other.lines));
    assert!(lines.len() > 100, "{}", lines.len());
}
