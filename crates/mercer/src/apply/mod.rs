//! Estimators: uses of a kernel and its spectrum, one estimator per file.
//!
//! | file | estimator |
//! |---|---|
//! | [`KernelPca`] | principal components in feature space, out-of-sample projection, pre-images |
//! | [`LaplacianEigenmaps`] | slow functions on a neighbour graph or a kernel affinity |
//! | [`DiffusionMaps`] | coordinates whose distances are those of a diffusion |
//! | [`ViewEigenmap`] | a code in the order of importance, by a network trained on pairs of views |
//! | [`EmbeddingCode`] | embeddings of any model in the order of importance |
//! | [`Matryoshka`] | the same by training a linear map for several lengths at once |
//! | [`NadarayaWatson`] | averages weighted by the kernel, bandwidth by leave-one-out |
//! | [`Ridge`] | kernel ridge regression and classification, direct or by conjugate gradients |
//! | [`FeatureRidge`] | ridge regression and classification on few features: linear, Nyström, random; for any number of points |
//! | [`Falkon`] | the same on many landmarks, by iterative solvers |
//! | [`FeatureLogistic`] | multinomial logistic regression on the same features |
//! | [`Logistic`] | multinomial logistic regression on given columns, such as the values of eigenfunctions |
//! | [`RecursiveFeatureMachine`] | ridge regression and classification under a metric that is learnt from its gradients |
//! | [`GaussianProcess`] | regression with standard deviations; hyper-parameters by the marginal likelihood |
//! | [`FeatureProcess`] | the same on few features, for any number of points |
//! | [`IterativeProcess`] | the same by conjugate gradients on all points, for many of them |
//! | [`GaussianProcessClassifier`] | classes with probabilities, by Laplace's approximation |
//! | [`NtkEnsemble`] | the mean and the spread of infinitely wide networks, trained for a time |
//! | [`SpectralRidge`] | ridge regression on the eigenfunctions of a [`Spectrum`](crate::spectrum::Spectrum) |
//! | [`filter`] | ridge regression seen as a low-pass filter; how fast a spectrum falls |
//!
//! All obey the same traits. An estimator holds its parameters, the kernel among them; [`Fit`] turns them and data into a fitted
//! value, which does [`Predict`] or [`Transform`], and is [`Saved`] to a file under its own kind.
//!
//! ```
//! use mercer::apply::{Fit, Fitted, Predict, Ridge, Saved};
//! use mercer::{FitContext, data, kernel::Expression};
//! let (train, test) = data::generate::moons(200, 0.1, 0)?.split(0.5, 0)?;
//! let (x, new) = (train.x.to_f64(), test.x.to_f64());
//! let kernel = Expression::parse("rbf(lengthscale=median)")?.resolve(x.view(), 0)?;
//! let fitted = Ridge::new(kernel).fit(x.view(), train.y.as_ref().unwrap(), &FitContext::default())?;
//! assert!(fitted.accuracy(new.view(), test.y.as_ref().unwrap())? >= 0.97);
//! assert!(fitted.tried.iter().any(|tried| tried.value == fitted.alpha)); // found by leave-one-out
//! let file = std::env::temp_dir().join("mercer-apply-example.mercer");
//! fitted.save(&file)?;
//! let Fitted::Predict(again) = Fitted::load(&file, mercer::Device::Cpu)? else { panic!("it predicts") };
//! assert_eq!(again.predict(new.view())?, fitted.predict(new.view())?);
//! # Ok::<(), mercer::Error>(())
//! ```

mod alpha;
mod class_weights;
mod code;
mod embedding;
mod features;
mod logistic;
mod probabilities;
mod process;
mod reference;
pub(crate) mod regression;
mod rfm;
mod ridge;
mod search;
mod solvers;
mod targets;
mod traits;

#[doc(hidden)]
pub use crate::measures::interval_factor;
pub use crate::measures::{ClassMeasures, ClassReport, IntervalReport};
pub use crate::training::Checkpoint;
pub use alpha::{Alpha, Tried};
pub use class_weights::ClassWeights;
pub use code::embedding_code::{EmbeddingCode, Together};
pub use code::fitted_code::{CodeFinish, FittedCode, Weighting};
pub use code::matryoshka::{FittedMatryoshka, Matryoshka};
pub use code::pair_certificate::PairCertificate;
pub use code::view_eigenmap::{ViewEigenmap, ViewRows};
pub use embedding::diffusion_maps::DiffusionMaps;
pub use embedding::eigen_solver::EigenSolver;
pub use embedding::eigenmaps::FittedEigenmaps;
pub use embedding::embedding_task::{Embedding, EmbeddingTask};
pub use embedding::kernel_pca::{FittedKernelPca, KernelPca};
pub use embedding::laplacian_eigenmaps::{Affinity, LaplacianEigenmaps};
pub use features::falkon::{Falkon, LandmarkSolver};
pub use features::feature_map::FeatureMap;
pub use features::feature_ridge::{FeatureRidge, FittedFeatureRidge};
pub use logistic::feature_logistic::{FeatureLogistic, FittedFeatureLogistic};
pub use logistic::on_columns::{FittedLogistic, Logistic};
#[doc(hidden)]
pub use probabilities::{entropies, softmax_rows};
pub use process::feature_process::{FeatureProcess, FittedFeatureProcess, ProcessFeatures};
pub use process::fitted_process::{FittedProcess, Iteration, LeftOut, Likelihood};
pub use process::gaussian_process::{FittedGaussianProcess, GaussianProcess, SearchEnd};
pub use process::gaussian_process_classifier::{FittedGaussianProcessClassifier, GaussianProcessClassifier};
pub use process::iterative_process::{FittedIterativeProcess, IterativeProcess};
pub use process::process_task::{Process, ProcessTask};
pub use reference::Reference;
pub use regression::in_blocks::{BlockwiseSize, InBlocks};
pub use regression::outcome::{Metrics, Outcome};
pub use regression::{Examples, Regression, RegressionTask};
pub use rfm::metric::{Direction, Importances, MetricForm};
pub use rfm::recursive_feature_machine::{FittedRecursiveFeatureMachine, RecursiveFeatureMachine, TriedMetric};
pub use ridge::filter;
pub use ridge::kernel_ridge::{FittedRidge, Ridge, RidgeSolver};
pub use ridge::nadaraya_watson::{Averages, Bandwidth, FittedNadarayaWatson, NadarayaWatson};
pub use ridge::ntk_ensemble::{FittedNtkEnsemble, NtkEnsemble};
pub use ridge::spectral_ridge::{FittedSpectralRidge, SpectralRidge};
pub use search::automatic::Learner;
pub use search::criterion::Criterion;
pub use search::kernel_search::{FoundKernel, KernelSearch, TriedKernel};
pub(crate) use search::lbfgs::minimise;
pub use search::memory::Memory;
pub use search::tuning::{Tuned, Tuning};
pub use solvers::EpochSolver;
pub use solvers::conjugate_gradients::{Converged, conjugate_gradients};
pub use solvers::low_rank_preconditioner::LowRankPreconditioner;
pub use solvers::monitor::{Convergence, HeldOutError, HeldOutRows, Monitoring, SolverName};
pub use traits::{AnySaved, Fit, Fitted, Predict, Saved, SavedPredict, SavedTransform, Transform};

use crate::data::Rows;
use crate::kernel::Kernel;
use crate::operator::{Operator, ShardedOperator};
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{ArrayView2, Axis};
use rayon::prelude::*;

impl<'c> FitContext<'c> {
    /// `κ(X,X)` of `x` `[n, d]`: stored where that takes a third of the budget at most, beside `other` bytes;
    /// otherwise, and on a GPU, computed again in every product. Several processes compute a share of each product.
    fn operator<'x>(&self, kernel: &Kernel, x: ArrayView2<'x, f64>, other: u64) -> Result<Box<dyn Operator + 'x>>
    where
        'c: 'x,
    {
        if !self.group.is_single() {
            let own = Rows::from(x).slice(self.group.share(x.nrows()));
            return Ok(Box::new(ShardedOperator::new(kernel, own, self)?));
        }
        let operator = self.kernel_operator(kernel, x)?;
        Ok(match operator.stored(self, other)? {
            Some(stored) => stored,
            None => Box::new(operator),
        })
    }
}

/// Refuses points `[n, d]` that are empty, not finite or too large, with the place named.
fn check_points(x: ArrayView2<f64>) -> Result<()> {
    let (n, d) = x.dim();
    fail_if!(n == 0 || d == 0, "the data is empty: {n} rows of {d} columns");
    // One look at data that are sound; what is not finite has a message of its own.
    Rows::from(x).check_magnitude().or_else(|large| check_finite(x).and(Err(large)))
}

fn check_finite(x: ArrayView2<f64>) -> Result<()> {
    const ROWS: usize = 1024;
    let parts: Vec<ArrayView2<f64>> = x.axis_chunks_iter(Axis(0), ROWS).collect();
    if parts.into_par_iter().all(|part| part.iter().all(|v| v.is_finite())) {
        return Ok(());
    }
    match x.indexed_iter().find(|(_, v)| !v.is_finite()) {
        None => Ok(()),
        Some(((i, j), value)) => Err(Error::input(format!(
            "row {}, column {} (counted from 1) is {value}; drop the row or fill the value",
            i + 1,
            j + 1
        ))),
    }
}

/// Refuses a number of coordinates that n points cannot have: more than `most`.
fn check_k(k: usize, most: usize) -> Result<()> {
    fail_if!(k == 0 || k > most, "k must lie between 1 and {most} for these points; got {k}");
    Ok(())
}
