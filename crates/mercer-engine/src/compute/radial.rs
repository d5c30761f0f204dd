//! Features of points of unbounded space: with `t = x/scale` and `ρ = |t|`, the d features `t/(1+ρ)`, then `½ ln(1+ρ²)`.

use super::cuda::{args, points as cuda};
use super::tensor::{Tensor, on_gpu};

/// Smaller radii (in units of the scale) are replaced by this one, so that 1/ρ is finite.
const MIN_RADIUS: f64 = 1e-12;

/// The last extent of the shape.
fn columns(x: &Tensor) -> usize {
    x.shape()[x.shape().len() - 1]
}

/// Writes the features `[b, d+1]` of the points `x` `[b, d]` to `y`.
pub fn radial(scale: f64, x: &Tensor, y: &mut Tensor) {
    let d = columns(x);
    assert_eq!(y.len(), x.len() / d * (d + 1), "radial: features of shape {y}");
    on_gpu!(y, |gpu| cuda::over(gpu, "radial", y.len(), &args![x.len() / d, d, scale, false, x, y]));
    for (x, y) in x.host().chunks_exact(d).zip(y.host_mut().chunks_exact_mut(d + 1)) {
        let at = Radius::new(scale, x);
        y.iter_mut().enumerate().for_each(|(unit, y)| *y = at.value(unit) as f32);
    }
}

/// Writes the features and their derivatives in x, `[(d+2)·points, d+1]` as in [`super::jet`], at the first `points` rows
/// of `x` `[(d+2)·points, d]`.
pub fn radial_jet(scale: f64, x: &Tensor, points: usize, y: &mut Tensor) {
    let d = columns(x);
    assert_eq!(y.len(), (d + 2) * points * (d + 1), "radial: features of shape {y}");
    on_gpu!(y, |gpu| cuda::over(gpu, "radial", points * (d + 1), &args![points, d, scale, true, x, y]));
    let mut orders: Vec<&mut [f32]> = y.host_mut().chunks_exact_mut(points * (d + 1)).collect();
    for (b, x) in x.host().chunks_exact(d).take(points).enumerate() {
        let point = Radius::new(scale, x);
        for unit in 0..=d {
            let at = b * (d + 1) + unit;
            orders[0][at] = point.value(unit) as f32;
            (0..d).for_each(|a| orders[1 + a][at] = point.slope(unit, a) as f32);
            orders[1 + d][at] = point.laplacian(unit) as f32;
        }
    }
}

/// The scaled point `t = x/scale` and its radius `ρ`.
pub(crate) struct Radius {
    scale: f64,
    t: Vec<f64>,
    rho: f64,
}

impl Radius {
    /// For the point `x` `[d]`.
    pub fn new(scale: f64, x: &[f32]) -> Radius {
        let t: Vec<f64> = x.iter().map(|x| f64::from(*x) / scale).collect();
        let rho = t.iter().map(|t| t * t).sum::<f64>().sqrt().max(MIN_RADIUS);
        Radius { scale, t, rho }
    }

    fn value(&self, unit: usize) -> f64 {
        if unit == self.t.len() { 0.5 * (self.rho * self.rho).ln_1p() } else { self.t[unit] / (1.0 + self.rho) }
    }

    /// `∂y_unit/∂x_a`
    pub fn slope(&self, unit: usize, a: usize) -> f64 {
        // ∂_a (t_o h) = δ_oa h + t_o t_a h'/ρ with h = 1/(1+ρ), h' = −h²;  ∂_a ½ ln(1+ρ²) = t_a/(1+ρ²)
        let (t, rho, h) = (&self.t, self.rho, 1.0 / (1.0 + self.rho));
        let slope = if unit == t.len() {
            t[a] / (1.0 + rho * rho)
        } else {
            f64::from(u8::from(unit == a)) * h - t[unit] * t[a] * h * h / rho
        };
        slope / self.scale
    }

    fn laplacian(&self, unit: usize) -> f64 {
        // Δ(t_o h) = t_o (h'' + (d+1) h'/ρ), h'' = 2h³;  Δv = v'' + (d−1) v'/ρ with v' = ρ/(1+ρ²)
        let rho = self.rho;
        let (d, h, w) = (self.t.len() as f64, 1.0 / (1.0 + rho), 1.0 / (1.0 + rho * rho));
        let laplacian = if unit == self.t.len() {
            (1.0 - rho * rho) * w * w + (d - 1.0) * w
        } else {
            self.t[unit] * (2.0 * h * h * h - (d + 1.0) * h * h / rho)
        };
        laplacian / (self.scale * self.scale)
    }
}
