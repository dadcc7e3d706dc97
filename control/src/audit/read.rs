//! Reading the audit log back: listing it, and proving that nobody touched it.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
};

use muster_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    ACTIVE_FILE, Line, Outcome,
    line::{digest, unseal},
    log::{Anchor, closed_files},
};

/// Which lines to list.
#[derive(Debug, Clone, Default)]
pub struct Query {
    pub actor: Option<String>,
    /// Text that the object's path or name contains.
    pub object: Option<String>,
    pub project: Option<String>,
    /// Only lines of these projects; `None` for all, and for lines of none.
    pub projects: Option<Vec<String>>,
    pub verb: Option<String>,
    pub outcome: Option<Outcome>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Only lines with a smaller number.
    pub before: Option<u64>,
    /// The newest this many; zero lists all.
    pub limit: usize,
}

impl Query {
    fn wants(&self, line: &Line) -> bool {
        let event = &line.event;
        self.actor.as_ref().is_none_or(|actor| *actor == event.actor)
            && self.project.as_ref().is_none_or(|project| *project == event.project)
            && self.projects.as_ref().is_none_or(|projects| projects.contains(&event.project))
            && self.verb.as_ref().is_none_or(|verb| *verb == event.verb)
            && self.outcome.is_none_or(|outcome| outcome == event.outcome)
            && self.since.is_none_or(|since| event.at >= since)
            && self.until.is_none_or(|until| event.at <= until)
            && self.before.is_none_or(|before| line.seq < before)
            && self
                .object
                .as_ref()
                .is_none_or(|text| event.object.contains(text.as_str()) || event.name.contains(text.as_str()))
    }
}

/// Lines of all files in order, oldest first. Lines that cannot be read are left to [`verify`].
pub fn list(directory: &Path, query: &Query) -> io::Result<Vec<Line>> {
    let mut found = std::collections::VecDeque::new();
    for path in files(directory)? {
        for text in BufReader::new(File::open(path)?).lines() {
            if let Ok(line) = serde_json::from_str::<Line>(&text?)
                && query.wants(&line)
            {
                if query.limit > 0 && found.len() == query.limit {
                    found.pop_front();
                }
                found.push_back(line);
            }
        }
    }
    Ok(found.into())
}

/// A page of lines, newest first, and the place to go on from when there may be more. Files are read from the
/// newest back, only as far as the page needs.
pub fn page(directory: &Path, query: &Query) -> io::Result<(Vec<Line>, Option<u64>)> {
    let mut found: Vec<Line> = Vec::new();
    for path in files(directory)?.iter().rev() {
        let mut of_file = std::collections::VecDeque::new();
        // One more than the page takes, to know whether there is more.
        let room = query.limit + 1 - found.len();
        for text in BufReader::new(File::open(path)?).lines() {
            if let Ok(line) = serde_json::from_str::<Line>(&text?)
                && query.wants(&line)
            {
                if of_file.len() == room {
                    of_file.pop_front();
                }
                of_file.push_back(line);
            }
        }
        found.extend(of_file.into_iter().rev());
        if found.len() > query.limit {
            break;
        }
    }
    let more = found.len() > query.limit;
    found.truncate(query.limit);
    let next = found.last().filter(|_| more).map(|line| line.seq);
    Ok((found, next))
}

/// Bytes at the end of a log in which the last revision is looked for: some hundred lines.
const TAIL_BYTES: u64 = 256 << 10;

/// The largest store revision that the last lines of the log tell of.
pub fn last_revision(directory: &Path) -> io::Result<Option<u64>> {
    use std::io::{Read, Seek, SeekFrom};
    for path in files(directory)?.iter().rev() {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        let revisions =
            text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()?.event.revision);
        if let Some(revision) = revisions.max() {
            return Ok(Some(revision));
        }
    }
    Ok(None)
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub file: String,
    /// Line in that file, from 1.
    pub line: u64,
    pub problem: String,
}

/// The result of walking the whole chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub lines: u64,
    /// Number and digest of the last line: keep them elsewhere to notice a cut tail.
    pub head_seq: u64,
    pub head_hash: String,
    pub findings: Vec<Finding>,
}

/// Findings that are listed; a log that is wrong in more places is wrong everywhere.
const MAX_FINDINGS: usize = 100;

/// Walks all files and reports every line that was changed, is missing, or stands in the wrong place.
pub fn verify(directory: &Path) -> io::Result<Verdict> {
    let Anchor { seq, hash } = Anchor::read(directory);
    let mut walk = Walk { seq, hash, lines: 0, findings: Vec::new() };
    for path in files(directory)? {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        for (index, text) in BufReader::new(File::open(&path)?).lines().enumerate() {
            walk.step(&name, index as u64 + 1, &text?);
        }
    }
    Ok(Verdict { lines: walk.lines, head_seq: walk.seq, head_hash: walk.hash, findings: walk.findings })
}

struct Walk {
    seq: u64,
    hash: String,
    lines: u64,
    findings: Vec<Finding>,
}

impl Walk {
    fn step(&mut self, file: &str, line: u64, text: &str) {
        self.lines += 1;
        let mut report = |problem: String| {
            if self.findings.len() < MAX_FINDINGS {
                self.findings.push(Finding { file: file.to_owned(), line, problem });
            }
        };
        let parsed = serde_json::from_str::<Line>(text).ok();
        let (Some(parsed), Some((body, claimed))) = (parsed, unseal(text)) else {
            report("is no audit line".into());
            return;
        };
        if digest(&parsed.prev, &body) != claimed {
            report(format!("line {} was changed after it was written", parsed.seq));
        }
        if parsed.seq != self.seq + 1 {
            report(format!("line {} follows line {}: lines are missing or reordered", parsed.seq, self.seq));
        } else if parsed.prev != self.hash {
            report(format!("line {} does not continue line {}", parsed.seq, self.seq));
        }
        self.seq = parsed.seq;
        claimed.clone_into(&mut self.hash);
    }
}

fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = closed_files(directory)?;
    let active = directory.join(ACTIVE_FILE);
    if active.exists() {
        files.push(active);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::audit::{AuditLog, AuditOptions, Event};

    fn event(name: &str) -> Event {
        Event {
            at: Timestamp::from_millis(1_000),
            actor: "user@example.com".into(),
            mode: "dev".into(),
            source: "127.0.0.1:1".into(),
            request_id: "r".into(),
            verb: "create".into(),
            object: format!("nodepools/{name}"),
            name: name.into(),
            project: "p".into(),
            outcome: Outcome::Done,
            status: 201,
            revision: Some(1),
            before: None,
            after: Some("sha256:00".into()),
            changed: vec!["spec.nodeCount".into()],
            power: None,
        }
    }

    async fn written(lines: usize, rotate_bytes: u64) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let options = AuditOptions { directory: directory.path().to_owned(), rotate_bytes, keep_files: 0 };
        // In two lives, so that the chain also crosses a restart.
        for half in 0..2 {
            let log = AuditLog::open(options.clone()).unwrap();
            for index in 0..lines / 2 {
                log.record(event(&format!("pool-{half}-{index}"))).await.unwrap();
            }
        }
        directory
    }

    #[tokio::test]
    async fn a_chain_holds_over_restarts_and_rotation() {
        let directory = written(40, 2_000).await;
        assert!(files(directory.path()).unwrap().len() > 3, "it was rotated");
        let verdict = verify(directory.path()).unwrap();
        assert_eq!((verdict.findings, verdict.lines, verdict.head_seq), (vec![], 40, 40));
        let listed = list(directory.path(), &Query { limit: 3, ..Query::default() }).unwrap();
        assert_eq!(listed.iter().map(|line| line.seq).collect::<Vec<_>>(), [38, 39, 40]);
        let (mut seen, mut before) = (Vec::new(), None);
        loop {
            let query = Query { limit: 7, before, ..Query::default() };
            let (lines, next) = page(directory.path(), &query).unwrap();
            seen.extend(lines.iter().map(|line| line.seq));
            before = next;
            if next.is_none() {
                break;
            }
        }
        assert_eq!(seen, (1..=40).rev().collect::<Vec<_>>(), "pages miss nothing");
        let other = Query { projects: Some(vec!["other".into()]), limit: 5, ..Query::default() };
        assert_eq!(page(directory.path(), &other).unwrap().0, []);
        assert_eq!(last_revision(directory.path()).unwrap(), Some(1));
        let one = Query { object: Some("pool-0-7".into()), ..Query::default() };
        assert_eq!(list(directory.path(), &one).unwrap().len(), 1);
    }

    #[tokio::test]
    async fn files_that_rotation_removed_are_not_missed() {
        let directory = tempfile::tempdir().unwrap();
        let options =
            AuditOptions { directory: directory.path().to_owned(), rotate_bytes: 1_000, keep_files: 2 };
        let log = AuditLog::open(options).unwrap();
        for index in 0..40 {
            log.record(event(&format!("pool-{index}"))).await.unwrap();
        }
        assert_eq!(closed_files(directory.path()).unwrap().len(), 2);
        let verdict = verify(directory.path()).unwrap();
        assert_eq!((verdict.findings, verdict.head_seq), (vec![], 40));
        fs::remove_file(&closed_files(directory.path()).unwrap()[0]).unwrap();
        assert!(!verify(directory.path()).unwrap().findings.is_empty(), "one that a person removed is");
    }

    #[tokio::test]
    async fn every_kind_of_tampering_is_found() {
        type Tamper = fn(&mut Vec<String>);
        let cases: [(&str, Tamper); 10] = [
            ("a changed actor", |lines| lines[3] = lines[3].replace("user@", "eve@")),
            ("a changed outcome", |lines| lines[0] = lines[0].replace("done", "denied")),
            ("a changed status", |lines| lines[9] = lines[9].replace("201", "200")),
            ("a changed digest", |lines| {
                let end = lines[5].len() - 4;
                lines[5].replace_range(end..=end, "x");
            }),
            ("a removed line", |lines| drop(lines.remove(4))),
            ("a removed first line", |lines| drop(lines.remove(0))),
            ("two swapped lines", |lines| lines.swap(2, 3)),
            ("a repeated line", |lines| lines.insert(6, lines[5].clone())),
            ("an inserted line", |lines| lines.insert(2, "{}".into())),
            ("a renumbered line", |lines| lines[7] = lines[7].replace("\"seq\":8", "\"seq\":9")),
        ];
        for (what, tamper) in cases {
            let directory = written(10, u64::MAX).await;
            let path = directory.path().join(ACTIVE_FILE);
            let mut lines: Vec<String> =
                fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
            tamper(&mut lines);
            fs::write(&path, lines.join("\n") + "\n").unwrap();
            let findings = verify(directory.path()).unwrap().findings;
            assert!(!findings.is_empty(), "{what} was not found");
        }
    }

    #[tokio::test]
    async fn a_line_cut_short_by_a_crash_is_dropped_and_the_chain_goes_on() {
        let directory = written(10, u64::MAX).await;
        let path = directory.path().join(ACTIVE_FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 20]).unwrap();
        let options =
            AuditOptions { directory: directory.path().to_owned(), rotate_bytes: u64::MAX, keep_files: 0 };
        AuditLog::open(options).unwrap().record(event("next")).await.unwrap();
        let verdict = verify(directory.path()).unwrap();
        assert_eq!((verdict.findings, verdict.lines), (vec![], 10));
    }
}
