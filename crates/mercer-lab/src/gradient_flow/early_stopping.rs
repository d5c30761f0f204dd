//! Early stopping beside ridge regression on noisy targets, both in closed form in the eigenbasis of the infinite NTK.

use super::{architecture, logarithmic};
use crate::statistics::Interval;
use crate::table;
use mercer::Result;
use mercer::compute::Device;
use mercer::kernel::Kernel;
use mercer::linalg::{eigh, matmul};
use mercer::operator::{gram, gram_cross};
use mercer::rng::Rng;
use mercer_figure::report::Table;
use mercer_figure::text;
use ndarray::{Array1, Array2};
use serde::Serialize;

const NOISE: f64 = 0.5;
const TEST: usize = 200;

/// Test errors of the two filters over draws of the points and the noise.
#[derive(Serialize)]
pub struct Stopped {
    /// The least mean squared error over all times, and over all α.
    flow: Interval,
    ridge: Interval,
    /// The difference of the two.
    difference: Interval,
    /// That of training to the end.
    end: Interval,
}

/// `Σ_j Θ(x,X)v_j φ(μ_j)/(nμ_j) v_jᵀy`, the prediction that learns the share `φ(μ_j)` of direction j: its error for every filter.
fn errors(n: usize, rng: &mut Rng) -> Result<[f64; 3]> {
    let kernel = Kernel::parse(&format!("ntk('{}')", architecture(1, "erf")))?;
    let truth = |x: f64| (3.0 * x).sin() + 0.5 * (7.0 * x).cos();
    let mut points = |n: usize| Array2::from_shape_simple_fn((n, 1), || 2.0 * rng.uniform() - 1.0);
    let (x, new) = (points(n), points(TEST));
    let y: Array1<f64> = x.column(0).iter().map(|x| truth(*x) + NOISE * rng.normal()).collect();
    let (values, vectors) = eigh(Device::Cpu, (gram::<f64>(&kernel, x.view(), Device::Cpu)? / n as f64).view())?;
    let cross = matmul(gram_cross::<f64>(&kernel, new.view(), x.view(), Device::Cpu)?.view(), vectors.view());
    let components = vectors.t().dot(&y);
    let error = |filter: &dyn Fn(f64) -> f64| {
        let share =
            |j: usize| if values[j] > 1e-13 * values[0] { filter(values[j]) / (n as f64 * values[j]) } else { 0.0 };
        let coefficients = Array1::from_shape_fn(n, |j| share(j) * components[j]);
        let off = cross.dot(&coefficients) - new.column(0).mapv(truth);
        off.dot(&off) / TEST as f64
    };
    let first = values[0];
    let times = || logarithmic(1_000_000, 120).into_iter().map(move |t| t as f64 / first);
    let flow = times().map(|t| error(&|μ| 1.0 - (-μ * t).exp())).fold(f64::INFINITY, f64::min);
    let ridge = times().map(|t| error(&|μ| μ / (μ + 1.0 / t))).fold(f64::INFINITY, f64::min);
    Ok([flow, ridge, error(&|_| 1.0)])
}

pub fn run(n: usize, draws: usize, seed: u64) -> Result<Stopped> {
    let rng = Rng::new(seed).fork(0x6561);
    let found = (0..draws).map(|i| errors(n, &mut rng.fork(i as u64))).collect::<Result<Vec<_>>>()?;
    let of = |f: &dyn Fn(&[f64; 3]) -> f64| Interval::of(&found.iter().map(f).collect::<Vec<f64>>());
    Ok(Stopped { flow: of(&|e| e[0]), ridge: of(&|e| e[1]), difference: of(&|e| e[0] - e[1]), end: of(&|e| e[2]) })
}

impl Stopped {
    pub fn table(&self) -> Table {
        let rows = [
            ("early stopping, best t", self.flow),
            ("ridge, best α", self.ridge),
            ("difference", self.difference),
            ("trained to the end", self.end),
        ];
        table(&rows, &[("filter", |r| r.0.into()), ("test MSE", |r| r.1.text())])
            .caption(format!("Noise of deviation {NOISE} on the targets; errors against the function without noise."))
    }

    pub fn sentence(&self) -> String {
        let same = if self.difference.holds(0.0) { "do not differ" } else { "differ" };
        format!(
            "On noisy targets the best time and the best ridge reach test errors of {} and {}, which {same} by more than their interval \
             allows for ({}); training to the end gives {}.",
            text::number(self.flow.mean, 3),
            text::number(self.ridge.mean, 3),
            self.difference.text(),
            text::number(self.end.mean, 3)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopping_early_is_better_than_the_end() {
        let found = run(30, 5, 3).unwrap();
        assert!(found.flow.mean < found.end.mean && found.ridge.mean < found.end.mean);
        assert!((found.flow.mean - found.ridge.mean).abs() < 0.3 * found.ridge.mean);
    }
}
