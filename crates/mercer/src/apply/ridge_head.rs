//! Ridge regression on features: one pass over them and one eigendecomposition serve every α and every target.

use super::alpha::{best, cross_validate, grid};
use super::feature_map::DeviceFeatures;
use super::{Alpha, Tried};
use crate::compute::ledger::ran;
use crate::context::ONE_STEP;
use crate::linalg::{Panel, eigh, matmul};
use crate::rng::Rng;
use crate::spectrum::add_gram;
use crate::{Error, FitContext, Group, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, Zip, concatenate, s};
use rayon::prelude::*;

/// Rows of Φ that are in memory at once, as many as are read from a file at a time.
pub(super) const BLOCK: usize = crate::data::BLOCK;

/// Rows that a thread prepares at a time.
const ROWS: usize = 256;

/// Rows whose left-out error is measured, at most: the mean over so many is known to about one or two percent, and the same rows compare
/// every α.
pub(super) const MOST_LEFT_OUT: usize = 5000;

/// Features `[rows, p]` at some rows of the sample.
pub(super) type FeatureRows<'a> = &'a dyn Fn(&[usize]) -> Result<Array2<f64>>;

/// `min_{W,b} Σ_i w_i ‖y_i − b − φ(x_i)W‖² + α‖W‖²`
pub(super) struct Head<'a> {
    pub features: FeatureRows<'a>,
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
pub(super) struct Solved {
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
pub(super) struct Part {
    /// φ `[b, p]`
    pub phi: Array2<f64>,
    /// `[b, m]`
    pub y: Array2<f64>,
    /// w `[b]`
    pub weights: Array1<f64>,
}

/// Takes the next rows; false ends the pass.
pub(super) type Take<'t> = &'t mut dyn FnMut(Part) -> Result<bool>;

/// Some rows of a [`BlockHead`] by their numbers, and the numbers of those that are in memory.
pub(super) type LeftOutRows<'a> = &'a dyn Fn(&[usize]) -> Result<(Vec<usize>, Part)>;

/// A [`Head`] on rows that are not in memory.
pub(super) struct BlockHead<'a> {
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
        let mut sums = if group.is_single() { None } else { Some(self.common_sums()?) };
        let seen = (self.pass)(&mut |part| {
            rows += part.phi.nrows();
            add(&mut sums, part, self.intercept);
            if rows >= self.n / LEAST {
                cut = keeps.get_or_insert_with(|| self.context.keeps_best()).cut_short();
            }
            Ok(!cut)
        })?;
        fail_if!(seen == 0, "there are no rows to fit");
        let mut sums = sums.expect("there are rows");
        sums.over(group)?;
        let path = sums.decompose(self.intercept, self.context)?;
        let grid = path.grid()?;
        let sample: Vec<usize> = self.left_out.iter().copied().filter(|&row| row < seen).collect();
        let (sample, part) = (self.rows)(&sample)?;
        let left = LeftOut { z: path.rotated(part.phi), y: part.y, w: part.weights };
        let (alpha, tried) = match alpha {
            Alpha::Fixed(alpha) => (alpha, vec![]),
            Alpha::LeaveOneOut => best(left.mean_squares(&path, &grid))?,
            Alpha::CrossValidation { .. } => {
                return Err(Error::input("cross-validation needs all rows in memory; choose α by leave-one-out"));
            }
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
pub(super) fn left_out_rows(n: usize, seed: u64) -> Vec<usize> {
    Rng::new(seed).fork(0x006c_6f6f).sample(n, MOST_LEFT_OUT.min(n))
}

/// Adds some rows to the sums, which begin with the first of them.
fn add(sums: &mut Option<Sums>, part: Part, intercept: bool) {
    let sums = sums.get_or_insert_with(|| Sums::new(part.phi.view(), part.y.ncols(), intercept));
    sums.add(part.phi, part.y, part.weights.mapv(f64::sqrt));
}

impl Head<'_> {
    pub fn solve(&self, alpha: Alpha) -> Result<Solved> {
        let n = self.y.nrows();
        let path = self.path(&(0..n).collect::<Vec<_>>())?;
        let grid = path.grid()?;
        let sample = left_out_rows(n, self.context.seed);
        let left = self.left_out(&path, &sample)?;
        let mut notes = vec![];
        let (alpha, tried) = match alpha {
            Alpha::Fixed(alpha) => (alpha, vec![]),
            Alpha::LeaveOneOut => best(left.mean_squares(&path, &grid))?,
            Alpha::CrossValidation { folds } => {
                let (tried, note) = cross_validate(n, folds, self.context, &grid, |rest, out| {
                    self.held_out_errors(&self.path(rest)?, out, &grid)
                })?;
                notes.extend(note);
                best(tried)?
            }
        };
        Ok(Solved { notes, ..path.solved(alpha, tried, sample, &left) })
    }

    /// The normal equations of some rows, decomposed.
    fn path(&self, rows: &[usize]) -> Result<Path> {
        if let Some(features) = self.on_device {
            return self.sums_on_device(features, rows)?.decompose(self.intercept, self.context);
        }
        let mut sums: Option<Sums> = None;
        for (i, few) in rows.chunks(BLOCK).enumerate() {
            let (phi, y, weights) = ((self.features)(few)?, self.y.select(Axis(0), few), self.weights_of(few));
            add(&mut sums, Part { phi, y, weights }, self.intercept);
            self.context.progress.step("ridge on features", (i * BLOCK + few.len()).min(rows.len()), rows.len(), "");
        }
        sums.expect("there are rows").decompose(self.intercept, self.context)
    }

    /// The sums over some rows, on the device of their features: one product of `√w (φ − shift, y, 1)` with itself has all of them.
    fn sums_on_device(&self, features: &DeviceFeatures, rows: &[usize]) -> Result<Sums> {
        /// Rows at a time: enough to fill a GPU.
        const MANY: usize = 4 * BLOCK;
        let (m, mut shift, mut sum) = (self.y.ncols(), None, None::<Panel>);
        for (i, few) in rows.chunks(MANY).enumerate() {
            let mut phi = features(few)?;
            let device = phi.device();
            let column = |values: Array1<f64>| Panel::from_host(device, values.insert_axis(Axis(1)));
            let ones = column(Array1::ones(few.len()))?;
            let mean =
                || Ok::<_, Error>(phi.t_matmul(&ones)? * (f64::from(u8::from(self.intercept)) / few.len() as f64));
            let shift = match &shift {
                Some(shift) => shift,
                None => shift.insert(mean()?),
            };
            phi.add_product(-1.0, &ones, shift.t())?;
            let beside = Panel::from_host(device, self.y.select(Axis(0), few))?.joined(&ones)?;
            let mut all = phi.joined(&beside)?;
            all.scale_rows(&column(self.weights_of(few).mapv(f64::sqrt))?);
            let product = all.t_times(&all)?;
            match &mut sum {
                Some(sum) => sum.axpy(&vec![1.0; all.ncols()], &product)?,
                None => sum = Some(product),
            }
            self.context.progress.step("ridge on features", (i * MANY + few.len()).min(rows.len()), rows.len(), "");
        }
        let (shift, all) = (shift.expect("there are rows"), sum.expect("there are rows").into_host()?);
        ran("passes over features", self.context.device, 1);
        let p = shift.nrows();
        let part =
            |rows: std::ops::Range<usize>, columns: std::ops::Range<usize>| all.slice(s![rows, columns]).to_owned();
        Ok(Sums {
            shift: shift.column(0).to_owned(),
            gram: part(0..p, 0..p),
            cross: part(0..p, p..p + m),
            phi: all.slice(s![..p, p + m]).to_owned(),
            y: all.slice(s![p..p + m, p + m]).to_owned(),
            total: all[[p + m, p + m]],
            product: Array2::default((0, 0)),
        })
    }

    /// w of some rows.
    fn weights_of(&self, rows: &[usize]) -> Array1<f64> {
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
struct Sums {
    shift: Array1<f64>,
    /// `Σ w φφᵀ` `[p, p]`, its lower half.
    gram: Array2<f64>,
    /// `Σ w φyᵀ` `[p, m]`
    cross: Array2<f64>,
    /// `Σ w φ` `[p]`
    phi: Array1<f64>,
    /// `Σ w y` `[m]`
    y: Array1<f64>,
    /// `Σ w`
    total: f64,
    product: Array2<f64>,
}

impl Sums {
    /// None yet, for features like `phi` `[b, p]`.
    fn new(phi: ArrayView2<f64>, m: usize, intercept: bool) -> Sums {
        let p = phi.ncols();
        let shift = if intercept { phi.mean_axis(Axis(0)).expect("there are rows") } else { Array1::zeros(p) };
        let square = || Array2::zeros((p, p));
        let (gram, cross, product) = (square(), Array2::zeros((p, m)), square());
        Sums { shift, gram, cross, phi: Array1::zeros(p), y: Array1::zeros(m), total: 0.0, product }
    }

    /// Adds features `[b, p]`, targets `[b, m]` and the roots `[b]` of the rows' weights.
    fn add(&mut self, mut phi: Array2<f64>, y: Array2<f64>, root: Array1<f64>) {
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

    /// With an intercept, features and targets count from their means.
    fn decompose(self, intercept: bool, context: &FitContext) -> Result<Path> {
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
        Ok(Path { λ, q, zy, mean, y_mean, share, total })
    }
}

pub(super) fn outer(a: ArrayView1<f64>, b: ArrayView1<f64>) -> Array2<f64> {
    &a.insert_axis(Axis(1)) * &b.insert_axis(Axis(0))
}

/// `ΦᵀΦ = QΛQᵀ`, with rows weighted and columns centred, rotated so that every α is a division: `Z = ΦQ`, `ZᵀZ = Λ`.
struct Path {
    λ: Vec<f64>,
    /// `[p, r]`
    q: Array2<f64>,
    /// `Zᵀy` `[r, m]`
    zy: Array2<f64>,
    /// Of the features `[p]`; zero without an intercept.
    mean: Array1<f64>,
    /// Of the targets `[m]`; zero without an intercept.
    y_mean: Array1<f64>,
    /// What the intercept adds to every `H_ii/w_i`.
    share: f64,
    /// Sum of the weights.
    total: f64,
}

impl Path {
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
    fn weights(&self, alpha: f64) -> Array2<f64> {
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
    /// `y_i − ŷ_{−i} = (y_i − ŷ_i)/(1 − H_ii)`, `H_ii = w_i(share + Σ_j z_ij²/(λ_j + α))`, `[b, m]` for each α.
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
        grid.iter().zip(self.errors(path, grid)).map(|(&value, e)| Tried { value, error: mean(&e) }).collect()
    }
}

/// Matrices of as many rows, side by side.
fn beside(parts: &[ArrayView2<f64>]) -> Array2<f64> {
    concatenate(Axis(1), parts).expect("as many rows")
}

/// Bytes that a head on `p` features takes.
pub(super) fn memory(p: usize) -> u64 {
    let p = p as u64;
    8 * p.saturating_mul(3 * BLOCK as u64 + 2 * MOST_LEFT_OUT as u64 + 6 * p)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums of panels are those of blocks of rows, with weights and an intercept or without.
    #[test]
    fn features_on_a_device_give_the_same_solution() {
        let mut rng = Rng::new(4);
        let mut random = |n: usize, m: usize| Array2::from_shape_simple_fn((n, m), || 3.0 + rng.normal());
        let (phi, y) = (random(300, 6), random(300, 2));
        let weights: Vec<f64> = random(300, 1).iter().map(|w| w.abs() + 0.1).collect();
        let context = FitContext::default();
        let at_rows = |rows: &[usize]| Ok(phi.select(Axis(0), rows));
        for (intercept, weights) in [(true, Some(&weights[..])), (false, None), (true, None)] {
            let head =
                |on_device| Head { features: &at_rows, on_device, y: y.view(), weights, intercept, context: &context };
            let panels: DeviceFeatures = Box::new(|rows: &[usize]| Ok(at_rows(rows)?.into()));
            let [want, got] = [None, Some(&panels)].map(|on_device| head(on_device).solve(Alpha::Fixed(0.3)).unwrap());
            let off =
                (&want.weights - &got.weights).mapv(f64::abs).sum() + (&want.offset - &got.offset).mapv(f64::abs).sum();
            assert!(off < 1e-9, "{intercept}: {off}");
        }
    }
}
