//! What happened, line by line. Two runs of one seed have the same lines, byte for byte.

use std::fmt::Write as _;

use muster_model::Duration;

/// The lines of a run. Only the last ones are kept unless all are asked for; the digest is over all.
#[derive(Debug)]
pub struct Trace {
    digest: u64,
    count: u64,
    keep: usize,
    lines: std::collections::VecDeque<String>,
}

impl Trace {
    /// Keeps the last `keep` lines.
    pub fn new(keep: usize) -> Self {
        Self { digest: 0xcbf2_9ce4_8422_2325, count: 0, keep, lines: std::collections::VecDeque::new() }
    }

    pub fn add(&mut self, at: Duration, text: &str) {
        let mut line = String::with_capacity(text.len() + 16);
        let millis = at.millis();
        let (hours, minutes, seconds) = (millis / 3_600_000, millis / 60_000 % 60, millis / 1000 % 60);
        let _ = write!(line, "{hours:02}:{minutes:02}:{seconds:02}.{:03} {text}", millis % 1000);
        for byte in line.bytes().chain([b'\n']) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.count += 1;
        if self.keep == 0 {
            return;
        }
        if self.lines.len() == self.keep {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// FNV-1a over every line ever added.
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    pub const fn count(&self) -> u64 {
        self.count
    }

    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}
