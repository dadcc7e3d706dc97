//! The end of a machine's event log, among the evidence of a failed boot.
//!
//! It is read once the step is stored and its effects are performed, inside the host's own turn, so that no second call
//! is under way; the next step writes it down. What does not come in time is left out and said so.

use muster_model::{Duration, Known, power::LogEntry};

use super::{
    look::{Looked, limited},
    perform::Scene,
    turn::Memo,
};

/// Entries that are kept: what a machine writes about one boot that goes wrong.
const ENTRIES: usize = 5;
/// How long the log may take: longer than a driver goes on asking for it (two answers of 5 s, and one that is late), so
/// that the next power call does not find it still at work.
const LOG_LIMIT: Duration = Duration::from_secs(20);

/// A line for the history: the last entries, newest first, or why there are none. `None` where no driver of the host
/// reads logs.
pub(super) async fn tail(scene: &Scene<'_>, memo: &Memo) -> Option<String> {
    let shared = scene.shared;
    let answered = memo.looked.as_ref().and_then(|looked| Some(looked.power.value()?.driver));
    let able = scene.ways.iter().filter_map(|way| {
        let driver = shared.drivers.get(way.kind)?;
        driver.abilities().log.then_some(())?;
        Some((way.kind, driver, way.bmc.as_ref().ok()?))
    });
    let (_, driver, bmc) = able.min_by_key(|(kind, ..)| Some(*kind) != answered)?;
    if let Some(Looked { bmc: Known::Unknown { why, .. }, .. }) = &memo.looked {
        return Some(format!("evidence: log not asked for: {}", why.message));
    }
    let limit = shared.pace.scaled(LOG_LIMIT).max(Duration::from_secs(5));
    Some(match limited(&shared.clock, limit, bmc, driver.log_tail(bmc, ENTRIES)).await {
        Ok(entries) if entries.is_empty() => "evidence: log is empty".to_owned(),
        Ok(entries) => {
            let lines: Vec<String> = entries.iter().take(ENTRIES).map(LogEntry::to_string).collect();
            format!("evidence: log {}", lines.join("; "))
        }
        Err(error) => {
            tracing::warn!(host = %scene.name, code = error.code(), %error, "a machine's log was not read");
            format!("evidence: log not readable: {error}")
        }
    })
}
