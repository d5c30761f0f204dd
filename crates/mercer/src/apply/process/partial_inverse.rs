//! `A⁻¹` of a kernel matrix with noise from below, by directions of low rank and the nearest points.

use crate::apply::process::gaussian_process::positive;
use crate::apply::reference::matrix;
use crate::bundle::Bundle;
use crate::compute::Device;
use crate::kernel::Kernel;
use crate::linalg::{Cholesky, Panel, eigh, matmul, matmul_into, solve_lower};
use crate::operator::{Operator, Precision, gram, gram_cross};
use crate::spectrum::Origin;
use crate::{FitContext, KeepsBest, Result, fail_if};
use faer::{Accum, Par};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, s};
use rayon::prelude::*;

/// Columns that are multiplied by K at once: more would take more memory, fewer more kernel values.
pub(crate) const COLUMNS: usize = 64;

/// Bytes of kernel values `κ(x, X)` that are in memory at once.
pub(crate) const VALUES: usize = 64 << 20;

/// Rows of a matrix that are multiplied in place at once.
const ROWS: usize = 4096;

/// Lower bounds of `vᵀA⁻¹v` with `A = K + σ²I` on n points: for every V, `A⁻¹ ≥ V(VᵀAV)⁻¹Vᵀ`. Here `V = [U, e_S]` with r directions U, which are the
/// same for all v, and the q points S that are nearest to the place that v belongs to. With `R = U(UᵀAU)^{−1/2}` and `T = AR`,
///
/// `vᵀV(VᵀAV)⁻¹Vᵀv = ‖p‖² + bᵀC⁻¹b`,  `p = Rᵀv`,  `b = v_S − T_S p`,  `C = A_SS − T_S T_Sᵀ`.
///
/// In words: targets are conditioned on their r combinations `Uᵀy` and on `y_S`, not on all of them. U has what is smooth, S what is local.
pub(crate) struct PartialInverse {
    /// R `[n, r]`
    pub directions: Array2<f64>,
    /// T `[n, r]`
    pub images: Array2<f64>,
    /// σ², with the rounding of K counted as noise.
    pub noise: f64,
    /// q
    pub neighbours: usize,
}

/// The vectors v of forms `vᵀA⁻¹v`.
#[derive(Clone, Copy)]
pub(crate) enum Vectors<'r> {
    /// `κ(X, x)` for every x.
    Kernel,
    /// `e_i`, where x are these of the points.
    Units(&'r [usize]),
}

/// κ, and the points X `[n, d]` of K.
#[derive(Clone, Copy)]
pub(crate) struct Covariance<'a> {
    pub kernel: &'a Kernel,
    pub points: ArrayView2<'a, f64>,
    pub device: Device,
}

impl PartialInverse {
    /// Of `cA`, `A = K + αI` with K in double precision, and the directions `u` `[n, r]`. An interrupt leaves the first of them.
    pub fn new(
        operator: &dyn Operator,
        u: Panel,
        (alpha, c): (f64, f64),
        context: &FitContext,
    ) -> Result<PartialInverse> {
        let (n, r) = (u.nrows(), u.ncols());
        // KU and UᵀKU
        let (mut images, mut form) = (Array2::zeros((n, r)), Array2::zeros((r, r)));
        let mut keeps: Option<KeepsBest> = None;
        let mut done = 0;
        while done < r && !keeps.as_ref().is_some_and(KeepsBest::cut_short) {
            let some = done..r.min(done + COLUMNS);
            let product = operator.apply_panel(&u.columns(some.clone())?)?;
            form.slice_mut(s![.., some.clone()]).assign(&u.t_matmul(&product)?);
            images.slice_mut(s![.., some.clone()]).assign(&product.into_host()?);
            done = some.end;
            keeps.get_or_insert_with(|| context.keeps_best());
            context.progress.step("variances", done, r, "");
        }
        let (λ, q) = eigh(context.device, form.slice(s![..done, ..done]))?;
        let alpha = alpha + operator.roundoff() * λ[0];
        let rotation =
            |scale: f64| &q * &λ.iter().map(|λ| scale / (λ.max(0.0) + alpha).sqrt()).collect::<Array1<f64>>();
        let directions = rotated(u.into_host()?, rotation(1.0 / c.sqrt()));
        let mut images = rotated(images, rotation(c.sqrt()));
        images.scaled_add(c * alpha, &directions);
        Ok(PartialInverse { directions, images, noise: c * alpha, neighbours: 0 })
    }

    /// Lower bounds of `vᵀA⁻¹v` `[m]` for vectors that belong to the places `x` `[m, d]`.
    pub fn forms(&self, of: Covariance, x: ArrayView2<f64>, vectors: Vectors) -> Result<Array1<f64>> {
        let norms = of.kernel.diagonal(of.points).mapv(|k| 1.0 / k.max(f64::MIN_POSITIVE));
        let rows = (VALUES / (8 * of.points.nrows())).max(16);
        let mut forms = Vec::with_capacity(x.nrows());
        for (number, x) in x.axis_chunks_iter(Axis(0), rows).enumerate() {
            let values = gram_cross::<f64>(of.kernel, x, of.points, of.device)?;
            let p = match vectors {
                Vectors::Kernel => matmul(values.view(), self.directions.view()),
                Vectors::Units(units) => self.directions.select(Axis(0), &units[number * rows..][..x.nrows()]),
            };
            let form = |i: usize| {
                let row = values.row(i);
                let own = if let Vectors::Units(units) = vectors { Some(units[number * rows + i]) } else { None };
                let near = nearest(row, &norms, self.neighbours, own);
                let at_near = |j: &usize| own.map_or(row[*j], |own| f64::from(u8::from(*j == own)));
                self.form(of, &near, p.row(i), near.iter().map(at_near).collect())
            };
            forms.extend((0..x.nrows()).into_par_iter().map(form).collect::<Result<Vec<f64>>>()?);
        }
        Ok(forms.into())
    }

    /// Lower bounds of `(A⁻¹)_ii` `[rows]` for some of the points.
    pub fn diagonal(&self, of: Covariance, rows: &[usize]) -> Result<Array1<f64>> {
        self.forms(of, of.points.select(Axis(0), rows).view(), Vectors::Units(rows))
    }

    /// `‖p‖² + bᵀC⁻¹b` for the points S, `p` `[r]` and `v_S` `[q]`.
    fn form(&self, of: Covariance, near: &[usize], p: ArrayView1<f64>, v_near: Array1<f64>) -> Result<f64> {
        let images = self.images.select(Axis(0), near);
        let mut b = (v_near - images.dot(&p)).insert_axis(Axis(1));
        let mut schur = gram::<f64>(of.kernel, of.points.select(Axis(0), near).view(), Device::Cpu)?;
        let largest = schur.diag().iter().copied().fold(0.0, f64::max) + self.noise;
        // The rounding of T, whose entries are divided by roots as small as σ, counts as noise too.
        let rounding = 10.0 * Precision::F64.roundoff(Device::Cpu) * largest * (largest / self.noise).sqrt();
        schur.diag_mut().mapv_inplace(|k| k + self.noise + rounding);
        matmul_into(schur.view_mut(), Accum::Add, images.view(), images.t(), -1.0, Par::Seq);
        // Where U has all of S, nothing but rounding is left, which may not be positive definite.
        let local = match Cholesky::new(Device::Cpu, schur.view()) {
            Ok(factor) => {
                solve_lower(factor.lower()?, b.view_mut());
                b.iter().map(|b| b * b).sum()
            }
            Err(_) => 0.0,
        };
        Ok(p.dot(&p) + local)
    }
}

impl PartialInverse {
    pub fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()> {
        bundle.set("neighbours", self.neighbours);
        bundle.set("noise_with_rounding", self.noise);
        bundle.put("directions", self.directions.view());
        bundle.put("images", self.images.view());
        Ok(())
    }

    pub fn unpack(bundle: &Bundle, _: Device) -> Result<PartialInverse> {
        let (origin, rank): (Origin, usize) = (bundle.value("origin")?, bundle.value("rank")?);
        let of = |name: &str| matrix(bundle, name, (origin.n, rank));
        let neighbours = bundle.value("neighbours")?;
        fail_if!(
            neighbours == 0 || neighbours > origin.n,
            "the model's 'neighbours' are {neighbours} of {} points",
            origin.n
        );
        let noise = positive(bundle.value("noise_with_rounding")?)?;
        Ok(PartialInverse { directions: of("directions")?, images: of("images")?, noise, neighbours })
    }
}

/// `M W` `[n, s]` of the first columns of `m` `[n, r]`, in its memory, with `w` `[s, s]`.
fn rotated(mut m: Array2<f64>, w: Array2<f64>) -> Array2<f64> {
    m.slice_collapse(s![.., ..w.nrows()]);
    for mut rows in m.axis_chunks_iter_mut(Axis(0), ROWS) {
        let product = matmul(rows.view(), w.view());
        rows.assign(&product);
    }
    m
}

/// The `count` points with the largest correlation `κ(x, x_j)²/κ(x_j, x_j)`, from the kernel values of x `[n]` and `1/κ(x_j, x_j)` `[n]`, `own` among them.
/// Of equal ones the first are taken.
fn nearest(values: ArrayView1<f64>, norms: &Array1<f64>, count: usize, own: Option<usize>) -> Vec<usize> {
    let mut distances: Vec<(f64, usize)> =
        values.iter().zip(norms).enumerate().map(|(j, (k, norm))| (-k * k * norm, j)).collect();
    if let Some(own) = own {
        distances[own].0 = f64::NEG_INFINITY;
    }
    let by_both = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    if count < distances.len() {
        distances.select_nth_unstable_by(count, by_both);
        distances.truncate(count);
    }
    let mut near: Vec<usize> = distances.into_iter().map(|(_, j)| j).collect();
    near.sort_unstable();
    near
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::solvers::low_rank_preconditioner::LowRankPreconditioner;
    use crate::operator::DenseOperator;
    use crate::rng::Rng;

    fn points(n: usize, seed: u64) -> Array2<f64> {
        Rng::new(seed).normals((n, 2))
    }

    /// The inverse of `c(K + αI)` from below, and the directions U, from a preconditioner of this rank; with the dense matrix `c(K + αI)`.
    fn partial(
        kernel: &str,
        x: &Array2<f64>,
        rank: usize,
        (alpha, c): (f64, f64),
    ) -> (PartialInverse, Array2<f64>, Kernel, Array2<f64>) {
        let kernel = Kernel::parse(kernel).unwrap();
        let k = gram(&kernel, x.view(), Device::Cpu).unwrap();
        let (operator, context) = (DenseOperator::new(k.clone()), FitContext::default());
        let u = LowRankPreconditioner::new(&operator, rank, &context).unwrap().into_basis(rank).unwrap();
        let directions = u.to_host().unwrap();
        let inverse = PartialInverse::new(&operator, u, (alpha, c), &context).unwrap();
        let a = (k + Array2::<f64>::eye(x.nrows()) * alpha) * c;
        (inverse, directions, Kernel::Scale(c, Box::new(kernel)), a)
    }

    /// `vᵀV(VᵀAV)⁻¹Vᵀv` written out, with S by sorting.
    #[test]
    fn forms_are_those_of_the_projection() {
        let (x, new) = (points(70, 1), points(5, 2));
        let (mut inverse, u, kernel, a) = partial("2*matern32(0.7)", &x, 9, (0.05, 3.0));
        inverse.neighbours = 7;
        let of = Covariance { kernel: &kernel, points: x.view(), device: Device::Cpu };
        let projected = |v: ArrayView1<f64>, place: ArrayView1<f64>| {
            let mut order: Vec<usize> = (0..70).collect();
            let distance = |i: usize| x.row(i).iter().zip(place).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
            order.sort_by(|i, j| distance(*i).total_cmp(&distance(*j)));
            let mut basis = Array2::zeros((70, u.ncols() + 7));
            basis.slice_mut(s![.., ..u.ncols()]).assign(&u);
            order[..7].iter().enumerate().for_each(|(column, i)| basis[[*i, u.ncols() + column]] = 1.0);
            let form = basis.t().dot(&a).dot(&basis);
            let b = basis.t().dot(&v).insert_axis(Axis(1));
            let solved = Cholesky::new(Device::Cpu, form.view()).unwrap().solve(b.view()).unwrap();
            (b * solved).sum()
        };
        let forms = inverse.forms(of, new.view(), Vectors::Kernel).unwrap();
        for (i, place) in new.rows().into_iter().enumerate() {
            let v = gram_cross::<f64>(&kernel, x.view(), new.view(), Device::Cpu).unwrap();
            assert!((forms[i] - projected(v.column(i), place)).abs() < 1e-9, "{i}: {}", forms[i]);
        }
        let rows = [3, 69, 20];
        let diagonal = inverse.diagonal(of, &rows).unwrap();
        for (row, found) in rows.into_iter().zip(&diagonal) {
            let mut v = Array1::zeros(70);
            v[row] = 1.0;
            assert!((found - projected(v.view(), x.row(row))).abs() < 1e-9, "{row}: {found}");
        }
    }

    /// Never above the dense forms, closer with more neighbours, and equal to them with all or with directions of full rank, whatever the noise.
    #[test]
    fn forms_rise_to_the_dense_ones() {
        let mut x = points(90, 3);
        // A point twice.
        let duplicate = x.row(4).to_owned();
        x.row_mut(50).assign(&duplicate);
        let new = points(20, 4);
        for alpha in [1e-6, 1e-2, 1.0] {
            for rank in [10, 90] {
                let (mut inverse, _, kernel, a) = partial("rbf(0.6)", &x, rank, (alpha, 0.5));
                let of = Covariance { kernel: &kernel, points: x.view(), device: Device::Cpu };
                let v = gram_cross::<f64>(&kernel, x.view(), new.view(), Device::Cpu).unwrap();
                let factor = Cholesky::new(Device::Cpu, a.view()).unwrap();
                let dense = (&v * &factor.solve(v.view()).unwrap()).sum_axis(Axis(0));
                let mut before = Array1::zeros(20);
                for neighbours in [1, 5, 30, 90] {
                    inverse.neighbours = neighbours;
                    let forms = inverse.forms(of, new.view(), Vectors::Kernel).unwrap();
                    assert!(forms.iter().zip(&dense).all(|(ours, dense)| ours - dense < 1e-8), "{forms} {dense}");
                    assert!(forms.iter().zip(&before).all(|(ours, before)| ours - before > -1e-8), "{forms} {before}");
                    before = forms;
                }
                assert!((&before - &dense).iter().all(|d| d.abs() < 1e-5), "{alpha} {rank}: {before} {dense}");
            }
        }
    }

    #[test]
    fn the_nearest_have_the_largest_correlation() {
        // κ(x, x_j)²/κ(x_j, x_j) = 1, 4, 4, 0.25
        let (values, norms) = (Array1::from(vec![1.0, -2.0, 4.0, 0.5]), Array1::from(vec![1.0, 1.0, 0.25, 1.0]));
        assert_eq!(nearest(values.view(), &norms, 2, None), [1, 2]);
        assert_eq!(nearest(values.view(), &norms, 1, None), [1]);
        assert_eq!(nearest(values.view(), &norms, 2, Some(3)), [1, 3]);
        assert_eq!(nearest(values.view(), &norms, 9, None), [0, 1, 2, 3]);
    }
}
