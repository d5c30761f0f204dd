use super::alpha::{best, cross_validate, filtered_inverse, grid, leave_one_out, squared_error};
use super::reference::check_new;
use super::targets::Encoding;
use super::traits::{fields, saved};
use super::{Alpha, Fit, Predict, Tried, check_points};
use crate::compute::Device;
use crate::data::Target;
use crate::linalg::{eigh, matmul};
use crate::spectrum::{Origin, Spectrum};
use crate::{FitContext, Result, fail_if};
use ndarray::{Array2, ArrayView2, Axis, aview1};
use std::sync::Arc;

/// Ridge regression on the eigenfunctions of a spectrum, however it was found: kernel ridge regression with the kernel
/// `Σ_j μ_j ψ_j(x)ψ_j(x')`. With the features `φ = √μ ψ`, `f(x) = φ(x)(ΦᵀΦ + αI)⁻¹Φᵀy`: a k×k system.
///
/// α has the convention of [`Ridge`](super::Ridge): with all n pairs of the exact method, the answers are the same.
///
/// ```
/// use mercer::apply::{Alpha, Fit, Predict, SpectralRidge};
/// use mercer::{FitContext, data::Target, kernel::Kernel, spectrum::{Exact, Problem, Spectrum}};
/// let x = ndarray::Array2::from_shape_fn((80, 1), |(i, _)| i as f64 / 20.0);
/// let y = Target::Values(x.iter().map(|x| x.sin()).collect());
/// let operator = FitContext::default().kernel_operator(&Kernel::parse("rbf(1)")?, x.view())?;
/// let spectrum = Spectrum::fit(&Exact, &Problem::new(&operator, 12), None)?;
/// let ridge = SpectralRidge { spectrum: spectrum.into(), alpha: Alpha::Fixed(1e-4) };
/// let fitted = ridge.fit(x.view(), &y, &FitContext::default())?;
/// assert!((fitted.scores(ndarray::array![[1.23]].view())?[[0, 0]] - 1.23f64.sin()).abs() < 1e-3);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone)]
pub struct SpectralRidge {
    /// The eigenfunctions, shared with the fitted value.
    pub spectrum: Arc<Spectrum>,
    /// α
    pub alpha: Alpha,
}

/// Weights of the eigenfunctions, ready to predict. Example: [`SpectralRidge`].
pub struct FittedSpectralRidge {
    /// α, given or found.
    pub alpha: f64,
    /// What was tried on the way to α.
    pub tried: Vec<Tried>,
    /// The eigenfunctions.
    pub spectrum: Arc<Spectrum>,
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
        filtered_inverse(self.q.view(), &self.λ, self.zy.view(), alpha)
    }
}

impl Fit for SpectralRidge {
    type Target = Target;
    type Fitted = FittedSpectralRidge;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedSpectralRidge> {
        let spectrum = self.spectrum.clone();
        check_points(x)?;
        self.alpha.check(x.nrows())?;
        let (encoding, y) = Encoding::encode(y, x.nrows(), -1.0, 1.0)?;
        let root: Vec<f64> = spectrum.eigenvalues.iter().map(|μ| μ.max(0.0).sqrt()).collect();
        let phi = spectrum.transform(x)? * aview1(&root);
        let scale = phi.iter().map(|v| v * v).sum::<f64>() / x.nrows() as f64;
        fail_if!(
            !(scale > 0.0 && scale.is_finite()),
            "every eigenfunction is zero on these points; fit the spectrum on points like them"
        );
        let path = Path::new(phi.view(), y.view())?;
        let grid = grid(scale);
        let (alpha, tried) = match self.alpha {
            Alpha::Fixed(alpha) => (alpha, vec![]),
            Alpha::LeaveOneOut => best(leave_one_out(path.z.view(), &path.λ, path.zy.view(), y.view(), &grid))?,
            Alpha::CrossValidation { folds } => {
                best(cross_validate(x.nrows(), folds, context.seed, &grid, |rest, out| {
                    let path = Path::new(phi.select(Axis(0), rest).view(), y.select(Axis(0), rest).view())?;
                    let (phi, y) = (phi.select(Axis(0), out), y.select(Axis(0), out));
                    let error =
                        |&alpha: &f64| squared_error(matmul(phi.view(), path.weights(alpha).view()).view(), y.view());
                    Ok(grid.iter().map(error).collect())
                })?)?
            }
        };
        let weights = path.weights(alpha) * aview1(&root).insert_axis(Axis(1));
        Ok(FittedSpectralRidge { alpha, tried, spectrum, encoding, weights })
    }
}

impl Predict for FittedSpectralRidge {
    fields! { origin: Origin = spectrum.origin; }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_new(x, self.spectrum.origin.d)?;
        Ok(matmul(self.spectrum.transform(x)?.view(), self.weights.view()))
    }

    fn decode(&self, scores: ArrayView2<f64>) -> Target {
        self.encoding.decode(scores)
    }
}

saved! {
    FittedSpectralRidge, "spectral-ridge":
    spectrum: Arc<Spectrum> = whole(Spectrum::unpack);
    encoding: Encoding = value("target", Encoding::checked);
    alpha: f64 = value("alpha");
    tried: Vec<Tried> = value("tried");
    weights: Array2<f64> = matrix("weights", (spectrum.k(), encoding.width()));
}
