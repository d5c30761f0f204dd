//! An ordered code: functions whose first m values are the code of length m.

use crate::apply::reference::{check_new, matrix};
use crate::apply::traits::{fields, saved};
use crate::apply::{PairCertificate, Transform};
use crate::bundle::Bundle;
use crate::compute::Device;
use crate::linalg::matmul;
use crate::operator::{Features, Points};
use crate::rng::Rng;
use crate::spectrum::Origin;
use crate::spectrum::neural::{NetworkFeatures, Training, directions};
use crate::{Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis};

/// Coordinates `w_j ψ_j(x)` in the order of the eigenvalues `μ_j` of a kernel that is known through pairs, with the factors of a [`Weighting`]: products of codes are
/// the best approximation of its kernel by so many coordinates. Example: [`ViewEigenmap`](crate::apply::ViewEigenmap).
pub struct FittedCode {
    /// How and on what it was fitted.
    pub origin: Origin,
    /// μ, descending, none of them zero.
    pub eigenvalues: Vec<f64>,
    /// The same functions on pairs that were not used to find them.
    pub certificate: PairCertificate,
    /// How the network was trained, where there is one.
    pub training: Option<Training>,
    /// Warnings for the user.
    pub notes: Vec<String>,
    pub(crate) map: CodeMap,
}

/// How coordinates are weighted, and so which kernel the products of codes approximate. From x to a view of the same thing is a step of a random walk; its
/// kernel less one, for t steps, is `Σ_j μ_j^t ψ_j(x)ψ_j(x')`. Example: [`ViewEigenmap`](crate::apply::ViewEigenmap) takes one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weighting {
    /// `√μ_j`: the kernel of one step. Where many eigenvalues are near one, all coordinates count alike, and the code tells things apart rather than kinds of things.
    #[default]
    Kernel,
    /// `√(μ_j/(1 − μ_j))`: the sum of the kernels of 1, 2, … steps, whose distances are commute times. Differences between the two views of a pair then have about the same size in
    /// every coordinate.
    Commute,
    /// `√μ_j/(1 − μ_j)`: the sum of t times the kernel of t steps, whose distances are biharmonic. It looks furthest.
    Biharmonic,
}

/// How functions of which pairs are known become a code. Example: [`EmbeddingCode`](crate::apply::EmbeddingCode).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CodeFinish {
    /// Whether functions φ are divided by their norm at each point first: `φ/‖φ‖`, as networks are trained whose objective compares angles.
    pub by_direction: bool,
    /// γ as a share of the mean variance of the functions: Rayleigh–Ritz sees views whose functions carry independent noise of this variance,
    /// `R a = μ (Σ + γI) a`, with the covariance Σ of the functions and R between the views of a pair. Where it is 0, directions of little variance count as much as
    /// others, and the order is that of agreement alone; where it is large, the order is that of the variance that views share.
    pub ridge: f64,
    /// The weights of the coordinates.
    pub weighting: Weighting,
}

impl CodeFinish {
    /// Functions as they are, ordered by agreement alone, weighted as in the kernel.
    pub const PLAIN: CodeFinish = CodeFinish { by_direction: false, ridge: 0.0, weighting: Weighting::Kernel };
    /// For units of networks and their embeddings: directions, a ridge of 0.1, biharmonic weights. Chosen on training images of CIFAR-10 by mean average precision.
    pub const UNITS: CodeFinish = CodeFinish { by_direction: true, ridge: 0.1, weighting: Weighting::Biharmonic };

    pub(crate) fn check(&self) -> Result<()> {
        fail_if!(!(self.ridge >= 0.0 && self.ridge.is_finite()), "the ridge must be at least 0, got {}", self.ridge);
        Ok(())
    }

    /// φ, or its direction, at each row of `phi` `[m, p]`.
    pub(crate) fn functions(&self, phi: Array2<f64>) -> Array2<f64> {
        if self.by_direction { directions(phi) } else { phi }
    }

    /// The coefficients `A` `[p, k]` of orthonormal functions with the weights of their eigenvalues.
    pub(crate) fn weighted(&self, a: Array2<f64>, eigenvalues: &[f64]) -> Array2<f64> {
        a * &eigenvalues.iter().map(|μ| self.weighting.factor(*μ)).collect::<Array1<f64>>()
    }
}

/// Centred functions `[m, p]` with noise of variance γ, as a ridge has it.
pub(crate) fn with_noise(mut phi: Array2<f64>, gamma: f64, mut rng: Rng) -> Array2<f64> {
    if gamma > 0.0 {
        phi.mapv_inplace(|v| v + gamma.sqrt() * rng.normal());
    }
    phi
}

/// Eigenvalues nearer to one than this weigh as if they were so near.
const NEAREST: f64 = 1e-6;

impl Weighting {
    /// By name.
    pub const NAMED: [(&str, Weighting); 3] =
        [("kernel", Weighting::Kernel), ("commute", Weighting::Commute), ("biharmonic", Weighting::Biharmonic)];

    /// The factor of a coordinate with the eigenvalue `mu`.
    ///
    /// ```
    /// use mercer::apply::Weighting;
    /// let weights = Weighting::NAMED.map(|(_, weighting)| weighting.factor(0.64));
    /// assert!((weights[0] - 0.8).abs() < 1e-12 && (weights[1] - 0.8 / 0.6).abs() < 1e-12 && (weights[2] - 0.8 / 0.36).abs() < 1e-12);
    /// ```
    pub fn factor(self, mu: f64) -> f64 {
        let (root, gap) = (mu.max(0.0).sqrt(), (1.0 - mu).max(NEAREST));
        match self {
            Weighting::Kernel => root,
            Weighting::Commute => root / gap.sqrt(),
            Weighting::Biharmonic => root / gap,
        }
    }
}

/// `x ↦ (φ(x) − b) A`, or `(φ(x)/‖φ(x)‖ − b) A`.
pub(crate) struct CodeMap {
    /// φ, where it is not the row itself.
    pub network: Option<NetworkFeatures>,
    /// Whether φ is divided by its norm.
    pub by_direction: bool,
    /// b `[1, p]`
    pub shift: Array2<f64>,
    /// A `[p, k]`, which has the weights of the coordinates.
    pub coefficients: Array2<f64>,
}

/// Rows that networks see at a time.
const STRIP: usize = 2048;

impl CodeMap {
    pub fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        self.in_strips(x, self.coefficients.ncols(), |phi| {
            let phi = if self.by_direction { directions(phi) } else { phi };
            matmul((phi - &self.shift).view(), self.coefficients.view())
        })
    }

    /// What `of` makes `[·, width]` of φ(x), a strip of rows at a time.
    fn in_strips(
        &self,
        x: ArrayView2<f64>,
        width: usize,
        of: impl Fn(Array2<f64>) -> Array2<f64>,
    ) -> Result<Array2<f64>> {
        let Some(network) = &self.network else { return Ok(of(x.to_owned())) };
        let mut made = Array2::zeros((x.nrows(), width));
        for (x, mut made) in x.axis_chunks_iter(Axis(0), STRIP).zip(made.axis_chunks_iter_mut(Axis(0), STRIP)) {
            made.assign(&of(network.eval(Points::from(x))?));
        }
        Ok(made)
    }

    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()> {
        bundle.set("network", self.network.is_some());
        if let Some(network) = &self.network {
            network.save(bundle)?;
        }
        bundle.set("by_direction", self.by_direction);
        bundle.put("shift", self.shift.view());
        bundle.put("coefficients", self.coefficients.view());
        Ok(())
    }

    fn unpack(bundle: &Bundle, device: Device) -> Result<CodeMap> {
        let (origin, eigenvalues): (Origin, Vec<f64>) = (bundle.value("origin")?, bundle.value("eigenvalues")?);
        let network = if bundle.value("network")? { Some(NetworkFeatures::load(bundle, device)?) } else { None };
        let (inputs, p) = network.as_ref().map_or((origin.d, origin.d), |n| (n.inputs().unwrap_or(0), n.dim()));
        fail_if!(
            inputs != origin.d,
            "its parts do not fit together: the network takes {inputs} columns, not {}",
            origin.d
        );
        // Files that do not say it are older.
        let by_direction = bundle.header().contains_key("by_direction") && bundle.value("by_direction")?;
        Ok(CodeMap {
            network,
            by_direction,
            shift: matrix(bundle, "shift", (1, p))?,
            coefficients: matrix(bundle, "coefficients", (p, eigenvalues.len()))?,
        })
    }
}

impl FittedCode {
    /// What the coordinates are made of, φ(x) `[n, p]`: the outputs of the network, or the rows themselves where there is none.
    ///
    /// ```
    /// use mercer::apply::{EmbeddingCode, Together};
    /// let x = ndarray::Array2::from_shape_fn((40, 3), |(i, c)| ((i * (c + 2)) % 7) as f64);
    /// let code = EmbeddingCode::new(2, Together::Linear).fit(x.view(), &Default::default())?;
    /// assert_eq!(code.units(x.view())?, x);
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn units(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_new(x, self.origin.d)?;
        self.map.in_strips(x, self.map.shift.ncols(), |phi| phi)
    }
}

impl Transform for FittedCode {
    fields! {
        origin: Origin = origin;
        eigenvalues: [f64] = eigenvalues;
        notes: [String] = notes;
    }

    /// The fitted rows are not kept: there are no coordinates of them.
    fn embedding(&self) -> Array2<f64> {
        Array2::zeros((0, self.eigenvalues.len()))
    }

    fn certificate(&self) -> Option<&PairCertificate> {
        Some(&self.certificate)
    }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_new(x, self.origin.d)?;
        self.map.evaluate(x)
    }
}

saved! {
    FittedCode, "code":
    origin: Origin = value("origin");
    eigenvalues: Vec<f64> = value("eigenvalues");
    certificate: PairCertificate = value("certificate", |c: PairCertificate| c.checked(eigenvalues.len()));
    training: Option<Training> = value("training");
    notes: Vec<String> = value("notes");
    map: CodeMap = whole(CodeMap::unpack);
}
