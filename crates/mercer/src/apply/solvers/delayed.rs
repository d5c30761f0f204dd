//! EigenPro 3 and 4: gradient steps with delayed projections on the span of landmarks.

use super::{EpochSolver, Epochs, Judged, load_panel, save_panel, squares};
use crate::apply::features::landmark_design::Design;
use crate::bundle::Bundle;
use crate::kernel::Kernel;
use crate::linalg::{Panel, Part, eigh};
use crate::operator::cuda::Planned;
use crate::operator::{Side, gram};
use crate::rng::Rng;
use crate::{FitContext, Progress, Result};
use ndarray::{Array1, s};
use std::cell::OnceCell;
use std::ops::Range;

/// `(ΦᵀWΦ + αI) V = ΦᵀWY`, ridge regression on landmarks.
pub(crate) struct Landmarked<'a, 'd> {
    pub design: &'a Design<'d>,
    /// α
    pub alpha: f64,
    /// Y `[n, m]`
    pub y: &'a Panel,
    right: OnceCell<Panel>,
}

impl<'a, 'd> Landmarked<'a, 'd> {
    pub fn new(design: &'a Design<'d>, alpha: f64, y: &'a Panel) -> Self {
        Landmarked { design, alpha, y, right: OnceCell::new() }
    }

    /// ΦᵀWY `[r, m]`, computed when it is first asked for; the first epoch of EigenPro sums it up on its way.
    pub fn right(&self) -> Result<&Panel> {
        if let Some(right) = self.right.get() {
            return Ok(right);
        }
        let right = self.design.transposed(self.y)?;
        Ok(self.right.get_or_init(|| right))
    }

    /// Zeros `[r, m]` on the device of Y.
    pub fn zeros(&self) -> Result<Panel> {
        Panel::zeros(self.y.device(), [self.design.map.dim(), self.y.ncols()])
    }
}

impl Judged for Landmarked<'_, '_> {
    fn norms(&self) -> Result<Vec<f64>> {
        squares(self.right()?)
    }

    fn missed(&self, v: &Panel) -> Result<Vec<f64>> {
        let mut r = self.right()?.try_clone()?;
        r.subtract(&self.design.normal(v)?);
        r.axpy(&vec![-self.alpha; v.ncols()], v)?;
        squares(&r)
    }
}

/// EigenPro with fewer centres than points (EigenPro 3 and 4: Abedsoltan, Belkin, Pandit and Rademacher, 2023 and 2024): stochastic gradient
/// descent on functions, preconditioned by the leading eigenfunctions of a sample, and projected on the span of `κ(·,z)` after some batches.
///
/// Of `f = κ(·,Z)a`, `a = NV`, the gradient of `Σ_i w_i (y_i − f(x_i))²/2n + α‖f‖²/2n` over a batch B of b points is
/// `−(1/b) Σ_B κ(x_i,·) w_i r_i + (α/n) f`. It leaves the span, so that the points of some batches are centres for a while: with the preconditioner
/// `P = I − κ(·,S) G Gᵀ (·)(S)`,
///
/// ```text
/// C_B ← (η/b) w R,    A_S ← A_S − G Gᵀ κ(S,B) C_B        for each batch B of a window X
/// V ← (1 − τ) V + Nᵀ (κ(Z,X) C + κ(Z,S) (A_S + τ G Gᵀ κ(S,Z) a)),    τ = (η/b) α |X|/n
/// ```
///
/// where `Nᵀ h(Z)` are the coefficients of h's projection. S is a part of Z, `√w_S K_SS √w_S = UΣUᵀ`, and `G = √w_S U D^{1/2}` with
/// `D_i = (1 − s ℓ/σ_i)/σ_i` damps the q leading eigenfunctions to the level `ℓ = max(σ_{q+1}/s, α/n)`. A window has about as many points as there are
/// centres: its products cost as much as those with Z.
///
/// Targets that the centres cannot fit leave noise in the steps. The result is the mean of V over the windows since the last epoch whose number is a
/// power of two, whose error falls with the number of steps; so does that of the residual that is seen, the mean over the same epochs.
pub(crate) struct DelayedEigenPro<'a, 's, 'd> {
    system: &'a Landmarked<'s, 'd>,
    /// G `[s, q]`; S are the first s landmarks.
    damping: Panel,
    /// η/b
    step: f64,
    /// b
    batch: usize,
    /// Points of a window.
    window: usize,
    state: State,
    progress: &'a dyn Progress,
}

struct State {
    /// V `[r, m]`
    v: Panel,
    /// The sum of V over windows `[r, m]`, and their number.
    sum: Panel,
    count: usize,
    /// The sum of the residuals that were seen `[r, m]`, and of how many epochs.
    seen: Panel,
    seen_epochs: usize,
    epochs: usize,
    rng: Rng,
}

/// Points of the sample, at most; no more than a quarter of the centres, unless they are few.
const SAMPLE: usize = 2000;

/// Eigenfunctions that are damped, at most.
const DAMPED: usize = 200;

/// Points of a batch, at least and at most.
const BATCHES: (usize, usize) = (32, 4096);

/// Earlier points of a window that are multiplied at once, so that a GPU needs memory for few sizes.
const BEFORE: usize = 16_384;

/// Plans the memory of a GPU for `n` points and `m` landmarks that are on it, with a window of as many points as there are landmarks.
pub(crate) fn plan(planned: &mut Planned, [n, m]: [usize; 2]) {
    let (window, batch, sample) = (m.min(n), BATCHES.1.min(n), (m / 4).clamp(m.min(200), SAMPLE));
    planned.gram(sample);
    // An eigendecomposition has the matrix, the vectors twice, and about two more to work with.
    let decomposed: Vec<_> = (0..5).map(|_| planned.matrix([sample, sample])).collect();
    decomposed.into_iter().for_each(|matrix| planned.release(matrix));
    planned.matrix([sample, DAMPED]);
    // V, its sum, the residuals, ΦᵀWY, and the best one; Y, w and C of a window.
    planned.vectors(6, m);
    planned.vectors(4, window);
    let points = planned.gathered(window);
    let products = planned.inner_products([window, m]);
    planned.product_of_kept([window, m]);
    for others in [sample, BEFORE.min(window)] {
        let others_gathered = planned.gathered(others);
        planned.product_of_some([batch, others]);
        planned.release(others_gathered);
    }
    planned.product_of_some([sample, batch]);
    planned.product_of_kept([m, window]);
    planned.release(products);
    planned.product([m, sample]);
    planned.product([sample, m]);
    planned.release(points);
}

impl<'a, 's, 'd> DelayedEigenPro<'a, 's, 'd> {
    /// Decomposes K on the sample.
    pub fn new(system: &'a Landmarked<'s, 'd>, context: &'a FitContext<'_>) -> Result<Self> {
        let (design, n) = (system.design, system.y.nrows());
        let (kernel, z) = (design.map.kernel(), design.map.landmarks());
        let size = (z.nrows() / 4).clamp(z.nrows().min(200), SAMPLE);
        let sample = z.slice(s![..size, ..]);
        // Centres are drawn uniformly; the weights of their rows are those of the points on average.
        let weight = design.weights.mean().unwrap_or(1.0);
        let (σ, u) = eigh(context.device, (gram::<f64>(kernel, sample, context.device)? * weight).view())?;
        let q = DAMPED.min(size / 5).max(1).min(size - 1);
        let ridge = system.alpha / n as f64;
        let level = (σ.get(q).copied().unwrap_or(0.0).max(0.0) / size as f64).max(ridge);
        let root = |σ: &f64| (weight * (1.0 - size as f64 * level / σ).max(0.0) / σ.max(f64::MIN_POSITIVE)).sqrt();
        let roots: Array1<f64> = σ[..q].iter().map(root).collect();
        let damping = Panel::from_host(context.device, &u.slice(s![.., ..q]) * &roots)?;
        let β = largest_curvature(kernel, design);
        let batch = ((β / level) as usize).clamp(BATCHES.0, BATCHES.1).min(n);
        // The eigenvalue of the sample is a little off that of all points.
        let step = 0.8 / (β + (batch - 1) as f64 * (level + ridge));
        // τ is at most a half.
        let most = (0.5 / (step * ridge)).min(n as f64) as usize;
        let window = (z.nrows() / batch * batch).clamp(batch, most.max(batch));
        let zero = || system.zeros();
        let rng = Rng::new(context.seed).fork(0x6465_6c61);
        let state = State { v: zero()?, sum: zero()?, count: 0, seen: zero()?, seen_epochs: 0, epochs: 0, rng };
        Ok(DelayedEigenPro { system, damping, step, batch, window, state, progress: context.progress })
    }

    /// `G Gᵀ H` `[s, m]` for `H` `[s, m]`.
    fn damped(&self, h: &Panel) -> Result<Panel> {
        self.damping.times(&self.damping.t_times(h)?)
    }

    /// The batches of the points `rows`, and then the projection; returns `Φᵀ w R` `[r, m]` of these points. Where ΦᵀWY is summed up,
    /// `κ(Z,X) w Y` is added to `of_targets` `[M, m]`.
    fn window(&mut self, rows: &[usize], of_targets: Option<&mut Panel>) -> Result<Panel> {
        let Landmarked { design, alpha, y, .. } = *self.system;
        let (pair, columns) = (&design.pair, y.ncols());
        let all = |factor: f64| vec![factor; columns];
        let of = |range: Range<usize>| (Side::X, Part::Rows(&rows[range]));
        let (x, z, sample) = (of(0..rows.len()), (Side::Z, Part::All), (Side::Z, Part::Range(0..self.damping.nrows())));
        let w = design.weights_panel()?.rows(&x.1)?;
        let a = design.spread(&self.state.v)?;
        let mut left = y.rows(&x.1)?;
        let block = pair.both_ways(x.clone(), z.clone())?;
        left.subtract(&block.product(&a)?);
        let mut c = zeros_like(&left)?;
        let mut at_sample = Panel::zeros(y.device(), [self.damping.nrows(), columns])?;
        for start in (0..rows.len()).step_by(self.batch) {
            let end = (start + self.batch).min(rows.len());
            let (points, own) = (of(start..end), Part::Range(start..end));
            let mut r = left.rows(&own)?;
            r.subtract(&pair.product(points.clone(), sample.clone(), &at_sample)?);
            for first in (0..start).step_by(BEFORE) {
                let before = first..start.min(first + BEFORE);
                let coefficients = c.rows(&Part::Range(before.clone()))?;
                r.subtract(&pair.product(points.clone(), of(before), &coefficients)?);
            }
            r.scale_rows(&w.rows(&own)?);
            r.scale(&all(self.step))?;
            at_sample.subtract(&self.damped(&pair.product(sample.clone(), points, &r)?)?);
            c.add_to_rows(&own, 1.0, &r)?;
        }
        let τ = self.step * alpha * rows.len() as f64 / y.nrows() as f64;
        at_sample.axpy(&all(τ), &self.damped(&pair.product(sample.clone(), z.clone(), &a)?)?)?;
        // Columns beside each other cost one product, or one solve with the factor of κ(Z,Z).
        let at_landmarks = match of_targets {
            Some(sum) => {
                let mut weighted = y.rows(&x.1)?;
                weighted.scale_rows(&w);
                let both = block.transposed_product(&c.joined(&weighted)?)?;
                sum.axpy(&all(1.0), &both.columns(columns..2 * columns)?)?;
                both.columns(0..columns)?
            }
            None => block.transposed_product(&c)?,
        };
        drop(block);
        let damped = pair.product(z, sample, &at_sample)?;
        let both = design.projected(&at_landmarks.joined(&damped)?)?;
        let mut seen = both.columns(0..columns)?;
        self.state.v.scale(&all(1.0 - τ))?;
        self.state.v.axpy(&all(1.0), &seen)?;
        self.state.v.axpy(&all(1.0), &both.columns(columns..2 * columns)?)?;
        seen.scale(&all(1.0 / self.step))?;
        Ok(seen)
    }
}

/// Zeros in the shape of a panel, on its device.
fn zeros_like(a: &Panel) -> Result<Panel> {
    Panel::zeros(a.device(), [a.nrows(), a.ncols()])
}

/// The largest `w κ(x,x)`.
fn largest_curvature(kernel: &Kernel, design: &Design) -> f64 {
    let curvatures = kernel.diagonal(design.x) * &design.weights;
    curvatures.iter().copied().fold(f64::MIN_POSITIVE, f64::max)
}

impl Epochs for DelayedEigenPro<'_, '_, '_> {
    fn kind(&self) -> EpochSolver {
        EpochSolver::EigenPro
    }

    /// The residual that is seen is `ΦᵀWR − αV` with the R and the mean of the V that the epochs passed through.
    fn epoch(&mut self, v: &mut Panel) -> Result<Vec<f64>> {
        let n = self.system.y.nrows();
        let order = self.state.rng.sample(n, n);
        let columns = v.ncols();
        let all = |factor: f64| vec![factor; columns];
        let (first, half) = (self.state.epochs == 0, n.div_ceil(self.window) / 2);
        if first || self.state.epochs.is_power_of_two() {
            (self.state.seen, self.state.seen_epochs) = (zeros_like(v)?, 0);
            (self.state.sum, self.state.count) = (zeros_like(v)?, 0);
        }
        let landmarks = self.system.design.map.landmarks().nrows();
        let unknown = first && self.system.right.get().is_none();
        let mut of_targets = unknown.then(|| Panel::zeros(v.device(), [landmarks, columns])).transpose()?;
        for (i, rows) in order.chunks(self.window).enumerate() {
            let share = -self.system.alpha * rows.len() as f64 / n as f64;
            self.state.seen.axpy(&all(share), &self.state.v)?;
            let gradient = self.window(rows, of_targets.as_mut())?;
            self.progress.step("rows of an epoch", (i + 1) * self.window, n, "");
            self.state.seen.axpy(&all(1.0), &gradient)?;
            // The first steps are far from the solution.
            if !first || i >= half {
                self.state.sum.axpy(&all(1.0), &self.state.v)?;
                self.state.count += 1;
            }
        }
        if let Some(sum) = of_targets {
            let right = self.system.design.projected(&sum)?;
            self.system.right.get_or_init(|| right);
        }
        self.state.epochs += 1;
        self.state.seen_epochs += 1;
        *v = self.state.sum.try_clone()?;
        v.scale(&all(1.0 / self.state.count as f64))?;
        let scale = 1.0 / (self.state.seen_epochs as f64).powi(2);
        Ok(squares(&self.state.seen)?.into_iter().map(|sum| sum * scale).collect())
    }

    fn save(&self, bundle: &mut Bundle) -> Result<()> {
        let State { v, sum, count, seen, seen_epochs, epochs, rng } = &self.state;
        bundle.set("rng", rng);
        bundle.set("averaged", (count, seen_epochs, epochs));
        for (name, matrix) in [("v", v), ("sum", sum), ("seen", seen), ("right", self.system.right()?)] {
            save_panel(bundle, name, matrix)?;
        }
        Ok(())
    }

    fn load(&mut self, bundle: &Bundle, like: &Panel) -> Result<()> {
        let (count, seen_epochs, epochs) = bundle.value("averaged")?;
        let [v, sum, seen, right] = ["v", "sum", "seen", "right"].map(|name| load_panel(bundle, name, like));
        let right = right?;
        self.system.right.get_or_init(|| right);
        self.state = State { v: v?, sum: sum?, count, seen: seen?, seen_epochs, epochs, rng: bundle.value("rng")? };
        Ok(())
    }
}
