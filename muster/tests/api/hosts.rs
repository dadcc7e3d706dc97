//! The inventory over HTTP: servers, racks, boot profiles, credentials, and the pool's view of its servers.

use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use serde_json::{Value, json};

use crate::harness::{Caller, World, rows};

rows!(
    hosts_are_registered_read_changed_and_deleted,
    hosts_are_filtered_and_paged,
    a_watch_on_hosts_tells_every_change,
    many_hosts_have_a_verdict_each,
    bad_hosts_are_refused_with_every_fault,
    two_records_never_mean_one_machine,
    twenty_writers_at_once_lose_nothing,
    people_hold_maintain_label_and_acknowledge,
    power_by_hand_is_an_operation_with_a_hold,
    only_those_who_may_change_the_inventory,
    racks_have_room_for_their_hosts,
    boot_profiles_are_named_records,
    boot_progress_comes_with_a_token,
    bm_7_9_credentials_rotate_and_never_come_back,
    a_pool_owns_its_name_in_the_inventory,
    exports_can_be_registered_again,
    several_hosts_are_patched_at_one_moment,
);

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A name, and a spec whose addresses nobody else has.
fn fresh(prefix: &str) -> (String, Value) {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mac = format!("02:00:00:00:{:02x}:{:02x}", number / 256, number % 256);
    let bmc = format!("10.77.{}.{}", number / 250, number % 250 + 1);
    let spec = json!({"powerInterface": "redfish", "mgmtAddress": bmc, "macAddress": mac, "pool": prefix,
        "resources": {"cpu": "64", "memory": "512Gi", "gpu": 8}, "labels": {"row": prefix}});
    (format!("{prefix}-{number}"), spec)
}

async fn register(user: &Caller, prefix: &str) -> String {
    let (name, spec) = fresh(prefix);
    user.post("/api/v1/hosts", &json!({"name": name, "spec": spec})).await.expect(201);
    name
}

async fn hosts_are_registered_read_changed_and_deleted(world: World) {
    let user = world.user();
    let (name, spec) = fresh("crud");
    let body = json!({"name": name, "spec": spec});
    let dry = user.post("/api/v1/hosts?dryRun=true", &body).await.expect(201);
    assert_eq!(dry.body["spec"]["pool"], "crud");
    user.get(&format!("/api/v1/hosts/{name}")).await.refused(404, "NOT_FOUND");
    let made = user.post("/api/v1/hosts", &body).await.expect(201);
    assert_eq!(made.header("location"), format!("/api/v1/hosts/{name}"));
    assert_eq!((&made.body["kind"], &made.body["health"]), (&json!("BareMetalNode"), &json!("Unknown")));
    assert_eq!(made.body["status"]["phase"], "enrolling");
    assert_eq!(made.body["status"]["powerState"], "unknown", "nobody has read it");
    user.post("/api/v1/hosts", &body).await.refused(409, "CONFLICT");
    let once = user.and("idempotency-key", &format!("key-{name}"));
    let twice = json!({"name": format!("{name}-once"), "spec": fresh("crud").1});
    let first = once.post("/api/v1/hosts", &twice).await.expect(201);
    let again = once.post("/api/v1/hosts", &twice).await.expect(201);
    for field in ["name", "created_at", "resource_version", "spec"] {
        assert_eq!(again.body[field], first.body[field], "{field}"); // its status moves on meanwhile
    }
    once.post("/api/v1/hosts", &body).await.refused(422, "IDEMPOTENCY_MISMATCH");
    // The seed's noun leads to the same host.
    let path = format!("/api/v1/baremetalnodes/{name}");
    let read = user.get(&path).await.expect(200);
    assert_eq!(read.body["resource_version"], made.body["resource_version"]);
    let tag = read.header("etag").to_owned();
    user.and("if-none-match", &tag).get(&path).await.expect(304);
    // What was read can be sent back.
    user.and("if-match", &tag).put(&path, &read.body).await.expect(200);
    let patched =
        user.patch(&path, &json!({"spec": {"labels": {"tier": "a", "row": null}}})).await.expect(200);
    assert_eq!(patched.body["spec"]["labels"], json!({"tier": "a"}));
    user.and("if-match", &tag)
        .patch(&path, &json!({"spec": {"zone": "z"}}))
        .await
        .refused(412, "PRECONDITION_FAILED");
    user.patch(&path, &json!({"name": "other", "spec": {}})).await.refused(400, "VALIDATION_ERROR");
    let replaced = user
        .put(
            &path,
            &json!({"spec": {"powerInterface": "wol", "pool": "crud", "macAddress": spec["macAddress"],
                "drivers": [{"kind": "wol", "settings": {"broadcast": "10.20.0.255"}}]}}),
        )
        .await
        .expect(200);
    assert_eq!(replaced.body["created_by"], made.body["created_by"], "who registered it stays");
    let story = user.get(&format!("{path}/events")).await.expect(200);
    // What the host loop tells of its looks stands in between.
    let events = story.body["events"].as_array().unwrap().iter();
    let people = events.filter(|event| event["source"] == "inventory");
    let verbs: Vec<&str> = people.map(|event| event["what"].as_str().unwrap()).collect();
    assert_eq!(verbs, ["create", "patch", "replace"]);
    user.and("if-match", "\"1\"").delete(&path).await.refused(412, "PRECONDITION_FAILED");
    assert_eq!(user.delete(&format!("{path}?dryRun=true")).await.expect(202).body["gone"], true);
    let gone = user.delete(&path).await.expect(202);
    assert_eq!(gone.body["gone"], true, "nothing works on it: {}", gone.body);
    user.get(&path).await.refused(404, "NOT_FOUND");
    user.delete(&path).await.refused(404, "NOT_FOUND");
}

async fn hosts_are_filtered_and_paged(world: World) {
    let user = world.user();
    let mut names = Vec::new();
    for _ in 0..5 {
        names.push(register(&user, "page").await);
    }
    let (name, mut spec) = fresh("page");
    spec["rack"] = json!("r9");
    user.post("/api/v1/hosts", &json!({"name": name, "spec": spec})).await.expect(201);
    let total = |query: &str| {
        let (user, path) = (user.clone(), format!("/api/v1/hosts?{query}"));
        async move { user.get(&path).await.expect(200).body["total"].as_u64().unwrap() }
    };
    assert_eq!(total("pool=page").await, 6);
    assert_eq!(total("pool=page&rack=r9").await, 1);
    assert_eq!(total("pool=page&state=off&phase=enrolling&health=Unknown").await, 6);
    assert_eq!(total("pool=page&state=ready").await, 0);
    assert_eq!(total("labelSelector=row%3Dpage").await, 6);
    assert_eq!(total("labelSelector=row%20notin%20(page)").await, 0);
    assert_eq!(total(&format!("fieldSelector=name%3D{name},spec.powerInterface%3Dredfish")).await, 1);
    assert_eq!(total("set_aside=true").await, 0);
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = user.get(&format!("/api/v1/hosts?pool=page&limit=2{cursor}")).await.expect(200).body;
        seen.extend(
            page["hosts"].as_array().unwrap().iter().map(|host| host["name"].as_str().unwrap().to_owned()),
        );
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let mut sorted = seen.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!((seen.len(), &sorted), (6, &seen), "every host once, in order");
    for wrong in [
        "state=on",
        "phase=x",
        "limit=0",
        "limit=5001",
        "colour=red",
        "labelSelector=%3D",
        "fieldSelector=x%3D1",
    ] {
        user.get(&format!("/api/v1/hosts?{wrong}")).await.refused(400, "VALIDATION_ERROR");
    }
    // Others see none of them.
    assert_eq!(world.user().get("/api/v1/hosts?pool=page").await.expect(200).body["total"], 0);
    world.user().get(&format!("/api/v1/hosts/{name}")).await.refused(404, "NOT_FOUND");
}

async fn a_watch_on_hosts_tells_every_change(world: World) {
    let user = world.user();
    let first = register(&user, "watch").await;
    let list = user.get("/api/v1/hosts?pool=watch").await.expect(200);
    let from = list.body["revision"].as_str().unwrap().to_owned();
    user.patch(&format!("/api/v1/hosts/{first}"), &json!({"spec": {"zone": "z"}})).await.expect(200);
    let second = register(&user, "watch").await;
    user.delete(&format!("/api/v1/hosts/{first}")).await.expect(202);
    let path = format!("/api/v1/hosts?watch=true&pool=watch&resource_version={from}&timeout_seconds=60");
    let response = user.request("GET", &path).send().await.unwrap();
    let mut stream = response.bytes_stream();
    let mut text = String::new();
    // The host loop tells of its looks in between.
    while !text.lines().any(|line| line.ends_with('}') && line.contains("\"DELETED\"")) {
        let chunk = stream.next().await.expect("the stream goes on").unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let told: Vec<(String, String)> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|event| event["type"] != "BOOKMARK")
        .map(|event| {
            (event["type"].as_str().unwrap().to_owned(), event["object"]["name"].as_str().unwrap().to_owned())
        })
        .collect();
    let of = |name: &str| -> Vec<&str> {
        told.iter().filter(|(_, about)| about == name).map(|(kind, _)| kind.as_str()).collect()
    };
    let (last, before) = of(&first).split_last().map(|(last, before)| (*last, before.to_vec())).unwrap();
    assert_eq!(last, "DELETED", "{told:?}");
    assert!(!before.is_empty() && before.iter().all(|kind| *kind == "MODIFIED"), "{told:?}");
    assert_eq!(of(&second).first(), Some(&"ADDED"), "{told:?}");
    // As server-sent events, from the beginning.
    let request =
        user.request("GET", "/api/v1/hosts?watch=true&pool=watch").header("accept", "text/event-stream");
    let mut stream = request.send().await.unwrap().bytes_stream();
    let mut text = String::new();
    while !text.contains("event: BOOKMARK") {
        text.push_str(std::str::from_utf8(&stream.next().await.unwrap().unwrap()).unwrap());
    }
    assert!(text.starts_with("id: ") && text.contains("event: ADDED") && text.contains(&second), "{text}");
}

async fn many_hosts_have_a_verdict_each(world: World) {
    let user = world.user();
    let (a, spec_a) = fresh("bulk");
    let (b, spec_b) = fresh("bulk");
    let line = |name: &str, spec: &Value| {
        format!(
            "{name},redfish,{},{},bulk,64",
            spec["mgmtAddress"].as_str().unwrap(),
            spec["macAddress"].as_str().unwrap()
        )
    };
    let table = format!(
        "name,powerInterface,mgmtAddress,macAddress,pool,cpu\n{}\n# a comment\n{}\nBAD,redfish,10.1.1.1,,bulk,1\nx,redfsh,10.1.1.2,,bulk,1\n{}\n",
        line(&a, &spec_a),
        line(&b, &spec_b),
        line("twin", &spec_a)
    );
    let dry =
        user.raw("POST", "/api/v1/hosts/bulk?dryRun=true", "text/csv", table.clone()).await.expect(200).body;
    assert_eq!((&dry["created"], &dry["failed"]), (&json!(2), &json!(3)), "{dry}");
    assert_eq!(
        user.get("/api/v1/hosts?pool=bulk").await.expect(200).body["total"],
        0,
        "a dry run stores nothing"
    );
    let real = user.raw("POST", "/api/v1/hosts/bulk", "text/csv", table.clone()).await.expect(200).body;
    assert_eq!(real["lines"], dry["lines"], "the verdicts are the same");
    let by_line =
        |line: u64| real["lines"].as_array().unwrap().iter().find(|l| l["line"] == line).unwrap().clone();
    assert_eq!(by_line(2)["result"], "created");
    assert!(by_line(5)["message"].as_str().unwrap().contains("name"), "{real}");
    assert!(by_line(6)["message"].as_str().unwrap().contains("did you mean redfish?"), "{real}");
    assert!(by_line(7)["message"].as_str().unwrap().contains(&format!("belongs to host {a}")), "{real}");
    let again = user.raw("POST", "/api/v1/hosts/bulk", "text/csv", table).await.expect(200).body;
    assert_eq!((&again["created"], &again["unchanged"]), (&json!(0), &json!(2)), "{again}");
    // Where packets go is asked for before a host is registered that nothing could wake.
    let woken = |name: &str, mac: &Value, broadcast: &str| {
        format!(
            "name,powerInterface,macAddress,pool,broadcast\n{name},wol,{},bulk,{broadcast}\n",
            mac.as_str().unwrap()
        )
    };
    let (edge, spec) = fresh("edge");
    for (broadcast, result) in [("", "failed"), ("10.20.0.255", "created"), ("10.20.0.255", "unchanged")] {
        let table = woken(&edge, &spec["macAddress"], broadcast);
        let answer = user.raw("POST", "/api/v1/hosts/bulk", "text/csv", table).await.expect(200).body;
        assert_eq!(answer["lines"][0]["result"], result, "{answer}");
        let message = answer["lines"][0]["message"].as_str().unwrap_or_default();
        assert_eq!(message.contains("broadcast: is required for wol"), broadcast.is_empty(), "{answer}");
    }
    let bare = json!({"name": "bare", "spec": {"powerInterface": "wol", "pool": "bulk", "macAddress": "02:00:00:00:77:01"}});
    let refused = user.post("/api/v1/hosts", &bare).await.refused(400, "VALIDATION_ERROR");
    assert!(refused.details().contains("broadcast: is required for wol"), "{}", refused.body);
    let (c, spec_c) = fresh("bulk");
    let yaml = format!("hosts:\n- name: {c}\n  spec: {spec_c}\n- name: {c}\n  spec: {spec_c}\n");
    let answer = user.raw("POST", "/api/v1/hosts/bulk", "application/yaml", yaml).await.expect(200).body;
    assert_eq!((&answer["created"], &answer["failed"]), (&json!(1), &json!(1)), "listed twice: {answer}");
    for (kind, text) in [
        ("text/csv", "nmae,pool\na,b\n"),
        ("application/yaml", "a: [1"),
        ("application/json", "5"),
        ("application/yaml", "hosts: 5"),
    ] {
        user.raw("POST", "/api/v1/hosts/bulk", kind, text).await.refused(400, "VALIDATION_ERROR");
    }
    user.raw("POST", "/api/v1/hosts/bulk", "text/plain", "x").await.refused(415, "UNSUPPORTED_MEDIA_TYPE");
}

async fn bad_hosts_are_refused_with_every_fault(world: World) {
    let user = world.user();
    let good = fresh("bad").1;
    let with = |path: &str, value: Value| {
        let mut spec = good.clone();
        spec[path] = value;
        json!({"name": "bad-host", "spec": spec})
    };
    let long = "x".repeat(300);
    for (body, part) in [
        (json!([]), "must be"),
        (json!({"spec": good}), "name: is required"),
        (json!({"name": "bad-host"}), "spec: is required"),
        (json!({"name": "Bad", "spec": good}), "name"),
        (json!({"name": "ünïcode", "spec": good}), "name"),
        (json!({"name": "a".repeat(64), "spec": good}), "name"),
        (json!({"name": "../etc", "spec": good}), "name"),
        (json!({"name": 5, "spec": good}), "name"),
        (json!({"name": "bad-host", "spec": "x"}), "spec"),
        (with("pool", json!("Not A Label")), "spec.pool"),
        (with("powerInterface", json!("redfsh")), "did you mean redfish?"),
        (with("mgmtAddress", json!("http://10.0.0.1/x")), "spec.mgmtAddress"),
        (with("macAddress", json!("zz")), "spec.macAddress"),
        (with("resources", json!({"cpu": "-1"})), "must not be negative"),
        (with("resources", json!({"gpu": 4096})), "spec.resources.gpu"),
        (with("resources", json!({"memory": "1Gb"})), "spec.resources.memory"),
        (with("slot", json!(0)), "spec.slot"),
        (with("slot", json!(5)), "needs a rack"),
        (with("labels", json!({"a": 5})), "spec.labels"),
        (with("labels", json!({"kubernetes.io/hostname": "x"})), "spec.labels"),
        (with("serial", json!(long)), "spec.serial"),
        (with("idleWatts", json!(9_000_000)), "spec.idleWatts"),
        (with("drivers", json!([{"kind": "ssh"}])), "spec.drivers[0].kind"),
        (with("drivers", json!(vec![json!({"kind": "wol"}); 20])), "spec.drivers"),
        (with("deadlines", json!({"bootDeadline": "forever"})), "spec.deadlines.bootDeadline"),
        (with("project", json!("somebody-else")), "spec.project"),
        (with("surprise", json!(true)), "is not a known field"),
        (with("password", json!("hunter2")), "is not a known field"),
    ] {
        let reply = user.post("/api/v1/hosts", &body).await.refused(400, "VALIDATION_ERROR");
        assert!(reply.details().contains(part), "{part} is missing for {body}: {}", reply.details());
    }
    user.raw("POST", "/api/v1/hosts", "application/json", "{").await.refused(400, "VALIDATION_ERROR");
    user.raw("POST", "/api/v1/hosts", "application/json", "{\"name\":\"a\",\"name\":\"b\"}")
        .await
        .refused(400, "VALIDATION_ERROR");
    let huge = format!("{{\"name\":\"{}\"}}", "a".repeat(2 << 20));
    user.raw("POST", "/api/v1/hosts", "application/json", huge).await.refused(413, "PAYLOAD_TOO_LARGE");
    user.get("/api/v1/hosts/bad-host").await.refused(404, "NOT_FOUND");
}

async fn two_records_never_mean_one_machine(world: World) {
    let user = world.user();
    let (name, mut spec) = fresh("twin");
    (spec["serial"], spec["inventoryId"], spec["rack"], spec["slot"], spec["height"]) =
        (json!("SN-TWIN"), json!(format!("ID-{name}")), json!(format!("rack-{name}")), json!(10), json!(4));
    spec["serial"] = json!(format!("SN-{name}"));
    user.post("/api/v1/hosts", &json!({"name": name, "spec": spec})).await.expect(201);
    let other = fresh("twin").1;
    for (field, value, also) in [
        ("macAddress", json!(spec["macAddress"].as_str().unwrap().to_uppercase().replace(':', "-")), None),
        ("mgmtAddress", spec["mgmtAddress"].clone(), None),
        ("serial", json!(format!("sn-{name}")), None),
        ("inventoryId", spec["inventoryId"].clone(), None),
        ("slot", json!(13), Some(("rack", spec["rack"].clone()))),
    ] {
        let mut wrong = other.clone();
        wrong[field] = value;
        if let Some((field, value)) = also {
            wrong[field] = value;
        }
        let reply = user
            .post("/api/v1/hosts", &json!({"name": "twin-two", "spec": wrong}))
            .await
            .refused(409, "CONFLICT");
        assert!(
            reply.details().contains(field) && reply.details().contains(&name),
            "{field}: {}",
            reply.details()
        );
    }
    // Another system behind the same BMC is another machine.
    let mut second = other.clone();
    (second["mgmtAddress"], second["systemId"]) = (spec["mgmtAddress"].clone(), json!("2"));
    user.post("/api/v1/hosts", &json!({"name": format!("{name}-b"), "spec": second})).await.expect(201);
}

async fn twenty_writers_at_once_lose_nothing(world: World) {
    let user = world.user();
    // Twenty claim one card: one of them gets it.
    let spec = fresh("race").1;
    let claims = (0..20).map(|n| {
        let (user, body) =
            (user.clone(), json!({"name": format!("claim-{}-{n}", world.store), "spec": spec}));
        async move { user.post("/api/v1/hosts", &body).await.status }
    });
    let codes = futures::future::join_all(claims).await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 1, "{codes:?}");
    assert!(codes.iter().all(|code| matches!(code, 201 | 409)), "{codes:?}");
    // Twenty change one host: every change is there.
    let name = register(&user, "race").await;
    let labels = (0..20).map(|n| {
        let (user, path) = (user.clone(), format!("/api/v1/hosts/{name}/label"));
        async move { user.post(&path, &json!({"labels": {format!("l{n}"): "x"}})).await.expect(200) }
    });
    futures::future::join_all(labels).await;
    let host = user.get(&format!("/api/v1/hosts/{name}")).await.expect(200).body;
    assert_eq!(host["spec"]["labels"].as_object().unwrap().len(), 21, "{host}");
}

async fn people_hold_maintain_label_and_acknowledge(world: World) {
    let user = world.user();
    let path = format!("/api/v1/hosts/{}", register(&user, "act").await);
    for (verb, body) in [
        ("hold", json!({})),
        ("hold", json!({"reason": ""})),
        ("hold", json!({"reason": "x", "until": "yesterday"})),
        ("hold", json!({"reason": "x", "until": "2001-01-01T00:00:00Z"})),
        ("hold", json!({"reason": "x", "until": "2999-01-01T00:00:00Z", "for": "1h"})),
        ("hold", json!({"reason": "x".repeat(500)})),
        ("maintenance", json!({"on": true})),
        ("maintenance", json!({"reason": "x"})),
        ("acknowledge", json!({})),
        ("approve", json!({})),
        ("approve", json!({"pin": "sha256:12"})),
        ("label", json!({"labels": {"bad key": "x"}})),
        ("power", json!({"action": "explode", "reason": "x"})),
        ("power", json!({"action": "on"})),
    ] {
        user.post(&format!("{path}/{verb}"), &body).await.refused(400, "VALIDATION_ERROR");
    }
    let held = user
        .post(&format!("{path}/hold"), &json!({"reason": "new disk", "for": "2h"}))
        .await
        .expect(200)
        .body;
    assert_eq!(held["spec"]["hold"]["reason"], "new disk");
    assert!(held["spec"]["hold"]["until"].is_string());
    let released = user.post(&format!("{path}/release"), &json!({})).await.expect(200).body;
    assert!(released["spec"].get("hold").is_none());
    let on = user
        .post(&format!("{path}/maintenance"), &json!({"on": true, "reason": "fan"}))
        .await
        .expect(200)
        .body;
    assert_eq!(on["spec"]["admin"], "maintenance");
    let off = user.post(&format!("{path}/maintenance"), &json!({"on": false})).await.expect(200).body;
    assert!(off["spec"].get("admin").is_none_or(|admin| admin == "normal"), "{off}");
    let seen = user
        .post(&format!("{path}/acknowledge"), &json!({"reason": "cable put back"}))
        .await
        .expect(200)
        .body;
    assert_eq!(seen["spec"]["acknowledgement"]["reason"], "cable put back");
    let pin = format!("sha256:{}", "ab".repeat(32));
    let approved = user.post(&format!("{path}/approve"), &json!({ "pin": pin })).await.expect(200).body;
    assert_eq!(approved["spec"]["pin"], pin.as_str());
    // A key belongs to the place where it was compared: a BMC that moves has to be looked at again.
    let moved = user.patch(&path, &json!({"spec": {"mgmtAddress": "10.9.9.9"}})).await.expect(200).body;
    assert!(moved["spec"]["pin"].is_null(), "{moved}");
    let both = json!({"spec": {"mgmtAddress": "10.9.9.8", "pin": pin}});
    assert_eq!(user.patch(&path, &both).await.expect(200).body["spec"]["pin"], pin.as_str());
    // A whole document repeats the key, and says nothing about the new place.
    let mut whole = user.get(&path).await.expect(200).body["spec"].clone();
    whole["mgmtAddress"] = "10.9.9.7".into();
    let moved = user.put(&path, &json!({ "spec": whole })).await.expect(200);
    assert!(moved.body["spec"]["pin"].is_null(), "{}", moved.body);
    assert!(moved.header("warning").contains("spec.pin was dropped"), "{}", moved.header("warning"));
    user.post(&format!("{path}/approve"), &json!({ "pin": pin })).await.expect(200);
    user.patch(&path, &json!({"spec": {"tlsVerify": "webpki"}})).await.refused(400, "VALIDATION_ERROR");
    user.patch(&path, &json!({"spec": {"tlsVerify": "webpki", "pin": null}})).await.expect(200);
    let refused = user.post(&format!("{path}/approve"), &json!({ "pin": pin })).await;
    assert!(refused.refused(400, "VALIDATION_ERROR").details().contains("tlsVerify webpki"));
    let label = user
        .post(&format!("{path}/label"), &json!({"labels": {"tier": "b", "row": null}}))
        .await
        .expect(200)
        .body;
    assert_eq!(label["spec"]["labels"], json!({"tier": "b"}));
    let story = user.get(&format!("{path}/events")).await.expect(200).body;
    let text = story.to_string();
    for part in
        ["new disk", "fan", "maintenance is over", "cable put back", "hold", "release", "approve", &pin]
    {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
}

async fn power_by_hand_is_an_operation_with_a_hold(world: World) {
    let user = world.user();
    let name = register(&user, "power").await;
    let path = format!("/api/v1/hosts/{name}");
    let dry = user
        .post(&format!("{path}/power?dryRun=true"), &json!({"action": "on", "reason": "test"}))
        .await
        .expect(202);
    assert_eq!(dry.body["state"], "Running");
    assert!(
        user.get(&path).await.expect(200).body["spec"].get("powerState").is_none(),
        "a dry run writes nothing"
    );
    let reply =
        user.post(&format!("{path}/power"), &json!({"action": "on", "reason": "test"})).await.expect(202);
    let id = reply.body["id"].as_str().unwrap().to_owned();
    assert_eq!((&reply.body["kind"], &reply.body["host"]), (&json!("power-on"), &json!(name)));
    let host = user.get(&path).await.expect(200).body;
    assert_eq!(
        (&host["spec"]["powerState"], &host["spec"]["hold"]["reason"]),
        (&json!("on"), &json!("test"))
    );
    // Another wish takes its place; the operation says so.
    user.post(&format!("{path}/power"), &json!({"action": "off", "reason": "changed my mind"}))
        .await
        .expect(202);
    let operation = format!("/api/v1/operations/{id}");
    let ended = user.until(&operation, |body| body["done"] == true).await;
    assert_eq!(ended["state"], "Superseded", "{ended}");
    let list = user.get("/api/v1/operations").await.expect(200).body;
    assert_eq!(list["total"], 2, "{list}");
    let released = user.post(&format!("{path}/release"), &json!({})).await.expect(200).body;
    assert!(released["spec"].get("powerState").is_none(), "the wish ends with its hold");
}

async fn only_those_who_may_change_the_inventory(world: World) {
    let user = world.user();
    let (name, spec) = fresh("roles");
    let body = json!({"name": name, "spec": spec});
    let nobody = world.with(&[]);
    for path in [
        "/api/v1/hosts",
        "/api/v1/racks",
        "/api/v1/credentials",
        "/api/v1/inventory",
        "/api/v1/boot-profiles",
    ] {
        nobody.get(path).await.refused(401, "UNAUTHENTICATED");
    }
    nobody.post("/api/v1/hosts", &body).await.refused(401, "UNAUTHENTICATED");
    user.post("/api/v1/hosts", &body).await.expect(201);
    let path = format!("/api/v1/hosts/{name}");
    let controller = world.controller();
    controller.get(&path).await.expect(200);
    let project = user.get(&path).await.expect(200).body["project"].as_str().unwrap().to_owned();
    let there = controller.and("x-muster-project", &project);
    there
        .post("/api/v1/hosts", &json!({"name": "made-by-controller", "spec": fresh("roles").1}))
        .await
        .refused(403, "FORBIDDEN");
    there.patch(&path, &json!({"spec": {"zone": "z"}})).await.refused(403, "FORBIDDEN");
    there
        .post(&format!("{path}/power"), &json!({"action": "off", "reason": "x"}))
        .await
        .refused(403, "FORBIDDEN");
    there.post(&format!("{path}/hold"), &json!({"reason": "x"})).await.refused(403, "FORBIDDEN");
    there.get("/api/v1/credentials").await.refused(403, "FORBIDDEN");
    there.delete(&path).await.refused(403, "FORBIDDEN");
    // An owner of hosts is no controller.
    user.post(&format!("{path}/boot"), &json!({"stage": "kernel"})).await.refused(403, "FORBIDDEN");
    let pin = format!("sha256:{}", "ab".repeat(32));
    there.post(&format!("{path}/approve"), &json!({ "pin": pin })).await.refused(403, "FORBIDDEN");
    for verb in ["hold", "power", "maintenance", "release", "label", "acknowledge", "approve"] {
        world
            .user()
            .post(
                &format!("{path}/{verb}"),
                &json!({"reason": "x", "action": "off", "on": true, "labels": {}}),
            )
            .await
            .refused(404, "NOT_FOUND");
    }
}

async fn racks_have_room_for_their_hosts(world: World) {
    let user = world.user();
    let rack = format!("rack-{}-{}", world.store, NEXT.fetch_add(1, Ordering::Relaxed));
    let made = user
        .post("/api/v1/racks", &json!({"name": rack, "spec": {"units": 20, "wattCap": 9000}}))
        .await
        .expect(201)
        .body;
    assert_eq!(made["spec"]["startLimit"], 4);
    user.post("/api/v1/racks", &json!({"name": rack, "spec": {}})).await.refused(409, "CONFLICT");
    for wrong in [
        json!({"units": 0}),
        json!({"units": 61}),
        json!({"wattCap": -1}),
        json!({"watCap": 1}),
        json!({"startLimit": 0}),
    ] {
        user.post("/api/v1/racks", &json!({"name": "wrong", "spec": wrong}))
            .await
            .refused(400, "VALIDATION_ERROR");
    }
    let (name, mut spec) = fresh("racked");
    (spec["rack"], spec["slot"], spec["height"]) = (json!(rack), json!(19), json!(4));
    let reply = user
        .post("/api/v1/hosts", &json!({"name": name, "spec": spec}))
        .await
        .refused(400, "VALIDATION_ERROR");
    assert!(reply.details().contains("do not fit rack"), "{}", reply.details());
    spec["slot"] = json!(15);
    user.post("/api/v1/hosts", &json!({"name": name, "spec": spec})).await.expect(201);
    let mut over = fresh("racked").1;
    (over["rack"], over["slot"]) = (json!(rack), json!(18));
    let reply = user
        .post("/api/v1/hosts", &json!({"name": "racked-over", "spec": over}))
        .await
        .refused(409, "CONFLICT");
    assert!(reply.details().contains("unit 18"), "{}", reply.details());
    // A rack cannot shrink under its hosts, nor go.
    let path = format!("/api/v1/racks/{rack}");
    user.patch(&path, &json!({"spec": {"units": 16}})).await.refused(400, "VALIDATION_ERROR");
    user.delete(&path).await.refused(409, "CONFLICT");
    let lower = user.patch(&path, &json!({"spec": {"wattCap": null}})).await.expect(200).body;
    assert!(lower["spec"].get("wattCap").is_none());
    user.delete(&format!("/api/v1/hosts/{name}")).await.expect(202);
    user.delete(&path).await.expect(200);
    user.get(&path).await.refused(404, "NOT_FOUND");
}

async fn boot_profiles_are_named_records(world: World) {
    let user = world.user();
    let name = format!("net-{}-{}", world.store, NEXT.fetch_add(1, Ordering::Relaxed));
    let path = format!("/api/v1/boot-profiles/{name}");
    let made = user
        .post("/api/v1/boot-profiles", &json!({"name": name, "spec": {"target": "pxe", "mode": "uefi"}}))
        .await
        .expect(201);
    assert_eq!(made.body["spec"], json!({"name": name, "target": "pxe", "mode": "uefi", "once": true}));
    user.and("if-match", "\"1\"")
        .patch(&path, &json!({"spec": {"once": false}}))
        .await
        .refused(412, "PRECONDITION_FAILED");
    user.patch(&path, &json!({"spec": {"once": false}})).await.expect(200);
    user.patch(&path, &json!({"spec": {"target": "uefi-http"}})).await.refused(400, "VALIDATION_ERROR");
    let (host, mut spec) = fresh("profiled");
    spec["bootProfile"] = json!("not-there-yet");
    let warned = user.post("/api/v1/hosts", &json!({"name": host, "spec": spec})).await.expect(201);
    assert!(warned.header("warning").contains("not-there-yet"), "{}", warned.header("warning"));
    user.patch(&format!("/api/v1/hosts/{host}"), &json!({"spec": {"bootProfile": name}})).await.expect(200);
    user.delete(&path).await.refused(409, "CONFLICT");
    let list = user.get("/api/v1/boot-profiles").await.expect(200).body;
    assert_eq!(list["total"], 1, "{list}");
}

async fn boot_progress_comes_with_a_token(world: World) {
    let user = world.user();
    let (name, other) = (register(&user, "boot").await, register(&user, "boot").await);
    let path = format!("/api/v1/hosts/{name}");
    user.get(&format!("{path}/boot")).await.refused(404, "NOT_FOUND");
    let token = user.post(&format!("{path}/boot-token"), &json!({})).await.expect(201).body["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let pxe = world.with(&[("authorization", &format!("Bearer {token}"))]);
    pxe.post(&format!("{path}/boot"), &json!({"stage": "kernel"})).await.expect(200);
    let report = user.get(&format!("{path}/boot")).await.expect(200).body;
    assert_eq!(
        (&report["stage"], &report["os"], &report["by"]),
        (&json!("kernel"), &json!(false), &json!("boot token"))
    );
    world
        .controller()
        .post(&format!("{path}/boot"), &json!({"stage": "installed", "os": true}))
        .await
        .expect(200);
    // The token is good for this host and this call alone.
    pxe.post(&format!("/api/v1/hosts/{other}/boot"), &json!({"stage": "kernel"}))
        .await
        .refused(401, "UNAUTHENTICATED");
    pxe.get(&path).await.refused(401, "UNAUTHENTICATED");
    for wrong in
        [json!({}), json!({"stage": 5}), json!({"stage": "x", "stge": 1}), json!({"stage": "x".repeat(500)})]
    {
        pxe.post(&format!("{path}/boot"), &wrong).await.refused(400, "VALIDATION_ERROR");
    }
    user.post(&format!("{path}/boot-token"), &json!({})).await.expect(201);
    pxe.post(&format!("{path}/boot"), &json!({"stage": "kernel"})).await.refused(401, "UNAUTHENTICATED");
}

const CANARY: &str = "canary-4711-hunter2";

/// A new version is there without a restart, and no answer gives a value away.
async fn bm_7_9_credentials_rotate_and_never_come_back(world: World) {
    let user = world.user();
    let body = |password: &str| json!({"name": "rack-a", "spec": {"kind": "bmc", "user": "root", "password": password}});
    let mut said = Vec::new();
    said.push(user.post("/api/v1/credentials", &body(CANARY)).await.expect(201).body);
    assert_eq!(said[0]["status"]["version"], 1);
    said.push(user.post("/api/v1/credentials", &body(CANARY)).await.refused(409, "CONFLICT").body);
    let rotated =
        user.post("/api/v1/credentials/rack-a/rotate", &body(&format!("{CANARY}-2"))).await.expect(200).body;
    assert_eq!(rotated["status"]["version"], 2);
    said.push(rotated);
    for wrong in [
        json!({"name": "x", "spec": {"user": "root", "pasword": CANARY}}),
        json!({"name": "x", "spec": {"password": CANARY}}),
        json!({"name": "x", "spec": {"user": "root", "password": {"value": CANARY}}}),
        json!({"name": "x", "spec": {"user": "root", "password": CANARY.repeat(1000)}}),
        json!({"name": "x", "spec": {"kind": "ssh", "user": "root", "password": CANARY}}),
        json!({"name": "x", "password": CANARY, "spec": {}}),
        json!({"name": "x", "spec": CANARY}),
        json!({"name": "x", "spec": {"user": "root", "password": CANARY, "secretName": "s"}}),
    ] {
        said.push(user.post("/api/v1/credentials", &wrong).await.refused(400, "VALIDATION_ERROR").body);
    }
    said.push(
        user.post("/api/v1/credentials", &json!({"name": "k8s", "spec": {"secretName": "s"}}))
            .await
            .refused(409, "CONFLICT")
            .body,
    );
    for path in [
        "/api/v1/credentials",
        "/api/v1/credentials/rack-a",
        "/api/v1/hosts/export",
        "/api/v1/inventory",
        "/api/v1/operations",
    ] {
        said.push(user.get(path).await.expect(200).body);
    }
    let (name, mut spec) = fresh("cred");
    spec["bmcCredentials"] = json!("rack-a");
    said.push(user.post("/api/v1/hosts", &json!({"name": name, "spec": spec})).await.expect(201).body);
    said.push(user.delete("/api/v1/credentials/rack-a").await.refused(409, "CONFLICT").body);
    said.push(user.get(&format!("/api/v1/hosts/{name}/events")).await.expect(200).body);
    for answer in &said {
        assert!(!answer.to_string().contains("canary"), "a value came back: {answer}");
    }
    // The same name in another project is another credential.
    world.user().get("/api/v1/credentials/rack-a").await.refused(404, "NOT_FOUND");
    user.delete(&format!("/api/v1/hosts/{name}")).await.expect(202);
    user.delete("/api/v1/credentials/rack-a").await.expect(200);
}

async fn a_pool_owns_its_name_in_the_inventory(world: World) {
    let user = world.user();
    let cluster = user.cluster("metal").await;
    let inventory = format!("inv-{}-{}", world.store, NEXT.fetch_add(1, Ordering::Relaxed));
    let spec = |settings: Value| {
        let mut block = json!({"pool": inventory});
        block.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        json!({"platform": {"type": "baremetal", "baremetal": block}, "autoscaling": {"enabled": true, "minNodes": 0, "maxNodes": 3}})
    };
    let pools = format!("/api/v1/clusters/{cluster}/nodepools");
    user.post(&pools, &json!({"name": "bad", "spec": spec(json!({"policy": {"quarantineAfter": 0}}))}))
        .await
        .refused(400, "VALIDATION_ERROR");
    let pool = user
        .post(&pools, &json!({"name": "gpu", "spec": spec(json!({"rackSpread": true}))}))
        .await
        .expect(201)
        .id();
    let reply =
        user.post(&pools, &json!({"name": "gpu2", "spec": spec(json!({}))})).await.refused(409, "CONFLICT");
    assert!(reply.body.to_string().contains(&inventory), "{}", reply.body);
    user.post(&format!("{pools}?dryRun=true"), &json!({"name": "gpu2", "spec": spec(json!({}))}))
        .await
        .refused(409, "CONFLICT");
    let (name, mut host) = fresh("owned");
    host["pool"] = json!(inventory);
    user.post("/api/v1/hosts", &json!({"name": name, "spec": host})).await.expect(201);
    let path = format!("/api/v1/nodepools/{pool}");
    let seen = user.until(&path, |body| body["status"]["baremetal"].is_object()).await;
    let view = &seen["status"]["baremetal"];
    for (field, expected) in [
        ("readyNodes", json!(0)),
        ("pendingNodes", json!(0)),
        ("desiredNodes", seen["status"]["desired_nodes"].clone()),
    ] {
        assert_eq!(view[field], expected, "{view}");
    }
    assert_eq!(view["availableResources"]["gpu"], 0, "no node is ready");
    // Its name is free when it is gone: once whoever reported on it has let go.
    user.delete(&path).await.expect(204);
    let gone = format!("{path}?include_deleted=true");
    user.until(&gone, |body| body["error"]["code"] == "NOT_FOUND").await;
    user.post(&pools, &json!({"name": "gpu2", "spec": spec(json!({}))})).await.expect(201);
}

async fn several_hosts_are_patched_at_one_moment(world: World) {
    let user = world.user();
    let [(a, spec_a), (b, spec_b)] = [fresh("swap"), fresh("swap")];
    let mut versions = Vec::new();
    for (name, spec) in [(&a, &spec_a), (&b, &spec_b)] {
        let mut spec = spec.clone();
        spec["registered"] = json!({"by": "somebody else", "at": "2001-01-01T00:00:00Z"});
        let made = user.post("/api/v1/hosts", &json!({"name": name, "spec": spec})).await.expect(201).body;
        assert_ne!(made["created_by"], "somebody else");
        versions.push(made["resource_version"].clone());
    }
    let patch = |name: &str, version: &Value, spec: &Value| json!({"name": name, "resource_version": version, "spec": {"mgmtAddress": spec["mgmtAddress"]}});
    let one = json!({"spec": {"mgmtAddress": spec_b["mgmtAddress"]}});
    user.patch(&format!("/api/v1/hosts/{a}"), &one).await.refused(409, "CONFLICT");
    let path = "/api/v1/hosts/bulk";
    let stale = json!({"hosts": [patch(&a, &versions[0], &spec_b), patch(&b, &json!("1"), &spec_a)]});
    user.patch(path, &stale).await.refused(409, "CONFLICT");
    let swap = json!({"hosts": [patch(&a, &versions[0], &spec_b), patch(&b, &versions[1], &spec_a)]});
    let dry = user.patch(&format!("{path}?dryRun=true"), &swap).await.expect(200).body;
    assert_eq!(dry["dry_run"], true);
    let done = user.patch(path, &swap).await.expect(200).body;
    let places: Vec<_> =
        done["hosts"].as_array().unwrap().iter().map(|host| host["spec"]["mgmtAddress"].clone()).collect();
    assert_eq!(places, [spec_b["mgmtAddress"].clone(), spec_a["mgmtAddress"].clone()]);
    let other = world.user();
    other
        .patch(path, &json!({"hosts": [{"name": a, "spec": {"zone": "z"}}]}))
        .await
        .refused(404, "NOT_FOUND");
    for (body, part) in [
        (json!({}), "hosts: is required"),
        (json!({"hosts": [{"spec": {}}]}), "hosts[0].name: is required"),
        (json!({"hosts": [{"name": a}, {"name": a}]}), "hosts[1].name: is listed twice"),
    ] {
        let refused = user.patch(path, &body).await.refused(400, "VALIDATION_ERROR");
        assert!(refused.details().contains(part), "{}", refused.body);
    }
}

async fn exports_can_be_registered_again(world: World) {
    let user = world.user();
    for _ in 0..3 {
        register(&user, "export").await;
    }
    let path = "/api/v1/hosts/export?pool=export";
    let table =
        user.request("GET", &format!("{path}&format=csv")).send().await.unwrap().text().await.unwrap();
    assert_eq!(table.lines().count(), 4, "{table}");
    let list = user.get(path).await.expect(200).body;
    let again = user.post("/api/v1/hosts/bulk", &list).await.expect(200).body;
    assert_eq!((&again["unchanged"], &again["failed"]), (&json!(3), &json!(0)), "{again}");
    user.get("/api/v1/hosts/export?format=xml").await.refused(400, "VALIDATION_ERROR");
}
