//! Functions at points: factors, and differential operators of second order.

use super::cuda::{args, points as cuda};
use super::small::Small;
use super::tensor::{Indices, Tensor, on_gpu};
use crate::Result;

/// `psi_jb ← w_b psi_jb`; `w` `[B, 1]`, `psi` `[k, B, c]`.
pub fn scale_points(w: &Tensor, psi: &mut Tensor) {
    let (b, c) = (psi.shape()[1], psi.shape()[2]);
    assert_eq!(w.len(), b, "factors {w} of functions {psi}");
    on_gpu!(psi, |gpu| cuda::over(gpu, "scale_points", psi.len(), &args![psi.len(), b, c, w, psi]));
    let w = w.host();
    for (i, values) in psi.host_mut().chunks_exact_mut(c.max(1)).enumerate() {
        values.iter_mut().for_each(|v| *v *= w[i % b]);
    }
}

/// `out ← (shift f − Lf)/scale` with `Lf = −Δf − v·∇f + u f`, from the values, gradients and Laplacians of k functions.
///
/// `jet` `[k, (d+2)·B, c]`; the point b has `v` and `u` in row `rows_b` of `field` `[·, d+1]`; `out` `[k, B, c]`. Sums are
/// taken in `f64`.
pub fn elliptic([shift, scale]: [f64; 2], rows: &Indices, field: &Small, jet: &Tensor, out: &mut Tensor) -> Result<()> {
    let (k, c, d, b) = (jet.shape()[0], jet.shape()[2], field.shape()[1] - 1, rows.len());
    assert_eq!(jet.shape()[1], (d + 2) * b, "elliptic: a jet {jet} at {b} points of {d} columns");
    out.reshape(&[k, b, c])?;
    on_gpu!(out, |gpu| {
        cuda::over(gpu, "elliptic", out.len(), &args![k, b, c, d, shift, scale, rows, field, jet, out]);
        Ok(())
    });
    let (rows, field, jet) = (rows.host(), field.host(), jet.host());
    for (at, out) in out.host_mut().iter_mut().enumerate() {
        let (j, p, output) = (at / (b * c), at / c % b, at % c);
        let of = |order: usize| f64::from(jet[((j * (d + 2) + order) * b + p) * c + output]);
        let here = field.row(rows[p] as usize);
        let drift: f64 = (0..d).map(|i| here[i] * of(1 + i)).sum();
        let image = here[d] * of(0) - of(d + 1) - drift;
        *out = ((shift * of(0) - image) / scale) as f32;
    }
    Ok(())
}
