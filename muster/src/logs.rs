//! Logs on standard error: text on a terminal, JSON elsewhere.

use std::io::IsTerminal;

use anyhow::Context;
use tracing_subscriber::EnvFilter;

/// Starts logging. `format` is `auto`, `text` or `json`.
pub(crate) fn start(level: &str, format: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(level).with_context(|| format!("the setting log.level is {level:?}"))?;
    let json = match format {
        "json" => true,
        "text" => false,
        "auto" => !std::io::stderr().is_terminal(),
        other => anyhow::bail!("the setting log.format is {other:?}; use auto, text or json"),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if json {
        builder.json().flatten_event(true).with_current_span(false).try_init()
    } else {
        builder.with_ansi(std::io::stderr().is_terminal()).try_init()
    };
    started.map_err(|error| anyhow::anyhow!("logging could not be started: {error}"))
}
