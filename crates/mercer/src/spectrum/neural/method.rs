//! Neural eigenfunctions as a method like the others.

use super::functions::{STRIP, network_of_units, separate_networks};
use super::training::{pairs_of, validation_sample};
use super::{FunctionOperator, Functions, Kind, NetworkFeatures, OnData, Pairs, Settings, Trained, TrainedPairs};
use super::{certify_trained, rayleigh_ritz, train};
use crate::compute::Device;
use crate::linalg::matmul;
use crate::net::Network;
use crate::operator::{Extension, Points};
use crate::rng::Rng;
use crate::spectrum::{Certified, Method, Problem, Solution, averaged, zero_threshold};
use crate::{Result, fail_if};
use ndarray::{Array2, s};

/// Eigenfunctions by trained networks.
///
/// ```
/// use mercer::{FitContext, kernel::Kernel, spectrum::{Problem, Spectrum, neural::{Neural, NeuralEf}}};
/// let x = ndarray::Array2::from_shape_fn((300, 1), |(i, _)| i as f64 / 75.0 - 2.0);
/// let operator = FitContext::default().kernel_operator(&Kernel::parse("rbf(1)")?, x.view())?;
/// let mut method = Neural::new(NeuralEf::default());
/// method.settings.steps = 100;
/// let spectrum = Spectrum::fit(&method, &Problem::new(&operator, 3), None)?;
/// assert!((spectrum.eigenvalues[0] - 0.52).abs() < 0.02);
/// assert_eq!(spectrum.training().unwrap().raw_eigenvalues.len(), 3);
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct Neural {
    /// The objective.
    pub kind: Kind,
    /// The networks, see [`crate::net`]; without it two hidden layers of sines and cosines.
    pub architecture: Option<String>,
    /// Budget, optimizer, checkpoints. Its seed is replaced by the problem's.
    pub settings: Settings,
    /// Most points of the sample over which the pairs are found in the end.
    pub finish_points: usize,
}

impl Neural {
    /// With the usual settings: 2000 steps, and 200 for Ritz, whose last layer needs none.
    pub fn new(kind: impl Into<Kind>) -> Self {
        let (kind, mut settings) = (kind.into(), Settings::default());
        if kind.solves_last_layer() {
            settings.steps = 200;
        }
        Neural { kind, architecture: None, settings, finish_points: 8192 }
    }

    /// The networks for points of `d` columns and `k` functions of `c` outputs where none are given: two hidden layers of
    /// half sines, half cosines, 32 wide on the line and in the plane and 64 above, the first with weights of scale `w`.
    /// Ritz needs one network only, and has it wider.
    fn default_architecture(&self, d: usize, k: usize, w: f64, c: usize) -> String {
        let h = if d <= 2 { 32 } else { 64 };
        let last = if self.kind.solves_last_layer() { (2 * h).max(4 * k) } else { h };
        format!("dense({h}, w={w}) sincos dense({last}) sincos dense({c}) l2norm")
    }

    /// The architecture that was given, or the default one with every weight scale that is tried.
    pub(super) fn architectures(&self, d: usize, k: usize, c: usize) -> Vec<String> {
        match &self.architecture {
            Some(given) => vec![given.clone()],
            None => {
                let tried = SCALES.into_iter().filter(|w| self.settings.finish || *w >= LEAST_UNFINISHED);
                tried.map(|w| self.default_architecture(d, k, w, c)).collect()
            }
        }
    }

    /// The functions to train. Without an architecture, the default one with the weight scale whose untrained
    /// networks have the smallest validation residual: smooth kernels want small weights, rough ones large.
    pub(super) fn functions(
        &self,
        operator: &dyn FunctionOperator,
        k: usize,
        device: Device,
        seed: &Rng,
    ) -> Result<Functions> {
        let (d, c, rng) = (operator.inputs(), operator.outputs(), seed.fork(1));
        let Some(architecture) = &self.architecture else {
            let sample = validation_sample(operator, device, seed, &self.settings)?;
            let mut best: Option<(f64, Functions)> = None;
            for architecture in self.architectures(d, k, c) {
                let mut functions = self.kind.functions(&architecture, d, k, device, &rng)?;
                let pairs = rayleigh_ritz(operator, &mut functions, &sample, k)?;
                let residual = pairs.mean_residual(k, operator.roundoff());
                if best.as_ref().is_none_or(|(least, _)| residual < *least) {
                    best = Some((residual, functions));
                }
            }
            return Ok(best.expect("there are scales").1);
        };
        let functions = self.kind.functions(architecture, d, k, device, &rng)?;
        fail_if!(
            functions.outputs() != c,
            "\"{architecture}\" has {} outputs; an eigenfunction of this kernel has {c}: end it with dense({c})",
            functions.outputs()
        );
        Ok(functions)
    }

    /// Refuses networks and samples that the memory has no room for, before they are drawn and read.
    fn require(&self, problem: &Problem) -> Result<()> {
        let budget = problem.context.budget;
        let [inputs, outputs, n] = [problem.points("a network")?.d(), problem.operator.outputs(), problem.operator.n()];
        for architecture in self.architectures(inputs, problem.k, outputs) {
            let network = match self.kind.solves_last_layer() {
                true => network_of_units(&architecture, inputs)?,
                false => separate_networks(&architecture, inputs, problem.k)?,
            };
            budget.require_network(&network, 2, 0)?;
            budget.require(
                format!("training {} parameters by {}", network.parameters(), self.kind.name()),
                self.needed(&network, n, problem.k),
                "use narrower networks, fewer pairs or a smaller batch",
            )?;
        }
        let Some(functions) = problem.operator.low_rank() else { return Ok(()) };
        // The functions at the points of the largest sample, as they are read and in order.
        let values = functions.dim().1.min(self.finish_points.saturating_mul(problem.operator.outputs()));
        budget.require(
            format!("{} functions at {values} values", functions.dim().0),
            (2 * 8 * (values as u64)).saturating_mul(functions.dim().0 as u64),
            concat!("use ", crate::advice!(Krylov), ", which reads the samples in strips, or fewer functions"),
        )
    }

    /// Bytes for the state and its copies; a batch, its kernel matrix, and its way through the networks; and the finish over a large sample, which
    /// goes through the networks in strips: the values of p functions, their images, and matrices `[p, p]`.
    fn needed(&self, network: &Network, n: usize, k: usize) -> u64 {
        let functions = if self.kind.solves_last_layer() { network.outputs() } else { network.networks() };
        let most = n.min(self.finish_points);
        let [p, m, b, strip] = [functions, most, n.min(self.settings.batch), most.min(STRIP)].map(|v| v as u64);
        let copies = (64 + 12 * self.kind.memory(k) as u64).saturating_mul(network.parameters() as u64);
        let passes = (b + strip).saturating_mul(network.bytes_per_point() as u64);
        // Ritz holds its units once more, with their products, where others hold k functions.
        let arrays: u64 = if self.kind.solves_last_layer() { 12 } else { 8 };
        let values = (8 * arrays).saturating_mul(p).saturating_mul(m.saturating_add(p));
        copies.saturating_add(16 * b * b).saturating_add(passes).saturating_add(values)
    }
}

/// Scales of the first layer's weights that are tried.
const SCALES: [f64; 5] = [0.35, 0.7, 1.4, 2.8, 5.6];
/// The least of them where no Rayleigh–Ritz follows: functions that start out all but constant span well, but are slow to
/// become the third eigenfunction each by itself.
const LEAST_UNFINISHED: f64 = 0.7;

impl Method for Neural {
    fn name(&self) -> String {
        self.kind.name().into()
    }

    fn solve(&self, problem: &Problem) -> Result<Solution> {
        let context = &problem.context;
        let (seed, k) = (Rng::new(context.seed), problem.k);
        if self.kind.solves_last_layer() && problem.operator.outputs() > 1 {
            return self.drawn(problem, &seed);
        }
        let operator = OnData::new(problem.operator)?;
        self.require(problem)?;
        let functions = self.functions(&operator, k, context.device, &seed)?;
        let objective = self.kind.objective(&functions, k)?;
        let own = (!self.settings.finish).then(|| objective.own());
        let settings = Settings { seed: context.seed, ..self.settings.clone() };
        let drawn = functions.parameters().trained.to_host()?;
        let _keeps = context.keeps_best();
        let Trained { mut functions, mut record } = train(&operator, functions, objective, k, &settings, context)?;
        let sample = operator.sample(context.device, &mut seed.fork(4), self.finish_points)?;
        record.finished = self.settings.finish;
        let solution = |functions: &mut Functions| -> Result<Solution> {
            let pairs = pairs_of(&operator, functions, &sample, k, own)?;
            let (eigenvalues, coefficients) = solved(&operator, pairs, k);
            let features = Box::new(NetworkFeatures::new(functions, operator.standardizer()));
            Ok(Solution::new(eigenvalues, Extension { features, coefficients }))
        };
        let trained = solution(&mut functions)?;
        let mut untrained = None;
        if record.kept > 0 && settings.keep_best {
            functions.parameters_mut().trained.copy_from_host(&drawn)?;
            untrained = Some(Box::new(solution(&mut functions)?));
        }
        Ok(Solution { networks: Some(TrainedPairs { training: record, untrained }), ..trained })
    }

    fn certify(&self, problem: &Problem, found: Solution, held_out: Option<Points<'_>>) -> Result<Certified> {
        certify_trained(problem, found, held_out)
    }
}

impl Neural {
    /// Ritz of a matrix-valued kernel: hidden units as they were drawn, in every output. The functions reach new points as
    /// `ψ_j(x) = (1/(m μ_j)) Σ_i κ(x, x_i) ψ_j(x_i)` over the m values of the sample.
    fn drawn(&self, problem: &Problem, seed: &Rng) -> Result<Solution> {
        let (device, k, c) = (problem.context.device, problem.k, problem.operator.outputs());
        let operator = OnData::new(problem.operator)?;
        let sample = operator.sample(device, &mut seed.fork(4), self.finish_points)?;
        let mut best: Option<(f64, Functions, Pairs)> = None;
        for architecture in self.architectures(operator.inputs(), k, 1) {
            problem.context.budget.require_network(&network_of_units(&architecture, operator.inputs())?, 2, 0)?;
            let mut units = Functions::hidden_units(&architecture, operator.inputs(), device, &seed.fork(1))?;
            let pairs = operator.ritz_of_units(&mut units, &sample, k)?;
            let residual = pairs.mean_residual(k, operator.roundoff());
            if best.as_ref().is_none_or(|(least, ..)| residual < *least) {
                best = Some((residual, units, pairs));
            }
        }
        let (_, mut units, pairs) = best.expect("there are architectures");
        let x = problem.points("Ritz")?;
        let phi = units.columns(&operator.standardizer().gather(device, x, 0..x.n())?)?;
        let (eigenvalues, a) = solved(&operator, pairs, k);
        let mut psi = Array2::zeros((phi.nrows() * c, k));
        for output in 0..c {
            psi.slice_mut(s![output..;c, ..]).assign(&matmul(phi.view(), a.slice(s![output..;c, ..])));
        }
        let psi = averaged(psi, &eigenvalues);
        let at_points = Some(problem.operator.apply(psi.view())?);
        Ok(Solution { at_points, ..Solution::new(eigenvalues, problem.operator.extend(None, psi)?) })
    }
}

/// Eigenvalues and coefficients `[p, k]` of the pairs, in their order; what is numerically zero is zero, and last.
pub(super) fn solved(operator: &dyn FunctionOperator, pairs: Pairs, k: usize) -> (Vec<f64>, Array2<f64>) {
    let threshold = zero_threshold(operator.roundoff(), pairs.largest());
    let mut eigenvalues = vec![0.0; k];
    let mut coefficients = Array2::zeros((pairs.coefficients.nrows(), k));
    let nonzero = pairs.eigenvalues.iter().enumerate().filter(|(_, μ)| **μ > threshold);
    for (place, (j, &μ)) in nonzero.enumerate() {
        eigenvalues[place] = operator.eigenvalue(μ);
        coefficients.column_mut(place).assign(&pairs.coefficients.column(j));
    }
    (eigenvalues, coefficients)
}
