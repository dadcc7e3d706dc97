//! The lines of a watch and the pages of a list.

use std::borrow::Cow;

use futures::{AsyncBufRead, AsyncBufReadExt};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The longest line that is read. etcd takes objects of up to 1.5 MiB; JSON with escapes is a few times that.
const LONGEST_LINE: usize = 16 << 20;

/// One line of a watch.
#[derive(Debug, Deserialize)]
pub(crate) struct Line<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) object: &'a RawValue,
}

/// One page of a list.
#[derive(Debug, Deserialize)]
pub(crate) struct Page<'a> {
    #[serde(default)]
    pub(crate) metadata: PageMeta,
    #[serde(borrow, default)]
    pub(crate) items: Option<Vec<&'a RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PageMeta {
    pub(crate) resource_version: String,
    #[serde(rename = "continue")]
    pub(crate) next: Option<String>,
}

/// As much of any object as a watch needs, also of one that cannot be read otherwise.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Stub {
    pub(crate) metadata: StubMeta,
    pub(crate) spec: StubSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StubMeta {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) resource_version: String,
    annotations: Option<StubAnnotations>,
}

#[derive(Debug, Default, Deserialize)]
struct StubAnnotations {
    #[serde(rename = "k8s.io/initial-events-end", default)]
    initial_events_end: Option<String>,
}

/// A pod's node; anything else about a spec is nobody's business here.
#[derive(Debug, Default)]
pub(crate) struct StubSpec {
    pub(crate) node_name: Option<String>,
}

impl<'de> Deserialize<'de> for StubSpec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Bound {
            node_name: Option<String>,
        }
        let spec = Option::<&RawValue>::deserialize(deserializer)?;
        let bound = spec.and_then(|raw| serde_json::from_str::<Bound>(raw.get()).ok());
        Ok(Self { node_name: bound.and_then(|bound| bound.node_name) })
    }
}

impl Stub {
    /// What can be told of an object, however broken it is.
    pub(crate) fn of(raw: &RawValue) -> Self {
        serde_json::from_str(raw.get()).unwrap_or_default()
    }

    /// The bookmark after the last object of a streamed list.
    pub(crate) fn ends_initial_events(&self) -> bool {
        let mark = self.metadata.annotations.as_ref().and_then(|notes| notes.initial_events_end.as_deref());
        mark == Some("true")
    }
}

/// The next line without its end, or `None` when the stream is over. Half a line at the end is no line.
pub(crate) async fn next_line<R: AsyncBufRead + Unpin>(
    reader: &mut R,
    line: &mut Vec<u8>,
) -> std::io::Result<Option<()>> {
    line.clear();
    loop {
        let chunk = reader.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(None);
        }
        let (taken, complete) = match chunk.iter().position(|byte| *byte == b'\n') {
            Some(end) => (end + 1, true),
            None => (chunk.len(), false),
        };
        line.extend_from_slice(&chunk[..taken]);
        reader.consume_unpin(taken);
        if line.len() > LONGEST_LINE {
            return Err(std::io::Error::other(format!("a line is longer than {LONGEST_LINE} bytes")));
        }
        if complete {
            return Ok(Some(()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_whole_or_not_at_all() {
        let mut reader = futures::io::BufReader::with_capacity(3, &b"one\ntwo and more\nhalf"[..]);
        let mut line = Vec::new();
        let mut seen = Vec::new();
        while next_line(&mut reader, &mut line).await.unwrap().is_some() {
            seen.push(String::from_utf8(line.clone()).unwrap());
        }
        assert_eq!(seen, ["one\n", "two and more\n"]);
    }

    #[test]
    fn a_broken_object_still_has_a_name_and_a_node() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let stub = Stub::of(&raw(
            r#"{"metadata":{"name":"p","namespace":"d","resourceVersion":"7","annotations":null},
                "spec":{"nodeName":"n1","containers":"broken"},"status":[]}"#,
        ));
        assert_eq!((stub.metadata.name.as_str(), stub.spec.node_name.as_deref()), ("p", Some("n1")));
        assert_eq!(Stub::of(&raw(r#"{"metadata":{"name":"p"},"spec":17}"#)).metadata.name, "p");
        assert_eq!(Stub::of(&raw("[1]")).metadata.name, "");
        let end =
            r#"{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
        assert!(Stub::of(&raw(end)).ends_initial_events());
    }
}
