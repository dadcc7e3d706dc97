//! Judges a kubeconfig that somebody hands in before it is kept: it comes from another machine, and must neither name
//! files of ours nor have programs run here.

use kube::config::Kubeconfig;

use crate::error::KubeError;

/// What a kubeconfig says without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// The context that is used.
    pub context: String,
    /// The API server's address.
    pub server: String,
}

/// Reads a kubeconfig as text. Nothing is called and no file is opened.
pub fn outline(text: &str, context: Option<&str>) -> Result<Outline, KubeError> {
    let fault = |why: String| KubeError::Credentials { from: "the kubeconfig".to_owned(), why };
    let config = Kubeconfig::from_yaml(text).map_err(|_| {
        // The reader's own words may repeat what it read.
        fault(
            "it is no kubeconfig; send what `kubectl config view --raw --minify --flatten` prints".to_owned(),
        )
    })?;
    let names = || config.contexts.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", ");
    let name = context
        .or(config.current_context.as_deref())
        .filter(|name| !name.is_empty())
        .ok_or_else(|| fault(format!("it has no current context; name one of: {}", names())))?;
    let chosen = config
        .contexts
        .iter()
        .find(|one| one.name == name)
        .and_then(|one| one.context.as_ref())
        .ok_or_else(|| fault(format!("it has no context {name:?}; it has: {}", names())))?;
    let cluster = config
        .clusters
        .iter()
        .find(|one| one.name == chosen.cluster)
        .and_then(|one| one.cluster.as_ref())
        .ok_or_else(|| {
            fault(format!("context {name:?} names cluster {:?}, which it does not have", chosen.cluster))
        })?;
    let server = cluster
        .server
        .clone()
        .filter(|server| server.starts_with("https://") || server.starts_with("http://"))
        .ok_or_else(|| fault(format!("cluster {:?} has no server address", chosen.cluster)))?;
    let user = chosen.user.as_deref().unwrap_or_default();
    let account =
        config.auth_infos.iter().find(|one| one.name == user).and_then(|one| one.auth_info.as_ref());
    if let Some(account) = account {
        if account.exec.is_some() || account.auth_provider.is_some() {
            return Err(fault(format!(
                "user {user:?} gets its token from a program, and programs are not run for it; make a service account \
                 and use its token"
            )));
        }
        let files = [&account.token_file, &account.client_certificate, &account.client_key];
        if files.iter().any(|file| file.is_some()) {
            return Err(fault(format!("user {user:?} names files; {FLATTEN}")));
        }
    }
    if cluster.certificate_authority.is_some() {
        return Err(fault(format!("cluster {:?} names a file; {FLATTEN}", chosen.cluster)));
    }
    Ok(Outline { context: name.to_owned(), server })
}

const FLATTEN: &str = "put their contents in with `kubectl config view --raw --minify --flatten`";

#[cfg(test)]
mod tests {
    use super::*;

    fn config(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
             contexts: [{{name: a, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        )
    }

    #[test]
    fn a_kubeconfig_that_reaches_into_this_machine_is_refused() {
        #[track_caller]
        fn check(cluster: &str, user: &str, context: Option<&str>, expected: Result<&str, &str>) {
            let found = outline(&config(cluster, user), context);
            match (found, expected) {
                (Ok(outline), Ok(server)) => assert_eq!(outline.server, server),
                (Err(error), Err(text)) => {
                    let said = error.to_string();
                    assert!(said.contains(text) && !said.contains("canary"), "{said}");
                }
                (found, expected) => panic!("{found:?}, expected {expected:?}"),
            }
        }
        let server = "server: 'https://10.0.0.1:6443'";
        check(server, "token: canary", None, Ok("https://10.0.0.1:6443"));
        check(server, "token: canary", Some("b"), Err("no context \"b\"; it has: a"));
        check(
            server,
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: canary}",
            None,
            Err("from a program"),
        );
        check(server, "tokenFile: /etc/canary", None, Err("names files"));
        check(server, "client-key: /etc/canary", None, Err("names files"));
        check(
            "server: 'https://x', certificate-authority: /etc/canary",
            "token: x",
            None,
            Err("names a file"),
        );
        check("insecure-skip-tls-verify: true", "token: x", None, Err("no server address"));
        assert!(outline("canary: [", None).unwrap_err().to_string().contains("it is no kubeconfig"));
    }
}
