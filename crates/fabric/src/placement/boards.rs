//! The boards of a mesh, free or not, as one set of bits a row.
//!
//! Boards stand in `rows × columns`. A row's free columns are `u64` words; a job's boards are whole
//! intersections of rows and columns, so taking and freeing a job touches `u` rows of a few words.

/// A sub-grid: every board at one of `rows` and one of `columns`, both ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Rows of boards.
    pub rows: Vec<u32>,
    /// Columns of boards.
    pub columns: Vec<u32>,
}

impl Block {
    /// How many boards it has.
    #[must_use]
    pub fn boards(&self) -> u32 {
        (self.rows.len() * self.columns.len()) as u32
    }
}

/// Which boards are free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boards {
    rows: u32,
    columns: u32,
    words: usize,
    free: Vec<u64>,
    /// Free boards of each row.
    counts: Vec<u32>,
}

impl Boards {
    /// A mesh whose boards are all free.
    #[must_use]
    pub fn new(rows: u32, columns: u32) -> Self {
        let words = columns.div_ceil(64) as usize;
        let mut row = vec![u64::MAX; words];
        if !columns.is_multiple_of(64) {
            row[words - 1] = (1 << (columns % 64)) - 1;
        }
        let free = row.repeat(rows as usize);
        Self { rows, columns, words, free, counts: vec![columns; rows as usize] }
    }

    /// A mesh whose boards are free where `free` says so, of row and column.
    #[must_use]
    pub(super) fn of(rows: u32, columns: u32, free: impl Fn(u32, u32) -> bool) -> Self {
        let mut boards = Self::new(rows, columns);
        for row in 0..rows {
            for column in (0..columns).filter(|&column| !free(row, column)) {
                boards.fail(row, column);
            }
        }
        boards
    }

    /// The boards that are free here and in another mesh of as many rows and columns.
    #[must_use]
    pub(super) fn in_common(&self, other: &Self) -> Self {
        let mut common = self.clone();
        common.free.iter_mut().zip(&other.free).for_each(|(mine, others)| *mine &= others);
        common.counts = (common.free.chunks(self.words))
            .map(|row| row.iter().map(|word| word.count_ones()).sum())
            .collect();
        common
    }

    /// Rows of boards.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Columns of boards.
    #[must_use]
    pub fn columns(&self) -> u32 {
        self.columns
    }

    /// Free boards of a row.
    #[must_use]
    pub fn free_in_row(&self, row: u32) -> u32 {
        self.counts[row as usize]
    }

    /// Free boards of the mesh.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }

    /// Whether a board is free.
    #[must_use]
    pub fn is_free(&self, row: u32, column: u32) -> bool {
        self.row(row)[column as usize / 64] >> (column % 64) & 1 == 1
    }

    /// Whether all boards of a block are free.
    #[must_use]
    pub fn are_free(&self, block: &Block) -> bool {
        block.rows.iter().all(|&row| block.columns.iter().all(|&column| self.is_free(row, column)))
    }

    /// A row's free columns, 64 a word, the lowest in the lowest bit.
    #[must_use]
    pub fn row(&self, row: u32) -> &[u64] {
        let start = row as usize * self.words;
        &self.free[start..start + self.words]
    }

    /// Takes the boards of a block; all of them are free.
    ///
    /// # Panics
    /// One of them is not.
    pub fn take(&mut self, block: &Block) {
        self.change(block, true);
    }

    /// Frees the boards of a block; all of them are taken.
    ///
    /// # Panics
    /// One of them is free.
    pub fn release(&mut self, block: &Block) {
        self.change(block, false);
    }

    /// Takes one board, such as a failed one, if it is free.
    pub fn fail(&mut self, row: u32, column: u32) {
        if self.is_free(row, column) {
            self.take(&Block { rows: vec![row], columns: vec![column] });
        }
    }

    fn change(&mut self, block: &Block, take: bool) {
        let mut mask = vec![0u64; self.words];
        for &column in &block.columns {
            mask[column as usize / 64] |= 1 << (column % 64);
        }
        let width = block.columns.len() as u32;
        for &row in &block.rows {
            let start = row as usize * self.words;
            for (word, &bits) in self.free[start..start + self.words].iter_mut().zip(&mask) {
                let stands = if take { *word & bits } else { !*word & bits };
                assert!(stands == bits, "a board belongs to one job at a time (row {row})");
                *word ^= bits;
            }
            let count = &mut self.counts[row as usize];
            *count = if take { *count - width } else { *count + width };
        }
    }
}

/// The columns in a set of bits, ascending.
pub(super) fn columns(bits: &[u64]) -> impl Iterator<Item = u32> + '_ {
    bits.iter().enumerate().flat_map(|(word, &bits)| {
        let mut rest = bits;
        std::iter::from_fn(move || {
            let bit = (rest != 0).then(|| rest.trailing_zeros())?;
            rest &= rest - 1;
            Some(word as u32 * 64 + bit)
        })
    })
}
