//! The uncertainty of a network from the steps by which it was trained: averages of weights, and the kernel of the trajectory.
//!
//! Snapshots `θ_1, …, θ_M` of a run at a constant learning rate are seen as draws of a network. Their functions have the kernel
//! `κ(x,x') = (1/M) Σ_i (g(x,θ_i) − ḡ(x))(g(x',θ_i) − ḡ(x'))ᵀ`, a matrix in the outputs, and `GP(ḡ, s κ)`, truncated to k eigenfunctions, is
//! a posterior over functions. Its scale s is that of the least loss on other rows. A [`Method`] says what is made of the snapshots:
//!
//! | method | probabilities | passes to predict |
//! |---|---|---|
//! | [`Method::Last`] | of the last snapshot | 1 |
//! | [`Method::Swa`] | of the network at the mean of the parameters | 1 |
//! | [`Method::Swag`] | mean over networks at draws of the parameters | one for each draw |
//! | [`Method::Networks`] | mean over the snapshots, or over networks of several runs | one for each network |
//! | [`Method::Eigenfunctions`] | mean over `GP(ḡ, s κ)`, by k eigenfunctions, exact | one for each snapshot |
//! | [`Method::Ritz`] | the same with SWA's outputs as ḡ, the functions in the span of its hidden units | 1 |
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! use mercer::apply::Predict;
//! use mercer::classifier::{Cases, Classifier, Measure, Settings as Training, Snapshots, snapshot_files, train};
//! use mercer::trajectory::{Method, Settings, Swag, Trajectory};
//! use mercer::{Device, FitContext, data};
//!
//! let (fit, other) = data::open("digits", &Default::default())?.with_classes()?.split(0.3, 0)?;
//! let start = Classifier::new("dense(32) bn relu dense(10)", &fit, Device::Cpu, 0)?;
//! let snapshots = Some(Snapshots { every: Some(10), ..Snapshots::new(folder.path()) });
//! let training = Training { epochs: 12, batch: 64, snapshots, ..Training::default() };
//! train(start, &fit, None, &training, &FitContext::default(), &|_| ())?;
//! assert_eq!(snapshot_files(folder.path())?.len(), 6);
//!
//! let trajectory = Trajectory::open(folder.path(), Device::Cpu)?;
//! let fitted = Settings::new(Method::Eigenfunctions { functions: 4 }).fit(&trajectory, &fit, &other, &FitContext::default())?;
//! let labels = other.target()?.labels_for(&trajectory.last().classes)?;
//! let cases = Cases::of(fitted.scores(other.x.to_f64().view())?.view(), &labels);
//! assert!(fitted.passes() == 6 && cases.measure(Measure::Accuracy) > 0.9);
//! assert!(fitted.found.value > 0.0 && fitted.eigenvalues().len() == 4); // s, and μ
//!
//! let mut average = trajectory.average(fit.x.to_f64().view())?; // SWA
//! average.recompute_statistics(&other.x)?; // its batch norms, measured at other rows
//! assert_eq!(Swag::of(&trajectory, 5)?.deviations.len(), 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod entries;
mod fit;
mod fitted;
mod functions;
mod networks;
mod predictive;
mod swag;

pub use crate::laplace::{Predictive, Searched};
pub(crate) use entries::Made;
pub use fitted::FittedTrajectory;
pub use networks::Trajectory;
pub use swag::Swag;

use serde::{Deserialize, Serialize};

/// What is made of snapshots. Example: [the module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The last snapshot alone: the network that training ended with.
    Last,
    /// The network at the mean of the parameters.
    Swa,
    /// The mean of the probabilities of networks at draws of the parameters ([`Swag`]).
    Swag {
        /// Draws.
        draws: usize,
        /// Snapshots whose deviations are kept, the last ones.
        rank: usize,
    },
    /// The mean of the probabilities of all networks: of snapshots, or, of several runs, a deep ensemble.
    Networks,
    /// The process with the first eigenfunctions of the trajectory's kernel, exact.
    Eigenfunctions {
        /// k
        functions: usize,
    },
    /// The same in the span of the hidden units of the averaged network.
    Ritz {
        /// k
        functions: usize,
    },
}

impl Method {
    /// SWAG as published: 30 draws, deviations of 20 snapshots.
    pub const SWAG: Method = Method::Swag { draws: 30, rank: 20 };

    /// Its name, such as `swag`.
    pub fn name(self) -> &'static str {
        match self {
            Method::Last => "map",
            Method::Swa => "swa",
            Method::Swag { .. } => "swag",
            Method::Networks => "networks",
            Method::Eigenfunctions { .. } => "eigenfunctions",
            Method::Ritz { .. } => "ritz",
        }
    }

    /// Passes through a network that a prediction takes, of so many networks.
    pub fn passes(self, networks: usize) -> usize {
        match self {
            Method::Last | Method::Swa | Method::Ritz { .. } => 1,
            Method::Swag { draws, .. } => draws,
            Method::Networks | Method::Eigenfunctions { .. } => networks,
        }
    }

    /// The number of eigenfunctions, where it has some.
    pub fn functions(self) -> Option<usize> {
        match self {
            Method::Eigenfunctions { functions } | Method::Ritz { functions } => Some(functions),
            _ => None,
        }
    }
}

/// Settings of a fit. Example: [the module](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// What is made of the snapshots.
    pub method: Method,
    /// How probabilities are found from eigenfunctions.
    pub predictive: Predictive,
    /// Most rows at which the eigenfunctions are found, drawn at random where there are more, and batch norms measured.
    pub rows: usize,
}

impl Settings {
    /// With 100 draws of functions, and 5000 rows.
    pub fn new(method: Method) -> Settings {
        Settings { method, predictive: Predictive::Sampling { count: 100 }, rows: 5000 }
    }
}
