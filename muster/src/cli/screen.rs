//! The two streams. Data goes to standard output, everything else to standard error; a reader that went
//! away ends the command quietly.

use std::io::{self, BufRead, IsTerminal, Write};

use super::failure::Outcome;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    /// Colour on standard output.
    pub(crate) colour: bool,
    /// Standard error is a terminal: bars and questions make sense there.
    pub(crate) lively: bool,
    /// Standard input is a terminal too: a person can answer.
    pub(crate) person: bool,
}

#[allow(clippy::unused_self, reason = "who writes must hold the screen, so that nothing else prints")]
impl Screen {
    pub(crate) fn new(colour_allowed: bool) -> Self {
        let lively = io::stderr().is_terminal();
        Self {
            colour: colour_allowed && io::stdout().is_terminal(),
            lively,
            person: lively && io::stdin().is_terminal(),
        }
    }

    /// Data for standard output.
    pub(crate) fn data(self, text: &str) -> Outcome {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(())
    }

    /// One line of data.
    pub(crate) fn line(self, text: &str) -> Outcome {
        self.data(&format!("{text}\n"))
    }

    /// One line for the person, beside the data. Nobody there to read it is no fault.
    pub(crate) fn note(self, text: &str) {
        let mut err = io::stderr().lock();
        let _ = writeln!(err, "{text}");
    }

    /// Asks on standard error; only `y` and `yes` agree.
    pub(crate) fn confirm(self, question: &str) -> bool {
        let mut err = io::stderr().lock();
        let _ = write!(err, "{question} [y/N] ");
        let _ = err.flush();
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
    }
}
