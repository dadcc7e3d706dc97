//! What the BMC does when it is asked inside a session.

use std::sync::PoisonError;

use super::{Level, Shared, packet::Request};
use crate::Power;

const OK: u8 = 0x00;
const INVALID_COMMAND: u8 = 0xc1;
const NOT_PRESENT: u8 = 0xcb;
const INVALID_DATA: u8 = 0xcc;
const NO_PRIVILEGE: u8 = 0xd4;

/// The completion code and data for `request`, asked with `level`.
pub(super) fn answer(shared: &Shared, request: &Request, level: u8) -> (u8, Vec<u8>) {
    if let Some(code) = shared.inner().faults.completion {
        return (code, Vec::new());
    }
    let operator = level >= Level::Operator as u8;
    match (request.function, request.command, request.data.as_slice()) {
        (0x00, 0x01, _) => (OK, chassis_status(shared)),
        (0x00, 0x02 | 0x08, _) | (0x06, 0x02, _) if !operator => (NO_PRIVILEGE, Vec::new()),
        (0x00, 0x02, [control, ..]) => (chassis_control(shared, *control), Vec::new()),
        (0x00, 0x08, [5, flags @ ..]) if flags.len() >= 5 => {
            let mut inner = shared.inner.lock().unwrap_or_else(PoisonError::into_inner);
            if !inner.faults.ignore_boot {
                inner.boot.copy_from_slice(&flags[..5]);
                inner.boot[0] |= u8::from(inner.faults.always_uefi) << 5;
            }
            (OK, Vec::new())
        }
        (0x00, 0x08, [0 | 3 | 4, ..]) => (OK, Vec::new()), // set in progress, valid-bit clearing, acknowledge
        (0x00, 0x08, _) => (0x80, Vec::new()),
        (0x00, 0x09, [5, ..]) => {
            let inner = shared.inner();
            let mut boot = inner.boot;
            boot[0] &= if inner.faults.never_valid { 0x7f } else { 0xff };
            (OK, [&[1, 5][..], &boot].concat())
        }
        (0x00, 0x09, [parameter, ..]) => (OK, vec![1, *parameter, 0]),
        (0x06, 0x01, _) => {
            // Device 0x20, firmware 1.02, IPMI 2.0, chassis device; enterprise 0, product 1.
            (OK, vec![0x20, 0x01, 0x01, 0x02, 0x02, 0x80, 0, 0, 0, 1, 0, 0, 0, 0, 0])
        }
        (0x06, 0x02, _) => {
            shared.inner().counters.restarts += 1;
            (OK, Vec::new())
        }
        (0x06, 0x37, _) => match shared.inner().faults.guid_completion {
            Some(code) => (code, Vec::new()),
            None => (OK, shared.guid.to_vec()),
        },
        (0x0a, 0x40, _) => (OK, shared.inner().log.info()),
        (0x0a, 0x43, [_, _, low, high, 0, 0xff]) => {
            let found = shared.inner().log.record(u16::from_le_bytes([*low, *high]));
            found.map_or_else(|| (NOT_PRESENT, Vec::new()), |record| (OK, record))
        }
        (0x2c, 0x02, [0xdc, 1, ..]) => (OK, power_reading(shared)),
        // Parts of log records are not given out either.
        (0x00, 0x02 | 0x09, _) | (0x0a, 0x43, _) => (INVALID_DATA, Vec::new()),
        _ => (INVALID_COMMAND, Vec::new()),
    }
}

fn chassis_status(shared: &Shared) -> Vec<u8> {
    let on = match shared.inner().faults.say_power.as_deref() {
        Some("on") => true,
        Some("off") => false,
        _ => matches!(shared.machine.power(), Power::On | Power::PoweringOff),
    };
    vec![u8::from(on), 0, 0, 0]
}

fn chassis_control(shared: &Shared, control: u8) -> u8 {
    let faults = {
        let mut inner = shared.inner();
        inner.counters.controls.push(control);
        inner.faults.clone()
    };
    if faults.ignore_control {
        return OK;
    }
    write_down(shared, control, faults.hang_boot);
    match control {
        0 => shared.machine.cut(),
        1 => shared.machine.switch_on(),
        2 => shared.machine.cycle(),
        3 => shared.machine.restart(),
        5 if faults.ignore_acpi => {}
        5 => shared.machine.shut_down(),
        _ => return INVALID_DATA,
    }
    OK
}

/// What a control leaves in the event log.
fn write_down(shared: &Shared, control: u8, hangs: bool) {
    match control {
        0 | 5 => shared.event([0x09, 0x01, 0x6f, 0x00, 0xff, 0xff]), // power unit: off
        1..=3 => {
            shared.event([0x1d, 0x02, 0x6f, 0x00, 0xff, 0xff]); // system boot: by a power-up
            shared.machine.hang(hangs);
            if hangs {
                shared.event([0x0f, 0x03, 0x6f, 0x01, 0xff, 0xff]); // system firmware progress: hang
            }
        }
        _ => {}
    }
}

/// DCMI: watts now, lowest, highest, mean; time; period; measurement active.
fn power_reading(shared: &Shared) -> Vec<u8> {
    let on = shared.machine.power() == Power::On;
    let watts = u16::from(on) * 187;
    let mut out = vec![0xdc];
    for _ in 0..4 {
        out.extend(watts.to_le_bytes());
    }
    out.extend([0; 4]);
    out.extend(1000_u32.to_le_bytes());
    out.push(if on { 0x40 } else { 0 });
    out
}
