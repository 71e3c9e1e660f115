//! What every block of every rank holds, by name.

use super::violation::{Violation, names};

/// No block: the rank does not hold anything there.
const NOTHING: u32 = u32::MAX;

/// Which block of the original buffers, and whose contributions (a bit per rank).
pub(super) struct Contents {
    ranks: u32,
    blocks: u32,
    words: usize,
    block: Vec<u32>,
    who: Vec<u64>,
}

/// The names that a message carries, in its order.
pub(super) struct Carried {
    words: usize,
    block: Vec<u32>,
    who: Vec<u64>,
}

/// Why two names do not add up.
pub(super) enum Clash {
    Nothing,
    Different { held: u32, arrived: u32 },
    Twice { contribution: u32 },
}

impl Clash {
    pub(super) fn violation(self, rank: u32, step: usize, block: u32, from: u32) -> Violation {
        match self {
            Self::Nothing => Violation::AddedToNothing { rank, step, block, from },
            Self::Different { held, arrived } => {
                Violation::Mixed { rank, step, block, from, held, arrived }
            }
            Self::Twice { contribution } => {
                Violation::CountedTwice { rank, step, block, from, contribution }
            }
        }
    }
}

impl Carried {
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &[u64])> {
        self.block.iter().copied().zip(self.who.chunks_exact(self.words))
    }
}

impl Contents {
    pub(super) fn nothing(ranks: u32, blocks: u32) -> Self {
        let words = ranks.div_ceil(64).max(1) as usize;
        let all = ranks as usize * blocks as usize;
        Self { ranks, blocks, words, block: vec![NOTHING; all], who: vec![0; all * words] }
    }

    fn index(&self, rank: u32, block: u32) -> usize {
        rank as usize * self.blocks as usize + block as usize
    }

    fn who(&self, index: usize) -> &[u64] {
        &self.who[index * self.words..(index + 1) * self.words]
    }

    fn who_mut(&mut self, index: usize) -> &mut [u64] {
        &mut self.who[index * self.words..(index + 1) * self.words]
    }

    /// The rank's own original block.
    pub(super) fn start(&mut self, rank: u32, block: u32) {
        let index = self.index(rank, block);
        self.block[index] = block;
        self.who_mut(index)[rank as usize / 64] = 1 << (rank % 64);
    }

    /// The names in these blocks, or the block that has none.
    pub(super) fn copy(
        &self,
        rank: u32,
        blocks: impl Iterator<Item = u32>,
    ) -> Result<Carried, u32> {
        let mut carried = Carried { words: self.words, block: Vec::new(), who: Vec::new() };
        for block in blocks {
            let index = self.index(rank, block);
            if self.block[index] == NOTHING {
                return Err(block);
            }
            carried.block.push(self.block[index]);
            carried.who.extend_from_slice(self.who(index));
        }
        Ok(carried)
    }

    pub(super) fn set(&mut self, rank: u32, block: u32, (name, who): (u32, &[u64])) {
        let index = self.index(rank, block);
        self.block[index] = name;
        self.who_mut(index).copy_from_slice(who);
    }

    pub(super) fn add(
        &mut self,
        rank: u32,
        block: u32,
        (arrived, who): (u32, &[u64]),
    ) -> Result<(), Clash> {
        let index = self.index(rank, block);
        let held = self.block[index];
        if held == NOTHING {
            return Err(Clash::Nothing);
        }
        if held != arrived {
            return Err(Clash::Different { held, arrived });
        }
        for (word, (mine, theirs)) in (0..).zip(self.who_mut(index).iter_mut().zip(who)) {
            let both = *mine & theirs;
            if both != 0 {
                return Err(Clash::Twice { contribution: word * 64 + both.trailing_zeros() });
            }
            *mine |= theirs;
        }
        Ok(())
    }

    /// That `block` of `rank` holds block `expected` with the contributions of `from`, or of all.
    pub(super) fn expect(
        &self,
        rank: u32,
        block: u32,
        expected: u32,
        from: Option<u32>,
    ) -> Result<(), Violation> {
        let index = self.index(rank, block);
        let held = self.block[index];
        if held == NOTHING {
            return Err(Violation::Empty { rank, block });
        }
        if held != expected {
            return Err(Violation::WrongBlock { rank, block, held, expected });
        }
        let holds = |other: u32| self.who(index)[other as usize / 64] >> (other % 64) & 1 == 1;
        let wanted = |other: u32| from.is_none_or(|one| one == other);
        let missing: Vec<u32> = (0..self.ranks).filter(|r| wanted(*r) && !holds(*r)).collect();
        let surplus: Vec<u32> = (0..self.ranks).filter(|r| !wanted(*r) && holds(*r)).collect();
        if missing.is_empty() && surplus.is_empty() {
            return Ok(());
        }
        Err(Violation::WrongSum { rank, block, missing: names(&missing), surplus: names(&surplus) })
    }
}
