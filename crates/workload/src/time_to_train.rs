//! How long training takes as a whole, what it costs and how much energy it takes.
//!
//! ```text
//! steps  = ⌈samples / samples of a step / e⌉ = ⌈tokens / tokens of a step / e⌉
//! time   = steps · time of a steady step
//! cost   = price of an NPU for an hour · NPUs · time
//! energy = power of an NPU · NPUs · time
//! ```
//!
//! e is the statistical efficiency, 1 unless it is given: the progress that a sample makes, over what it makes where
//! updates are not stale (Qiao et al., "Pollux", OSDI'21, §2). NPUs are those that the job uses. Ignored: the first step, which waits for nothing, and all that is no
//! step: loading, evaluation, checkpoints, failures and what is computed again after them.

use allrail_core::FieldError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::throughput::StepWork;

/// How much is trained, and what an NPU takes meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Target {
    /// Samples that training goes through, all epochs together. One of `samples`, `tokens` and `steps`.
    #[schemars(range(min = 1))]
    pub samples: Option<u64>,
    /// Tokens that training goes through, where samples have tokens.
    #[schemars(range(min = 1))]
    pub tokens: Option<u64>,
    /// Number of iterations.
    #[schemars(range(min = 1))]
    pub steps: Option<u64>,
    /// Progress of a sample over what it makes without stale gradients or other shortcuts, above 0: `0.8` takes
    /// a quarter more of them. 1 if left out, and results say that it is not modelled.
    #[schemars(extend("exclusiveMinimum" = 0))]
    #[schemars(example = 0.8)]
    pub statistical_efficiency: Option<f64>,
    /// Price of an NPU for an hour, in any currency; the cost is in the same.
    #[schemars(extend("minimum" = 0))]
    #[schemars(example = 2.5)]
    pub price_per_npu_hour: Option<f64>,
    /// Power that an NPU draws while it trains, W; with its part of host, network and cooling if these count.
    #[schemars(extend("minimum" = 0))]
    #[schemars(example = 700)]
    pub watts_per_npu: Option<f64>,
}

/// What training takes as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TimeToTrain {
    /// Number of iterations.
    pub steps: u64,
    /// Samples that these go through, where a step's are known: the last step counts whole.
    pub samples: Option<u64>,
    /// Tokens that these go through, where samples have tokens.
    pub tokens: Option<u64>,
    /// In seconds.
    pub time_s: f64,
    /// Number of NPUs times hours.
    pub npu_hours: f64,
    /// In the currency of the price.
    pub cost: Option<f64>,
    /// In kilowatt-hours.
    pub energy_kwh: Option<f64>,
}

impl Target {
    /// How many steps reach it.
    ///
    /// # Errors
    /// It says nothing to reach, or several things; or what a workload does not count.
    pub fn steps(&self, work: Option<&StepWork>) -> Result<u64, FieldError> {
        let asked = [("samples", self.samples), ("tokens", self.tokens), ("steps", self.steps)];
        let mut asked = asked.into_iter().filter_map(|(name, count)| Some((name, count?)));
        let (Some((name, count)), None) = (asked.next(), asked.next()) else {
            return Err(FieldError::new(
                "workload.target",
                if self.samples.or(self.tokens).or(self.steps).is_some() {
                    "several"
                } else {
                    "{}"
                },
                "it says how much is trained in one way",
                "give one of `samples`, `tokens` and `steps`",
            ));
        };
        for (name, amount) in
            [("price_per_npu_hour", self.price_per_npu_hour), ("watts_per_npu", self.watts_per_npu)]
        {
            if let Some(amount) = amount.filter(|amount| !(amount.is_finite() && *amount >= 0.0)) {
                return Err(FieldError::new(
                    format!("workload.target.{name}"),
                    amount,
                    "it is not a finite number of 0 or more",
                    "for example `2.5`, or leave it out",
                ));
            }
        }
        if let Some(part) = self.statistical_efficiency.filter(|e| !(*e > 1e-6 && *e <= 1e6)) {
            return Err(FieldError::new(
                "workload.target.statistical_efficiency",
                part,
                "it is not between 0.000001 and 1,000,000",
                "for example `0.8`, or leave it out",
            ));
        }
        let field = format!("workload.target.{name}");
        if count == 0 {
            return Err(FieldError::new(field, 0, "nothing is trained", "give 1 or more"));
        }
        let each = match name {
            "steps" => return Ok(self.with_efficiency(count)),
            "samples" => work.map(|work| work.samples),
            _ => work.and_then(|work| work.samples.checked_mul(work.tokens?)),
        };
        let each = each.filter(|each| *each > 0).ok_or_else(|| {
            let known = if work.is_some() { "`samples` or `steps`" } else { "`steps`" };
            let why = format!("the workload does not say how many {name} a step has");
            FieldError::new(field, count, why, format!("give {known} instead"))
        })?;
        Ok(self.with_efficiency(count).div_ceil(each))
    }

    /// So many steps, samples or tokens, and as many more as their progress is less.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a count")]
    #[expect(clippy::cast_sign_loss, reason = "it is positive")]
    fn with_efficiency(&self, count: u64) -> u64 {
        match self.statistical_efficiency {
            None => count,
            // What is a whole number but for rounding is one.
            Some(part) => (count as f64 / part * (1.0 - 1e-12)).ceil() as u64,
        }
    }
}

impl TimeToTrain {
    /// So many steps of so many seconds on so many NPUs.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts")]
    pub fn new(
        target: &Target,
        steps: u64,
        work: Option<&StepWork>,
        step_s: f64,
        npus: u64,
    ) -> Self {
        let samples = work.map(|work| steps.saturating_mul(work.samples));
        let tokens = work.and_then(|work| Some(samples?.saturating_mul(work.tokens?)));
        let time_s = steps as f64 * step_s;
        let npu_hours = npus as f64 * time_s / 3600.0;
        Self {
            steps,
            samples,
            tokens,
            time_s,
            npu_hours,
            cost: target.price_per_npu_hour.map(|price| price * npu_hours),
            energy_kwh: target.watts_per_npu.map(|watts| watts / 1e3 * npu_hours),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: StepWork =
        StepWork { samples: 100, tokens: Some(10), flops: None, recomputed: 0.0, peak: None };

    /// 2,501 tokens in steps of 1,000 are three steps, of 20 minutes on 8 NPUs: an hour, 8 NPU hours.
    #[test]
    fn a_part_of_a_step_is_a_step() {
        let target = Target {
            tokens: Some(2501),
            price_per_npu_hour: Some(2.5),
            watts_per_npu: Some(700.0),
            ..Target::default()
        };
        let steps = target.steps(Some(&STEP)).expect("steps");
        assert_eq!(steps, 3);
        let found = TimeToTrain::new(&target, steps, Some(&STEP), 1200.0, 8);
        assert_eq!((found.time_s, found.npu_hours), (3600.0, 8.0));
        assert_eq!((found.cost, found.energy_kwh), (Some(20.0), Some(5.6)));
        assert_eq!((found.samples, found.tokens), (Some(300), Some(3000)));
        let samples = Target { samples: Some(300), ..Target::default() };
        assert_eq!(samples.steps(Some(&STEP)), Ok(3));
        // 300 / 0.75 are 400 samples, in steps of 100.
        let stale = Target { statistical_efficiency: Some(0.75), ..samples };
        assert_eq!(stale.steps(Some(&STEP)), Ok(4));
        let whole = Target { statistical_efficiency: Some(1.0), ..samples };
        assert_eq!(whole.steps(Some(&STEP)), Ok(3));
    }

    #[test]
    fn what_a_workload_does_not_count_is_no_target() {
        let refused = |target: Target, work: Option<&StepWork>| {
            let error = target.steps(work).expect_err("it is refused");
            (error.field, error.hint)
        };
        let [tokens, samples] = [
            Target { tokens: Some(1), ..Target::default() },
            Target { samples: Some(1), ..Target::default() },
        ];
        let images = StepWork { tokens: None, ..STEP };
        let (field, hint) = refused(tokens, Some(&images));
        assert_eq!(field, "workload.target.tokens");
        assert_eq!(hint, "give `samples` or `steps` instead");
        assert_eq!(refused(samples, None).1, "give `steps` instead");
        assert_eq!(Target { steps: Some(7), ..Target::default() }.steps(None), Ok(7));
        assert_eq!(refused(Target::default(), None).0, "workload.target");
        let both = Target { steps: Some(1), ..samples };
        assert_eq!(refused(both, Some(&STEP)).0, "workload.target");
        let nothing = Target { steps: Some(0), ..Target::default() };
        assert_eq!(refused(nothing, None).0, "workload.target.steps");
        let endless = Target { watts_per_npu: Some(f64::INFINITY), ..samples };
        assert_eq!(refused(endless, Some(&STEP)).0, "workload.target.watts_per_npu");
        for none in [0.0, -1.0, f64::NAN] {
            let target = Target { statistical_efficiency: Some(none), ..samples };
            let field = "workload.target.statistical_efficiency";
            assert_eq!(refused(target, Some(&STEP)).0, field);
        }
    }
}
