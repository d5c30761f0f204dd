//! L2 batch norm: each unit divided by its root mean square over the batch.

use super::cuda::{args, primitives as cuda};
use super::parallel::{for_each, for_each_chunk, pieces};
use super::reduce::dot;
use super::stack::Stack;
use super::tensor::{Tensor, on_gpu};

/// Mean squares below this count as zero, and the unit is set to zero.
const TINY: f32 = 1e-30;

/// `y_b ← h_b / √(mean_b h_b²)` for every unit, in place; `factor` `[k, n]` receives `1/√(mean h²)`
/// (zero for a unit that vanishes on the batch). `y` `[k, b, n]`.
pub fn l2_norm(y: &mut Tensor, factor: &mut Tensor) {
    let (count, m, n) = y.as_matrices();
    assert!(factor.len() == count * n, "l2_norm of {y} with factors {factor}");
    on_gpu!(y, |gpu| cuda::l2_norm(gpu, y, factor));
    let tasks = pieces(y.host_mut(), m * n, count).zip(pieces(factor.host_mut(), n, count));
    for_each(tasks, 6 * count * m * n, |(y, factor)| {
        column_dots(y, y, factor);
        for f in factor.iter_mut() {
            let mean = *f / m as f32;
            // NaN is not below TINY and stays NaN.
            *f = if mean < TINY { 0.0 } else { 1.0 / mean.sqrt() };
        }
        multiply_columns(y, factor);
    });
}

/// The derivative of [`l2_norm`]: `t_b ← s (t_b − y_b mean_b(y_b t_b))`, with `y` the normalized output and `s` the
/// factor. It is symmetric, so it is both the JVP and the VJP.
///
/// `t`, `y` `[k, b, n]`, `factor`, `work` `[k, n]`.
pub fn l2_norm_tangent(y: &Tensor, factor: &Tensor, t: &mut Tensor, work: &mut Tensor) {
    let (count, m, n) = t.as_matrices();
    let sizes = [y.len(), factor.len(), work.len()];
    assert!(sizes == [t.len(), count * n, count * n], "l2_norm_tangent: {y} {factor} {t} {work}");
    on_gpu!(t, |gpu| cuda::l2_norm_tangent(gpu, y, factor, t, work));
    let (y, factor) = (y.host(), factor.host());
    let tasks = pieces(t.host_mut(), m * n, count).zip(pieces(work.host_mut(), n, count)).enumerate();
    for_each(tasks, 8 * count * m * n, |(j, (t, mean))| {
        let (y, s) = (&y[j * m * n..(j + 1) * m * n], &factor[j * n..(j + 1) * n]);
        column_dots(y, t, mean);
        mean.iter_mut().for_each(|c| *c /= m as f32);
        if n == 1 {
            t.iter_mut().zip(y).for_each(|(t, y)| *t = s[0] * (*t - y * mean[0]));
            return;
        }
        for (t, y) in t.chunks_exact_mut(n).zip(y.chunks_exact(n)) {
            for (((t, y), s), c) in t.iter_mut().zip(y).zip(s).zip(&*mean) {
                *t = s * (*t - y * c);
            }
        }
    });
}

/// `y_b ← y_b − mean_b y_b` for every unit, in place; `mean` `[k, n]` receives the means. A projection, so it is its own
/// derivative and its own adjoint. `y` `[k, b, n]`.
pub fn centre(y: &mut Tensor, mean: &mut Tensor) {
    let (count, m, n) = y.as_matrices();
    assert!(mean.len() == count * n, "centre of {y} with means {mean}");
    on_gpu!(y, |gpu| cuda::centre(gpu, y, mean));
    let tasks = pieces(y.host_mut(), m * n, count).zip(pieces(mean.host_mut(), n, count));
    for_each(tasks, 4 * count * m * n, |(y, mean)| {
        for (c, mean) in mean.iter_mut().enumerate() {
            let sum: f64 = y.iter().skip(c).step_by(n).map(|v| f64::from(*v)).sum();
            *mean = (sum / m as f64) as f32;
        }
        y.chunks_exact_mut(n.max(1)).for_each(|y| y.iter_mut().zip(&*mean).for_each(|(y, mean)| *y -= mean));
    });
}

/// `y_jbc ← y_jbc · factor_jc`: [`l2_norm`] with fixed factors. `y` `[k, b, n]`, `factor` `[k, 1, n]`.
pub fn scale_columns(y: &mut Tensor, factor: Stack<'_>) {
    let (count, m, n) = y.as_matrices();
    factor.check(count);
    assert!(factor.rows * factor.cols == n, "scale_columns of {y} by {factor}");
    on_gpu!(y, |gpu| cuda::over(gpu, "scale_columns", y.len(), &args![y.len(), m * n, n, factor, y]));
    let work = 2 * y.len();
    for_each_chunk(y.host_mut(), m * n, work, |j, y| multiply_columns(y, factor.host(j)));
}

/// `out_c = Σ_b x_bc y_bc` for row-major `x`, `y` `[b, n]` and `out` `[n]`.
fn column_dots(x: &[f32], y: &[f32], out: &mut [f32]) {
    if let [out] = out {
        *out = dot(x, y);
        return;
    }
    out.fill(0.0);
    let n = out.len().max(1);
    for (x, y) in x.chunks_exact(n).zip(y.chunks_exact(n)) {
        out.iter_mut().zip(x.iter().zip(y)).for_each(|(out, (x, y))| *out += x * y);
    }
}

fn multiply_columns(y: &mut [f32], factor: &[f32]) {
    if let [f] = factor {
        y.iter_mut().for_each(|y| *y *= f);
        return;
    }
    for y in y.chunks_exact_mut(factor.len().max(1)) {
        y.iter_mut().zip(factor).for_each(|(y, f)| *y *= f);
    }
}
