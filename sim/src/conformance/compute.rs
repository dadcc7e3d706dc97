//! What our own implementation says about a case.

use std::collections::{BTreeMap, HashSet};

use muster_engine::fit::{Amounts, Code, Cycle, Failure, Refusal, Stage, World, judge};
use muster_model::k8s::Pod;

use super::case::{Answer, Case, Fail, PlanAnswer, Pre, StepAnswer};

/// Usage per node in the initial state.
pub fn used(world: &World<'_>) -> Vec<BTreeMap<String, i64>> {
    world.nodes().iter().map(|node| amounts(&node.used)).collect()
}

/// One answer per pending pod; the pods do not see each other.
pub fn verdicts(case: &Case) -> Vec<Answer> {
    let world = case.world();
    case.pending.iter().map(|pod| answer(&world, pod)).collect()
}

/// One answer per step; an accepted pod is bound before the next step.
pub fn sequence(case: &Case) -> Vec<Answer> {
    let mut world = case.world();
    let mut answers = Vec::with_capacity(case.steps.len());
    for (pod, node) in &case.steps {
        let pod = &case.pending[*pod];
        let mut found = answer(&world, pod);
        let fits = found.fits.contains(node);
        found.bound = Some(fits);
        if fits {
            world.bind(pod, *node);
        }
        answers.push(found);
    }
    answers
}

/// The steps in the given order, and whether any order would do.
pub fn plan(case: &Case) -> PlanAnswer {
    let mut world = case.world();
    let mut steps = Vec::with_capacity(case.steps.len());
    for (pod, node) in &case.steps {
        let pod = &case.pending[*pod];
        let refusal = Cycle::new(&world, pod).refusal(*node);
        match refusal {
            None => {
                world.bind(pod, *node);
                steps.push(StepAnswer { ok: true, first: None, why: None });
            }
            Some(Refusal { plugin, rejection, .. }) => steps.push(StepAnswer {
                ok: false,
                first: Some(plugin.name().to_owned()),
                why: Some(rejection.reasons),
            }),
        }
    }
    let legal = steps.iter().all(|step| step.ok);
    let order = if legal { Some((0..case.steps.len()).collect()) } else { find_order(case) };
    PlanAnswer { steps, legal, any_order: order.is_some(), order }
}

/// Some order in which every step is accepted. The state depends on which steps were taken and not on
/// their order, so a set of steps that led nowhere is not tried again: exact, and at most 2^n sets.
pub fn find_order(case: &Case) -> Option<Vec<usize>> {
    let mut search = Search {
        case,
        world: case.world(),
        taken: vec![false; case.steps.len()],
        order: Vec::new(),
        dead: HashSet::new(),
    };
    search.extend().then_some(search.order)
}

struct Search<'a> {
    case: &'a Case,
    world: World<'a>,
    taken: Vec<bool>,
    order: Vec<usize>,
    dead: HashSet<Vec<bool>>,
}

impl Search<'_> {
    fn extend(&mut self) -> bool {
        if self.order.len() == self.taken.len() {
            return true;
        }
        if self.dead.contains(&self.taken) {
            return false;
        }
        for step in 0..self.taken.len() {
            let (pod, node) = self.case.steps[step];
            let pod = &self.case.pending[pod];
            if self.taken[step] || Cycle::new(&self.world, pod).refusal(node).is_some() {
                continue;
            }
            self.world.bind(pod, node);
            self.taken[step] = true;
            self.order.push(step);
            if self.extend() {
                return true;
            }
            self.order.pop();
            self.taken[step] = false;
            self.world.unbind(&pod.metadata.namespace, &pod.metadata.name, node);
        }
        self.dead.insert(self.taken.clone());
        false
    }
}

fn answer<'a>(world: &World<'a>, pod: &'a Pod) -> Answer {
    let verdict = judge(world, pod);
    Answer {
        req: amounts(&verdict.request),
        fits: verdict.fits,
        fails: verdict.failures.iter().map(fail).collect(),
        msg: verdict.message,
        pre: verdict.whole.map(|whole| Pre {
            plugin: whole.plugin.name().to_owned(),
            code: code(whole.rejection.code),
            msg: whole.rejection.reasons.join(", "),
        }),
        bound: None,
    }
}

fn fail(failure: &Failure) -> Fail {
    let Refusal { plugin, stage, rejection } = &failure.first;
    let name = |plugin: &muster_engine::fit::Plugin| plugin.name().to_owned();
    let all: BTreeMap<String, Vec<String>> =
        failure.all.iter().map(|(plugin, alone)| (name(plugin), alone.reasons.clone())).collect();
    let plain = all.len() == 1 && all.get(plugin.name()) == Some(&rejection.reasons);
    Fail {
        n: failure.node,
        first: name(plugin),
        code: code(rejection.code),
        why: rejection.reasons.clone(),
        stage: (*stage == Stage::Before).then(|| "pre".to_owned()),
        all: (!plain).then_some(all),
    }
}

fn code(code: Code) -> String {
    code.short().to_owned()
}

fn amounts(amounts: &Amounts) -> BTreeMap<String, i64> {
    amounts.entries().map(|(name, amount)| (name.to_owned(), amount)).collect()
}
