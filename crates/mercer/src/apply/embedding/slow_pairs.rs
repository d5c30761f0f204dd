//! The slow functions of a random walk on a sparse graph: block Krylov iteration on the heat that the walk conducts.

use crate::compute::Device;
use crate::linalg::{eigh, matmul, orthonormal_basis};
use crate::operator::{Heat, Operator, RandomWalk};
use crate::rng::Rng;
use crate::spectrum::{Eigenvectors, Krylov, Method, Problem};
use crate::{FitContext, Result};
use ndarray::{Array2, ArrayView2, Axis, aview1};

/// The heat of the fastest function that is wanted has fallen to `e^{−8}` of the constant function's: far above rounding, and
/// far enough below the slower ones' to tell them apart.
const DECAY: f64 = 8.0;

/// Longest time of the heat operator; a product with it takes about `9√t` products with the walk.
const LONGEST: f64 = 16384.0;

/// Vectors beyond the k that are wanted.
const SPARE: usize = 8;

/// The `k` largest pairs of the walk S on a sparse graph, whose eigenvalues may crowd towards one and may be negative. A Krylov
/// method would take hundreds of steps between neighbours such as 0.9999 and 0.9998, so it is given `exp(−t(I − S))`, which
/// spreads them.
pub(crate) fn slow_pairs(walk: &RandomWalk, k: usize, tolerance: f64, context: &FitContext) -> Result<Eigenvectors> {
    let heat = Heat::new(walk, diffusion_time(walk, k, context)?);
    let krylov = Krylov::to(tolerance * 1e-2);
    let found = krylov.eigenvectors(&Problem { operator: &heat, k, context: *context })?;
    let _keeps = context.keeps_best();
    let (values, vectors, residual) = rayleigh_ritz(walk, found.vectors.view())?;
    let notes = if residual > tolerance { vec![unconverged(residual, tolerance, context)] } else { vec![] };
    Ok(Eigenvectors { values, vectors, notes })
}

/// The warning where the residual that was reached is above the one asked for.
fn unconverged(residual: f64, tolerance: f64, context: &FitContext) -> String {
    let why = if context.interrupted() { "was interrupted" } else { "ended" };
    format!(
        "the Krylov iteration on the graph {why} at a residual of {residual:.1e}, above the {tolerance:.0e} asked for; ask for fewer \
         coordinates, or more neighbours"
    )
}

/// The time t with `t(1 − λ_k)` between a half of [`DECAY`] and all of it.
///
/// λ_k is not known, but each Rayleigh–Ritz value is a lower bound of it. t doubles for as long as the bound allows;
/// heat for that time brings the vectors nearer to the slow functions, and the bound nearer to λ_k.
fn diffusion_time(walk: &RandomWalk, k: usize, context: &FitContext) -> Result<f64> {
    let mut rng = Rng::new(context.seed).fork(0x6865_6174);
    let mut v = Array2::from_shape_simple_fn((walk.n(), (k + SPARE).min(walk.n())), || rng.normal());
    let mut t = 1.0;
    loop {
        context.progress.step(&format!("diffusion for {t} steps"), 0, 1, "");
        v = orthonormal_basis(Heat::new(walk, t).apply(v.view())?)?;
        let (bounds, ..) = rayleigh_ritz(walk, v.view())?;
        let bound = bounds.get(k - 1).or(bounds.last()).copied().unwrap_or(0.0);
        if t >= LONGEST || 2.0 * t * (1.0 - bound) > DECAY {
            return Ok(t);
        }
        t *= 2.0;
    }
}

/// The pairs of the walk in the span of the orthonormal `v` `[n, b]`, and the largest of their residuals `‖Su − λu‖`.
fn rayleigh_ritz(walk: &RandomWalk, v: ArrayView2<f64>) -> Result<(Vec<f64>, Array2<f64>, f64)> {
    let image = walk.apply(v)?;
    let projected = matmul(v.t(), image.view());
    let (values, rotation) = eigh(Device::Cpu, ((&projected + &projected.t()) * 0.5).view())?;
    let u = matmul(v, rotation.view());
    let residual = matmul(image.view(), rotation.view()) - &u * &aview1(&values);
    let worst = residual.map_axis(Axis(0), |r| r.dot(&r).sqrt()).fold(0.0, |m, &r| r.max(m));
    Ok((values, u, worst))
}

/// Bytes of the vectors that a product with the heat operator has in memory.
pub(crate) fn heat_bytes(n: usize, k: usize) -> u64 {
    // The series so far, three terms of the recurrence, and what the walk makes of the last.
    7 * 8 * n as u64 * (k + SPARE) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::NeighbourGraph;
    use crate::spectrum::Exact;

    /// The pairs are those of the dense matrix in double precision.
    fn agrees(x: Array2<f64>, neighbours: usize, k: usize) {
        let graph = NeighbourGraph::new(x.view(), neighbours);
        let (walk, context) = (RandomWalk::new(&graph, 0.0).unwrap(), FitContext::default());
        let dense = Exact.eigenvectors(&Problem { operator: &walk, k, context }).unwrap();
        let (exact, w) = (dense.values, dense.vectors);
        let Eigenvectors { values: found, vectors: u, notes } = slow_pairs(&walk, k, 1e-6, &context).unwrap();
        assert!(notes.is_empty(), "{notes:?}");
        for (j, (found, exact)) in found.iter().zip(&exact).enumerate() {
            assert!((found - exact).abs() < 1e-10, "{j}: {found} {exact}");
            // No eigenvalue is repeated here, so that the vectors agree up to their sign.
            assert!((u.column(j).dot(&w.column(j)).abs() - 1.0).abs() < 1e-6, "{j}");
        }
    }

    /// Points `[n, d]`, normal in all directions: in many dimensions the walk forgets its start in a few steps.
    fn normal(n: usize, d: usize) -> Array2<f64> {
        Rng::new(3).normals((n, d))
    }

    #[test]
    fn pairs_of_normal_points_are_those_of_the_dense_walk() {
        agrees(normal(1000, 20), 10, 2);
        agrees(normal(700, 50), 5, 6);
    }

    #[test]
    fn pairs_of_a_square_are_those_of_the_dense_walk() {
        let mut rng = Rng::new(3);
        agrees(Array2::from_shape_simple_fn((700, 2), || rng.uniform()), 8, 5);
    }

    #[test]
    fn pieces_and_long_chains_are_found() {
        // A closed chain of n points has the eigenvalues cos(2πj/n), twice each.
        let n = 2000;
        let angle = |i: usize| std::f64::consts::TAU * i as f64 / n as f64;
        let ring = Array2::from_shape_fn((n, 2), |(i, j)| if j == 0 { angle(i).cos() } else { angle(i).sin() });
        let (graph, context) = (NeighbourGraph::new(ring.view(), 2), FitContext::default());
        let found = slow_pairs(&RandomWalk::new(&graph, 0.0).unwrap(), 4, 1e-6, &context).unwrap().values;
        for (found, j) in found.iter().zip([1, 1, 2, 2]) {
            assert!((found - angle(j).cos()).abs() < 1e-12, "{found} {}", angle(j).cos());
        }
        // Three clusters that no edge joins: the eigenvalue 1 twice.
        let mut far = normal(900, 3);
        far.indexed_iter_mut().for_each(|((i, _), v)| *v += 1e3 * (i / 300) as f64);
        let graph = NeighbourGraph::new(far.view(), 6);
        let found = slow_pairs(&RandomWalk::new(&graph, 0.0).unwrap(), 3, 1e-6, &context).unwrap().values;
        assert!(found[..2].iter().all(|λ| (λ - 1.0).abs() < 1e-12) && found[2] < 0.999, "{found:?}");
    }
}
