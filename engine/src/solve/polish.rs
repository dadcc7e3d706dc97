//! Wishes: what pods would rather have, kept as far as no machine more is needed.
//!
//! Machines and rules are settled before. Pods that no hard rule concerns are then moved between targets
//! that have room, each to the one it likes best. The search is limited by counted looks.

use super::{
    problem::{Problem, Solution, Step, Target, Wish, WishKind, fits, has_bit},
    state::State,
};

/// Looks at a target that one solution may spend.
const MOST_LOOKS: u64 = 400_000;
/// Rounds over the pods of a class: a pod's best place depends on where the others went.
const ROUNDS: usize = 2;

/// How many wishes placed pods have, and how many hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wishes {
    pub stated: u64,
    pub kept: u64,
}

/// Moves pods to where more of their wishes hold.
pub(crate) fn polish(problem: &Problem, solution: &mut Solution) {
    let movable = movable(problem);
    if !movable.contains(&true) || solution.steps.is_empty() {
        return;
    }
    let mut state = end_state(problem, solution);
    let mut looks = 0;
    let nodes = problem.nodes.len();
    let mut order: Vec<u32> =
        (0..problem.classes.len() as u32).filter(|&class| movable[class as usize]).collect();
    order.sort_by_key(|&class| (std::cmp::Reverse(problem.classes[class as usize].priority), class));
    let mut seats = seats(problem, solution, nodes);
    let mut moved = vec![false; problem.classes.len()];
    for round in 0..ROUNDS {
        if round > 0 && !moved.contains(&true) {
            break;
        }
        for &class in &order {
            let before = seats[class as usize].clone();
            improve(&mut state, class, &mut seats[class as usize], &mut looks);
            moved[class as usize] |= seats[class as usize] != before;
        }
    }
    rewrite(solution, nodes, &seats, &moved);
}

/// Classes with wishes that no rule concerns and whose pods no rule counts.
fn movable(problem: &Problem) -> Vec<bool> {
    let mut read = vec![false; problem.counters.len()];
    for class in &problem.classes {
        let spreads = class.spreads.iter().map(|rule| rule.counter);
        let requires = class.requires.iter().flat_map(|rule| rule.counters.iter().copied());
        for counter in class.forbids.iter().copied().chain(spreads).chain(requires) {
            read[counter as usize] = true;
        }
    }
    let free = |class: &super::Class| {
        !class.wishes.is_empty()
            && class.spreads.is_empty()
            && class.forbids.is_empty()
            && class.requires.is_none()
            && !class.raises.iter().any(|&counter| read[counter as usize])
    };
    problem.classes.iter().map(free).collect()
}

fn target_of(target: Target, nodes: usize) -> usize {
    match target {
        Target::Node(at) => at as usize,
        Target::Machine(at) => nodes + at as usize,
    }
}

fn end_state<'p>(problem: &'p Problem, solution: &Solution) -> State<'p> {
    let mut state = State::new(problem);
    for &shape in &solution.machines {
        let data = &problem.shapes[shape as usize];
        state.add_target(data.signature, data.location, &data.room, &data.marks);
    }
    for step in &solution.steps {
        state.place(step.class, target_of(step.target, problem.nodes.len()), step.count);
    }
    state
}

/// Pods per target of every class, as sorted pairs.
fn seats(problem: &Problem, solution: &Solution, nodes: usize) -> Vec<Vec<(usize, u32)>> {
    let mut seats: Vec<Vec<(usize, u32)>> = vec![Vec::new(); problem.classes.len()];
    for step in &solution.steps {
        seats[step.class as usize].push((target_of(step.target, nodes), step.count));
    }
    for list in &mut seats {
        list.sort_unstable();
        list.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
    }
    seats
}

/// Moves the pods of a class one by one to the target that they like best.
fn improve(state: &mut State<'_>, class: u32, seats: &mut Vec<(usize, u32)>, looks: &mut u64) {
    let problem = state.problem;
    let wanted = &problem.classes[class as usize];
    let usable: Vec<usize> = (0..state.targets())
        .filter(|&target| problem.allowed.get(wanted.signature, state.signature[target]))
        .collect();
    let pods: u32 = seats.iter().map(|&(_, count)| count).sum();
    let cost = u64::from(pods) * usable.len() as u64;
    if *looks + cost > MOST_LOOKS {
        return;
    }
    *looks += cost;
    let mut now = vec![0_u32; state.targets()];
    for &(target, count) in &*seats {
        now[target] = count;
    }
    for &(from, count) in &*seats {
        for _ in 0..count {
            state.unplace(class, from, 1);
            let mut best = (score(state, class, from), from);
            for &target in &usable {
                if target != from && fits(&wanted.request, state.room(target)) {
                    let liked = score(state, class, target);
                    if liked > best.0 {
                        best = (liked, target);
                    }
                }
            }
            state.place(class, best.1, 1);
            now[from] -= 1;
            now[best.1] += 1;
        }
    }
    *seats = now.into_iter().enumerate().filter(|(_, count)| *count > 0).collect();
}

/// How much one more pod of the class would like the target.
fn score(state: &State<'_>, class: u32, target: usize) -> i64 {
    let wishes = &state.problem.classes[class as usize].wishes;
    wishes.iter().map(|wish| value(state, wish, target)).sum()
}

/// What a wish says about one more pod on the target. Counts weigh less than whether it holds.
fn value(state: &State<'_>, wish: &Wish, target: usize) -> i64 {
    const HOLDS: i64 = 1_000;
    let count = |counter: u32| i64::from(state.count_at(counter, target).unwrap_or(0));
    let crowd = |counter: u32| count(counter).min(HOLDS - 1);
    wish.weight
        * match &wish.kind {
            WishKind::On { signatures } => HOLDS * i64::from(has_bit(signatures, state.signature[target])),
            WishKind::Near { counter } => {
                if count(*counter) > 0 {
                    HOLDS
                } else {
                    0
                }
            }
            WishKind::Far { counter } => -crowd(*counter) - if count(*counter) > 0 { HOLDS } else { 0 },
            WishKind::Even { counter, .. } => match state.count_at(*counter, target) {
                Some(_) => -count(*counter).min(HOLDS * HOLDS),
                None => -HOLDS * HOLDS,
            },
        }
}

/// Takes the steps of moved classes out and puts them behind the others.
fn rewrite(solution: &mut Solution, nodes: usize, seats: &[Vec<(usize, u32)>], moved: &[bool]) {
    solution.steps.retain(|step| !moved[step.class as usize]);
    for (class, list) in (0..).zip(seats).filter(|(class, _)| moved[*class as usize]) {
        for &(target, count) in list {
            let target = match target.checked_sub(nodes) {
                None => Target::Node(target as u32),
                Some(machine) => Target::Machine(machine as u32),
            };
            solution.steps.push(Step { class, target, count });
        }
    }
}

/// Counts the wishes of placed pods, and those that hold once everything is in its place.
pub fn wishes(problem: &Problem, solution: &Solution) -> Wishes {
    let mut total = Wishes::default();
    if problem.classes.iter().all(|class| class.wishes.is_empty()) {
        return total;
    }
    let state = end_state(problem, solution);
    for step in &solution.steps {
        let target = target_of(step.target, problem.nodes.len());
        for wish in &problem.classes[step.class as usize].wishes {
            total.stated += u64::from(step.count);
            if holds(&state, wish, target) {
                total.kept += u64::from(step.count);
            }
        }
    }
    total
}

/// Whether a wish of a pod on the target holds.
fn holds(state: &State<'_>, wish: &Wish, target: usize) -> bool {
    let others = |counter: u32| {
        state.count_at(counter, target).map(|count| i64::from(count) - i64::from(wish.counts_itself))
    };
    match &wish.kind {
        WishKind::On { signatures } => has_bit(signatures, state.signature[target]),
        WishKind::Near { counter } => others(*counter).is_some_and(|others| others > 0),
        WishKind::Far { counter } => others(*counter).is_none_or(|others| others <= 0),
        WishKind::Even { counter, max_skew } => {
            state.spread(*counter, target, 0).is_some_and(|(here, least)| here - least <= *max_skew)
        }
    }
}
