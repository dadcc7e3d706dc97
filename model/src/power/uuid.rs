//! Whether two spellings of a machine's UUID mean the same machine.
//!
//! BMCs write one UUID in three byte orders, and two ways to the same machine need not agree on which.

/// The UUID, unless it is one that nobody ever set: all zeroes or all ones.
pub fn given_uuid(text: &str) -> Option<&str> {
    let text = text.trim();
    let blank = matches!(bytes(text), Some(bytes) if bytes == [0; 16] || bytes == [0xff; 16]);
    (!text.is_empty() && !blank).then_some(text)
}

/// Whether both are one UUID, in whichever byte order: as it is written, as SMBIOS stores it, backwards.
pub fn same_uuid(left: &str, right: &str) -> bool {
    match (bytes(left), bytes(right)) {
        (Some(left), Some(right)) => orders(left).contains(&right),
        _ => left.trim().eq_ignore_ascii_case(right.trim()),
    }
}

fn bytes(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text
        .trim()
        .chars()
        .filter(|c| *c != '-')
        .map(|c| u8::try_from(c.to_digit(16)?).ok())
        .collect::<Option<_>>()?;
    let pairs: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    if digits.len() == 32 { pairs.try_into().ok() } else { None }
}

fn orders(bytes: [u8; 16]) -> [[u8; 16]; 3] {
    let (mut smbios, mut backwards) = (bytes, bytes);
    smbios[..4].reverse();
    smbios[4..6].reverse();
    smbios[6..8].reverse();
    backwards.reverse();
    [bytes, smbios, backwards]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_recognised_in_every_byte_order() {
        #[track_caller]
        fn check(left: &str, right: &str, expected: bool) {
            assert_eq!(
                (same_uuid(left, right), same_uuid(right, left)),
                (expected, expected),
                "{left} {right}"
            );
        }
        let written = "33221100-5544-7766-0809-0a0b0c0d0e0f";
        check(written, " 33221100554477660809 0A0B0C0D0E0F", false);
        check(written, " 3322110055447766-08090A0B0C0D0E0F", true);
        check(written, "00112233-4455-6677-0809-0a0b0c0d0e0f", true);
        check(written, "0f0e0d0c-0b0a-0908-6677-445500112233", true);
        check(written, "33221100-5544-7766-0809-0a0b0c0d0e00", false);
        check("No.7", "no.7 ", true);
        check("No.7", written, false);
    }

    #[test]
    fn a_uuid_that_was_never_set_is_none() {
        #[track_caller]
        fn check(text: &str, expected: Option<&str>) {
            assert_eq!(given_uuid(text), expected, "{text}");
        }
        check("00000000-0000-0000-0000-000000000000", None);
        check("FFFFFFFF-ffff-FFFF-FFFF-FFFFFFFFFFFF", None);
        check("  ", None);
        check("00000000-0000-0000-0000-000000000001 ", Some("00000000-0000-0000-0000-000000000001"));
        check("0", Some("0"));
    }
}
