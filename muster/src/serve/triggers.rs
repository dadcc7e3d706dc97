//! Which Prometheus answers triggers: the one in the settings, else the one in `/baremetal/global/config`, read live.

use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use muster_model::{
    Duration, Known, Timestamp,
    host::{GlobalConfig, keys},
    pool::Trigger,
    store::Store,
    trigger::{Finding, Triggers},
};
use muster_prom::{Auth, Prometheus, Settings as PrometheusSettings};
use tokio::sync::Mutex;

use crate::config::Settings;

/// Asks whichever server is configured at the moment.
#[derive(Debug)]
pub(super) struct Configured {
    store: Arc<dyn Store>,
    /// Account, authority and patience; the URL may come from the store.
    base: PrometheusSettings,
    current: Mutex<Option<(String, Arc<Prometheus>)>>,
}

impl Configured {
    /// Fails on settings that cannot work; a wrong URL in the store is told when a trigger is asked.
    pub(super) fn new(settings: &Settings, store: Arc<dyn Store>) -> anyhow::Result<Self> {
        let file = |path: &str| settings.optional(path).map(std::path::PathBuf::from);
        let auth = match (file("prometheus.token-file"), settings.optional("prometheus.user")) {
            (Some(_), Some(_)) => anyhow::bail!(
                "prometheus.token-file and prometheus.user are both set; give a token or an account, not both"
            ),
            (Some(token_file), None) => Auth::Bearer { token_file },
            (None, Some(user)) => {
                let password_file = file("prometheus.password-file")
                    .context("prometheus.user is set; set prometheus.password-file too")?;
                Auth::Basic { user, password_file }
            }
            (None, None) => Auth::None,
        };
        let ca_pem = file("prometheus.ca")
            .map(|path| {
                std::fs::read_to_string(&path)
                    .with_context(|| format!("prometheus.ca: {} cannot be read", path.display()))
            })
            .transpose()?;
        let timeout = settings.parsed::<Duration>("prometheus.timeout")?;
        let url = settings.text("prometheus.url");
        let base = PrometheusSettings { auth, ca_pem, timeout, ..PrometheusSettings::new(url) };
        if !base.url.is_empty() {
            Prometheus::new(base.clone())?;
        }
        Ok(Self { store, base, current: Mutex::new(None) })
    }

    async fn url(&self) -> Result<String, String> {
        if !self.base.url.is_empty() {
            return Ok(self.base.url.clone());
        }
        let entry = self.store.get(keys::GLOBAL_CONFIG).await.map_err(|error| error.to_string())?;
        let global = match entry.map(|entry| GlobalConfig::parse(&entry.value)).transpose() {
            Ok(global) => global,
            // Settings that cannot be used leave the last good ones in force.
            Err(faults) => {
                let known = self.current.lock().await.as_ref().map(|(known, _)| known.clone());
                return known.ok_or_else(|| format!("{} cannot be used: {faults}", keys::GLOBAL_CONFIG));
            }
        };
        global.and_then(|global| global.prometheus_url).ok_or_else(|| {
            "0 Prometheus servers are configured; set prometheus.url in the server's settings".to_owned()
        })
    }

    async fn server(&self) -> Result<Arc<Prometheus>, String> {
        let url = self.url().await?;
        let mut current = self.current.lock().await;
        if let Some((known, server)) = &*current
            && *known == url
        {
            return Ok(Arc::clone(server));
        }
        let settings = PrometheusSettings { url: url.clone(), ..self.base.clone() };
        let server = Arc::new(Prometheus::new(settings).map_err(|error| error.to_string())?);
        *current = Some((url, Arc::clone(&server)));
        Ok(server)
    }
}

#[async_trait]
impl Triggers for Configured {
    async fn evaluate(&self, trigger: &Trigger, now: Timestamp) -> Known<Finding> {
        match self.server().await {
            Ok(server) => server.evaluate(trigger, now).await,
            Err(why) => Known::Unknown { why, since: now },
        }
    }
}
