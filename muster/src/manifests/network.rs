//! Whom the pods talk to: callers of the API come in; the API server, the store, BMCs and what the settings name go out.

use std::net::IpAddr;

use anyhow::Context;
use serde_json::{Value, json};

use super::{Install, NAME, PORT, metadata, selector};

/// Of the API server: as a service, and as it listens itself. Policies see the one or the other.
const API_SERVER: [u16; 2] = [443, 6443];

pub(super) fn policy(install: &Install<'_>) -> anyhow::Result<Value> {
    Ok(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata(install, NAME),
        "spec": {
            "podSelector": {"matchLabels": selector()},
            "policyTypes": ["Ingress", "Egress"],
            // Callers prove who they are, wherever they come from; kubelets probe without.
            "ingress": [{"ports": [port("TCP", PORT)]}],
            "egress": egress(install)?,
        },
    }))
}

fn egress(install: &Install<'_>) -> anyhow::Result<Vec<Value>> {
    let mut rules = vec![json!({"ports": [port("UDP", 53), port("TCP", 53)]})];
    let ports: Vec<Value> = API_SERVER.iter().map(|number| port("TCP", *number)).collect();
    rules.push(to(&blocks(&install.args.api_server), ports));
    for (host, number) in install.etcd.iter().flatten() {
        rules.push(to(&address(host), vec![port("TCP", *number)]));
    }
    if !install.args.bmc_allow.is_empty() {
        // Redfish, IPMI and Wake-on-LAN.
        let mut ports = vec![port("TCP", 443), port("UDP", 623), port("UDP", 9)];
        if install.setting("bmc.plain-http").as_deref() == Some("true") {
            ports.push(port("TCP", 80));
        }
        rules.push(to(&blocks(&install.args.bmc_allow), ports));
    }
    for path in ["prometheus.url", "auth.oidc.issuer", "auth.oidc.keys"] {
        if let Some(url) = install.setting(path) {
            let (host, number) =
                place(&url).with_context(|| format!("{path} {url:?} is no URL with a host"))?;
            rules.push(to(&address(&host), vec![port("TCP", number)]));
        }
    }
    Ok(rules)
}

fn port(protocol: &str, number: u16) -> Value {
    json!({"protocol": protocol, "port": number})
}

/// A rule for these places; for any when there are none.
fn to(places: &[Value], ports: Vec<Value>) -> Value {
    if places.is_empty() { json!({"ports": ports}) } else { json!({"to": places, "ports": ports}) }
}

fn blocks(cidrs: &[String]) -> Vec<Value> {
    cidrs.iter().map(|cidr| json!({"ipBlock": {"cidr": cidr}})).collect()
}

/// The place of an address. A name could be anything: policies do not know names.
fn address(host: &str) -> Vec<Value> {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => blocks(&[format!("{address}/32")]),
        Ok(IpAddr::V6(address)) => blocks(&[format!("{address}/128")]),
        Err(_) => Vec::new(),
    }
}

/// Host and port of a URL.
fn place(url: &str) -> Option<(String, u16)> {
    let url = reqwest::Url::parse(url).ok()?;
    Some((url.host_str()?.trim_matches(['[', ']']).to_owned(), url.port_or_known_default()?))
}
