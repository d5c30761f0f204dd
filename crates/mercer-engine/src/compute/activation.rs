//! Activations of tensors: bias, value and slope in one vectorised pass.

use super::cuda::{images, primitives as cuda};
use super::formula::{Activation, Formula, PARAMETERS, Visitor};
use super::parallel::{Parts, ROWS, block, for_each, for_each_chunk};
use super::reduce::sum;
use super::tensor::{Stack, StackMut, Tensor, on_gpu};
use crate::simd::{Lane, vectorized};
use std::ops::Range;

/// In place, `y ← φ(y + b)` and `slope ← φ'(y + b)` on consecutive rows of `width`.
pub(super) fn apply_rows(
    phi: Activation,
    bias: Option<&[f32]>,
    width: usize,
    y: &mut [f32],
    slope: Option<&mut [f32]>,
) {
    if y.is_empty() || phi == Activation::Identity && bias.is_none() && slope.is_none() {
        return;
    }
    if width == 1 && y.len() > 1 {
        // Rows of one unit are one long row; the only half that a single unit belongs to is the second.
        if let Some(&[b]) = bias {
            y.iter_mut().for_each(|y| *y += b);
        }
        let phi = if phi == Activation::SinCos { Activation::Cos } else { phi };
        return apply_rows(phi, None, y.len(), y, slope);
    }
    let half = if phi == Activation::SinCos { width / 2 } else { width };
    phi.visit(Rows { width, half, bias, y, slope });
}

/// `F` on the first `half` units of every row, `G` on the others.
struct Rows<'a> {
    width: usize,
    half: usize,
    bias: Option<&'a [f32]>,
    y: &'a mut [f32],
    slope: Option<&'a mut [f32]>,
}

impl Visitor for Rows<'_> {
    type Output = ();
    #[inline(always)]
    fn visit<F: Formula, G: Formula, const FMA: bool>(self, p: &[f64; PARAMETERS]) {
        let Rows { width, half, bias, y, slope } = self;
        let p = &p.map(|p| Lane::<f32, FMA>(p as f32));
        let mut slopes = slope.map(|s| s.chunks_exact_mut(width));
        for y in y.chunks_exact_mut(width) {
            let (y0, y1) = y.split_at_mut(half);
            let (b0, b1) = bias.map(|b| b.split_at(half)).unzip();
            match slopes.as_mut().and_then(Iterator::next) {
                Some(s) => {
                    let (s0, s1) = s.split_at_mut(half);
                    with_slope::<F, FMA>(p, y0, b0, s0);
                    with_slope::<G, FMA>(p, y1, b1, s1);
                }
                None => {
                    value_only::<F, FMA>(p, y0, b0);
                    value_only::<G, FMA>(p, y1, b1);
                }
            }
        }
    }
}

#[inline(always)]
fn with_slope<F: Formula, const FMA: bool>(
    p: &[Lane<f32, FMA>; PARAMETERS],
    y: &mut [f32],
    bias: Option<&[f32]>,
    slope: &mut [f32],
) {
    let values = y.iter_mut().zip(slope);
    if let Some(bias) = bias {
        for ((y, s), b) in values.zip(bias) {
            let (value, slope) = F::at(p, Lane::<f32, FMA>(*y + b));
            (*y, *s) = (value.0, slope.0);
        }
    } else {
        for (y, s) in values {
            let (value, slope) = F::at(p, Lane::<f32, FMA>(*y + 0.0));
            (*y, *s) = (value.0, slope.0);
        }
    }
}

#[inline(always)]
fn value_only<F: Formula, const FMA: bool>(p: &[Lane<f32, FMA>; PARAMETERS], y: &mut [f32], bias: Option<&[f32]>) {
    if let Some(bias) = bias {
        for (y, b) in y.iter_mut().zip(bias) {
            *y = F::at(p, Lane::<f32, FMA>(*y + b)).0.0;
        }
    } else {
        for y in y {
            *y = F::at(p, Lane::<f32, FMA>(*y)).0.0;
        }
    }
}

/// `y_j ← φ(y_j)` and, where asked for, `slope_j ← φ'(y_j)`; `y` and `slope` `[k, rows, width]`.
pub fn activation(phi: Activation, y: &mut Tensor, slope: Option<&mut Tensor>) {
    bias_activation(None, phi, y, slope);
}

/// `y_j ← φ(y_j + b_j)`, and the slopes.
pub(super) fn bias_activation(bias: Option<Stack<'_>>, phi: Activation, y: &mut Tensor, slope: Option<&mut Tensor>) {
    assert!(slope.as_ref().is_none_or(|s| s.len() == y.len()), "activation: the slopes are not of y's shape");
    on_gpu!(y, |gpu| images::channel_bias_activation(gpu, 1, bias, phi, y, slope));
    let (n, work) = (y.as_matrices().2, 20 * y.len());
    for_each_block(y, slope, ROWS, work, |j, _, y, slope| apply_rows(phi, bias.map(|b| b.host(j)), n, y, slope));
}

/// Calls `f(j, rows, y, slope)` for blocks of at most `size` rows of each matrix j of `y` and `slope` `[k, m, n]`, in
/// parallel if `work` is large enough.
pub(super) fn for_each_block(
    y: &mut Tensor,
    slope: Option<&mut Tensor>,
    size: usize,
    work: usize,
    f: impl Fn(usize, Range<usize>, &mut [f32], Option<&mut [f32]>) + Sync + Send,
) {
    let (count, m, n) = y.as_matrices();
    let blocks = m.div_ceil(size);
    let y = Parts::new(y.host_mut());
    let slope = slope.map(|s| Parts::new(s.host_mut()));
    for_each(count * blocks, work, |task| {
        let (j, rows) = (task / blocks, block(task % blocks, size, m));
        let elements = (j * m + rows.start) * n..(j * m + rows.end) * n;
        // SAFETY (both): tasks have different rows.
        let y = unsafe { y.part(elements.clone()) };
        let slope = slope.as_ref().map(|s| unsafe { s.part(elements) });
        f(j, rows, y, slope);
    });
}

/// Columns that one task of [`activation_vjp`] sums.
const COLS: usize = 64;

/// Back through `φ(z + b)`: `g ← g ∘ slope`, and the bias's gradient `Σ_rows g`.
///
/// `g` and `slope` `[k, rows, n]` (no slope: identity), `bias_grad` `[k, 1, n]`.
pub fn activation_vjp(g: &mut Tensor, slope: Option<&Tensor>, bias_grad: Option<StackMut<'_>>) {
    let (count, m, n) = g.as_matrices();
    assert!(slope.is_none_or(|s| s.len() == g.len()), "activation_vjp: the slopes are not of the gradient's shape");
    let Some(mut bias_grad) = bias_grad else {
        if let Some(slope) = slope {
            super::multiply(g, slope);
        }
        return;
    };
    assert!(bias_grad.rows * bias_grad.cols == n && bias_grad.count == count, "activation_vjp of {g} into {bias_grad}");
    on_gpu!(g, |gpu| cuda::activation_vjp(gpu, g, slope, &bias_grad));
    let stride = bias_grad.stride;
    let blocks = n.div_ceil(COLS);
    let bias_grad = Parts::new(bias_grad.host_mut());
    let g = Parts::new(g.host_mut());
    let slope = slope.map(Tensor::host);
    for_each(count * blocks, 8 * count * m * n, |task| {
        let (j, cols) = (task / blocks, block(task % blocks, COLS, n));
        // SAFETY: tasks have different (j, cols).
        let total = unsafe { bias_grad.part(j * stride + cols.start..j * stride + cols.end) };
        // SAFETY (both): the rows and columns are this task's own.
        vectorized!(if n == 1 {
            total[0] = sum(unsafe { scaled(&g, slope, j * m..(j + 1) * m) });
        } else {
            total.fill(0.0);
            for row in j * m..(j + 1) * m {
                let g = unsafe { scaled(&g, slope, row * n + cols.start..row * n + cols.end) };
                total.iter_mut().zip(g).for_each(|(t, &g)| *t += g);
            }
        });
    });
}

/// `g ← g ∘ slope` on a range.
///
/// # Safety
/// No other task may use this range of `g`.
#[inline(always)]
unsafe fn scaled<'a>(g: &Parts<'a>, slope: Option<&[f32]>, range: Range<usize>) -> &'a [f32] {
    // SAFETY: as promised by the caller.
    let g = unsafe { g.part(range.clone()) };
    if let Some(slope) = slope {
        g.iter_mut().zip(&slope[range]).for_each(|(g, &s)| *g *= s);
    }
    g
}

/// Forward through the linearisation of `φ(z + b)`: `t ← (t + ḃ) ∘ slope`, for a tangent `t` `[k, rows, n]`; `bias` has an
/// element for each unit, or for each channel of images. Without a slope the activation is the identity.
pub fn bias_slope(t: &mut Tensor, bias: Option<Stack<'_>>, slope: Option<&Tensor>) {
    let (_, m, n) = t.as_matrices();
    assert!(slope.is_none_or(|s| s.len() == t.len()), "bias_slope: the slopes are not of the tangent's shape");
    assert!(bias.is_none_or(|b| n % (b.rows * b.cols) == 0), "bias_slope: the bias does not divide rows of {n}");
    on_gpu!(t, |gpu| images::channel_bias_slope(gpu, t, bias, slope));
    let (slope, work) = (slope.map(Tensor::host), 4 * t.len());
    for_each_chunk(t.host_mut(), n, work, |row, t| {
        if let Some(bias) = bias {
            add_bias(t, bias.host(row / m));
        }
        if let Some(slope) = slope {
            t.iter_mut().zip(&slope[row * n..]).for_each(|(t, &s)| *t *= s);
        }
    });
}

/// Adds `bias_c` to channel c of `y` `[channels, plane]`.
pub(super) fn add_bias(y: &mut [f32], bias: &[f32]) {
    if y.len() == bias.len() {
        return y.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
    }
    y.chunks_exact_mut(y.len() / bias.len()).zip(bias).for_each(|(y, b)| y.iter_mut().for_each(|y| *y += b));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_agree_with_differences() {
        let h = 1e-5;
        for z in (0..4000).map(|i| 0.00371 * (f64::from(i) - 2000.0)).filter(|z| z.abs() >= h) {
            for (phi, second) in Activation::ALL.into_iter().flat_map(|phi| [(phi, false), (phi, true)]) {
                let (value, slope) = phi.at(z, second);
                let size = if phi == Activation::Exp { value.max(1.0) } else { 1.0 + value.abs() };
                let difference = (phi.at(z + h, second).0 - phi.at(z - h, second).0) / (2.0 * h);
                assert!((difference - slope).abs() < 1e-8 * size, "{phi:?} at {z}: {slope}, not {difference}");
            }
        }
    }
}
