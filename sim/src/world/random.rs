//! Chance with a seed: the same numbers everywhere and for ever (xorshift over splitmix).

/// A source of numbers that follow from its seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A source of its own for a subject, so that more numbers for one do not change those of another.
    pub fn fork(&self, subject: &str) -> Self {
        let mixed = subject.bytes().fold(self.0 ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut one = Self(mixed);
        one.draw();
        one
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.draw() % (high.saturating_sub(low) + 1)
    }

    /// True this often in a hundred.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.draw() % 100 < chance
    }

    /// One of them; there must be one.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let place = usize::try_from(self.draw() % from.len().max(1) as u64).unwrap_or(0);
        &from[place]
    }
}
