//! Progress of long work, on standard error: a bar on a terminal, one line for each transition elsewhere.

use indicatif::{ProgressBar, ProgressStyle};

use super::screen::Screen;

/// How far something has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// `1/5 ready, Progressing`: a new text is a transition.
    pub(crate) text: String,
    pub(crate) done: u64,
    pub(crate) of: u64,
}

#[derive(Debug)]
pub(crate) struct Progress {
    screen: Screen,
    title: String,
    bar: Option<ProgressBar>,
    last: Option<Step>,
}

impl Progress {
    pub(crate) fn new(screen: Screen, title: impl Into<String>) -> Self {
        let title = title.into();
        let bar = screen.lively.then(|| {
            let bar = ProgressBar::new(1);
            let style = ProgressStyle::with_template("{spinner} {prefix} [{bar:16}] ({elapsed}) {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
            bar.set_prefix(title.clone());
            bar.enable_steady_tick(std::time::Duration::from_millis(120));
            bar
        });
        Self { screen, title, bar, last: None }
    }

    pub(crate) fn show(&mut self, step: Step) {
        if self.last.as_ref() == Some(&step) {
            return;
        }
        match &self.bar {
            Some(bar) => {
                bar.set_length(step.of.max(1));
                bar.set_position(step.done.min(step.of.max(1)));
                bar.set_message(step.text.clone());
            }
            None if self.last.as_ref().is_none_or(|last| last.text != step.text) => {
                self.screen.note(&format!("{}: {}", self.title, step.text));
            }
            None => {}
        }
        self.last = Some(step);
    }

    /// What was shown last, for the message of a timeout.
    pub(crate) fn last(&self) -> Option<&str> {
        self.last.as_ref().map(|step| step.text.as_str())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
