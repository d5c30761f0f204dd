use super::alpha::{best, cross_validate, grid, leave_one_out, squared_error};
use super::reference::{Saved, fits};
use super::targets::Encoding;
use super::{Alpha, Tried, check_finite, check_points};
use crate::compute::Device;
use crate::data::Target;
use crate::linalg::{eigh, matmul};
use crate::model::Bundle;
use crate::spectrum::Spectrum;
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2, Axis, aview1};

/// Ridge regression on the eigenfunctions of a spectrum, however it was found: kernel ridge regression with the kernel
/// `Σ_j μ_j ψ_j(x)ψ_j(x')`. With the features `φ = √μ ψ`, `f(x) = φ(x)(ΦᵀΦ + αI)⁻¹Φᵀy`: a k×k system.
///
/// α has the convention of [`Ridge`](super::Ridge): with all n pairs of the exact method, the answers are the same.
///
/// ```
/// use mercer::apply::{Alpha, SpectralRidge};
/// use mercer::{FitContext, data::Target, kernel::Kernel, spectrum::{Exact, Problem, Spectrum}};
/// let x = ndarray::Array2::from_shape_fn((80, 1), |(i, _)| i as f64 / 20.0);
/// let y = Target::Values(x.iter().map(|x| x.sin()).collect());
/// let operator = FitContext::default().kernel_operator(&Kernel::parse("rbf(1)")?, x.view())?;
/// let spectrum = Spectrum::fit(&Exact, &Problem::new(&operator, 12), None)?;
/// let fitted = SpectralRidge { alpha: Alpha::Fixed(1e-4) }.fit(spectrum, x.view(), &y)?;
/// assert!((fitted.scores(ndarray::array![[1.23]].view())?[[0, 0]] - 1.23f64.sin()).abs() < 1e-3);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SpectralRidge {
    /// α
    pub alpha: Alpha,
}

/// Weights of the eigenfunctions, ready to predict.
pub struct FittedSpectralRidge {
    /// α, given or found.
    pub alpha: f64,
    /// What was tried on the way to α.
    pub tried: Vec<Tried>,
    /// The spectrum it stands on.
    pub spectrum: Spectrum,
    encoding: Encoding,
    /// Weights of `ψ` `[k, m]`.
    weights: Array2<f64>,
}

/// `ΦᵀΦ = QΛQᵀ`, rotated so that every α is a division: `Z = ΦQ`, `ZᵀZ = Λ`.
struct Path {
    λ: Vec<f64>,
    q: Array2<f64>,
    /// `[n, k]`
    z: Array2<f64>,
    /// `Zᵀy` `[k, m]`
    zy: Array2<f64>,
}

impl Path {
    fn new(phi: ArrayView2<f64>, y: ArrayView2<f64>) -> Result<Path> {
        let (λ, q) = eigh(Device::Cpu, matmul(phi.t(), phi).view())?;
        // Directions at the level of rounding carry no information, and 0/0 is not an answer at α = 0.
        let kept = λ.iter().take_while(|&&l| l > 1e-14 * λ[0]).count();
        let (λ, q) = (λ[..kept].to_vec(), q.slice_move(ndarray::s![.., ..kept]));
        let z = matmul(phi, q.view());
        let zy = matmul(z.t(), y);
        Ok(Path { λ, q, z, zy })
    }

    /// `(ΦᵀΦ + αI)⁻¹Φᵀy` `[k, m]`
    fn weights(&self, alpha: f64) -> Array2<f64> {
        let inverse: Vec<f64> = self.λ.iter().map(|λ| 1.0 / (λ + alpha)).collect();
        matmul(self.q.view(), (&self.zy * &aview1(&inverse).insert_axis(Axis(1))).view())
    }
}

impl SpectralRidge {
    /// Fits the targets of the points `x` `[n, d]`, as they were before the spectrum's own scaling.
    pub fn fit(&self, spectrum: Spectrum, x: ArrayView2<f64>, y: &Target) -> Result<FittedSpectralRidge> {
        check_points(x)?;
        self.alpha.check(x.nrows())?;
        let (encoding, y) = Encoding::encode(y, x.nrows(), -1.0, 1.0)?;
        let root: Vec<f64> = spectrum.eigenvalues.iter().map(|μ| μ.max(0.0).sqrt()).collect();
        let phi = spectrum.transform(x)? * aview1(&root);
        let scale = phi.iter().map(|v| v * v).sum::<f64>() / x.nrows() as f64;
        if !(scale > 0.0 && scale.is_finite()) {
            return Err(Error::input(
                "every eigenfunction is zero on these points; fit the spectrum on points like them",
            ));
        }
        let path = Path::new(phi.view(), y.view())?;
        let tried = match self.alpha {
            Alpha::Fixed(_) => vec![],
            Alpha::LeaveOneOut => leave_one_out(path.z.view(), &path.λ, path.zy.view(), y.view(), &grid(scale)),
            Alpha::CrossValidation { folds } => {
                let seed = spectrum.origin.seed;
                cross_validate(x.nrows(), folds, seed, &grid(scale), |rest, out| {
                    let path = Path::new(phi.select(Axis(0), rest).view(), y.select(Axis(0), rest).view())?;
                    let (phi, y) = (phi.select(Axis(0), out), y.select(Axis(0), out));
                    let error =
                        |&alpha: &f64| squared_error(matmul(phi.view(), path.weights(alpha).view()).view(), y.view());
                    Ok(grid(scale).iter().map(error).collect())
                })?
            }
        };
        let alpha = if let Alpha::Fixed(alpha) = self.alpha { alpha } else { best(&tried)? };
        let weights = path.weights(alpha) * aview1(&root).insert_axis(Axis(1));
        Ok(FittedSpectralRidge { alpha, tried, spectrum, encoding, weights })
    }
}

impl FittedSpectralRidge {
    /// `f(x)` `[m, ·]` at new points `[m, d]`: one column for numbers, one for each class.
    pub fn scores(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_finite(x)?;
        Ok(matmul(self.spectrum.transform(x)?.view(), self.weights.view()))
    }

    /// Predictions at new points `[m, d]`: numbers or classes, as it was fitted.
    pub fn predict(&self, x: ArrayView2<f64>) -> Result<Target> {
        Ok(self.encoding.decode(self.scores(x)?.view()))
    }
}

impl Saved for FittedSpectralRidge {
    const KIND: &'static str = "spectral-ridge";

    fn pack(&self, bundle: &mut Bundle) {
        self.spectrum.pack(bundle);
        self.encoding.pack(bundle);
        bundle.set("alpha", self.alpha);
        bundle.set("tried", &self.tried);
        bundle.put("weights", self.weights.view());
    }

    fn unpack(bundle: &Bundle, device: Device) -> Result<Self> {
        let spectrum = Spectrum::unpack(bundle, device)?;
        let encoding = Encoding::unpack(bundle)?;
        let weights = bundle.matrix("weights")?;
        fits("weights", weights.dim(), (spectrum.k(), encoding.width()))?;
        let (alpha, tried) = (bundle.value("alpha")?, bundle.value("tried")?);
        Ok(FittedSpectralRidge { alpha, tried, spectrum, encoding, weights })
    }
}
