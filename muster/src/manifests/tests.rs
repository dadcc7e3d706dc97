//! What is printed for which flags. That an API server takes it is tested with a real one.

use serde_json::Value;

use super::*;

fn printed(flags: &str) -> anyhow::Result<String> {
    let words = std::iter::once("manifests").chain(flags.split_whitespace());
    print(&Args::try_parse_from(words)?)
}

/// The objects of one kind.
fn of(kind: &str, flags: &str) -> Vec<Value> {
    let text = printed(flags).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    objects.into_iter().filter(|object| object["kind"] == kind).collect()
}

fn settings(flags: &str) -> Value {
    let map = of("ConfigMap", flags).remove(0);
    serde_saphyr::from_str(map["data"]["muster.yaml"].as_str().unwrap()).unwrap()
}

#[test]
fn flags_that_do_not_go_together_are_refused_with_what_to_do() {
    #[track_caller]
    fn check(flags: &str, told: &str) {
        let error = format!("{:#}", printed(flags).unwrap_err());
        assert!(error.contains(told), "{flags}: {error}");
    }
    check("", "--image");
    check("--image m --replicas 2", "need --store etcd://host:port");
    check("--image m --store etcd://a", "write etcd://host:port");
    check("--image m --store /data", "neither embedded nor etcd");
    check("--image m --namespace Not_One", "--namespace");
    check("--image m --auth-mode token", "takes auth.tokens");
    check("--image m --auth-mode oidc --set auth.oidc.issuer=https://i", "takes auth.oidc.audience");
    check("--image m --auth-mode dev", "invalid value");
    check("--image m --set listen=0.0.0.0:1", "follows from how the pod is made");
    check("--image m --set controller-token=hush", "is a secret");
    check("--image m --set prometeus.url=x", "did you mean prometheus.url?");
    check("--image m --etcd-secret s", "--store etcd://host:port");
    check("--rights-only --image m", "cannot be used with");
    check("--rights-only --monitoring", "cannot be used with");
    check("--image m --metrics-secret x", "--monitoring");
    check("--image m --monitoring --auth-mode trusted-proxy --set auth.proxies=10.0.0.1", "scrape that one");
}

/// Secrets of BMCs may be read one by one, never listed, and in their own namespaces only.
#[test]
fn named_secrets_may_be_read_and_no_others() {
    assert_eq!(
        of("Role", "--image m:1").iter().filter(|role| role.to_string().contains("secrets")).count(),
        0
    );
    let flags = "--image m:1 --namespace ops --bmc-secret team/rack-b,team/rack-a --bmc-secret lab/one";
    let roles: Vec<Value> =
        of("Role", flags).into_iter().filter(|role| role.to_string().contains("secrets")).collect();
    let found: Vec<(&str, &Value)> = roles
        .iter()
        .map(|role| (role["metadata"]["namespace"].as_str().unwrap(), &role["rules"][0]))
        .collect();
    let rule = |names: &[&str]| serde_json::json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get"]});
    assert_eq!(found, [("lab", &rule(&["one"])), ("team", &rule(&["rack-a", "rack-b"]))]);
    let bound: Vec<Value> = of("RoleBinding", flags)
        .into_iter()
        .filter(|one| one["roleRef"]["name"] == "muster-bmc-secrets")
        .collect();
    assert_eq!(bound.len(), 2);
    assert!(bound.iter().all(|one| one["subjects"][0]["namespace"] == "ops"), "{bound:?}");
    assert!(printed("--image m --bmc-secret team").is_err());
    assert!(printed("--image m --bmc-secret team/../x").is_err());
}

#[test]
fn one_replica_keeps_its_store_on_a_volume_and_several_share_etcd() {
    let one = "--image m:1";
    assert_eq!(of("Deployment", one)[0]["spec"]["replicas"], 1);
    assert_eq!(of("Deployment", one)[0]["spec"]["strategy"]["type"], "Recreate");
    assert_eq!(of("PersistentVolumeClaim", one).len(), 1);
    assert_eq!(settings(one)["store"], "embedded");
    assert!(settings(one)["leader"].is_null(), "nobody to be elected against");

    let two = "--image m:1 --store etcd://10.0.0.1:2379,etcd-1.etcd:2380 --etcd-secret certs";
    assert_eq!(of("Deployment", two)[0]["spec"]["replicas"], 2);
    assert_eq!(of("PersistentVolumeClaim", two).len(), 0);
    assert_eq!(settings(two)["leader"]["by"], "kubernetes");
    assert_eq!(settings(two)["etcd"]["ca"], "/etc/muster/etcd/ca.crt");
    assert!(settings(&format!("{two} --leader-by store"))["leader"].is_null());
    let egress = of("NetworkPolicy", two)[0]["spec"]["egress"].to_string();
    assert!(egress.contains("10.0.0.1/32") && egress.contains("2380"), "{egress}");
}

#[test]
fn rights_are_those_that_the_flags_need() {
    #[track_caller]
    fn check(flags: &str, expected: &[&str]) {
        let rules = ["ClusterRole", "Role"].map(|kind| Value::from(of(kind, flags)).to_string()).concat();
        for word in ["\"delete\"", "tokenreviews", "\"update\"", "aggregate-to-edit"] {
            assert_eq!(rules.contains(word), expected.contains(&word), "{word} in {flags}");
        }
    }
    check("--rights-only", &[]);
    check("--rights-only --delete-nodes", &["\"delete\""]);
    let plain = "--image m --without-resources";
    check(plain, &["tokenreviews", "aggregate-to-edit"]);
    check(&format!("{plain} --auth-mode mtls"), &[]);
    check(&format!("{plain} --auth-mode mtls --store etcd://a:1"), &["\"update\""]);
    check(&format!("{plain} --auth-mode mtls --store etcd://a:1 --leader-by store"), &[]);
    check("--image m --auth-mode mtls", &["\"delete\"", "\"update\""]);
}

#[test]
fn the_home_of_custom_resources_gets_their_definitions() {
    let names = |flags| -> Vec<String> {
        let definitions = of("CustomResourceDefinition", flags);
        definitions.iter().map(|one| one["spec"]["names"]["kind"].as_str().unwrap().to_owned()).collect()
    };
    let mut all = names("--image m");
    all.sort();
    assert_eq!(all, ["BareMetalNode", "Cluster", "NodePool"]);
    assert!(settings("--image m")["resources"].is_null());
    assert!(names("--image m --without-resources").is_empty() && names("--rights-only").is_empty());
    assert_eq!(settings("--image m --without-resources")["resources"]["home"], "off");
}

#[test]
fn settings_are_nested_and_the_servers_own_reader_takes_them() {
    let flags = "--image m --bmc-allow 10.20.0.0/16,fd00::/8 --set prometheus.url=http://10.0.0.9:9090 \
                 --set status.lease=2m --delete-nodes";
    let found = settings(flags);
    assert_eq!(found["status"]["lease"], "2m");
    assert_eq!(found["bmc"]["allow"], "10.20.0.0/16,fd00::/8");
    assert_eq!((&found["auth"]["mode"], &found["listen"]), (&"k8s".into(), &"0.0.0.0:8443".into()));
    let map = of("ConfigMap", flags).remove(0);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("muster.yaml");
    std::fs::write(&file, map["data"]["muster.yaml"].as_str().unwrap()).unwrap();
    let read = Settings::gather(Some(&file), [], []).unwrap();
    assert_eq!(read.text("bmc.allow"), "10.20.0.0/16,fd00::/8");
    let egress = of("NetworkPolicy", flags)[0]["spec"]["egress"].to_string();
    for word in ["10.20.0.0/16", "fd00::/8", "10.0.0.9/32", "9090", "623"] {
        assert!(egress.contains(word), "{word} in {egress}");
    }
}

#[test]
fn nothing_but_what_is_needed_is_printed_and_no_secret() {
    let kinds = |flags: &str| -> Vec<String> {
        let objects: Vec<Value> = serde_saphyr::from_multiple(&printed(flags).unwrap()).unwrap();
        objects.iter().filter_map(|object| object["kind"].as_str().map(str::to_owned)).collect()
    };
    let rights = ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
    assert_eq!(kinds("--rights-only"), rights);
    assert_eq!(kinds("--rights-only --without-namespace"), rights[1..]);
    assert!(!kinds("--image m").contains(&"Secret".to_owned()));
    let text = printed("--image m --tls-secret door").unwrap();
    assert!(text.contains("kubectl -n muster create secret tls door"), "{text}");
}

#[test]
fn ops_u20_monitoring_is_printed_where_it_is_asked_for() {
    assert!(of("ServiceMonitor", "--image m").is_empty() && of("PrometheusRule", "--image m").is_empty());
    let monitor = of("ServiceMonitor", "--image m --monitoring --namespace infra").remove(0);
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(endpoint["tlsConfig"]["serverName"], "muster.infra.svc");
    assert_eq!(endpoint["authorization"]["credentials"]["name"], "muster-metrics");
    // The service that is chosen is the one that is printed, and so is its port.
    let service = of("Service", "--image m").remove(0);
    let chosen = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
    assert!(chosen.iter().all(|(key, value)| service["metadata"]["labels"][key] == *value));
    assert_eq!(service["spec"]["ports"][0]["name"], endpoint["port"]);
    let signed =
        of("ServiceMonitor", "--image m --monitoring --auth-mode mtls --metrics-secret door").remove(0);
    let endpoint = &signed["spec"]["endpoints"][0];
    assert_eq!(
        (&endpoint["authorization"], &endpoint["tlsConfig"]["keySecret"]["name"]),
        (&Value::Null, &"door".into())
    );
    let text = printed("--image m --monitoring").unwrap();
    assert!(
        text.contains("create secret generic muster-metrics --from-file=ca.crt --from-file=token"),
        "{text}"
    );
}

#[test]
fn ops_u14_every_alert_has_a_section_that_says_what_to_do() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/how-to/alerts.md");
    let page = std::fs::read_to_string(page).unwrap();
    let documented: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let names: Vec<&str> = monitoring::ALERTS.iter().map(|alert| alert.name).collect();
    assert_eq!(documented, names, "docs/how-to/alerts.md has a section for each, in this order");
    assert!(names.len() >= 12);
}
