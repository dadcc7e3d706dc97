//! Credentials: accounts of BMCs and keys that sign, encrypted in the store.
//!
//! A value goes in through [`Vault::create`] and [`Vault::rotate`] and comes out only through
//! [`Credentials::credential`], for the drivers. Listing and describing show [`CredentialMeta`] alone.
//!
//! Each value is sealed with ChaCha20-Poly1305 under the key of a file that is not in the store, with a fresh nonce,
//! and bound to its project, name and version: a record that was copied under another name does not open.

use std::{
    fmt,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use muster_model::{
    Secret, Timestamp,
    credential::{CredentialKind, CredentialMeta, CredentialSource, CredentialUse},
    host::BareMetalNodeSpec,
    power::{Credential, CredentialError, Credentials},
    store::{Committed, Entry, Expect, List, Revision, Store, Txn},
};
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom, SystemRandom},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{Inventory, InventoryError, encode, keys};
use crate::registry::{AuditNote, Guard, WriteContext};

/// Where credentials of hosts without a project are kept.
pub(super) const NO_PROJECT: &str = "default";
const KEY_BYTES: usize = 32;
pub(super) const MAX_TRIES: usize = 16;

/// The key that everything is sealed with.
pub struct VaultKey {
    key: LessSafeKey,
    /// Tells which key a value was sealed with, without telling the key.
    id: String,
    path: PathBuf,
}

impl fmt::Debug for VaultKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VaultKey").field("id", &self.id).field("path", &self.path).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum VaultKeyError {
    #[error("the key file {path} cannot be read or made")]
    File { path: String, source: std::io::Error },
    #[error(
        "the key file {path} must hold {KEY_BYTES} bytes in base64; make one with: head -c {KEY_BYTES} /dev/urandom | base64"
    )]
    Form { path: String },
    #[error("the key file {path} may be read by others (mode {mode:o}); run: chmod 600 {path}")]
    Open { path: String, mode: u32 },
    #[error("the operating system gives no random bytes")]
    Random,
}

impl VaultKey {
    /// Reads the key file; makes one that only its owner reads when there is none.
    pub fn open(path: &Path) -> Result<Self, VaultKeyError> {
        let name = || path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => {
                check_mode(path)?;
                Zeroizing::new(text)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => make_key(path)?,
            Err(source) => return Err(VaultKeyError::File { path: name(), source }),
        };
        let form = || VaultKeyError::Form { path: name() };
        let bytes = Zeroizing::new(STANDARD.decode(text.trim()).map_err(|_| form())?);
        Self::of(&bytes, path).ok_or_else(form)
    }

    /// A key that ends with the process: for a store that does, too.
    pub fn in_memory() -> Result<Self, VaultKeyError> {
        let mut bytes = Zeroizing::new([0_u8; KEY_BYTES]);
        SystemRandom::new().fill(&mut *bytes).map_err(|_| VaultKeyError::Random)?;
        Self::of(&*bytes, Path::new("in memory")).ok_or(VaultKeyError::Random)
    }

    fn of(bytes: &[u8], path: &Path) -> Option<Self> {
        if bytes.len() != KEY_BYTES {
            return None;
        }
        let key = UnboundKey::new(&CHACHA20_POLY1305, bytes).ok()?;
        let mut hasher = Sha256::new();
        hasher.update(b"muster vault key id\n");
        hasher.update(bytes);
        let id = hex::encode(&hasher.finalize()[..8]);
        Some(Self { key: LessSafeKey::new(key), id, path: path.to_owned() })
    }
}

/// How a Kubernetes Secret is mounted for a pod that does not run as root: owned by root, for the pod's group to read.
const MOUNTED_SECRET: (u32, u32) = (0, 0o440);

fn check_mode(path: &Path) -> Result<(), VaultKeyError> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let name = path.display().to_string();
    let meta =
        std::fs::metadata(path).map_err(|source| VaultKeyError::File { path: name.clone(), source })?;
    let mode = meta.permissions().mode() & 0o777;
    let open = mode & 0o077 != 0 && (meta.uid(), mode) != MOUNTED_SECRET;
    if open { Err(VaultKeyError::Open { path: name, mode }) } else { Ok(()) }
}

fn make_key(path: &Path) -> Result<Zeroizing<String>, VaultKeyError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut bytes = Zeroizing::new([0_u8; KEY_BYTES]);
    SystemRandom::new().fill(&mut *bytes).map_err(|_| VaultKeyError::Random)?;
    let text = Zeroizing::new(format!("{}\n", STANDARD.encode(*bytes)));
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|source| VaultKeyError::File { path: path.display().to_string(), source })?;
    tracing::info!(path = %path.display(), "made a key for credentials; keep a copy of it in a safe place");
    Ok(text)
}

/// A credential as somebody hands it in.
#[derive(Debug, Clone)]
pub struct CredentialDraft {
    pub name: String,
    pub kind: CredentialKind,
    pub value: DraftValue,
}

/// Where the value is.
#[derive(Debug, Clone)]
pub enum DraftValue {
    /// Here, to be sealed.
    Sealed { user: String, password: Secret },
    /// In a Kubernetes Secret of the project's namespace.
    Secret { name: String },
}

/// What is sealed.
#[derive(Serialize, Deserialize)]
struct Plain {
    user: String,
    /// Base64: keys that sign need not be text.
    password: String,
}

/// A credential as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    #[serde(flatten)]
    meta: CredentialMeta,
    project: String,
    created_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<Sealed>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Sealed {
    /// Which key.
    key: String,
    nonce: String,
    text: String,
}

/// A credential without its value, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialShown {
    pub project: String,
    pub created_by: String,
    pub meta: CredentialMeta,
    pub version: Revision,
}

/// The store of credentials.
#[derive(Debug)]
pub struct Vault {
    pub(super) store: Arc<dyn Store>,
    inventory: Arc<Inventory>,
    key: VaultKey,
    random: SystemRandom,
    /// Where values of Kubernetes Secrets come from, when a cluster is configured. Set once, as that cluster may itself be one that is
    /// reached by what is kept here.
    secrets: OnceLock<Arc<dyn Credentials>>,
}

impl Vault {
    pub fn new(inventory: Arc<Inventory>, key: VaultKey) -> Self {
        let store = Arc::clone(inventory.store());
        Self { store, inventory, key, random: SystemRandom::new(), secrets: OnceLock::new() }
    }

    /// Lets credentials name Kubernetes Secrets; the source is asked for `project/secret`. The first source stays.
    pub fn take_secrets_from(&self, source: Arc<dyn Credentials>) {
        let _ = self.secrets.set(source);
    }

    /// Looks at every Secret that a credential names. One that was changed is the next version of its credential, so that a BMC which
    /// refused the last one is called again. What cannot be read now changes nothing. Says how many changed.
    pub async fn follow_secrets(&self, now: Timestamp) -> Result<usize, InventoryError> {
        let Some(source) = self.secrets.get() else { return Ok(0) };
        let (all, _) = self.list().await?;
        let mut changed = 0;
        for shown in all {
            let CredentialSource::Secret { name: secret } = &shown.meta.source else { continue };
            let (project, name) = (shown.project.as_str(), shown.meta.name.as_str());
            let found = match source.credential(&format!("{project}/{secret}")).await {
                Ok(found) => found.version,
                Err(error) => {
                    tracing::debug!(credential = name, project, %error, "a Secret cannot be looked at");
                    continue;
                }
            };
            if shown.meta.secret_version.as_deref() == Some(found.as_str()) {
                continue;
            }
            let first = shown.meta.secret_version.is_none();
            let change = |record: &mut Record| {
                if matches!(&record.meta.source, CredentialSource::Secret { name } if name == secret) {
                    record.meta.secret_version = Some(found.clone());
                    if !first {
                        record.meta.version += 1;
                        record.meta.rotated_at = now;
                    }
                }
                Ok(())
            };
            self.change(false, project, name, &|_| true, change).await?;
            if !first {
                tracing::info!(credential = name, project, "a credential's Secret was changed");
                changed += 1;
            }
        }
        Ok(changed)
    }

    pub async fn list(&self) -> Result<(Vec<CredentialShown>, Revision), InventoryError> {
        let mut found = Vec::new();
        let take = |entry: Entry| found.extend(read(&entry).ok().map(|record| shown(&entry, &record)));
        let revision = List::prefix(keys::CREDENTIALS).each(&*self.store, take).await?;
        Ok((found, revision))
    }

    pub async fn get(&self, project: &str, name: &str) -> Result<Option<CredentialShown>, InventoryError> {
        let entry = self.store.get(&keys::credential(project, name)).await?;
        entry.map(|entry| Ok(shown(&entry, &read(&entry)?))).transpose()
    }

    pub async fn create(
        &self,
        context: &WriteContext,
        project: &str,
        draft: CredentialDraft,
    ) -> Result<(CredentialShown, AuditNote), InventoryError> {
        let key = keys::credential(project, &draft.name);
        let taken = InventoryError::Taken { kind: "Credential", name: draft.name.clone() };
        let meta = CredentialMeta {
            name: draft.name.clone(),
            kind: draft.kind,
            source: source_of(&draft.value),
            version: 1,
            created_at: context.now,
            rotated_at: context.now,
            secret_version: None,
            accepted: None,
            refused: None,
        };
        let sealed = self.seal_value(project, &meta, &draft.value)?;
        let record = Record { meta, project: project.to_owned(), created_by: context.actor.clone(), sealed };
        let note = note(&record, &[]);
        if context.dry_run {
            if self.store.get(&key).await?.is_some() {
                return Err(taken);
            }
            return Ok((bare(&record, Revision::ZERO), note));
        }
        let txn = Txn::new().expect(&key, Expect::Absent).put(&key, encode(&record));
        match self.store.commit(txn).await? {
            Committed::Done { revision } => Ok((bare(&record, revision), note.at(revision))),
            Committed::Refused { .. } => Err(taken),
        }
    }

    /// Puts a new value in the place of the old one, as the next version. Drivers use it from their next call on.
    pub async fn rotate(
        &self,
        context: &WriteContext,
        project: &str,
        name: &str,
        precondition: Guard<'_>,
        value: &DraftValue,
    ) -> Result<(CredentialShown, AuditNote), InventoryError> {
        let change = |record: &mut Record| {
            record.meta.version += 1;
            record.meta.rotated_at = context.now;
            record.meta.source = source_of(value);
            record.meta.secret_version = None;
            record.sealed = self.seal_value(project, &record.meta, value)?;
            Ok(())
        };
        let (record, revision) = self.change(context.dry_run, project, name, precondition, change).await?;
        let note = note(&record, &["version", "value"]);
        Ok((bare(&record, revision), if context.dry_run { note } else { note.at(revision) }))
    }

    /// Notes that a BMC took or refused a version. One that speaks of an older version says nothing new.
    pub async fn note_use(
        &self,
        full_name: &str,
        used: CredentialUse,
        accepted: bool,
    ) -> Result<(), InventoryError> {
        let (project, name) = split(full_name);
        let change = |record: &mut Record| {
            let place = if accepted { &mut record.meta.accepted } else { &mut record.meta.refused };
            *place = Some(used.clone());
            Ok(())
        };
        self.change(false, project, name, &|_| true, change).await.map(drop)
    }

    async fn change(
        &self,
        dry_run: bool,
        project: &str,
        name: &str,
        precondition: Guard<'_>,
        change: impl Fn(&mut Record) -> Result<(), InventoryError>,
    ) -> Result<(Record, Revision), InventoryError> {
        let key = keys::credential(project, name);
        for _ in 0..MAX_TRIES {
            let missing = InventoryError::NotFound { kind: "Credential" };
            let Some(entry) = self.store.get(&key).await? else { return Err(missing) };
            if !precondition(entry.modified) {
                return Err(InventoryError::Precondition { current: entry.modified });
            }
            let mut record = read(&entry)?;
            change(&mut record)?;
            if dry_run {
                return Ok((record, entry.modified));
            }
            let txn = Txn::new().expect(&key, Expect::Modified(entry.modified)).put(&key, encode(&record));
            if let Committed::Done { revision } = self.store.commit(txn).await? {
                return Ok((record, revision));
            }
        }
        Err(InventoryError::Busy)
    }

    /// Deletes a credential that no host of its project refers to.
    pub async fn delete(
        &self,
        context: &WriteContext,
        project: &str,
        name: &str,
        precondition: Guard<'_>,
    ) -> Result<AuditNote, InventoryError> {
        let key = keys::credential(project, name);
        for _ in 0..MAX_TRIES {
            let missing = InventoryError::NotFound { kind: "Credential" };
            let Some(entry) = self.store.get(&key).await? else { return Err(missing) };
            if !precondition(entry.modified) {
                return Err(InventoryError::Precondition { current: entry.modified });
            }
            let uses = |spec: &BareMetalNodeSpec| {
                spec.project.as_deref().unwrap_or(NO_PROJECT) == project
                    && (spec.bmc_credentials.as_deref() == Some(name)
                        || spec.drivers.iter().any(|driver| driver.credentials.as_deref() == Some(name)))
            };
            if let Some(users) = self.inventory.users(uses) {
                return Err(InventoryError::InUse { kind: "Credential", name: name.to_owned(), users });
            }
            let note = note(&read(&entry)?, &[]);
            if context.dry_run {
                return Ok(note);
            }
            let txn = Txn::new().expect(&key, Expect::Modified(entry.modified)).delete(&key);
            if let Committed::Done { revision } = self.store.commit(txn).await? {
                return Ok(note.at(revision));
            }
        }
        Err(InventoryError::Busy)
    }

    fn seal_value(
        &self,
        project: &str,
        meta: &CredentialMeta,
        value: &DraftValue,
    ) -> Result<Option<Sealed>, InventoryError> {
        let fault = |why: &str| InventoryError::Vault { name: meta.name.clone(), why: why.to_owned() };
        let (user, password) = match value {
            DraftValue::Sealed { user, password } => (user, password),
            DraftValue::Secret { .. } if self.secrets.get().is_some() => return Ok(None),
            DraftValue::Secret { .. } => {
                return Err(fault(
                    "no Kubernetes cluster is configured to read Secrets from; give the value",
                ));
            }
        };
        let plain = Plain { user: user.clone(), password: STANDARD.encode(password.expose()) };
        let text = Zeroizing::new(encode(&plain));
        zeroize::Zeroize::zeroize(&mut { plain }.password);
        self.seal(&binding(project, &meta.name, meta.version), text).map(Some).map_err(fault)
    }

    /// Encrypts a text and binds it to `bound`.
    pub(super) fn seal(&self, bound: &str, mut text: Zeroizing<Vec<u8>>) -> Result<Sealed, &'static str> {
        let mut nonce = [0_u8; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(|_| "the operating system gives no random bytes")?;
        self.key
            .key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(bound.as_bytes()),
                &mut *text,
            )
            .map_err(|_| "it could not be encrypted")?;
        Ok(Sealed { key: self.key.id.clone(), nonce: STANDARD.encode(nonce), text: STANDARD.encode(&*text) })
    }

    /// Decrypts what was bound to `bound`.
    pub(super) fn unseal(&self, bound: &str, sealed: &Sealed) -> Result<Zeroizing<Vec<u8>>, String> {
        if sealed.key != self.key.id {
            return Err(format!(
                "it was encrypted with another key than the one in {}; put that file back, or set it anew",
                self.key.path.display()
            ));
        }
        let damaged = || "its record is damaged; set it anew".to_owned();
        let nonce: [u8; NONCE_LEN] = STANDARD
            .decode(&sealed.nonce)
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(damaged)?;
        let mut text = Zeroizing::new(STANDARD.decode(&sealed.text).map_err(|_| damaged())?);
        let opened = self
            .key
            .key
            .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(bound.as_bytes()), &mut text)
            .map_err(|_| damaged())?
            .len();
        text.truncate(opened);
        Ok(text)
    }

    fn open_value(&self, record: &Record) -> Result<Credential, String> {
        let sealed = record.sealed.as_ref().ok_or("it has no value; rotate it")?;
        let damaged = || "its record is damaged; rotate it".to_owned();
        let opened =
            self.unseal(&binding(&record.project, &record.meta.name, record.meta.version), sealed)?;
        let mut plain: Plain = serde_json::from_slice(&opened).map_err(|_| damaged())?;
        let password = STANDARD.decode(&plain.password).map_err(|_| damaged());
        zeroize::Zeroize::zeroize(&mut plain.password);
        Ok(Credential {
            user: plain.user,
            password: Secret::new(password?),
            // With what is fresh for every value: one that was deleted and made anew begins at version 1 again.
            version: format!("{}-{}", record.meta.version, sealed.nonce),
        })
    }
}

#[async_trait]
impl Credentials for Vault {
    async fn credential(&self, full_name: &str) -> Result<Credential, CredentialError> {
        let fault = |why: String| CredentialError::Unusable { name: full_name.to_owned(), why };
        let (project, name) = split(full_name);
        let entry = self
            .store
            .get(&keys::credential(project, name))
            .await
            .map_err(|error| CredentialError::Away { name: full_name.to_owned(), why: error.to_string() })?
            .ok_or_else(|| fault(format!("it does not exist in project {project}; create it")))?;
        let record = read(&entry).map_err(|_| fault("its record is damaged; rotate it".to_owned()))?;
        match (&record.meta.source, self.secrets.get()) {
            (CredentialSource::Store, _) => self.open_value(&record).map_err(fault),
            (CredentialSource::Secret { name: secret }, Some(secrets)) => {
                let found = secrets.credential(&format!("{project}/{secret}")).await;
                // Who reads of it knows the credential by its own name.
                found.map_err(|error| match error {
                    CredentialError::Unusable { why, .. } => fault(why),
                    CredentialError::Away { why, .. } => {
                        CredentialError::Away { name: full_name.to_owned(), why }
                    }
                })
            }
            (CredentialSource::Secret { .. }, None) => {
                Err(fault("no Kubernetes cluster is configured to read Secrets from".to_owned()))
            }
        }
    }
}

/// What a value is bound to.
fn binding(project: &str, name: &str, version: u64) -> String {
    format!("{project}\n{name}\n{version}")
}

/// Project and name of a credential's full name.
fn split(full_name: &str) -> (&str, &str) {
    full_name.split_once('/').unwrap_or((NO_PROJECT, full_name))
}

fn source_of(value: &DraftValue) -> CredentialSource {
    match value {
        DraftValue::Sealed { .. } => CredentialSource::Store,
        DraftValue::Secret { name } => CredentialSource::Secret { name: name.clone() },
    }
}

fn read(entry: &Entry) -> Result<Record, InventoryError> {
    serde_json::from_slice(&entry.value)
        .map_err(|source| InventoryError::Damaged { key: entry.key.clone(), source })
}

fn shown(entry: &Entry, record: &Record) -> CredentialShown {
    bare(record, entry.modified)
}

fn bare(record: &Record, version: Revision) -> CredentialShown {
    CredentialShown {
        project: record.project.clone(),
        created_by: record.created_by.clone(),
        meta: record.meta.clone(),
        version,
    }
}

/// Digests would let a reader of the log try passwords, so there are none.
fn note(record: &Record, changed: &[&str]) -> AuditNote {
    AuditNote {
        project: record.project.clone(),
        name: record.meta.name.clone(),
        changed: changed.iter().map(|&name| name.to_owned()).collect(),
        ..AuditNote::default()
    }
}

impl CredentialShown {
    /// Reads a stored record, without its value.
    pub fn of(entry: &Entry) -> Result<Self, InventoryError> {
        Ok(shown(entry, &read(entry)?))
    }

    /// The object as the API gives it: everything but the value.
    pub fn to_api(&self) -> serde_json::Value {
        let CredentialMeta { name, kind, source, version, created_at, rotated_at, accepted, refused, .. } =
            &self.meta;
        serde_json::json!({
            "kind": "Credential",
            "id": name,
            "name": name,
            "project": self.project,
            "resource_version": self.version.to_string(),
            "created_at": created_at,
            "created_by": self.created_by,
            "spec": { "kind": kind, "source": source },
            "status": {
                "version": version,
                "rotatedAt": rotated_at,
                "accepted": accepted,
                "refused": refused,
                "isRefused": self.meta.is_refused(),
            },
        })
    }

    /// When the value was last changed.
    pub fn rotated_at(&self) -> Timestamp {
        self.meta.rotated_at
    }
}
