//! Programs of MSCCL that tests run, written as the tools of MSCCL write them: blocks of threads that send to
//! a peer and others that receive from it, and steps that wait for those that touch the same chunks.

use std::collections::BTreeMap;
use std::fmt::Write;

/// A place: buffer, chunk.
pub(crate) type Place = (char, u32);

/// A program under way.
pub(crate) struct Writer {
    coll: &'static str,
    ranks: u32,
    chunks: u32,
    in_place: bool,
    /// Of what is written next.
    channel: u32,
    /// By rank.
    blocks: Vec<Vec<(Block, Vec<String>)>>,
    /// By rank and place.
    touched: Vec<BTreeMap<Place, Touched>>,
}

/// Whether it sends; the other rank (none: steps of the GPU itself); the channel.
type Block = (bool, Option<u32>, u32);
/// Who wrote a place last, and who has read it since.
type Touched = (Option<At>, Vec<At>);
/// A program of so many ranks.
type OfRanks = fn(u32) -> String;
/// A step of a GPU.
type At = (usize, usize);

impl Writer {
    pub(crate) fn new(coll: &'static str, ranks: u32, chunks: u32, in_place: bool) -> Self {
        let count = ranks as usize;
        let touched = (0..count).map(|_| BTreeMap::new()).collect();
        let blocks = vec![Vec::new(); count];
        Self { coll, ranks, chunks, in_place, channel: 0, blocks, touched }
    }

    fn block(&mut self, rank: u32, sends: bool, peer: Option<u32>) -> usize {
        let (block, blocks) = ((sends, peer, self.channel), &mut self.blocks[rank as usize]);
        blocks.iter().position(|(one, _)| *one == block).unwrap_or_else(|| {
            blocks.push((block, Vec::new()));
            blocks.len() - 1
        })
    }

    fn step(
        &mut self,
        (rank, peer): (u32, Option<u32>),
        kind: &str,
        (source, destination, count): (Place, Place, u32),
    ) {
        let block = self.block(rank, kind == "s", peer);
        let (reads, writes) = match kind {
            "s" => (vec![source], vec![]),
            "r" => (vec![], vec![destination]),
            "cpy" => (vec![source], vec![destination]),
            _ => (vec![source, destination], vec![destination]),
        };
        let each = |(buffer, at): Place| (0..count).map(move |k| (buffer, at + k));
        let reads: Vec<Place> = reads.into_iter().flat_map(each).collect();
        let writes: Vec<Place> = writes.into_iter().flat_map(each).collect();
        let touched = &mut self.touched[rank as usize];
        let mut waits: BTreeMap<usize, usize> = BTreeMap::new();
        let mut wait = |(of, at): At| {
            if of != block {
                let latest = waits.entry(of).or_insert(at);
                *latest = at.max(*latest);
            }
        };
        for place in &reads {
            touched.entry(*place).or_default().0.map(&mut wait);
        }
        for place in &writes {
            let (written, read) = touched.entry(*place).or_default();
            written.iter().chain(read.iter()).copied().for_each(&mut wait);
        }
        let steps = &mut self.blocks[rank as usize][block].1;
        let mut waits: Vec<At> = waits.into_iter().collect();
        let last = waits.pop();
        for before in waits {
            let line = line(steps.len(), "nop", (('i', 0), ('i', 0), 0), Some(before));
            steps.push(line);
        }
        let at = (block, steps.len());
        steps.push(line(at.1, kind, (source, destination, count), last));
        for place in reads {
            touched.entry(place).or_default().1.push(at);
        }
        for place in writes {
            touched.insert(place, (Some(at), Vec::new()));
        }
    }

    /// A message whose chunks are put down.
    pub(crate) fn put(&mut self, from: (u32, Place), to: (u32, Place), count: u32) {
        self.step((from.0, Some(to.0)), "s", (from.1, to.1, count));
        self.step((to.0, Some(from.0)), "r", (from.1, to.1, count));
    }

    /// A message whose chunks are added to what is there.
    pub(crate) fn add(&mut self, from: (u32, Place), to: (u32, Place), count: u32) {
        self.step((from.0, Some(to.0)), "s", (from.1, to.1, count));
        self.step((to.0, Some(from.0)), "rrc", (to.1, to.1, count));
    }

    /// A sum on a GPU.
    pub(crate) fn sum(&mut self, rank: u32, source: Place, destination: Place, count: u32) {
        self.step((rank, None), "re", (source, destination, count));
    }

    /// A copy on a GPU.
    pub(crate) fn copy(&mut self, rank: u32, source: Place, destination: Place, count: u32) {
        self.step((rank, None), "cpy", (source, destination, count));
    }

    /// The file.
    pub(crate) fn text(self) -> String {
        let Self { coll, ranks, chunks, in_place, blocks, .. } = self;
        let mut text = format!(
            "<algo name=\"{coll}\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"{chunks}\" \
             ngpus=\"{ranks}\" coll=\"{coll}\" inplace=\"{}\">\n",
            u32::from(in_place)
        );
        for (rank, blocks) in blocks.into_iter().enumerate() {
            let _ = writeln!(text, " <gpu id=\"{rank}\">");
            for (number, ((sends, peer, channel), steps)) in blocks.into_iter().enumerate() {
                let peer = peer.map_or(-1, i64::from);
                let (to, from) = if sends { (peer, -1) } else { (-1, peer) };
                let _ = writeln!(
                    text,
                    "  <tb id=\"{number}\" send=\"{to}\" recv=\"{from}\" chan=\"{channel}\">"
                );
                text.extend(steps);
                text.push_str("  </tb>\n");
            }
            text.push_str(" </gpu>\n");
        }
        text + "</algo>\n"
    }
}

fn line(
    number: usize,
    kind: &str,
    (source, destination, count): (Place, Place, u32),
    after: Option<At>,
) -> String {
    let (of, at) = after.map_or((-1, -1), |(of, at)| (of as i64, at as i64));
    format!(
        "   <step s=\"{number}\" type=\"{kind}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" \
         dstoff=\"{}\" cnt=\"{count}\" depid=\"{of}\" deps=\"{at}\" hasdep=\"0\"/>\n",
        source.0, source.1, destination.0, destination.1
    )
}

/// An all-reduce around a ring, chunk by chunk.
pub(crate) fn ring(ranks: u32) -> String {
    let mut writer = Writer::new("allreduce", ranks, ranks, true);
    let around = |chunk: u32, k: u32| ((chunk + k) % ranks, (chunk + k + 1) % ranks);
    for k in 0..ranks - 1 {
        for chunk in 0..ranks {
            let (from, to) = around(chunk, k);
            writer.add((from, ('i', chunk)), (to, ('i', chunk)), 1);
        }
    }
    for k in ranks - 1..2 * (ranks - 1) {
        for chunk in 0..ranks {
            let (from, to) = around(chunk, k);
            writer.put((from, ('i', chunk)), (to, ('i', chunk)), 1);
        }
    }
    writer.text()
}

/// The same around both ways, half of the buffer each.
pub(crate) fn ring_both_ways(ranks: u32) -> String {
    let mut writer = Writer::new("allreduce", ranks, 2 * ranks, true);
    for k in 0..2 * (ranks - 1) {
        for chunk in 0..2 * ranks {
            let at = |k: u32| match chunk < ranks {
                true => (chunk + k) % ranks,
                false => (chunk + 2 * ranks - k) % ranks,
            };
            let (from, to) = ((at(k), ('i', chunk)), (at(k + 1), ('i', chunk)));
            writer.channel = chunk / ranks;
            match k < ranks - 1 {
                true => writer.add(from, to, 1),
                false => writer.put(from, to, 1),
            }
        }
    }
    writer.text()
}

/// An all-reduce in one step: every buffer to everyone's scratch buffer, and summed there.
fn everything_to_everyone(ranks: u32) -> String {
    let mut writer = Writer::new("allreduce", ranks, ranks, true);
    for from in 0..ranks {
        for to in (0..ranks).filter(|to| *to != from) {
            writer.put((from, ('i', 0)), (to, ('s', from * ranks)), ranks);
        }
    }
    for rank in 0..ranks {
        for from in (0..ranks).filter(|from| *from != rank) {
            writer.sum(rank, ('s', from * ranks), ('i', 0), ranks);
        }
    }
    writer.text()
}

/// An all-reduce in two steps: shards into scratch buffers, summed, and to everyone.
pub(crate) fn all_pairs(ranks: u32) -> String {
    let (each, mut writer) = (2, Writer::new("allreduce", ranks, 2 * ranks, true));
    for from in 0..ranks {
        for to in (0..ranks).filter(|to| *to != from) {
            writer.put((from, ('i', to * each)), (to, ('s', from * each)), each);
        }
    }
    for rank in 0..ranks {
        for from in (0..ranks).filter(|from| *from != rank) {
            writer.sum(rank, ('s', from * each), ('i', rank * each), each);
        }
    }
    for from in 0..ranks {
        for to in (0..ranks).filter(|to| *to != from) {
            writer.put((from, ('i', from * each)), (to, ('i', from * each)), each);
        }
    }
    writer.text()
}

/// An all-reduce over `nodes` of `gpus`: shards within a node, their sums between nodes, and back.
pub(crate) fn hierarchical(nodes: u32, gpus: u32) -> String {
    let mut writer = Writer::new("allreduce", nodes * gpus, nodes * gpus, true);
    let rank = |node: u32, gpu: u32| node * gpus + gpu;
    let others = |of: u32, count: u32| (0..count).filter(move |other| *other != of);
    for node in 0..nodes {
        for gpu in 0..gpus {
            for other in others(gpu, gpus) {
                let shard = ('i', other * nodes);
                writer.add((rank(node, gpu), shard), (rank(node, other), shard), nodes);
            }
        }
    }
    for gpu in 0..gpus {
        for to in 0..nodes {
            for node in others(to, nodes) {
                let chunk = ('i', gpu * nodes + to);
                writer.add((rank(node, gpu), chunk), (rank(to, gpu), chunk), 1);
            }
        }
        for from in 0..nodes {
            for node in others(from, nodes) {
                let chunk = ('i', gpu * nodes + from);
                writer.put((rank(from, gpu), chunk), (rank(node, gpu), chunk), 1);
            }
        }
    }
    for node in 0..nodes {
        for gpu in 0..gpus {
            for other in others(gpu, gpus) {
                let shard = ('i', gpu * nodes);
                writer.put((rank(node, gpu), shard), (rank(node, other), shard), nodes);
            }
        }
    }
    writer.text()
}

/// An all-reduce up a binary tree and down again.
fn tree(ranks: u32) -> String {
    let mut writer = Writer::new("allreduce", ranks, 1, true);
    for rank in (1..ranks).rev() {
        writer.add((rank, ('i', 0)), ((rank - 1) / 2, ('i', 0)), 1);
    }
    for rank in 1..ranks {
        writer.put(((rank - 1) / 2, ('i', 0)), (rank, ('i', 0)), 1);
    }
    writer.text()
}

/// A reduce-scatter that halves, in place.
fn halving(ranks: u32) -> String {
    let mut writer = Writer::new("reducescatter", ranks, ranks, true);
    let mut distance = ranks / 2;
    while distance > 0 {
        for rank in 0..ranks {
            let other = rank ^ distance;
            for chunk in (0..ranks).filter(|chunk| (chunk ^ other) & !(distance - 1) == 0) {
                writer.add((rank, ('i', chunk)), (other, ('i', chunk)), 1);
            }
        }
        distance /= 2;
    }
    writer.text()
}

/// A reduce-scatter out of place: what comes is summed in a scratch buffer.
fn scatter_out_of_place(ranks: u32) -> String {
    let mut writer = Writer::new("reducescatter", ranks, ranks, false);
    for rank in 0..ranks {
        writer.copy(rank, ('i', rank), ('o', 0), 1);
        for from in (0..ranks).filter(|from| *from != rank) {
            writer.put((from, ('i', rank)), (rank, ('s', from)), 1);
            writer.sum(rank, ('s', from), ('o', 0), 1);
        }
    }
    writer.text()
}

/// An all-gather that doubles, in place.
pub(crate) fn doubling(ranks: u32) -> String {
    let mut writer = Writer::new("allgather", ranks, ranks, true);
    let mut distance = 1;
    while distance < ranks {
        for rank in 0..ranks {
            let first = rank & !(distance - 1);
            let (own, other) = (('o', first), rank ^ distance);
            writer.put((rank, own), (other, own), distance);
        }
        distance *= 2;
    }
    writer.text()
}

/// An all-gather out of place.
pub(crate) fn gather(ranks: u32) -> String {
    let mut writer = Writer::new("allgather", ranks, ranks, false);
    for rank in 0..ranks {
        writer.copy(rank, ('i', 0), ('o', rank), 1);
        for to in (0..ranks).filter(|to| *to != rank) {
            writer.put((rank, ('i', 0)), (to, ('o', rank)), 1);
        }
    }
    writer.text()
}

/// An all-to-all out of place.
fn swap(ranks: u32) -> String {
    let (each, mut writer) = (2, Writer::new("alltoall", ranks, 2 * ranks, false));
    for rank in 0..ranks {
        writer.copy(rank, ('i', rank * each), ('o', rank * each), each);
        for to in (0..ranks).filter(|to| *to != rank) {
            writer.put((rank, ('i', to * each)), (to, ('o', rank * each)), each);
        }
    }
    writer.text()
}

/// An all-to-all over `nodes` of `gpus`: within a node to the GPU of the number that is wanted, then between
/// nodes, by way of scratch buffers.
pub(crate) fn swap_in_two_steps(nodes: u32, gpus: u32) -> String {
    let ranks = nodes * gpus;
    let mut writer = Writer::new("alltoall", ranks, ranks, false);
    let rank = |node: u32, gpu: u32| node * gpus + gpu;
    for node in 0..nodes {
        for gpu in 0..gpus {
            for other in 0..gpus {
                for to in 0..nodes {
                    // In the scratch buffer: for node `to`, from GPU `gpu`.
                    let (chunk, into) = (('i', rank(to, other)), ('s', to * gpus + gpu));
                    if gpu == other {
                        writer.copy(rank(node, gpu), chunk, into, 1);
                    } else {
                        writer.put((rank(node, gpu), chunk), (rank(node, other), into), 1);
                    }
                }
            }
        }
    }
    for node in 0..nodes {
        for gpu in 0..gpus {
            for to in 0..nodes {
                let (from, into) = (('s', to * gpus), ('o', node * gpus));
                if node == to {
                    writer.copy(rank(node, gpu), from, into, gpus);
                } else {
                    writer.put((rank(node, gpu), from), (rank(to, gpu), into), gpus);
                }
            }
        }
    }
    writer.text()
}

/// A broadcast down a chain, chunk by chunk.
fn chain(ranks: u32) -> String {
    let mut writer = Writer::new("broadcast", ranks, 3, true);
    for chunk in 0..3 {
        for rank in 1..ranks {
            writer.put((rank - 1, ('i', chunk)), (rank, ('i', chunk)), 1);
        }
    }
    writer.text()
}

/// All of them, of several numbers of ranks.
pub(crate) fn all() -> Vec<(String, String)> {
    let sized: [(&str, OfRanks, &[u32]); 10] = [
        ("ring", ring, &[2, 3, 4, 8]),
        ("ring both ways", ring_both_ways, &[2, 3, 4]),
        ("everything to everyone", everything_to_everyone, &[2, 3, 5]),
        ("all pairs", all_pairs, &[2, 3, 8]),
        ("tree", tree, &[2, 3, 7]),
        ("halving", halving, &[2, 4, 8]),
        ("scatter out of place", scatter_out_of_place, &[2, 3, 4]),
        ("doubling", doubling, &[2, 4, 8]),
        ("gather", gather, &[2, 3, 4]),
        ("swap", swap, &[2, 3, 4]),
    ];
    let mut all: Vec<(String, String)> = sized
        .iter()
        .flat_map(|(name, program, sizes)| {
            sizes.iter().map(move |size| (format!("{name} of {size}.xml"), program(*size)))
        })
        .collect();
    for (nodes, gpus) in [(2, 2), (2, 4), (3, 2)] {
        let of = format!("of {nodes}x{gpus}.xml");
        all.push((format!("hierarchical {of}"), hierarchical(nodes, gpus)));
        all.push((format!("swap in two steps {of}"), swap_in_two_steps(nodes, gpus)));
    }
    all.extend([2, 5].map(|ranks| (format!("chain of {ranks}.xml"), chain(ranks))));
    all
}
