//! Servers on the command line, as an operator uses it, against a real server.

mod cli_support;

use cli_support::Server;
use serde_json::Value;

const TABLE: &str = "name,powerInterface,mgmtAddress,macAddress,pool,rack,slot,cpu,memory,gpu,inventoryId\n\
    gpu-01,redfish,10.0.0.1,02:00:00:00:00:01,gpu,a1,1,64,512Gi,8,DC-1\n\
    gpu-02,redfish,10.0.0.2,02:00:00:00:00:02,gpu,a1,5,64,512Gi,8,DC-2\n";

#[test]
fn a_file_of_servers_is_checked_registered_and_shown() {
    let server = Server::start();
    let bad = server.file(
        "bad.csv",
        &format!("{TABLE}gpu-03,redfsh,10.0.0.3,,gpu,,,,,,\ngpu-04,redfish,10.0.0.1,,gpu,,,,,,\n"),
    );
    let bad = bad.to_str().unwrap_or_default();
    let dry = server.run(&["register", "hosts", "-f", bad, "--dry-run"]).failed(1, "bad.csv");
    assert!(
        dry.out.contains("did you mean redfish?") && dry.out.contains("belongs to host gpu-01"),
        "{}",
        dry.out
    );
    assert!(dry.out.contains("2 would be registered, 0 unchanged, 2 failed"), "{}", dry.out);
    assert!(
        server.run(&["get", "hosts"]).err.contains("muster register hosts"),
        "an empty list says what to do"
    );
    let good = server.file("good.csv", TABLE);
    let good = good.to_str().unwrap_or_default();
    let made = server.run(&["register", "hosts", "-f", good]).ok();
    assert!(made.contains("2 registered") && made.contains("rack a1 is not registered"), "{made}");
    assert!(server.run(&["register", "hosts", "-f", good, "-q"]).ok().contains("2 unchanged"));
    let table = server.run(&["get", "hosts"]).ok();
    assert!(
        table.starts_with("NAME") && table.contains("off/enrolling") && table.contains("a1/5"),
        "{table}"
    );
    for name in ["host", "bmn", "servers"] {
        assert_eq!(server.run(&["get", name, "gpu-01", "-o", "name"]).ok().trim(), "host/gpu-01", "{name}");
    }
    server.run(&["get", "host", "gpu-1"]).failed(3, "host gpu-1");
    for format in ["wide", "json", "yaml", "jsonpath={.items[*].name}"] {
        assert!(server.run(&["get", "hosts", "-o", format]).ok().contains("gpu-01"), "{format}");
    }
    let csv = server.run(&["export", "hosts", "-o", "csv"]).ok();
    assert_eq!(csv.lines().count(), 3, "{csv}");
    let again = server.file("again.yaml", &server.run(&["export", "hosts"]).ok());
    let again = server.run(&["register", "hosts", "-f", again.to_str().unwrap_or_default()]).ok();
    assert!(again.contains("2 unchanged"), "{again}");
}

#[test]
fn a_dcim_export_is_followed_and_nothing_is_switched_off() {
    let server = Server::start();
    let file = |name: &str, text: &str| server.file(name, text).to_str().unwrap_or_default().to_owned();
    let first = file("first.csv", TABLE);
    let shown = server.run(&["sync", "hosts", "-f", &first, "--dry-run"]);
    assert_eq!(shown.code, 1, "{}", shown.err);
    assert!(shown.out.contains("+ host/gpu-01") && shown.out.contains("2 to register"), "{}", shown.out);
    server.run(&["sync", "hosts", "-f", &first]).ok();
    server.run(&["maintenance", "on", "host", "gpu-01", "--reason", "fan"]).ok();
    // One moved to another pool, the other is gone from the export.
    let next = file(
        "next.csv",
        &TABLE.lines().take(2).collect::<Vec<_>>().join("\n").replace(",gpu,a1,", ",train,a1,"),
    );
    let told = server.run(&["sync", "hosts", "-f", &next]).ok();
    assert!(told.contains("pool: gpu -> train") && told.contains("! host/gpu-02"), "{told}");
    let hosts = server.json(&["get", "hosts"]);
    let spec = |name: &str| -> Value {
        hosts["items"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|host| host["name"] == name)
            .map(|host| host["spec"].clone())
            .unwrap_or_default()
    };
    assert_eq!(spec("gpu-01")["admin"], "maintenance", "what people laid over it stays");
    assert_eq!(spec("gpu-02")["hold"]["by"], "dcim-sync");
    assert!(spec("gpu-02").get("powerState").is_none(), "held, never switched off");
    let again = server.run(&["sync", "hosts", "-f", &next]).ok();
    assert!(again.contains("0 to register, 0 to change, 0 vanished"), "{again}");
    // An export that broke off says nothing.
    for (name, text) in [("gone.csv", ""), ("gone.yaml", "[]"), ("only.csv", "name,pool\n")] {
        let refused = server.run(&["sync", "hosts", "-f", &file(name, text)]).failed(1, name);
        assert!(
            refused.err.contains("lists no hosts") || refused.err.contains("is empty"),
            "{}",
            refused.err
        );
    }
    let piped = server.feed(&["sync", "hosts", "-f", "-"], "");
    assert!(piped.code == 1 && piped.err.contains("lists no hosts"), "{} {}", piped.out, piped.err);
    assert_eq!(spec("gpu-01").get("hold"), None);
    let refused = server.feed(&["register", "hosts", "-f", "-"], "[]");
    assert!(refused.code == 1 && refused.err.contains("lists no hosts"), "{}", refused.err);
    let broken = file("broken.csv", &format!("{TABLE}x,redfish\n"));
    let refused = server.run(&["sync", "hosts", "-f", &broken]).failed(1, "broken.csv");
    assert!(refused.err.contains("nothing was changed"), "{}", refused.err);
}

#[test]
fn half_a_fleet_vanishes_only_when_somebody_says_so_and_places_are_swapped() {
    let server = Server::start();
    let file = |name: &str, text: &str| server.file(name, text).to_str().unwrap_or_default().to_owned();
    let head = "name,powerInterface,mgmtAddress,pool,rack,slot,inventoryId\n";
    let line =
        |number: u32, place: u32| format!("h-{number},redfish,10.9.0.{place},gpu,r1,{place},D-{number}\n");
    let table = |hosts: &[(u32, u32)]| {
        hosts.iter().fold(head.to_owned(), |table, (number, place)| table + &line(*number, *place))
    };
    let all: Vec<_> = (1..=8).map(|number| (number, number)).collect();
    server.run(&["sync", "hosts", "-f", &file("all.csv", &table(&all))]).ok();
    let few = file("few.csv", &table(&all[..2]));
    for extra in [&[][..], &["--dry-run"], &["--allow-vanished", "5"]] {
        let refused = server.run(&[&["sync", "hosts", "-f", &few], extra].concat()).failed(1, "sync");
        assert!(refused.err.contains("6 of 8 hosts are missing"), "{}", refused.err);
        assert!(refused.out.contains("! host/h-3") && refused.out.contains("6 vanished"), "{}", refused.out);
    }
    let held = || server.run(&["get", "hosts", "-o", "jsonpath={.items[*].spec.hold.by}"]).ok();
    assert!(!held().contains("dcim-sync"));
    server.run(&["sync", "hosts", "-f", &few, "--allow-vanished", "6"]).ok();
    assert_eq!(held().matches("dcim-sync").count(), 6);
    // Two of them changed places, one moved away, and a new one is where that one was. One had no inventory id yet.
    server.run(&["patch", "host", "h-5", "--patch", "{\"spec\":{\"inventoryId\":null}}"]).ok();
    let mut swapped = all.clone();
    (swapped[0].1, swapped[1].1, swapped[2].1) = (2, 1, 9);
    swapped.push((9, 3));
    let swapped = file("swapped.csv", &table(&swapped));
    let told = server.run(&["sync", "hosts", "-f", &swapped]).ok();
    assert!(told.contains("inventoryId: nothing -> D-5"), "{told}");
    let place = |name: &str| server.json(&["get", "host", name])["spec"]["slot"].clone();
    assert_eq!(["h-1", "h-2", "h-3", "h-9"].map(place), [2, 1, 9, 3]);
    let again = server.run(&["sync", "hosts", "-f", &swapped]).ok();
    assert!(again.contains("0 to register, 0 to change, 0 vanished"), "{again}");
    // A name that another machine has stops nobody else.
    let clash = table(&all).replace(",D-1\n", ",D-77\n").replace(",gpu,r1,8,", ",train,r1,8,");
    let refused = server.run(&["sync", "hosts", "-f", &file("clash.csv", &clash)]).failed(1, "sync");
    assert!(refused.err.contains("host h-1") && refused.err.contains("inventory id D-1"), "{}", refused.err);
    assert_eq!(server.json(&["get", "host", "h-8"])["spec"]["pool"], "train");
    // Every host of a wish is asked, whatever became of those before it.
    let told = server.run(&["hold", "host", "h-8", "nobody", "h-7", "--reason", "fans"]).failed(3, "hold");
    assert!(told.out.contains("host/h-8 held") && told.out.contains("host/h-7 held"), "{}", told.out);
    assert!(told.err.contains("nobody") && told.err.contains("1 of 3 hosts failed"), "{}", told.err);
}

#[test]
fn a_large_file_is_registered_in_pieces_that_the_server_takes() {
    let server = Server::start();
    let hosts: Vec<Value> = (0..90)
        .map(|number| {
            serde_json::json!({ "name": format!("big-{number}"), "spec": { "powerInterface": "redfish", "pool": "big",
                "mgmtAddress": format!("10.8.0.{}", number + 1), "tlsVerify": "ca",
                "drivers": [{ "kind": "redfish", "settings": { "caBundle": certificates(20 << 10) } }] } })
        })
        .collect();
    let file = server.file("big.json", &serde_json::json!({ "hosts": hosts }).to_string());
    let told = server.run(&["register", "hosts", "-q", "-f", file.to_str().unwrap_or_default()]).ok();
    assert!(told.contains("90 registered, 0 unchanged, 0 failed"), "{told}");
}

/// Text of about this length, as a bundle of authorities has it.
fn certificates(bytes: usize) -> String {
    let one = format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", "QUFB".repeat(400));
    one.repeat(bytes / one.len() + 1)
}

/// Two people whose tokens are let in: one who works in two projects, and one who sees all of them.
#[test]
fn an_export_says_nothing_about_the_hosts_of_other_projects() {
    use sha2::Digest as _;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("the file can be written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let tokens = ["kits-token", "adas-token"].map(|token| (write(token, token), sha2::Sha256::digest(token)));
    let config = write(
        "muster.yaml",
        &format!(
            "auth:\n  mode: token\n  tokens:\n    - {{user: kit, sha256: {}}}\n    - {{user: ada, sha256: {}}}\n  \
             bindings:\n    - {{user: kit, project: lab, role: admin}}\n    - {{user: kit, project: web, role: admin}}\n    \
             - {{user: ada, role: admin}}\n",
            hex::encode(tokens[0].1),
            hex::encode(tokens[1].1)
        ),
    );
    let server = Server::start_with(&["--config", &config]);
    let run = |who: usize, words: &[&str]| server.run(&[words, &["--token-file", &tokens[who].0]].concat());
    let (lab, web) = TABLE.trim_end().rsplit_once('\n').expect("two hosts");
    let lab = write("lab.csv", lab);
    let web = write("web.csv", &format!("{}\n{web}\n", TABLE.lines().next().unwrap_or_default()));
    run(0, &["sync", "hosts", "-f", &web, "--project", "web"]).ok();
    let told = run(0, &["sync", "hosts", "-f", &lab]).ok();
    assert!(told.contains("1 to register, 0 to change, 0 vanished"), "{told}");
    let refused = run(1, &["sync", "hosts", "-f", &lab]).failed(1, "sync");
    assert!(refused.err.contains("--project"), "{}", refused.err);
    let told = run(1, &["sync", "hosts", "-f", &lab, "--project", "lab"]).ok();
    assert!(told.contains("0 vanished and to be held, 1 unchanged"), "{told}");
    let held = run(1, &["get", "host", "gpu-02", "-o", "jsonpath={.spec.hold}"]).ok();
    assert_eq!(held.trim(), "");
}

#[test]
fn a_file_that_is_applied_again_keeps_what_people_laid_over_its_host() {
    let server = Server::start();
    let spec = "kind: BareMetalNode\nname: gpu-09\nspec:\n  powerInterface: redfish\n  mgmtAddress: 10.0.0.9\n  pool: gpu\n";
    let apply = |text: &str| {
        let file = server.file("gpu-09.yaml", text);
        server.run(&["apply", "-f", file.to_str().unwrap_or_default()]).ok()
    };
    apply(spec);
    let pin = format!("sha256:{}", "ab".repeat(32));
    let pinned = format!("{{\"spec\":{{\"pin\":\"{pin}\"}}}}");
    server.run(&["patch", "host", "gpu-09", "--patch", &pinned]).ok();
    server.run(&["power", "off", "gpu-09", "--reason", "chassis open"]).ok();
    server.run(&["maintenance", "on", "host", "gpu-09", "--reason", "fan"]).ok();
    server.run(&["acknowledge", "host", "gpu-09", "--reason", "seen"]).ok();
    let stored = || server.json(&["get", "host", "gpu-09"])["spec"].clone();
    let before = stored();
    assert!(apply(spec).contains("unchanged"));
    assert_eq!(stored(), before);
    apply(&format!("{spec}  zone: north\n  admin: normal\n  hold: null\n"));
    let after = stored();
    assert_eq!((after["zone"].as_str(), after["pin"].as_str()), (Some("north"), Some(pin.as_str())));
    assert!(
        after["hold"].is_null() && after["admin"].as_str().is_none_or(|admin| admin == "normal"),
        "{after}"
    );
    assert!(after["powerState"].is_null(), "the wish ends with its hold: {after}");
    // A key belongs to the place where it was compared.
    apply(&spec.replace("10.0.0.9", "10.0.0.8"));
    assert!(stored()["pin"].is_null());
    // So it is with the key of a driver at a place of its own.
    let driven = |address: &str| format!("{spec}  drivers:\n  - kind: redfish\n    address: {address}\n");
    apply(&driven("10.0.0.7"));
    let approved = format!(
        "{{\"spec\":{{\"drivers\":[{{\"kind\":\"redfish\",\"address\":\"10.0.0.7\",\"settings\":{{\"pin\":\"{pin}\"}}}}]}}}}"
    );
    server.run(&["patch", "host", "gpu-09", "--patch", &approved]).ok();
    assert!(apply(&driven("10.0.0.7")).contains("unchanged"));
    assert_eq!(stored()["drivers"][0]["settings"]["pin"].as_str(), Some(pin.as_str()));
    apply(&driven("10.0.0.6"));
    assert!(stored()["drivers"][0]["settings"]["pin"].is_null());
}

#[test]
fn an_operator_works_on_a_server_and_reads_its_story() {
    let server = Server::start();
    server.run(&["create", "rack", "a1", "--units", "42", "--watt-cap", "12000"]).ok();
    server.run(&["create", "boot-profile", "net", "--target", "pxe", "--mode", "uefi"]).ok();
    let made = server.run(&[
        "create",
        "host",
        "gpu-07",
        "--pool",
        "gpu",
        "--address",
        "10.0.0.7",
        "--mac",
        "02:00:00:00:00:07",
        "--rack",
        "a1/12",
        "--resources",
        "cpu=64,memory=512Gi,gpu=8",
        "--labels",
        "tier=a",
        "--boot-profile",
        "net",
    ]);
    assert_eq!(made.ok().trim(), "host/gpu-07 created");
    server.run(&["label", "host", "gpu-07", "team=ml", "tier-"]).ok();
    assert!(
        server
            .run(&["hold", "host", "gpu-07", "--reason", "new disk", "--for", "2h"])
            .ok()
            .contains("held until")
    );
    server.run(&["release", "host/gpu-07"]).ok();
    let begun = server.run(&["power", "off", "gpu-07", "--reason", "smells burnt"]).ok();
    assert!(begun.contains("host/gpu-07 power off: operation/"), "{begun}");
    let id = begun.split("operation/").nth(1).unwrap_or_default();
    let id: String = id.chars().take_while(|letter| letter.is_ascii_hexdigit() || *letter == '-').collect();
    let refused = server.run(&["cancel", &format!("operation/{id}"), "--reason", "it is fine"]);
    assert!(refused.err.contains("asked for by hand: muster release host gpu-07"), "{}", refused.err);
    server.run(&["acknowledge", "host", "gpu-07", "--reason", "it was the toaster"]).ok();
    let story = server.run(&["history", "host", "gpu-07"]).ok();
    for part in ["create", "label", "new disk", "smells burnt", "it was the toaster", "user@example.com"] {
        assert!(story.contains(part), "{part} is missing:\n{story}");
    }
    // The pool of the host shows the same, host by host.
    server.run(&["create", "cluster", "lab", "--platform", "baremetal"]).ok();
    server.run(&["create", "pool", "lab/gpu", "--platform", "baremetal", "--count", "0"]).ok();
    for words in [["history", "pool", "lab/gpu"].as_slice(), &["history", "pool/lab/gpu"]] {
        let story = server.run(words).ok();
        let line = story.lines().find(|line| line.contains("smells burnt")).unwrap_or_default();
        assert!(line.contains("gpu-07") && line.contains("user@example.com"), "{story}");
    }
    let told = server.run(&["describe", "host", "gpu-07"]).ok();
    for part in [
        "gpu-07",
        "a1/12",
        "off/enrolling",
        "held by user@example.com: smells burnt",
        "64 CPU, 512Gi memory, 8 GPU",
        "unknown: not read yet",
        "team=ml",
        "Last events",
        "muster release host gpu-07",
    ] {
        assert!(told.contains(part), "{part} is missing:\n{told}");
    }
    let operations = server.run(&["get", "operations"]).ok();
    assert!(operations.contains("power-off") && operations.contains("host gpu-07"), "{operations}");
    server.run(&["patch", "host", "gpu-07", "--patch", "{\"spec\":{\"zone\":\"north\"}}"]).ok();
    server.run(&["power", "on", "gpu-99", "--reason", "x"]).failed(3, "host gpu-99");
    server.run(&["delete", "rack", "a1", "--yes"]).failed(4, "rack a1");
    assert_eq!(server.run(&["delete", "host", "gpu-07", "--yes"]).ok().trim(), "host/gpu-07 deleted");
    server.run(&["delete", "rack", "a1", "--yes"]).ok();
    assert!(server.run(&["doctor"]).ok().contains("no record set aside"));
}

#[test]
fn a_password_comes_by_file_or_pipe_and_is_never_shown() {
    let server = Server::start();
    let file = server.file("password", "canary-1234\n");
    let file = file.to_str().unwrap_or_default();
    let mut said =
        vec![server.run(&["create", "credential", "rack-a", "--user", "root", "--password-file", file])];
    said.push(
        server.feed(
            &["rotate", "credential", "rack-a", "--user", "root", "--password-file", "-"],
            "canary-5678",
        ),
    );
    assert!(said[1].out.contains("version 2"), "{} {}", said[1].out, said[1].err);
    said.push(server.run(&["create", "credential", "rack-a", "--user", "root", "--password-file", file]));
    assert_eq!(said[2].code, 4);
    said.push(server.run(&["create", "credential", "rack-b", "--password-file", file]));
    assert_eq!(said[3].code, 1, "an account needs a user");
    for command in [
        &["get", "credentials", "-o", "yaml"][..],
        &["get", "credentials"],
        &["describe", "credential", "rack-a"],
    ] {
        said.push(server.run(command));
    }
    for ran in &said {
        assert!(!ran.out.contains("canary") && !ran.err.contains("canary"), "{} {}", ran.out, ran.err);
    }
    assert_eq!(
        server.run(&["create", "credential", "x", "--user", "root"]).code,
        2,
        "there is no way to type it"
    );
    assert_eq!(server.run(&["create", "credential", "x", "--user", "root", "--password", "canary"]).code, 2);
}
