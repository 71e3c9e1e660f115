//! Folds a three-dimensional job onto the two dimensions of a `HammingMesh`.
//!
//! A job of `p × q × s` NPUs (tensor, pipeline and data parallelism, say) gets one of its dimensions along
//! rows and the other two along columns, or the other way round; of the two, the inner one runs along
//! neighbouring NPUs, to and fro (`snake`) or always forward. Of all such foldings whose sides are whole
//! boards the one is taken whose farthest neighbours are the nearest, then whose neighbours are the
//! nearest altogether, then the most square. Distances are in cables and traces, on one line of NPUs:
//!
//! ```text
//! one board:    |i − j|
//! two boards:   edge(i) + 2 + edge(j),  edge(i) = traces to the nearer end of the board
//! ```
//!
//! So on boards of two NPUs a side every neighbour is one trace or one switch away: nothing is lost by
//! folding. What it ignores: that two dimensions on one line share its cables; trees of two levels.

use allrail_core::{FieldError, counted};

/// A job's shape on the mesh.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Fold {
    /// Rows and columns of boards.
    pub boards: [u32; 2],
    /// The job's dimension (0 to 2) that runs along each line of NPUs, the inner one first: along
    /// columns of the mesh (so down its rows), then along rows.
    pub along: [Vec<usize>; 2],
    /// Whether the inner of two dimensions runs to and fro.
    pub snake: bool,
    /// Cables and traces between the farthest neighbours of each of the job's dimensions.
    pub farthest: [u32; 3],
    shape: [u32; 3],
}

impl Fold {
    /// Folds `shape` onto boards of `board` NPUs (rows, columns).
    ///
    /// # Errors
    /// A side is 0, or no folding has whole boards.
    pub fn new(shape: [u32; 3], board: [u32; 2]) -> Result<Self, FieldError> {
        let shown = || shape.map(|side| side.to_string()).join(" x ");
        let refuse = |why: String, hint: &str| FieldError::new("shape", shown(), why, hint);
        if shape.contains(&0) || board.contains(&0) {
            let why = "a side of it or of the board is 0".to_owned();
            return Err(refuse(why, "write 1 or more for each side"));
        }
        if shape.iter().map(|&side| u64::from(side)).product::<u64>() > 1 << 24 {
            return Err(refuse("it has more than 2^24 NPUs".to_owned(), "make it smaller"));
        }
        let mut best: Option<(u32, u64, u32, Self)> = None;
        for alone in 0..3 {
            let [one, other] = [(alone + 1) % 3, (alone + 2) % 3];
            for pair in [vec![one, other], vec![other, one]] {
                for along in [[vec![alone], pair.clone()], [pair.clone(), vec![alone]]] {
                    for snake in [false, true] {
                        let Some(fold) = Self::of(shape, board, along.clone(), snake) else {
                            continue;
                        };
                        let rank = fold.rank(board);
                        if best.as_ref().is_none_or(|best| rank < (best.0, best.1, best.2)) {
                            best = Some((rank.0, rank.1, rank.2, fold));
                        }
                    }
                }
            }
        }
        best.map(|(.., fold)| fold).ok_or_else(|| {
            let why = format!(
                "no folding of it tiles boards of {} x {}",
                board[0],
                counted(board[1], "NPU")
            );
            refuse(why, "two of its dimensions together, and the third, are to be whole boards")
        })
    }

    fn of(shape: [u32; 3], board: [u32; 2], along: [Vec<usize>; 2], snake: bool) -> Option<Self> {
        let sides = [0, 1].map(|axis| along[axis].iter().map(|&d| shape[d]).product::<u32>());
        let tiles = sides.iter().zip(board).all(|(side, each)| side.is_multiple_of(each));
        let boards = [sides[0] / board[0], sides[1] / board[1]];
        let mut fold = Self { boards, along, snake, farthest: [0; 3], shape };
        fold.farthest = fold.each_neighbour(board).map(|(_, most)| most);
        tiles.then_some(fold)
    }

    /// Where the NPU with these coordinates stands in the job's grid of NPUs: row, column.
    #[must_use]
    pub fn place(&self, at: [u32; 3]) -> [u32; 2] {
        [0, 1].map(|axis| match *self.along[axis] {
            [alone] => at[alone],
            [inner, outer] => {
                let side = self.shape[inner];
                let back = self.snake && at[outer] % 2 == 1;
                at[outer] * side + if back { side - 1 - at[inner] } else { at[inner] }
            }
            _ => unreachable!("a line has one dimension or two"),
        })
    }

    /// Farthest neighbours, sum of all distances, how far from square.
    fn rank(&self, board: [u32; 2]) -> (u32, u64, u32) {
        let sum = self.each_neighbour(board).iter().map(|(sum, _)| sum).sum();
        let most = self.farthest.iter().copied().max().unwrap_or(0);
        (most, sum, self.boards[0].abs_diff(self.boards[1]))
    }

    /// By dimension of the job: the sum of the distances between neighbours, and the largest.
    fn each_neighbour(&self, board: [u32; 2]) -> [(u64, u32); 3] {
        [0, 1, 2].map(|dimension| {
            // The line that this dimension runs along does not depend on the dimension across.
            let axis = usize::from(!self.along[0].contains(&dimension));
            let with = *self.along[axis].iter().find(|&&d| d != dimension).unwrap_or(&dimension);
            let others = if with == dimension { 1 } else { self.shape[with] };
            let (mut sum, mut most) = (0, 0);
            for other in 0..others {
                for step in 1..self.shape[dimension] {
                    let at = |step: u32| {
                        let mut at = [0; 3];
                        at[with] = other;
                        at[dimension] = step;
                        self.place(at)[axis]
                    };
                    let far = distance(at(step - 1), at(step), board[axis]);
                    (sum, most) = (sum + u64::from(far), most.max(far));
                }
            }
            // Every line of the dimension across has the same neighbours.
            let across: u64 = self.shape.iter().map(|&side| u64::from(side)).product::<u64>()
                / (u64::from(others) * u64::from(self.shape[dimension]));
            (sum * across, most)
        })
    }
}

/// Cables and traces between two NPUs of a line of boards of `each` NPUs.
fn distance(one: u32, other: u32, each: u32) -> u32 {
    let edge = |at: u32| (at % each).min(each - 1 - at % each);
    if one / each == other / each { one.abs_diff(other) } else { edge(one) + 2 + edge(other) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Every pair of neighbours, by the places of all NPUs: the plain version of `farthest`.
    fn farthest(fold: &Fold, board: [u32; 2]) -> [u32; 3] {
        let mut most = [0; 3];
        let [p, q, s] = fold.shape;
        for at in (0..p).flat_map(|i| (0..q).flat_map(move |j| (0..s).map(move |k| [i, j, k]))) {
            for dimension in 0..3 {
                let mut next = at;
                next[dimension] += 1;
                if next[dimension] == fold.shape[dimension] {
                    continue;
                }
                let (here, there) = (fold.place(at), fold.place(next));
                let unlike: Vec<usize> = (0..2).filter(|&axis| here[axis] != there[axis]).collect();
                let [axis] = unlike[..] else { panic!("neighbours stand on one line") };
                most[dimension] =
                    most[dimension].max(distance(here[axis], there[axis], board[axis]));
            }
        }
        most
    }

    #[test]
    fn the_paper_s_job_of_4_x_4_x_2_has_all_neighbours_adjacent() {
        let fold = Fold::new([4, 4, 2], [2, 2]).expect("it tiles");
        assert_eq!(fold.boards, [2, 4]);
        assert!(fold.farthest.iter().all(|&far| far <= 2), "a trace, or two cables: {fold:?}");
    }

    #[test]
    fn every_npu_has_a_place_of_its_own_and_distances_are_those_of_all_pairs() {
        for board in [[1, 1], [2, 2], [4, 4], [2, 4]] {
            for shape in [[4, 4, 2], [8, 2, 4], [4, 4, 4], [16, 1, 1], [3, 4, 8], [2, 6, 4]] {
                let Ok(fold) = Fold::new(shape, board) else { continue };
                let [p, q, s] = shape;
                let all =
                    (0..p).flat_map(|i| (0..q).flat_map(move |j| (0..s).map(move |k| [i, j, k])));
                let places: BTreeSet<[u32; 2]> = all.map(|at| fold.place(at)).collect();
                assert_eq!(places.len() as u32, p * q * s);
                let ends = [0, 1].map(|axis| places.iter().map(|at| at[axis] + 1).max());
                assert_eq!(ends, [0, 1].map(|axis| Some(fold.boards[axis] * board[axis])));
                assert_eq!(fold.farthest, farthest(&fold, board), "{shape:?} on {board:?}");
            }
        }
    }

    #[test]
    fn what_tiles_no_board_is_refused() {
        assert!(Fold::new([3, 5, 7], [2, 2]).is_err());
        assert!(Fold::new([4, 0, 2], [2, 2]).is_err());
    }
}
