//! `muster connect` and `muster disconnect`: how Muster reaches a cluster. A kubeconfig is read here, reduced to one
//! context with everything that it refers to inside, and kept by the server, encrypted.

use std::path::{Path, PathBuf};

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    client::Request,
    context::Connection,
    failure::{Exit, Failure, Outcome},
    kinds::{Kind, text_at},
    list::Selection,
    resolve,
    session::Session,
};

/// Where a cluster is and who Muster is there.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Reach {
    /// Kubeconfig that leads to the cluster; kept encrypted, never shown
    #[arg(long, value_name = "FILE", add = super::complete::files())]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of that kubeconfig, its current one without it; --context after --kubeconfig means the same
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub(crate) kube_context: Option<String>,
    /// The server runs in this cluster: use its own service account
    #[arg(long, conflicts_with = "kubeconfig")]
    pub(crate) in_cluster: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Connect {
    /// cluster NAME
    #[arg(required = true, value_name = "cluster NAME", add = super::complete::targets())]
    what: Vec<String>,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Args)]
pub(crate) struct Disconnect {
    /// cluster NAME
    #[arg(required = true, value_name = "cluster NAME", add = super::complete::targets())]
    what: Vec<String>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

pub(crate) async fn connect(session: &Session, args: Connect) -> Outcome {
    let Some(body) = args.reach.body()? else {
        return Err(Failure::usage("connect", "it does not say how")
            .next("write `muster connect cluster NAME --kubeconfig FILE`, or --in-cluster"));
    };
    let (kind, cluster) = cluster(session, &args.what, "connect").await?;
    set(session, kind, &cluster, body).await
}

pub(crate) async fn disconnect(session: &Session, args: Disconnect) -> Outcome {
    let (kind, cluster) = cluster(session, &args.what, "disconnect").await?;
    let path = format!("{}/connection", kind.path(&text_at(&cluster, "id")));
    session.client.call(Request::new(Method::DELETE, path, session.title(kind, &cluster))).await?;
    session
        .screen
        .line(&format!("cluster/{} disconnected: its credentials are deleted", text_at(&cluster, "name")))
}

async fn cluster(session: &Session, what: &[String], word: &str) -> Outcome<(&'static Kind, Value)> {
    let targets = resolve::targets(what)?;
    let [resolve::Target { kind, name: Some(name) }] = targets.as_slice() else {
        return Err(
            Failure::usage(word, "it takes one cluster").next(format!("write `muster {word} cluster NAME`"))
        );
    };
    if kind.singular != "cluster" {
        return Err(Failure::usage(format!("{} {name}", kind.singular), "only clusters are connected")
            .next(format!("write `muster {word} cluster NAME`")));
    }
    Ok((kind, resolve::one(session, kind, name, &Selection::visible()).await?))
}

/// Hands the connection in and says what came of it, and what Muster may do now.
pub(crate) async fn set(session: &Session, kind: &Kind, cluster: &Value, body: Value) -> Outcome {
    let path = format!("{}/connection", kind.path(&text_at(cluster, "id")));
    let name = text_at(cluster, "name");
    let request = Request::new(Method::PUT, path, format!("cluster {name}")).body(body);
    let answer = session.client.call(request).await?.body;
    session.screen.line(&format!("cluster/{name} connected to {}", text_at(&answer, "spec.server")))?;
    if text_at(cluster, "spec.mode") == "active" {
        session.screen.note("mode active: decisions about its pools are carried out");
    } else {
        session.screen.note(&format!(
            "mode advise: decisions are recorded and shown, nothing acts until `muster enable cluster {name}`"
        ));
    }
    session.screen.note(&format!("`muster describe cluster {name}` shows how the connection is doing"));
    Ok(())
}

impl Reach {
    /// What the server is told; `None` when nothing was said.
    pub(crate) fn body(&self) -> Outcome<Option<Value>> {
        if self.in_cluster {
            return Ok(Some(json!({ "inCluster": true })));
        }
        let Some(path) = &self.kubeconfig else { return Ok(None) };
        let config = flatten(path, self.kube_context.as_deref())?;
        Ok(Some(json!({ "kubeconfig": config.to_string(), "context": config["current-context"] })))
    }
}

/// One context of a kubeconfig, with the contents of the files that it names.
fn flatten(path: &Path, context: Option<&str>) -> Outcome<Value> {
    let object = format!("kubeconfig {}", path.display());
    let fail = |why: String, next: &str| Failure::new(Exit::Failure, object.clone(), why).next(next);
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string(), "check the path"))?;
    // The reader's own words could repeat a token.
    let config: Value = serde_saphyr::from_str(&text)
        .map_err(|_| fail("it is no YAML".to_owned(), "give the file that kubectl works with"))?;
    let names = |list: &str| -> Vec<String> {
        config[list].as_array().into_iter().flatten().map(|one| text_at(one, "name")).collect()
    };
    let named = |list: &str, name: &str| {
        config[list].as_array().into_iter().flatten().find(|one| text_at(one, "name") == name).cloned()
    };
    let current = text_at(&config, "current-context");
    let name = context.unwrap_or(&current);
    let chosen = named("contexts", name).ok_or_else(|| {
        fail(
            if name.is_empty() {
                "it has no current context".to_owned()
            } else {
                format!("it has no context {name:?}")
            },
            &format!("choose one with --context: {}", names("contexts").join(", ")),
        )
    })?;
    let missing = |what: &str, name: &str| {
        fail(format!("it has no {what} {name:?}"), "kubectl could not use it either")
    };
    let (cluster, user) = (text_at(&chosen, "context.cluster"), text_at(&chosen, "context.user"));
    let mut cluster = named("clusters", &cluster).ok_or_else(|| missing("cluster", &cluster))?;
    let mut user = named("users", &user).ok_or_else(|| missing("user", &user))?;
    if !user["user"]["exec"].is_null() || !user["user"]["auth-provider"].is_null() {
        return Err(fail(
            format!(
                "user {:?} gets its token from a program, which the server does not run",
                text_at(&user, "name")
            ),
            "make a service account for Muster and a kubeconfig with its token: see docs/how-to/connect-a-cluster.md",
        ));
    }
    let directory = path.parent().unwrap_or(Path::new("."));
    for (holder, file, inline, encode) in [
        (&mut cluster["cluster"], "certificate-authority", "certificate-authority-data", true),
        (&mut user["user"], "client-certificate", "client-certificate-data", true),
    ] {
        inline_file(holder, directory, file, inline, encode, &object)?;
    }
    inline_file(&mut user["user"], directory, "client-key", "client-key-data", true, &object)?;
    inline_file(&mut user["user"], directory, "tokenFile", "token", false, &object)?;
    Ok(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "contexts": [chosen], "clusters": [cluster], "users": [user],
    }))
}

/// Puts the contents of a file in the place of its name.
fn inline_file(
    holder: &mut Value,
    directory: &Path,
    file: &str,
    inline: &str,
    encode: bool,
    object: &str,
) -> Outcome {
    use base64::Engine as _;
    let Some(members) = holder.as_object_mut() else { return Ok(()) };
    let Some(name) = members.remove(file).and_then(|name| name.as_str().map(str::to_owned)) else {
        return Ok(());
    };
    if members.contains_key(inline) {
        return Ok(()); // as kubectl does it: what is inside wins
    }
    let path = directory.join(&name);
    let bytes = std::fs::read(&path).map_err(|error| {
        Failure::new(Exit::Failure, object, format!("{file} {}: {error}", path.display()))
            .next("check that file")
    })?;
    let value = if encode {
        base64::engine::general_purpose::STANDARD.encode(bytes)
    } else {
        String::from_utf8_lossy(&bytes).trim().to_owned()
    };
    members.insert(inline.to_owned(), value.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_context_goes_out_with_its_files_inside() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write("ca.crt", "CA");
        write("token", "secret-token\n");
        write(
            "config",
            "current-context: a\ncontexts:\n- {name: a, context: {cluster: c, user: u}}\n\
             - {name: b, context: {cluster: c, user: other}}\n- {name: p, context: {cluster: c, user: program}}\n\
             clusters:\n- {name: c, cluster: {server: 'https://x', certificate-authority: ca.crt}}\n\
             users:\n- {name: u, user: {tokenFile: token}}\n- {name: other, user: {token: other-token}}\n\
             - {name: program, user: {exec: {command: x}}}\n",
        );
        let path = directory.path().join("config");
        let found = flatten(&path, None).unwrap();
        assert_eq!(found["clusters"][0]["cluster"]["certificate-authority-data"], "Q0E=");
        assert_eq!(found["users"], json!([{"name": "u", "user": {"token": "secret-token"}}]));
        assert!(!found.to_string().contains("other-token"), "only what is used goes out");
        assert_eq!(flatten(&path, Some("b")).unwrap()["current-context"], "b");
        let refused = flatten(&path, Some("p")).unwrap_err().to_string();
        assert!(refused.contains("from a program"), "{refused}");
        let refused = flatten(&path, Some("z")).unwrap_err().to_string();
        assert!(refused.contains("no context \"z\"") && refused.contains("a, b, p"), "{refused}");
    }
}
