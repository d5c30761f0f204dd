//! The choices that `mercer regress` offers by name.

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// By the number of points, the kernel, the memory and the device: ridge for few, linear for linear kernels, else nystrom; on a
    /// GPU ridge for many
    Auto,
    /// Kernel ridge regression on all points
    Ridge,
    /// Ridge regression on features of landmark points; time grows like n
    Nystrom,
    /// Ridge regression on random Fourier features, as rff in `mercer fit`; for shift-invariant kernels
    #[value(alias = "rff")]
    RandomFeatures,
    /// Ridge regression on the leading eigenfunctions
    Spectrum,
    /// Ridge regression on the columns themselves; for linear kernels
    Linear,
    /// Averages of the targets, weighted by the kernel
    NadarayaWatson,
    /// Kernel ridge regression on all points by ASkotch: the exact solution on one block of rows after the other, accelerated
    Askotch,
    /// The same by EigenPro: gradient steps on batches of rows, with the leading eigenvectors damped; with --rank, on landmark points
    Eigenpro,
    /// The same by Richardson's iteration
    Richardson,
    /// Ridge regression on features of many landmark points, by conjugate gradients
    Falkon,
    /// The same, preconditioned by a sketch of all rows
    Krill,
    /// Recursive feature machine: ridge regression under a metric that is learnt from the gradients of its predictions
    Rfm,
    /// All infinitely wide networks of the kernel ntk(…), trained for a time: their mean and deviations, for numbers
    NtkEnsemble,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// A weight for each column
    Diagonal,
    /// A weight for each direction
    Full,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// The mean squared error on left-out points
    LeftOut,
    /// The marginal likelihood of a Gaussian process
    Likelihood,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Loss {
    /// Squared errors: ridge regression; probabilities of classes are fitted to left-out scores
    Squared,
    /// The log loss of classes: logistic regression
    Logistic,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Solver {
    /// Dense factorisation
    Direct,
    /// Preconditioned conjugate gradients; the kernel matrix need not be stored
    Cg,
}

/// The name of a way on the command line.
pub fn name(way: Way) -> String {
    way.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
