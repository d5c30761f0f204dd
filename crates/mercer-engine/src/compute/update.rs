//! Optimizer steps, each one fused pass over the flat parameter buffer.

use super::cuda::primitives as cuda;
use super::parallel::{CHUNK, for_each};
use super::tensor::{Tensor, on_gpu};
use crate::simd::{Lane, Num, vectorized};
use serde::{Deserialize, Serialize};

/// The update rule of an optimizer. `m` and `v` are the two moment buffers, `t` counts steps from one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "rule")]
pub enum Rule {
    /// `m ← μ m + g + λ θ; θ ← θ − η m`
    Sgd {
        /// μ; zero for plain gradient descent.
        momentum: f32,
        /// λ, added to the gradient as in PyTorch's SGD.
        #[serde(default)]
        weight_decay: f32,
    },
    /// `v ← ρ v + (1 − ρ) g²; θ ← θ − η g / (√v + ε)`
    RmsProp {
        /// ρ
        decay: f32,
        /// ε
        epsilon: f32,
    },
    /// LARS: `g ← η ‖θ‖/‖g + λθ‖ (g + λθ)` for every matrix and every convolution by itself ([`super::adapt`]), then
    /// `m ← μ m + g; θ ← θ − rate·m`. Biases and the numbers of norms have neither decay nor a rate of their own.
    Lars {
        /// μ
        momentum: f32,
        /// λ
        weight_decay: f32,
        /// η
        trust: f32,
    },
    /// `m ← β₁ m + (1 − β₁) g; v ← β₂ v + (1 − β₂) g²;`
    /// `θ ← θ − η (m/(1 − β₁ᵗ)) / (√(v/(1 − β₂ᵗ)) + ε) − η λ θ`
    Adam {
        /// β₁
        beta1: f32,
        /// β₂
        beta2: f32,
        /// ε
        epsilon: f32,
        /// λ, decoupled from the gradient: zero is Adam, positive is AdamW.
        weight_decay: f32,
    },
}

impl Rule {
    /// Adam with the constants of its paper.
    pub const ADAM: Rule = Rule::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 };

    /// RMSProp with its usual constants.
    pub const RMS_PROP: Rule = Rule::RmsProp { decay: 0.99, epsilon: 1e-8 };

    /// LARS with the constants of self-supervised training: its rate is some hundred times that of SGD.
    pub const LARS: Rule = Rule::Lars { momentum: 0.9, weight_decay: 1e-6, trust: 1e-3 };

    /// The optimizers by name, with their usual constants.
    pub const NAMED: [(&str, Rule); 5] = [
        ("adam", Rule::ADAM),
        ("adamw", Rule::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01 }),
        ("lars", Rule::LARS),
        ("rmsprop", Rule::RMS_PROP),
        ("sgd", Rule::Sgd { momentum: 0.9, weight_decay: 0.0 }),
    ];

    /// The same with another weight decay λ; `None` for a rule that has none.
    pub fn with_weight_decay(self, weight_decay: f32) -> Option<Rule> {
        match self {
            Rule::Sgd { momentum, .. } => Some(Rule::Sgd { momentum, weight_decay }),
            Rule::Lars { momentum, trust, .. } => Some(Rule::Lars { momentum, weight_decay, trust }),
            Rule::Adam { beta1, beta2, epsilon, .. } => Some(Rule::Adam { beta1, beta2, epsilon, weight_decay }),
            Rule::RmsProp { .. } => None,
        }
    }

    /// How parameters move along a gradient that is adapted already: SGD for LARS, else the rule itself.
    pub(super) fn once_adapted(self) -> Rule {
        match self {
            Rule::Lars { momentum, .. } => Rule::Sgd { momentum, weight_decay: 0.0 },
            rule => rule,
        }
    }

    /// Whether the rule uses `m`, and whether it uses `v`.
    pub fn moments(self) -> [bool; 2] {
        match self {
            Rule::Sgd { .. } | Rule::Lars { .. } => [true, false],
            Rule::RmsProp { .. } => [false, true],
            Rule::Adam { .. } => [true, true],
        }
    }
}

/// Scales the gradient so that its norm over all parameters is at most `max_norm`.
#[derive(Clone, Copy, Debug)]
pub struct Clip<'a> {
    /// The largest norm allowed.
    pub max_norm: f32,
    /// `[1]`: the gradient's squared norm, from [`super::sum_squares`].
    pub norm_squared: &'a Tensor,
}

/// Step `t` (counted from one) of `rule` at learning rate `eta`; of LARS that part which follows [`super::adapt`]. All tensors have the same length; a moment that the rule
/// does not use may be empty ([`Rule::moments`]).
#[allow(clippy::too_many_arguments)]
pub fn update(
    rule: Rule,
    eta: f32,
    t: u64,
    clip: Option<Clip<'_>>,
    theta: &mut Tensor,
    grad: &Tensor,
    m: &mut Tensor,
    v: &mut Tensor,
) {
    let (len, rule) = (theta.len(), rule.once_adapted());
    check_lengths(rule, theta, grad, [m, v]);
    on_gpu!(theta, |gpu| {
        let Some(mut scalars) = cuda::scratch(gpu, 12) else { return };
        scalars.write(0, &cuda::scalars(rule, eta, t));
        let (bound, norm) = (clip.map(|c| c.max_norm), clip.map_or(0, |c| c.norm_squared.address()));
        cuda::update_at(gpu, rule, scalars.pointer(), bound, norm, theta, grad, m, v)
    });
    let factor = clip.map_or(1.0, |clip| {
        let norm = clip.norm_squared.host()[0].sqrt();
        if norm > clip.max_norm { clip.max_norm / norm } else { 1.0 }
    });
    // The chunk of an unused moment is empty.
    let mut moments = [m, v].map(|moment| moment.host_mut().chunks_mut(CHUNK));
    let parameters = theta.host_mut().chunks_mut(CHUNK).zip(grad.host().chunks(CHUNK));
    let tasks = parameters.map(|(theta, g)| (theta, g, moments.each_mut().map(|m| m.next().unwrap_or_default())));
    for_each(tasks, 16 * len, |(theta, g, [m, v])| step(rule, eta, t, factor, theta, g, m, v));
}

/// Panics unless there is a gradient, and a number of each moment that the rule uses, for each parameter.
pub(super) fn check_lengths(rule: Rule, theta: &Tensor, grad: &Tensor, moments: [&Tensor; 2]) {
    let len = theta.len();
    assert!(grad.len() == len, "update of {len} parameters with {} gradients", grad.len());
    for (moment, used) in moments.iter().zip(rule.moments()) {
        assert!(!used || moment.len() == len, "update of {len} parameters with {} moments", moment.len());
    }
}

vectorized! {
    /// One step on some of the parameters, with the gradient times `factor`.
    #[allow(clippy::too_many_arguments)]
    fn step<FMA, 'a>(
        rule: Rule,
        eta: f32,
        t: u64,
        factor: f32,
        theta: &'a mut [f32],
        g: &'a [f32],
        m: &'a mut [f32],
        v: &'a mut [f32],
    ) {
        match rule {
            Rule::Sgd { momentum, weight_decay } => {
                for ((theta, m), g) in theta.iter_mut().zip(m).zip(g) {
                    *m = momentum * *m + factor * g + weight_decay * *theta;
                    *theta -= eta * *m;
                }
            }
            Rule::Lars { .. } => unreachable!("the gradient is adapted"),
            Rule::RmsProp { decay, epsilon } => {
                for ((theta, v), g) in theta.iter_mut().zip(v).zip(g) {
                    let g = factor * g;
                    *v = decay * *v + (1.0 - decay) * g * g;
                    *theta -= eta * g / (v.sqrt() + epsilon);
                }
            }
            Rule::Adam { beta1, beta2, epsilon, weight_decay } => {
                let of = Lane::<f32, FMA>;
                let bias = |beta: f32| 1.0 - f64::from(beta).powf(t as f64);
                let (rate, root) = (of((f64::from(eta) / bias(beta1)) as f32), of((1.0 / bias(beta2)) as f32));
                let keep = of(1.0 - eta * weight_decay);
                let (new1, new2) = (of(1.0 - beta1), of(1.0 - beta2));
                for (((theta, m), v), g) in theta.iter_mut().zip(m).zip(v).zip(g) {
                    let g = of(factor * g);
                    let m1 = of(*m).mul_add(of(beta1), new1 * g);
                    let v1 = of(*v).mul_add(of(beta2), new2 * g * g);
                    let step = rate * m1 / ((v1 * root).sqrt() + of(epsilon));
                    (*m, *v) = (m1.0, v1.0);
                    *theta = of(*theta).mul_add(keep, -step).0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Device, sum_squares};
    use super::*;
    use crate::rng::Rng;

    /// The textbook recursion in double precision, ten steps with fresh gradients, with and without clipping.
    fn check(rule: Rule, oracle: impl Fn(f64, u64, &mut [f64; 3], f64)) {
        let (n, eta) = (40_000, 0.01);
        for max_norm in [None, Some(5.0f32)] {
            let mut rng = Rng::new(5);
            let theta0: Vec<f32> = (0..n).map(|_| rng.normal() as f32).collect();
            let mut theta = Tensor::from_host(Device::Cpu, &[n], &theta0).unwrap();
            let [mut m, mut v] =
                rule.moments().map(|used| Tensor::zeros(Device::Cpu, &[if used { n } else { 0 }]).unwrap());
            let mut norm = Tensor::zeros(Device::Cpu, &[1]).unwrap();
            let mut states: Vec<[f64; 3]> = theta0.iter().map(|&x| [f64::from(x), 0.0, 0.0]).collect();
            for t in 1..=10 {
                let g: Vec<f32> = (0..n).map(|_| rng.normal() as f32).collect();
                let grad = Tensor::from_host(Device::Cpu, &[n], &g).unwrap();
                sum_squares(&grad, &mut norm);
                let clip = max_norm.map(|max_norm| Clip { max_norm, norm_squared: &norm });
                update(rule, eta, t, clip, &mut theta, &grad, &mut m, &mut v);
                let length = g.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
                let factor = max_norm.map_or(1.0, |max| (f64::from(max) / length).min(1.0));
                for (state, &g) in states.iter_mut().zip(&g) {
                    oracle(f64::from(eta), t, state, factor * f64::from(g));
                }
            }
            for (x, state) in theta.host().iter().zip(&states) {
                assert!((f64::from(*x) - state[0]).abs() < 3e-6, "{rule:?}: {x} {}", state[0]);
            }
        }
    }

    #[test]
    fn rules_are_their_textbook_recursions() {
        check(Rule::RmsProp { decay: 0.99, epsilon: 1e-8 }, |eta, _, [x, _, v], g| {
            *v = 0.99 * *v + 0.01 * g * g;
            *x -= eta * g / (v.sqrt() + 1e-8);
        });
        for lambda in [0.0f32, 0.1] {
            check(Rule::Sgd { momentum: 0.9, weight_decay: lambda }, move |eta, _, [x, m, _], g| {
                *m = 0.9 * *m + g + f64::from(lambda) * *x;
                *x -= eta * *m;
            });
            let adam = Rule::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: lambda };
            check(adam, move |eta, t, [x, m, v], g| {
                *m = 0.9 * *m + 0.1 * g;
                *v = 0.999 * *v + 0.001 * g * g;
                let (m, v) = (*m / (1.0 - 0.9f64.powi(t as i32)), *v / (1.0 - 0.999f64.powi(t as i32)));
                *x -= eta * m / (v.sqrt() + 1e-8) + eta * f64::from(lambda) * *x;
            });
        }
        // A file written before `weight_decay` existed is read as zero decay.
        let old: Rule = serde_json::from_str(r#"{"rule":"sgd","momentum":0.5}"#).unwrap();
        assert_eq!(old, Rule::Sgd { momentum: 0.5, weight_decay: 0.0 });
    }
}
