//! Optimizers: a rule, a schedule of learning rates, clipping, and the whole state for a bit-exact resume.

use super::Network;
use crate::compute::{self, Adapted, Clip, Control, Device, Rule, Tensor};
use crate::{Result, fail_if};
use serde::{Deserialize, Serialize};

/// Learning rates over the steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    #[serde(rename = "schedule")]
    kind: ScheduleKind,
    rate: f64,
    #[serde(default)]
    steps: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tail: Option<Tail>,
}

/// The rate of a schedule from a step on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Tail {
    from: u64,
    rate: f64,
}

/// The shape of a [`Schedule`], without its largest rate η and its number of steps. Example: [`Schedule::at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// The same rate throughout.
    Constant,
    /// Half a cosine down to zero: `η (1 + cos(π s/steps))/2`.
    Cosine,
    /// Linear up over the first twentieth of the steps, then half a cosine down to zero.
    WarmupCosine,
}

impl ScheduleKind {
    /// The schedules by name.
    pub const NAMED: [(&str, ScheduleKind); 3] = [
        ("constant", ScheduleKind::Constant),
        ("cosine", ScheduleKind::Cosine),
        ("warmup", ScheduleKind::WarmupCosine),
    ];
}

impl Schedule {
    /// A schedule of this kind with largest rate `rate` over `steps` steps.
    pub fn new(kind: ScheduleKind, rate: f64, steps: u64) -> Schedule {
        Schedule { kind, rate, steps, tail: None }
    }

    /// The same rates, but for those from step `from` on, which are `rate`: the ones before go down to it rather than to zero.
    ///
    /// ```
    /// use mercer_engine::net::{Schedule, ScheduleKind};
    /// let schedule = Schedule::new(ScheduleKind::Cosine, 0.1, 200).with_tail(100, 0.02);
    /// assert_eq!([schedule.at(0), schedule.at(100), schedule.at(199)], [0.1, 0.02, 0.02]);
    /// assert!((schedule.at(50) - 0.06).abs() < 1e-12);
    /// ```
    pub fn with_tail(self, from: u64, rate: f64) -> Schedule {
        Schedule { tail: Some(Tail { from, rate }), ..self }
    }

    /// The same rate throughout.
    pub fn constant(rate: f64) -> Schedule {
        Schedule::new(ScheduleKind::Constant, rate, 0)
    }

    /// The rate of step `s`, counted from zero.
    ///
    /// ```
    /// use mercer_engine::net::{Schedule, ScheduleKind};
    /// let schedule = Schedule::new(ScheduleKind::WarmupCosine, 0.1, 200);
    /// assert_eq!(schedule.at(9), 0.1);
    /// assert!((schedule.at(105) - 0.05).abs() < 1e-12);
    /// assert_eq!(schedule.at(1000), 0.0);
    /// ```
    pub fn at(&self, s: u64) -> f64 {
        let cosine = |s: u64, steps: u64| {
            let fraction = s.min(steps) as f64 / steps.max(1) as f64;
            0.5 * (1.0 + (std::f64::consts::PI * fraction).cos())
        };
        let Schedule { kind, rate, steps, tail } = *self;
        let warmup = steps.div_ceil(20).max(1);
        let (steps, last) = match tail {
            Some(Tail { from, rate }) if s >= from => return rate,
            Some(Tail { from, rate }) => (from, rate),
            None => (steps, 0.0),
        };
        let down = |share: f64| last + (rate - last) * share;
        match kind {
            ScheduleKind::Constant => rate,
            ScheduleKind::Cosine => down(cosine(s, steps)),
            ScheduleKind::WarmupCosine if s < warmup => rate * (s + 1) as f64 / warmup as f64,
            ScheduleKind::WarmupCosine => down(cosine(s - warmup, steps.saturating_sub(warmup))),
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
/// let mut optimizer = Optimizer::new(Device::Cpu, Rule::ADAM, Schedule::constant(0.05), None, 1)?;
/// for _ in 0..200 {
///     let mut grad = theta.clone();
///     optimizer.step(&mut theta, &mut grad);
/// }
/// assert!(theta.to_host()?[0].abs() < 0.05);
/// # Ok::<(), mercer_engine::Error>(())
/// ```
#[derive(Debug)]
pub struct Optimizer {
    state: OptimizerState,
    /// First and second moments; empty where the rule has none.
    moments: [Tensor; 2],
    norm_squared: Tensor,
    /// The tensors that LARS adapts.
    adapted: Option<Adapted>,
}

/// What an [`Optimizer`] does and how far it is: all of it but the moments.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[doc(hidden)]
pub struct OptimizerState {
    rule: Rule,
    schedule: Schedule,
    /// The bound on the gradient's norm.
    clip: Option<f32>,
    /// Steps done.
    step: u64,
}

impl Optimizer {
    /// For the parameters of `network`; `clip` bounds the norm of the whole gradient.
    pub fn for_network(
        device: Device,
        rule: Rule,
        schedule: Schedule,
        clip: Option<f32>,
        network: &Network,
    ) -> Result<Self> {
        let Rule::Lars { .. } = rule else { return Optimizer::new(device, rule, schedule, clip, network.parameters()) };
        fail_if!(
            network.networks() > 1,
            "LARS trains one network, and there are {}; use adam or sgd",
            network.networks()
        );
        let matrices = network.trained_tensors()?.into_iter().filter(|(.., shape)| shape.len() > 1);
        let adapted = Adapted::new(device, matrices.map(|(_, range, _)| range).collect())?;
        let optimizer = Optimizer::with_moments(device, rule, schedule, clip, network.parameters())?;
        Ok(Optimizer { adapted: Some(adapted), ..optimizer })
    }

    /// For `parameters` numbers, of which no more is known: not for LARS, see [`Optimizer::for_network`]. `clip` bounds the norm of the
    /// whole gradient.
    pub fn new(device: Device, rule: Rule, schedule: Schedule, clip: Option<f32>, parameters: usize) -> Result<Self> {
        fail_if!(matches!(rule, Rule::Lars { .. }), "LARS must know the tensors that it adapts; give it a network");
        Optimizer::with_moments(device, rule, schedule, clip, parameters)
    }

    fn with_moments(
        device: Device,
        rule: Rule,
        schedule: Schedule,
        clip: Option<f32>,
        parameters: usize,
    ) -> Result<Self> {
        let [m, v] = rule.moments().map(|used| Tensor::zeros(device, &[if used { parameters } else { 0 }]));
        let norm_squared = Tensor::zeros(device, &[1])?;
        let state = OptimizerState { rule, schedule, clip, step: 0 };
        Ok(Optimizer { state, moments: [m?, v?], norm_squared, adapted: None })
    }

    /// Adapts the gradient where the rule does.
    fn adapt(&self, theta: &Tensor, grad: &mut Tensor) {
        if let (Rule::Lars { weight_decay, trust, .. }, Some(adapted)) = (self.state.rule, &self.adapted) {
            compute::adapt(adapted, trust, weight_decay, theta, grad);
        }
    }

    /// One step. `theta` and `grad` are flat and of the same length; LARS changes `grad`.
    pub fn step(&mut self, theta: &mut Tensor, grad: &mut Tensor) {
        let OptimizerState { rule, schedule, clip, step } = self.state;
        self.advance(1);
        self.adapt(theta, grad);
        if clip.is_some() {
            compute::sum_squares(grad, &mut self.norm_squared);
        }
        let clip = clip.map(|max_norm| Clip { max_norm, norm_squared: &self.norm_squared });
        let [m, v] = &mut self.moments;
        compute::update(rule, schedule.at(step) as f32, step + 1, clip, theta, grad, m, v);
    }

    /// Gives `control` the learning rates of the next steps; [`Optimizer::end_step`] makes them.
    pub fn start(&self, control: &mut Control) {
        let OptimizerState { rule, schedule, step, .. } = self.state;
        control.start(rule, step, (step..).map(|s| schedule.at(s)));
    }

    /// Ends a step under `control`, which moves `theta` unless something was not finite; LARS changes `grad`. [`Optimizer::advance`] counts it.
    pub fn end_step(&mut self, control: &mut Control, theta: &mut Tensor, grad: &mut Tensor) {
        self.adapt(theta, grad);
        control.end_step(self.state.rule, self.state.clip, theta, grad, &mut self.moments);
    }

    /// Counts steps that were made under a control.
    pub fn advance(&mut self, steps: u64) {
        self.state.step += steps;
    }

    /// Steps done.
    pub fn steps(&self) -> u64 {
        self.state.step
    }

    /// All of it but the moments, for a checkpoint.
    pub fn state(&self) -> OptimizerState {
        self.state
    }

    /// First and second moments; empty where the rule has none.
    pub fn moments(&self) -> &[Tensor; 2] {
        &self.moments
    }

    /// Takes up the state and the moments of another optimizer for as many parameters: it continues with the same bits. The
    /// moments stay where they are in memory.
    pub fn restore(&mut self, state: OptimizerState, moments: [Vec<f32>; 2]) -> Result<()> {
        for (moment, saved) in self.moments.iter_mut().zip(&moments) {
            moment.copy_from_host(saved)?;
        }
        self.state = state;
        Ok(())
    }

    /// Halves all learning rates to come.
    pub fn halve_rate(&mut self) {
        let Schedule { rate, tail, .. } = &mut self.state.schedule;
        *rate /= 2.0;
        if let Some(tail) = tail {
            tail.rate /= 2.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::tests::{host, random};
    use crate::rng::Rng;

    #[test]
    fn schedules_start_and_end_where_they_should() {
        assert_eq!(Schedule::constant(0.3).at(10_000), 0.3);
        let cosine = Schedule::new(ScheduleKind::Cosine, 1.0, 100);
        assert_eq!(cosine.at(0), 1.0);
        assert!((cosine.at(50) - 0.5).abs() < 1e-12 && cosine.at(100).abs() < 1e-12);
        let warm = Schedule::new(ScheduleKind::WarmupCosine, 1.0, 80);
        assert_eq!([warm.at(0), warm.at(1), warm.at(3), warm.at(4)], [0.25, 0.5, 1.0, 1.0]);
        assert!((4..79).all(|s| warm.at(s) >= warm.at(s + 1)));
        let tail = warm.with_tail(60, 0.2);
        assert_eq!([tail.at(0), tail.at(3), tail.at(60), tail.at(79)], [0.25, 1.0, 0.2, 0.2]);
        assert!((tail.at(32) - 0.6).abs() < 1e-12 && (4..60).all(|s| tail.at(s) >= tail.at(s + 1)));
    }

    #[test]
    fn a_resumed_optimizer_continues_with_the_same_bits() {
        for rule in [Rule::ADAM, Rule::RMS_PROP, Rule::Sgd { momentum: 0.9, weight_decay: 0.0 }] {
            let mut rng = Rng::new(2);
            let schedule = Schedule::new(ScheduleKind::WarmupCosine, 0.01, 60);
            let mut random = || random(&[500], &mut rng);
            let mut theta = random();
            let mut optimizer = Optimizer::new(Device::Cpu, rule, schedule, Some(1.0), 500).unwrap();
            (0..7).for_each(|_| optimizer.step(&mut theta, &mut random()));
            let mut resumed = Optimizer::new(Device::Cpu, rule, schedule, None, 500).unwrap();
            let moments = optimizer.moments().each_ref().map(host);
            resumed.restore(optimizer.state(), moments).unwrap();
            let mut other = theta.clone();
            for _ in 0..7 {
                let mut grad = random();
                optimizer.step(&mut theta, &mut grad);
                resumed.step(&mut other, &mut grad);
            }
            assert_eq!(host(&theta), host(&other));
        }
    }

    /// Two steps of LARS on a network, by the formulas of the rule in double precision: matrices and filters are adapted and decay, biases
    /// and the numbers of norms follow plain momentum.
    #[test]
    fn lars_adapts_matrices_and_nothing_else() {
        let net = Network::parse("image(1, 4, 4) conv(2, 3) bn relu gap dense(3)", 16, 1).unwrap();
        let mut rng = Rng::new(4);
        let mut theta = net.init(Device::Cpu, &rng).unwrap().trained;
        let rule = Rule::Lars { momentum: 0.9, weight_decay: 0.01, trust: 0.02 };
        let rates = Schedule::constant(0.5);
        let mut optimizer = Optimizer::for_network(Device::Cpu, rule, rates, None, &net).unwrap();
        let wide = |x: &Tensor| -> Vec<f64> { host(x).iter().map(|v| f64::from(*v)).collect() };
        let (mut want, mut m) = (wide(&theta), vec![0.0; net.parameters()]);
        let shapes = net.trained_tensors().unwrap();
        assert_eq!(
            shapes.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>(),
            ["conv1.weight", "bn1.weight", "bn1.bias", "fc.weight", "fc.bias"]
        );
        for _ in 0..2 {
            let mut grad = random(&[net.parameters()], &mut rng);
            let g = wide(&grad);
            optimizer.step(&mut theta, &mut grad);
            for (_, range, shape) in &shapes {
                let matrix = shape.len() > 1;
                let full: Vec<f64> = range.clone().map(|i| g[i] + if matrix { 0.01 * want[i] } else { 0.0 }).collect();
                let norm = |x: &[f64]| x.iter().map(|v| v * v).sum::<f64>().sqrt();
                let rate = if matrix { 0.02 * norm(&want[range.clone()]) / norm(&full) } else { 1.0 };
                for (i, full) in range.clone().zip(full) {
                    m[i] = 0.9 * m[i] + rate * full;
                    want[i] -= 0.5 * m[i];
                }
            }
        }
        assert!(host(&theta).iter().zip(&want).all(|(x, w)| (f64::from(*x) - w).abs() < 1e-5));
        let two = Network::parse("dense(3) relu dense(1)", 2, 2).unwrap();
        let refused = Optimizer::for_network(Device::Cpu, rule, rates, None, &two).unwrap_err().to_string();
        assert!(refused.contains("one network"), "{refused}");
        assert!(Optimizer::new(Device::Cpu, rule, rates, None, 5).is_err());
    }
}
