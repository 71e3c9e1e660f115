//! The best splitting: shares of paths that load the most loaded link least, with a proof.
//!
//! Given links of capacity `c`, commodities of demand `d` and the paths that each may take, find
//! shares that minimise the greatest `u = load / c`. Prices `y >= 0` on links prove a lower bound: a
//! commodity pays at least its cheapest path, and all together pay at most `max u` times `Σ c y`, so
//!
//! ```text
//! max u  >=  Σ d · (price of the cheapest path) / Σ c y
//! ```
//!
//! Prices follow loads, `y = exp(β u / max u) / c`: the gradient of a smooth stand-in for the
//! maximum, the closer the larger β is. Round after round, each commodity's cheapest path under these
//! prices joins its list of columns, and share is moved from its dearer columns to its cheapest by a
//! Newton step of that stand-in (gradient projection, as in road traffic assignment). Every
//! [`LEAP_EVERY`] rounds a leap follows: on in the direction of all moves since the last one, as far
//! as that helps; chains of links that are all full give way slowly without. β rises while the
//! stand-in is too smooth, and falls while shares have not settled. It stops at a gap of [`GAP`], or
//! after [`ROUNDS`] or [`WORK`]: the gap that is left is in the answer.
//!
//! A first column need not be a path: any splitting will do, such as ECMP's.

/// Relative gap between what is reached and what is proved, at which it stops.
pub(super) const GAP: f64 = 0.01;
/// Rounds at most.
const ROUNDS: usize = 2_000;
/// Entries of columns looked at, at most: seconds on large networks.
const WORK: usize = 500_000_000;
/// No link's load moves by more than this much of the exponent in one step.
const STEP: f64 = 1.0;
/// Rounds from one leap to the next.
const LEAP_EVERY: usize = 8;
/// No leap is longer than so many times what was moved since the last.
const LEAP: f64 = 100.0;

/// A path, or a splitting over several: how much of a message crosses each link.
#[derive(Clone, Debug, Default)]
pub(super) struct Column {
    pub(super) entries: Vec<(u32, f64)>,
    /// How much of the commodity takes it.
    pub(super) share: f64,
    /// The share at the last leap.
    pub(super) before: f64,
    /// Of its longest path, in picoseconds.
    pub(super) latency: u64,
}

/// Messages that have the same paths.
#[derive(Clone, Debug)]
pub(super) struct Commodity {
    pub(super) demand: f64,
    pub(super) columns: Vec<Column>,
}

/// Knows the paths of commodities.
pub(super) trait Oracle {
    /// Called at the start of every round with its prices.
    fn prices(&mut self, _prices: &[f64]) {}

    /// The cheapest path of a commodity under the prices of the round: appends its links, returns
    /// its price and its latency.
    fn cheapest(&mut self, commodity: usize, prices: &[f64], path: &mut Vec<u32>) -> (f64, u64);
}

struct State<'a> {
    capacities: &'a [f64],
    loads: Vec<f64>,
    prices: Vec<f64>,
    /// β over the greatest load.
    steepness: f64,
    greatest: f64,
    moved: Vec<f64>,
}

impl State<'_> {
    fn price(&self, link: usize) -> f64 {
        let over = self.loads[link] / self.capacities[link] - self.greatest;
        (self.steepness * over).exp() / self.capacities[link]
    }

    fn cost(&self, column: &Column) -> f64 {
        column.entries.iter().map(|&(link, weight)| weight * self.prices[link as usize]).sum()
    }

    /// Goes on in the direction of all moves since the last leap.
    fn leap(&mut self, commodities: &mut [Commodity]) {
        let mut direction = vec![0.0; self.loads.len()];
        let mut most = f64::INFINITY;
        for commodity in &*commodities {
            for column in &commodity.columns {
                let by = column.share - column.before;
                if by < 0.0 {
                    most = most.min(column.share / -by);
                }
                if by != 0.0 {
                    for &(link, weight) in &column.entries {
                        direction[link as usize] += commodity.demand * by * weight;
                    }
                }
            }
        }
        let slope = |length: f64| -> f64 {
            let mut slope = 0.0;
            let links = direction.iter().zip(&self.loads).zip(self.capacities);
            for ((by, load), capacity) in links.filter(|((by, _), _)| **by != 0.0) {
                let over = (load + length * by) / capacity - self.greatest;
                slope += by / capacity * (self.steepness * over).exp();
            }
            slope
        };
        let (mut low, mut high) = (0.0, most.min(LEAP));
        if slope(high) <= 0.0 {
            low = high;
        }
        for _ in 0..12 {
            let middle = 0.5 * (low + high);
            *(if slope(middle) > 0.0 { &mut high } else { &mut low }) = middle;
        }
        for commodity in commodities {
            let columns = &mut commodity.columns;
            for column in &mut *columns {
                column.share = (column.share + low * (column.share - column.before)).max(0.0);
            }
            columns.retain(|column| column.share > 0.0);
            let all: f64 = columns.iter().map(|column| column.share).sum();
            for column in columns {
                column.share /= all;
                column.before = column.share;
            }
        }
    }

    /// Moves share from one column to a cheaper one.
    fn shift(&mut self, commodity: &mut Commodity, from: usize, to: usize, gain: f64) {
        let columns = &commodity.columns;
        for (sign, column) in [(1.0, to), (-1.0, from)] {
            for &(link, weight) in &columns[column].entries {
                self.moved[link as usize] += sign * weight;
            }
        }
        let (mut curvature, mut steepest) = (0.0, 0.0f64);
        for column in [from, to] {
            for &(link, _) in &columns[column].entries {
                let link = link as usize;
                let per_capacity = self.moved[link] / self.capacities[link];
                // A link of both columns counts twice; the step is only shorter.
                curvature += per_capacity * self.moved[link] * self.prices[link];
                steepest = steepest.max(per_capacity.abs());
            }
        }
        let most = commodity.demand * columns[from].share;
        let newton = gain / (self.steepness * curvature);
        let step = most.min(newton).min(STEP / (self.steepness * steepest));
        let step = if step.is_finite() { step } else { most };
        for column in [from, to] {
            for &(link, _) in &columns[column].entries {
                let link = link as usize;
                if self.moved[link] != 0.0 {
                    self.loads[link] += step * self.moved[link];
                    self.moved[link] = 0.0;
                    self.prices[link] = self.price(link);
                }
            }
        }
        let share = if step == most { columns[from].share } else { step / commodity.demand };
        commodity.columns[from].share -= share;
        commodity.columns[to].share += share;
    }
}

/// Balances. Every commodity comes with one column at least, shares adding up to 1; those that are
/// left at the end are in use. It also stops where no link is loaded beyond `floor`. Returns the bound.
pub(super) fn balance(
    capacities: &[f64],
    floor: f64,
    commodities: &mut [Commodity],
    oracle: &mut dyn Oracle,
) -> f64 {
    let mut state = State {
        capacities,
        loads: vec![0.0; capacities.len()],
        prices: vec![0.0; capacities.len()],
        steepness: 0.0,
        greatest: 0.0,
        moved: vec![0.0; capacities.len()],
    };
    // It may stop within the gap, and yet above where it began.
    let first = commodities.to_vec();
    let mut of_first = None;
    let mut beta = 20.0;
    let (mut bound, mut path, mut work) = (0.0f64, Vec::new(), 0);
    for round in 0.. {
        state.loads.fill(0.0);
        for commodity in &*commodities {
            for column in &commodity.columns {
                work += column.entries.len();
                for &(link, weight) in &column.entries {
                    state.loads[link as usize] += commodity.demand * column.share * weight;
                }
            }
        }
        let loads = state.loads.iter().zip(capacities).map(|(load, capacity)| load / capacity);
        state.greatest = loads.fold(0.0, f64::max);
        let began = *of_first.get_or_insert(state.greatest);
        let aim = floor.max(bound * (1.0 + GAP)) * (1.0 + 1e-12);
        if state.greatest <= aim || round == ROUNDS || work > WORK {
            if state.greatest > began {
                commodities.clone_from_slice(&first);
                state.greatest = began;
            }
            break;
        }
        state.steepness = beta / state.greatest;
        for link in 0..capacities.len() {
            state.prices[link] = state.price(link);
        }
        let start = state.prices.clone();
        oracle.prices(&start);
        let all: f64 = start.iter().zip(capacities).map(|(price, capacity)| price * capacity).sum();
        let mean: f64 = start.iter().zip(&state.loads).map(|(price, load)| price * load).sum();
        let mut paid = 0.0;
        for (number, commodity) in commodities.iter_mut().enumerate() {
            path.clear();
            let (cost, latency) = oracle.cheapest(number, &start, &mut path);
            paid += commodity.demand * cost;
            join(&mut commodity.columns, &mut path, latency);
            settle(&mut state, commodity);
        }
        // Too smooth, or not settled yet?
        let (least, mean) = (paid / all, mean / all);
        beta *= if 2.0 * (state.greatest - mean) > mean - least { 1.01 } else { 0.995 };
        bound = bound.max(least);
        if (round + 1) % LEAP_EVERY == 0 {
            state.leap(commodities);
        }
    }
    bound.min(state.greatest)
}

/// Adds a path to the columns unless it is there.
fn join(columns: &mut Vec<Column>, path: &mut [u32], latency: u64) {
    path.sort_unstable();
    let mut entries: Vec<(u32, f64)> = Vec::with_capacity(path.len());
    for &link in &*path {
        match entries.last_mut() {
            Some((last, weight)) if *last == link => *weight += 1.0,
            _ => entries.push((link, 1.0)),
        }
    }
    if columns.iter().all(|column| column.entries != entries) {
        columns.push(Column { entries, share: 0.0, before: 0.0, latency });
    }
}

/// Moves share to the cheapest column of a commodity, and drops those that have none left.
fn settle(state: &mut State<'_>, commodity: &mut Commodity) {
    let mut cheapest = (f64::INFINITY, 0);
    for (number, column) in commodity.columns.iter().enumerate() {
        let cost = state.cost(column);
        if cost < cheapest.0 {
            cheapest = (cost, number);
        }
    }
    let to = cheapest.1;
    for from in 0..commodity.columns.len() {
        if from != to && commodity.columns[from].share > 0.0 {
            let gain = state.cost(&commodity.columns[from]) - state.cost(&commodity.columns[to]);
            if gain > 0.0 {
                state.shift(commodity, from, to, gain);
            }
        }
    }
}
