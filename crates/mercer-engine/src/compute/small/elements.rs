//! Entry by entry.

use super::{Small, Vector, View};
use crate::compute::Tensor;
use crate::compute::cuda::{Arg, args, small as cuda};
use crate::compute::gemm::Store;

/// `out ← A ∘ B`, the product entry by entry; all `[m, n]`.
pub fn multiply(a: &Small, b: &Small, out: &mut Small) {
    b.expect(a.shape());
    out.expect(a.shape());
    match out.gpu() {
        Some(gpu) => cuda::over(gpu, "multiply", a.len(), &args![a.len(), a, b, out]),
        None => out.set(a.host() * b.host()),
    }
}

/// `out_i ← a_i/b_i`, zero where `b_i ≤ 0`; `a`, `b` `[n]`, `out` `[1, n]`.
pub fn divide(a: Vector<'_>, b: Vector<'_>, out: &mut Small) {
    assert_eq!(a.len, b.len, "a quotient of vectors of different lengths");
    out.expect([1, a.len]);
    if let Some(gpu) = out.gpu() {
        let arguments = args![a.len, a.address(), a.stride, b.address(), b.stride, out];
        return cuda::over(gpu, "divide", a.len, &arguments);
    }
    let quotient = |(a, b): (&f64, &f64)| if *b > 0.0 { a / b } else { 0.0 };
    let row: ndarray::Array1<f64> = a.host().iter().zip(b.host()).map(quotient).collect();
    out.set(row.insert_axis(ndarray::Axis(0)));
}

/// How far deviations are from one: `value_i ← max(0, 1 − √(v_i + ε))` for variances v `[n]`, and its derivative by `v_i` on the
/// diagonal of `slope`; `value` `[1, n]`, `slope` `[n, n]`.
pub fn hinge(v: Vector<'_>, epsilon: f64, value: &mut Small, slope: &mut Small) {
    value.expect([1, v.len]);
    slope.expect([v.len, v.len]);
    if let Some(gpu) = value.gpu() {
        let arguments = args![v.len, v.address(), v.stride, epsilon, value, slope];
        return cuda::over(gpu, "hinge", v.len * v.len, &arguments);
    }
    let deviation: Vec<f64> = v.host().iter().map(|v| (v.max(0.0) + epsilon).sqrt()).collect();
    value.set(ndarray::Array2::from_shape_fn((1, v.len), |(_, i)| (1.0 - deviation[i]).max(0.0)));
    let own = |i: usize| if deviation[i] < 1.0 { -0.5 / deviation[i] } else { 0.0 };
    slope.set(ndarray::Array2::from_shape_fn((v.len, v.len), |(i, j)| if i == j { own(i) } else { 0.0 }));
}

/// `out ← α Σ_ij A_ij B_ij`, or that added, with α the product of the factors of both; `out` `[1, 1]`.
pub fn inner<'a>(a: impl Into<View<'a>>, b: impl Into<View<'a>>, store: Store, out: &mut Small) {
    let (a, b) = (a.into(), b.into());
    assert_eq!(a.shape(), b.shape(), "an inner product of matrices of different shapes");
    out.expect([1, 1]);
    match out.gpu() {
        Some(gpu) => {
            let [m, n] = a.matrix.shape();
            let (factor, crossed) = (a.scale * b.scale, a.transposed != b.transposed);
            let sizes = [m, n].map(Arg::size);
            let arguments = args![sizes, factor, a.matrix, b.matrix, crossed, store == Store::Add, out];
            cuda::one_block(gpu, "inner", m.max(n), &arguments);
        }
        None => put(a.scale * b.scale * (&a.host() * &b.host()).sum(), store, out),
    }
}

/// `out ← α Σ_i v_i`, or that added; `out` `[1, 1]`.
pub fn sum(alpha: f64, v: Vector<'_>, store: Store, out: &mut Small) {
    out.expect([1, 1]);
    match out.gpu() {
        Some(gpu) => {
            let arguments = args![Arg::size(v.len), alpha, cuda::vector(v), store == Store::Add, out];
            cuda::one_block(gpu, "sum", 1, &arguments);
        }
        None => put(alpha * v.host().iter().sum::<f64>(), store, out),
    }
}

fn put(value: f64, store: Store, out: &mut Small) {
    let old = if store == Store::Add { out.host()[[0, 0]] } else { 0.0 };
    let value = if store == Store::Add { old + value } else { value };
    out.set(ndarray::array![[value]]);
}

/// The unbiased estimate, from B of n points, of `(1/n²) Σ_ab f_i(x_a) κ(x_a,x_b) f_j(x_b)` over all n:
/// `out ← (1 − 1/n) (R − D) B/(B−1) + D B/n`, where R is its value on the batch and `D = own · at_0/size` is the part of
/// R from pairs of a point with itself. Without `at`, `D = own/size`. With `B < 2` it is R. All `[k, k]`.
pub fn without_bias(
    r: &Small,
    own: &Small,
    at: Option<&Tensor>,
    size: f64,
    [batch, points]: [usize; 2],
    out: &mut Small,
) {
    own.expect(r.shape());
    out.expect(r.shape());
    let (b, n) = (batch as f64, points as f64);
    let shares = if batch < 2 { [1.0, 1.0] } else { [(1.0 - 1.0 / n) * b / (b - 1.0), b / n] };
    if let Some(gpu) = out.gpu() {
        // With equal shares D cancels; it is left out because it may not be finite.
        let own = if batch > 1 { own.address() } else { 0 };
        return cuda::over(gpu, "without_bias", r.len(), &args![r.len(), r, own, at, size, shares, out]);
    }
    if batch < 2 {
        return out.set(r.host().clone());
    }
    let own = match at {
        Some(at) => own.host() * f64::from(at.host()[0]) / size,
        None => own.host() / size,
    };
    out.set((r.host() - &own) * shares[0] + own * shares[1]);
}
