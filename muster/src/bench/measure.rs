//! One figure that a benchmark found, with the bar it is held against.

use serde::{Serialize, Serializer, ser::SerializeStruct};

/// What a figure has to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bar {
    /// Nothing was promised; the figure is for information.
    None,
    AtLeast(f64),
    AtMost(f64),
}

/// Which figures are good ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Better {
    Lower,
    Higher,
}

/// A figure of one case, measured once or several times.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measure {
    pub(crate) case: &'static str,
    /// What was measured, in words that stay the same: with the case, the figure's name for other programs.
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    better: Better,
    pub(crate) bar: Bar,
    /// Every run, in order; at least one.
    pub(crate) runs: Vec<f64>,
    /// What else one should know of it; empty for nothing.
    pub(crate) note: String,
}

impl Measure {
    pub(crate) fn new(
        case: &'static str,
        name: impl Into<String>,
        unit: &'static str,
        runs: Vec<f64>,
    ) -> Self {
        assert!(!runs.is_empty(), "a measure without a run says nothing");
        Self {
            case,
            name: name.into(),
            unit,
            better: Better::Lower,
            bar: Bar::None,
            runs,
            note: String::new(),
        }
    }

    pub(crate) fn bar(mut self, bar: Bar) -> Self {
        self.bar = bar;
        match bar {
            Bar::None => {}
            Bar::AtLeast(_) => self.better = Better::Higher,
            Bar::AtMost(_) => self.better = Better::Lower,
        }
        self
    }

    /// For a figure without a bar of which more is better.
    pub(crate) fn higher(mut self) -> Self {
        self.better = Better::Higher;
        self
    }

    /// The median of some runs of which less is better.
    pub(crate) fn middle(runs: &[f64]) -> f64 {
        Self::new("", "", "", runs.to_vec()).median()
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// The middle run; of an even number, the worse of the two in the middle.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.runs.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = match self.better {
            Better::Higher => (sorted.len() - 1) / 2,
            Better::Lower => sorted.len() / 2,
        };
        sorted[middle]
    }

    pub(crate) fn minimum(&self) -> f64 {
        self.runs.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn maximum(&self) -> f64 {
        self.runs.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Whether the median reaches the bar; `None` where there is no bar.
    pub(crate) fn met(&self) -> Option<bool> {
        match self.bar {
            Bar::None => None,
            Bar::AtLeast(bar) => Some(self.median() >= bar),
            Bar::AtMost(bar) => Some(self.median() <= bar),
        }
    }
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let better = match self.better {
            Better::Lower => "lower",
            Better::Higher => "higher",
        };
        let bar = match self.bar {
            Bar::None => None,
            Bar::AtLeast(bar) | Bar::AtMost(bar) => Some(bar),
        };
        let mut out = serializer.serialize_struct("Measure", 11)?;
        out.serialize_field("case", self.case)?;
        out.serialize_field("name", &self.name)?;
        out.serialize_field("unit", self.unit)?;
        out.serialize_field("better", better)?;
        out.serialize_field("median", &self.median())?;
        out.serialize_field("minimum", &self.minimum())?;
        out.serialize_field("maximum", &self.maximum())?;
        out.serialize_field("runs", &self.runs)?;
        out.serialize_field("bar", &bar)?;
        out.serialize_field("met", &self.met())?;
        out.serialize_field("note", &self.note)?;
        out.end()
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "the values themselves come back")]
mod tests {
    use super::*;

    #[test]
    fn the_median_decides_and_ties_go_to_the_worse_side() {
        #[track_caller]
        fn check(runs: &[f64], bar: Bar, median: f64, met: Option<bool>) {
            let measure = Measure::new("c", "n", "ms", runs.to_vec()).bar(bar);
            assert_eq!((measure.median(), measure.met()), (median, met));
        }
        check(&[3.0, 1.0, 2.0], Bar::AtMost(2.0), 2.0, Some(true));
        check(&[3.0, 1.0], Bar::AtMost(2.0), 3.0, Some(false));
        check(&[3.0, 1.0], Bar::AtLeast(2.0), 1.0, Some(false));
        check(&[7.0], Bar::AtLeast(7.0), 7.0, Some(true));
        check(&[7.0], Bar::None, 7.0, None);
    }
}
