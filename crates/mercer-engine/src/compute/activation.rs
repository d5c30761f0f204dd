//! Activations of tensors: bias, value and slope in one vectorised pass.

use super::cuda::{images, primitives as cuda};
use super::formula::{Activation, Formula, PARAMETERS, Visitor};
use super::parallel::{ROWS, blocks, for_each, for_each_chunk, pieces, row_blocks};
use super::reduce::sum;
use super::stack::{Stack, StackMut};
use super::tensor::{Tensor, on_gpu};
use crate::simd::{Lane, vectorized};
use ndarray::ArrayViewMut2;
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
    bias.iter().for_each(|b| b.check(y.as_matrices().0));
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
    let mut slopes = slope.map(|s| row_blocks(s.host_mut(), [count, m, n], size));
    let tasks = row_blocks(y.host_mut(), [count, m, n], size).map(|(j, rows, y)| {
        let slope = slopes.as_mut().and_then(Iterator::next).map(|(_, _, slope)| slope);
        (j, rows, y, slope)
    });
    for_each(tasks, work, |(j, rows, y, slope)| f(j, rows, y, slope));
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
    if m == 0 {
        return bias_grad.host_matrices().for_each(|sums| sums.fill(0.0));
    }
    let slope = slope.map(Tensor::host);
    // A task has some columns of g in one network, and their sums.
    let stacks = pieces(g.host_mut(), m * n, count).zip(bias_grad.host_matrices()).enumerate();
    let tasks = stacks.flat_map(|(j, (g, sums))| {
        let columns = blocks(ArrayViewMut2::from_shape((m, n), g).expect("m·n elements"), [m, COLS]);
        columns.into_iter().zip(sums.chunks_mut(COLS)).map(move |((_, cols, g), sums)| (j, cols, g, sums))
    });
    for_each(tasks, 8 * count * m * n, |(j, cols, mut g, total)| {
        vectorized!(if n == 1 {
            let g = g.as_slice_mut().expect("one column is contiguous");
            total[0] = sum(scaled(g, slope.map(|s| &s[j * m..])));
        } else {
            total.fill(0.0);
            for (i, row) in g.rows_mut().into_iter().enumerate() {
                let start = (j * m + i) * n + cols.start;
                let row = row.into_slice().expect("columns are next to each other");
                let g = scaled(row, slope.map(|s| &s[start..]));
                total.iter_mut().zip(g).for_each(|(t, &g)| *t += g);
            }
        });
    });
}

/// `g ← g ∘ slope`, with as many slopes as there are elements.
#[inline(always)]
fn scaled<'a>(g: &'a mut [f32], slope: Option<&[f32]>) -> &'a [f32] {
    if let Some(slope) = slope {
        g.iter_mut().zip(slope).for_each(|(g, &s)| *g *= s);
    }
    g
}

/// Forward through the linearisation of `φ(z + b)`: `t ← (t + ḃ) ∘ slope`, for a tangent `t` `[k, rows, n]`; `bias` has an
/// element for each unit, or for each channel of images. Without a slope the activation is the identity.
pub fn bias_slope(t: &mut Tensor, bias: Option<Stack<'_>>, slope: Option<&Tensor>) {
    let (count, m, n) = t.as_matrices();
    bias.iter().for_each(|b| b.check(count));
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
