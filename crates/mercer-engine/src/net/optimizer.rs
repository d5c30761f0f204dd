//! Optimizers: a rule, a schedule of learning rates, clipping, and the whole state for a bit-exact resume.

use crate::compute::{self, Clip, Control, Device, Rule, Tensor};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Learning rates over the steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "schedule")]
pub enum Schedule {
    /// The same rate throughout.
    Constant {
        /// η
        rate: f64,
    },
    /// Half a cosine from the rate down to zero: `η (1 + cos(π s/steps))/2`.
    Cosine {
        /// η
        rate: f64,
        /// Steps until zero.
        steps: u64,
    },
    /// Linear up to the rate, then half a cosine down to zero.
    WarmupCosine {
        /// η
        rate: f64,
        /// Steps up.
        warmup: u64,
        /// Steps in all.
        steps: u64,
    },
}

/// The shape of a schedule, without its rate and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// The same rate throughout.
    Constant,
    /// Half a cosine down to zero.
    Cosine,
    /// Up over the first twentieth of the steps, then half a cosine down to zero.
    WarmupCosine,
}

impl Schedule {
    /// A schedule of this kind with largest rate `rate` over `steps` steps.
    pub fn new(kind: ScheduleKind, rate: f64, steps: u64) -> Schedule {
        match kind {
            ScheduleKind::Constant => Schedule::Constant { rate },
            ScheduleKind::Cosine => Schedule::Cosine { rate, steps },
            ScheduleKind::WarmupCosine => Schedule::WarmupCosine { rate, warmup: steps.div_ceil(20).max(1), steps },
        }
    }

    /// The rate of step `s`, counted from zero.
    ///
    /// ```
    /// use mercer_engine::net::Schedule;
    /// let schedule = Schedule::WarmupCosine { rate: 0.1, warmup: 10, steps: 110 };
    /// assert_eq!(schedule.at(9), 0.1);
    /// assert!((schedule.at(60) - 0.05).abs() < 1e-12);
    /// assert_eq!(schedule.at(1000), 0.0);
    /// ```
    pub fn at(&self, s: u64) -> f64 {
        let cosine = |s: u64, steps: u64| {
            let fraction = s.min(steps) as f64 / steps.max(1) as f64;
            0.5 * (1.0 + (std::f64::consts::PI * fraction).cos())
        };
        match *self {
            Schedule::Constant { rate } => rate,
            Schedule::Cosine { rate, steps } => rate * cosine(s, steps),
            Schedule::WarmupCosine { rate, warmup, .. } if s < warmup => rate * (s + 1) as f64 / warmup as f64,
            Schedule::WarmupCosine { rate, warmup, steps } => rate * cosine(s - warmup, steps.saturating_sub(warmup)),
        }
    }
}

/// Moves parameters along their gradient.
///
/// ```
/// use mercer_engine::compute::{Device, Rule, Tensor};
/// use mercer_engine::net::{Optimizer, Schedule};
///
/// // Minimise θ²/2, whose gradient is θ.
/// let mut theta = Tensor::from_host(Device::Cpu, &[1], &[1.0])?;
/// let mut optimizer = Optimizer::new(Device::Cpu, Rule::ADAM, Schedule::Constant { rate: 0.05 }, None, 1)?;
/// for _ in 0..200 {
///     let grad = theta.clone();
///     optimizer.step(&mut theta, &grad);
/// }
/// assert!(theta.to_host()?[0].abs() < 0.05);
/// # Ok::<(), mercer_engine::Error>(())
/// ```
#[derive(Debug)]
pub struct Optimizer {
    rule: Rule,
    schedule: Schedule,
    clip: Option<f32>,
    step: u64,
    moments: [Tensor; 2],
    norm_squared: Tensor,
}

/// All that an [`Optimizer`] is, on the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizerState {
    /// The rule.
    pub rule: Rule,
    /// The learning rates.
    pub schedule: Schedule,
    /// The bound on the gradient's norm.
    pub clip: Option<f32>,
    /// Steps done.
    pub step: u64,
    /// First and second moments; empty where the rule has none.
    pub moments: [Vec<f32>; 2],
}

impl Optimizer {
    /// For `parameters` numbers; `clip` bounds the norm of the whole gradient.
    pub fn new(device: Device, rule: Rule, schedule: Schedule, clip: Option<f32>, parameters: usize) -> Result<Self> {
        let [m, v] = rule.moments().map(|used| Tensor::zeros(device, &[if used { parameters } else { 0 }]));
        let norm_squared = Tensor::zeros(device, &[1])?;
        Ok(Optimizer { rule, schedule, clip, step: 0, moments: [m?, v?], norm_squared })
    }

    /// One step. `theta` and `grad` are flat and of the same length.
    pub fn step(&mut self, theta: &mut Tensor, grad: &Tensor) {
        let rate = self.learning_rate() as f32;
        self.step += 1;
        if self.clip.is_some() {
            compute::sum_squares(grad, &mut self.norm_squared);
        }
        let clip = self.clip.map(|max_norm| Clip { max_norm, norm_squared: &self.norm_squared });
        let [m, v] = &mut self.moments;
        compute::update(self.rule, rate, self.step, clip, theta, grad, m, v);
    }

    /// Gives `control` the learning rates of the next steps; [`Optimizer::end_step`] makes them.
    pub fn start(&self, control: &mut Control) {
        control.start(self.rule, self.step, (self.step..).map(|s| self.schedule.at(s)));
    }

    /// Ends a step under `control`, which moves `theta` unless something was not finite. [`Optimizer::advance`] counts it.
    pub fn end_step(&mut self, control: &mut Control, theta: &mut Tensor, grad: &Tensor) {
        control.end_step(self.rule, self.clip, theta, grad, &mut self.moments);
    }

    /// Counts steps that were made under a control.
    pub fn advance(&mut self, steps: u64) {
        self.step += steps;
    }

    /// The rate of the next step.
    pub fn learning_rate(&self) -> f64 {
        self.schedule.at(self.step)
    }

    /// Steps done.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// The whole state, for a checkpoint.
    pub fn state(&self) -> Result<OptimizerState> {
        Ok(OptimizerState {
            rule: self.rule,
            schedule: self.schedule,
            clip: self.clip,
            step: self.step,
            moments: [self.moments[0].to_host()?, self.moments[1].to_host()?],
        })
    }

    /// Takes up the state of another optimizer for as many parameters: it continues with the same bits. The moments stay where
    /// they are in memory.
    pub fn restore(&mut self, state: &OptimizerState) -> Result<()> {
        let [saved, here] = [state.moments.each_ref().map(Vec::len), self.moments.each_ref().map(Tensor::len)];
        if saved != here {
            return Err(Error::input(format!(
                "the saved optimizer has moments of {saved:?} numbers, this one {here:?}"
            )));
        }
        for (moment, saved) in self.moments.iter_mut().zip(&state.moments) {
            moment.copy_from_host(saved)?;
        }
        (self.rule, self.schedule, self.clip, self.step) = (state.rule, state.schedule, state.clip, state.step);
        Ok(())
    }

    /// Halves all learning rates to come.
    pub fn halve_rate(&mut self) {
        let (Schedule::Constant { rate } | Schedule::Cosine { rate, .. } | Schedule::WarmupCosine { rate, .. }) =
            &mut self.schedule;
        *rate /= 2.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn schedules_start_and_end_where_they_should() {
        assert_eq!(Schedule::Constant { rate: 0.3 }.at(10_000), 0.3);
        let cosine = Schedule::Cosine { rate: 1.0, steps: 100 };
        assert_eq!(cosine.at(0), 1.0);
        assert!((cosine.at(50) - 0.5).abs() < 1e-12 && cosine.at(100).abs() < 1e-12);
        let warm = Schedule::WarmupCosine { rate: 1.0, warmup: 4, steps: 100 };
        assert_eq!([warm.at(0), warm.at(1), warm.at(3), warm.at(4)], [0.25, 0.5, 1.0, 1.0]);
        assert!((4..99).all(|s| warm.at(s) >= warm.at(s + 1)));
    }

    #[test]
    fn a_resumed_optimizer_continues_with_the_same_bits() {
        for rule in [Rule::ADAM, Rule::RMS_PROP, Rule::Sgd { momentum: 0.9, weight_decay: 0.0 }] {
            let mut rng = Rng::new(2);
            let schedule = Schedule::WarmupCosine { rate: 0.01, warmup: 3, steps: 20 };
            let mut random = || {
                let data: Vec<f32> = (0..500).map(|_| rng.normal() as f32).collect();
                Tensor::from_host(Device::Cpu, &[500], &data).unwrap()
            };
            let mut theta = random();
            let mut optimizer = Optimizer::new(Device::Cpu, rule, schedule, Some(1.0), 500).unwrap();
            (0..7).for_each(|_| optimizer.step(&mut theta, &random()));
            let mut resumed = Optimizer::new(Device::Cpu, rule, schedule, None, 500).unwrap();
            resumed.restore(&optimizer.state().unwrap()).unwrap();
            let mut other = theta.clone();
            for _ in 0..7 {
                let grad = random();
                optimizer.step(&mut theta, &grad);
                resumed.step(&mut other, &grad);
            }
            assert_eq!(theta.to_host().unwrap(), other.to_host().unwrap());
        }
    }
}
