//! Features that stand for a kernel, and functions that are linear in them.

use crate::apply::features::ridge_head::memory;
use crate::apply::reference::{check_new, matrix};
use crate::apply::targets::Encoding;
use crate::bundle::Bundle;
use crate::compute::Device;
use crate::data::Rows;
use crate::kernel::Kernel;
use crate::linalg::{Panel, Part, matmul};
use crate::operator::{Extension, Pair, Precision, RowFeatures, Side, compiles, gram};
use crate::spectrum::{
    Krylov, Landmarks, Method, Nystrom, NystromFeatures, Origin, Problem, RandomFeatures, Sampling, features,
};
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, CowArray};

/// Features that stand for a kernel, `φ(x)·φ(x') ≈ κ(x,x')`. Example: [`FeatureRidge`](crate::apply::FeatureRidge).
#[derive(Clone, Debug, PartialEq)]
pub enum FeatureMap {
    /// `φ(x) = √scale x`: the kernel `scale·x·x'` in its primal form.
    Linear {
        /// Factor on `x·x'`, above zero.
        scale: f64,
    },
    /// [`NystromFeatures`] of landmarks among the points. With every point a landmark they are those of the kernel itself.
    Nystrom {
        /// κ
        kernel: Kernel,
        /// How many; no more than there are points.
        landmarks: usize,
        /// How they are chosen.
        choice: Landmarks,
    },
    /// [`RandomFeatures::fourier`] of a kernel of `x−x'` alone.
    Random {
        /// κ
        kernel: Kernel,
        /// How many, an even number.
        features: usize,
        /// How their frequencies are drawn.
        sampling: Sampling,
    },
    /// `√μ_j ψ_j(x)` of the leading eigenfunctions, by the Krylov method.
    Eigenfunctions {
        /// κ
        kernel: Kernel,
        /// How many; no more than there are points.
        pairs: usize,
    },
}

/// Features for given points.
pub(crate) enum Map {
    Linear(f64),
    Nystrom(NystromFeatures),
    Random(RandomFeatures),
    Eigenfunctions(Extension),
}

impl FeatureMap {
    /// The name of the method in models and in the program.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            FeatureMap::Linear { .. } => "linear",
            FeatureMap::Nystrom { .. } => "nystrom",
            FeatureMap::Random { .. } => "random-features",
            FeatureMap::Eigenfunctions { .. } => "spectrum",
        }
    }

    /// The kernel that the features stand for.
    pub(crate) fn kernel(&self) -> String {
        match self {
            FeatureMap::Linear { scale: 1.0 } => "linear".into(),
            FeatureMap::Linear { scale } => format!("{scale}*linear"),
            FeatureMap::Nystrom { kernel, .. }
            | FeatureMap::Random { kernel, .. }
            | FeatureMap::Eigenfunctions { kernel, .. } => kernel.to_string(),
        }
    }

    /// Number of features of points of `d` columns, at most.
    pub(crate) fn dim(&self, d: usize) -> usize {
        match self {
            FeatureMap::Linear { .. } => d,
            FeatureMap::Nystrom { landmarks, .. } => *landmarks,
            FeatureMap::Random { features, .. } => *features,
            FeatureMap::Eigenfunctions { pairs, .. } => *pairs,
        }
    }

    /// The map for a regression of the points `x` `[n, d]` with targets `[n, m]`.
    pub(crate) fn prepare(&self, x: ArrayView2<f64>, m: usize, context: &FitContext) -> Result<Map> {
        let p = self.dim(x.ncols());
        let needed = memory(x.nrows(), p, m);
        context.budget.require(format!("regression on {p} features"), needed, "use fewer features")?;
        self.prepare_around(x, Rows::from(x).mean().unwrap_or_default().view(), context)
    }

    /// The map for points with this `mean` `[d]`, of which `x` `[n, d]` are some: landmarks are chosen among these.
    pub(crate) fn prepare_around(
        &self,
        x: ArrayView2<f64>,
        mean: ArrayView1<f64>,
        context: &FitContext,
    ) -> Result<Map> {
        let (n, d) = x.dim();
        match self {
            FeatureMap::Linear { scale } => {
                fail_if!(
                    !(*scale > 0.0 && scale.is_finite()),
                    "a kernel can only be scaled by a number above 0, got {scale}"
                );
                Ok(Map::Linear(scale.sqrt()))
            }
            FeatureMap::Nystrom { kernel, landmarks, choice } => {
                // Features are f64 in any precision, and so is their normalisation: single precision would hide its small eigenvalues.
                let context = FitContext { precision: Precision::F64, ..*context };
                let among = among(*choice, n, *landmarks, context.seed);
                let some = among.map_or(CowArray::from(x), |rows| x.select(Axis(0), &rows).into());
                let operator = context.kernel_operator(kernel, some.view())?;
                let nystrom = Nystrom { landmarks: *landmarks, choice: *choice };
                nystrom.features(&Problem { operator: &operator, k: 1, context }).map(Map::Nystrom)
            }
            FeatureMap::Random { kernel, features, sampling } => {
                context.budget.require(
                    format!("{features} random features at {n} points"),
                    16u64.saturating_mul(*features as u64).saturating_mul(d as u64),
                    "use fewer features",
                )?;
                let map = RandomFeatures::fourier(kernel, d, *features, *sampling, context.seed)?;
                Ok(Map::Random(map.centred_at(mean.to_owned())))
            }
            FeatureMap::Eigenfunctions { kernel, pairs } => {
                let operator = context.kernel_operator(kernel, x)?;
                let found = Krylov::default().solve(&Problem { operator: &operator, k: *pairs, context: *context })?;
                let root: Array1<f64> = found.eigenvalues.iter().map(|μ| μ.max(0.0).sqrt()).collect();
                let coefficients = found.coefficients * root;
                Ok(Map::Eigenfunctions(Extension { features: found.features, coefficients }))
            }
        }
    }
}

/// The rows of n among which landmarks are chosen, where it is not all of them: k-means++ takes n·m values of the kernel, and finds landmarks that are
/// as good among fewer rows.
fn among(choice: Landmarks, n: usize, landmarks: usize, seed: u64) -> Option<Vec<usize>> {
    let some = || Landmarks::candidates(n, landmarks, seed);
    (choice == Landmarks::KMeansPlusPlus).then(some).filter(|rows| rows.len() < n)
}

/// Features `[rows, p]` at some rows of the sample, on a GPU.
pub(crate) type DeviceFeatures<'a> = Box<dyn Fn(&[usize]) -> Result<Panel> + 'a>;

impl Map {
    /// φ at rows of `x` `[n, d]` by the context's GPU, in f64, where it has them: Nyström's of a kernel of points, and Fourier features.
    pub fn on_device<'a>(&'a self, x: ArrayView2<'a, f64>, context: &FitContext) -> Result<Option<DeviceFeatures<'a>>> {
        let device = context.device;
        match self {
            Map::Nystrom(map) if device != Device::Cpu && compiles(map.kernel()) && !map.kernel().sees_images() => {
                let pair = Pair::new(map.kernel(), x, map.landmarks(), Precision::F64, device)?;
                let normalisation = Panel::from_host(device, map.normalisation().to_owned())?;
                Ok(Some(Box::new(move |rows: &[usize]| {
                    pair.block((Side::X, Part::Rows(rows)), (Side::Z, Part::All))?.times(&normalisation)
                })))
            }
            Map::Random(map) => {
                let Some(waves) = map.on_device(device)? else { return Ok(None) };
                Ok(Some(Box::new(move |rows: &[usize]| waves(x.select(Axis(0), rows).view().into()))))
            }
            _ => Ok(None),
        }
    }

    /// φ `[b, p]` at points `[b, d]`.
    pub fn at(&self, x: Array2<f64>) -> Result<Array2<f64>> {
        match self {
            Map::Linear(root) => Ok(x * *root),
            Map::Nystrom(map) => map.transform(&x),
            Map::Random(map) => map.transform(&x),
            Map::Eigenfunctions(map) => map.features.project(x.view().into(), map.coefficients.view()),
        }
    }

    /// N `[m, r]`, where `φ = cN` for values c of a kernel with landmarks.
    pub fn normalisation(&self) -> Option<ArrayView2<'_, f64>> {
        if let Map::Nystrom(map) = self { Some(map.normalisation()) } else { None }
    }

    /// c `[b, m]` at points `[b, d]`; the features where they are no combinations.
    pub fn values(&self, x: Array2<f64>) -> Result<Array2<f64>> {
        match self {
            Map::Nystrom(map) => Ok(map.values((&x).into())),
            _ => self.at(x),
        }
    }

    /// The functions `x ↦ φ(x)W` of points of `d` columns, for `w` `[p, m]`. Kernel values are those of the context's precision where its rounding leaves
    /// their digits, and else f64.
    pub fn functions(self, w: Array2<f64>, d: usize, context: &FitContext) -> Result<Extension> {
        match self {
            Map::Linear(root) => {
                let features = Box::new(RowFeatures { values: d, outputs: 1 });
                Ok(Extension { features, coefficients: w * root })
            }
            Map::Nystrom(map) => {
                let precision = if rounds_well(&map, w.view(), context)? { context.precision } else { Precision::F64 };
                Ok(map.functions(w.view(), &FitContext { precision, ..*context }))
            }
            Map::Random(map) => Ok(Extension { features: Box::new(map), coefficients: w }),
            Map::Eigenfunctions(map) => {
                Ok(Extension { coefficients: matmul(map.coefficients.view(), w.view()), ..map })
            }
        }
    }
}

/// Whether `f(x) = κ(x,Z)C` with `C = NW` may be computed from kernel values of the context's precision: the rounding of values of size s, which is
/// `ε s ‖c‖` for independent errors, must be far below the spread of f over the landmarks.
fn rounds_well(map: &NystromFeatures, w: ArrayView2<f64>, context: &FitContext) -> Result<bool> {
    /// Of the spread.
    const SHARE: f64 = 1e-3;
    if context.precision == Precision::F64 {
        return Ok(true);
    }
    let (k, c) = (gram::<f64>(map.kernel(), map.landmarks(), Device::Cpu)?, matmul(map.normalisation(), w));
    let (f, size) = (matmul(k.view(), c.view()), k.diag().fold(0.0, |most: f64, k| most.max(*k)));
    let rounding = c.columns().into_iter().map(|c| context.roundoff() * size * c.dot(&c).sqrt());
    Ok(rounding.zip(f.columns()).all(|(rounding, f)| rounding <= SHARE * f.std(0.0)))
}

/// `f(x) = b + φ(x)W`, and what it was fitted on.
pub(crate) struct FeatureFunctions {
    pub origin: Origin,
    pub encoding: Encoding,
    /// `x ↦ φ(x)W`
    pub functions: Extension,
    /// b `[m]`
    pub offset: Array1<f64>,
}

impl FeatureFunctions {
    /// Number of features, or of landmarks.
    pub fn rank(&self) -> usize {
        self.functions.features.dim()
    }

    /// f `[n, m]` at new points `[n, d]`.
    pub fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_new(x, self.origin.d)?;
        Ok(self.functions.features.project(x.into(), self.functions.coefficients.view())? + &self.offset)
    }

    pub fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()> {
        bundle.set("origin", &self.origin);
        bundle.set("target", &self.encoding);
        let kind = self.functions.features.save(bundle)?;
        bundle.set("features", kind);
        bundle.put("coefficients", self.functions.coefficients.view());
        bundle.put("offset", self.offset.view().insert_axis(Axis(0)));
        Ok(())
    }

    pub fn unpack(bundle: &Bundle, device: Device) -> Result<FeatureFunctions> {
        let origin: Origin = bundle.value("origin")?;
        let encoding: Encoding = bundle.value::<Encoding>("target")?.checked()?;
        let features = features(bundle.text("features")?, bundle, device)?;
        fail_if!(
            features.inputs() != Some(origin.d) || features.outputs() != 1,
            "its parts do not fit together: it was fitted on {} columns, and its features take others",
            origin.d
        );
        let coefficients = matrix(bundle, "coefficients", (features.dim(), encoding.width()))?;
        let offset = matrix(bundle, "offset", (1, encoding.width()))?.remove_axis(Axis(0));
        Ok(FeatureFunctions { functions: Extension { features, coefficients }, origin, encoding, offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{FeatureRidge, Fit, Predict};
    use crate::data::Target;
    use crate::rng::Rng;

    /// A smooth function with little noise needs eigenvalues of the landmarks' matrix that single precision hides.
    #[test]
    fn single_precision_keeps_small_eigenvalues() {
        let mut rng = Rng::new(4);
        let x = rng.normals((1500, 2));
        let y = x.rows().into_iter().map(|x| (3.0 * x[0]).sin() + (2.0 * x[1]).cos() + 1e-4 * rng.normal());
        let (y, kernel) = (Target::Values(y.collect()), Kernel::parse("rbf(2)").unwrap());
        let map = FeatureMap::Nystrom { kernel, landmarks: 300, choice: Landmarks::KMeansPlusPlus };
        let scores = |precision| {
            let context = FitContext { precision, ..FitContext::default() };
            let fitted = FeatureRidge::new(map.clone()).fit(x.view(), &y, &context).unwrap();
            (fitted.alpha, fitted.scores(x.view()).unwrap())
        };
        let ((alpha, double), (other, single)) = (scores(Precision::F64), scores(Precision::F32));
        assert_eq!(alpha, other);
        let (spread, off) = (double.std(0.0), (&single - &double).mapv(f64::abs));
        let worst = off.fold(0.0, |most: f64, off| most.max(*off));
        assert!(worst < 0.01 * spread, "{worst:e} of {spread:e}");
    }

    #[test]
    fn landmarks_are_chosen_among_some_of_many_rows() {
        assert_eq!(among(Landmarks::KMeansPlusPlus, 8192, 100, 0), None);
        assert_eq!(among(Landmarks::KMeansPlusPlus, 9000, 3000, 0), None);
        assert_eq!(among(Landmarks::KMeansPlusPlus, 9000, 100, 0).map(|rows| rows.len()), Some(8192));
        assert_eq!(among(Landmarks::PivotedCholesky, 9000, 100, 0), None);
    }
}
