//! The environment, read once. Flags with an environment variable of their own are read by the parser.

use std::path::PathBuf;

#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    pub(crate) home: Option<PathBuf>,
    pub(crate) config_home: Option<PathBuf>,
    pub(crate) colour: bool,
    pub(crate) editor: Option<String>,
}

impl Environment {
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place where the command line reads its environment"
    )]
    pub(crate) fn read() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            home: text("HOME").map(PathBuf::from),
            config_home: text("XDG_CONFIG_HOME").map(PathBuf::from),
            colour: text("NO_COLOR").is_none() && text("TERM").as_deref() != Some("dumb"),
            editor: text("MUSTER_EDITOR").or_else(|| text("VISUAL")).or_else(|| text("EDITOR")),
        }
    }

    /// Where the contexts are kept unless told otherwise.
    pub(crate) fn config_file(&self) -> Option<PathBuf> {
        let folder = self.config_home.clone().or_else(|| Some(self.home.as_ref()?.join(".config")))?;
        Some(folder.join("muster").join("config.yaml"))
    }
}
