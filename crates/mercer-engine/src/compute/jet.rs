//! Second-order forward passes: value, gradient and Laplacian of every unit, together; differential operators from them.

use super::activation::apply_rows;
use super::cuda::{args, points, primitives as cuda};
use super::formula::{Activation, Formula, PARAMETERS, Visitor};
use super::parallel::{ROWS, for_each, pieces};
use super::small::Small;
use super::stack::Stack;
use super::tensor::{Indices, Tensor, on_gpu};
use crate::Result;
use crate::simd::Lane;

/// `y ← φ(y + b)` with its first and second derivatives, in place.
///
/// `y` `[k, (d+2)·points, n]` holds, one after the other, the values `z`, the d partial derivatives `∂_i z` and the
/// Laplacians `Δz` at the points; `bias` `[k, 1, n]` belongs to the values. With `z` the values after the bias,
///
/// `∂_i φ(z) = φ'(z) ∂_i z`,  `Δφ(z) = φ'(z) Δz + φ''(z) Σ_i (∂_i z)²`.
pub fn jet(phi: Activation, bias: Option<Stack<'_>>, points: usize, y: &mut Tensor) {
    let (count, rows, n) = y.as_matrices();
    assert!(points > 0 && rows % points == 0 && rows / points >= 2, "jet: {rows} rows, {points} points");
    assert!(bias.is_none_or(|b| b.rows() * b.cols() == n), "jet: the bias is not of width {n}");
    let orders = rows / points;
    bias.iter().for_each(|b| b.check(count));
    on_gpu!(y, |gpu| cuda::over(gpu, "jet", count * points * n, &args![count, points, n, orders, phi, bias, y]));
    // A task has some points of one network: their values, derivatives and Laplacians.
    let tasks = pieces(y.host_mut(), rows * n, count).enumerate().flat_map(|(j, jets)| {
        let mut orders: Vec<_> =
            jets.chunks_mut((points * n).max(1)).map(|order| order.chunks_mut((ROWS * n).max(1))).collect();
        (0..points.div_ceil(ROWS)).map(move |_| (j, orders.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>()))
    });
    for_each(tasks, 20 * count * rows * n, |(j, parts)| {
        let mut parts = parts.into_iter();
        let (Some(value), Some(laplacian)) = (parts.next(), parts.next_back()) else { return };
        if phi == Activation::Identity {
            return apply_rows(phi, bias.map(|b| b.host(j)), n, value, None);
        }
        // φ'' is written with z for some φ, with φ and φ' for others.
        let mut z = value.to_vec();
        let mut slope = vec![0.0; value.len()];
        apply_rows(Activation::Identity, bias.map(|b| b.host(j)), n, &mut z, None);
        apply_rows(phi, bias.map(|b| b.host(j)), n, value, Some(&mut slope));
        phi.visit(Chain { z, value, slope, gradient: parts.collect(), laplacian });
    });
}

/// `out ← ` the jet `[(d+2)·b, d]` of the points `x` `[b, d]` themselves: `x`, then `∂x/∂x_i = e_i`, then `Δx = 0`.
pub fn points_jet(x: &Tensor, out: &mut Tensor) {
    let &[b, d] = x.shape() else { panic!("points_jet: points of shape {x} are not [b, d]") };
    assert_eq!(out.len(), (d + 2) * b * d, "points_jet: points {x} into {out}");
    on_gpu!(x, |gpu| points::over(gpu, "points_jet", out.len(), &args![b, d, x, out]));
    let (values, derivatives) = out.host_mut().split_at_mut(b * d);
    values.copy_from_slice(x.host());
    derivatives.fill(0.0);
    for (i, unit) in derivatives.chunks_exact_mut(b * d).take(d).enumerate() {
        unit.iter_mut().skip(i).step_by(d).for_each(|v| *v = 1.0);
    }
}

/// `out ← (shift f − Lf)/scale` with `Lf = −Δf − v·∇f + u f`, from the values, gradients and Laplacians of k functions.
///
/// `jet` `[k, (d+2)·B, c]`; row `rows_b` of `field` `[·, d+1]` holds `v` and `u` of point b; `out` `[k, B, c]`. Sums are `f64`.
pub fn elliptic([shift, scale]: [f64; 2], rows: &Indices, field: &Small, jet: &Tensor, out: &mut Tensor) -> Result<()> {
    let (k, c, d, b) = (jet.shape()[0], jet.shape()[2], field.shape()[1] - 1, rows.len());
    assert_eq!(jet.shape()[1], (d + 2) * b, "elliptic: a jet {jet} at {b} points of {d} columns");
    out.reshape(&[k, b, c])?;
    on_gpu!(out, |gpu| {
        points::over(gpu, "elliptic", out.len(), &args![k, b, c, d, shift, scale, rows, field, jet, out]);
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

/// The chain rule of [`jet`] on a block of points.
struct Chain<'a> {
    z: Vec<f32>,
    value: &'a [f32],
    slope: Vec<f32>,
    gradient: Vec<&'a mut [f32]>,
    laplacian: &'a mut [f32],
}

impl Visitor for Chain<'_> {
    type Output = ();
    /// Where two halves of a layer have different formulas, sine and cosine, φ'' is the same in terms of φ.
    #[inline(always)]
    fn visit<F: Formula, G: Formula, const FMA: bool>(self, p: &[f64; PARAMETERS]) {
        let Chain { z: mut curvature, value, slope, gradient, laplacian } = self;
        let p = &p.map(|p| Lane::<f32, FMA>(p as f32));
        for (z, (&value, &slope)) in curvature.iter_mut().zip(value.iter().zip(&slope)) {
            *z = F::curvature(p, Lane::<f32, FMA>(*z), Lane(value), Lane(slope)).0;
        }
        laplacian.iter_mut().zip(&slope).for_each(|(l, s)| *l *= s);
        for g in gradient {
            for (((g, s), c), l) in g.iter_mut().zip(&slope).zip(&curvature).zip(laplacian.iter_mut()) {
                *l += c * *g * *g;
                *g *= s;
            }
        }
    }
}
