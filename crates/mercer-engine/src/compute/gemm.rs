//! Matrix products of stacks, and the dense layer (product, bias, activation).

use super::activation::{apply_rows, bias_activation, for_each_block};
use super::cuda::primitives as cuda;
use super::formula::Activation;
use super::parallel::{ROWS, blocks, for_each};
use super::stack::{Stack, StackMut};
use super::tensor::{Tensor, on_gpu};
use crate::dense;
use faer::linalg::matmul::matmul;
use faer::{MatMut, MatRef, Par};
use ndarray::{ArrayView2, ArrayViewMut2, ShapeBuilder};

/// Whether a result replaces the old values or is added to them.
pub use faer::Accum as Store;

/// `C_j = α A_j B_j`, or `C_j += α A_j B_j`, for each matrix of the stack.
///
/// An operand of stride 0 is shared by the stack. A result that is [`StackMut::sum_of`] the stack is summed in a fixed order.
pub fn gemm(alpha: f32, a: Stack<'_>, b: Stack<'_>, store: Store, mut c: StackMut<'_>) {
    let (m, p, n, count, terms) = (a.rows(), a.cols(), b.cols(), c.count, c.terms);
    assert!(b.rows() == p && c.rows == m && c.cols == n, "gemm of {a} and {b} into {c}");
    [a, b].iter().for_each(|stack| stack.check(c.networks()));
    on_gpu!(c.tensor, |gpu| cuda::gemm(gpu, alpha, a, b, store, &mut c));
    if count > 1 && n == 1 && a.is_shared() && !b.is_shared() {
        // k vectors times one matrix are one product: row j of C is (A b_j)ᵀ = b_jᵀ Aᵀ.
        let shape = (count, m).strides((c.stride, 1));
        let rows = ArrayViewMut2::from_shape(shape, c.host_mut()).expect("the matrices do not overlap");
        multiply(alpha, vec![rows], 1, |_| vectors(b, count), |_| view(a, 0).transpose(), store);
        return;
    }
    let matrix = |c| ArrayViewMut2::from_shape((m, n), c).expect("m·n elements");
    let results = c.host_matrices().map(matrix).collect();
    if terms > 1 && p == 1 && !a.is_shared() && !b.is_shared() {
        // A sum of k outer products is one product: C = Σ_j a_j b_jᵀ.
        multiply(alpha, results, 1, |_| vectors(a, terms).transpose(), |_| vectors(b, terms), store);
    } else {
        multiply(alpha, results, terms, |j| view(a, j), |j| view(b, j), store);
    }
}

/// `C_i = α Σ_j A_j B_j`, or that added, where `terms` products belong to each result; block by block, in parallel.
fn multiply<'a>(
    alpha: f32,
    results: Vec<ArrayViewMut2<'_, f32>>,
    terms: usize,
    a: impl Fn(usize) -> MatRef<'a, f32> + Sync + Send,
    b: impl Fn(usize) -> MatRef<'a, f32> + Sync + Send,
    store: Store,
) {
    let Some((m, n)) = results.first().map(|c| c.dim()) else { return };
    let p = a(0).ncols();
    let (size, work) = (block_size(m, p, n), 2 * results.len() * terms * m * p * n);
    let tasks = results.into_iter().enumerate();
    let tasks = tasks.flat_map(|(i, c)| blocks(c, size).into_iter().map(move |(rows, cols, c)| (i, rows, cols, c)));
    for_each(tasks, work, |(i, rows, cols, c)| {
        let mut out = dense::view_mut(c);
        for term in 0..terms {
            let a = a(i + term).subrows(rows.start, rows.len());
            let b = b(i + term).subcols(cols.start, cols.len());
            let store = if term == 0 { store } else { Store::Add };
            matmul(out.as_mut(), store, a, b, alpha, Par::Seq);
        }
    });
}

/// Rows and columns of C that one task computes. They depend on the shape alone, never on the number of threads.
fn block_size(m: usize, p: usize, n: usize) -> [usize; 2] {
    if m <= 64 {
        [m.max(1), ROWS]
    } else if p * n <= CACHED {
        [ROWS, n.max(1)]
    } else {
        [LARGE, LARGE]
    }
}

/// Largest right operand (in elements) that stays in a core's cache while the row blocks are multiplied with it.
const CACHED: usize = 1 << 18;

/// Side of a block of a large product. faer packs both operands again for each block, so blocks must be large.
const LARGE: usize = 512;

/// A dense layer in one pass: `y_j = φ(x_j W_j + b_j)` and optionally the slopes `φ'(x_j W_j + b_j)`.
///
/// `x` `[k, rows, in]` or shared, `w` `[k, in, out]`, `bias` `[k, 1, out]`, `y` and `slope` `[k, rows, out]`.
pub fn dense(
    x: Stack<'_>,
    w: Stack<'_>,
    bias: Option<Stack<'_>>,
    phi: Activation,
    y: &mut Tensor,
    slope: Option<&mut Tensor>,
) {
    let (count, m, n) = y.as_matrices();
    let p = x.cols();
    assert!(x.rows() == m && w.rows() == p && w.cols() == n, "dense: x {x}, w {w}, y {y}");
    assert!(bias.is_none_or(|b| b.rows * b.cols == n), "dense: the bias does not have {n} elements");
    assert!(slope.as_ref().is_none_or(|s| s.len() == count * m * n), "dense: slope and y differ in shape");
    [Some(x), Some(w), bias].iter().flatten().for_each(|stack| stack.check(count));
    if y.gpu().is_some() || n == 1 && x.is_shared() && count > 1 {
        // On the CPU this case is one product for all networks, see `gemm`.
        gemm(1.0, x, w, Store::Replace, y.stack_mut());
        return bias_activation(bias, phi, y, slope);
    }
    let rows = if p * n <= CACHED { ROWS } else { LARGE };
    for_each_block(y, slope, rows, count * m * n * (2 * p + 20), |j, range, y, slope| {
        let block = MatMut::from_row_major_slice_mut(&mut *y, range.len(), n);
        matmul(block, Store::Replace, view(x, j).subrows(range.start, range.len()), view(w, j), 1.0, Par::Seq);
        apply_rows(phi, bias.map(|b| b.host(j)), n, y, slope);
    });
}

/// Matrix `j` of a stack as a faer view.
fn view<'a>(stack: Stack<'a>, j: usize) -> MatRef<'a, f32> {
    let matrix = MatRef::from_row_major_slice(stack.host(j), stack.rows, stack.cols);
    if stack.transposed { matrix.transpose() } else { matrix }
}

/// The first `count` vectors of a stack as the rows of one matrix.
fn vectors(stack: Stack<'_>, count: usize) -> MatRef<'_, f32> {
    let len = stack.rows * stack.cols;
    let data = &stack.tensor.host()[stack.offset..stack.offset + (count - 1) * stack.stride + len];
    dense::view(ArrayView2::from_shape((count, len).strides((stack.stride, 1)), data).expect("`data` holds all rows"))
}

#[cfg(test)]
mod tests {
    use super::super::Device;
    use super::*;
    use crate::rng::Rng;

    fn random(shape: &[usize], rng: &mut Rng) -> Tensor {
        let data: Vec<f32> = (0..shape.iter().product()).map(|_| rng.normal() as f32).collect();
        Tensor::from_host(Device::Cpu, shape, &data).unwrap()
    }

    /// Entry (i, l) of matrix j.
    fn entry(s: Stack<'_>, j: usize, i: usize, l: usize) -> f64 {
        f64::from(s.host(j)[i * s.cols + l])
    }

    #[test]
    fn gemm_agrees_with_the_triple_loop_and_writes_nothing_else() {
        let mut rng = Rng::new(1);
        // The last two are k vectors times one matrix, and a sum of k outer products.
        for (k, m, p, n, share, sum) in [
            (1, 1, 1, 1, false, false),
            (3, 300, 5, 7, false, false),
            (4, 130, 33, 129, false, false),
            (1, 3, 0, 2, false, false),
            (5, 200, 9, 1, true, false),
            (5, 200, 1, 9, false, true),
        ] {
            let a = random(&[if share { 1 } else { k }, m, p], &mut rng);
            let flat = random(&[k * (p * n + 3)], &mut rng);
            let (a, b) = (a.stack(), flat.matrices(2, p * n + 3, p, n));
            // Each result lies between 4 and 3 numbers that must not change.
            let terms = if sum { k } else { 1 };
            let old = random(&[k * (m * n + 7)], &mut rng);
            for store in [Store::Replace, Store::Add] {
                let mut flat = old.clone();
                let c = flat.matrices_mut(4, m * n + 7, k / terms, m, n);
                gemm(0.5, a, b, store, if sum { c.sum_of(k) } else { c });
                for (i, (&got, &old)) in flat.host().iter().zip(old.host()).enumerate() {
                    let (j, at) = (i / (m * n + 7), (i % (m * n + 7)).wrapping_sub(4));
                    if at >= m * n || sum && j > 0 {
                        assert_eq!(got, old, "{k} {m} {p} {n}: element {i}");
                        continue;
                    }
                    let term = |j, q| entry(a, j, at / n, q) * entry(b, j, q, at % n);
                    let before = if store == Store::Add { f64::from(old) } else { 0.0 };
                    let product = (j..j + terms).flat_map(|j| (0..p).map(move |q| term(j, q))).sum::<f64>();
                    let want = before + 0.5 * product;
                    assert!((f64::from(got) - want).abs() < 1e-5 * (1.0 + p as f64), "{k} {m} {p} {n}: {got} {want}");
                }
            }
        }
    }
}
