//! Opening the store that the settings name.

use std::{path::Path, sync::Arc};

use anyhow::Context;
use muster_model::{Clock, store::Store};
use muster_store::{
    OpenOptions, Target,
    etcd::{Password, Tls, User},
    memory::Memory,
};

use crate::config::Settings;

pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    /// Whether no other process can write to it.
    pub(crate) exclusive: bool,
    /// Whether it outlives the process.
    pub(crate) kept: bool,
}

/// `command` is what whoever finds an embedded store taken is told.
pub(crate) async fn open(
    settings: &Settings,
    data_dir: &Path,
    clock: &Arc<dyn Clock>,
    command: &str,
) -> anyhow::Result<Opened> {
    let name = settings.text("store");
    let target = match name.as_str() {
        "memory" => return Ok(Opened { store: Arc::new(Memory::default()), exclusive: true, kept: false }),
        "embedded" => Target::Directory(data_dir.join("store")),
        other => Target::parse(other)?,
    };
    let exclusive = matches!(target, Target::Directory(_));
    let mut options = OpenOptions::new(command, Arc::clone(clock));
    options.backup_dir = Some(data_dir.join("backups"));
    options.etcd.root = settings.text("store-root");
    options.etcd.tls = etcd_tls(settings)?;
    options.etcd.user = etcd_user(settings)?;
    let store = muster_store::open(&target, options)
        .await
        .with_context(|| format!("cannot open the store {name}"))?;
    Ok(Opened { store, exclusive, kept: true })
}

fn etcd_tls(settings: &Settings) -> anyhow::Result<Option<Tls>> {
    let read = |path: &str| -> anyhow::Result<Option<Vec<u8>>> {
        settings
            .optional(path)
            .map(|file| {
                std::fs::read(&file).with_context(|| format!("cannot read {file}, the setting {path}"))
            })
            .transpose()
    };
    let (ca, certificate, key) = (read("etcd.ca")?, read("etcd.certificate")?, read("etcd.key")?);
    if ca.is_none() && certificate.is_none() && key.is_none() {
        return Ok(None);
    }
    let client = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => anyhow::bail!("a client certificate for etcd takes both etcd.certificate and etcd.key"),
    };
    Ok(Some(Tls { ca, client, server_name: None }))
}

fn etcd_user(settings: &Settings) -> anyhow::Result<Option<User>> {
    let Some(name) = settings.optional("etcd.user") else { return Ok(None) };
    let file = settings.optional("etcd.password-file").context("etcd.user needs etcd.password-file")?;
    let password = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    Ok(Some(User { name, password: Password::new(password.trim_end_matches(['\r', '\n'])) }))
}
