//! The machine that a figure was measured on: without it the figure says little.

use std::fs;

use serde::Serialize;

/// What Linux says of itself; empty or zero where it does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    /// Processors that this process may use.
    pub(crate) cores: usize,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    /// Load of the last minute when the benchmark ended, the benchmark's own included.
    pub(crate) load: String,
}

impl Machine {
    pub(crate) fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, name: &str| -> String {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map_or("", |(_, value)| value).trim().to_owned()
        };
        let memory = after(&text("/proc/meminfo"), "MemTotal");
        let kib: u64 = memory.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
        Self {
            processor: after(&text("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: kib / 1024,
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: text("/proc/loadavg").split_whitespace().next().unwrap_or_default().to_owned(),
        }
    }
}
