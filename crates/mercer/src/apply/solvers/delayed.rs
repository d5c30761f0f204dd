use super::{EpochSolver, Epochs, Judged, squares};
use crate::apply::landmark_design::Design;
use crate::apply::reference::matrix;
use crate::kernel::Kernel;
use crate::linalg::{eigh, matmul};
use crate::model::Bundle;
use crate::operator::{cross_apply, gram};
use crate::rng::Rng;
use crate::{FitContext, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis, concatenate, s};

/// `(ΦᵀWΦ + αI) V = ΦᵀWY`, ridge regression on landmarks.
pub(in crate::apply) struct Landmarked<'a> {
    pub design: &'a Design<'a>,
    /// α
    pub alpha: f64,
    /// Y `[n, m]`
    pub y: ArrayView2<'a, f64>,
    /// ΦᵀWY `[r, m]`
    pub right: ArrayView2<'a, f64>,
}

impl Judged for Landmarked<'_> {
    fn norms(&self) -> Vec<f64> {
        squares(self.right)
    }

    fn remainder(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        Ok(&self.right - &self.design.normal(v)? - &(&v * self.alpha))
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
pub(in crate::apply) struct DelayedEigenPro<'a, 's> {
    system: &'a Landmarked<'s>,
    context: &'a FitContext<'a>,
    /// S `[s, d]`
    sample: Array2<f64>,
    /// G `[s, q]`
    damping: Array2<f64>,
    /// η/b
    step: f64,
    /// b
    batch: usize,
    /// Points of a window.
    window: usize,
    state: State,
}

struct State {
    /// V `[r, m]`
    v: Array2<f64>,
    /// The sum of V over windows `[r, m]`, and their number.
    sum: Array2<f64>,
    count: usize,
    /// The sum of the residuals that were seen `[r, m]`, and of how many epochs.
    seen: Array2<f64>,
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

impl<'a, 's> DelayedEigenPro<'a, 's> {
    /// Decomposes K on the sample.
    pub fn new(system: &'a Landmarked<'s>, context: &'a FitContext<'a>) -> Result<Self> {
        let (design, n) = (system.design, system.y.nrows());
        let (kernel, z) = (design.map.kernel(), design.map.landmarks());
        let size = (z.nrows() / 4).clamp(z.nrows().min(200), SAMPLE);
        let sample = z.slice(s![..size, ..]).to_owned();
        // Centres are drawn uniformly; the weights of their rows are those of the points on average.
        let weight = design.weights.mean().unwrap_or(1.0);
        let (σ, u) = eigh(context.device, (gram::<f64>(kernel, sample.view(), context.device)? * weight).view())?;
        let q = DAMPED.min(size / 5).max(1).min(size - 1);
        let ridge = system.alpha / n as f64;
        let level = (σ.get(q).copied().unwrap_or(0.0).max(0.0) / size as f64).max(ridge);
        let root = |σ: &f64| (weight * (1.0 - size as f64 * level / σ).max(0.0) / σ.max(f64::MIN_POSITIVE)).sqrt();
        let roots: Array1<f64> = σ[..q].iter().map(root).collect();
        let damping = &u.slice(s![.., ..q]) * &roots;
        let β = largest_curvature(kernel, design);
        let batch = ((β / level) as usize).clamp(BATCHES.0, BATCHES.1).min(n);
        // The eigenvalue of the sample is a little off that of all points.
        let step = 0.8 / (β + (batch - 1) as f64 * (level + ridge));
        // τ is at most a half.
        let most = (0.5 / (step * ridge)).min(n as f64) as usize;
        let window = (z.nrows() / batch * batch).clamp(batch, most.max(batch));
        let zero = || Array2::zeros(system.right.dim());
        let rng = Rng::new(context.seed).fork(0x6465_6c61);
        let state = State { v: zero(), sum: zero(), count: 0, seen: zero(), seen_epochs: 0, epochs: 0, rng };
        Ok(DelayedEigenPro { system, context, sample, damping, step, batch, window, state })
    }

    /// `κ(A,B) C` `[a, m]` for points `[a, d]` and `[b, d]`.
    fn apply(&self, a: ArrayView2<f64>, b: ArrayView2<f64>, c: ArrayView2<f64>) -> Result<Array2<f64>> {
        let FitContext { precision, device, .. } = *self.context;
        cross_apply(self.system.design.map.kernel(), a, b, c, precision, device)
    }

    /// `G Gᵀ H` `[s, m]` for `H` `[s, m]`.
    fn damped(&self, h: &Array2<f64>) -> Array2<f64> {
        matmul(self.damping.view(), matmul(self.damping.t(), h.view()).view())
    }

    /// The batches of the points `rows`, and then the projection; returns `Φᵀ w R` `[r, m]` of these points.
    fn window(&mut self, rows: &[usize]) -> Result<Array2<f64>> {
        let Landmarked { design, alpha, y, .. } = *self.system;
        let (z, n) = (design.map.landmarks(), design.map.normalisation());
        let x = design.x.select(Axis(0), rows);
        let w = design.weights.select(Axis(0), rows).insert_axis(Axis(1));
        let a = matmul(n, self.state.v.view());
        let left = y.select(Axis(0), rows) - self.apply(x.view(), z, a.view())?;
        let mut c = Array2::<f64>::zeros(left.dim());
        let mut at_sample = Array2::<f64>::zeros((self.sample.nrows(), left.ncols()));
        for start in (0..rows.len()).step_by(self.batch) {
            let end = (start + self.batch).min(rows.len());
            let (before, own) = (s![..start, ..], s![start..end, ..]);
            let points = x.slice(own);
            let centres = concatenate(Axis(0), &[self.sample.view(), x.slice(before)]).expect("as many columns");
            let moved = concatenate(Axis(0), &[at_sample.view(), c.slice(before)]).expect("as many columns");
            let r = &left.slice(own) - &self.apply(points, centres.view(), moved.view())?;
            let change = r * w.slice(own) * self.step;
            at_sample -= &self.damped(&self.apply(self.sample.view(), points, change.view())?);
            c.slice_mut(own).assign(&change);
        }
        let τ = self.step * alpha * rows.len() as f64 / y.nrows() as f64;
        at_sample.scaled_add(τ, &self.damped(&self.apply(self.sample.view(), z, a.view())?));
        let seen = matmul(n.t(), self.apply(z, x.view(), c.view())?.view());
        let damped = matmul(n.t(), self.apply(z, self.sample.view(), at_sample.view())?.view());
        self.state.v *= 1.0 - τ;
        self.state.v += &seen;
        self.state.v += &damped;
        Ok(seen / self.step)
    }
}

/// The largest `w κ(x,x)`.
fn largest_curvature(kernel: &Kernel, design: &Design) -> f64 {
    let rows = design.x.rows().into_iter().zip(&design.weights);
    rows.map(|(x, w)| w * kernel.value(&x.to_vec(), &x.to_vec())).fold(f64::MIN_POSITIVE, f64::max)
}

impl Epochs for DelayedEigenPro<'_, '_> {
    fn kind(&self) -> EpochSolver {
        EpochSolver::EigenPro
    }

    /// The residual that is seen is `ΦᵀWR − αV` with the R and the mean of the V that the epochs passed through.
    fn epoch(&mut self, v: &mut Array2<f64>) -> Result<Vec<f64>> {
        let n = self.system.y.nrows();
        let order = self.state.rng.sample(n, n);
        let (first, half) = (self.state.epochs == 0, n.div_ceil(self.window) / 2);
        if first || self.state.epochs.is_power_of_two() {
            (self.state.seen, self.state.seen_epochs) = (Array2::zeros(v.dim()), 0);
            (self.state.sum, self.state.count) = (Array2::zeros(v.dim()), 0);
        }
        for (i, rows) in order.chunks(self.window).enumerate() {
            self.state.seen.scaled_add(-self.system.alpha * rows.len() as f64 / n as f64, &self.state.v);
            let gradient = self.window(rows)?;
            self.state.seen += &gradient;
            // The first steps are far from the solution.
            if !first || i >= half {
                self.state.sum += &self.state.v;
                self.state.count += 1;
            }
        }
        self.state.epochs += 1;
        self.state.seen_epochs += 1;
        v.assign(&(&self.state.sum / self.state.count as f64));
        Ok(squares((&self.state.seen / self.state.seen_epochs as f64).view()))
    }

    fn save(&self, bundle: &mut Bundle) {
        let State { v, sum, count, seen, seen_epochs, epochs, rng } = &self.state;
        bundle.set("rng", rng);
        bundle.set("averaged", (count, seen_epochs, epochs));
        for (name, matrix) in [("v", v), ("sum", sum), ("seen", seen)] {
            bundle.put(name, matrix.clone());
        }
    }

    fn load(&mut self, bundle: &Bundle, shape: (usize, usize)) -> Result<()> {
        let (count, seen_epochs, epochs) = bundle.value("averaged")?;
        let [v, sum, seen] = ["v", "sum", "seen"].map(|name| matrix(bundle, name, shape));
        self.state = State { v: v?, sum: sum?, count, seen: seen?, seen_epochs, epochs, rng: bundle.value("rng")? };
        Ok(())
    }
}
