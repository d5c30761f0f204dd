//! Between tensors `[k, B, c]` of values of k functions and matrices `[k, k]`.

use super::{Small, View};
use crate::Result;
use crate::compute::control::{Control, NonFinite};
use crate::compute::cuda::{args, small as cuda};
use crate::compute::gemm::{Store, gemm};
use crate::compute::tensor::Tensor;
use ndarray::Array2;
use std::ops::Range;

/// Functions k and values m of each, of a tensor `[k, …]`.
fn extents(t: &Tensor) -> [usize; 2] {
    let k = t.shape()[0];
    [k, t.len() / k.max(1)]
}

/// `out_ij ← ⟨a_i,b_j⟩`, the mean of the products over the values in `part`; `a`, `b` `[k, m]` with `m = B·c`, `out`
/// `[k, k]`. The products are summed in `f32`.
pub fn form(a: &Tensor, b: &Tensor, part: Range<usize>, out: &mut Small) -> Result<()> {
    let [k, m] = extents(a);
    assert!(b.len() == a.len() && b.shape()[0] == k && part.end <= m, "form of {:?}, {:?}", a.shape(), b.shape());
    out.expect([k, k]);
    if let Some(gpu) = out.gpu() {
        return cuda::form(gpu, a, b, part, out);
    }
    let mut product = Tensor::zeros(a.device(), &[k, k])?;
    let whole = part.len() == m;
    // Zeros outside of the part, so that all parts are summed in the same order.
    let parts = if whole { None } else { Some([masked(a, &part)?, masked(b, &part)?]) };
    let [left, right] = parts.as_ref().map_or([a, b], |[left, right]| [left, right]);
    let (left, right) = (left.matrices(0, 0, k, m), right.matrices(0, 0, k, m));
    gemm(1.0 / m as f32, left, right.t(), Store::Replace, product.stack_mut());
    let values = product.host().iter().copied().map(f64::from).collect();
    let mean = Array2::from_shape_vec((k, k), values).expect("k² values");
    out.set(if whole { mean } else { mean * (m as f64 / part.len() as f64) });
    Ok(())
}

/// `C_ij ← ⟨a_i,a_j⟩` and `R_ij ← ⟨a_i,b_j⟩` over all values, which must be finite: otherwise [`NonFinite::Output`] or
/// [`NonFinite::Image`] is noted. `a`, `b` `[k, m]`, `C`, `R` `[k, k]`. On a GPU this takes fewer kernels than two forms.
pub fn forms(a: &Tensor, b: &Tensor, control: &mut Control, c: &mut Small, r: &mut Small) -> Result<()> {
    let all = 0..extents(a)[1];
    if let Some(gpu) = a.gpu() {
        assert!(b.shape() == a.shape(), "forms of {:?} and {:?}", a.shape(), b.shape());
        c.expect([a.shape()[0]; 2]);
        r.expect([a.shape()[0]; 2]);
        return cuda::forms(gpu, a, b, control, c, r);
    }
    form(a, a, all.clone(), c)?;
    form(a, b, all, r)?;
    control.check_finite([(c, NonFinite::Output), (r, NonFinite::Image)]);
    Ok(())
}

/// `out_j ← Σ_i M_ji t_i` at the values in `part`, or that added, with M rounded to `f32`; `M` `[k, k]`, `t`, `out` `[k, m]`.
pub fn mix<'a>(
    matrix: impl Into<View<'a>>,
    t: &Tensor,
    part: Range<usize>,
    store: Store,
    out: &mut Tensor,
) -> Result<()> {
    let (matrix, [k, m]) = (matrix.into(), extents(t));
    assert!(matrix.shape() == [k, k] && part.end <= m, "mix of {:?} by {:?}", t.shape(), matrix.shape());
    out.reshape(t.shape())?;
    if let Some(gpu) = out.gpu() {
        return cuda::mix(gpu, matrix, t, part, store, out);
    }
    let rounded: Vec<f32> = matrix.host().iter().map(|v| (v * matrix.scale) as f32).collect();
    let rounded = Tensor::from_host(t.device(), &[k, k], &rounded)?;
    if part.len() == m {
        gemm(1.0, rounded.stack(), t.matrices(0, 0, k, m), store, out.matrices_mut(0, 0, 1, k, m));
        return Ok(());
    }
    let (from, mut to) = (columns(t, &part)?, columns(out, &part)?);
    gemm(1.0, rounded.stack(), from.stack(), store, to.stack_mut());
    for (row, new) in out.host_mut().chunks_exact_mut(m).zip(to.host().chunks_exact(part.len().max(1))) {
        row[part.clone()].copy_from_slice(new);
    }
    Ok(())
}

/// `t` `[k, m]` in host memory with zeros outside of `part`.
fn masked(t: &Tensor, part: &Range<usize>) -> Result<Tensor> {
    let [_, m] = extents(t);
    let mut out = Tensor::zeros(t.device(), t.shape())?;
    for (out, row) in out.host_mut().chunks_exact_mut(m).zip(t.host().chunks_exact(m)) {
        out[part.clone()].copy_from_slice(&row[part.clone()]);
    }
    Ok(out)
}

/// The values `part` of each function, `[k, part]`, in host memory.
fn columns(t: &Tensor, part: &Range<usize>) -> Result<Tensor> {
    let [k, m] = extents(t);
    let values: Vec<f32> = t.host().chunks_exact(m.max(1)).flat_map(|row| &row[part.clone()]).copied().collect();
    Tensor::from_host(t.device(), &[k, part.len()], &values)
}

/// `out_ib ← G_b t_ib`, where `G_b` is the block of point b with itself: from the diagonal of `gram` `[B, B]`, or a block of
/// `gram` `[B, c, c]`; `t`, `out` `[k, B, c]`.
pub fn weigh(gram: &Tensor, t: &Tensor, out: &mut Tensor) -> Result<()> {
    let (b, c) = (t.shape()[1], t.shape()[2]);
    let stride = match *gram.shape() {
        [rows, columns] if rows == b && columns == b && c == 1 => b + 1,
        [blocks, rows, columns] if [blocks, rows, columns] == [b, c, c] => c * c,
        _ => panic!("weigh of {:?} by {:?}", t.shape(), gram.shape()),
    };
    out.reshape(t.shape())?;
    if let Some(gpu) = out.gpu() {
        cuda::over(gpu, "weigh", t.len(), &args![t.len(), b, c, stride, gram, t, out]);
        return Ok(());
    }
    let (gram, t) = (gram.host(), t.host());
    for (i, out) in out.host_mut().iter_mut().enumerate() {
        let (point, row) = (i / c, i % c);
        let weights = &gram[point % b * stride + row * c..][..c];
        *out = weights.iter().zip(&t[point * c..][..c]).map(|(g, t)| g * t).sum();
    }
    Ok(())
}

/// `out_iq ← out_iq + Σ_b M_bi t_biq`, with M rounded to `f32` and then multiplied by its factor; `M` `[k, k]`, `t` `[k, P]`,
/// `out` `[P]`, and `i` counts the k parts of the P numbers.
pub fn add_rows<'a>(matrix: impl Into<View<'a>>, t: &Tensor, out: &mut Tensor) -> Result<()> {
    let (matrix, [k, length]) = (matrix.into(), extents(t));
    assert!(
        matrix.shape() == [k, k] && out.len() == length && length.is_multiple_of(k.max(1)),
        "add_rows of {:?} by {:?} to {:?}",
        t.shape(),
        matrix.shape(),
        out.shape()
    );
    if let Some(gpu) = out.gpu() {
        let (own, scale) = (length / k.max(1), matrix.scale as f32);
        let arguments = args![own, k, scale, matrix.transposed, matrix.matrix, t, out];
        cuda::over(gpu, "add_rows", length, &arguments);
        return Ok(());
    }
    let own = length / k.max(1);
    for (b, row) in matrix.host().rows().into_iter().enumerate() {
        let row: Vec<f32> = row.iter().map(|v| matrix.scale as f32 * *v as f32).collect();
        let row = Tensor::from_host(t.device(), &[k, 1, 1], &row)?;
        let part = t.matrices(b * length, own, 1, own);
        gemm(1.0, row.matrices(0, 1, 1, 1), part, Store::Add, out.matrices_mut(0, own, k, 1, own));
    }
    Ok(())
}
