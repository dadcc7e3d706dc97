//! The architecture as a test: reads the manifests and fails when a dependency points the wrong way.

use std::{collections::BTreeMap, fs, path::Path};

/// What each crate may use of the others. A crate that is not listed may not exist: add it here, with
/// its place in ARCHITECTURE.md.
const ALLOWED: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("engine", &["model"]),
    ("control", &["model", "engine"]),
    // Adapters: down only, never one another.
    ("store", &["model"]),
    ("power", &["model"]),
    ("prom", &["model"]),
    ("server", &["model", "engine", "control"]),
    ("kube", &["model", "engine", "control"]),
    ("capi", &["model", "engine", "control"]),
    // The world in memory implements the same ports as the adapters.
    // The simulated world runs the production loops on the store in memory.
    ("sim", &["model", "engine", "control", "store"]),
    // Wire emulators share no code with the drivers that they judge.
    ("emulate", &["model"]),
    // The binary wires concrete parts together; nothing depends on it.
    (
        "muster",
        &["model", "engine", "control", "store", "power", "prom", "server", "kube", "capi", "sim", "emulate"],
    ),
];

/// In tests a crate may also use a store, the simulated world or an emulator as its counterpart.
const ALLOWED_IN_TESTS: &[&str] = &["store", "sim", "emulate", "model", "engine", "control"];

/// What no decision may depend on: anything that could bring a clock, I/O or randomness into `engine`.
const ENGINE_MAY_USE: &[&str] = &["serde", "serde_json", "thiserror"];

type Manifests = BTreeMap<String, toml::Table>;

fn manifests() -> Manifests {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let workspace: toml::Table = read(&root.join("Cargo.toml"));
    let members = workspace["workspace"]["members"].as_array().expect("members is a list");
    members
        .iter()
        .map(|member| member.as_str().expect("a member is a path").to_owned())
        .map(|member| (member.clone(), read(&root.join(&member).join("Cargo.toml"))))
        .collect()
}

fn read(path: &Path) -> toml::Table {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.parse().unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Names in one dependency table, ours without their prefix.
fn names<'a>(manifest: &'a toml::Table, table: &str) -> Vec<&'a str> {
    let Some(table) = manifest.get(table).and_then(|t| t.as_table()) else { return Vec::new() };
    table.keys().map(String::as_str).collect()
}

fn ours(name: &str) -> Option<&str> {
    name.strip_prefix("muster-")
}

/// Every arrow that points the wrong way, in words.
fn wrong_arrows(manifests: &Manifests) -> Vec<String> {
    let mut wrong = Vec::new();
    for (member, manifest) in manifests {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| name == member) else {
            wrong.push(format!("{member} is not part of the architecture"));
            continue;
        };
        for table in ["dependencies", "build-dependencies"] {
            for used in names(manifest, table).into_iter().filter_map(ours) {
                if !allowed.contains(&used) {
                    wrong.push(format!("{member} -> {used}"));
                }
            }
        }
        for used in names(manifest, "dev-dependencies").into_iter().filter_map(ours) {
            if !allowed.contains(&used) && !ALLOWED_IN_TESTS.contains(&used) {
                wrong.push(format!("{member} -> {used} (tests)"));
            }
        }
    }
    if let Some(engine) = manifests.get("engine") {
        for used in names(engine, "dependencies") {
            if ours(used).is_none() && !ENGINE_MAY_USE.contains(&used) {
                wrong.push(format!("engine -> {used} (the engine is pure)"));
            }
        }
    }
    wrong
}

#[test]
fn dependencies_point_down_only() {
    assert_eq!(wrong_arrows(&manifests()), Vec::<String>::new());
}

#[test]
fn a_wrong_arrow_is_seen() {
    let check = |member: &str, manifest: &str, expected: &str| {
        let planted = BTreeMap::from([(member.to_owned(), manifest.parse().expect("valid TOML"))]);
        assert_eq!(wrong_arrows(&planted), [expected]);
    };
    check("engine", "[dependencies]\nmuster-control.workspace = true", "engine -> control");
    check("engine", "[dependencies]\ntokio = \"1\"", "engine -> tokio (the engine is pure)");
    check("store", "[dependencies]\nmuster-power = { path = \"../power\" }", "store -> power");
    check("model", "[build-dependencies]\nmuster-engine.workspace = true", "model -> engine");
    check("power", "[dev-dependencies]\nmuster-server.workspace = true", "power -> server (tests)");
    check("utils", "", "utils is not part of the architecture");
}
