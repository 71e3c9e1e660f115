//! Is the bandwidth of a fabric well divided over its dimensions? (Themis §6.3)
//!
//! The baseline keeps two dimensions `K < L` busy alike only if `BW_K = P_K ⋯ P_{L−1} · BW_L`: *just
//! enough*. With more on `L` the baseline leaves it idle (*over-provisioned*: a scheduler can use
//! it). With less, `L` is the bottleneck whatever `K` has (*under-provisioned*: with two
//! dimensions, no schedule fills both).

use serde::Serialize;

use crate::Fabric;

/// Shares that differ by less are just enough.
const TOLERANCE: f64 = 0.01;

/// The advice on a fabric.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The fabric's name.
    pub fabric: String,
    /// Every pair of dimensions.
    pub pairs: Vec<Pair>,
    /// What the baseline makes of it, latencies aside.
    pub baseline: Baseline,
    /// What any schedule can make of it.
    pub reachable: Reachable,
    /// How the same total bandwidth would serve the baseline best.
    pub best_split: Split,
}

/// How a pair of dimensions is provisioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The baseline keeps both busy.
    JustEnough,
    /// The baseline leaves the outer one idle in part; a scheduler can use it.
    OverProvisioned,
    /// The outer one is the bottleneck.
    UnderProvisioned,
}

/// Two dimensions.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// Index of the inner one.
    pub inner: usize,
    /// Index of the outer one.
    pub outer: usize,
    /// Aggregate bandwidth of the inner one.
    pub inner_gbps: f64,
    /// Aggregate bandwidth of the outer one.
    pub outer_gbps: f64,
    /// What the outer one would need to keep up with the inner one.
    pub just_enough_outer_gbps: f64,
    /// The verdict.
    pub verdict: Verdict,
    /// What the outer one has beyond that, zero at least.
    pub idle_gbps: f64,
}

/// The baseline, latencies aside: the bottleneck is busy, the others wait for it.
#[derive(Clone, Debug, Serialize)]
pub struct Baseline {
    /// Index of the dimension that is always busy.
    pub bottleneck: usize,
    /// What each dimension carries on average.
    pub used_gbps: Vec<f64>,
    /// What it could carry beyond that.
    pub idle_gbps: Vec<f64>,
    /// Used over all.
    pub utilisation: f64,
}

/// The best that any mix of orders can do, latencies aside.
#[derive(Clone, Debug, Serialize)]
pub struct Reachable {
    /// Of the whole bandwidth.
    pub utilisation: f64,
    /// Indices of the dimensions that hold the rest back: however chunks are ordered, these
    /// together carry more than their share. Empty if everything can be used.
    pub bound_by: Vec<usize>,
}

/// A division of the same total bandwidth.
#[derive(Clone, Debug, Serialize)]
pub struct Split {
    /// Per dimension.
    pub gbps: Vec<f64>,
    /// What the baseline makes of it.
    pub utilisation_baseline: f64,
}

/// The fraction of a unit buffer that a set of dimensions must carry whatever the order: least
/// where all others come before them, so that the buffer has shrunk.
fn least_load(sizes: &[f64], set: usize) -> f64 {
    let inside: f64 = product(sizes, |d| set >> d & 1 == 1);
    let outside: f64 = product(sizes, |d| set >> d & 1 == 0);
    (1.0 - 1.0 / inside) / outside
}

fn product(sizes: &[f64], keep: impl Fn(usize) -> bool) -> f64 {
    sizes.iter().enumerate().filter(|(d, _)| keep(*d)).map(|(_, size)| size).product()
}

/// Looks at how the bandwidth is divided.
#[must_use]
pub fn advise(fabric: &Fabric) -> Advice {
    let sizes: Vec<f64> = fabric.dimensions.iter().map(|d| f64::from(d.size)).collect();
    let gbps: Vec<f64> = fabric.dimensions.iter().map(|d| d.aggregate().gbps()).collect();
    let total: f64 = gbps.iter().sum();
    let mut pairs = Vec::new();
    for outer in 1..sizes.len() {
        for inner in 0..outer {
            let just_enough = gbps[inner] / product(&sizes, |d| (inner..outer).contains(&d));
            let excess = gbps[outer] / just_enough - 1.0;
            pairs.push(Pair {
                inner,
                outer,
                inner_gbps: gbps[inner],
                outer_gbps: gbps[outer],
                just_enough_outer_gbps: just_enough,
                verdict: if excess.abs() <= TOLERANCE {
                    Verdict::JustEnough
                } else if excess > 0.0 {
                    Verdict::OverProvisioned
                } else {
                    Verdict::UnderProvisioned
                },
                idle_gbps: (gbps[outer] - just_enough).max(0.0),
            });
        }
    }
    // The paper's baseline: a dimension's traffic relative to the first one's is one over the
    // product of the sizes before it (§3, with (P − 1)/P taken as 1).
    let weight: Vec<f64> =
        (0..sizes.len()).map(|d| 1.0 / product(&sizes, |inner| inner < d)).collect();
    let slowness = |d: &usize| weight[*d] / gbps[*d];
    let bottleneck = (0..sizes.len())
        .max_by(|a, b| slowness(a).total_cmp(&slowness(b)).then(b.cmp(a)))
        .unwrap_or(0);
    let used: Vec<f64> = weight.iter().map(|w| w / slowness(&bottleneck)).collect();
    let baseline = Baseline {
        bottleneck,
        idle_gbps: gbps.iter().zip(&used).map(|(all, used)| all - used).collect(),
        utilisation: used.iter().sum::<f64>() / total,
        used_gbps: used,
    };
    // Loads that mixes of orders reach are those in which no set of dimensions gets less than its
    // least (a polymatroid), so the time of the best mix is the largest least load over bandwidth.
    let everything = (1usize << sizes.len()) - 1;
    let time = |set: usize| {
        let bandwidth: f64 = (0..sizes.len()).filter(|d| set >> d & 1 == 1).map(|d| gbps[d]).sum();
        least_load(&sizes, set) / bandwidth
    };
    let worst = (1..=everything)
        .max_by(|a, b| time(*a).total_cmp(&time(*b)).then(a.cmp(b)))
        .unwrap_or(everything);
    let reachable = Reachable {
        utilisation: time(everything) / time(worst),
        bound_by: if worst == everything || time(everything) / time(worst) > 1.0 - 1e-9 {
            Vec::new()
        } else {
            (0..sizes.len()).filter(|d| worst >> d & 1 == 1).collect()
        },
    };
    let all: f64 = weight.iter().sum();
    let best_split =
        Split { gbps: weight.iter().map(|w| total * w / all).collect(), utilisation_baseline: 1.0 };
    Advice { fabric: fabric.name.clone(), pairs, baseline, reachable, best_split }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::tests::switch;

    fn fabric(dimensions: &[(u32, &str)]) -> Fabric {
        Fabric {
            memory_bandwidth: None,
            window: None,
            name: "test".into(),
            dimensions: dimensions.iter().map(|(size, bw)| switch(*size, 1, bw)).collect(),
        }
    }

    /// The paper's §3: 3D-SW_SW_SW_homo leaves 750 and 793.75 Gb/s idle.
    #[test]
    fn the_homogeneous_platform_idles_as_published() {
        let advice = advise(&fabric(&[(16, "800 Gb/s"), (8, "800 Gb/s"), (8, "800 Gb/s")]));
        assert_eq!(advice.baseline.bottleneck, 0);
        assert_eq!(advice.baseline.idle_gbps, [0.0, 750.0, 793.75]);
        assert!((advice.reachable.utilisation - 1.0).abs() < 1e-12);
        assert!(advice.pairs.iter().all(|pair| pair.verdict == Verdict::OverProvisioned));
    }

    /// The paper's "today": all of 1200 and 75 of 100 Gb/s, 97.7 %... of which the rest is idle.
    #[test]
    fn todays_platform_is_nearly_just_enough() {
        let advice = advise(&fabric(&[(16, "1200 Gb/s"), (64, "100 Gb/s")]));
        assert_eq!(advice.baseline.used_gbps, [1200.0, 75.0]);
        assert!((advice.baseline.utilisation - 1275.0 / 1300.0).abs() < 1e-12);
    }

    /// An outer dimension with too little holds every schedule back.
    #[test]
    fn an_under_provisioned_pair_bounds_every_schedule() {
        let advice = advise(&fabric(&[(4, "1000 Gb/s"), (4, "50 Gb/s")]));
        assert_eq!(advice.pairs[0].verdict, Verdict::UnderProvisioned);
        assert_eq!(advice.reachable.bound_by, [1]);
        assert!(advice.reachable.utilisation < 1.0);
    }

    #[test]
    fn the_best_split_is_just_enough() {
        let advice = advise(&fabric(&[(16, "800 Gb/s"), (8, "800 Gb/s"), (8, "800 Gb/s")]));
        let split: Vec<String> = advice
            .best_split
            .gbps
            .iter()
            .map(|gbps| format!("{} Mb/s", (gbps * 1e3).round()))
            .collect();
        let again = advise(&fabric(&[(16, &split[0]), (8, &split[1]), (8, &split[2])]));
        assert!(again.pairs.iter().all(|pair| pair.verdict == Verdict::JustEnough), "{again:?}");
        assert!(again.baseline.utilisation > 0.999);
    }
}
