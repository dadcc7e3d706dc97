//! What is dropped: frames beyond the last thousand decisions, and records beyond the last hundred thousand.

use muster_model::{
    ClusterId,
    store::{Fence, List, Txn},
};

use super::{Head, Journal, JournalError, decision_key, frames};

/// Deletions in one commit: with the fence they stay below what every store takes.
const BATCH: usize = 100;

/// What may go now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// Key frames that go, with all frames up to the next one.
    pub(super) key_frames: Vec<u64>,
    /// Frames before this number go; 0 is none.
    pub(super) frames_before: u64,
    /// The oldest record that stays, and the oldest that was there.
    pub(super) oldest: u64,
    pub(super) records: std::ops::Range<u64>,
}

/// A key frame goes together with everything that is a change against it.
pub(super) fn due(head: &Head, replayable: u64, kept: u64) -> Due {
    let first_needed = head.number.saturating_sub(replayable) + 1;
    let mut due = Due { oldest: head.oldest, ..Due::default() };
    for pair in head.key_frames.windows(2) {
        if pair[1] <= first_needed {
            due.key_frames.push(pair[0]);
            due.frames_before = pair[1];
        }
    }
    let oldest = (head.number.saturating_sub(kept) + 1).max(head.oldest);
    due.records = head.oldest..oldest;
    due.oldest = oldest;
    due
}

pub(super) async fn sweep(
    journal: &Journal,
    fence: &Fence,
    cluster: ClusterId,
    due: &Due,
) -> Result<(), JournalError> {
    let mut keys: Vec<String> = due.records.clone().map(|number| decision_key(cluster, number)).collect();
    if due.frames_before > 0 {
        let end = format!("{}{:016}/", frames(cluster), due.frames_before);
        let page = journal.store.list(List { keys_only: true, ..List::prefix(frames(cluster)) }).await?;
        keys.extend(page.entries.into_iter().map(|entry| entry.key).take_while(|key| *key < end));
    }
    for group in keys.chunks(BATCH) {
        let txn = group.iter().fold(Txn::new().fenced(fence), Txn::delete);
        journal.commit(txn, 0).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_frame_stays_while_a_decision_needs_it() {
        #[track_caller]
        fn check(number: u64, key_frames: &[u64], gone: &[u64], before: u64) {
            let head = Head { number, key_frames: key_frames.to_vec(), oldest: 1 };
            let due = due(&head, 10, 100);
            assert_eq!((due.key_frames.as_slice(), due.frames_before), (gone, before), "{head:?}");
        }
        // the last 10 of `number` must be readable
        check(9, &[1], &[], 0);
        check(14, &[1, 6], &[], 0); // 5 is needed, and 1 is its key
        check(15, &[1, 6], &[1], 6);
        check(30, &[1, 6, 12, 20, 25], &[1, 6, 12], 20);
        check(30, &[1], &[], 0);
    }

    #[test]
    fn the_oldest_records_go() {
        let head = Head { number: 105, key_frames: vec![100], oldest: 3 };
        let due = due(&head, 10, 100);
        assert_eq!((due.records, due.oldest), (3..6, 6));
    }
}
