//! The ranks of a group: the engine counts their places, connections and people know their ranks.

/// The group of a node.
pub(super) struct Group {
    /// This rank, of the fabric.
    pub(super) rank: u32,
    /// By place in the group: ranks of the fabric.
    pub(super) peers: Vec<u32>,
}

impl Group {
    /// The place in the group of a rank of the fabric.
    pub(super) fn place_of(&self, rank: u32) -> Option<u32> {
        self.peers.iter().position(|one| *one == rank).and_then(|place| u32::try_from(place).ok())
    }

    /// The rank at a place.
    pub(super) fn rank_at(&self, place: u32) -> Option<u32> {
        self.peers.get(place as usize).copied()
    }

    pub(super) fn has(&self, rank: u32) -> bool {
        self.peers.contains(&rank)
    }

    /// All ranks but this one.
    pub(super) fn others(&self) -> impl Iterator<Item = u32> + '_ {
        self.peers.iter().copied().filter(|peer| *peer != self.rank)
    }

    /// Whether this rank is alone.
    pub(super) fn is_alone(&self) -> bool {
        self.peers.len() == 1
    }
}
