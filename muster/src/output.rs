//! Writing for people: a closed pipe (`| head`) ends the output, not the program.

use std::io::Write;

/// One line on standard output. `false` once nobody reads any more.
pub(crate) fn line(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).is_ok()
}

/// A text that ends its own lines, on standard output. `false` once nobody reads any more.
pub(crate) fn text(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// One line on standard error.
pub(crate) fn error(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
