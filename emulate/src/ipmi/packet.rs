//! Taking packets apart and putting them together.

use super::crypto::SessionKeys;

const HEAD: [u8; 4] = [6, 0, 0xff, 7];

/// What a packet turned out to be.
#[derive(Debug)]
pub(super) enum Incoming<'a> {
    /// IPMI 1.5 without a session: only the question for authentication capabilities comes this way.
    Old(&'a [u8]),
    /// IPMI 2.0 without a session: payload type and payload.
    Open(u8, &'a [u8]),
    /// Inside a session: its id, the whole packet after the RMCP header, and the sealed payload.
    Sealed { session: u32, covered: &'a [u8], payload: &'a [u8] },
}

pub(super) fn parse(datagram: &[u8]) -> Option<Incoming<'_>> {
    let rest = datagram.strip_prefix(&HEAD)?;
    match *rest.first()? {
        0 => {
            let size = usize::from(*rest.get(9)?);
            Some(Incoming::Old(rest.get(10..10 + size)?))
        }
        6 => {
            let session = u32::from_le_bytes(rest.get(2..6)?.try_into().ok()?);
            let size = usize::from(u16::from_le_bytes(rest.get(10..12)?.try_into().ok()?));
            let payload = rest.get(12..12 + size)?;
            let kind = rest[1];
            if kind & 0xc0 == 0xc0 {
                Some(Incoming::Sealed { session, covered: rest, payload })
            } else {
                Some(Incoming::Open(kind & 0x3f, payload))
            }
        }
        _ => None,
    }
}

/// An answer in the old format.
pub(super) fn old(message: &[u8]) -> Vec<u8> {
    let size = u8::try_from(message.len()).unwrap_or(u8::MAX);
    [&HEAD[..], &[0; 9], &[size], message].concat()
}

/// An answer without a session.
pub(super) fn open(kind: u8, payload: &[u8]) -> Vec<u8> {
    let size = u16::try_from(payload.len()).unwrap_or(u16::MAX).to_le_bytes();
    [&HEAD[..], &[6, kind], &[0; 8], &size, payload].concat()
}

/// An answer inside a session.
pub(super) fn sealed(keys: &SessionKeys, session: [u8; 4], sequence: u32, message: &[u8]) -> Vec<u8> {
    let payload = keys.seal(message);
    let size = u16::try_from(payload.len()).unwrap_or(u16::MAX).to_le_bytes();
    let mut covered = [&[6, 0xc0][..], &session, &sequence.to_le_bytes(), &size, &payload].concat();
    let mut fill = 0;
    while (covered.len() + 2) % 4 != 0 {
        covered.push(0xff);
        fill += 1;
    }
    covered.extend([fill, 0x07]);
    let code = keys.code(&covered);
    [&HEAD[..], &covered, &code].concat()
}

/// A request message, its checksums verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub function: u8,
    pub command: u8,
    pub sequence: u8,
    pub from: u8,
    pub data: Vec<u8>,
}

pub(super) fn request(message: &[u8]) -> Option<Request> {
    let sum = |bytes: &[u8]| bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    if message.len() < 7 || sum(&message[..3]) != 0 || sum(&message[3..]) != 0 {
        return None;
    }
    Some(Request {
        function: message[1] >> 2,
        from: message[3],
        sequence: message[4],
        command: message[5],
        data: message[6..message.len() - 1].to_vec(),
    })
}

/// The message that answers `request`.
pub(super) fn reply(request: &Request, code: u8, data: &[u8]) -> Vec<u8> {
    let negative = |bytes: &[u8]| bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte));
    let mut out = vec![request.from, (request.function | 1) << 2];
    out.push(negative(&out));
    out.extend([0x20, request.sequence, request.command, code]);
    out.extend(data);
    out.push(negative(&out[3..]));
    out
}
