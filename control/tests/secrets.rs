//! Credentials whose value is in a Kubernetes Secret: read at the time of use, never kept, and new when the Secret is.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use muster_control::{
    inventory::{CredentialDraft, DraftValue, Inventory, Vault, VaultKey},
    registry::WriteContext,
};
use muster_model::{
    Clock, Duration, Secret, Timestamp,
    credential::CredentialKind,
    power::{Credential, CredentialError, Credentials},
    store::{List, Store},
};
use muster_store::memory::Memory;

/// A cluster with one Secret, `team/bmc`.
#[derive(Debug, Default)]
struct Cluster(Mutex<Option<(String, u32)>>);

#[async_trait]
impl Credentials for Cluster {
    async fn credential(&self, name: &str) -> Result<Credential, CredentialError> {
        let kept = self.0.lock().unwrap().clone();
        match kept {
            None => Err(CredentialError::Away { name: name.into(), why: "no answer".into() }),
            Some((password, version)) if name == "team/bmc" => Ok(Credential {
                user: "root".into(),
                password: Secret::new(password),
                version: version.to_string(),
            }),
            Some(_) => Err(CredentialError::Unusable { name: name.into(), why: "not found".into() }),
        }
    }
}

/// Nothing here waits.
#[derive(Debug)]
struct StoppedClock;

#[async_trait]
impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
    async fn sleep(&self, _: Duration) {
        std::future::pending::<()>().await;
    }
}

fn at(millis: i64) -> WriteContext {
    WriteContext {
        actor: "ann".into(),
        now: Timestamp::from_millis(millis),
        dry_run: false,
        idempotency: None,
    }
}

#[tokio::test]
async fn a_secret_is_read_when_it_is_used_and_a_change_of_it_is_a_rotation() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let inventory = Inventory::open(Arc::clone(&store), Arc::new(StoppedClock)).await.unwrap();
    let vault = Vault::new(inventory, VaultKey::in_memory().unwrap());
    let draft = |name: &str, secret: &str| CredentialDraft {
        name: name.into(),
        kind: CredentialKind::Bmc,
        value: DraftValue::Secret { name: secret.into() },
    };
    let refused = vault.create(&at(1), "team", draft("rack-a", "bmc")).await.unwrap_err();
    assert!(refused.to_string().contains("no Kubernetes cluster"), "{refused}");

    let cluster = Arc::new(Cluster::default());
    let put = |password: &str, version: u32| *cluster.0.lock().unwrap() = Some((password.into(), version));
    vault.take_secrets_from(Arc::clone(&cluster) as Arc<dyn Credentials>);
    vault.create(&at(1), "team", draft("rack-a", "bmc")).await.unwrap();
    vault.create(&at(1), "team", draft("rack-b", "gone")).await.unwrap();
    vault.create(&at(1), "other", draft("rack-a", "bmc")).await.unwrap();

    // The cluster is away: nothing is known, which is not a refusal, and nothing changes.
    let away = vault.credential("team/rack-a").await.unwrap_err();
    assert!(matches!(&away, CredentialError::Away { name, .. } if name == "team/rack-a"), "{away:?}");
    assert_eq!(vault.follow_secrets(Timestamp::from_millis(2)).await.unwrap(), 0);
    put("canary-1", 7);
    let first = vault.credential("team/rack-a").await.unwrap();
    assert_eq!((first.user.as_str(), first.password.expose_text()), ("root", Some("canary-1")));
    let missing = vault.credential("team/rack-b").await.unwrap_err();
    assert!(matches!(missing, CredentialError::Unusable { .. }), "{missing:?}");
    // A credential reaches no Secret of another project.
    let foreign = vault.credential("other/rack-a").await.unwrap_err();
    assert!(matches!(foreign, CredentialError::Unusable { .. }), "{foreign:?}");

    let version = async || vault.get("team", "rack-a").await.unwrap().unwrap().meta.version;
    assert_eq!(
        vault.follow_secrets(Timestamp::from_millis(3)).await.unwrap(),
        0,
        "what is first seen is no change"
    );
    assert_eq!(version().await, 1);
    put("canary-2", 8);
    assert_eq!(vault.credential("team/rack-a").await.unwrap().password.expose_text(), Some("canary-2"));
    assert_eq!(vault.follow_secrets(Timestamp::from_millis(4)).await.unwrap(), 1);
    assert_eq!(vault.follow_secrets(Timestamp::from_millis(5)).await.unwrap(), 0);
    let shown = vault.get("team", "rack-a").await.unwrap().unwrap();
    assert_eq!((shown.meta.version, shown.rotated_at()), (2, Timestamp::from_millis(4)));
    assert!(!shown.to_api().to_string().contains("canary"));

    // It is kept nowhere.
    let page = store.list(List::prefix("/")).await.unwrap();
    assert!(page.entries.len() >= 3);
    for entry in page.entries {
        assert!(!String::from_utf8_lossy(&entry.value).contains("canary"), "{}", entry.key);
    }
}

/// A BMC that refused the one is tried with the other, although both are version 1 of a credential of this name.
#[tokio::test]
async fn a_credential_that_is_made_anew_is_another() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let inventory = Inventory::open(store, Arc::new(StoppedClock)).await.unwrap();
    let vault = Vault::new(inventory, VaultKey::in_memory().unwrap());
    let draft = |password: &str| CredentialDraft {
        name: "rack-a".into(),
        kind: CredentialKind::Bmc,
        value: DraftValue::Sealed { user: "root".into(), password: Secret::new(password) },
    };
    vault.create(&at(1), "team", draft("wrong")).await.unwrap();
    let first = vault.credential("team/rack-a").await.unwrap();
    assert_eq!(vault.credential("team/rack-a").await.unwrap().version, first.version);
    vault.delete(&at(2), "team", "rack-a", &|_| true).await.unwrap();
    let (shown, _) = vault.create(&at(3), "team", draft("right")).await.unwrap();
    assert_eq!(shown.meta.version, 1);
    assert_ne!(vault.credential("team/rack-a").await.unwrap().version, first.version);
}
