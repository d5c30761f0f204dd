//! Triangular factors, and what is solved with them.

use super::{Small, allocate};
use crate::Result;
use crate::compute::control::{Control, NonFinite};
use crate::compute::cuda::{Arg, args, small as cuda};
use crate::dense::{self, Cholesky};
use ndarray::{Array2, ArrayView2, ShapeBuilder};

/// Unit lower triangular `M` from symmetric `R` `[k, k]`: `M_ji = −R_ij/R_ii` for `i < j`. Columns with
/// `R_ii ≤ tiny · max_l R_ll` are zero below the diagonal.
pub fn quotients(r: &Small, tiny: f64, out: &mut Small) {
    let k = r.order();
    out.expect([k, k]);
    if let Some(gpu) = out.gpu() {
        return cuda::one_block(gpu, "quotients", k, &args![Arg::size(k), tiny, r, out]);
    }
    let (r, least) = (r.host(), least(r.host(), tiny));
    out.set(Array2::from_shape_fn(r.dim(), |(j, i)| match i.cmp(&j) {
        std::cmp::Ordering::Equal => 1.0,
        std::cmp::Ordering::Less if r[[i, i]] > least => -r[[i, j]] / r[[i, i]],
        _ => 0.0,
    }));
}

/// `tiny · max_i R_ii`
fn least(r: &Array2<f64>, tiny: f64) -> f64 {
    tiny * r.diag().iter().fold(0.0f64, |a, b| a.max(*b))
}

/// `M = L⁻¹` for symmetric `R = LDLᵀ` `[k, k]`, L unit lower triangular. Pivots `D_ii ≤ tiny · max_l R_ll` are skipped.
pub fn inverse_unit_lower(r: &Small, tiny: f64, out: &mut Small) -> Result<()> {
    let k = r.order();
    out.expect([k, k]);
    if let Some(gpu) = out.gpu() {
        let image = allocate(gpu, k)?;
        cuda::one_block(gpu, "inverse_unit_lower", k, &args![Arg::size(k), tiny, r, out, image]);
        return Ok(());
    }
    let (r, least) = (r.host(), least(r.host(), tiny));
    let mut m = Array2::<f64>::eye(k);
    for i in 0..k {
        // image_j = (M R)_ij, and D_ii = image_i.
        let (row, image) = (m.row(i).to_owned(), m.row(i).dot(r));
        if image[i] > least {
            for j in i + 1..k {
                m.row_mut(j).scaled_add(-image[j] / image[i], &row);
            }
        }
    }
    out.set(m);
    Ok(())
}

/// The lower Cholesky factor `L` of symmetric `A + εI = LLᵀ` `[k, k]`, with ε from `1e-7 · Tr A/k` on, ten times larger
/// until there is one. Where there is none, [`NonFinite::Problem`] is noted. Entries above the diagonal are unspecified.
pub fn cholesky(a: &Small, control: &mut Control, l: &mut Small) -> Result<()> {
    let k = a.order();
    l.expect([k, k]);
    if let Some(gpu) = l.gpu() {
        cuda::one_block(gpu, "cholesky", k, &args![Arg::size(k), a, control, l]);
        return Ok(());
    }
    if control.failed() {
        return Ok(());
    }
    match with_jitter(a.host()) {
        Ok(factor) => {
            let lower = factor.lower();
            l.set(Array2::from_shape_fn((k, k).f(), |(i, j)| if j <= i { lower[(i, j)] } else { 0.0 }));
        }
        Err(_) => control.note(NonFinite::Problem),
    }
    Ok(())
}

fn with_jitter(a: &Array2<f64>) -> Result<Cholesky<f64>> {
    let size = (a.diag().sum() / a.nrows() as f64).max(f64::MIN_POSITIVE);
    let mut jitter = 1e-7 * size;
    loop {
        let factor = Cholesky::new((a + Array2::<f64>::eye(a.nrows()) * jitter).view());
        if factor.is_ok() || jitter > size || !jitter.is_finite() {
            return factor;
        }
        jitter *= 10.0;
    }
}

/// `out ← L⁻¹ (A + Aᵀ)/2 L⁻ᵀ` for lower triangular `L`; all `[k, k]`.
pub fn congruence(l: &Small, a: &Small, out: &mut Small) -> Result<()> {
    let k = l.order();
    a.expect([k, k]);
    out.expect([k, k]);
    if let Some(gpu) = out.gpu() {
        let half = allocate(gpu, k * k)?;
        cuda::one_block(gpu, "congruence", k, &args![Arg::size(k), l, a, half, out]);
        return Ok(());
    }
    let mut half = (a.host() + &a.host().t()) * 0.5;
    dense::solve_lower(lower(l), half.view_mut());
    let mut whole = half.t().to_owned();
    dense::solve_lower(lower(l), whole.view_mut());
    out.set(whole);
    Ok(())
}

/// `out ← L⁻ᵀ triu(X) diag(L)⁻¹` for lower triangular `L`, where `triu` keeps the diagonal and above; all `[k, k]`.
pub fn solve_upper(l: &Small, x: &Small, out: &mut Small) {
    let k = l.order();
    x.expect([k, k]);
    out.expect([k, k]);
    if let Some(gpu) = out.gpu() {
        return cuda::one_block(gpu, "solve_upper", k, &args![Arg::size(k), l, x, out]);
    }
    let (x, diagonal) = (x.host(), l.host().diag());
    let mut scaled = Array2::from_shape_fn((k, k), |(j, i)| if j <= i { x[[j, i]] / diagonal[i] } else { 0.0 });
    dense::solve_lower_transposed(lower(l), scaled.view_mut());
    out.set(scaled);
}

fn lower(l: &Small) -> faer::MatRef<'_, f64> {
    let view: ArrayView2<'_, f64> = l.host().view();
    dense::view(view)
}
