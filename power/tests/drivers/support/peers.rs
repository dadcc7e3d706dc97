//! Foreign peers as child processes: started by the project's scripts, killed on drop.

use std::{
    fs::File,
    net::{TcpListener, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

/// A running peer with its scratch directory.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    pub dir: TempDir,
    pub port: u16,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Peer {
    /// What the peer has written so far, for messages of failing tests.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/bmc")
}

/// Makes sure that the peers are installed; returns the directory of their Python.
pub fn installed(names: &[&str]) -> PathBuf {
    let output = Command::new(scripts().join("install.sh"))
        .args(names)
        .stdin(Stdio::null())
        .output()
        .expect("scripts/bmc/install.sh runs");
    assert!(output.status.success(), "install.sh: {}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

pub fn free_tcp_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub fn free_udp_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn spawn(mut command: Command, dir: TempDir, port: u16) -> Peer {
    let log = File::create(dir.path().join("log")).unwrap();
    let child = command
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    Peer { child, dir, port }
}

/// The uuid of the `index`-th system of [`sushy`].
pub fn sushy_uuid(index: u32) -> String {
    format!("00000000-0000-4000-8000-{index:012}")
}

/// sushy-tools' emulator with its fake driver and a power delay of `delay` seconds.
pub fn sushy(systems: u32, delay: u32) -> Peer {
    let python = installed(&["sushy"]).join("python");
    let (dir, port) = (TempDir::new().unwrap(), free_tcp_port());
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let list: Vec<String> = (0..systems)
        .map(|index| {
            format!(
                "{{'uuid': '{}', 'name': 'node-{index}', 'power_state': 'Off', 'external_notifier': False, \
                 'nics': [{{'mac': '02:00:00:00:00:{index:02x}', 'ip': '10.0.0.1'}}]}}",
                sushy_uuid(index)
            )
        })
        .collect();
    let config = format!(
        "SUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\nSUSHY_EMULATOR_LISTEN_PORT = {port}\n\
         SUSHY_EMULATOR_FAKE_DRIVER = True\nSUSHY_EMULATOR_STATE_DIR = '{}'\n\
         SUSHY_EMULATOR_FAKE_SYSTEMS = [{}]\n",
        state.display(),
        list.join(", ")
    );
    let file = dir.path().join("emulator.conf");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(python);
    command.arg(scripts().join("sushy_fixed.py")).arg(delay.to_string()).arg("--config").arg(&file);
    spawn(command, dir, port)
}

/// `OpenIPMI`'s simulator (cipher suite 3).
pub fn ipmi_sim() -> Peer {
    installed(&["ipmi"]);
    let (dir, port) = (TempDir::new().unwrap(), free_udp_port());
    let mut command = Command::new(scripts().join("ipmi_sim.sh"));
    command.arg(dir.path()).arg(port.to_string());
    spawn(command, dir, port)
}

/// A BMC on pyghmi with cipher suite 3 or 17.
pub fn pyghmi(suite: u8) -> Peer {
    let python = installed(&["pyghmi"]).join("python");
    let (dir, port) = (TempDir::new().unwrap(), free_udp_port());
    let mut command = Command::new(python);
    command.arg(scripts().join("pyghmi_bmc.py")).arg(port.to_string()).arg(suite.to_string());
    spawn(command, dir, port)
}
