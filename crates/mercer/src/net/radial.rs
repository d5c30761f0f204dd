//! Points of all of space as features of moderate size, for functions with structure near the origin and long tails.

use super::{Gradient, Layer, Trace, Weights};
use crate::Result;
use crate::compute::Tensor;

/// With `t = x/scale` and `ρ = |t|`: the d features `t/(1+ρ)`, then `½ ln(1+ρ²)`.
///
/// Both have bounded Laplacians everywhere, the origin included, and the first are not smooth there: `t/(1+ρ) = t − ρt + …`
/// is what wavefunctions do at a point charge. It is the first layer of a network, or none.
#[derive(Clone, Debug)]
pub struct Radial {
    /// Columns d of a point.
    pub inputs: usize,
    /// The radius that counts as one.
    pub scale: f64,
}

/// Below this radius (in units of the scale) the origin is taken to be this far away.
const LEAST: f64 = 1e-12;

impl Radial {
    /// `t` into `t`, and ρ.
    fn scaled(&self, x: &[f32], t: &mut [f64]) -> f64 {
        t.iter_mut().zip(x).for_each(|(t, x)| *t = f64::from(*x) / self.scale);
        t.iter().map(|t| t * t).sum::<f64>().sqrt().max(LEAST)
    }

    /// `∂y_unit/∂x_a` at `t`.
    fn slope(&self, t: &[f64], rho: f64, unit: usize, a: usize) -> f64 {
        // ∂_a (t_o h) = δ_oa h + t_o t_a h'/ρ with h = 1/(1+ρ), h' = −h²;  ∂_a ½ ln(1+ρ²) = t_a/(1+ρ²)
        let h = 1.0 / (1.0 + rho);
        let slope = if unit == self.inputs {
            t[a] / (1.0 + rho * rho)
        } else {
            f64::from(u8::from(unit == a)) * h - t[unit] * t[a] * h * h / rho
        };
        slope / self.scale
    }

    fn value(&self, t: &[f64], rho: f64, unit: usize) -> f64 {
        if unit == self.inputs { 0.5 * (rho * rho).ln_1p() } else { t[unit] / (1.0 + rho) }
    }

    fn laplacian(&self, t: &[f64], rho: f64, unit: usize) -> f64 {
        // Δ(t_o h) = t_o (h'' + (d+1) h'/ρ), h'' = 2h³;  Δv = v'' + (d−1) v'/ρ with v' = ρ/(1+ρ²)
        let (d, h, w) = (self.inputs as f64, 1.0 / (1.0 + rho), 1.0 / (1.0 + rho * rho));
        let laplacian = if unit == self.inputs {
            (1.0 - rho * rho) * w * w + (d - 1.0) * w
        } else {
            t[unit] * (2.0 * h * h * h - (d + 1.0) * h * h / rho)
        };
        laplacian / (self.scale * self.scale)
    }

    /// `out[b, unit] = Σ_a ∂y_unit/∂x_a ẋ[b, a]`
    fn tangent(&self, x: &[f32], dx: &[f32]) -> Vec<f32> {
        let (d, mut t) = (self.inputs, vec![0.0; self.inputs]);
        let points = x.chunks_exact(d).zip(dx.chunks_exact(d));
        let mut out = Vec::with_capacity(x.len() / d * (d + 1));
        for (x, dx) in points {
            let rho = self.scaled(x, &mut t);
            out.extend((0..=d).map(|unit| {
                let sum: f64 = dx.iter().enumerate().map(|(a, dx)| self.slope(&t, rho, unit, a) * f64::from(*dx)).sum();
                sum as f32
            }));
        }
        out
    }
}

impl Layer for Radial {
    fn expression(&self) -> String {
        format!("radial(scale={})", self.scale)
    }

    fn outputs(&self) -> usize {
        self.inputs + 1
    }

    fn stays_on_device(&self) -> bool {
        false
    }

    fn forward(&self, _: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        let (d, mut t) = (self.inputs, vec![0.0; self.inputs]);
        let mut y = Vec::with_capacity(trace.y.len());
        for x in x.to_host()?.chunks_exact(d) {
            let rho = self.scaled(x, &mut t);
            y.extend((0..=d).map(|unit| self.value(&t, rho, unit) as f32));
        }
        trace.y.copy_from_host(&y)
    }

    fn vjp(
        &self,
        _: &Weights<'_>,
        x: &Tensor,
        _: &mut Trace,
        g: &mut Tensor,
        _: &mut Gradient<'_>,
        dx: Option<&mut Tensor>,
    ) -> Result<()> {
        let Some(dx) = dx else { return Ok(()) };
        let (d, mut t) = (self.inputs, vec![0.0; self.inputs]);
        let mut back = Vec::with_capacity(x.len());
        for (x, g) in x.to_host()?.chunks_exact(d).zip(g.to_host()?.chunks_exact(d + 1)) {
            let rho = self.scaled(x, &mut t);
            back.extend((0..d).map(|a| {
                let sum: f64 = g.iter().enumerate().map(|(unit, g)| self.slope(&t, rho, unit, a) * f64::from(*g)).sum();
                sum as f32
            }));
        }
        dx.copy_from_host(&back)
    }

    fn jvp(
        &self,
        _: &Weights<'_>,
        _: Option<&Weights<'_>>,
        x: &Tensor,
        dx: Option<&Tensor>,
        _: &mut Trace,
        t: &mut Tensor,
    ) -> Result<()> {
        match dx {
            Some(dx) => t.copy_from_host(&self.tangent(&x.to_host()?, &dx.to_host()?)),
            None => {
                crate::compute::fill(t, 0.0);
                Ok(())
            }
        }
    }

    /// `x` is the networks' own input, so that its gradient is the identity.
    fn jet(&self, _: &Weights<'_>, x: &Tensor, points: usize, y: &mut Tensor) -> Result<()> {
        let (d, mut t) = (self.inputs, vec![0.0; self.inputs]);
        let mut jet = vec![0.0f32; y.len()];
        let mut orders: Vec<&mut [f32]> = jet.chunks_exact_mut(points * (d + 1)).collect();
        for (b, x) in x.to_host()?.chunks_exact(d).take(points).enumerate() {
            let rho = self.scaled(x, &mut t);
            for unit in 0..=d {
                let at = b * (d + 1) + unit;
                orders[0][at] = self.value(&t, rho, unit) as f32;
                (0..d).for_each(|a| orders[1 + a][at] = self.slope(&t, rho, unit, a) as f32);
                orders[1 + d][at] = self.laplacian(&t, rho, unit) as f32;
            }
        }
        y.copy_from_host(&jet)
    }
}
