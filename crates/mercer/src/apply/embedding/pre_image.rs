//! From coordinates in feature space back to points.

use crate::Result;
use crate::compute::Device;
use crate::kernel::{Base, Kernel};
use crate::linalg::matmul;
use crate::operator::{gram_cross, nearest_neighbours};
use ndarray::{Array2, ArrayView2, Axis, Zip, s};

/// Neighbours that [`nearest_mean`] averages.
const NEIGHBOURS: usize = 10;

/// Whether the kernel is a single RBF, scaled or not.
pub(crate) fn is_rbf(kernel: &Kernel) -> bool {
    match kernel {
        Kernel::Base(base) => matches!(base, Base::Rbf(_)),
        Kernel::Scale(_, inner) => is_rbf(inner),
        Kernel::Sum(_) | Kernel::Product(_) => false,
    }
}

/// For each `z` `[m, k]` the mean of the points `x` `[n, d]` whose own coordinates `of` `[n, k]` are nearest to it, with
/// weights `1/(δ² + δ̄²)`: `δ̄²`, the mean of the squared distances, keeps a perfect match from outweighing all others.
pub(crate) fn nearest_mean(of: ArrayView2<f64>, x: ArrayView2<f64>, z: ArrayView2<f64>) -> Array2<f64> {
    let mut out = Array2::zeros((z.nrows(), x.ncols()));
    let found = nearest_neighbours(of, z, NEIGHBOURS.min(of.nrows()));
    for (mut p, near) in out.rows_mut().into_iter().zip(found) {
        let mean = near.iter().map(|&(_, δ2)| δ2).sum::<f64>() / near.len() as f64;
        let weight = |δ2: f64| if mean > 0.0 { 1.0 / (δ2 + mean) } else { 1.0 };
        let total: f64 = near.iter().map(|&(_, δ2)| weight(δ2)).sum();
        for (i, δ2) in near {
            p.scaled_add(weight(δ2) / total, &x.row(i));
        }
    }
    out
}

/// `p ← Σ_i γ_i κ(p,x_i) x_i / Σ_i γ_i κ(p,x_i)` for the points `x` `[n, d]` and weights `γ` `[m, n]`, started at `p`
/// `[m, d]`. A point whose denominator vanishes, or is negative, stays where it is: the weights are signed, and there
/// the iteration has no meaning.
pub(crate) fn fixed_point(
    kernel: &Kernel,
    x: ArrayView2<f64>,
    gamma: ArrayView2<f64>,
    mut p: Array2<f64>,
    device: Device,
) -> Result<Array2<f64>> {
    const ROUNDS: usize = 100;
    const STRIP: usize = 1024;
    let largest = kernel.diagonal(x.slice(s![..x.nrows().min(1), ..])).first().copied().unwrap_or(1.0);
    for (mut p, gamma) in p.axis_chunks_iter_mut(Axis(0), STRIP).zip(gamma.axis_chunks_iter(Axis(0), STRIP)) {
        for _ in 0..ROUNDS {
            let mut w = gram_cross::<f64>(kernel, p.view(), x, device)?;
            Zip::from(&mut w).and(&gamma).for_each(|w, gamma| *w *= gamma);
            let total = w.sum_axis(Axis(1));
            let next = matmul(w.view(), x);
            let mut moved = 0.0f64;
            for i in 0..p.nrows() {
                if total[i] > 1e-10 * largest {
                    let target = &next.row(i) / total[i];
                    let scale = target.iter().chain(&p.row(i)).fold(1e-300f64, |m, v| m.max(v.abs()));
                    let step = Zip::from(&target).and(p.row(i)).fold(0.0f64, |m, a, b| m.max((a - b).abs()));
                    moved = moved.max(step / scale);
                    p.slice_mut(s![i, ..]).assign(&target);
                }
            }
            if moved < 1e-8 {
                break;
            }
        }
    }
    Ok(p)
}
