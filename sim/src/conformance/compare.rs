//! Our answers beside those of the real scheduler.

use std::fmt::Debug;

use super::case::{Answer, Fail, PlanAnswer, StepAnswer};

/// Every difference, in words.
#[derive(Debug, Default)]
pub struct Differences(pub Vec<String>);

impl Differences {
    fn note<T: PartialEq + Debug>(&mut self, what: &str, found: &T, expected: &T) {
        if found != expected {
            self.0.push(format!("{what}: found {found:?}, expected {expected:?}"));
        }
    }

    pub fn value<T: PartialEq + Debug>(&mut self, what: &str, found: &T, expected: &T) {
        self.note(what, found, expected);
    }

    pub fn answers(&mut self, found: &[Answer], expected: &[Answer]) {
        self.note("number of answers", &found.len(), &expected.len());
        for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
            self.answer(&format!("expect[{index}]"), found, expected);
        }
    }

    fn answer(&mut self, at: &str, found: &Answer, expected: &Answer) {
        self.note(&format!("{at}.req"), &found.req, &expected.req);
        self.note(&format!("{at}.fits"), &found.fits, &expected.fits);
        self.note(&format!("{at}.msg"), &found.msg, &expected.msg);
        self.note(&format!("{at}.pre"), &found.pre, &expected.pre);
        self.note(&format!("{at}.bound"), &found.bound, &expected.bound);
        let by_node = |fails: &[Fail]| {
            let mut fails: Vec<Fail> = fails.iter().map(Fail::normal).collect();
            fails.sort_by_key(|fail| fail.n);
            fails
        };
        let (found, expected) = (by_node(&found.fails), by_node(&expected.fails));
        self.note(&format!("{at}.fails: number"), &found.len(), &expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            self.note(&format!("{at}.fails[n={}]", expected.n), found, expected);
        }
    }

    /// Any order in which all steps are accepted is as good as the given one.
    pub fn plan(&mut self, found: &PlanAnswer, expected: &PlanAnswer) {
        let sorted = |step: &StepAnswer| {
            let mut step = step.clone();
            if let Some(why) = &mut step.why {
                why.sort();
            }
            step
        };
        let all = |steps: &[StepAnswer]| steps.iter().map(sorted).collect::<Vec<_>>();
        self.note("plan.steps", &all(&found.steps), &all(&expected.steps));
        self.note("plan.legal", &found.legal, &expected.legal);
        self.note("plan.anyOrder", &found.any_order, &expected.any_order);
    }
}
