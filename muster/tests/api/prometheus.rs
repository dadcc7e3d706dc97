//! A real Prometheus for tests. Needs the harness beside it.

use std::fmt::Write as _;

use crate::harness::{Process, run};

/// A Prometheus that scrapes pages every second. It can be stopped, and started again with what it knew.
pub(crate) struct Prometheus {
    pub(crate) url: String,
    directory: tempfile::TempDir,
    process: Option<Process>,
}

impl Prometheus {
    /// Scrapes these pages, each an address and a path.
    pub(crate) async fn start(pages: &[(&str, &str)]) -> Self {
        let mut jobs = String::from("global: {scrape_interval: 1s}\nscrape_configs:\n");
        for (number, (address, path)) in pages.iter().enumerate() {
            let target = format!("static_configs: [{{targets: ['{address}']}}]");
            let _ = writeln!(jobs, "- {{job_name: j{number}, metrics_path: {path}, {target}}}");
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(directory.path().join("prometheus.yml"), jobs).expect("its configuration");
        let address =
            muster_emulate::ports::take(1).expect("a free port")[0].local_addr().expect("it is bound");
        let mut made = Self { url: format!("http://{address}"), directory, process: None };
        made.resume().await;
        made
    }

    pub(crate) fn stop(&mut self) {
        self.process = None;
    }

    #[allow(clippy::disallowed_methods, reason = "a test waits for another process here")]
    pub(crate) async fn resume(&mut self) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = self.directory.path();
        let (process, lines) = run(
            &[
                "prometheus",
                &format!("--config.file={}", directory.join("prometheus.yml").display()),
                &format!("--storage.tsdb.path={}", directory.join("data").display()),
                &format!("--web.listen-address={}", self.url.trim_start_matches("http://")),
            ],
            &[],
            Some(&directory.join("log")),
        );
        std::thread::spawn(move || lines.for_each(drop));
        self.process = Some(process);
        for _ in 0..1_200 {
            let ready = reqwest::get(format!("{}/-/ready", self.url)).await;
            if ready.is_ok_and(|answer| answer.status().is_success()) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        let log = std::fs::read_to_string(directory.join("log")).unwrap_or_default();
        panic!("prometheus did not become ready (scripts/test.sh installs it): {log}");
    }
}
