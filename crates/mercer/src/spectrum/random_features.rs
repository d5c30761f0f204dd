//! Random features: projections on random directions, and a function of them while they are in cache.

use super::covariance::{covariance, covariance_on, principal_pairs};
use super::{BlockProblem, Problem, Sampling, Solution, check_columns};
use crate::bundle::Bundle;
use crate::compute::Device;
use crate::data::Rows;
use crate::linalg::{Panel, matmul_into};
use crate::operator::memory::zeros;
use crate::operator::{Extension, Features, Points, Precision, Real, in_precision, ranges, typed};
use crate::options::{Kind, Opt};
use crate::simd::{Num, vectorized};
use crate::{Error, Result, fail_if};
use faer::{Accum, Par};
use ndarray::{Array1, Array2, ArrayView1, Axis, Zip, s};
use rayon::prelude::*;
use std::any::Any;

pub(super) static FEATURES: Opt = Opt::new(
    "features",
    "N",
    Kind::Count(1),
    "number of random features [default: 1000, or twice the number of pairs where that is more]",
);
pub(super) static SAMPLING: Opt = Opt::new(
    "sampling",
    "SAMPLING",
    Kind::Word(|| Sampling::NAMED.map(|(word, _)| word).to_vec()),
    "how their directions are drawn [default: orthogonal]",
);

/// A random feature map φ with `E[φ(x)·φ(x')] = κ(x,x')`, from [`Self::fourier`] or [`Self::positive`].
pub struct RandomFeatures {
    pub(super) form: Form,
    pub(super) amplitude: f64,
    /// ω `[M, d]`
    pub(super) directions: Array2<f64>,
    /// Of [`Features::eval`]; double, unless a method sets it.
    pub(super) precision: Precision,
}

/// The features of a point from its projections `t = (x−c)·ω`, divided by the amplitude.
pub(super) enum Form {
    /// `cos t` for all M directions, then `sin t`. The centre c `[d]` turns each pair of a cosine and a sine and leaves the
    /// kernel as it is, but keeps the angles, and with them their rounding, small.
    Waves { centre: Array1<f64> },
    /// `exp(t − γ‖x‖²)` with the damping γ, and c = 0. `exact_norm` gives every feature vector the norm that it has in the mean,
    /// `‖φ(x)‖² = κ(x,x)`: with `e = exp t`, the features are `√M exp(γ‖x‖²) e/‖e‖`.
    Exponentials { damping: f64, exact_norm: bool },
}

impl RandomFeatures {
    pub(super) const FOURIER: &'static str = "fourier";
    pub(super) const POSITIVE: &'static str = "positive";

    /// `φ(x)` `[n, p]` at points `[n, d]`, computed in `T`.
    pub fn transform<'x, T: Real>(&self, x: impl Into<Rows<'x>>) -> Result<Array2<T>> {
        let x = x.into();
        check_columns(x, self.directions.ncols())?;
        Ok(typed(self.computed(x, T::PRECISION)))
    }

    fn computed(&self, x: Rows<'_>, precision: Precision) -> Box<dyn Any> {
        in_precision!(precision, T => Box::new(self.at::<T>(x)))
    }

    pub(super) fn at<T: Real>(&self, x: Rows<'_>) -> Array2<T> {
        let ((m, d), amplitude) = (self.directions.dim(), T::of(self.amplitude));
        match &self.form {
            Form::Waves { centre } => self.projected(x, centre.view(), |strip, _| waves(strip, m, amplitude)),
            Form::Exponentials { damping, exact_norm } => {
                let (damping, exact) = (T::of(*damping), *exact_norm);
                let finish = |strip: &mut [T], norms: &[T]| match exact {
                    false => exponentials(strip, norms, damping, amplitude),
                    true => {
                        exponentials_of_exact_norm(strip, norms, damping, T::of(self.amplitude * (m as f64).sqrt()))
                    }
                };
                self.projected(x, Array1::zeros(d).view(), finish)
            }
        }
    }

    /// `[n, p]` features of points `x` `[n, d]`: the first M columns of a strip of rows are filled with `(x−c)·ω` for the
    /// centre `c` `[d]`, then `finish` makes features of the strip `[h, p]`, given also the `‖x−c‖²` of its rows `[h]`.
    fn projected<T: Real>(
        &self,
        x: Rows<'_>,
        centre: ArrayView1<f64>,
        finish: impl Fn(&mut [T], &[T]) + Sync,
    ) -> Array2<T> {
        let (n, p, m) = (x.n(), self.dim(), self.directions.nrows());
        // A strip of half a megabyte or so stays in the second-level cache between the product and what follows.
        let height = (128 * 1024 / p.max(1)).clamp(16, 512);
        let directions: Array2<T> = self.directions.t().mapv(T::of).as_standard_layout().into_owned();
        let mut out = Array2::from_shape_vec((n, p), zeros(n * p)).expect("n·p values");
        let pieces: Vec<_> = out.axis_chunks_iter_mut(Axis(0), height).zip(ranges(n, height)).collect();
        pieces.into_par_iter().for_each(|(mut out, rows)| {
            let x = x.slice(rows).to_f64();
            let mut centred = Array2::from_elem(x.dim(), T::default());
            Zip::from(&mut centred).and(&x).and_broadcast(&centre).for_each(|t, x, c| *t = T::of(x - c));
            let norm = |row: ArrayView1<T>| T::of(row.iter().map(|v| v.wide() * v.wide()).sum());
            let norms: Array1<T> = centred.map_axis(Axis(1), norm);
            let angles = out.slice_mut(s![.., ..m]);
            matmul_into(angles, Accum::Replace, centred.view(), directions.view(), T::one_impl(), Par::Seq);
            let (out, norms) = (out.as_slice_mut(), norms.as_slice());
            finish(out.expect("a strip of rows is whole"), norms.expect("own array"));
        });
        out
    }

    /// With angles counted from the mean of the points `x` `[n, d]`: they stay small, and so does their rounding.
    pub(crate) fn centred(self, x: Rows<'_>) -> Self {
        match x.mean() {
            Some(mean) => self.centred_at(mean),
            None => self,
        }
    }

    /// With angles counted from `mean` `[d]`.
    pub(crate) fn centred_at(mut self, mean: Array1<f64>) -> Self {
        if let Form::Waves { centre } = &mut self.form {
            *centre = mean;
        }
        self
    }

    /// Refuses fewer features than pairs.
    pub(super) fn enough(self, k: usize) -> Result<Self> {
        let count = self.dim();
        fail_if!(count < k, "{k} pairs need at least as many random features, got {count}");
        Ok(self)
    }

    /// The solution by the pairs of the kernel `φ(x)·φ(x')` over the points `x` `[n, d]`.
    pub(super) fn solution(self, problem: &Problem, x: Rows<'_>) -> Result<Solution> {
        let context = &problem.context;
        let (n, p) = (x.n(), self.dim());
        let sigma = match self.on_device(context.device)? {
            Some(waves) => covariance_on(context.device, (n, p), context.progress, |rows| waves(x.slice(rows)))?,
            None => in_precision!(context.precision, T => {
                covariance(n, p, context.progress, |rows| Ok(self.at::<T>(x.slice(rows))))?
            }),
        };
        let (eigenvalues, coefficients) = principal_pairs(context, sigma.view(), problem.k)?;
        Ok(Solution::new(eigenvalues, Extension { features: Box::new(self), coefficients }))
    }

    /// φ `[b, p]` of points `[b, d]` on a GPU, in f64; none on the CPU, and for positive features.
    pub(crate) fn on_device(&self, device: Device) -> Result<Option<impl Fn(Rows<'_>) -> Result<Panel> + '_>> {
        let (Form::Waves { centre }, Device::Cuda(_)) = (&self.form, device) else { return Ok(None) };
        let directions = Panel::from_host(device, self.directions.t().to_owned())?;
        Ok(Some(move |x: Rows<'_>| {
            let centred = &x.to_f64() - centre;
            Panel::from_host(device, centred)?.times(&directions)?.waves(self.amplitude)
        }))
    }

    /// The same over points that are not in memory.
    pub(super) fn solution_in_blocks(self, problem: &BlockProblem) -> Result<Solution> {
        let context = &problem.context;
        let (sigma, note) = in_precision!(context.precision, T => {
            problem.covariance(self.dim(), |x| Ok(self.at::<T>(x)))?
        });
        let (eigenvalues, coefficients) = principal_pairs(context, sigma.view(), problem.k)?;
        let solution = Solution::new(eigenvalues, Extension { features: Box::new(self), coefficients });
        Ok(Solution { notes: note.into_iter().collect(), ..solution })
    }

    pub(super) fn load(kind: &str, bundle: &Bundle) -> Result<Self> {
        let (form, directions) = if kind == Self::POSITIVE {
            let (damping, exact_norm) = (bundle.value("features.damping")?, bundle.value("features.exact_norm")?);
            (Form::Exponentials { damping, exact_norm }, "features.directions")
        } else {
            let centre: Vec<f64> = bundle.value("features.centre")?;
            (Form::Waves { centre: centre.into() }, "features.frequencies")
        };
        let directions = bundle.matrix(directions)?;
        fail_if!(directions.is_empty(), "it holds no random features");
        match &form {
            Form::Waves { centre } if centre.len() != directions.ncols() => {
                let (d, c) = (directions.ncols(), centre.len());
                return Err(Error::input(format!("its parts do not fit together: {d} columns and a centre of {c}")));
            }
            _ => {}
        }
        let (amplitude, precision) = (bundle.value("features.amplitude")?, bundle.value("features.precision")?);
        Ok(RandomFeatures { form, amplitude, directions, precision })
    }
}

impl Features for RandomFeatures {
    fn dim(&self) -> usize {
        let each = if matches!(self.form, Form::Waves { .. }) { 2 } else { 1 };
        each * self.directions.nrows()
    }

    fn inputs(&self) -> Option<usize> {
        Some(self.directions.ncols())
    }

    fn eval(&self, points: Points<'_>) -> Result<Array2<f64>> {
        let x = points.coordinates()?;
        Ok(in_precision!(self.precision, T => self.at::<T>(x).mapv_into_any(T::wide)))
    }

    fn multiply_adds(&self) -> usize {
        self.directions.len()
    }

    fn save<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<&'static str> {
        bundle.set("features.amplitude", self.amplitude);
        bundle.set("features.precision", self.precision);
        Ok(match &self.form {
            Form::Waves { centre } => {
                bundle.set("features.centre", centre.to_vec());
                bundle.put("features.frequencies", self.directions.view());
                Self::FOURIER
            }
            Form::Exponentials { damping, exact_norm } => {
                bundle.set("features.damping", damping);
                bundle.set("features.exact_norm", exact_norm);
                bundle.put("features.directions", self.directions.view());
                Self::POSITIVE
            }
        })
    }
}

/// Refuses more random features than fit into memory, where they take `bytes` beside their directions `[count, d]`: before they are
/// drawn.
pub(super) fn require(problem: &Problem, count: usize, d: usize, bytes: u64) -> Result<()> {
    let n = problem.operator.n();
    let directions = 2 * 8 * count as u128 * d as u128;
    let bytes = u64::try_from(directions).unwrap_or(u64::MAX).saturating_add(bytes);
    problem.context.budget.require(format!("{count} random features at {n} points"), bytes, "use fewer features")
}

vectorized! {
    /// Angles in the first half of each row of `strip` `[h, 2·half]` become `a cos`, and the second half `a sin`.
    fn waves<FMA, 'a, T: Real>(strip: &'a mut [T], half: usize, amplitude: T) {
        let a = amplitude.lane::<FMA>();
        for row in strip.chunks_exact_mut(2 * half) {
            let (cosines, sines) = row.split_at_mut(half);
            for (c, s) in cosines.iter_mut().zip(sines) {
                let (sin, cos) = c.lane::<FMA>().sin_cos();
                *c = T::of_lane(a * cos);
                *s = T::of_lane(a * sin);
            }
        }
    }
}

/// `t ← a exp(γ‖x‖²) e/‖e‖` with `e = exp t`, over rows of projections t in `strip` `[h, m]`; `norms` are `‖x‖²` `[h]`. The largest
/// t is subtracted first, so that no row overflows or vanishes.
fn exponentials_of_exact_norm<T: Real>(strip: &mut [T], norms: &[T], damping: T, amplitude: T) {
    let m = strip.len() / norms.len();
    for (row, norm) in strip.chunks_exact_mut(m).zip(norms) {
        let largest = row.iter().map(|t| t.wide()).fold(f64::MIN, f64::max);
        shifted_exponentials(row, T::of(largest));
        let square: f64 = row.iter().map(|e| e.wide() * e.wide()).sum();
        let factor = amplitude.wide() * (damping.wide() * norm.wide()).exp() / square.sqrt();
        row.iter_mut().for_each(|e| *e = T::of(e.wide() * factor));
    }
}

vectorized! {
    /// `t ← exp(t − s)`
    fn shifted_exponentials<FMA, 'a, T: Real>(row: &'a mut [T], shift: T) {
        let shift = shift.lane::<FMA>();
        for t in row {
            *t = T::of_lane((t.lane::<FMA>() - shift).exp());
        }
    }
}

vectorized! {
    /// `t ← a exp(t − γ‖x‖²)` over rows of projections t in `strip` `[h, m]`; `norms` are `‖x‖²` `[h]`.
    fn exponentials<FMA, 'a, T: Real>(strip: &'a mut [T], norms: &'a [T], damping: T, amplitude: T) {
        let (a, damping) = (amplitude.lane::<FMA>(), damping.lane::<FMA>());
        let m = strip.len() / norms.len();
        for (row, norm) in strip.chunks_exact_mut(m).zip(norms) {
            let offset = norm.lane::<FMA>() * damping;
            for t in row {
                *t = T::of_lane(a * (t.lane::<FMA>() - offset).exp());
            }
        }
    }
}
