//! Places pods on nodes that are there or on their way.

use super::{
    finish::Draft,
    problem::{fits, times},
};

/// Nodes per block of the summary that lets whole blocks be skipped.
const BLOCK: usize = 64;

/// The most that any node of a block has free, lane by lane.
#[derive(Debug)]
struct Blocks {
    most: Vec<i64>,
    lanes: usize,
}

impl Blocks {
    fn new(draft: &Draft<'_>, nodes: usize) -> Self {
        let lanes = draft.state.problem.lanes;
        let mut blocks = Self { most: vec![i64::MIN; nodes.div_ceil(BLOCK) * lanes], lanes };
        for block in 0..nodes.div_ceil(BLOCK) {
            blocks.refresh(draft, block, nodes);
        }
        blocks
    }

    fn refresh(&mut self, draft: &Draft<'_>, block: usize, nodes: usize) {
        let most = &mut self.most[block * self.lanes..(block + 1) * self.lanes];
        most.fill(i64::MIN);
        for target in block * BLOCK..((block + 1) * BLOCK).min(nodes) {
            for (top, &have) in most.iter_mut().zip(draft.state.room(target)) {
                *top = (*top).max(have);
            }
        }
    }

    fn may_fit(&self, block: usize, request: &[i64]) -> bool {
        fits(request, &self.most[block * self.lanes..(block + 1) * self.lanes])
    }
}

/// First fit in the order of the nodes, whole runs at a time where no rule reads counters. Machines that
/// were opened already count as nodes.
pub(crate) fn place(draft: &mut Draft<'_>, order: &[u32]) {
    let nodes = draft.state.targets();
    if nodes == 0 {
        return;
    }
    let mut blocks = Blocks::new(draft, nodes);
    let mut waiting: Vec<u32> = order.to_vec();
    // Rounds, because affinity may wait for pods of a class that comes later.
    loop {
        let before: u64 = draft.left.iter().map(|&left| u64::from(left)).sum();
        for &class in &waiting {
            place_class(draft, &mut blocks, class, nodes);
        }
        waiting.retain(|&class| {
            let data = &draft.state.problem.classes[class as usize];
            draft.left[class as usize] > 0 && (!data.spreads.is_empty() || data.requires.is_some())
        });
        let after: u64 = draft.left.iter().map(|&left| u64::from(left)).sum();
        if waiting.is_empty() || after == before {
            return;
        }
    }
}

fn place_class(draft: &mut Draft<'_>, blocks: &mut Blocks, class: u32, nodes: usize) {
    let problem = draft.state.problem;
    let wanted = &problem.classes[class as usize];
    let plain = wanted.spreads.is_empty() && wanted.forbids.is_empty() && wanted.requires.is_none();
    let spread = !wanted.spreads.is_empty();
    for block in 0..nodes.div_ceil(BLOCK) {
        if draft.left[class as usize] == 0 {
            return;
        }
        if !blocks.may_fit(block, &wanted.request) {
            continue;
        }
        let mut changed = false;
        for target in block * BLOCK..((block + 1) * BLOCK).min(nodes) {
            let left = draft.left[class as usize];
            if left == 0 {
                break;
            }
            if !fits(&wanted.request, draft.state.room(target))
                || !problem.allowed.get(wanted.signature, draft.state.signature[target])
            {
                continue;
            }
            if plain {
                let most =
                    u32::try_from(times(&wanted.request, draft.state.room(target))).unwrap_or(u32::MAX);
                draft.bind(class, target, most.min(left));
                changed = true;
                continue;
            }
            while draft.left[class as usize] > 0 && draft.state.judge(class, target).is_ok() {
                draft.bind(class, target, 1);
                changed = true;
                if spread {
                    break;
                }
            }
        }
        if changed {
            blocks.refresh(draft, block, nodes);
        }
    }
}
