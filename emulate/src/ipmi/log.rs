//! The system event log: records of sixteen bytes, numbered as they come.

use std::collections::VecDeque;

/// Records that there is room for; then the oldest go.
const ROOM: usize = 200;
/// Numbers that a question may use for the first and the last record, so that none has them.
const FIRST: u16 = 0;
const LAST: u16 = 0xffff;

#[derive(Debug, Default)]
pub(super) struct Log {
    number: u16,
    records: VecDeque<[u8; 16]>,
}

impl Log {
    pub(super) fn add(&mut self, kind: u8, rest: [u8; 13]) {
        self.number = if self.number >= LAST - 1 { 1 } else { self.number + 1 };
        let mut record = [0; 16];
        record[..2].copy_from_slice(&self.number.to_le_bytes());
        record[2] = kind;
        record[3..].copy_from_slice(&rest);
        self.records.push_back(record);
        if self.records.len() > ROOM {
            self.records.pop_front();
        }
    }

    /// The event of a sensor, by the controller itself.
    pub(super) fn event(&mut self, seconds: u32, event: [u8; 6]) {
        let mut rest = [0; 13];
        rest[..4].copy_from_slice(&seconds.to_le_bytes());
        rest[4..7].copy_from_slice(&[0x20, 0x00, 0x04]);
        rest[7..].copy_from_slice(&event);
        self.add(0x02, rest);
    }

    /// Version, entries, room in bytes, times of the last change and erasure, what can be done with it.
    pub(super) fn info(&self) -> Vec<u8> {
        let count = u16::try_from(self.records.len()).unwrap_or(LAST);
        let room = u16::try_from((ROOM - self.records.len()) * 16).unwrap_or(LAST);
        [&[0x51][..], &count.to_le_bytes(), &room.to_le_bytes(), &[0; 8], &[0]].concat()
    }

    /// The number of the next record, and the record with this one.
    pub(super) fn record(&self, number: u16) -> Option<Vec<u8>> {
        let of = |record: &[u8; 16]| u16::from_le_bytes([record[0], record[1]]);
        let place = match number {
            FIRST => 0,
            LAST => self.records.len().checked_sub(1)?,
            number => self.records.iter().position(|record| of(record) == number)?,
        };
        let next = self.records.get(place + 1).map_or(LAST, of);
        Some([&next.to_le_bytes()[..], self.records.get(place)?].concat())
    }
}
