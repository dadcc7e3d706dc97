//! A client as lean as can be: it shares the processors with the server that it measures.
//!
//! HTTP/1.1 over one kept connection, one request at a time, answers with a `Content-Length`. Requests are bytes that
//! were put together before.

use std::{fmt::Write as _, io, net::SocketAddr};

use anyhow::{Context, bail};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Room for one answer to begin with: a page of a list.
const BUFFER: usize = 64 * 1024;

/// A request, ready to send. `token` is the bearer.
pub(super) fn request(method: &str, path: &str, token: &str, body: Option<&Value>) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: muster\r\nauthorization: Bearer {token}\r\n");
    let body = body.map(Value::to_string).unwrap_or_default();
    if !body.is_empty() {
        let _ = write!(text, "content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    }
    text.push_str("\r\n");
    text.push_str(&body);
    text.into_bytes()
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

/// An answer in the connection's buffer.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    pub(super) status: u16,
    pub(super) body: &'a [u8],
}

impl Answer<'_> {
    /// The body as JSON, if the status is the expected one.
    pub(super) fn json(&self, status: u16) -> anyhow::Result<Value> {
        if self.status != status {
            bail!("the server answered {} instead of {status}: {}", self.status, self.text());
        }
        serde_json::from_slice(self.body).context("the server's answer is not JSON")
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(self.body).into_owned()
    }
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER], filled: 0 })
    }

    pub(super) async fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request).await
    }

    /// Sends a request and reads its answer.
    pub(super) async fn call(&mut self, request: &[u8]) -> io::Result<Answer<'_>> {
        self.send(request).await?;
        self.filled = 0;
        let head = loop {
            if let Some(end) = find(&self.buffer[..self.filled], b"\r\n\r\n") {
                break parse(&self.buffer[..end])?.at(end + 4);
            }
            self.more().await?;
        };
        let end = head.body + head.length;
        while self.filled < end {
            if self.buffer.len() < end {
                self.buffer.resize(end, 0);
            }
            self.more().await?;
        }
        Ok(Answer { status: head.status, body: &self.buffer[head.body..end] })
    }

    /// Reads on in an answer without end until `marker` is in what came since the last call.
    pub(super) async fn until(&mut self, marker: &[u8]) -> io::Result<()> {
        let mut searched: usize = 0;
        loop {
            let from = searched.saturating_sub(marker.len());
            if find(&self.buffer[from..self.filled], marker).is_some() {
                self.filled = 0;
                return Ok(());
            }
            searched = self.filled;
            self.more().await?;
        }
    }

    async fn more(&mut self) -> io::Result<()> {
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let read = self.stream.read(&mut self.buffer[self.filled..]).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.filled += read;
        Ok(())
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    length: usize,
    /// Where the body begins.
    body: usize,
}

impl Head {
    fn at(self, body: usize) -> Self {
        Self { body, ..self }
    }
}

fn parse(head: &[u8]) -> io::Result<Head> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP/1.1 with a length");
    let text = std::str::from_utf8(head).map_err(|_| wrong())?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).ok_or_else(wrong)?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    match length {
        Some(length) => Ok(Head { status, length, body: 0 }),
        None if status == 204 || status == 304 => Ok(Head { status, length: 0, body: 0 }),
        None => Err(wrong()),
    }
}

/// Where `needle` begins.
fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    let mut from = 0;
    while let Some(step) = haystack[from..].iter().position(|byte| *byte == first) {
        let at = from + step;
        if haystack[at..].starts_with(needle) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read() {
        let head = |text: &str| parse(text.as_bytes()).ok().map(|head| (head.status, head.length));
        assert_eq!(head("HTTP/1.1 200 OK\r\nContent-Length: 12"), Some((200, 12)));
        assert_eq!(head("HTTP/1.1 429 Too Many\r\na: b\r\ncontent-length:0"), Some((429, 0)));
        assert_eq!(head("HTTP/1.1 204 No Content\r\na: b"), Some((204, 0)));
        assert_eq!(head("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked"), None);
        assert_eq!(head("nonsense"), None);
    }

    #[test]
    fn a_needle_is_found_at_its_first_place() {
        assert_eq!(find(b"aab\r\n\r\nx", b"\r\n\r\n"), Some(3));
        assert_eq!(find(b"\r\r\n\r\n", b"\r\n\r\n"), Some(1));
        assert_eq!(find(b"\r\n\r", b"\r\n\r\n"), None);
        assert_eq!(find(b"", b"x"), None);
    }

    #[test]
    fn requests_carry_what_the_server_needs() {
        let text = String::from_utf8(request("GET", "/x", "t", None)).unwrap();
        assert_eq!(text, "GET /x HTTP/1.1\r\nhost: muster\r\nauthorization: Bearer t\r\n\r\n");
        let text = String::from_utf8(request("POST", "/x", "t", Some(&serde_json::json!({"a": 1})))).unwrap();
        assert!(text.ends_with("content-length: 7\r\n\r\n{\"a\":1}"), "{text}");
    }
}
