//! The numeric planning problem: amounts, compatibility bits and counters, no Kubernetes objects.
//!
//! Everything that a filter of the scheduler reads is here in one of four forms: a *lane* (an amount that
//! is used up), a bit (a class may or may not use a kind of target), a *counter* (how many pods of some
//! selection sit in a domain), or a *budget* (a limit over machines). Names stay with the caller.

/// No domain: the node does not carry the topology key.
pub const NO_DOMAIN: u32 = u32::MAX;
/// A shape of which any number can be had.
pub const UNLIMITED: u32 = u32::MAX;

/// One planning problem. Ids are indexes into the lists of the same name.
#[derive(Debug, Clone, Default)]
pub struct Problem {
    /// Number of resource lanes; every amount vector has this length. Lane `pods_lane` counts pods.
    pub lanes: usize,
    pub classes: Vec<Class>,
    pub shapes: Vec<Shape>,
    pub nodes: Vec<Node>,
    pub counters: Vec<Counter>,
    /// Number of domains of every topology key except the host name, whose domains are the targets.
    pub keys: Vec<u32>,
    /// The domain of each key, for every distinct place a target can be in.
    pub locations: Vec<Vec<u32>>,
    /// Limits that several shapes share: pool size, pool resources, rack watts, starts per loop.
    pub budgets: Vec<i64>,
    /// Which class signature may use which target signature.
    pub allowed: BitTable,
}

/// Pods that are equal in all that decides where they may go.
#[derive(Debug, Clone, Default)]
pub struct Class {
    pub count: u32,
    pub request: Vec<i64>,
    pub priority: i32,
    /// Row of [`Problem::allowed`].
    pub signature: u32,
    /// Counters that one pod of the class raises.
    pub raises: Vec<u32>,
    /// Counters that must be zero in the target's domain.
    pub forbids: Vec<u32>,
    pub spreads: Vec<SpreadRule>,
    pub requires: Option<RequireRule>,
    /// Locations the class would rather be in, with a weight; never worth a machine.
    pub prefers: Vec<(u32, i64)>,
    /// What its pods would rather have; never worth a machine.
    pub wishes: Vec<Wish>,
}

/// Something that pods would like to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub weight: i64,
    /// A pod of the class is among those that the counter counts.
    pub counts_itself: bool,
    pub kind: WishKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WishKind {
    /// A target of one of these signatures.
    On { signatures: Vec<u64> },
    /// Pods of the counter in the same domain.
    Near { counter: u32 },
    /// No other pods of the counter in the same domain.
    Far { counter: u32 },
    /// No domain more than this above another.
    Even { counter: u32, max_skew: i64 },
}

/// `count(domain) + self - minimum <= max_skew`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpreadRule {
    pub counter: u32,
    pub max_skew: i64,
    pub min_domains: u32,
    pub counts_itself: bool,
}

/// Each counter must be positive in the target's domain; while all of them are zero everywhere, a pod that
/// matches its own terms may go anywhere that has the keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequireRule {
    pub counters: Vec<u32>,
    pub matches_itself: bool,
}

/// How many pods of a selection sit in each domain of a key.
#[derive(Debug, Clone, Default)]
pub struct Counter {
    /// `None` is the host name: every target is its own domain.
    pub key: Option<u32>,
    /// Target signatures that take part; `None` is all of them.
    pub eligible: Option<Vec<u64>>,
    /// Read by a spread rule: its minimum matters.
    pub spread: bool,
}

/// A kind of machine that can be called up.
#[derive(Debug, Clone, Default)]
pub struct Shape {
    /// What a new machine offers to pods, after reservations and daemons.
    pub room: Vec<i64>,
    /// Column of [`Problem::allowed`].
    pub signature: u32,
    pub location: u32,
    /// Millionths of the currency per hour, penalties included: what the search minimises.
    pub cost: i64,
    pub supply: u32,
    /// What one machine takes of each budget.
    pub takes: Vec<(u32, i64)>,
    /// Among shapes of equal cost the lower rank wins.
    pub rank: i64,
    /// Counters that the machine's own daemons raise on it.
    pub marks: Vec<(u32, u32)>,
}

/// A machine that is there or on its way.
#[derive(Debug, Clone, Default)]
pub struct Node {
    pub free: Vec<i64>,
    pub signature: u32,
    pub location: u32,
    /// Counters raised by the pods that run there.
    pub marks: Vec<(u32, u32)>,
}

/// Rows of bits.
#[derive(Debug, Clone, Default)]
pub struct BitTable {
    columns: usize,
    words: Vec<u64>,
}

impl BitTable {
    pub fn new(rows: usize, columns: usize) -> Self {
        // At least one word per row: a table without columns may be asked too, and says no.
        let columns = columns.div_ceil(64).max(1);
        Self { columns, words: vec![0; rows * columns] }
    }

    pub fn set(&mut self, row: u32, column: u32) {
        self.words[row as usize * self.columns + column as usize / 64] |= 1 << (column % 64);
    }

    #[inline]
    pub fn get(&self, row: u32, column: u32) -> bool {
        self.words[row as usize * self.columns + column as usize / 64] >> (column % 64) & 1 == 1
    }

    /// The bits of one row.
    pub fn row(&self, row: u32) -> &[u64] {
        &self.words[row as usize * self.columns..(row as usize + 1) * self.columns]
    }
}

/// Whether `bits` has `at` set.
#[inline]
pub(crate) fn has_bit(bits: &[u64], at: u32) -> bool {
    bits.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
}

/// Whether `request` fits into `free`. Only what is asked for is compared.
#[inline]
pub(crate) fn fits(request: &[i64], free: &[i64]) -> bool {
    request.iter().zip(free).all(|(&want, &have)| want <= 0 || want <= have)
}

/// How many times `request` fits into `free`.
#[inline]
pub(crate) fn times(request: &[i64], free: &[i64]) -> i64 {
    let mut most = i64::MAX;
    for (&want, &have) in request.iter().zip(free) {
        if want > 0 {
            most = most.min(have.max(0) / want);
        }
    }
    most
}

/// The answer of the solver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Solution {
    /// The shape of every new machine.
    pub machines: Vec<u32>,
    /// In an order in which the scheduler accepts every step, all machines being there from the start.
    pub steps: Vec<Step>,
    /// Pods that found no place, by class.
    pub unplaced: Vec<(u32, u32)>,
    /// Units of work spent, the same on every machine.
    pub effort: u64,
}

/// `count` pods of a class go to one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub class: u32,
    pub target: Target,
    pub count: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Index into [`Problem::nodes`].
    Node(u32),
    /// Index into [`Solution::machines`].
    Machine(u32),
}

impl Solution {
    pub fn cost(&self, problem: &Problem) -> i64 {
        let cost = |&shape: &u32| problem.shapes[shape as usize].cost;
        self.machines.iter().map(cost).fold(0, i64::saturating_add)
    }

    pub fn left(&self) -> u64 {
        self.unplaced.iter().map(|&(_, count)| u64::from(count)).sum()
    }
}
