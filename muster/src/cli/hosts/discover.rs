//! `muster discover ADDRESS`: asks a BMC what it is, and prints a document to begin with.

use std::path::PathBuf;

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::{
    client::Request,
    context::Connection,
    failure::{Exit, Failure, Outcome},
    kinds::text_at,
    print::{format::Format, yaml},
    session::Session,
};

#[derive(Debug, Args)]
pub(crate) struct Discover {
    /// Address of the BMC, as the server reaches it
    address: String,
    /// How to ask
    #[arg(long, default_value = "redfish", value_parser = ["redfish", "ipmi"])]
    driver: String,
    /// Credential to ask with
    #[arg(long, value_name = "NAME")]
    credential: Option<String>,
    /// Name for the host in the document
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Pool for the host in the document
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Which system behind the BMC
    #[arg(long, value_name = "ID")]
    system: Option<String>,
    /// How the BMC proves who it is
    #[arg(long, value_parser = ["pin", "ca", "webpki", "insecure"])]
    tls_verify: Option<String>,
    /// Key of the BMC that you have compared: sha256:…
    #[arg(long)]
    pin: Option<String>,
    /// Certificates of the authority that signs the BMC's: a PEM file
    #[arg(long, value_name = "FILE", conflicts_with = "pin")]
    ca: Option<PathBuf>,
    /// Name in the BMC's certificate, where it is not its address
    #[arg(long, value_name = "NAME", requires = "ca")]
    server_name: Option<String>,
    /// Ask without TLS, where the server permits it
    #[arg(long)]
    plain_http: bool,
    /// yaml or json
    #[arg(short, long, default_value = "yaml", value_name = "FORMAT", value_parser = ["yaml", "json"])]
    output: String,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

pub(crate) async fn discover(session: &Session, args: Discover) -> Outcome {
    let mut body = json!({ "address": args.address, "driver": args.driver });
    for (name, value) in [
        ("credentials", &args.credential),
        ("systemId", &args.system),
        ("tlsVerify", &args.tls_verify),
        ("pin", &args.pin),
        ("serverName", &args.server_name),
    ] {
        if let Some(value) = value {
            body[name] = value.as_str().into();
        }
    }
    if let Some(file) = &args.ca {
        let pem = std::fs::read_to_string(file).map_err(|error| {
            Failure::usage(format!("--ca {}", file.display()), format!("the file cannot be read: {error}"))
                .next("name a file with the authority's certificates, as PEM")
        })?;
        body["ca"] = pem.into();
    }
    if args.plain_http {
        body["plainHttp"] = true.into();
    }
    let request = Request::new(Method::POST, "/api/v1/discover", format!("BMC {}", args.address)).body(body);
    let found = session.client.call(request).await.map_err(|failure| {
        if failure.cause.contains("POWER_UNAPPROVED_CERTIFICATE") {
            failure.next("compare that key with the one that the BMC shows itself, then repeat with --pin and the key")
        } else if failure.faults.is_empty() && failure.exit != Exit::Denied {
            failure.next("the text above says what to do; the server must reach the BMC, and bmc.allow must name its address")
        } else {
            failure
        }
    })?;
    let found = found.body;
    let mut spec = found["spec"].clone();
    if let (Some(pool), Value::Object(members)) = (&args.pool, &mut spec) {
        members.insert("pool".into(), pool.as_str().into());
    }
    let name = args.name.clone().unwrap_or_else(|| "NAME".to_owned());
    let document = json!({ "kind": "BareMetalNode", "name": name, "spec": spec });
    let identity = |path: &str| text_at(&found["identity"], path);
    let model = [identity("vendor"), identity("model")].join(" ");
    session.screen.note(&format!("found: {}, serial {}", model.trim(), identity("serial")));
    let missing = found["missing"].as_array().into_iter().flatten();
    let missing: Vec<&str> = missing.filter_map(Value::as_str).collect();
    if !missing.is_empty() {
        session.screen.note(&format!("it does not say: {}", missing.join(", ")));
    }
    if args.pool.is_none() {
        session.screen.note("add `pool:` to the spec, then: muster apply -f FILE");
    }
    if args.output == "json" {
        return session.screen.data(&Format::Json.document(&document, true)?);
    }
    session.screen.data(&yaml::to_string(&document))
}
