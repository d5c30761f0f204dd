//! Broadcasting a shared tensor to all networks, and its adjoint.

use super::cuda::images as cuda;
use super::gemm::Store;
use super::tensor::{Stack, Tensor};

/// `y_j ← x_j`, or `y_j ← y_j + x_j` with [`Store::Add`]; a shared x is broadcast to all networks. `x` `[k, m, n]` or `[m, n]`, `y` `[k, m, n]`.
pub fn spread(x: Stack<'_>, store: Store, y: &mut Tensor) {
    let (_, m, n) = y.as_matrices();
    assert!(x.rows == m && x.cols == n, "spread of [{}, {}] over {:?}", x.rows, x.cols, y.shape());
    if let Some(gpu) = y.gpu() {
        return cuda::spread(gpu, x, store, y);
    }
    for (j, y) in y.host_mut().chunks_exact_mut((m * n).max(1)).enumerate() {
        match store {
            Store::Replace => y.copy_from_slice(x.host(j)),
            Store::Add => y.iter_mut().zip(x.host(j)).for_each(|(y, x)| *y += x),
        }
    }
}

/// The adjoint of [`spread`]: `dx_j ← g_j`, or `dx ← Σ_j g_j` if dx is shared; [`Store::Add`] adds to dx.
/// `g` `[k, m, n]`, `dx` `[k, m, n]` or `[m, n]`.
pub fn collect(g: &Tensor, store: Store, dx: &mut Tensor) {
    let size = dx.len().max(1);
    assert!(g.len().is_multiple_of(size), "collect of {:?} into {:?}", g.shape(), dx.shape());
    if let Some(gpu) = g.gpu() {
        return cuda::collect(gpu, g, store, dx);
    }
    let dx = dx.host_mut();
    for (j, g) in g.host().chunks_exact(size).enumerate() {
        if j == 0 && store == Store::Replace {
            dx.copy_from_slice(g);
        } else {
            dx.iter_mut().zip(g).for_each(|(dx, g)| *dx += g);
        }
    }
}
