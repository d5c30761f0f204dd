//! The Gaussian process whose mean is fixed at the network (FMGP).
//!
//! At a row x the outputs are `N(z/T, a² B)`: z the network's outputs, B `[C, C]` close to I, and
//!
//! `log T = t₀ + t·φ(x)`,  `log a² = s₀ + s·φ(x)`
//!
//! with four numbers φ of the row: the logarithm of the norm of the last layer's input f, the largest output, and the logarithms of two distances from the
//! rows that the network was trained on, of f from the nearest mean of a class, and of all hidden units from their mean. As a process, `z/T + a(x) W f/‖f‖` with `W ~ N(0, I)` correlated over
//! the outputs by B. The mean does not depend on the targets of the training rows, so B, s and t have the least loss on other rows, where the network
//! makes the mistakes that it makes on new ones (`fixed_mean_loss.rs`). For a number, T is 1 and a is the norm of f.

use super::cost::{Sizes, Work};
use super::fit::{self, Fit};
use super::fixed_mean_loss::{self as loss, DRAWS, ROWS, Rows, draws, softmaxes};
use super::likelihood::Likelihood;
use super::method::{self, Recipe};
use super::outputs::{Outputs, Spread};
use super::passes::{Hidden, Passes};
use super::search::Searched;
use super::{Laplace, Structure};
use crate::apply::minimise;
use crate::bundle::Bundle;
use crate::classifier::Classifier;
use crate::compute::Device;
use crate::linalg::{Cholesky, matmul, solve_lower};
use crate::options::Opt;
use crate::rng::Rng;
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis, concatenate, s};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// φ: `log(1 + ‖f‖²)`, the largest output, and the logarithms of two distances.
pub(super) const FEATURES: usize = 4;
/// Those that the temperature depends on, the first ones.
pub(super) const TEMPERED: usize = 2;
/// Rows that hidden units are seen at, at most.
const SEEN: usize = 10_000;
/// Added to the covariance of f within classes, in units of its mean diagonal: units that hardly vary do not decide a distance.
const LEAST: f64 = 1e-3;
/// The range of every number that is found.
const BOUNDS: (f64, f64) = (-30.0, 30.0);
/// Where the search ends: the largest component of the gradient, and steps.
const END: (f64, usize) = (1e-6, 200);

/// A Gaussian process whose mean is fixed at the network (FMGP), divided by a temperature: temperature, amplitude and the covariance of the
/// outputs have the least loss on other rows, the first two as functions of the row. Example: [the module](super).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedMean;

impl Recipe for FixedMean {
    fn name(&self) -> &'static str {
        "fixed-mean"
    }

    fn about(&self) -> &'static str {
        "a Gaussian process whose mean is the network, divided by a temperature"
    }

    fn options(&self) -> Vec<&'static Opt> {
        vec![&method::DRAWS, &method::TEMPERED]
    }

    fn looks_at_validation(&self, _: &Laplace, _: bool) -> bool {
        true
    }

    fn instead(&self) -> &'static str {
        "use fewer rows"
    }

    fn work(&self, sizes: &Sizes) -> Result<Work> {
        let &Sizes { n, c, pass, hidden, .. } = sizes;
        Ok(Work {
            bytes: 8.0 * n * hidden,
            fit: n.min(SEEN as f64) * pass,
            predict: pass + sizes.sum(|[_, o]| o) + DRAWS as f64 * c,
        })
    }

    /// It has no curvature: its mean is the network's, and its covariance is found on other rows.
    fn fit(&self, rows: &fit::Rows, context: &FitContext) -> Result<Fit> {
        let reference = Reference::of(rows.passes, rows.x, rows.likelihood, context.seed)?;
        let z = Array2::zeros((0, rows.passes.outputs()));
        Ok(Fit { structure: None, reference: Some(reference), z })
    }

    fn unpack(&self, bundle: &Bundle, network: &Classifier) -> Result<Option<Arc<dyn Structure>>> {
        Ok(Some(Arc::new(Process::unpack(bundle, network.network.outputs())?)))
    }
}

/// Means and standard deviations of numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Moments {
    mean: Vec<f64>,
    spread: Vec<f64>,
}

impl Moments {
    /// Of the columns of `x` `[n, q]`; one that is constant has the deviation 1.
    fn of(x: ArrayView2<f64>) -> Moments {
        let mean = x.mean_axis(Axis(0)).unwrap_or_else(|| Array1::zeros(x.ncols()));
        let spread = x.columns().into_iter().map(|column| column.std(0.0)).map(|s| if s > 0.0 { s } else { 1.0 });
        Moments { mean: mean.to_vec(), spread: spread.collect() }
    }

    /// `(x − mean)/spread` `[n, q]`
    fn applied(&self, x: ArrayView2<f64>) -> Array2<f64> {
        let [mean, spread] = [&self.mean, &self.spread].map(|row| ArrayRow::from(&row[..]));
        (&x - &mean) / spread
    }

    fn fits(&self, q: usize) -> bool {
        let positive = self.spread.iter().all(|s| *s > 0.0 && s.is_finite());
        self.mean.len() == q && self.spread.len() == q && positive && self.mean.iter().all(|m| m.is_finite())
    }
}

type ArrayRow<'a> = ndarray::ArrayView1<'a, f64>;

/// Hidden units at rows that the network was trained on.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Of all units.
    units: Moments,
    /// W `[q, q]` with `WᵀCW = I` for the covariance C of f within classes.
    whitening: Array2<f64>,
    /// `μ_c W` `[C, q]`, of the means μ of f in every class; one for a number.
    centres: Array2<f64>,
}

impl Reference {
    /// At some of the rows `x` `[n, d]`, whose targets are known.
    pub fn of(passes: &Passes, x: ArrayView2<f64>, likelihood: &Likelihood, seed: u64) -> Result<Reference> {
        let mut rows = Rng::new(seed).fork(0x756e_6974).sample(x.nrows(), x.nrows().min(SEEN));
        rows.sort_unstable();
        let (_, units) = passes.forward(x.select(Axis(0), &rows).view(), Hidden::Both)?;
        let (f, all) = units.view().split_at(Axis(1), passes.last_width());
        let (labels, classes): (Vec<usize>, usize) = match likelihood {
            Likelihood::Classes(labels) => (rows.iter().map(|&row| labels[row]).collect(), passes.outputs()),
            Likelihood::Numbers(_) => (vec![0; rows.len()], 1),
        };
        let (whitening, centres) = within_classes(f, &labels, classes)?;
        Ok(Reference { units: Moments::of(all), whitening, centres })
    }

    /// `min_c ‖(f − μ_c)W‖²` `[n]` for the last layer's inputs f `[n, q]`.
    fn class_distances(&self, f: ArrayView2<f64>) -> Array1<f64> {
        let white = matmul(f, self.whitening.view());
        let products = matmul(white.view(), self.centres.t());
        let centres: Vec<f64> = self.centres.rows().into_iter().map(|m| m.dot(&m)).collect();
        let nearest = |(g, products): (ArrayRow<'_>, ArrayRow<'_>)| {
            let least = products.iter().zip(&centres).map(|(product, centre)| centre - 2.0 * product);
            (g.dot(&g) + least.fold(f64::INFINITY, f64::min)).max(f64::MIN_POSITIVE)
        };
        white.rows().into_iter().zip(products.rows()).map(nearest).collect()
    }

    /// Outputs at rows `x` `[n, d]`, those of classes with mean zero, and φ `[n, FEATURES]`.
    pub fn outputs(&self, passes: &Passes, x: ArrayView2<f64>) -> Result<Outputs> {
        let (mut mean, units) = passes.forward(x, Hidden::Both)?;
        let width = passes.last_width();
        fail_if!(
            !self.units.fits(units.ncols() - width) || self.whitening.nrows() != width,
            "its parts do not fit together: the hidden units are of another network"
        );
        if passes.classes() {
            mean = &mean - &mean.mean_axis(Axis(1)).expect("there are outputs").insert_axis(Axis(1));
        }
        let square = |row: ArrayRow<'_>| row.dot(&row);
        let norms = units.slice(s![.., ..width]).map_axis(Axis(1), |f| square(f).ln_1p());
        let largest = mean.map_axis(Axis(1), |z| z.fold(f64::NEG_INFINITY, |a, b| a.max(*b)));
        let from_class = self.class_distances(units.slice(s![.., ..width])).mapv(f64::ln);
        let from_mean = self.units.applied(units.slice(s![.., width..]));
        let from_mean = from_mean.map_axis(Axis(1), |h| square(h).max(f64::MIN_POSITIVE).ln());
        let features = ndarray::stack![Axis(1), norms, largest, from_class, from_mean];
        Ok(Outputs { mean, spread: Spread::Features(features) })
    }
}

/// `W = L⁻ᵀ` `[q, q]` of the covariance `LLᵀ` of the rows of f `[n, q]` within classes, and the means of classes times W `[C, q]`; a class without a
/// row has the mean of all.
fn within_classes(f: ArrayView2<f64>, labels: &[usize], classes: usize) -> Result<(Array2<f64>, Array2<f64>)> {
    let (n, q) = f.dim();
    let (mut means, mut counts) = (Array2::<f64>::zeros((classes, q)), vec![0.0; classes]);
    for (f, &label) in f.rows().into_iter().zip(labels) {
        means.row_mut(label).scaled_add(1.0, &f);
        counts[label] += 1.0;
    }
    let overall = f.mean_axis(Axis(0)).unwrap_or_else(|| Array1::zeros(q));
    for (mut mean, &count) in means.rows_mut().into_iter().zip(&counts) {
        if count > 0.0 { mean /= count } else { mean.assign(&overall) }
    }
    let mut within = f.to_owned();
    within.rows_mut().into_iter().zip(labels).for_each(|(mut f, &label)| f -= &means.row(label));
    let mut covariance = matmul(within.t(), within.view()) / n.max(1) as f64;
    let least = LEAST * (covariance.diag().sum() / q.max(1) as f64).max(f64::MIN_POSITIVE.sqrt());
    covariance.diag_mut().mapv_inplace(|v| v + least);
    let mut whitening = Array2::eye(q);
    solve_lower(Cholesky::new(Device::Cpu, covariance.view())?.lower()?, whitening.view_mut());
    let whitening = whitening.reversed_axes().as_standard_layout().into_owned();
    let centres = matmul(means.view(), whitening.view());
    Ok((whitening, centres))
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Found {
    /// Of φ at the rows it was found on.
    features: Moments,
    /// s, as many as φ has numbers, the constant left out; it is `−log τ`.
    scale: Vec<f64>,
    /// `t₀`, then t.
    temperature: Vec<f64>,
}

/// The process with `B = L Lᵀ`.
pub(super) struct Process {
    reference: Reference,
    /// L `[C, C]`, lower triangular.
    root: Array2<f64>,
    found: Found,
}

fn features(outputs: &Outputs) -> &Array2<f64> {
    let Spread::Features(features) = &outputs.spread else { unreachable!("the outputs are those of a fixed mean") };
    features
}

/// Finds B, s and t on rows with these outputs. Returns the process with the precision `τ = e^{−s₀}`, and the noise of a number.
pub(super) fn fit(
    reference: &Reference,
    outputs: &Outputs,
    likelihood: &Likelihood,
) -> Result<(Process, Searched, f64)> {
    match likelihood {
        Likelihood::Classes(labels) => fit_classes(reference, outputs, labels).map(|(process, τ)| (process, τ, 1.0)),
        Likelihood::Numbers(y) => fit_numbers(reference, outputs, y),
    }
}

fn minimum(count: usize, of: impl Fn(&[f64]) -> (f64, Vec<f64>)) -> Result<(Vec<f64>, f64)> {
    let found = minimise(vec![0.0; count], &vec![BOUNDS; count], END, |at| Ok(Some(of(at))), |_, _, _| true)?;
    let found = found.ok_or_else(|| Error::Numerical("the loss has no value for any amplitude".into()))?;
    Ok((found.x, found.value))
}

fn fit_classes(reference: &Reference, outputs: &Outputs, labels: &[usize]) -> Result<(Process, Searched)> {
    let (z, (n, c)) = (&outputs.mean, outputs.mean.dim());
    let moments = Moments::of(features(outputs).view());
    let used = loss::columns(FEATURES, n);
    let known = moments.applied(features(outputs).view());
    let known = concatenate![Axis(1), Array2::ones((n, 1)), known.slice(s![.., ..used])];
    let (rows, draws) = (Rows { z, features: known, labels, places: loss::places(c, n) }, draws(c)?);
    let (at, value) = minimum(rows.count(), |at| rows.penalised_loss(at, &draws))?;
    let loss::Parts { root, scale, temperature } = rows.parts(&at);
    let mut slopes = scale.slice(s![1..]).to_vec();
    slopes.resize(FEATURES, 0.0);
    let mut temperature = temperature.to_vec();
    temperature.resize(1 + TEMPERED, 0.0);
    let precision = Searched { value: (-scale[0]).exp(), loss: value, at_end: false };
    let found = Found { features: moments, scale: slopes, temperature };
    Ok((Process { reference: reference.clone(), root, found }, precision))
}

fn fit_numbers(reference: &Reference, outputs: &Outputs, y: &[f64]) -> Result<(Process, Searched, f64)> {
    let logarithms = features(outputs).column(0).to_owned();
    // In units of the mean scale, so that the start is a doubt of one unit of the output.
    let mean = logarithms.mean().unwrap_or(0.0);
    let scales = logarithms.mapv(|v| (0.5 * (v - mean)).exp());
    let (at, value) = minimum(2, |at| loss::loss_of_numbers(at, outputs.mean.view(), &scales, y))?;
    let [mut means, mut scale] = [vec![0.0; FEATURES], vec![0.0; FEATURES]];
    (means[0], scale[0]) = (mean, 1.0);
    let features = Moments { mean: means, spread: vec![1.0; FEATURES] };
    let found = Found { features, scale, temperature: vec![0.0; 1 + TEMPERED] };
    let precision = Searched { value: (-at[0]).exp(), loss: value, at_end: false };
    Ok((Process { reference: reference.clone(), root: Array2::eye(1), found }, precision, at[1].exp()))
}

impl Process {
    /// The means `z/T` `[n, C]`, and `a²` `[n]` for the precision τ.
    fn moments(&self, outputs: &Outputs, τ: f64) -> (Array2<f64>, Array1<f64>) {
        let Found { features: moments, scale, temperature } = &self.found;
        let φ = moments.applied(features(outputs).view());
        let squares = φ.dot(&ArrayRow::from(&scale[..])).mapv(|v| v.exp() / τ);
        let t =
            φ.slice(s![.., ..TEMPERED]).dot(&ArrayRow::from(&temperature[1..])).mapv(|v| (temperature[0] + v).exp());
        (&outputs.mean / &t.insert_axis(Axis(1)), squares)
    }

    /// The logarithms of the mean of `softmax(z/T + a u_s)` `[n, C]` over the draws, for outputs of classes.
    fn mean_of_draws(&self, outputs: &Outputs, τ: f64) -> Result<Array2<f64>> {
        let u = draws(self.root.nrows())?.dot(&self.root.t());
        let (means, squares) = self.moments(outputs, τ);
        let (n, c) = means.dim();
        let of_rows = |first: usize| {
            let (mut scores, mut p) = (vec![], Array2::zeros(u.dim()));
            for i in first..n.min(first + ROWS) {
                softmaxes(means.row(i), squares[i].sqrt(), &u, &mut p);
                scores.extend(p.columns().into_iter().map(|p| (p.sum() / DRAWS as f64).max(f64::MIN_POSITIVE).ln()));
            }
            scores
        };
        let tasks: Vec<usize> = (0..n).step_by(ROWS).collect();
        let scores = tasks.into_par_iter().map(of_rows).collect::<Vec<Vec<f64>>>().concat();
        Ok(Array2::from_shape_vec((n, c), scores).expect("a score for each output of each row"))
    }

    pub fn unpack(bundle: &Bundle, outputs: usize) -> Result<Process> {
        let root = bundle.matrix("root")?;
        let (whitening, centres) = (bundle.matrix("whitening")?, bundle.matrix("centres")?);
        let reference = Reference { units: bundle.value("units")?, whitening, centres };
        let found: Found = bundle.value("process")?;
        let positive = root.diag().iter().all(|v| *v > 0.0) && root.iter().all(|v| v.is_finite());
        let finite = found.scale.iter().chain(&found.temperature).all(|v| v.is_finite());
        let lengths = (found.scale.len(), found.temperature.len()) == (FEATURES, 1 + TEMPERED);
        fail_if!(
            root.dim() != (outputs, outputs)
                || !(positive && finite && lengths && found.features.fits(FEATURES))
                || !reference.units.fits(reference.units.mean.len())
                || reference.whitening.nrows() != reference.whitening.ncols()
                || reference.centres.ncols() != reference.whitening.nrows()
                || reference.centres.nrows() == 0
                || reference.centres.iter().chain(&reference.whitening).any(|v| !v.is_finite()),
            "its parts do not fit together: the amplitudes of the outputs"
        );
        Ok(Process { reference, root, found })
    }
}

impl Structure for Process {
    fn eigenvalues(&self) -> Vec<f64> {
        vec![]
    }

    fn square(&self) -> f64 {
        0.0
    }

    /// `a² B` with a for the precision s
    fn covariance(
        &self,
        passes: &Passes,
        x: ArrayView2<f64>,
        shifts: &[f64],
        full: bool,
    ) -> Result<(Array2<f64>, Vec<Array3<f64>>)> {
        let outputs = self.reference.outputs(passes, x)?;
        let (b, (n, c)) = (self.root.dot(&self.root.t()), outputs.mean.dim());
        let (mean, squares) = self.moments(&outputs, 1.0);
        let of = |shift: &f64| {
            Array3::from_shape_fn((n, c, if full { c } else { 1 }), |(i, j, k)| {
                squares[i] * b[[j, if full { k } else { j }]] / shift
            })
        };
        Ok((mean, shifts.iter().map(of).collect()))
    }

    fn scores(&self, passes: &Passes, x: ArrayView2<f64>, τ: f64) -> Result<Array2<f64>> {
        self.mean_of_draws(&self.reference.outputs(passes, x)?, τ)
    }

    fn scores_of(&self, outputs: &Outputs, τ: f64) -> Result<Array2<f64>> {
        self.mean_of_draws(outputs, τ)
    }

    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()> {
        bundle.put("root", self.root.view());
        bundle.set("process", &self.found);
        bundle.set("units", &self.reference.units);
        bundle.put("whitening", self.reference.whitening.view());
        bundle.put("centres", self.reference.centres.view());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normals(n: usize, c: usize, seed: u64) -> Array2<f64> {
        let mut rng = Rng::new(seed);
        Array2::from_shape_simple_fn((n, c), || rng.normal())
    }

    /// Labels that are drawn from the process have its temperatures and amplitudes as those with the least loss.
    #[test]
    fn the_process_that_labels_were_drawn_from_is_found() {
        let (n, c) = (20_000, 3);
        let (z, φ) = (normals(n, c, 1) * 3.0, normals(n, FEATURES, 2) * 2.0 + 5.0);
        // log T = 0.3 + 0.2 (φ₁ − 5)/2 − 0.3 (φ₂ − 5)/2, log a² = 0.8 + 0.5 (φ₁ − 5)/2 − 0.4 (φ₃ − 5)/2
        let standard = |i: usize, j: usize| (φ[[i, j]] - 5.0) / 2.0;
        let t = |i: usize| (0.3 + 0.2 * standard(i, 0) - 0.3 * standard(i, 1)).exp();
        let a = |i: usize| (0.5 * (0.8 + 0.5 * standard(i, 0) - 0.4 * standard(i, 2))).exp();
        let (mut rng, noise) = (Rng::new(3), normals(n, c, 4));
        let label = |i: usize| {
            let drawn: Vec<f64> = (0..c)
                .map(|k| z[[i, k]] / t(i) + a(i) * noise[[i, k]] - (-rng.uniform().max(1e-300).ln()).ln())
                .collect();
            (0..c).fold(0, |best, k| if drawn[k] > drawn[best] { k } else { best })
        };
        let labels = Likelihood::Classes((0..n).map(label).collect());
        let outputs = Outputs { mean: z, spread: Spread::Features(φ) };
        let units = Moments { mean: vec![], spread: vec![] };
        let reference = Reference { units, whitening: Array2::eye(1), centres: Array2::eye(1) };
        let (process, precision, _) = fit(&reference, &outputs, &labels).unwrap();
        let near = |found: &[f64], want: &[f64], most: f64| found.iter().zip(want).all(|(a, b)| (a - b).abs() < most);
        let Found { scale, temperature, .. } = &process.found;
        assert!(near(temperature, &[0.3, 0.2, -0.3], 0.15), "{temperature:?}");
        assert!(
            near(scale, &[0.5, 0.0, -0.4, 0.0], 0.3) && (-precision.value.ln() - 0.8).abs() < 0.5,
            "{scale:?} {precision:?}"
        );
        assert!(near(process.root.as_slice().unwrap(), Array2::eye(c).as_slice().unwrap(), 0.2), "{}", process.root);
    }

    /// Distances by the whitening are those by the inverse of the covariance within classes.
    #[test]
    fn class_distances_are_those_of_the_inverse_covariance() {
        let (n, q) = (60, 4);
        let labels: Vec<usize> = (0..n).map(|i| i % 3).collect();
        let mixed = normals(q, q, 5);
        let f = normals(n, q, 6).dot(&mixed) + &Array2::from_shape_fn((n, q), |(i, j)| (labels[i] * (j + 1)) as f64);
        let (whitening, centres) = within_classes(f.view(), &labels, 4).unwrap();
        let reference = Reference { units: Moments { mean: vec![], spread: vec![] }, whitening, centres };
        let found = reference.class_distances(f.view());
        let mean = |c: usize| {
            let rows: Vec<usize> = (0..n).filter(|i| labels[*i] == c).collect();
            f.select(Axis(0), &rows).mean_axis(Axis(0)).unwrap()
        };
        let means = [mean(0), mean(1), mean(2), f.mean_axis(Axis(0)).unwrap()];
        let mut covariance = Array2::<f64>::zeros((q, q));
        for (f, &label) in f.rows().into_iter().zip(&labels) {
            let away = (&f - &means[label]).insert_axis(Axis(1));
            covariance += &(away.dot(&away.t()) / n as f64);
        }
        let least = LEAST * covariance.diag().sum() / q as f64;
        covariance.diag_mut().mapv_inplace(|v| v + least);
        let inverse = Cholesky::new(Device::Cpu, covariance.view()).unwrap().inverse().unwrap();
        for (f, found) in f.rows().into_iter().zip(&found) {
            let away = means.each_ref().map(|mean| &f - mean);
            let want = away.iter().map(|a| a.dot(&inverse.dot(a))).fold(f64::INFINITY, f64::min);
            assert!((found / want - 1.0).abs() < 1e-9, "{found} {want}");
        }
    }
}
