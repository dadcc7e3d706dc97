//! The end of the system event log, and what its records say.
//!
//! Sensors are named by their type only: the names that a vendor gave them are in the sensor repository, which takes
//! minutes to read.

use muster_model::{
    Timestamp,
    power::{Fault, Health, LogEntry},
};

use super::chassis::{Chassis, command};

const STORAGE: u8 = 0x0a;
/// The last record, whichever number it has.
const LAST: u16 = 0xffff;
/// Most entries that are given out: one packet there and back for each.
const MAX_ENTRIES: usize = 20;
/// Times up to this count from the start of the controller, whose clock was not set.
const SINCE_START: u32 = 0x2000_0000;
const NO_TIME: u32 = 0xffff_ffff;

type Record = [u8; 16];

impl Chassis<'_> {
    /// Records backwards from the last one. Their numbers run on as a rule; where one is missing, it ends.
    pub(super) async fn log_tail(&mut self, most: usize) -> Result<Vec<LogEntry>, Fault> {
        let info = self.ask("its event log", &command(STORAGE, 0x40, &[])).await?;
        let Some(&[low, high]) = info.get(1..3) else {
            return Err(Fault::malformed("its event log", "the answer is cut short"));
        };
        let count = usize::from(u16::from_le_bytes([low, high]));
        let mut entries = Vec::new();
        let mut wanted = LAST;
        while entries.len() < most.min(MAX_ENTRIES).min(count) {
            let record = match self.log_record(wanted).await {
                Ok(record) => record,
                Err(fault) if entries.is_empty() => return Err(fault),
                Err(_) => break,
            };
            let number = u16::from_le_bytes([record[0], record[1]]);
            if wanted != LAST && number != wanted {
                break; // it gave another one instead
            }
            entries.push(entry(&record));
            // 0 stands for the first record: there is none before 1.
            match number.checked_sub(1) {
                None | Some(0) => break,
                Some(before) => wanted = before,
            }
        }
        Ok(entries)
    }

    /// A whole record, for which no reservation is needed.
    async fn log_record(&mut self, number: u16) -> Result<Record, Fault> {
        const ASKED: &str = "a record of its event log";
        let [low, high] = number.to_le_bytes();
        let answer = self.ask(ASKED, &command(STORAGE, 0x43, &[0, 0, low, high, 0, 0xff])).await?;
        // The number of the next record comes first.
        let record = answer.get(2..18).and_then(|bytes| bytes.try_into().ok());
        record.ok_or_else(|| Fault::malformed(ASKED, "it is cut short"))
    }
}

fn entry(record: &Record) -> LogEntry {
    let kind = record[2];
    let (at, message) = match kind {
        0x02 => (time(record), event(record)),
        0xc0..=0xdf => (time(record), format!("OEM record {kind:#04x}: {}", hex::encode(&record[7..]))),
        0xe0..=0xff => (None, format!("OEM record {kind:#04x}: {}", hex::encode(&record[3..]))),
        _ => (None, format!("record of type {kind:#04x}: {}", hex::encode(&record[3..]))),
    };
    LogEntry { at, severity: Health::NotReported, message }
}

/// Seconds since 1970, by a clock that was set.
fn time(record: &Record) -> Option<Timestamp> {
    let seconds = u32::from_le_bytes([record[3], record[4], record[5], record[6]]);
    let is_set = seconds > SINCE_START && seconds != NO_TIME;
    is_set.then(|| Timestamp::from_millis(i64::from(seconds) * 1000))
}

/// The event of a sensor. The data bytes stay as they are, for whoever has the vendor's table.
fn event(record: &Record) -> String {
    let [.., kind, number, event, first, second, third] = *record;
    let sensor = sensor_type(kind).map_or_else(|| format!("sensor type {kind:#04x}"), str::to_owned);
    let direction = if event & 0x80 == 0 { "asserted" } else { "deasserted" };
    format!(
        "{sensor}, sensor {number:#04x}: {direction}, event type {:#04x} offset {} (data {first:02x} {second:02x} {third:02x})",
        event & 0x7f,
        first & 0x0f,
    )
}

/// The sensor types that every vendor shares.
fn sensor_type(kind: u8) -> Option<&'static str> {
    const NAMES: [&str; 0x2c] = [
        "temperature",
        "voltage",
        "current",
        "fan",
        "physical security",
        "security violation attempt",
        "processor",
        "power supply",
        "power unit",
        "cooling device",
        "other units",
        "memory",
        "drive slot",
        "memory resize",
        "system firmware progress",
        "event logging disabled",
        "watchdog",
        "system event",
        "critical interrupt",
        "button",
        "module or board",
        "microcontroller",
        "add-in card",
        "chassis",
        "chip set",
        "other part",
        "cable or interconnect",
        "terminator",
        "system boot",
        "boot error",
        "operating system boot",
        "operating system stop",
        "slot or connector",
        "system ACPI power state",
        "watchdog",
        "platform alert",
        "entity presence",
        "monitor chip",
        "network",
        "management subsystem",
        "battery",
        "session audit",
        "firmware version change",
        "part information",
    ];
    NAMES.get(usize::from(kind.checked_sub(1)?)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_read_as_lines() {
        #[track_caller]
        fn check(record: &str, expected: &str) {
            let bytes: Record = hex::decode(record).unwrap().try_into().unwrap();
            assert_eq!(entry(&bytes).to_string(), expected);
        }
        // Number, type, time, generator, revision, sensor type, sensor, direction and event type, three bytes of data.
        check(
            "01000200f1536520000407126fc1ff03",
            "2023-11-14T22:13:20Z processor, sensor 0x12: asserted, event type 0x6f offset 1 (data c1 ff 03)",
        );
        check(
            "0200020a0000002000040f06efa00103",
            "(no time) system firmware progress, sensor 0x06: deasserted, event type 0x6f offset 0 (data a0 01 03)",
        );
        check(
            "030002ffffffff200004c8016f000000",
            "(no time) sensor type 0xc8, sensor 0x01: asserted, event type 0x6f offset 0 (data 00 00 00)",
        );
        check("0400c000f15365010203040506070809", "2023-11-14T22:13:20Z OEM record 0xc0: 010203040506070809");
        check("0500e000f15365010203040506070809", "(no time) OEM record 0xe0: 00f15365010203040506070809");
        check(
            "06000100f15365010203040506070809",
            "(no time) record of type 0x01: 00f15365010203040506070809",
        );
    }

    #[test]
    fn every_shared_sensor_type_has_its_name() {
        for (kind, name) in [(0x01, "temperature"), (0x07, "processor"), (0x0f, "system firmware progress")] {
            assert_eq!(sensor_type(kind), Some(name), "{kind:#x}");
        }
        for (kind, name) in [(0x12, "system event"), (0x1d, "system boot"), (0x23, "watchdog")] {
            assert_eq!(sensor_type(kind), Some(name), "{kind:#x}");
        }
        assert_eq!((sensor_type(0x2c), sensor_type(0x2d)), (Some("part information"), None));
        assert_eq!((sensor_type(0x00), sensor_type(0xff)), (None, None));
    }
}
