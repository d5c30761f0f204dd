//! Points of all of space as features of moderate size, for functions with structure near the origin and long tails.

use super::{Facts, Gradient, Layer, Pass, Trace, Weights, zero};
use crate::Result;
use crate::compute::{self, Radius, Tensor};

/// With `t = x/scale` and `ρ = |t|`: the d features `t/(1+ρ)`, then `½ ln(1+ρ²)`.
///
/// Both have bounded Laplacians everywhere, the origin included, and the first are not smooth there: `t/(1+ρ) = t − ρt + …`
/// is what wavefunctions do at a point charge. It can only be the first layer of a network. Derivatives in the points
/// themselves, which training has no use for, are taken by the host.
#[derive(Clone, Debug)]
pub struct Radial {
    /// Columns d of a point.
    pub inputs: usize,
    /// The radius that counts as one.
    pub scale: f64,
}

impl Radial {
    /// `out[b, i] = Σ_j m_ij v[b, j]`, with `m` the Jacobian of a point or its transpose: its entries are `entry(radius, i, j)`.
    fn product(
        &self,
        x: &Tensor,
        v: &Tensor,
        outputs: usize,
        entry: impl Fn(&Radius, usize, usize) -> f64,
    ) -> Result<Vec<f32>> {
        let d = self.inputs;
        let mut out = Vec::with_capacity(x.len() / d * outputs);
        for (x, v) in x.to_host()?.chunks_exact(d).zip(v.to_host()?.chunks_exact(2 * d + 1 - outputs)) {
            let at = Radius::new(self.scale, x);
            out.extend((0..outputs).map(|i| {
                let sum: f64 = v.iter().enumerate().map(|(j, v)| entry(&at, i, j) * f64::from(*v)).sum();
                sum as f32
            }));
        }
        Ok(out)
    }
}

impl Layer for Radial {
    fn facts(&self) -> Facts {
        Facts { outputs: self.inputs + 1, ..Facts::default() }
    }

    fn forward(&self, _: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        compute::radial(self.scale, x, &mut trace.y);
        Ok(())
    }

    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, _: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()> {
        let Some(dx) = dx else { return Ok(()) };
        dx.copy_from_host(&self.product(pass.x, g, self.inputs, |at, a, unit| at.slope(unit, a))?)
    }

    fn jvp(&self, pass: Pass<'_>, _: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()> {
        let Some(dx) = dx else { return zero(t) };
        t.copy_from_host(&self.product(pass.x, dx, self.inputs + 1, |at, unit, a| at.slope(unit, a))?)
    }

    /// `x` is the networks' own input, so that its gradient is the identity.
    fn jet(&self, _: &Weights<'_>, x: &Tensor, points: usize, y: &mut Tensor) -> Result<()> {
        compute::radial_jet(self.scale, x, points, y);
        Ok(())
    }
}
