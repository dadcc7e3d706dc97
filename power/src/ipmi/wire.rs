//! The bytes of RMCP+: packets, payloads and IPMI messages, without sockets or keys.

use super::keys::Keys;

/// RMCP version 1.0, no acknowledgement, class IPMI.
const RMCP: [u8; 4] = [0x06, 0x00, 0xff, 0x07];
/// "Format" of an IPMI 2.0 session header.
const RMCP_PLUS: u8 = 0x06;
/// Encrypted and authenticated, in the payload type's byte.
const PROTECTED: u8 = 0xc0;
/// No answer of a BMC is longer than an Ethernet frame.
pub(super) const MAX_PACKET: usize = 1500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payload {
    Message = 0x00,
    OpenRequest = 0x10,
    OpenResponse = 0x11,
    Rakp1 = 0x12,
    Rakp2 = 0x13,
    Rakp3 = 0x14,
    Rakp4 = 0x15,
}

/// A packet outside of a session.
pub(super) fn plain(kind: Payload, payload: &[u8]) -> Vec<u8> {
    let mut packet = RMCP.to_vec();
    packet.extend([RMCP_PLUS, kind as u8]);
    packet.extend([0; 8]); // session id and sequence number: none yet
    packet.extend(length(payload.len()));
    packet.extend_from_slice(payload);
    packet
}

/// An encrypted and authenticated packet inside a session.
pub(super) fn protected(keys: &Keys, session: u32, sequence: u32, payload: &[u8], iv: [u8; 16]) -> Vec<u8> {
    let mut packet = RMCP.to_vec();
    packet.extend([RMCP_PLUS, PROTECTED | Payload::Message as u8]);
    packet.extend(session.to_le_bytes());
    packet.extend(sequence.to_le_bytes());
    let sealed = keys.encrypt(payload, iv);
    packet.extend(length(sealed.len()));
    packet.extend(sealed);
    // The authenticated part is filled up to a multiple of four, its own two last bytes included.
    let pad = (4 - (packet.len() - RMCP.len() + 2) % 4) % 4;
    packet.extend(std::iter::repeat_n(0xff, pad));
    packet.extend([u8::try_from(pad).expect("at most 3"), 0x07]);
    let code = keys.authenticate(&packet[RMCP.len()..]);
    packet.extend(code);
    packet
}

fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).expect("payloads are built here and are short").to_le_bytes()
}

/// A packet that came in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub kind: u8,
    pub session: u32,
    pub sequence: u32,
    pub payload: Vec<u8>,
}

/// Reads a packet. Inside a session (`keys`), only protected ones with a right code are packets at all;
/// everything else is `None` and is dropped by the caller, as noise or forgery.
pub(super) fn read(packet: &[u8], keys: Option<&Keys>) -> Option<Packet> {
    let body = packet.strip_prefix(&RMCP)?;
    let (&[format, kind, s0, s1, s2, s3, q0, q1, q2, q3, l0, l1], rest) = body.split_first_chunk::<12>()?;
    if format != RMCP_PLUS {
        return None;
    }
    let payload = rest.get(..usize::from(u16::from_le_bytes([l0, l1])))?;
    let (session, sequence) = (u32::from_le_bytes([s0, s1, s2, s3]), u32::from_le_bytes([q0, q1, q2, q3]));
    let payload = match keys {
        None if kind & PROTECTED == 0 => payload.to_vec(),
        Some(keys) if kind & PROTECTED == PROTECTED => {
            let signed = body.len().checked_sub(keys.code_length())?;
            let (signed, code) = body.split_at_checked(signed)?;
            if signed.len() < 12 + payload.len() + 2 || !keys.is_authentic(signed, code) {
                return None;
            }
            keys.decrypt(payload)?
        }
        _ => return None,
    };
    Some(Packet { kind: kind & 0x3f, session, sequence, payload })
}

/// A request to the BMC: network function, command, data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    pub function: u8,
    pub number: u8,
    pub data: Vec<u8>,
}

const BMC_ADDRESS: u8 = 0x20;
const OUR_ADDRESS: u8 = 0x81;

/// The message that carries `command`, with a sequence number of six bits.
pub(super) fn message(command: &Command, sequence: u8) -> Vec<u8> {
    let mut out = vec![BMC_ADDRESS, command.function << 2];
    out.push(checksum(&out));
    out.extend([OUR_ADDRESS, sequence << 2, command.number]);
    out.extend_from_slice(&command.data);
    out.push(checksum(&out[3..]));
    out
}

/// The completion code and data of the answer to `command` with `sequence`; `None` when it is another one.
pub(super) fn response(payload: &[u8], command: &Command, sequence: u8) -> Option<(u8, Vec<u8>)> {
    let (head, rest) = payload.split_first_chunk::<3>()?;
    let (_, function_and_more) = (head[0], head[1]);
    let (body, last) = rest.split_at_checked(rest.len().checked_sub(1)?)?;
    if checksum(&head[..2]) != head[2] || checksum(body) != *last.first()? {
        return None;
    }
    let (&[_, sequence_found, number, code], data) = body.split_first_chunk::<4>()?;
    let ours = function_and_more >> 2 == command.function | 1
        && sequence_found >> 2 == sequence
        && number == command.number;
    ours.then(|| (code, data.to_vec()))
}

fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)).wrapping_neg()
}

/// Which sequence numbers of a session were seen: newer ones pass, old or repeated ones do not.
#[derive(Debug, Default)]
pub(super) struct Window {
    newest: u32,
    /// Bit n: `newest - n` was seen.
    seen: u32,
}

impl Window {
    /// How far a number may run ahead; IPMI's own window is 16 ahead, and late packets may be 16 behind.
    const AHEAD: u32 = 32;

    pub(super) fn admit(&mut self, sequence: u32) -> bool {
        if sequence == 0 {
            return false; // authenticated packets count from one
        }
        if sequence > self.newest {
            let step = sequence - self.newest;
            if step > Self::AHEAD {
                return false;
            }
            self.seen = self.seen.checked_shl(step).unwrap_or(0) | 1;
            self.newest = sequence;
            return true;
        }
        let bit = 1_u32.checked_shl(self.newest - sequence).unwrap_or(0);
        if bit == 0 || self.seen & bit != 0 {
            return false;
        }
        self.seen |= bit;
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ipmi::keys::Suite;

    #[test]
    fn a_sequence_number_passes_once() {
        let mut window = Window::default();
        for (sequence, passes) in [
            (0, false),
            (1, true),
            (1, false),
            (5, true),
            (3, true),
            (3, false),
            (100, false),
            (37, true),
            (2, false),
        ] {
            assert_eq!(window.admit(sequence), passes, "{sequence}");
        }
    }

    #[test]
    fn answers_are_matched_by_function_sequence_and_command() {
        let command = Command { function: 0x00, number: 0x01, data: vec![] };
        // An answer of a BMC to "chassis status": rqAddr, function, checksum, rsAddr, sequence, command, code, data.
        let mut answer = vec![0x81, 0x04];
        answer.push(checksum(&answer));
        answer.extend([0x20, 0x07 << 2, 0x01, 0x00, 0x21, 0x10]);
        answer.push(checksum(&answer[3..]));
        assert_eq!(response(&answer, &command, 7), Some((0, vec![0x21, 0x10])));
        assert_eq!(response(&answer, &command, 8), None);
        assert_eq!(response(&answer, &Command { number: 2, ..command.clone() }, 7), None);
        let last = answer.len() - 1;
        answer[last] ^= 1;
        assert_eq!(response(&answer, &command, 7), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_packet_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let keys = Keys::for_tests(Suite::Sha256);
            let _ = read(&bytes, None);
            let mut framed = RMCP.to_vec();
            framed.extend(&bytes);
            prop_assert_eq!(read(&framed, Some(&keys)), None);
            let _ = response(&bytes, &Command { function: 0, number: 1, data: vec![] }, 0);
        }

        #[test]
        fn what_is_sealed_is_read_again(payload in proptest::collection::vec(any::<u8>(), 0..64), sequence: u32) {
            for suite in [Suite::Sha1, Suite::Sha256] {
                let keys = Keys::for_tests(suite);
                let mut packet = protected(&keys, 7, sequence, &payload, [9; 16]);
                let opened = read(&packet, Some(&keys)).expect("our own packet");
                prop_assert_eq!((opened.session, opened.sequence, &opened.payload), (7, sequence, &payload));
                let middle = packet.len() / 2;
                packet[middle] ^= 0x40;
                prop_assert_eq!(read(&packet, Some(&keys)), None);
            }
        }
    }
}
