//! The empirical NTK by random directions in the space of parameters.

use super::EmpiricalNtk;
use crate::compute::{self, Tensor};
use crate::net::Mode;
use crate::rng::Rng;
use crate::{Result, fail_if};
use serde::{Deserialize, Serialize};

/// The law of a direction `v`, with `E[vvᵀ] = I`. Example: [`EmpiricalNtk`](super::EmpiricalNtk).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Law {
    /// Independent signs: the smaller variance of the two.
    #[default]
    Rademacher,
    /// Independent standard normal numbers.
    Gaussian,
}

/// How `∂_θ g · v` is found. Example: [`EmpiricalNtk`](super::EmpiricalNtk).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Derivative {
    /// Exactly, by one forward pass through the linearisation.
    #[default]
    Exact,
    /// `(g(x, θ+εv) − g(x, θ))/ε`, which needs no derivative of the network.
    Difference {
        /// ε
        step: f32,
    },
}

/// S random directions. Example: [`EmpiricalNtk`](super::EmpiricalNtk).
#[derive(Clone, Copy, Debug)]
pub struct Directions {
    /// S
    pub count: usize,
    /// Their law.
    pub law: Law,
    /// How the derivative along one is found.
    pub derivative: Derivative,
    /// Direction s depends on the seed and s alone.
    pub seed: u64,
}

impl EmpiricalNtk<'_> {
    /// `F_s = ∂_θ g(x) · v_s` `[n, c]` at the points `x` `[n, d]`, handed out one direction after the other:
    /// `(1/S) Σ_s F_s F_sᵀ` is an unbiased estimate of `Θ`, up to the error of a difference.
    pub fn directions(
        &self,
        x: &Tensor,
        directions: &Directions,
        mut each: impl FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        self.points(x)?;
        fail_if!(directions.count == 0, "0 directions were asked for; at least 1 is needed");
        let mut workspace = self.net.workspace(self.device)?;
        let at_rest = self.net.forward(self.theta, x, Mode::Eval, &mut workspace)?.clone();
        let mut v = Tensor::zeros(self.device, &[self.net.parameters()])?;
        let mut moved = self.theta.clone();
        let spread = self.spread()?;
        for s in 0..directions.count {
            let mut rng = Rng::new(directions.seed).fork(s as u64);
            match directions.law {
                Law::Rademacher => compute::fill_rademacher(&mut v, &mut rng),
                Law::Gaussian => compute::fill_normal(&mut v, &mut rng),
            }
            if let Some(spread) = &spread {
                compute::multiply(&mut v, spread);
            }
            let values = match directions.derivative {
                Derivative::Exact => self.net.jvp(self.theta, x, &mut workspace, Some(&v), None)?.to_host()?,
                Derivative::Difference { step } => {
                    compute::copy(&self.theta.trained, &mut moved.trained);
                    compute::axpy(step, &v, &mut moved.trained);
                    let mut y = self.net.forward(&moved, x, Mode::Eval, &mut workspace)?.clone();
                    compute::axpy(-1.0, &at_rest, &mut y);
                    compute::scale(1.0 / step, &mut y);
                    y.to_host()?
                }
            };
            fail_if!(
                values.iter().any(|v| !v.is_finite()),
                "the derivative along direction {s} is not finite; look at the network's weights and the points' scale"
            );
            each(s, &values)?;
        }
        Ok(())
    }
}
