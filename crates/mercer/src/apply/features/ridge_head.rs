//! Ridge regression on features: one pass over them and one eigendecomposition serve every α and every target.

use crate::apply::alpha::{best, cross_validate, grid};
use crate::apply::features::combined::{Combined, MOST_MOVED, ROUNDOFF};
use crate::apply::features::feature_map::DeviceFeatures;
use crate::apply::features::fold_sums::Folds;
use crate::apply::{Alpha, Tried};
use crate::context::ONE_STEP;
use crate::linalg::{eigh, matmul};
use crate::rng::Rng;
use crate::spectrum::add_gram;
use crate::{FitContext, Group, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, Zip, concatenate, s};
use rayon::prelude::*;

/// Rows of Φ that are in memory at once, as many as are read from a file at a time.
pub(crate) const BLOCK: usize = crate::data::BLOCK;

/// Rows of kernel values at a time where all rows are in memory: the allocator keeps blocks of less than 32 MiB, and asks for no new pages.
const STRIP: usize = 2048;

/// Rows that a thread prepares at a time.
const ROWS: usize = 256;

/// Rows whose left-out error is measured, at most: the mean over so many is known to about one or two percent, and the same rows compare
/// every α.
pub(crate) const MOST_LEFT_OUT: usize = 5000;

/// Columns of one product for several α, about: of many targets, fewer α are looked at together.
const COLUMNS: usize = 512;

/// Features `[rows, p]` at some rows of the sample.
pub(crate) type FeatureRows<'a> = &'a dyn Fn(&[usize]) -> Result<Array2<f64>>;

/// `min_{W,b} Σ_i w_i ‖y_i − b − φ(x_i)W‖² + α‖W‖²`
pub(crate) struct Head<'a> {
    pub features: FeatureRows<'a>,
    /// The same features, where they are combinations of values that cost less.
    pub combined: Option<Combined<'a>>,
    /// The same on the context's device, where it computes them.
    pub on_device: Option<&'a DeviceFeatures<'a>>,
    /// `[n, m]`
    pub y: ArrayView2<'a, f64>,
    /// w `[n]`; one for each row without them.
    pub weights: Option<&'a [f64]>,
    /// Whether there is a b; it is not penalised.
    pub intercept: bool,
    pub context: &'a FitContext<'a>,
}

/// The solution of a [`Head`].
pub(crate) struct Solved {
    pub alpha: f64,
    pub tried: Vec<Tried>,
    /// W `[p, m]`
    pub weights: Array2<f64>,
    /// b `[m]`
    pub offset: Array1<f64>,
    /// Some rows, and their predictions `[rows, m]` from all the others.
    pub left_out: (Vec<usize>, Array2<f64>),
    /// Warnings.
    pub notes: Vec<String>,
}

/// Features, targets and weights of some rows.
pub(crate) struct Part {
    /// φ `[b, p]`
    pub phi: Array2<f64>,
    /// `[b, m]`
    pub y: Array2<f64>,
    /// w `[b]`
    pub weights: Array1<f64>,
}

/// Takes the next rows; false ends the pass.
pub(crate) type Take<'t> = &'t mut dyn FnMut(Part) -> Result<bool>;

/// Some rows of a [`BlockHead`] by their numbers, and the numbers of those that are in memory.
pub(crate) type LeftOutRows<'a> = &'a dyn Fn(&[usize]) -> Result<(Vec<usize>, Part)>;

/// A [`Head`] on rows that are not in memory.
pub(crate) struct BlockHead<'a> {
    /// Number of rows.
    pub n: usize,
    /// Hands the rows of this rank to its argument, block by block and in their order, and returns how many there were on all.
    pub pass: &'a dyn Fn(Take) -> Result<usize>,
    /// The numbers of rows to predict from all the others.
    pub left_out: Vec<usize>,
    /// Those of some rows that are in memory, in the given order.
    pub rows: LeftOutRows<'a>,
    pub intercept: bool,
    pub context: &'a FitContext<'a>,
}

impl BlockHead<'_> {
    /// One pass over the rows. An interrupt leaves the fit to the rows so far, and a note says so.
    pub fn solve(&self, alpha: Alpha) -> Result<Solved> {
        /// Of the rows, one in so many must have been seen for a fit to be worth keeping, and for α to be chosen.
        const LEAST: usize = 50;
        let (group, mut keeps, mut cut, mut rows) = (self.context.group, None, false, 0);
        fail_if!(
            !group.is_single() && matches!(alpha, Alpha::CrossValidation { .. }),
            "several ranks do not cross-validate; give α, or leave out one row at a time"
        );
        let mut sums = if group.is_single() { None } else { Some(self.common_sums()?) };
        let (mut folds, seed): (Option<Folds>, u64) = (None, self.context.seed);
        let seen = (self.pass)(&mut |part| {
            rows += part.phi.nrows();
            match alpha {
                Alpha::CrossValidation { folds: count } => {
                    folds.get_or_insert_with(|| Folds::new(count, &part, self.intercept, seed)).add(part);
                }
                _ => add(&mut sums, part, self.intercept),
            }
            if rows >= self.n / LEAST {
                cut = keeps.get_or_insert_with(|| self.context.keeps_best()).cut_short();
            }
            Ok(!cut)
        })?;
        fail_if!(seen == 0, "there are no rows to fit");
        let mut sums = sums.or(folds.as_ref().map(Folds::whole)).expect("there are rows");
        sums.over(group)?;
        let path = sums.decompose(self.intercept, self.context)?;
        let grid = path.grid()?;
        let sample: Vec<usize> = self.left_out.iter().copied().filter(|&row| row < seen).collect();
        let (sample, part) = (self.rows)(&sample)?;
        let left = LeftOut { z: path.rotated(part.phi), y: part.y, w: part.weights };
        let (alpha, tried) = match (alpha, &folds) {
            (Alpha::Fixed(alpha), _) => (alpha, vec![]),
            (_, Some(folds)) => best(folds.errors(&grid, self.context)?)?,
            _ => best(left.mean_squares(&path, &grid))?,
        };
        let mut solved = path.solved(alpha, tried, sample, &left);
        if cut && seen < self.n {
            solved.notes.push(format!("interrupted after {seen} of {} rows; the fit is to these", self.n));
        }
        Ok(solved)
    }

    /// Sums of no rows yet, with one shift on all ranks: the mean of rows that each of them has.
    fn common_sums(&self) -> Result<Sums> {
        let few = &self.left_out[..self.left_out.len().min(BLOCK)];
        let (_, part) = (self.rows)(few)?;
        fail_if!(part.phi.is_empty(), "there are no rows to fit");
        Ok(Sums::new(part.phi.view(), part.y.ncols(), self.intercept))
    }
}

/// Rows whose left-out error is measured, of n.
pub(crate) fn left_out_rows(n: usize, seed: u64) -> Vec<usize> {
    Rng::new(seed).fork(0x006c_6f6f).sample(n, MOST_LEFT_OUT.min(n))
}

/// Adds some rows to the sums, which begin with the first of them.
fn add(sums: &mut Option<Sums>, part: Part, intercept: bool) {
    let sums = sums.get_or_insert_with(|| Sums::new(part.phi.view(), part.y.ncols(), intercept));
    sums.add(part.phi, part.y, part.weights.mapv(f64::sqrt));
}

impl Head<'_> {
    pub fn solve(&self, alpha: Alpha) -> Result<Solved> {
        if let Some(combined) = self.combined.as_ref().filter(|combined| self.on_device.is_none() && combined.may_do())
            && let Some(solved) = self.solve_by(Some(combined), alpha)?
        {
            return Ok(solved);
        }
        Ok(self.solve_by(None, alpha)?.expect("features are summed as they are"))
    }

    /// The solution, unless roundings move it by more than [`MOST_MOVED`].
    fn solve_by(&self, combined: Option<&Combined>, alpha: Alpha) -> Result<Option<Solved>> {
        let n = self.y.nrows();
        let path = self.path(&(0..n).collect::<Vec<_>>(), combined)?;
        let grid = path.grid()?;
        let sample = left_out_rows(n, self.context.seed);
        let left = self.left_out(&path, &sample)?;
        let mut notes = vec![];
        let (alpha, tried) = match alpha {
            Alpha::Fixed(alpha) => (alpha, vec![]),
            Alpha::LeaveOneOut => best(left.mean_squares(&path, &grid))?,
            Alpha::CrossValidation { folds } => {
                let (tried, note) = cross_validate(n, folds, self.context, &grid, |rest, out| {
                    self.held_out_errors(&self.path(rest, combined)?, out, &grid)
                })?;
                notes.extend(note);
                best(tried)?
            }
        };
        let solved = |path: &Path| Solved { notes, ..path.solved(alpha, tried, sample, &left) };
        Ok((path.moved(alpha) <= MOST_MOVED).then(|| solved(&path)))
    }

    /// The normal equations of some rows, decomposed.
    fn path(&self, rows: &[usize], combined: Option<&Combined>) -> Result<Path> {
        if let Some(features) = self.on_device {
            return self.sums_on_device(features, rows)?.decompose(self.intercept, self.context);
        }
        let features = combined.map_or(self.features, |combined| combined.values);
        let mut sums: Option<Sums> = None;
        let block = if combined.is_some() { STRIP } else { BLOCK };
        for (i, few) in rows.chunks(block).enumerate() {
            let (phi, y, weights) = (features(few)?, self.y.select(Axis(0), few), self.weights_of(few));
            add(&mut sums, Part { phi, y, weights }, self.intercept);
            self.context.progress.step("ridge on features", (i * block + few.len()).min(rows.len()), rows.len(), "");
        }
        let sums = sums.expect("there are rows");
        let Some(Combined { normalisation, .. }) = combined else {
            return sums.decompose(self.intercept, self.context);
        };
        let blocks = rows.len().div_ceil(STRIP) as f64;
        let most = sums.gram.diag().fold(0.0, |most: f64, g| most.max(*g));
        let roundings = (4.0 + blocks.sqrt() / 3.0) * ROUNDOFF * most;
        let mut path = sums.combined(*normalisation).decompose(self.intercept, self.context)?;
        let nq = matmul(*normalisation, path.q.view());
        path.roundings = nq.columns().into_iter().map(|column| roundings * column.dot(&column)).collect();
        Ok(path)
    }

    /// w of some rows.
    pub(crate) fn weights_of(&self, rows: &[usize]) -> Array1<f64> {
        rows.iter().map(|&i| self.weights.map_or(1.0, |w| w[i])).collect()
    }

    /// Some rows, to be predicted from all the others.
    fn left_out(&self, path: &Path, rows: &[usize]) -> Result<LeftOut> {
        let mut z = Array2::zeros((rows.len(), path.λ.len()));
        for (few, mut z) in rows.chunks(BLOCK).zip(z.axis_chunks_iter_mut(Axis(0), BLOCK)) {
            z.assign(&path.rotated((self.features)(few)?));
        }
        Ok(LeftOut { z, y: self.y.select(Axis(0), rows), w: self.weights_of(rows) })
    }

    /// The weighted sum of squared errors on rows that `path` has not seen, for each α.
    fn held_out_errors(&self, path: &Path, rows: &[usize], grid: &[f64]) -> Result<Vec<f64>> {
        let mut sums = vec![0.0; grid.len()];
        for few in rows.chunks(BLOCK) {
            let z = path.rotated((self.features)(few)?);
            let (y, w) = (self.y.select(Axis(0), few) - &path.y_mean, self.weights_of(few));
            for (sum, &alpha) in sums.iter_mut().zip(grid) {
                let error = &y - &matmul(z.view(), path.filtered(alpha).view());
                *sum += error.rows().into_iter().zip(&w).map(|(e, w)| w * e.dot(&e)).sum::<f64>();
            }
        }
        Ok(sums)
    }
}

/// Sums over rows, with a constant `shift` subtracted from the features so that large means cost no digits.
pub(crate) struct Sums {
    pub(crate) shift: Array1<f64>,
    /// `Σ w φφᵀ` `[p, p]`, its lower half.
    pub(crate) gram: Array2<f64>,
    /// `Σ w φyᵀ` `[p, m]`
    pub(crate) cross: Array2<f64>,
    /// `Σ w φ` `[p]`
    pub(crate) phi: Array1<f64>,
    /// `Σ w y` `[m]`
    pub(crate) y: Array1<f64>,
    /// `Σ w`
    pub(crate) total: f64,
    /// Room for a product.
    pub(crate) product: Array2<f64>,
}

impl Sums {
    /// None yet, for features like `phi` `[b, p]`.
    pub fn new(phi: ArrayView2<f64>, m: usize, intercept: bool) -> Sums {
        let p = phi.ncols();
        let shift = if intercept { phi.mean_axis(Axis(0)).expect("there are rows") } else { Array1::zeros(p) };
        let square = || Array2::zeros((p, p));
        let (gram, cross, product) = (square(), Array2::zeros((p, m)), square());
        Sums { shift, gram, cross, phi: Array1::zeros(p), y: Array1::zeros(m), total: 0.0, product }
    }

    /// Adds features `[b, p]`, targets `[b, m]` and the roots `[b]` of the rows' weights.
    pub fn add(&mut self, mut phi: Array2<f64>, y: Array2<f64>, root: Array1<f64>) {
        let pieces: Vec<_> =
            phi.axis_chunks_iter_mut(Axis(0), ROWS).zip(root.axis_chunks_iter(Axis(0), ROWS)).collect();
        pieces.into_par_iter().for_each(|(mut phi, root)| {
            for (mut phi, &root) in phi.rows_mut().into_iter().zip(root) {
                Zip::from(&mut phi).and(&self.shift).for_each(|phi, shift| *phi = (*phi - shift) * root);
            }
        });
        let y = y * root.view().insert_axis(Axis(1));
        add_gram(&mut self.gram, &mut self.product, phi.view());
        // One product has the sums by y and by the weights.
        let m = y.ncols();
        let sums = matmul(phi.t(), beside(&[y.view(), root.view().insert_axis(Axis(1))]).view());
        self.cross += &sums.slice(s![.., ..m]);
        self.phi += &sums.column(m);
        self.y += &y.t().dot(&root);
        self.total += root.dot(&root);
    }

    /// The sums over the rows of all ranks, whose shifts are the same.
    fn over(&mut self, group: Group<'_>) -> Result<()> {
        let Sums { gram, cross, phi, y, .. } = self;
        let parts = [gram.as_slice_mut(), cross.as_slice_mut(), phi.as_slice_mut(), y.as_slice_mut()];
        parts.into_iter().try_for_each(|part| group.sum(part.expect("own array")))?;
        group.sum(std::slice::from_mut(&mut self.total))
    }

    /// Those of the features `cN`, from those of the values c, for N `[m, r]`.
    fn combined(self, n: ArrayView2<f64>) -> Sums {
        let gram = self.symmetric();
        let Sums { shift, cross, phi, y, total, .. } = self;
        let product = matmul(gram.view(), n);
        let gram = matmul(n.t(), product.view());
        Sums {
            shift: n.t().dot(&shift),
            gram,
            cross: matmul(n.t(), cross.view()),
            phi: n.t().dot(&phi),
            y,
            total,
            product,
        }
    }

    /// With an intercept, features and targets count from their means.
    pub fn decompose(self, intercept: bool, context: &FitContext) -> Result<Path> {
        let Sums { shift, mut gram, mut cross, phi, y, total, product } = self;
        drop(product);
        let (mut mean, mut y_mean, mut share) = (Array1::zeros(phi.len()), Array1::zeros(y.len()), 0.0);
        if intercept {
            let centre = &phi / total;
            y_mean = y / total;
            gram -= &outer(phi.view(), centre.view());
            cross -= &outer(phi.view(), y_mean.view());
            (mean, share) = (shift + centre, 1.0 / total);
        }
        context.progress.step("eigendecomposition", 0, 1, ONE_STEP);
        let (λ, q) = eigh(context.device, gram.view())?;
        // Directions at the level of rounding carry no information, and 0/0 is not an answer at α = 0.
        let kept = λ.iter().take_while(|&&l| l > 1e-14 * λ[0]).count();
        let (λ, q) = (λ[..kept].to_vec(), q.slice_move(s![.., ..kept]));
        let zy = matmul(q.t(), cross.view());
        Ok(Path { λ, q, zy, mean, y_mean, share, total, roundings: vec![] })
    }
}

pub(crate) fn outer(a: ArrayView1<f64>, b: ArrayView1<f64>) -> Array2<f64> {
    &a.insert_axis(Axis(1)) * &b.insert_axis(Axis(0))
}

/// `ΦᵀΦ = QΛQᵀ`, with rows weighted and columns centred, rotated so that every α is a division: `Z = ΦQ`, `ZᵀZ = Λ`.
pub(crate) struct Path {
    λ: Vec<f64>,
    /// `[p, r]`
    q: Array2<f64>,
    /// `Zᵀy` `[r, m]`
    zy: Array2<f64>,
    /// Of the features `[p]`; zero without an intercept.
    pub mean: Array1<f64>,
    /// Of the targets `[m]`; zero without an intercept.
    pub y_mean: Array1<f64>,
    /// What the intercept adds to every `H_ii/w_i`.
    share: f64,
    /// Sum of the weights.
    total: f64,
    /// `σ‖Nq_j‖²` `[r]` where features are [`Combined`]; else none.
    roundings: Vec<f64>,
}

impl Path {
    /// How far roundings move the solution for `alpha`, relative to itself; see [`Combined`].
    fn moved(&self, alpha: f64) -> f64 {
        let trace: f64 = self.roundings.iter().zip(&self.λ).map(|(rounding, λ)| rounding / (λ + alpha)).sum();
        trace / (self.λ.len() as f64).sqrt()
    }

    /// The α that are tried; an error where no feature tells rows apart.
    fn grid(&self) -> Result<Vec<f64>> {
        let scale = self.λ.iter().sum::<f64>() / self.total;
        fail_if!(
            !(scale > 0.0 && scale.is_finite()),
            "every feature is constant on these points; use a kernel that tells them apart, or points that differ"
        );
        Ok(grid(scale))
    }

    /// The solution for `alpha`, with what was tried, and the rows that are predicted from all the others.
    fn solved(&self, alpha: f64, tried: Vec<Tried>, rows: Vec<usize>, left: &LeftOut) -> Solved {
        let [errors] = &left.errors(self, &[alpha])[..] else { unreachable!("one α") };
        let left_out = (rows, &left.y - errors);
        let weights = self.weights(alpha);
        let offset = &self.y_mean - &self.mean.dot(&weights);
        Solved { alpha, tried, weights, offset, left_out, notes: vec![] }
    }

    /// `Z` `[b, r]` of features `[b, p]`.
    fn rotated(&self, phi: Array2<f64>) -> Array2<f64> {
        matmul((phi - &self.mean).view(), self.q.view())
    }

    /// `1/(λ_j + α)`
    fn inverse(&self, alpha: f64) -> Array1<f64> {
        self.λ.iter().map(|λ| 1.0 / (λ + alpha)).collect()
    }

    /// `(Λ + α)⁻¹Zᵀy` `[r, m]`
    fn filtered(&self, alpha: f64) -> Array2<f64> {
        &self.zy * &self.inverse(alpha).insert_axis(Axis(1))
    }

    /// `W = (ΦᵀΦ + αI)⁻¹Φᵀy` `[p, m]`
    pub fn weights(&self, alpha: f64) -> Array2<f64> {
        matmul(self.q.view(), self.filtered(alpha).view())
    }
}

/// Rows that are predicted from all the others.
struct LeftOut {
    /// `[b, r]`
    z: Array2<f64>,
    /// `[b, m]`
    y: Array2<f64>,
    /// Weights `[b]`
    w: Array1<f64>,
}

impl LeftOut {
    /// `y_i − ŷ_{−i} = (y_i − ŷ_i)/(1 − H_ii)`, `H_ii = w_i(share + Σ_j z_ij²/(λ_j + α))`, `[b, m]` for each of a few α.
    fn errors(&self, path: &Path, grid: &[f64]) -> Vec<Array2<f64>> {
        let (y, m) = (&self.y - &path.y_mean, path.zy.ncols());
        let [inverses, filtered]: [Vec<Array2<f64>>; 2] = [
            grid.iter().map(|&alpha| path.inverse(alpha).insert_axis(Axis(1))).collect(),
            grid.iter().map(|&alpha| path.filtered(alpha)).collect(),
        ];
        let [filtered, inverses] = [&filtered, &inverses].map(|all| all.iter().map(|a| a.view()).collect::<Vec<_>>());
        let fitted = matmul(self.z.view(), beside(&filtered).view());
        let sums = matmul(self.z.mapv(|z| z * z).view(), beside(&inverses).view());
        let leverage = (sums + path.share) * self.w.view().insert_axis(Axis(1));
        let error = |a: usize| {
            let left = leverage.column(a).mapv(|h| 1.0 - h).insert_axis(Axis(1));
            (&y - &fitted.slice(s![.., a * m..(a + 1) * m])) / left
        };
        (0..grid.len()).map(error).collect()
    }

    /// The weighted mean squared error for each α.
    fn mean_squares(&self, path: &Path, grid: &[f64]) -> Vec<Tried> {
        let mean =
            |e: &Array2<f64>| e.rows().into_iter().zip(&self.w).map(|(e, w)| w * e.dot(&e)).sum::<f64>() / self.w.sum();
        let at_once = (COLUMNS / path.zy.ncols().max(1)).max(1);
        let some = |few: &[f64]| -> Vec<Tried> {
            let errors = self.errors(path, few);
            few.iter().zip(errors).map(|(&value, e)| Tried { value, error: mean(&e) }).collect()
        };
        grid.chunks(at_once).flat_map(some).collect()
    }
}

/// Matrices of as many rows, side by side.
fn beside(parts: &[ArrayView2<f64>]) -> Array2<f64> {
    concatenate(Axis(1), parts).expect("as many rows")
}

/// Bytes that a head on `p` features of `n` points takes for `m` targets, beside the columns of the points: rows of features, of left-out points
/// and of targets at a time; matrices `[p, p]`; and sums, weights and their copies, `[p, m]`.
pub(crate) fn memory(n: usize, p: usize, m: usize) -> u64 {
    let [n, p, m] = [n, p, m].map(|size| size as u64);
    let features = p.saturating_mul(3 * BLOCK as u64 + 2 * MOST_LEFT_OUT as u64 + 6 * p);
    let targets = m.saturating_mul(2 * n.min(BLOCK as u64) + 5 * p);
    8u64.saturating_mul(features.saturating_add(targets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::FeatureMap;
    use crate::kernel::Kernel;
    use crate::spectrum::Landmarks;

    /// Sums of kernel values, normalised afterwards, against sums of the features; α of a smooth kernel without noise is too small for them.
    #[test]
    fn sums_of_kernel_values_do_where_roundings_stay_small() {
        let mut rng = Rng::new(7);
        let x = rng.normals((5000, 3));
        let noise = Array1::from_shape_simple_fn(5000, || 0.3 * rng.normal());
        let f: Array1<f64> = x.rows().into_iter().map(|x| (2.0 * x[0]).sin() * x[1] + 2.0).collect();
        let weights: Vec<f64> = (0..5000).map(|i| 1.0 + (i % 3) as f64).collect();
        let context = FitContext::default();
        for (kernel, y, does) in [("matern32(1.5)", &f + &noise, true), ("rbf(4)", f.clone(), false)] {
            let (kernel, choice) = (Kernel::parse(kernel).unwrap(), Landmarks::KMeansPlusPlus);
            let map = FeatureMap::Nystrom { kernel, landmarks: 150, choice }.prepare(x.view(), 1, &context).unwrap();
            let features = |rows: &[usize]| map.at(x.select(Axis(0), rows));
            let values = |rows: &[usize]| map.values(x.select(Axis(0), rows));
            let y = y.insert_axis(Axis(1));
            let combined = map.normalisation().map(|normalisation| Combined { values: &values, normalisation });
            let (y, weights) = (y.view(), Some(&weights[..]));
            let head =
                Head { features: &features, combined, on_device: None, y, weights, intercept: true, context: &context };
            for alpha in [Alpha::LeaveOneOut, Alpha::CrossValidation { folds: 3 }] {
                let summed = head.solve_by(head.combined.as_ref(), alpha).unwrap();
                assert_eq!(summed.is_some(), does, "{alpha}");
                let (want, got) = (head.solve_by(None, alpha).unwrap().unwrap(), head.solve(alpha).unwrap());
                assert!((got.alpha / want.alpha - 1.0).abs() < 1e-9, "{} {}", got.alpha, want.alpha);
                let f = |solved: &Solved| features(&(0..1000).collect::<Vec<_>>()).unwrap().dot(&solved.weights);
                let off = (f(&got) - f(&want)).mapv(f64::abs).fold(0.0, |most: f64, off| most.max(*off));
                assert!(off < 1e-7 && (&got.offset - &want.offset)[0].abs() < 1e-7, "{off:e}");
            }
        }
    }
}
