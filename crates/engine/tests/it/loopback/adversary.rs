//! Who decides what happens next.

use super::draw::Draw;

/// In which order the adversary lets things happen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Adversary {
    /// Anything that can happen.
    Any,
    /// What became possible last.
    Newest,
    /// What became possible first.
    Oldest,
    /// What one rank does, and what it is sent, only when nothing else is left to happen.
    Late(u32),
    /// Ranks do something of their own only when nothing is in the air.
    Deliver,
    /// Nothing is delivered while a rank has something of its own to do.
    Hold,
}

impl Adversary {
    pub(crate) fn draw(draw: &mut Draw, ranks: usize) -> Self {
        match draw.below(8) {
            0 => Self::Newest,
            1 => Self::Oldest,
            2 => Self::Deliver,
            3 => Self::Hold,
            4 => Self::Late(draw.below(ranks) as u32),
            _ => Self::Any,
        }
    }

    /// Which of `list` is next; there is one.
    pub(crate) fn pick<T>(
        self,
        draw: &mut Draw,
        list: &[T],
        rank: impl Fn(&T) -> u32,
        flies: impl Fn(&T) -> bool,
    ) -> usize {
        let any = draw.below(list.len());
        let prefer = |wanted: &dyn Fn(&T) -> bool| {
            let from_any = (any..list.len()).chain(0..any);
            from_any.into_iter().find(|i| wanted(&list[*i])).unwrap_or(any)
        };
        match self {
            Self::Any => any,
            Self::Newest => list.len() - 1,
            Self::Oldest => 0,
            Self::Late(slow) => prefer(&|one| rank(one) != slow),
            Self::Deliver => prefer(&flies),
            Self::Hold => prefer(&|one| !flies(one)),
        }
    }
}
