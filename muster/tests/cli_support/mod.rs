//! A real server on a free port and the real command line against it. Everything started here is killed
//! when its owner goes away.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use serde_json::Value;
use tempfile::TempDir;

#[path = "../api/harness.rs"]
#[allow(dead_code, unused_imports, unused_macros, clippy::expect_used, reason = "only its etcd is used here")]
mod harness;

pub(crate) const MUSTER: &str = env!("CARGO_BIN_EXE_muster");
pub(crate) const CONTROLLER_TOKEN: &str = "a-controller-token-for-these-tests";
pub(crate) const EMAIL: &str = "user@example.com";

/// Which store a server is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    Embedded,
    Etcd,
}

/// One etcd for all tests of a program; every server in it has a root of its own.
static ETCD: OnceLock<harness::Etcd> = OnceLock::new();
static ROOTS: AtomicU64 = AtomicU64::new(1);

/// Makes a test of each function on each store.
#[allow(unused_macros, reason = "not every program has such tests")]
macro_rules! on_each_store {
    ($($name:ident),+ $(,)?) => {
        mod embedded { $(#[test] fn $name() { super::$name(crate::cli_support::On::Embedded); })+ }
        mod etcd { $(#[test] fn $name() { super::$name(crate::cli_support::On::Etcd); })+ }
    };
}
#[allow(unused_imports, reason = "not every program has such tests")]
pub(crate) use on_each_store;

/// A running server with a home directory for its users.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    pub(crate) folder: TempDir,
    /// Where it is in the etcd that all share.
    root: Option<String>,
    _drain: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).expect("output is UTF-8"),
            err: String::from_utf8(output.stderr).expect("output is UTF-8"),
        }
    }

    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.out, self.err);
        self.out
    }

    /// The command failed with this code, and said what about which object and what to do next.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, object: &str) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        assert!(
            self.err.contains("error: ") && self.err.contains(object),
            "no object {object:?}: {}",
            self.err
        );
        assert!(self.err.contains("next: "), "no next step: {}", self.err);
        self
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn on(store: On) -> Self {
        Self::on_with(store, &[])
    }

    /// On this store, with these arguments besides.
    pub(crate) fn on_with(store: On, arguments: &[&str]) -> Self {
        match store {
            On::Embedded => Self::start_with(arguments),
            On::Etcd => {
                let etcd = ETCD.get_or_init(harness::Etcd::start).store();
                let root = format!("/tests/{}", ROOTS.fetch_add(1, Ordering::Relaxed));
                let set = format!("store-root={root}");
                let mut server = Self::start_with(&[&["--store", &etcd, "--set", &set], arguments].concat());
                server.root = Some(root);
                server
            }
        }
    }

    /// With these arguments besides.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self::spawn(Command::new(MUSTER), arguments)
    }

    /// By a shell script that replaces itself by its arguments.
    pub(crate) fn start_under(script: &str) -> Self {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", script, "sh", MUSTER]);
        Self::spawn(shell, &[])
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn spawn(mut program: Command, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut child = program
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder.path().join("data"))
            .args(arguments)
            .env_clear()
            .env("MUSTER_CONTROLLER_TOKEN", CONTROLLER_TOKEN)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output is piped")).lines();
        let url = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("muster serves on ").map(str::to_owned))
            .expect("the server says where it listens");
        let drain = std::thread::spawn(move || lines.for_each(drop));
        Self { child, url, folder, root: None, _drain: drain }
    }

    /// Ends the server; its folder lives as long as what is returned.
    pub(crate) fn stop(mut self) -> TempDir {
        let _ = self.child.kill();
        let _ = self.child.wait();
        std::mem::replace(&mut self.folder, tempfile::tempdir().expect("a temporary folder"))
    }

    pub(crate) fn home(&self) -> &Path {
        self.folder.path()
    }

    /// A command with nothing of this machine's environment.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = clean(Command::new(MUSTER), self.home());
        command.env("MUSTER_SERVER", &self.url).args(args);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).stdin(Stdio::null()).output().expect("the binary runs"))
    }

    /// Runs with `input` on standard input.
    pub(crate) fn feed(&self, args: &[&str], input: &str) -> Ran {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut stdin = child.stdin.take().expect("its input is piped");
        stdin.write_all(input.as_bytes()).expect("the command reads its input");
        drop(stdin);
        Ran::of(child.wait_with_output().expect("it ends"))
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let mut args = args.to_vec();
        args.extend(["-o", "json"]);
        serde_json::from_str(&self.run(&args).ok()).expect("-o json is JSON")
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home().join(name);
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("the folder can be made");
        std::fs::write(&path, text).expect("the file can be written");
        path
    }

    /// A cluster `prod` with a pool `web` of three nodes.
    pub(crate) fn fill(&self) {
        self.run(&["create", "cluster", "prod", "--platform", "gcp"]).ok();
        let pool = [
            "create",
            "pool",
            "web",
            "--cluster",
            "prod",
            "--platform",
            "gcp",
            "--machine-type",
            "n1-standard-4",
        ];
        let size = ["--min", "1", "--max", "10", "--count", "3", "--labels", "tier=web"];
        self.run(&[&pool[..], &size[..]].concat()).ok();
    }

    pub(crate) fn id(&self, pool: &str) -> String {
        self.run(&["get", "pool", pool, "-o", "jsonpath={.id}"]).ok()
    }

    /// Something that is another one after every write of this server. The revisions of an etcd are those of all its writers,
    /// and lists tell them; there it is the records themselves, with their revisions.
    pub(crate) fn state(&self) -> Value {
        let Some(root) = &self.root else { return self.json(&["get", "pools"])["revision"].clone() };
        let etcd = ETCD.get().expect("it runs");
        let all = etcd.ctl(&["get", "--prefix", &format!("{root}/"), "-w", "json"]);
        let all: Value = serde_json::from_str(&all).expect("etcdctl writes JSON");
        assert!(all["kvs"].is_array(), "nothing is stored: {all}");
        all["kvs"].clone()
    }

    /// Reads an answer that does not end by itself until `enough` says so; what was read.
    pub(crate) fn http_until(&self, path: &str, enough: impl Fn(&str) -> bool) -> String {
        let mut stream =
            TcpStream::connect(self.url.trim_start_matches("http://")).expect("the server listens");
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: muster\r\nX-User-Email: {EMAIL}\r\nConnection: close\r\n\r\n"
        )
        .expect("the request is sent");
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        while let count @ 1.. = stream.read(&mut piece).expect("the answer is read") {
            text.extend_from_slice(&piece[..count]);
            if enough(&String::from_utf8_lossy(&text)) {
                break;
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// One HTTP request without the command line: status and body.
    pub(crate) fn http(&self, method: &str, path: &str, bearer: Option<&str>, body: &str) -> (u16, String) {
        let address = self.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).expect("the server listens");
        let who =
            bearer.map_or(format!("X-User-Email: {EMAIL}"), |token| format!("Authorization: Bearer {token}"));
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: muster\r\n{who}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .expect("the request is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the answer is read");
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
        (status, body)
    }

    /// What a controller would report on a pool.
    pub(crate) fn report(&self, id: &str, nodes: u32, generation: u64) {
        let report = format!(
            r#"{{"controller_name":"gcp-nodepool-controller","observed_generation":{generation},"conditions":[{{"type":"Ready","status":"True","lastTransitionTime":"2025-10-17T10:30:00Z","reason":"NodesReady","message":"all nodes are ready"}}],"metadata":{{"platform":"gcp","active_nodes":{nodes},"desired_nodes":{nodes},"node_ages":"2h30m,1h45m,30m"}}}}"#
        );
        let (status, body) =
            self.http("PUT", &format!("/api/v1/nodepools/{id}/status"), Some(CONTROLLER_TOKEN), &report);
        assert_eq!(status, 200, "{body}");
    }
}

/// A command that sees nothing of the machine's environment but the programs.
pub(crate) fn clean(mut command: Command, home: &Path) -> Command {
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", home);
    command
}

/// A child that does not outlive its test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes `pool-0000`… in cluster `prod`, from several threads.
pub(crate) fn many_pools(server: &Server, count: usize) {
    const WRITERS: usize = 16;
    let cluster = server.run(&["get", "cluster", "prod", "-o", "jsonpath={.id}"]).ok();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let cluster = &cluster;
            scope.spawn(move || {
                for place in (writer..count).step_by(WRITERS) {
                    let body = format!(
                        r#"{{"name":"pool-{place:04}","cluster_id":"{cluster}","spec":{{"platform":{{"type":"gcp","gcp":{{"machineType":"n1-standard-4"}}}},"nodeCount":1}}}}"#
                    );
                    let (status, answer) = server.http("POST", "/api/v1/nodepools", None, &body);
                    assert_eq!(status, 201, "{answer}");
                }
            });
        }
    });
}
