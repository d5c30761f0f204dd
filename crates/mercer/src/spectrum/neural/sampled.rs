//! Spectra of the kernel of sampled functions, scalar or matrix-valued, at the points where they were sampled.

use super::method::finished;
use super::{FunctionOperator, Functions, Kind, NetworkFeatures, Neural, OnData, Pairs, SampledModel};
use super::{Settings, Trained, Training, rayleigh_ritz, train};
use crate::compute::{Device, Tensor};
use crate::linalg::{eigh, matmul};
use crate::operator::{Budget, FunctionSamples, LowRankOperator, Operator};
use crate::rng::Rng;
use crate::spectrum::{Features, top_pairs};
use crate::{Error, FitContext, Result};
use ndarray::{Array2, Array3, ArrayView2, ArrayView3, Axis, s};
use std::time::Instant;

/// Samples `F` `[S, n, C]` of functions at the points `x` `[n, d]`, and what is wanted of their kernel.
#[derive(Clone)]
pub struct Samples<'a> {
    /// `F` `[S, n, C]`, in memory or in a file; scalar functions have C = 1.
    pub f: FunctionSamples<'a>,
    /// The points `[n, d]`.
    pub x: ArrayView2<'a, f64>,
    /// Whether κ is taken to be `κ(x,x')·I_C` ([`LowRankOperator::of_samples`]).
    pub factorised: bool,
    /// How many pairs.
    pub k: usize,
}

/// Eigenvalues and eigenfunctions at the points.
pub struct SampledSpectrum {
    /// Descending: those of the `[nC, nC]` matrix over `nC`, or of the factorised `[n, n]` one over n.
    pub eigenvalues: Vec<f64>,
    /// `‖Kψ_j − μ_jψ_j‖/μ_j` over all points; none where `μ_j = 0`.
    pub residuals: Vec<Option<f64>>,
    /// The sum of all eigenvalues.
    pub trace: f64,
    /// `ψ` `[n, C, k]` of mean square one over points and outputs (C = 1 where factorised); zero where `μ_j = 0`.
    pub functions: Array3<f64>,
    /// The same functions at new points.
    pub model: SampledModel,
    /// Seconds that finding the pairs took.
    pub seconds: f64,
}

impl SampledSpectrum {
    /// How the networks were trained, where they were.
    pub fn training(&self) -> Option<&Training> {
        self.model.networks.as_ref().and_then(|(features, _)| features.training())
    }
}

impl<'a> Samples<'a> {
    fn check(&self) -> Result<()> {
        // All else is checked where the operator is made.
        let most = self.x.nrows() * self.outputs();
        if self.k == 0 || self.k > most {
            return Err(Error::input(format!(
                "k must lie between 1 and {most}, the size of the matrix; got {}",
                self.k
            )));
        }
        Ok(())
    }

    /// C as the eigenfunctions have it.
    fn outputs(&self) -> usize {
        if self.factorised { 1 } else { self.f.dim().2 }
    }

    /// The samples as an operator on `n·C` values.
    fn operator(&self) -> Result<LowRankOperator> {
        let n = self.f.dim().1;
        if n != self.x.nrows() {
            return Err(Error::input(format!("functions sampled at {n} points were given {} points", self.x.nrows())));
        }
        LowRankOperator::of_samples(&self.f, self.factorised)
    }

    /// By a dense eigendecomposition of the smaller of `FᵀF` and `FFᵀ`, which have the same eigenvalues.
    ///
    /// ```
    /// use mercer::spectrum::neural::Samples;
    /// let x = ndarray::array![[0.0], [1.0], [2.0]];
    /// let f = ndarray::array![[[1.0], [2.0], [0.0]], [[0.0], [2.0], [4.0]]];
    /// let found = Samples { f: f.view().into(), x: x.view(), factorised: false, k: 3 }.exact()?;
    /// assert!((found.eigenvalues.iter().sum::<f64>() - 25.0 / 6.0).abs() < 1e-12); // ‖F‖²/(S n C)
    /// assert_eq!(found.eigenvalues[2], 0.0); // two functions span two dimensions
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn exact(&self) -> Result<SampledSpectrum> {
        let start = Instant::now();
        self.check()?;
        let operator = self.operator()?;
        let (count, m) = operator.dim();
        let least = count.min(m) as u64;
        Budget::of_free_memory().require(
            format!("the eigendecomposition of {count} functions of {m} values"),
            4 * 8 * least * least,
            "use the Krylov method, which reads the samples repeatedly instead",
        )?;
        let (values, u) = eigh(Device::Cpu, operator.smaller_gram().view())?;
        let u = u.slice(s![.., ..self.k.min(values.len())]);
        // v = Fᵀu/√λ is a unit vector.
        let v = if m <= count { u.to_owned() } else { operator.pulled(u) };
        self.of_vectors(&operator, &values, v.view(), start)
    }

    /// The top pairs by block Krylov iteration: each product reads the samples once, and nothing of their size is in memory.
    pub fn krylov(&self, tolerance: f64, context: &FitContext<'_>) -> Result<SampledSpectrum> {
        let start = Instant::now();
        self.check()?;
        let operator = self.operator()?;
        let top = top_pairs(&operator, self.k, tolerance, context)?;
        self.of_vectors(&operator, &top.values, top.vectors.view(), start)
    }

    /// The spectrum of eigenvalues λ of `FᵀF/S` and eigenvectors `[m, ≤k]` of any length.
    fn of_vectors(
        &self,
        operator: &LowRankOperator,
        values: &[f64],
        vectors: ArrayView2<f64>,
        start: Instant,
    ) -> Result<SampledSpectrum> {
        let (count, m) = operator.dim();
        let mut psi = Array2::zeros((m, self.k));
        let mut eigenvalues = vec![0.0; self.k];
        let zero = 10.0 * operator.roundoff() * count.max(m) as f64 * values[0];
        for (j, &λ) in values.iter().enumerate().take(self.k).filter(|(_, λ)| **λ > zero) {
            eigenvalues[j] = λ / m as f64;
            let v = vectors.column(j);
            psi.column_mut(j).assign(&(&v * (m as f64 / v.dot(&v)).sqrt()));
        }
        self.certified(operator, eigenvalues, psi, None, start)
    }

    /// By trained networks: `C` outputs each; Ritz of a matrix-valued kernel takes the hidden units of a network as they
    /// were drawn, in every output.
    pub fn neural(&self, method: &Neural, context: &FitContext<'_>) -> Result<SampledSpectrum> {
        let start = Instant::now();
        self.check()?;
        let operator = self.operator()?;
        let rng = Rng::new(context.seed);
        let on_data = OnData::operator(&operator, self.x, self.outputs())?;
        let (eigenvalues, psi, networks) = match method.kind {
            Kind::Ritz if self.outputs() > 1 => self.drawn(&on_data, method, &rng, context)?,
            _ => self.trained(&on_data, method, &rng, context)?,
        };
        self.certified(&operator, eigenvalues, psi, networks, start)
    }

    fn trained(&self, action: &OnData, method: &Neural, rng: &Rng, context: &FitContext<'_>) -> Result<Found> {
        let functions = method.functions(action, self.k, context.device, rng)?;
        let objective = method.kind.objective(&functions, self.k)?;
        let settings = Settings { seed: context.seed, ..method.settings.clone() };
        let Trained { mut functions, mut record } = train(action, functions, objective, self.k, &settings, context)?;
        let sample = action.sample(context.device, &mut rng.fork(4), method.finish_points)?;
        let pairs = rayleigh_ritz(action, &mut functions, &sample, self.k)?;
        record.finished = true;
        let (eigenvalues, coefficients) = finished(action, pairs, self.k);
        let phi = functions.columns(&self.all(action, context.device)?)?;
        let psi = matmul(phi.view(), coefficients.view());
        let features = NetworkFeatures::new(&functions, action.standardizer(), record);
        Ok((eigenvalues, psi, Some((features, coefficients))))
    }

    /// Hidden units in every output, without training.
    fn drawn(&self, action: &OnData, method: &Neural, rng: &Rng, context: &FitContext<'_>) -> Result<Found> {
        let sample = action.sample(context.device, &mut rng.fork(4), method.finish_points)?;
        let mut best: Option<(f64, Functions, Pairs)> = None;
        for architecture in method.architectures(action.inputs(), self.k, 1) {
            let mut units = Functions::hidden_units(&architecture, action.inputs(), context.device, &rng.fork(1))?;
            let pairs = action.ritz_of_units(&mut units, &sample, self.k)?;
            let residual = pairs.mean_residual(self.k, action.roundoff());
            if best.as_ref().is_none_or(|(least, ..)| residual < *least) {
                best = Some((residual, units, pairs));
            }
        }
        let (_, mut units, pairs) = best.expect("there are architectures");
        let (phi, c) = (units.columns(&self.all(action, context.device)?)?, self.outputs());
        let (eigenvalues, a) = finished(action, pairs, self.k);
        let mut psi = Array2::zeros((phi.nrows() * c, self.k));
        for output in 0..c {
            psi.slice_mut(s![output..;c, ..]).assign(&matmul(phi.view(), a.slice(s![output..;c, ..])));
        }
        Ok((eigenvalues, psi, None))
    }

    /// Every point, in order.
    fn all(&self, action: &OnData, device: Device) -> Result<Tensor> {
        action.standardizer().gather(device, self.x, 0..self.x.nrows())
    }

    /// Measures the residuals of `ψ` `[n·C, k]` over all points.
    fn certified(
        &self,
        operator: &LowRankOperator,
        eigenvalues: Vec<f64>,
        psi: Array2<f64>,
        networks: Option<(NetworkFeatures, Array2<f64>)>,
        start: Instant,
    ) -> Result<SampledSpectrum> {
        let seconds = start.elapsed().as_secs_f64();
        let image = operator.apply(psi.view())? / psi.nrows() as f64;
        let residual = |j: usize| {
            let (psi, image) = (psi.column(j), image.column(j));
            let error = &image - &(&psi * eigenvalues[j]);
            (error.dot(&error) / psi.dot(&psi)).sqrt() / eigenvalues[j]
        };
        let residuals: Vec<_> = (0..self.k).map(|j| (eigenvalues[j] > 0.0).then(|| residual(j))).collect();
        // W = Fψ/(mμ): ψ(x) = F(x)ᵀW.
        let mut weights = operator.pushed(psi.view());
        for (mut column, μ) in weights.columns_mut().into_iter().zip(&eigenvalues) {
            column *= if *μ > 0.0 { 1.0 / (psi.nrows() as f64 * μ) } else { 0.0 };
        }
        let model = SampledModel {
            eigenvalues: eigenvalues.clone(),
            residuals: residuals.clone(),
            outputs: self.f.dim().2,
            factorised: self.factorised,
            weights,
            networks,
        };
        Ok(SampledSpectrum {
            residuals,
            trace: operator.diagonal()?.mean().unwrap_or(0.0),
            functions: psi.into_shape_with_order((self.x.nrows(), self.outputs(), self.k)).expect("n·C rows"),
            eigenvalues,
            model,
            seconds,
        })
    }
}

/// Eigenvalues, ψ `[n·C, k]` at all points, and the networks with the functions' coefficients where they were trained.
type Found = (Vec<f64>, Array2<f64>, Option<(NetworkFeatures, Array2<f64>)>);

/// The samples in an array `[S, n]` or `[S, n, C]`, its rows flattened as a reader gives them, at `n` points.
pub fn samples_from_rows(rows: ArrayView2<'_, f64>, n: usize) -> Result<ArrayView3<'_, f64>> {
    let (count, columns) = rows.dim();
    if n == 0 || columns % n != 0 || columns == 0 {
        return Err(Error::input(format!(
            "samples with {columns} values each do not fit {n} points: they must be [S, {n}] or [S, {n}, C]"
        )));
    }
    rows.insert_axis(Axis(2))
        .into_shape_with_order((count, n, columns / n))
        .map_err(|_| Error::input("the samples must lie row by row"))
}
