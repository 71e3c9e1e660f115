//! The plain version of [`solver`](super::solver): all rates from nothing, one full resource at a time.

use super::solver::Entry;

/// The max-min fair rate of every flow. Each uses one resource at least.
#[must_use]
pub fn rates(capacities: &[f64], flows: &[Vec<Entry>]) -> Vec<f64> {
    let mut rates = vec![None; flows.len()];
    loop {
        let full_at = |resource: usize| {
            let (mut left, mut rising) = (capacities[resource], 0.0);
            for (flow, rate) in flows.iter().zip(&rates) {
                for &(used, weight) in flow {
                    if used as usize == resource {
                        match rate {
                            Some(rate) => left -= weight * rate,
                            None => rising += weight,
                        }
                    }
                }
            }
            if rising > 0.0 { left / rising } else { f64::INFINITY }
        };
        let levels: Vec<f64> = (0..capacities.len()).map(full_at).collect();
        let Some(fullest) = (0..levels.len()).min_by(|&a, &b| levels[a].total_cmp(&levels[b]))
        else {
            break;
        };
        if levels[fullest].is_infinite() {
            break;
        }
        for (flow, rate) in flows.iter().zip(&mut rates) {
            if rate.is_none() && flow.iter().any(|&(used, _)| used as usize == fullest) {
                *rate = Some(levels[fullest]);
            }
        }
    }
    rates.into_iter().map(|rate| rate.expect("every flow uses a resource")).collect()
}
