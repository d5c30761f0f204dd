//! Points of all of space as features of moderate size, for functions with structure near the origin and long tails.

use super::{Gradient, Layer, Pass, Trace, Weights, zero};
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
    /// `out[b, unit] = Σ_a ∂y_unit/∂x_a ẋ[b, a]`
    fn tangent(&self, x: &[f32], dx: &[f32]) -> Vec<f32> {
        let d = self.inputs;
        let points = x.chunks_exact(d).zip(dx.chunks_exact(d));
        let mut out = Vec::with_capacity(x.len() / d * (d + 1));
        for (x, dx) in points {
            let at = Radius::new(self.scale, x);
            out.extend((0..=d).map(|unit| {
                let sum: f64 = dx.iter().enumerate().map(|(a, dx)| at.slope(unit, a) * f64::from(*dx)).sum();
                sum as f32
            }));
        }
        out
    }
}

impl Layer for Radial {
    fn outputs(&self) -> usize {
        self.inputs + 1
    }

    fn forward(&self, _: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        compute::radial(self.scale, x, &mut trace.y);
        Ok(())
    }

    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, _: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()> {
        let x = pass.x;
        let Some(dx) = dx else { return Ok(()) };
        let d = self.inputs;
        let mut back = Vec::with_capacity(x.len());
        for (x, g) in x.to_host()?.chunks_exact(d).zip(g.to_host()?.chunks_exact(d + 1)) {
            let at = Radius::new(self.scale, x);
            back.extend((0..d).map(|a| {
                let sum: f64 = g.iter().enumerate().map(|(unit, g)| at.slope(unit, a) * f64::from(*g)).sum();
                sum as f32
            }));
        }
        dx.copy_from_host(&back)
    }

    fn jvp(&self, pass: Pass<'_>, _: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()> {
        let Some(dx) = dx else { return zero(t) };
        t.copy_from_host(&self.tangent(&pass.x.to_host()?, &dx.to_host()?))
    }

    /// `x` is the networks' own input, so that its gradient is the identity.
    fn jet(&self, _: &Weights<'_>, x: &Tensor, points: usize, y: &mut Tensor) -> Result<()> {
        compute::radial_jet(self.scale, x, points, y);
        Ok(())
    }
}
