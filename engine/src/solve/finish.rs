//! Turns built machines into an order of steps, replays it with the exact rules, and finds a place for
//! what is left over.

use super::{
    build::Batch,
    catalog::{Catalog, Stock},
    places::Places,
    problem::{Problem, Solution, Step, Target, fits},
    rules::{Layer, Rules},
    state::State,
};

/// A plan under construction: machines that exist for the scheduler from the start, and accepted steps.
#[derive(Debug, Clone)]
pub(crate) struct Draft<'a> {
    pub(crate) state: State<'a>,
    pub(crate) machines: Vec<Open>,
    /// Steps with targets numbered as in the state.
    pub(crate) steps: Vec<(u32, u32, u32)>,
    pub(crate) left: Vec<u32>,
    pub(crate) stock: Stock,
}

/// A new machine whose shape may still grow.
#[derive(Debug, Clone)]
pub(crate) struct Open {
    pub(crate) shape: u32,
    pub(crate) family: u32,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(state: State<'a>, left: Vec<u32>, stock: Stock) -> Self {
        Self { state, machines: Vec::new(), steps: Vec::new(), left, stock }
    }

    fn nodes(&self) -> usize {
        self.state.problem.nodes.len()
    }

    fn open(&mut self, shape: u32, family: u32) -> usize {
        let problem = self.state.problem;
        let data = &problem.shapes[shape as usize];
        self.machines.push(Open { shape, family });
        self.state.add_target(data.signature, data.location, &data.room, &data.marks)
    }

    /// Adds machines and binds their pods in an order that holds; what is refused stays in `left`.
    pub(crate) fn adopt(&mut self, rules: &Rules, places: &Places, batches: &[Batch]) {
        let mut at_lot: Vec<Vec<(u32, u32)>> = vec![Vec::new(); places.lots.len()];
        for batch in batches {
            for _ in 0..batch.machines {
                let target = self.open(batch.shape, batch.family) as u32;
                for &(lot, count) in &batch.pods {
                    at_lot[lot as usize].push((target, count));
                }
            }
        }
        for targets in &mut at_lot {
            targets.reverse();
        }
        for layer in [Layer::SpreadByKey, Layer::SpreadByHost, Layer::Other] {
            for &(lot, run) in &places.order {
                let class = places.lots[lot as usize].class;
                if rules.layer[class as usize] == layer {
                    self.bind_run(class, run, &mut at_lot[lot as usize]);
                }
            }
            for (lot, targets) in at_lot.iter_mut().enumerate() {
                let entry = &places.lots[lot];
                if entry.location.is_none() && rules.layer[entry.class as usize] == layer {
                    self.bind_run(entry.class, u32::MAX, targets);
                }
            }
        }
    }

    fn bind_run(&mut self, class: u32, run: u32, targets: &mut Vec<(u32, u32)>) {
        let plain = {
            let wanted = &self.state.problem.classes[class as usize];
            wanted.spreads.is_empty() && wanted.forbids.is_empty() && wanted.requires.is_none()
        };
        let mut run = run;
        while run > 0 {
            let Some((target, count)) = targets.last_mut() else { break };
            let (target, here) = (*target, run.min(*count));
            *count -= here;
            if *count == 0 {
                targets.pop();
            }
            run -= here;
            if plain {
                self.bind(class, target as usize, here);
                continue;
            }
            for _ in 0..here {
                if self.state.judge(class, target as usize).is_ok() {
                    self.bind(class, target as usize, 1);
                }
            }
        }
    }

    pub(crate) fn bind(&mut self, class: u32, target: usize, count: u32) {
        self.state.place(class, target, count);
        self.left[class as usize] -= count;
        match self.steps.last_mut() {
            Some((last, at, run)) if *last == class && *at as usize == target => *run += count,
            _ => self.steps.push((class, target as u32, count)),
        }
    }

    /// Places what is left pod by pod: on what is open, on a grown machine, on a new one.
    pub(crate) fn repair(&mut self, catalog: &Catalog, order: &[u32], new_machines: bool) {
        for &class in order {
            while self.left[class as usize] > 0 && self.repair_one(catalog, class, new_machines) {}
        }
    }

    fn repair_one(&mut self, catalog: &Catalog, class: u32, new_machines: bool) -> bool {
        for target in self.nodes()..self.state.targets() {
            if self.state.judge(class, target).is_ok() {
                self.bind(class, target, 1);
                return true;
            }
        }
        self.grow(catalog, class) || (new_machines && self.open_for(catalog, class))
    }

    /// Gives an open machine a larger shape if that admits the pod; the cheapest such step.
    fn grow(&mut self, catalog: &Catalog, class: u32) -> bool {
        let problem = self.state.problem;
        let wanted = &problem.classes[class as usize];
        let mut best: Option<(i64, usize, u32)> = None;
        for at in 0..self.machines.len() {
            let target = self.nodes() + at;
            let Open { shape, family } = self.machines[at];
            let signature = self.state.signature[target];
            if !problem.allowed.get(wanted.signature, signature)
                || self.state.judge_counters(class, target).is_err()
            {
                continue;
            }
            let load = self.load_with(target, shape, &wanted.request);
            let Some(larger) = catalog.cheapest(problem, &self.stock, family as usize, &load) else {
                continue;
            };
            let extra = problem.shapes[larger as usize].cost - problem.shapes[shape as usize].cost;
            if best.is_none_or(|(top, ..)| extra < top) {
                best = Some((extra, at, larger));
            }
        }
        let Some((extra, at, larger)) = best else { return false };
        let alone = self.cheapest_new(catalog, class).map(|(cost, ..)| cost);
        if alone.is_some_and(|cost| cost < extra) {
            return false;
        }
        self.reshape(at, larger);
        self.bind(class, self.nodes() + at, 1);
        true
    }

    fn load_with(&self, target: usize, shape: u32, request: &[i64]) -> Vec<i64> {
        let room = &self.state.problem.shapes[shape as usize].room;
        let free = self.state.room(target);
        room.iter().zip(free).zip(request).map(|((room, free), want)| room - free + want).collect()
    }

    fn reshape(&mut self, at: usize, shape: u32) {
        let problem = self.state.problem;
        let old = self.machines[at].shape;
        let target = self.nodes() + at;
        let lanes = problem.lanes;
        for lane in 0..lanes {
            self.state.free[target * lanes + lane] +=
                problem.shapes[shape as usize].room[lane] - problem.shapes[old as usize].room[lane];
        }
        self.stock.give(problem, old);
        self.stock.take(problem, shape, 1);
        self.machines[at].shape = shape;
    }

    fn cheapest_new(&self, catalog: &Catalog, class: u32) -> Option<(i64, u32, u32)> {
        let problem = self.state.problem;
        let wanted = &problem.classes[class as usize];
        let mut best: Option<(i64, u32, u32)> = None;
        for (at, family) in catalog.families.iter().enumerate() {
            if !problem.allowed.get(wanted.signature, family.signature) {
                continue;
            }
            let Some(shape) = catalog.cheapest(problem, &self.stock, at, &wanted.request) else { continue };
            let cost = problem.shapes[shape as usize].cost;
            if best.is_none_or(|(top, ..)| cost < top) && self.admits_new(class, shape) {
                best = Some((cost, shape, at as u32));
            }
        }
        best
    }

    /// Whether a fresh machine of the shape would take a pod of the class now.
    fn admits_new(&self, class: u32, shape: u32) -> bool {
        let data = &self.state.problem.shapes[shape as usize];
        let plain = {
            let wanted = &self.state.problem.classes[class as usize];
            wanted.spreads.is_empty() && wanted.forbids.is_empty() && wanted.requires.is_none()
        };
        if plain {
            return true;
        }
        let mut state = self.state.clone();
        let target = state.add_target(data.signature, data.location, &data.room, &data.marks);
        state.judge(class, target).is_ok()
    }

    fn open_for(&mut self, catalog: &Catalog, class: u32) -> bool {
        let Some((_, shape, family)) = self.cheapest_new(catalog, class) else { return false };
        self.stock.take(self.state.problem, shape, 1);
        let target = self.open(shape, family);
        self.bind(class, target, 1);
        true
    }

    /// Gives every machine the cheapest shape that still holds its load, and drops the empty ones.
    pub(crate) fn settle(mut self, catalog: &Catalog) -> Solution {
        let problem = self.state.problem;
        for at in 0..self.machines.len() {
            let Open { shape, family } = self.machines[at];
            let load = self.load_with(self.nodes() + at, shape, &vec![0; problem.lanes]);
            if let Some(smaller) = catalog.cheapest(problem, &self.stock, family as usize, &load)
                && problem.shapes[smaller as usize].cost < problem.shapes[shape as usize].cost
            {
                self.reshape(at, smaller);
            }
        }
        let nodes = self.nodes();
        let mut used = vec![false; self.machines.len()];
        for &(_, target, _) in &self.steps {
            if target as usize >= nodes {
                used[target as usize - nodes] = true;
            }
        }
        let mut number = vec![0; self.machines.len()];
        let mut machines = Vec::new();
        for (at, open) in self.machines.iter().enumerate() {
            if used[at] {
                number[at] = machines.len() as u32;
                machines.push(open.shape);
            }
        }
        let target = |at: u32| match (at as usize).checked_sub(nodes) {
            None => Target::Node(at),
            Some(machine) => Target::Machine(number[machine]),
        };
        let steps =
            self.steps.iter().map(|&(class, at, count)| Step { class, target: target(at), count }).collect();
        let unplaced =
            (0u32..).zip(&self.left).filter(|(_, left)| **left > 0).map(|(c, l)| (c, *l)).collect();
        Solution { machines, steps, unplaced, effort: 0 }
    }
}

/// Replays a solution with the exact rules, all machines being there from the start. Returns the steps
/// that hold; `None` if all do.
pub(crate) fn refused(problem: &Problem, solution: &Solution) -> Vec<(u32, u32)> {
    let mut state = State::new(problem);
    for &shape in &solution.machines {
        let data = &problem.shapes[shape as usize];
        state.add_target(data.signature, data.location, &data.room, &data.marks);
    }
    let nodes = problem.nodes.len();
    let mut refused = Vec::new();
    for (index, step) in solution.steps.iter().enumerate() {
        let target = match step.target {
            Target::Node(at) => at as usize,
            Target::Machine(at) => nodes + at as usize,
        };
        let class = &problem.classes[step.class as usize];
        let plain = class.spreads.is_empty() && class.forbids.is_empty() && class.requires.is_none();
        let whole: Vec<i64> = class.request.iter().map(|want| want * i64::from(step.count)).collect();
        if plain
            && problem.allowed.get(class.signature, state.signature[target])
            && fits(&whole, state.room(target))
        {
            state.place(step.class, target, step.count);
            continue;
        }
        let mut bad = 0;
        for _ in 0..step.count {
            if state.judge(step.class, target).is_ok() {
                state.place(step.class, target, 1);
            } else {
                bad += 1;
            }
        }
        if bad > 0 {
            refused.push((index as u32, bad));
        }
    }
    refused
}
