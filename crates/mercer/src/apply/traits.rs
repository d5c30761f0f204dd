//! What all estimators have in common.

use super::{
    Averages, FittedCode, FittedEigenmaps, FittedFeatureLogistic, FittedFeatureProcess, FittedFeatureRidge,
    FittedGaussianProcess, FittedGaussianProcessClassifier, FittedIterativeProcess, FittedKernelPca, FittedLogistic,
    FittedNadarayaWatson, FittedNtkEnsemble, FittedRecursiveFeatureMachine, FittedRidge, FittedSpectralRidge,
    Importances, PairCertificate,
};
use crate::bundle::Bundle;
use crate::compute::Device;
use crate::data::{Schema, Target};
use crate::finite::finite_rows;
use crate::kernel::Kernel;
use crate::spectrum::Origin;
use crate::{Error, FitContext, Registry, Result};
use ndarray::{Array1, Array2, ArrayView2};
use std::path::Path;

/// An estimator: parameters (the kernel among them) that are fitted to points. Example: [the module](crate::apply).
pub trait Fit {
    /// What it learns to predict: [`Target`], or `()` for an estimator that looks at the points alone.
    type Target;
    /// The result.
    type Fitted: Saved;

    /// Fits the points `x` `[n, d]` with their targets `y` `[n]`. Every number of the result is finite.
    fn fit(&self, x: ArrayView2<f64>, y: &Self::Target, context: &FitContext) -> Result<Self::Fitted> {
        finite(self.learn(x, y, context)?)
    }

    /// What [`Self::fit`] does, before the numbers are checked.
    fn learn(&self, x: ArrayView2<f64>, y: &Self::Target, context: &FitContext) -> Result<Self::Fitted>;
}

/// A fitted value, every number of which is finite.
pub(super) fn finite<F: Saved>(fitted: F) -> Result<F> {
    let mut bundle = Bundle::default();
    fitted.pack(&mut bundle)?;
    bundle.require_finite(&format!("the fitted {}", F::KIND))?;
    Ok(fitted)
}

/// A fitted value that predicts numbers or classes. Example: [the module](crate::apply).
pub trait Predict: Send + Sync {
    /// How and on what it was fitted.
    fn origin(&self) -> &Origin;

    /// One column of numbers, or one score for each class, `[m, ·]`, at new points `[m, d]`. Every number is finite.
    fn scores(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        finite_rows("the prediction", self.evaluate(x)?, 1)
    }

    /// What [`Self::scores`] returns, before the numbers are checked.
    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>>;

    /// Scores `[m, ·]` as a target: the numbers, or the class of the largest score.
    fn decode(&self, scores: ArrayView2<f64>) -> Target;

    /// Probabilities of the classes `[m, C]` from their scores `[m, C]`; none for numbers, and where no left-out scores say how
    /// far they can be trusted.
    fn probabilities(&self, _scores: ArrayView2<f64>) -> Option<Array2<f64>> {
        None
    }

    /// The standard deviation of the target `[m]` at new points `[m, d]`, where the estimator has one.
    fn deviations(&self, _x: ArrayView2<f64>) -> Result<Option<Array1<f64>>> {
        Ok(None)
    }

    /// The number of functions of a network that a row holds beside its outputs; none where rows are those of a table.
    fn functions_of_network(&self) -> Option<usize> {
        None
    }

    /// How much each column changes the prediction, where the estimator knows.
    /// Example: [`RecursiveFeatureMachine`](super::RecursiveFeatureMachine).
    fn importances(&self) -> Option<&Importances> {
        None
    }

    /// The kernel that predictions are made with, where it is not that of [`Self::origin`].
    /// Example: [`NadarayaWatson`](super::NadarayaWatson).
    fn used_kernel(&self) -> Option<Kernel> {
        None
    }

    /// Scores at new points `[m, d]`, and the points that no fitted one reaches.
    /// Example: [`NadarayaWatson`](super::NadarayaWatson).
    fn scores_and_reach(&self, x: ArrayView2<f64>) -> Result<Averages> {
        Ok(Averages { scores: self.scores(x)?, unreached: vec![] })
    }

    /// Warnings for the user.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// Predictions at new points `[m, d]`: numbers or classes, as it was fitted.
    fn predict(&self, x: ArrayView2<f64>) -> Result<Target> {
        Ok(self.decode(self.scores(x)?.view()))
    }

    /// Share of the points `[m, d]` whose predicted class is that of `truth` `[m]`.
    fn accuracy(&self, x: ArrayView2<f64>, truth: &Target) -> Result<f64> {
        match (self.predict(x)?, truth) {
            (Target::Classes { labels: a, .. }, Target::Classes { labels: b, .. }) if a.len() == b.len() => {
                Ok(a.iter().zip(b).filter(|(a, b)| a == b).count() as f64 / a.len().max(1) as f64)
            }
            (a, b) => Err(Error::input(format!(
                "the accuracy needs a true class for each point: there are {} points and {} targets",
                a.len(),
                b.len()
            ))),
        }
    }
}

/// A fitted value that gives points coordinates, each the value of an eigenfunction.
/// Example: [`KernelPca`](super::KernelPca).
pub trait Transform: Send + Sync {
    /// How and on what it was fitted.
    fn origin(&self) -> &Origin;

    /// The eigenvalue of each coordinate `[k]`. There may be fewer than asked for: those that are numerically zero are
    /// left out, and [`Self::notes`] says so.
    fn eigenvalues(&self) -> &[f64];

    /// Warnings for the user.
    fn notes(&self) -> &[String];

    /// The share of the variance that each coordinate has `[k]`, where that is known. Example: [`KernelPca`](super::KernelPca).
    fn explained(&self) -> Option<&[f64]> {
        None
    }

    /// How good the functions are on pairs that were not used to find them, where there are pairs.
    /// Example: [`ViewEigenmap`](super::ViewEigenmap).
    fn certificate(&self) -> Option<&PairCertificate> {
        None
    }

    /// Coordinates `[n, k]` of the fitted points; of none, `[0, k]`, where these are not kept.
    fn embedding(&self) -> Array2<f64>;

    /// Coordinates `[m, k]` of new points `[m, d]`. Every number is finite.
    fn transform(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        finite_rows("the coordinate", self.evaluate(x)?, 1)
    }

    /// What [`Self::transform`] returns, before the numbers are checked.
    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>>;
}

/// A fitted value that can be written to a file and read back; its results stay the same to the last bit.
/// Example: [the module](crate::apply).
pub trait Saved: Sized {
    /// The kind of model that the file names.
    const KIND: &'static str;

    /// Puts everything but the kind into `bundle`; an error where a device does not return its numbers.
    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()>;

    /// Builds the value from a bundle of this kind, to compute on `device`.
    fn unpack(bundle: &Bundle, device: Device) -> Result<Self>;

    /// What its file holds: the kind and all its parts.
    #[doc(hidden)]
    fn bundle(&self) -> Result<Bundle<'_>> {
        let mut bundle = Bundle::default();
        bundle.set("kind", Self::KIND);
        self.pack(&mut bundle)?;
        Ok(bundle)
    }

    /// Writes the value to a file, whole or not at all.
    fn save(&self, path: &Path) -> Result<()> {
        self.save_with(None, path)
    }

    /// Writes the value to a file with the schema of the table that it was fitted on, where there is one.
    /// Example: [`Model`](crate::model::Model).
    fn save_with(&self, schema: Option<&Schema>, path: &Path) -> Result<()> {
        let mut bundle = self.bundle()?;
        bundle.set("schema", schema);
        bundle.write(path)
    }

    /// Reads the value back; a file of another kind is refused.
    fn load(path: &Path, device: Device) -> Result<Self> {
        Self::load_with(path, device, &Registry::default())
    }

    /// The same, for a value with a kernel or features from outside the crate. `examples/own_kernel.rs` uses it.
    fn load_with(path: &Path, device: Device, registry: &Registry) -> Result<Self> {
        Bundle::read_as(path, registry, |bundle, kind| match kind {
            kind if kind == Self::KIND => Self::unpack(bundle, device),
            _ => Err(Error::input(format!("holds a model of kind '{kind}', not '{}'", Self::KIND))),
        })
    }
}

/// A [`Saved`] value whose type is known only when the program runs. Example: [`SavedPredict`].
pub trait AnySaved {
    /// What its file holds: the kind and all its parts.
    #[doc(hidden)]
    fn parts(&self) -> Result<Bundle<'_>>;

    /// Writes the value to a file with the schema of the table that it was fitted on, where there is one.
    fn write(&self, schema: Option<&Schema>, path: &Path) -> Result<()> {
        let mut bundle = self.parts()?;
        bundle.set("schema", schema);
        bundle.write(path)
    }
}

impl<F: Saved> AnySaved for F {
    fn parts(&self) -> Result<Bundle<'_>> {
        self.bundle()
    }
}

/// A fitted value of any kind that predicts and can be saved. Example: [`learn::regressions`](crate::learn::regressions).
pub trait SavedPredict: Predict + AnySaved {}

impl<F: Predict + Saved> SavedPredict for F {}

/// A fitted value of any kind that gives coordinates and can be saved. Example: [`learn::embeddings`](crate::learn::embeddings).
pub trait SavedTransform: Transform + AnySaved {}

impl<F: Transform + Saved> SavedTransform for F {}

/// Methods that return a field: `name: Type = field;`.
macro_rules! fields {
    ($($name:ident: $Type:ty = $($field:ident).+;)*) => {$(
        fn $name(&self) -> &$Type {
            &self.$($field).+
        }
    )*};
}
pub(super) use fields;

/// What [`Predict`] does with the posterior of numbers `y = f(x) + ε`, `ε ~ N(0, σ²)`: the deviation of y is `√(Var[f(x)] + σ²)`.
macro_rules! posterior_of_numbers {
    () => {
        fn decode(&self, scores: ndarray::ArrayView2<f64>) -> $crate::data::Target {
            $crate::data::Target::Values(scores.column(0).to_vec())
        }

        fn deviations(&self, x: ndarray::ArrayView2<f64>) -> $crate::Result<Option<ndarray::Array1<f64>>> {
            Ok(Some(self.variance(x)?.mapv(|v| (v + self.noise).sqrt())))
        }
    };
}
pub(super) use posterior_of_numbers;

/// What [`Predict`] does with scores of which an encoding says what they are, and `self.sharpness` how far they can be trusted.
macro_rules! encoded_scores {
    ($($encoding:ident).+) => {
        fn decode(&self, scores: ndarray::ArrayView2<f64>) -> $crate::data::Target {
            self.$($encoding).+.decode(scores)
        }

        fn probabilities(&self, scores: ndarray::ArrayView2<f64>) -> Option<ndarray::Array2<f64>> {
            $crate::apply::probabilities::sharpened(self.sharpness, scores)
        }
    };
}
pub(super) use encoded_scores;

/// Implements [`Saved`] from a list of what a file holds, in reading order: `field: Type = part;` with the parts
///
/// * `value("name")`, anything that serde reads and writes, or `value("name", check)`, passed through a check;
/// * `list("name", n)`, a list of n values;
/// * `matrix("name", (n, m))` and `vector("name", n)`, whose size is checked and may depend on the fields before; a vector may
///   be passed through a check too;
/// * `whole(Type::unpack)`, whatever packs and unpacks itself;
/// * `known(function, fields, …)`, not in the file but made by `function(fields, …, registry)` of fields before and of what
///   names from outside the crate mean.
macro_rules! saved {
    ($Fitted:ident, $kind:literal: $($field:ident: $Type:ty = $part:ident($($argument:expr),*);)*) => {
        impl $crate::apply::Saved for $Fitted {
            const KIND: &'static str = $kind;

            fn pack<'a>(&'a self, bundle: &mut $crate::bundle::Bundle<'a>) -> $crate::Result<()> {
                $($crate::apply::traits::saved!(@pack bundle, self.$field, $part($($argument),*));)*
                Ok(())
            }

            fn unpack(bundle: &$crate::bundle::Bundle, device: $crate::compute::Device) -> $crate::Result<Self> {
                $(let $field: $Type = $crate::apply::traits::saved!(@unpack bundle, device, $part($($argument),*));)*
                // Not every kind of model computes on a device.
                let _ = device;
                Ok($Fitted { $($field),* })
            }
        }
    };
    (@pack $bundle:ident, $field:expr, value($name:expr $(, $check:expr)?)) => { $bundle.set($name, &$field) };
    (@pack $bundle:ident, $field:expr, list($name:expr, $n:expr)) => { $bundle.set($name, &$field) };
    (@pack $bundle:ident, $field:expr, matrix($name:expr, $shape:expr)) => { $bundle.put($name, $field.view()) };
    (@pack $bundle:ident, $field:expr, vector($name:expr, $n:expr $(, $check:expr)?)) => {
        $bundle.put($name, $field.view().insert_axis(ndarray::Axis(0)))
    };
    (@pack $bundle:ident, $field:expr, whole($unpack:expr)) => { $field.pack($bundle)? };
    (@pack $bundle:ident, $field:expr, known($make:expr, $($from:expr),*)) => {};
    (@unpack $bundle:ident, $device:ident, value($name:expr)) => { $bundle.value($name)? };
    (@unpack $bundle:ident, $device:ident, value($name:expr, $check:expr)) => { $check($bundle.value($name)?)? };
    (@unpack $bundle:ident, $device:ident, list($name:expr, $n:expr)) => {
        $crate::apply::reference::list($bundle, $name, $n)?
    };
    (@unpack $bundle:ident, $device:ident, matrix($name:expr, $shape:expr)) => {
        $crate::apply::reference::matrix($bundle, $name, $shape)?
    };
    (@unpack $bundle:ident, $device:ident, vector($name:expr, $n:expr)) => {
        $crate::apply::reference::matrix($bundle, $name, (1, $n))?.remove_axis(ndarray::Axis(0))
    };
    (@unpack $bundle:ident, $device:ident, vector($name:expr, $n:expr, $check:expr)) => {
        $check($crate::apply::traits::saved!(@unpack $bundle, $device, vector($name, $n)))?
    };
    (@unpack $bundle:ident, $device:ident, whole($unpack:expr)) => { $unpack($bundle, $device)?.into() };
    (@unpack $bundle:ident, $device:ident, known($make:expr, $($from:expr),*)) => {
        $make($($from,)* $bundle.registry())?
    };
}
pub(super) use saved;

/// A part of a fitted value that its file does not keep.
pub(super) fn not_kept<T: Default>((): (), _: &Registry) -> Result<T> {
    Ok(T::default())
}

/// A fitted estimator of any kind. Example: [the module](crate::apply).
pub enum Fitted {
    /// It predicts.
    Predict(Box<dyn Predict>),
    /// It gives coordinates.
    Transform(Box<dyn Transform>),
}

impl Fitted {
    /// Reads any estimator that was [`Saved`], to compute on `device`.
    pub fn load(path: &Path, device: Device) -> Result<Fitted> {
        Fitted::load_with(path, device, &Registry::default())
    }

    /// The same, for an estimator with a kernel or features from outside the crate. Example: [`Registry`].
    pub fn load_with(path: &Path, device: Device, registry: &Registry) -> Result<Fitted> {
        Bundle::read_as(path, registry, |bundle, kind| Fitted::unpack(bundle, kind, device))
    }

    /// The estimator of a bundle of this kind. A new estimator is one more line here.
    pub(crate) fn unpack(bundle: &Bundle, kind: &str, device: Device) -> Result<Fitted> {
        Ok(match kind {
            FittedKernelPca::KIND => Fitted::transform(FittedKernelPca::unpack(bundle, device)?)?,
            FittedEigenmaps::KIND => Fitted::transform(FittedEigenmaps::unpack(bundle, device)?)?,
            FittedCode::KIND => Fitted::transform(FittedCode::unpack(bundle, device)?)?,
            FittedNadarayaWatson::KIND => Fitted::Predict(Box::new(FittedNadarayaWatson::unpack(bundle, device)?)),
            FittedNtkEnsemble::KIND => Fitted::Predict(Box::new(FittedNtkEnsemble::unpack(bundle, device)?)),
            FittedRidge::KIND => Fitted::Predict(Box::new(FittedRidge::unpack(bundle, device)?)),
            FittedLogistic::KIND => Fitted::Predict(Box::new(FittedLogistic::unpack(bundle, device)?)),
            FittedSpectralRidge::KIND => Fitted::Predict(Box::new(FittedSpectralRidge::unpack(bundle, device)?)),
            FittedGaussianProcess::KIND => Fitted::Predict(Box::new(FittedGaussianProcess::unpack(bundle, device)?)),
            FittedGaussianProcessClassifier::KIND => {
                Fitted::Predict(Box::new(FittedGaussianProcessClassifier::unpack(bundle, device)?))
            }
            FittedIterativeProcess::KIND => Fitted::Predict(Box::new(FittedIterativeProcess::unpack(bundle, device)?)),
            FittedFeatureLogistic::KIND => Fitted::Predict(Box::new(FittedFeatureLogistic::unpack(bundle, device)?)),
            FittedFeatureProcess::KIND => Fitted::Predict(Box::new(FittedFeatureProcess::unpack(bundle, device)?)),
            FittedFeatureRidge::KIND => Fitted::Predict(Box::new(FittedFeatureRidge::unpack(bundle, device)?)),
            FittedRecursiveFeatureMachine::KIND => {
                Fitted::Predict(Box::new(FittedRecursiveFeatureMachine::unpack(bundle, device)?))
            }
            _ => return Err(Error::input(format!("holds a model of kind '{kind}', not a fitted estimator"))),
        })
    }

    /// Refuses coordinates of the fitted points that are not finite: parts of an edited file may be finite where their product is not.
    fn transform(fitted: impl Transform + 'static) -> Result<Fitted> {
        finite_rows("the coordinate", fitted.embedding(), 1)?;
        Ok(Fitted::Transform(Box::new(fitted)))
    }
}
