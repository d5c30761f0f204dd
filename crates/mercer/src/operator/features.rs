//! Feature maps: the functions that eigenfunctions are combinations of.

use super::kinds::sharded::cross_in_parts;
use super::{FunctionSamples, LowRankOperator, Points, Precision, Real, cross_apply, gram_cross, in_precision};
use crate::bundle::Bundle;
use crate::compute::Device;
use crate::kernel::Kernel;
use crate::linalg::{Sharding, matmul};
use crate::{Error, Result, fail_if};
use ndarray::{ArcArray2, Array2, ArrayView2, Axis, s};

/// A feature map `φ` from a point to C rows of p numbers, C the outputs of a function at a point. `examples/own_features.rs`
/// implements one.
pub trait Features: Send + Sync {
    /// p
    fn dim(&self) -> usize;

    /// Columns of a point's coordinates; none where a point is given by samples of functions.
    fn inputs(&self) -> Option<usize>;

    /// C
    fn outputs(&self) -> usize {
        1
    }

    /// `φ(x)` `[n·C, p]` at n points.
    fn eval(&self, points: Points<'_>) -> Result<Array2<f64>>;

    /// `φ(x) A` `[n·C, k]` for `A` `[p, k]`, in strips of points so that `φ(x)` is never whole in memory.
    fn project(&self, points: Points<'_>, a: ArrayView2<f64>) -> Result<Array2<f64>> {
        const STRIP: usize = 4096;
        let (x, c) = (points.coordinates()?, self.outputs());
        let mut out = Array2::zeros((x.n() * c, a.ncols()));
        for (i, mut out) in out.axis_chunks_iter_mut(Axis(0), STRIP * c).enumerate() {
            let few = x.slice(i * STRIP..x.n().min((i + 1) * STRIP));
            out.assign(&matmul(self.eval(few.into())?.view(), a));
        }
        Ok(out)
    }

    /// Multiply-adds of the matrix products in `φ(x)` at one point: the cost of a new point, before `A`.
    fn multiply_adds(&self) -> usize {
        0
    }

    /// κ and the centres z `[p, d]`, where `φ_m(x) = κ(x, z_m)`.
    #[doc(hidden)]
    fn centres(&self) -> Option<(&Kernel, ArrayView2<'_, f64>)> {
        None
    }

    /// How the features are sharded over ranks: of a matrix `[p, k]` of coefficients, each rank has the rows of its features.
    #[doc(hidden)]
    fn sharding(&self) -> Sharding {
        Sharding::WHOLE
    }

    /// Puts what loading needs into `bundle`, and returns the name of the kind; an error where a device does not return its numbers.
    fn save<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<&'static str>;
}

/// Functions `x ↦ φ(x) A` on all points, not only on those of a sample. `examples/own_method.rs` uses it.
pub struct Extension {
    /// φ
    pub features: Box<dyn Features>,
    /// `A` `[p, k]`
    pub coefficients: Array2<f64>,
}

/// `φ_m(x) = κ(x, z_m)` for centres `z_m`.
pub struct KernelFeatures {
    kernel: Kernel,
    /// `[m, d]`, which the operator that they were made by may have too
    centres: ArcArray2<f64>,
    precision: Precision,
    device: Device,
}

impl KernelFeatures {
    pub(crate) const KIND: &'static str = "kernel";

    /// Features at `centres` `[m, d]`, their values computed in `precision` on `device`.
    pub fn new(kernel: &Kernel, centres: impl Into<ArcArray2<f64>>, precision: Precision, device: Device) -> Self {
        KernelFeatures { kernel: kernel.clone(), centres: centres.into(), precision, device }
    }

    /// [`Features::project`] with a few centres at a time, for which a copy of all is not made.
    pub(super) fn project_in_parts(&self, points: Points<'_>, a: ArrayView2<f64>) -> Result<Array2<f64>> {
        cross_in_parts(&self.kernel, points.coordinates()?, self.centres.view().into(), a, self.precision, self.device)
    }

    /// Puts them into `bundle`, with the centres of all ranks.
    pub(super) fn save_sharded<'a>(&'a self, bundle: &mut Bundle<'a>, sharding: &Sharding) {
        bundle.set("features.kernel", self.kernel.to_string());
        bundle.set("features.precision", self.precision);
        bundle.put_sharded("centres", self.centres.view(), sharding);
    }

    pub(crate) fn load(bundle: &Bundle, device: Device) -> Result<Self> {
        let centres = bundle.matrix("centres")?.into_shared();
        let kernel = Kernel::of_model(bundle.text("features.kernel")?, centres.ncols(), bundle.registry())?;
        let precision = bundle.value("features.precision")?;
        Ok(KernelFeatures { kernel, centres, precision, device })
    }
}

impl Features for KernelFeatures {
    fn dim(&self) -> usize {
        self.centres.nrows()
    }

    fn inputs(&self) -> Option<usize> {
        Some(self.centres.ncols())
    }

    fn eval(&self, points: Points<'_>) -> Result<Array2<f64>> {
        let x = points.coordinates()?;
        Ok(in_precision!(self.precision, T => {
            gram_cross::<T>(&self.kernel, x, self.centres.view(), self.device)?.mapv_into_any(T::wide)
        }))
    }

    fn project(&self, points: Points<'_>, a: ArrayView2<f64>) -> Result<Array2<f64>> {
        cross_apply(&self.kernel, points.coordinates()?, self.centres.view(), a, self.precision, self.device)
    }

    fn multiply_adds(&self) -> usize {
        self.centres.len()
    }

    fn centres(&self) -> Option<(&Kernel, ArrayView2<'_, f64>)> {
        Some((&self.kernel, self.centres.view()))
    }

    fn save<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<&'static str> {
        self.save_sharded(bundle, &Sharding::WHOLE);
        Ok(Self::KIND)
    }
}

/// `φ(x) = F(x)/√S`: S functions, sampled again at the new points. `κ(x,x') = φ(x)·φ(x')`.
pub(crate) struct SampleFeatures {
    /// S
    pub functions: usize,
    /// C, as the samples have it.
    pub outputs: usize,
    /// Whether each output counts as a function by itself, `κ(x,x')·I_C`.
    pub factorised: bool,
}

impl SampleFeatures {
    pub(crate) const KIND: &'static str = "samples";

    pub(crate) fn load(bundle: &Bundle) -> Result<Self> {
        let (functions, outputs): (usize, usize) =
            (bundle.value("features.functions")?, bundle.value("features.outputs")?);
        fail_if!(
            functions.checked_mul(outputs).is_none_or(|values| values == 0),
            "it holds {functions} functions of {outputs} outputs"
        );
        Ok(SampleFeatures { functions, outputs, factorised: bundle.value("features.factorised")? })
    }

    /// `F/√S` at new points; refuses other functions than those that were fitted.
    fn at(&self, samples: &FunctionSamples) -> Result<LowRankOperator> {
        let (functions, _, outputs) = samples.dim();
        fail_if!((functions, outputs) != (self.functions, self.outputs); Error::input(format!(
            "the model was fitted to {} functions with {} outputs; the new samples are {functions} with {outputs}: they \
             must be the same functions at new points",
            self.functions, self.outputs
        )));
        LowRankOperator::of_samples(samples, self.factorised)
    }
}

impl Features for SampleFeatures {
    fn dim(&self) -> usize {
        self.functions * if self.factorised { self.outputs } else { 1 }
    }

    fn inputs(&self) -> Option<usize> {
        None
    }

    fn outputs(&self) -> usize {
        if self.factorised { 1 } else { self.outputs }
    }

    fn eval(&self, points: Points<'_>) -> Result<Array2<f64>> {
        let f = self.at(points.samples()?)?;
        let mut phi = Array2::zeros((f.dim().1, f.dim().0));
        f.for_each_strip(|first, f| phi.slice_mut(s![.., first..first + f.nrows()]).assign(&f.t()));
        Ok(phi)
    }

    fn project(&self, points: Points<'_>, a: ArrayView2<f64>) -> Result<Array2<f64>> {
        Ok(self.at(points.samples()?)?.pulled(a))
    }

    fn save<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<&'static str> {
        bundle.set("features.functions", self.functions);
        bundle.set("features.outputs", self.outputs);
        bundle.set("features.factorised", self.factorised);
        Ok(Self::KIND)
    }
}

/// `φ_m(x) = κ(x, z_m)` where κ has no formula: a new point is given by its kernel values `[n·C, m]` with the sample.
pub(crate) struct RowFeatures {
    /// m
    pub values: usize,
    /// C
    pub outputs: usize,
}

impl RowFeatures {
    pub(crate) const KIND: &'static str = "rows";

    pub(crate) fn load(bundle: &Bundle) -> Result<Self> {
        Ok(RowFeatures { values: bundle.value("features.values")?, outputs: bundle.value("features.outputs")? })
    }
}

impl Features for RowFeatures {
    fn dim(&self) -> usize {
        self.values
    }

    fn inputs(&self) -> Option<usize> {
        Some(self.values)
    }

    fn outputs(&self) -> usize {
        self.outputs
    }

    fn eval(&self, points: Points<'_>) -> Result<Array2<f64>> {
        Ok(points.coordinates()?.to_f64().into_owned())
    }

    fn project(&self, points: Points<'_>, a: ArrayView2<f64>) -> Result<Array2<f64>> {
        Ok(matmul(points.coordinates()?.to_f64().view(), a))
    }

    fn save<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<&'static str> {
        bundle.set("features.values", self.values);
        bundle.set("features.outputs", self.outputs);
        Ok(Self::KIND)
    }
}
