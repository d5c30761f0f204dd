//! Activations of tensors: bias, value and slope in one vectorised pass.

use super::cuda::{images, primitives as cuda};
use super::formula::{Activation, Formula, Visitor};
use super::parallel::{Parts, ROWS, block, for_each};
use super::reduce::sum;
use super::tensor::{Stack, StackMut, Tensor};
use crate::simd::{Lane, SimdJob, dispatch};
use std::marker::PhantomData;
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
    fn visit<F: Formula, G: Formula>(self) {
        dispatch(RowsOf(self, PhantomData::<(F, G)>));
    }
}

struct RowsOf<'a, FG>(Rows<'a>, PhantomData<FG>);

impl<F: Formula, G: Formula> SimdJob for RowsOf<'_, (F, G)> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Rows { width, half, bias, y, slope } = self.0;
        let mut slopes = slope.map(|s| s.chunks_exact_mut(width));
        for y in y.chunks_exact_mut(width) {
            let (y0, y1) = y.split_at_mut(half);
            let (b0, b1) = bias.map(|b| b.split_at(half)).unzip();
            match slopes.as_mut().and_then(Iterator::next) {
                Some(s) => {
                    let (s0, s1) = s.split_at_mut(half);
                    with_slope::<F, FMA>(y0, b0, s0);
                    with_slope::<G, FMA>(y1, b1, s1);
                }
                None => {
                    value_only::<F, FMA>(y0, b0);
                    value_only::<G, FMA>(y1, b1);
                }
            }
        }
    }
}

#[inline(always)]
fn with_slope<F: Formula, const FMA: bool>(y: &mut [f32], bias: Option<&[f32]>, slope: &mut [f32]) {
    let write = |(y, s): (&mut f32, &mut f32), b: f32| {
        let (value, slope) = F::at(Lane::<f32, FMA>(*y + b));
        (*y, *s) = (value.0, slope.0);
    };
    let pairs = y.iter_mut().zip(slope);
    match bias {
        Some(bias) => pairs.zip(bias).for_each(
            #[inline(always)]
            |(pair, &b)| write(pair, b),
        ),
        None => pairs.for_each(
            #[inline(always)]
            |pair| write(pair, 0.0),
        ),
    }
}

#[inline(always)]
fn value_only<F: Formula, const FMA: bool>(y: &mut [f32], bias: Option<&[f32]>) {
    match bias {
        Some(bias) => y.iter_mut().zip(bias).for_each(
            #[inline(always)]
            |(y, &b)| *y = F::at(Lane::<f32, FMA>(*y + b)).0.0,
        ),
        None => y.iter_mut().for_each(
            #[inline(always)]
            |y| *y = F::at(Lane::<f32, FMA>(*y)).0.0,
        ),
    }
}

/// `y_j ← φ(y_j)` and, where asked for, `slope_j ← φ'(y_j)`; `y` and `slope` `[k, rows, width]`.
pub fn activation(phi: Activation, y: &mut Tensor, slope: Option<&mut Tensor>) {
    bias_activation(None, phi, y, slope);
}

/// `y_j ← φ(y_j + b_j)`, and the slopes.
pub(super) fn bias_activation(bias: Option<Stack<'_>>, phi: Activation, y: &mut Tensor, slope: Option<&mut Tensor>) {
    let (count, m, n) = y.as_matrices();
    assert!(slope.as_ref().is_none_or(|s| s.len() == y.len()), "activation: the slopes are not of y's shape");
    if let Some(gpu) = y.gpu() {
        return images::channel_bias_activation(gpu, 1, bias, phi, y, slope);
    }
    let blocks = m.div_ceil(ROWS);
    let y = Parts::new(y.host_mut());
    let slope = slope.map(|s| Parts::new(s.host_mut()));
    for_each(count * blocks, 20 * count * m * n, |task| {
        let (j, rows) = (task / blocks, block(task % blocks, ROWS, m));
        let elements = (j * m + rows.start) * n..(j * m + rows.end) * n;
        // SAFETY (both): tasks have different rows.
        let y = unsafe { y.part(elements.clone()) };
        let slope = slope.as_ref().map(|s| unsafe { s.part(elements) });
        apply_rows(phi, bias.map(|b| b.host(j)), n, y, slope);
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
    assert!(
        bias_grad.rows * bias_grad.cols == n && bias_grad.count == count,
        "activation_vjp: the bias is not [{count}, {n}]"
    );
    if let Some(gpu) = g.gpu() {
        return cuda::activation_vjp(gpu, g, slope, &bias_grad);
    }
    let stride = bias_grad.stride;
    let blocks = n.div_ceil(COLS);
    let bias_grad = Parts::new(bias_grad.host_mut());
    let g = Parts::new(g.host_mut());
    let slope = slope.map(Tensor::host);
    for_each(count * blocks, 8 * count * m * n, |task| {
        let (j, cols) = (task / blocks, block(task % blocks, COLS, n));
        // SAFETY: tasks have different (j, cols).
        let total = unsafe { bias_grad.part(j * stride + cols.start..j * stride + cols.end) };
        total.fill(0.0);
        dispatch(SlopeAndSum { g: &g, slope, rows: j * m..(j + 1) * m, cols, n, total });
    });
}

/// `g ← g ∘ slope; total ← Σ_rows g` on a block of rows and columns that no other task touches.
struct SlopeAndSum<'a> {
    g: &'a Parts<'a>,
    slope: Option<&'a [f32]>,
    rows: Range<usize>,
    cols: Range<usize>,
    n: usize,
    total: &'a mut [f32],
}

impl SimdJob for SlopeAndSum<'_> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        if self.n == 1 {
            // SAFETY: the block is this task's own.
            let g = unsafe { self.g.part(self.rows.clone()) };
            if let Some(slope) = self.slope {
                g.iter_mut().zip(&slope[self.rows]).for_each(|(g, &s)| *g *= s);
            }
            self.total[0] = sum(g);
            return;
        }
        for row in self.rows {
            let at = row * self.n + self.cols.start..row * self.n + self.cols.end;
            // SAFETY: the block is this task's own.
            let g = unsafe { self.g.part(at.clone()) };
            if let Some(slope) = self.slope {
                g.iter_mut().zip(&slope[at]).for_each(|(g, &s)| *g *= s);
            }
            self.total.iter_mut().zip(&*g).for_each(|(t, &g)| *t += g);
        }
    }
}

/// Forward through the linearisation of `φ(z + b)`: `t ← (t + ḃ) ∘ slope`, for a tangent `t` `[k, rows, n]`.
pub fn bias_slope(t: &mut Tensor, bias: Option<Stack<'_>>, slope: Option<&Tensor>) {
    let (count, m, n) = t.as_matrices();
    assert!(slope.is_none_or(|s| s.len() == t.len()), "bias_slope: the slopes are not of the tangent's shape");
    assert!(bias.is_none_or(|b| b.rows * b.cols == n), "bias_slope: the bias is not of width {n}");
    if let Some(gpu) = t.gpu() {
        return images::channel_bias_slope(gpu, t, bias, slope);
    }
    let slope = slope.map(Tensor::host);
    let t = Parts::new(t.host_mut());
    for_each(count * m, 4 * count * m * n, |row| {
        let at = row * n..(row + 1) * n;
        // SAFETY: tasks have different rows.
        let t = unsafe { t.part(at.clone()) };
        if let Some(bias) = bias {
            t.iter_mut().zip(bias.host(row / m)).for_each(|(t, &b)| *t += b);
        }
        if let Some(slope) = slope {
            t.iter_mut().zip(&slope[at]).for_each(|(t, &s)| *t *= s);
        }
    });
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
                let size = if phi == Activation::Exp { value.max(1.0) } else { 1.0 };
                let difference = (phi.at(z + h, second).0 - phi.at(z - h, second).0) / (2.0 * h);
                assert!((difference - slope).abs() < 1e-8 * size, "{phi:?} at {z}: {slope}, not {difference}");
            }
        }
    }
}
