//! Query parameters, read strictly: an unknown or repeated one is a fault, because a filter that is
//! silently ignored shows the wrong objects.

use muster_model::{
    field::{Choice, FieldError, Findings},
    suggest,
};

use crate::error::ApiError;

/// The parameters of one request. Ask for each by name, then [`Query::finish`].
#[derive(Debug)]
pub struct Query {
    pairs: Vec<(String, String)>,
    known: Vec<&'static str>,
    faults: Findings,
}

impl Query {
    pub fn read(raw: Option<&str>) -> Result<Self, ApiError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut faults = Findings::new();
        for part in raw.unwrap_or("").split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (Some(name), Some(value)) = (decode(name), decode(value)) else {
                return Err(ApiError::invalid(
                    part,
                    format!("the query parameter {part:?} is not valid UTF-8"),
                ));
            };
            if pairs.iter().any(|(seen, _)| *seen == name) {
                faults.push(FieldError::new(&name, "is given twice").found_text(&value));
            }
            pairs.push((name, value));
        }
        Ok(Self { pairs, known: Vec::new(), faults })
    }

    /// The value of a parameter; an empty one counts as given.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        self.pairs.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone())
    }

    pub fn fault(&mut self, fault: FieldError) {
        self.faults.push(fault);
    }

    /// A whole number in decimal digits, within bounds.
    pub fn number(&mut self, name: &'static str, min: u64, max: u64) -> Option<u64> {
        let text = self.text(name)?;
        let plain = !text.is_empty() && text.len() <= 20 && text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|number| plain && (min..=max).contains(number));
        if number.is_none() {
            let allowed = if max == u64::MAX {
                format!("a whole number from {min}")
            } else {
                format!("a whole number from {min} to {max}")
            };
            self.fault(FieldError::new(name, "is out of range").found_text(&text).allowed(allowed));
        }
        number
    }

    /// `true` or `false`; absent is false.
    pub fn flag(&mut self, name: &'static str) -> bool {
        match self.text(name).as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                let fault = FieldError::new(name, "is neither true nor false").found_text(other);
                self.fault(fault.allowed("true, false"));
                false
            }
        }
    }

    /// One of the words of an enumeration, exactly.
    pub fn choice<T: Choice>(&mut self, name: &'static str) -> Option<T> {
        let text = self.text(name)?;
        let choice = T::from_word(&text);
        if choice.is_none() {
            let mut fault = FieldError::new(name, format!("is not {}", T::WHAT)).found_text(&text);
            fault = fault.allowed(T::words());
            if let Some(near) = suggest::nearest(&text, T::ALL.iter().map(|(word, _)| *word)) {
                fault = fault.hint(format!("did you mean {near}?"));
            }
            self.fault(fault);
        }
        choice
    }

    /// Fails when anything was wrong, or when a parameter was never asked for.
    pub fn finish(mut self) -> Result<(), ApiError> {
        for (name, value) in &self.pairs {
            if !self.known.contains(&name.as_str()) {
                let mut fault =
                    FieldError::new(name, "is not a query parameter of this path").found_text(value);
                fault = match suggest::nearest(name, self.known.iter().copied()) {
                    Some(near) => fault.hint(format!("did you mean {near}?")),
                    None if self.known.is_empty() => fault.hint("it takes none"),
                    None => fault.allowed(self.known.join(", ")),
                };
                self.faults.push(fault);
            }
        }
        self.faults.result(()).map(drop).map_err(|faults| ApiError::validation(&faults))
    }
}

/// Percent-decoding; `+` is a space.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter().copied();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_plain_digits_within_bounds() {
        #[track_caller]
        fn check(raw: &str, expected: Option<u64>) {
            let mut query = Query::read(Some(raw)).unwrap();
            let number = query.number("limit", 1, 100);
            assert_eq!(query.finish().ok().and(number), expected, "{raw}");
        }
        check("limit=1", Some(1));
        check("limit=100", Some(100));
        for wrong in ["0", "101", "-1", "abc", "1e2", "", "+5", "1.0", "99999999999999999999999", "%31%"] {
            let mut query = Query::read(Some(&format!("limit={wrong}")));
            if let Ok(query) = &mut query {
                assert_eq!(query.number("limit", 1, 100), None, "{wrong}");
            }
            assert!(query.and_then(Query::finish).is_err(), "{wrong} was accepted");
        }
    }

    #[test]
    fn unknown_and_repeated_parameters_are_faults() {
        let mut query = Query::read(Some("limt=5&offset=1&offset=2")).unwrap();
        query.number("limit", 1, 100);
        query.number("offset", 0, u64::MAX);
        let error = query.finish().unwrap_err();
        assert!(error.details.contains("did you mean limit?"), "{}", error.details);
        assert!(error.details.contains("given twice"), "{}", error.details);
    }
}
