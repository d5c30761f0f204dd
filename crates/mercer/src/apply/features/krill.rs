//! KRILL: a preconditioner for regression on landmarks from a sketch of all rows.

use crate::apply::features::landmark_design::Design;
use crate::linalg::{Cholesky, matmul};
use crate::rng::Rng;
use crate::{FitContext, Result};
use ndarray::{Array2, ArrayView2, Axis};
use rayon::prelude::*;

/// Rows of the sketch, times the number of landmarks.
const ROWS: usize = 2;

/// Non-zero entries in each column of the sketching matrix.
const ENTRIES: usize = 8;

/// The factor of `(SΦ̃)ᵀ(SΦ̃) + αI`, `Φ̃ = √W Φ`, the preconditioner of `Φ̃ᵀΦ̃ + αI` of KRILL (Díaz, Epperly, Frangella, Tropp and Webber, 2023): S
/// `[2M, n]` is a sparse sign embedding, with eight entries ±1/√8 at random places of each column. It sees every row, so that the condition number
/// is bounded whatever the rows are like; a sample of rows misses the rare ones.
pub(crate) fn krill(design: &Design, alpha: f64, context: &FitContext) -> Result<Cholesky<f64>> {
    let (m, seed) = (design.map.landmarks().nrows(), Rng::new(context.seed).fork(0x6b72_696c));
    let height = ROWS * m;
    let mut sketch = Array2::<f64>::zeros((height, m));
    design.each_block(|k, rows| {
        let entries: Vec<[(usize, f64); ENTRIES]> =
            rows.map(|i| column(seed.fork(i as u64), height, design.weights[i].sqrt())).collect();
        add(&mut sketch, k, &entries);
    })?;
    // (Sκ)N: the sketch of κ(X,Z), and then that of the features.
    let sketch = matmul(sketch.view(), design.map.matrix().normalisation());
    let mut p = matmul(sketch.t(), sketch.view());
    p.diag_mut().mapv_inplace(|d| d + alpha);
    Cholesky::new(context.device, p.view())
}

/// The entries of a column of S: different places below `height`, and `±scale/√8`.
fn column(mut rng: Rng, height: usize, scale: f64) -> [(usize, f64); ENTRIES] {
    let mut entries = [(0, 0.0); ENTRIES];
    let size = scale / (ENTRIES.min(height) as f64).sqrt();
    for e in 0..ENTRIES.min(height) {
        let place = loop {
            let place = rng.below(height);
            if entries[..e].iter().all(|(other, _)| *other != place) {
                break place;
            }
        };
        entries[e] = (place, size * rng.sign());
    }
    entries
}

/// `sketch += S_b K_b` for rows `k` `[b, M]`; columns are on threads, and each is summed in the order of the rows.
fn add(sketch: &mut Array2<f64>, k: ArrayView2<f64>, entries: &[[(usize, f64); ENTRIES]]) {
    const COLUMNS: usize = 128;
    let parts: Vec<_> =
        sketch.axis_chunks_iter_mut(Axis(1), COLUMNS).zip(k.axis_chunks_iter(Axis(1), COLUMNS)).collect();
    parts.into_par_iter().for_each(|(mut sketch, k)| {
        for (row, entries) in k.rows().into_iter().zip(entries) {
            for &(place, value) in entries.iter().filter(|(_, value)| *value != 0.0) {
                sketch.row_mut(place).scaled_add(value, &row);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::features::landmark_design::Map;
    use crate::compute::Device;
    use crate::kernel::Kernel;
    use crate::linalg::eigh;
    use crate::spectrum::NystromFeatures;
    use ndarray::Array1;

    /// Most points lie together, and a few far away, which a sample of the rows misses.
    fn points(n: usize) -> Array2<f64> {
        let mut rng = Rng::new(5);
        Array2::from_shape_fn((n, 2), |(i, _)| if i % 100 == 0 { 6.0 * rng.normal() } else { 0.3 * rng.normal() })
    }

    /// The largest eigenvalue of `P⁻¹(Φ̃ᵀΦ̃ + αI)` over the smallest, by dense matrices.
    fn condition(p: &Cholesky<f64>, a: &Array2<f64>) -> f64 {
        let (λ, u) = eigh(Device::Cpu, a.view()).unwrap();
        let root = (&u * &Array1::from(λ).mapv(f64::sqrt)).dot(&u.t());
        let (λ, _) = eigh(Device::Cpu, root.dot(&p.solve(root.view()).unwrap()).view()).unwrap();
        λ[0] / λ[λ.len() - 1]
    }

    #[test]
    fn the_condition_number_is_small_where_that_of_a_sample_is_not() {
        let (x, context) = (points(3000), FitContext::default());
        let z = x.select(Axis(0), &(0..40).map(|i| 50 * i).collect::<Vec<_>>());
        let map = NystromFeatures::new(&Kernel::parse("matern32(1)").unwrap(), z.view(), &context).unwrap();
        let weights: Array1<f64> = (0..3000).map(|i| if i % 2 == 0 { 1.0 } else { 0.25 }).collect();
        let phi = map.transform::<f64>(x.view()).unwrap() * weights.mapv(f64::sqrt).insert_axis(Axis(1));
        let design = Design::new(Map::Matrix(&map), x.view(), weights, &context, 0).unwrap();
        for alpha in [1e-6, 1e-2] {
            let a = phi.t().dot(&phi) + Array2::<f64>::eye(map.dim()) * alpha;
            let sketch = condition(&krill(&design, alpha, &context).unwrap(), &a);
            let sample = condition(&design.sampled(alpha).unwrap(), &a);
            // An embedding of twice the dimension: (1 + 1/√2)²/(1 − 1/√2)² = 34 for a Gaussian one.
            assert!(sketch < 60.0 && sketch < 0.5 * sample, "{alpha}: {sketch} {sample}");
        }
    }

    #[test]
    fn a_column_has_different_places_and_unit_length() {
        for height in [3, 8, 1000] {
            let entries = column(Rng::new(1).fork(height as u64), height, 2.0);
            let used: Vec<_> = entries.iter().filter(|(_, value)| *value != 0.0).collect();
            assert_eq!(used.len(), ENTRIES.min(height));
            assert!((used.iter().map(|(_, value)| value * value).sum::<f64>() - 4.0).abs() < 1e-12);
            let places: std::collections::HashSet<usize> = used.iter().map(|(place, _)| *place).collect();
            assert!(places.len() == used.len() && places.iter().all(|place| *place < height));
        }
    }
}
