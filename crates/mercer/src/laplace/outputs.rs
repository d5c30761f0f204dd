//! What a posterior says of rows whatever the precision of its prior, from one pass over them.

use super::passes::{Passes, batches};
use super::search::ENDS;
use super::{NUMBERS, ROWS, Structure};
use crate::Result;
use ndarray::{Array2, ArrayView2, Axis, s};

/// Precisions of the grid in every power of ten.
const PER_TEN: usize = 4;
/// Neighbours on the grid that a value between them is interpolated from.
const NEIGHBOURS: usize = 6;

/// Outputs of a network at rows with their variances for every prior precision τ: what τ, the temperature and the amplitudes of a process
/// are searched with. Example: [`Structured`](super::Structured).
#[derive(Clone)]
pub struct Outputs {
    /// Means `[n, C]`.
    pub(super) mean: Array2<f64>,
    pub(super) spread: Spread,
}

/// What the variances at rows are known by.
#[derive(Clone)]
pub(super) enum Spread {
    /// There are none.
    None,
    /// The logarithms `[n, C]` of `J(H + σ²τ)⁻¹Jᵀ` at every precision τ of the grid, for this σ².
    Grid { noise: f64, logarithms: Vec<Array2<f32>> },
    /// What the temperature and the scale of a process with a fixed mean depend on, `[n, q]`.
    Features(Array2<f64>),
}

/// How many precisions there are on the grid.
fn precisions() -> usize {
    ((ENDS[1] - ENDS[0]) * PER_TEN as f64) as usize + 1
}

/// The precisions that variances are computed at.
fn grid() -> Vec<f64> {
    (0..precisions()).map(|i| 10f64.powf(ENDS[0] + i as f64 / PER_TEN as f64)).collect()
}

impl Outputs {
    /// Of a structure at rows `x` `[n, d]`: `J(H + σ²τ)⁻¹Jᵀ` at all τ of the grid.
    pub(super) fn on_grid(
        structure: &dyn Structure,
        passes: &Passes,
        x: ArrayView2<f64>,
        noise: f64,
    ) -> Result<Outputs> {
        let shifts: Vec<f64> = grid().iter().map(|τ| τ * noise).collect();
        let dim = (x.nrows(), passes.outputs());
        let (mut mean, mut all) = (Array2::zeros(dim), vec![Array2::zeros(dim); shifts.len()]);
        let size = (NUMBERS / (dim.1 * shifts.len())).clamp(1, ROWS);
        for rows in batches(x.nrows(), size) {
            let (z, covariances) = structure.covariance(passes, x.slice(s![rows.clone(), ..]), &shifts, false)?;
            mean.slice_mut(s![rows.clone(), ..]).assign(&z);
            for (all, covariance) in all.iter_mut().zip(covariances) {
                let logarithms = covariance.index_axis(Axis(2), 0).mapv(|v| v.max(f64::MIN_POSITIVE).ln() as f32);
                all.slice_mut(s![rows.clone(), ..]).assign(&logarithms);
            }
        }
        Ok(Outputs { mean, spread: Spread::Grid { noise, logarithms: all } })
    }

    /// Bytes that variances of `c` outputs at n rows take on the grid: their logarithms, a selection of the rows, and a batch of variances.
    pub(super) fn memory(n: usize, c: usize) -> u64 {
        let numbers = (n as u64).saturating_mul(c as u64).saturating_mul(precisions() as u64);
        numbers.saturating_mul(2 * 4).saturating_add(8 * numbers.min(NUMBERS as u64))
    }

    /// Rows.
    pub fn n(&self) -> usize {
        self.mean.nrows()
    }

    /// Some of the rows.
    pub fn select(&self, rows: &[usize]) -> Outputs {
        let spread = match &self.spread {
            Spread::None => Spread::None,
            Spread::Grid { noise, logarithms } => {
                let logarithms = logarithms.iter().map(|v| v.select(Axis(0), rows)).collect();
                Spread::Grid { noise: *noise, logarithms }
            }
            Spread::Features(features) => Spread::Features(features.select(Axis(0), rows)),
        };
        Outputs { mean: self.mean.select(Axis(0), rows), spread }
    }

    /// The noise σ² that the grid was computed with; 1 for classes.
    pub(super) fn noise(&self) -> f64 {
        if let Spread::Grid { noise, .. } = self.spread { noise } else { 1.0 }
    }

    /// The variances `[n, C]` in units of σ², `J(H + σ²τ)⁻¹Jᵀ`, at a precision τ: the logarithms interpolated over log τ, right to about 1e-5.
    pub(super) fn variances(&self, τ: f64) -> Array2<f64> {
        let Spread::Grid { logarithms: all, .. } = &self.spread else { return Array2::zeros(self.mean.dim()) };
        let place = (τ.log10() - ENDS[0]) * PER_TEN as f64;
        let first =
            (place.floor() as isize - NEIGHBOURS as isize / 2 + 1).clamp(0, (all.len() - NEIGHBOURS) as isize) as usize;
        let mut sum = Array2::zeros(self.mean.dim());
        for (i, weight) in lagrange(place - first as f64).into_iter().enumerate() {
            sum.zip_mut_with(&all[first + i], |sum, v| *sum += weight * f64::from(*v));
        }
        sum.mapv_into(f64::exp)
    }
}

/// The weights of values at 0, 1, … in the polynomial through them, at t.
fn lagrange(t: f64) -> [f64; NEIGHBOURS] {
    std::array::from_fn(|i| {
        let others = (0..NEIGHBOURS).filter(|j| *j != i);
        others.map(|j| (t - j as f64) / (i as f64 - j as f64)).product()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Result;
    use crate::bundle::Bundle;
    use crate::classifier::Classifier;
    use crate::compute::Device;
    use crate::data::{Dataset, Target};
    use ndarray::{Array3, array};

    /// Variances `Σ_j w_j/(h_j + s)` that fall over many powers of ten.
    struct Poles;

    fn exact(row: f64, s: f64) -> f64 {
        (-7..=7).map(|power| row / (10f64.powi(power) * (1.0 + row) + s)).sum()
    }

    impl Structure for Poles {
        fn eigenvalues(&self) -> Vec<f64> {
            vec![]
        }

        fn square(&self) -> f64 {
            0.0
        }

        fn covariance(
            &self,
            passes: &Passes,
            x: ArrayView2<f64>,
            shifts: &[f64],
            _: bool,
        ) -> Result<(Array2<f64>, Vec<Array3<f64>>)> {
            let dim = (x.nrows(), passes.outputs(), 1);
            let of = |s: &f64| Array3::from_shape_fn(dim, |(i, c, _)| exact(x[[i, 0]] + c as f64, *s));
            Ok((Array2::zeros((dim.0, dim.1)), shifts.iter().map(of).collect()))
        }

        fn pack<'a>(&'a self, _: &mut Bundle<'a>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn variances_between_the_precisions_of_the_grid_are_interpolated() {
        let x = array![[0.1, 0.0], [3.0, 0.0], [700.0, 0.0]];
        let y = Target::Classes { labels: vec![0, 1, 0], names: vec!["a".into(), "b".into()] };
        let data = Dataset::new("rows", x.clone(), Some(y)).unwrap();
        let network = Classifier::new("dense(2) relu dense(2)", &data, Device::Cpu, 0).unwrap();
        let passes = Passes::new(&network).unwrap();
        let outputs = Outputs::on_grid(&Poles, &passes, x.view(), 2.0).unwrap();
        for τ in [1e-6, 3.3e-6, 0.17, 1.0, 2.2e3, 7.7e5, 1e6] {
            let found = outputs.select(&[2, 1]).variances(τ);
            for ((k, c), v) in found.indexed_iter() {
                let want = exact(x[[[2, 1][k], 0]] + c as f64, 2.0 * τ);
                assert!((v / want - 1.0).abs() < 3e-5, "{τ}: {v} {want}");
            }
        }
    }
}
