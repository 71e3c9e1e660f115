//! The XML of MSCCL: `algo` has a `gpu` for each rank, that `tb`s, those `step`s.
//!
//! Attributes that say how MSCCL packs or launches (`proto`, `nchannels`, `hasdep`) change nothing here.

use std::collections::BTreeMap;
use std::path::Path;

use allrail_core::{Bytes, counted};
use roxmltree::{Document, Node as Element};

use super::{Block, Buffer, File, Gpu, KINDS, Step, Wrong};
use crate::{Operation, SizeRange};

/// Of `coll`.
const OPERATIONS: [(&str, Operation); 6] = [
    ("allreduce", Operation::AllReduce),
    ("reducescatter", Operation::ReduceScatter),
    ("reduce_scatter", Operation::ReduceScatter),
    ("allgather", Operation::AllGather),
    ("alltoall", Operation::AllToAll),
    ("broadcast", Operation::Broadcast),
];
const BUFFERS: [(&str, Buffer); 3] =
    [("i", Buffer::Input), ("o", Buffer::Output), ("s", Buffer::Scratch)];
/// Chunks of a buffer, ranks, numbers of blocks and channels: what nobody writes more of.
const MOST: u32 = 1 << 20;

/// Blocks of a GPU.
const MOST_BLOCKS: usize = 4096;
/// Blocks times steps of all GPUs: a proof keeps a number for each, at most.
const MOST_CLOCKS: u64 = 1 << 28;

/// The content of a file.
///
/// # Errors
/// It cannot be read.
pub fn open(file: &Path) -> Result<String, Wrong> {
    std::fs::read_to_string(file).map_err(|error| {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let why = if missing { "there is no such file".to_owned() } else { error.to_string() };
        Wrong::new("the file", why, "name an XML file of MSCCL, from the scenario's folder")
    })
}

/// Reads the content of a file.
///
/// # Errors
/// Names the line, the element and the attribute.
pub fn read(text: &str) -> Result<File, Wrong> {
    let tree = Document::parse(text).map_err(|error| {
        let why = format!("it is no XML: {error}");
        Wrong::new("the file", why, "mend it, or export it again")
    })?;
    let reader = Reader { tree: &tree };
    let algo = tree.root_element();
    if !algo.has_tag_name("algo") {
        let why = format!("its element is `{}`, not `algo`", algo.tag_name().name());
        return Err(reader.wrong(
            algo,
            why,
            "MSCCL's programs are `<algo ...>` with a `<gpu>` for each rank",
        ));
    }
    reader.algorithm(algo)
}

struct Reader<'a> {
    tree: &'a Document<'a>,
}

type Attempt<T> = Result<T, Wrong>;

impl<'a> Reader<'a> {
    fn line(&self, of: Element<'_, '_>) -> u32 {
        self.tree.text_pos_at(of.range().start).row
    }

    fn wrong(&self, of: Element<'_, '_>, why: impl Into<String>, hint: &str) -> Wrong {
        let place = format!("line {}, `{}`", self.line(of), of.tag_name().name());
        Wrong::new(place, why, hint)
    }

    /// The elements in another, all of one name.
    fn children(&self, of: Element<'a, 'a>, name: &str) -> Attempt<Vec<Element<'a, 'a>>> {
        let all: Vec<Element<'a, 'a>> = of.children().filter(Element::is_element).collect();
        match all.iter().find(|one| !one.has_tag_name(name)) {
            Some(other) => {
                let why = format!("MSCCL's `{}` has `{name}` in it only", of.tag_name().name());
                Err(self.wrong(*other, why, "leave it out; a copy on a GPU is a step, `cpy`"))
            }
            None => Ok(all),
        }
    }

    fn text(&self, of: Element<'a, 'a>, name: &str) -> Attempt<&'a str> {
        of.attribute(name).ok_or_else(|| {
            self.wrong(of, format!("it has no `{name}`"), "MSCCL writes the attribute everywhere")
        })
    }

    fn number(&self, of: Element<'a, 'a>, name: &str) -> Attempt<i64> {
        let text = self.text(of, name)?;
        text.trim().parse().map_err(|_| {
            self.wrong(of, format!("its `{name}` is `{text}`"), "it is a whole number")
        })
    }

    /// One from 0 to `most`.
    fn count(&self, of: Element<'a, 'a>, name: &str, most: u32) -> Attempt<u32> {
        let number = self.number(of, name)?;
        let known = u32::try_from(number).ok().filter(|number| *number <= most);
        known.ok_or_else(|| {
            let why = format!("its `{name}` is {number}");
            self.wrong(of, why, &format!("it is 0 to {most}"))
        })
    }

    /// The number of another rank; -1 is none.
    fn peer(&self, of: Element<'a, 'a>, name: &str, gpu: u32, ranks: u32) -> Attempt<Option<u32>> {
        let number = self.number(of, name)?;
        if number == -1 {
            return Ok(None);
        }
        let peer = u32::try_from(number).ok().filter(|peer| *peer < ranks && *peer != gpu);
        peer.map(Some).ok_or_else(|| {
            let why = format!("its `{name}` is {number}: GPU {gpu} of {ranks} has no such peer");
            self.wrong(of, why, "it is another GPU, counted from 0, or -1")
        })
    }

    fn bytes(&self, of: Element<'a, 'a>, name: &str) -> Attempt<u64> {
        let Some(text) = of.attribute(name) else { return Ok(0) };
        text.trim().parse().map_err(|_| {
            self.wrong(of, format!("its `{name}` is `{text}`"), "it is a number of bytes")
        })
    }

    fn algorithm(&self, algo: Element<'a, 'a>) -> Attempt<File> {
        let coll = self.text(algo, "coll")?;
        let named = OPERATIONS.iter().find(|(name, _)| *name == coll);
        let (_, operation) = *named.ok_or_else(|| {
            let why = format!("its `coll` is `{coll}`");
            let hint = "what is run is `allreduce`, `reducescatter`, `allgather`, `alltoall` and \
                        `broadcast`";
            self.wrong(algo, why, hint)
        })?;
        let ranks = self.count(algo, "ngpus", MOST)?;
        let chunks = self.count(algo, "nchunksperloop", MOST)?;
        let sharded = operation.is_sharded();
        if chunks == 0 || ranks < 2 || (sharded && !chunks.is_multiple_of(ranks)) {
            let why = format!(
                "it has {chunks} over {ranks}",
                chunks = counted(chunks, "chunk"),
                ranks = counted(ranks, "rank")
            );
            let hint = "two ranks or more, a chunk or more, of equal shards as many for each rank";
            return Err(self.wrong(algo, why, hint));
        }
        let in_place = self.count(algo, "inplace", 1)? == 1;
        let sizes = match (self.bytes(algo, "minBytes")?, self.bytes(algo, "maxBytes")?) {
            (0, 0) => None,
            (least, most) => {
                let most = if most == 0 { u64::MAX } else { most };
                Some(SizeRange { from: Bytes::new(least), to: Bytes::new(most) })
            }
        };
        let mut gpus: BTreeMap<u32, Gpu> = BTreeMap::new();
        for gpu in self.children(algo, "gpu")? {
            let id = self.count(gpu, "id", ranks - 1)?;
            if gpus.insert(id, self.gpu(gpu, id, ranks)?).is_some() {
                return Err(self.wrong(
                    gpu,
                    format!("there are two GPUs {id}"),
                    "count them from 0",
                ));
            }
        }
        if gpus.len() != ranks as usize {
            let absent = (0..ranks).find(|id| !gpus.contains_key(id)).unwrap_or(0);
            let why = format!("`ngpus` is {ranks}, and there is no GPU {absent}");
            return Err(self.wrong(algo, why, "write a `gpu` for every rank, counted from 0"));
        }
        let gpus: Vec<Gpu> = gpus.into_values().collect();
        let blocks: u64 = gpus.iter().map(|gpu| gpu.blocks.len() as u64).sum();
        let steps = gpus.iter().flat_map(|gpu| &gpu.blocks).map(|block| block.steps.len() as u64);
        let (clocks, places) = (blocks * steps.sum::<u64>(), u64::from(ranks) * u64::from(chunks));
        if clocks > MOST_CLOCKS || places > u64::from(MOST) {
            let why = format!(
                "{blocks} and {places} of all ranks are too many to prove",
                blocks = counted(blocks, "block"),
                places = counted(places, "chunk")
            );
            return Err(self.wrong(algo, why, "take fewer chunks or channels"));
        }
        Ok(File { operation, in_place, chunks, sizes, gpus })
    }

    fn gpu(&self, gpu: Element<'a, 'a>, id: u32, ranks: u32) -> Attempt<Gpu> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut waits: Vec<(Element<'a, 'a>, usize, usize)> = Vec::new();
        for tb in self.children(gpu, "tb")? {
            let number = self.count(tb, "id", MOST)?;
            if blocks.len() == MOST_BLOCKS {
                let why = format!("GPU {id} has more than {MOST_BLOCKS} blocks");
                return Err(self.wrong(tb, why, "a GPU runs some hundred at once"));
            }
            if blocks.iter().any(|other| other.id == number) {
                let why = format!("GPU {id} has two blocks {number}");
                return Err(self.wrong(tb, why, "give every block its own number"));
            }
            let mut block = Block {
                id: number,
                send: self.peer(tb, "send", id, ranks)?,
                receive: self.peer(tb, "recv", id, ranks)?,
                channel: self.count(tb, "chan", MOST)?,
                steps: Vec::new(),
            };
            for (k, step) in self.children(tb, "step")?.into_iter().enumerate() {
                waits.push((step, blocks.len(), k));
                block.steps.push(self.step(step, k, &block)?);
            }
            blocks.push(block);
        }
        for (step, block, k) in waits {
            let (of, at) = (self.number(step, "depid")?, self.number(step, "deps")?);
            if of == -1 {
                continue;
            }
            let place = blocks.iter().position(|other| i64::from(other.id) == of);
            let found = place.zip(usize::try_from(at).ok());
            let found = found.filter(|(block, at)| *at < blocks[*block].steps.len());
            let found = found.ok_or_else(|| {
                let why = format!("it waits for step {at} of block {of}, which GPU {id} has not");
                self.wrong(step, why, "`depid` and `deps` are a block of the GPU and a step there")
            })?;
            blocks[block].steps[k].after = Some(found);
        }
        Ok(Gpu { blocks })
    }

    fn step(&self, step: Element<'a, 'a>, k: usize, block: &Block) -> Attempt<Step> {
        let number = self.count(step, "s", MOST)?;
        if number as usize != k {
            let why = format!("it is step {number}, and stands in the place of step {k}");
            return Err(self.wrong(step, why, "steps stand in their order, counted from 0"));
        }
        let tag = self.text(step, "type")?;
        let kind = KINDS.iter().find(|kind| kind.tag == tag).ok_or_else(|| {
            let tags: Vec<&str> = KINDS.iter().map(|kind| kind.tag).collect();
            let hint = format!("steps are {}", tags.join(", "));
            self.wrong(step, format!("its `type` is `{tag}`"), &hint)
        })?;
        for (needed, peer, name) in
            [(kind.sends, block.send, "send"), (kind.receives, block.receive, "recv")]
        {
            if needed && peer.is_none() {
                let why = format!("`{tag}` in block {}, whose `{name}` is -1", block.id);
                return Err(self.wrong(step, why, "the block names the GPU that it talks to"));
            }
        }
        let count = self.count(step, "cnt", MOST)?;
        let moves = kind.reads || kind.stores || kind.sends;
        if moves && count == 0 {
            return Err(self.wrong(step, "its `cnt` is 0", "a step moves a chunk or more"));
        }
        Ok(Step {
            line: self.line(step),
            kind,
            source: self.place(step, ("srcbuf", "srcoff"), kind.reads)?,
            destination: self.place(step, ("dstbuf", "dstoff"), kind.stores)?,
            count,
            after: None,
        })
    }

    fn place(
        &self,
        of: Element<'a, 'a>,
        names: (&str, &str),
        used: bool,
    ) -> Attempt<(Buffer, u32)> {
        if !used {
            return Ok((Buffer::Scratch, 0));
        }
        let text = self.text(of, names.0)?;
        let named = BUFFERS.iter().find(|(name, _)| *name == text);
        let (_, buffer) = named.ok_or_else(|| {
            let why = format!("its `{}` is `{text}`", names.0);
            self.wrong(of, why, "buffers are `i`, `o` and `s`")
        })?;
        Ok((*buffer, self.count(of, names.1, MOST)?))
    }
}
