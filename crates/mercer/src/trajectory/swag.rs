//! SWA and SWAG: a normal distribution over parameters from the snapshots of a run.

use super::Trajectory;
use crate::classifier::Classifier;
use crate::rng::Rng;
use crate::{Result, fail_if};
use ndarray::{Array1, ArrayView2};

/// SWAG: `θ = θ̄ + (1/√2) Σ^{1/2} ε + (1/√(2(K−1))) D ε'` with the mean θ̄ of the snapshots, their variances
/// `Σ = diag(mean θ² − θ̄²)` and the deviations `D` `[P, K]` of the last K snapshots from the mean of those up to each of them
/// (Maddox et al., 2019). Example: [the module](super).
#[derive(Debug)]
pub struct Swag<'a> {
    trajectory: &'a Trajectory,
    /// θ̄ `[P]`
    pub mean: Array1<f64>,
    /// The diagonal of Σ `[P]`.
    pub variances: Array1<f64>,
    /// The columns of D, each `[P]`, in the order of training.
    pub deviations: Vec<Array1<f64>>,
}

impl<'a> Swag<'a> {
    /// The moments of snapshots, with deviations of `rank` of them at most.
    pub fn of(trajectory: &'a Trajectory, rank: usize) -> Result<Swag<'a>> {
        fail_if!(rank < 2, "the covariance needs the deviations of two snapshots at least, not {rank}");
        let p = trajectory.last().network.parameters();
        let (mut mean, mut square, mut deviations) = (Array1::<f64>::zeros(p), Array1::<f64>::zeros(p), vec![]);
        for (i, network) in trajectory.networks.iter().enumerate() {
            let theta = Array1::from_iter(network.parameters.trained.to_host()?.into_iter().map(f64::from));
            let share = 1.0 / (i + 1) as f64;
            mean = &mean + &((&theta - &mean) * share);
            square = &square + &((&theta * &theta - &square) * share);
            if i + rank >= trajectory.count() {
                deviations.push(theta - &mean);
            }
        }
        let variances = (square - &mean * &mean).mapv(|v| v.max(0.0));
        Ok(Swag { trajectory, mean, variances, deviations })
    }

    /// The network at θ̄, its batch norms measured anew at rows `x` `[n, d]`.
    pub fn average(&self, x: ArrayView2<f64>) -> Result<Classifier> {
        self.network(&self.mean, x)
    }

    /// One draw of θ `[P]`.
    pub fn draw(&self, rng: &mut Rng) -> Array1<f64> {
        let scale = 1.0 / (2.0 * (self.deviations.len() - 1) as f64).sqrt();
        let mut theta = self.mean.clone();
        theta.zip_mut_with(&self.variances, |θ, v| *θ += (v / 2.0).sqrt() * rng.normal());
        self.deviations.iter().for_each(|deviation| theta.scaled_add(scale * rng.normal(), deviation));
        theta
    }

    /// The network at parameters `theta` `[P]`, its batch norms measured anew at rows `x` `[n, d]`.
    pub fn network(&self, theta: &Array1<f64>, x: ArrayView2<f64>) -> Result<Classifier> {
        let last = self.trajectory.last();
        let theta: Vec<f32> = theta.iter().map(|v| *v as f32).collect();
        let mut network = last.with_numbers(&theta, &last.parameters.constants.to_host()?)?;
        network.recompute_statistics(x)?;
        Ok(network)
    }
}
