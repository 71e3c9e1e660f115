//! Which coordinates of which dimensions each degree of parallelism lies on.
//!
//! Every dimension is cut into factors, each of one degree: of 64 NPUs, `"1[0:8]"` are the inner 8
//! (stride 1) and `"1[8:]"` the outer 8 (stride 8). `map` says the places of a degree. Degrees that
//! it leaves out take what is left, innermost first, in the order tp, cp, op, ep, pp, dp: of each free
//! factor as much as the degree and the factor have in common. So tensor parallelism, which
//! communicates most often, gets the dimensions with the most bandwidth, and data parallelism the
//! rest.

use allrail_core::{DimensionId, FieldError, Rank, counted};

use crate::graph::Part;
use crate::spec::{Axis, Parallelism, Place};

/// Degrees and their places.
#[derive(Clone, Debug)]
pub struct Layout {
    sizes: Vec<u32>,
    /// By `Axis`, in the order of its ranks, innermost first.
    parts: [Vec<Part>; 6],
}

fn wrong(field: &str, value: impl std::fmt::Display, why: &str, hint: &str) -> FieldError {
    FieldError::new(format!("workload.parallelism.{field}"), value, why, hint)
}

/// A factor of a dimension: coordinates that differ by multiples of `from` below `to`.
#[derive(Clone, Copy, Debug)]
struct Factor {
    from: u32,
    to: u32,
    axis: Option<Axis>,
}

impl Layout {
    /// Lays degrees over dimensions of these sizes.
    ///
    /// # Errors
    /// Degrees whose product is not the number of NPUs, places that overlap, do not divide their
    /// dimension or do not have the size of their degree.
    pub fn new(parallelism: &Parallelism, sizes: &[u32]) -> Result<Self, FieldError> {
        let npus: u64 = sizes.iter().map(|size| u64::from(*size)).product();
        let mut factors: Vec<Vec<Factor>> = vec![Vec::new(); sizes.len()];
        let mut parts: [Vec<Part>; 6] = Default::default();
        for (axis, places) in &parallelism.map {
            for place in places {
                let (dimension, from, to) = read(*axis, place, sizes)?;
                factors[dimension as usize].push(Factor { from, to, axis: Some(*axis) });
                parts[*axis as usize].push(Part {
                    dimension: DimensionId(dimension),
                    size: to / from,
                    stride: from,
                });
            }
        }
        let mut free = free(factors, sizes)?;
        let degrees = degrees(parallelism, &parts, npus)?;
        for axis in Axis::ALL {
            if !parts[axis as usize].is_empty() || parallelism.map.contains_key(&axis) {
                continue;
            }
            let mut left = degrees[axis as usize];
            for part in free.iter_mut().filter(|part| part.size > 1) {
                let common = gcd(left, part.size);
                if common > 1 {
                    parts[axis as usize].push(Part { size: common, ..*part });
                    part.size /= common;
                    part.stride *= common;
                    left /= common;
                }
            }
            if left > 1 {
                let degree = degrees[axis as usize];
                let why = "the places that `map` leaves over have no such factor";
                return Err(wrong(axis.tag(), degree, why, "say its places in `map` too"));
            }
        }
        if let Some(left) = free.iter().find(|part| part.size > 1) {
            let why = "NPUs are left over";
            let hint = format!(
                "`{}[{}:{}]` belongs to no degree",
                left.dimension.0,
                left.stride,
                left.stride * left.size
            );
            return Err(wrong("map", said(parallelism), why, &hint));
        }
        Ok(Self { sizes: sizes.to_vec(), parts })
    }

    /// A degree.
    #[must_use]
    pub fn degree(&self, axis: Axis) -> u32 {
        self.parts[axis as usize].iter().map(|part| part.size).product()
    }

    /// The places of a degree, in the order of its ranks.
    #[must_use]
    pub fn parts(&self, axis: Axis) -> &[Part] {
        &self.parts[axis as usize]
    }

    /// The places of several degrees together, neighbouring factors of a dimension as one.
    #[must_use]
    pub fn together(&self, axes: &[Axis]) -> Vec<Part> {
        let mut all: Vec<Part> = axes
            .iter()
            .flat_map(|axis| self.parts(*axis))
            .copied()
            .filter(|p| p.size > 1)
            .collect();
        all.sort_unstable_by_key(|part| (part.dimension, part.stride));
        let mut merged: Vec<Part> = Vec::new();
        for part in all {
            match merged.last_mut() {
                Some(last)
                    if last.dimension == part.dimension
                        && last.stride * last.size == part.stride =>
                {
                    last.size *= part.size;
                }
                _ => merged.push(part),
            }
        }
        merged
    }

    /// The same, apart: so many ranks, the nearest, and those that are as many of them apart. None where the
    /// places have no such factor.
    #[must_use]
    pub fn nearest(&self, axes: &[Axis], ranks: u32) -> Option<(Vec<Part>, Vec<Part>)> {
        let (mut near, mut far) = (Vec::new(), Vec::new());
        let mut left = ranks;
        for part in self.together(axes) {
            let common = gcd(left, part.size);
            left /= common;
            let apart = Part { size: part.size / common, stride: part.stride * common, ..part };
            near.push(Part { size: common, ..part });
            far.push(apart);
        }
        let several = |parts: Vec<Part>| parts.into_iter().filter(|p| p.size > 1).collect();
        (left == 1).then(|| (several(near), several(far)))
    }

    /// The ranks at each position of the pipeline, ascending.
    #[must_use]
    pub fn stages(&self) -> Vec<Vec<Rank>> {
        let npus: u32 = self.sizes.iter().product();
        let mut stages = vec![Vec::new(); self.degree(Axis::Pp) as usize];
        for rank in 0..npus {
            stages[self.position(Axis::Pp, rank) as usize].push(Rank(rank));
        }
        stages
    }

    /// A rank's position among those of a degree.
    #[must_use]
    pub fn position(&self, axis: Axis, rank: u32) -> u32 {
        let (mut position, mut weight) = (0, 1);
        for part in self.parts(axis) {
            let below: u32 = self.sizes[..part.dimension.index()].iter().product();
            let coordinate = rank / below % self.sizes[part.dimension.index()];
            position += coordinate / part.stride % part.size * weight;
            weight *= part.size;
        }
        position
    }

    /// In words, for the notes.
    #[must_use]
    pub fn words(&self) -> String {
        let shown = |axis: &Axis| {
            let places: Vec<String> = self
                .parts(*axis)
                .iter()
                .map(|part| {
                    let name = part.dimension.name();
                    if part.size == self.sizes[part.dimension.index()] {
                        name
                    } else {
                        format!("{name}[{}:{}]", part.stride, part.stride * part.size)
                    }
                })
                .collect();
            format!("{} {} on {}", axis.tag(), self.degree(*axis), places.join(" × "))
        };
        let used: Vec<String> =
            Axis::ALL.iter().filter(|axis| self.degree(**axis) > 1).map(shown).collect();
        if used.is_empty() { "one NPU".to_owned() } else { used.join(", ") }
    }
}

/// The degrees by axis; dp is what remains.
fn degrees(
    parallelism: &Parallelism,
    parts: &[Vec<Part>; 6],
    npus: u64,
) -> Result<[u32; 6], FieldError> {
    let given = [
        Some(parallelism.tp),
        Some(parallelism.cp),
        Some(parallelism.op),
        Some(parallelism.ep),
        Some(parallelism.pp),
        parallelism.dp,
    ];
    let mut degrees = [1; 6];
    let mut product = 1u64;
    for (axis, given) in Axis::ALL.into_iter().zip(given) {
        let placed: u64 = parts[axis as usize].iter().map(|part| u64::from(part.size)).product();
        let mapped = parallelism.map.contains_key(&axis);
        if given == Some(0) {
            return Err(wrong(axis.tag(), 0, "a degree is at least 1", "1 leaves it out"));
        }
        if let Some(degree) = given
            && mapped
            && u64::from(degree) != placed
        {
            let why = format!("its places in `map` hold {placed}");
            let hint = format!("write `{}: {placed}`, or other places", axis.tag());
            return Err(wrong(axis.tag(), degree, &why, &hint));
        }
        if axis == Axis::Dp && given.is_none() && !mapped {
            if !npus.is_multiple_of(product) {
                let why = format!(
                    "the other degrees take {product} a replica",
                    product = counted(product, "NPU")
                );
                let hint =
                    format!("`dp: {}` leaves the last {} unused", npus / product, npus % product);
                return Err(wrong("dp", "what remains", &why, &hint));
            }
            degrees[axis as usize] = u32::try_from(npus / product).unwrap_or(u32::MAX);
        } else {
            degrees[axis as usize] = given.unwrap_or(u32::try_from(placed).unwrap_or(u32::MAX));
        }
        product = product.saturating_mul(u64::from(degrees[axis as usize]));
    }
    if product != npus {
        let why = format!(
            "their product is {product}, and the fabric has {npus}",
            npus = counted(npus, "NPU")
        );
        let hint = "leave `dp` out: it takes what remains";
        return Err(wrong("dp", said_degrees(&degrees), &why, hint));
    }
    Ok(degrees)
}

fn said_degrees(degrees: &[u32; 6]) -> String {
    let used = Axis::ALL.iter().filter(|axis| degrees[**axis as usize] > 1);
    let said: Vec<String> =
        used.map(|axis| format!("{} {}", axis.tag(), degrees[*axis as usize])).collect();
    said.join(" × ")
}

fn said(parallelism: &Parallelism) -> String {
    serde_json::to_string(&parallelism.map).unwrap_or_default()
}

/// (dimension, from, to) of a place.
fn read(axis: Axis, place: &Place, sizes: &[u32]) -> Result<(u32, u32, u32), FieldError> {
    let field = format!("map.{}", axis.tag());
    let fail = |value: &str, why: &str| {
        let hint = "a dimension from 0, or a factor of one: of 64, \"1[0:8]\" is the inner 8 and \
                    \"1[8:]\" the rest";
        wrong(&field, value, why, hint)
    };
    let of = |dimension: u32, value: &str| {
        let size = sizes.get(dimension as usize).copied();
        size.ok_or_else(|| {
            fail(value, &format!("the fabric has the dimensions 0 to {}", sizes.len() - 1))
        })
    };
    let text = match place {
        Place::Dimension(dimension) => {
            let size = of(*dimension, &dimension.to_string())?;
            return Ok((*dimension, 1, size));
        }
        Place::Factor(text) => text.as_str(),
    };
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let Some((dimension, range)) = compact.split_once('[') else {
        let dimension = compact.parse().map_err(|_| fail(text, "it is no place"))?;
        return Ok((dimension, 1, of(dimension, text)?));
    };
    let dimension = dimension.parse().map_err(|_| fail(text, "it starts with no dimension"))?;
    let size = of(dimension, text)?;
    let bounds = range.strip_suffix(']').and_then(|range| range.split_once(':'));
    let (from, to) = bounds.ok_or_else(|| fail(text, "its range is none"))?;
    let number = |part: &str, otherwise: u32| match part {
        "" => Ok(otherwise),
        part => part.parse::<u32>().map_err(|_| fail(text, "its range is none")),
    };
    let (from, to) = (number(from, 0)?.max(1), number(to, size)?);
    if to <= from || !to.is_multiple_of(from) || !size.is_multiple_of(to) {
        let why = format!("it is no factor of a dimension of {size}: each bound divides the next");
        return Err(fail(text, &why));
    }
    Ok((dimension, from, to))
}

/// What the places leave over, innermost first.
fn free(factors: Vec<Vec<Factor>>, sizes: &[u32]) -> Result<Vec<Part>, FieldError> {
    let mut free = Vec::new();
    for ((mut factors, size), dimension) in factors.into_iter().zip(sizes).zip(0u32..) {
        factors.sort_unstable_by_key(|factor| factor.from);
        factors.push(Factor { from: *size, to: *size, axis: None });
        let (mut at, mut before) = (1, None);
        for factor in factors {
            let name = |axis: Option<Axis>| axis.map_or("the end", Axis::tag);
            if factor.from < at {
                let why = format!(
                    "the places of {} and {} overlap on dimension {dimension}",
                    name(before),
                    name(factor.axis)
                );
                let hint = "places partition a dimension, such as \"1[0:8]\" and \"1[8:]\"";
                let value = format!("{dimension}[{}:{}]", factor.from, factor.to);
                return Err(wrong("map", value, &why, hint));
            }
            if !factor.from.is_multiple_of(at) {
                let why = format!(
                    "between the places of {} and {} on dimension {dimension} no factor is left",
                    name(before),
                    name(factor.axis)
                );
                let value = format!("{dimension}[{at}:{}]", factor.from);
                return Err(wrong("map", value, &why, "each bound divides the next"));
            }
            if factor.from > at {
                free.push(Part {
                    dimension: DimensionId(dimension),
                    size: factor.from / at,
                    stride: at,
                });
            }
            (at, before) = (factor.to, factor.axis);
        }
    }
    Ok(free)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
