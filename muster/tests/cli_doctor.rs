//! `muster doctor` on set-ups that are broken outside of its own files: a clock that is off, a store that takes no writes.

mod cli_support;

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

use cli_support::{Ran, Server};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;

/// The failed check with this id.
#[track_caller]
fn failed(ran: &Ran, id: &str) -> Value {
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let report: Value = serde_json::from_str(&ran.out).expect("the report is JSON");
    let checks = report["checks"].as_array().expect("the report lists checks");
    let found = checks.iter().find(|check| check["id"] == id && check["result"] == "failed");
    found.unwrap_or_else(|| panic!("no failed check {id} in {report:#}")).clone()
}

/// A door to `server` behind which it is another day. Its threads end with the process.
fn on_another_day(server: &Server) -> String {
    const DAY: &[u8] = b"Mon, 01 Jan 2001 00:00:00 GMT";
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("its address"));
    let behind = server.url.trim_start_matches("http://").to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let upstream = TcpStream::connect(&behind).expect("the server listens");
            let (mut asks, mut asked) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
            std::thread::spawn(move || drop(std::io::copy(&mut asks, &mut asked)));
            let (mut from, mut to) = (upstream, client);
            std::thread::spawn(move || {
                let mut buffer = vec![0; 1 << 20];
                while let Ok(length @ 1..) = from.read(&mut buffer) {
                    let part = &mut buffer[..length];
                    let date = part.windows(6).position(|bytes| bytes.eq_ignore_ascii_case(b"date: "));
                    if let Some(place) =
                        date.map(|place| place + 6).filter(|place| place + DAY.len() <= length)
                    {
                        part[place..place + DAY.len()].copy_from_slice(DAY);
                    }
                    if to.write_all(part).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// OPS-U20: clocks that are apart.
#[test]
fn ops_u20_a_clock_that_is_off() {
    let server = Server::start();
    let check = failed(&server.run(&["doctor", "-o", "json", "--server", &on_another_day(&server)]), "clock");
    assert!(check["object"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{check}");
    assert!(check["found"].as_str().unwrap().contains("apart"), "{check}");
    assert!(check["remedy"].as_str().unwrap().contains("NTP"), "{check}");
}

/// OPS-U20: a store whose disk refuses. A limit on the size of files does that to a process under way; the shell lets it
/// get the error instead of the signal.
#[test]
fn ops_u20_a_store_that_takes_no_writes() {
    let server = Server::start_under("trap '' XFSZ; exec \"$@\"");
    server.fill();
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
    let limit = |bytes: Option<u64>| {
        prlimit(Some(pid), Resource::Fsize, Rlimit { current: bytes, maximum: None })
            .expect("a limit is set");
    };
    limit(Some(1));
    let refused = server.run(&["create", "cluster", "more"]).failed(7, "cluster more");
    assert!(refused.err.contains("takes no writes"), "{}", refused.err);
    assert!(server.run(&["get", "pools", "-o", "name"]).ok().contains("prod/web"), "reads go on");
    let check = failed(&server.run(&["doctor", "-o", "json"]), "store");
    assert!(check["object"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{check}");
    assert!(check["found"].as_str().unwrap().contains("no writes"), "{check}");
    assert!(check["remedy"].as_str().unwrap().contains("make room"), "{check}");
    limit(None);
    server.run(&["create", "cluster", "more"]).ok();
    assert_eq!(server.run(&["doctor", "-o", "json"]).code, 0);
}
