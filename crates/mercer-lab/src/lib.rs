//! Experiments, one per file. Each computes numbers and shows them: a figure, a report with a verdict in words, JSON and text.
//!
//! Experiments on wide networks share `wide.rs`: k networks in the parameterisation in which the NTK has a limit, full-batch descent, the
//! empirical NTK and the norm of the Hessian. `statistics.rs` has intervals over runs, and exponents.

/// Defines `Config`, the settings of an experiment: each with its value in the whole experiment and, where they differ, in a
/// quick one of a few seconds and in one of the published size.
macro_rules! config {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $full:expr $(; quick $quick:expr)? $(; published $published:expr)?,)*) => {
        #[derive(Clone, serde::Serialize)]
        struct Config {
            $($(#[$doc])* $name: $type,)*
            seed: u64,
        }

        impl Config {
            fn new(size: impl Into<$crate::Size>, seed: u64) -> Config {
                let full = Config { $($name: $full,)* seed };
                match size.into() {
                    $crate::Size::Whole => full,
                    $crate::Size::Quick => Config { $($($name: $quick,)?)* ..full },
                    $crate::Size::Published => Config { $($($name: $published,)?)* ..full },
                }
            }
        }
    };
}

mod bnn_to_gp;
mod bound_states;
mod chosen_ridge;
mod classic_kernels;
mod cnn_gp;
mod eigenmap;
mod eigenmap_cifar;
mod eigenvalue_decay;
mod feature_learning;
mod gp_uci;
mod gradient_flow;
mod graph_laplacian;
mod heaviside;
mod hydrogen;
mod inference_cost;
mod lazy;
mod lla_1d;
mod lla_cifar10;
mod lla_mnist;
mod low_dimensional_support;
mod mlp_gp;
mod network_ntk;
mod neural_methods;
#[cfg(test)]
mod neural_operators;
mod ntk_width;
mod oscillator;
mod population;
mod retrieval;
mod sgd_trajectory;
mod statistics;
mod uncertainty;
mod wide;
mod wide_ensemble;

use mercer::data::{Dataset, ReadOptions, open};
use mercer::rng::Rng;
use mercer::spectrum::neural::{Kind, Neural};
use mercer::{FitContext, Result, fail_if};
use mercer_figure::Plot;
use mercer_figure::report::{Report, Table};
use ndarray::Array2;
use serde_json::Value;
use std::path::PathBuf;

/// An experiment.
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// What it shows, in one line.
    pub help: &'static str,
    /// How long it takes on two cores, in words; empty where that was not measured.
    pub time: &'static str,
    /// Runs it; the seed is that of the context.
    pub run: fn(&Options, &FitContext<'_>) -> Result<Shown>,
}

/// How large an experiment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// Seconds to a few minutes on two cores.
    Whole,
    /// A few seconds.
    Quick,
    /// As it was published.
    Published,
}

/// From whether the run is a quick one.
impl From<bool> for Size {
    fn from(quick: bool) -> Size {
        if quick { Size::Quick } else { Size::Whole }
    }
}

impl From<&Options> for Size {
    fn from(options: &Options) -> Size {
        if options.published { Size::Published } else { options.quick.into() }
    }
}

/// Options of an experiment; those that are not given have the experiment's own values.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A smaller run, in seconds rather than minutes.
    pub quick: bool,
    /// The size of the published experiment, which may need a GPU.
    pub published: bool,
    /// File of the trained network.
    pub net: Option<PathBuf>,
    /// Number of training images whose kernel is fitted.
    pub train: Option<usize>,
    /// Number of test images.
    pub test: Option<usize>,
    /// Training steps of NeuralEF.
    pub steps: Option<u64>,
    /// Number of random directions.
    pub directions: Option<usize>,
    /// Names of the methods that are compared; all if there are none.
    pub methods: Vec<String>,
    /// Names of the tables that are measured; all if there are none.
    pub tables: Vec<String>,
    /// File to keep the state of the training in; a run that finds it there continues it.
    pub checkpoint: Option<PathBuf>,
}

/// The output of an experiment.
pub struct Shown {
    /// The main figure, an SVG document.
    pub figure: String,
    /// The report.
    pub report: Report,
    /// The results as JSON.
    pub numbers: Value,
    /// The results as text.
    pub text: String,
}

/// Defines the list of experiments: the module, the name, perhaps the time, and the help of each.
macro_rules! experiments {
    ($($module:ident $name:literal $(($time:literal))?: $help:literal,)*) => {
        /// All experiments.
        pub const EXPERIMENTS: &[Experiment] =
            &[$(Experiment { name: $name, help: $help, time: concat!($($time)?), run: $module::reproduce }),*];
    };
}

experiments! {
    classic_kernels "classic-kernels" ("52 s"):
        "a polynomial and an RBF on the line by all methods: which find the spectrum, and does training help?",
    eigenvalue_decay "eigenvalue-decay" ("3 s"):
        "the decay of eigenvalues depends on the dimension of the data, not of the ambient space",
    oscillator "oscillator" ("28 s"):
        "energies of the harmonic oscillator in the plane by all neural methods, and the exact ones",
    hydrogen "hydrogen" ("2 min"):
        "energies of hydrogen in the plane by all neural methods, and the exact ones",
    graph_laplacian "graph-laplacian" ("12 s"):
        "the smallest eigenvalues of a neighbour graph by all neural methods, and those of the dense matrix",
    neural_methods "neural-methods" ("6 min"):
        "every neural method and its baselines on five kernels at equal budgets: residual, time, cost of a new point",
    eigenmap "eigenmap" ("4 min"):
        "codes from views without labels: every objective on digits; --published: ResNet-18 on CIFAR-10, for a GPU",
    inference_cost "inference-cost" ("2 min"):
        "trained networks, random features and landmarks of equal inference cost: does training pay off?",
    gp_uci "gp-uci":
        "Gaussian processes on nine tables of the UCI repository, on their published splits: error, NLL, coverage",
    lla_1d "lla-1d" ("14 s"):
        "linearised Laplace of tiny networks: every approximation, NeuralEF's among them, beside the exact posterior",
    lla_mnist "lla-mnist" ("6 min"):
        "linearised Laplace of a LeNet on MNIST: NLL, calibration, Fashion-MNIST as the other distribution, turned digits",
    lla_cifar10 "lla-cifar10" ("5 min, H200"):
        "the uncertainty of a network trained on CIFAR-10: all Laplace posteriors, tuned on folds of the test images",
    mlp_gp "mlp-gp" ("37 s"):
        "the Gaussian process of a network in the plane: its first functions by NeuralEF and exactly",
    sgd_trajectory "sgd-trajectory" ("5 min"):
        "the kernel of the snapshots of a training run: its eigenfunctions beside SWA, SWAG and ensembles",
    retrieval "retrieval" ("4 min"):
        "codes of any length: the first m coordinates of a spectrum beside 16 m random ones and PCA, by mean average precision",
    cnn_gp "cnn-gp" ("6 min"):
        "the Gaussian process of a convolutional network on MNIST: digits classified by its first ten functions",
    gradient_flow "gradient-flow" ("92 s"):
        "each eigendirection of the NTK decays at its own rate; early stopping as a low-pass filter",
    wide_ensemble "wide-ensemble" ("24 s"):
        "ensembles of wide networks, trained for a time t, beside their Gaussian process in closed form",
    ntk_width "ntk-width" ("29 s"):
        "the NTK of networks of growing width, at the start and after training, on the circle",
    bnn_to_gp "bnn-to-gp" ("48 s"):
        "the prior of finite Bayesian networks tends to a Gaussian process: discrepancy and likelihood by width",
    lazy "lazy" ("10 s"):
        "how far training is from that of the linearised network, by width and by the scale of the output",
    feature_learning "feature-learning" ("75 s"):
        "functions of few hidden directions: how many examples kernels and a two-step network need",
    heaviside "heaviside" ("70 s"):
        "a jump in noise: networks adapt to it, kernel ridge regression cannot",
    low_dimensional_support "low-dimensional-support" ("22 s"):
        "data on a sheet in a space of many dimensions: kernels and networks both adapt",
    network_ntk "ntk":
        "the empirical NTK of a network on airplanes and automobiles: by NeuralEF, by random features, and exactly",
}

/// A neural method that makes all its steps: without early stopping, all methods have the same budget.
fn neural(kind: Kind, architecture: Option<&str>, steps: u64, batch: usize) -> Neural {
    let mut method = Neural::new(kind);
    method.architecture = architecture.map(String::from);
    (method.settings.steps, method.settings.batch, method.settings.patience) = (steps, batch, usize::MAX);
    method
}

/// The colour of a method, the same in all figures; that of the exact method is the darkest.
pub fn method_colour(method: &str) -> usize {
    const ORDER: [&str; 10] =
        ["krylov", "nystrom", "rff", "neuralef", "spin", "nested", "exact", "ritz", "omm", "positive"];
    ORDER.iter().position(|known| *known == method.to_lowercase()).unwrap_or(0)
}

/// A column of a table: its heading, and the cell of an item.
type Column<T> = (&'static str, fn(&T) -> String);

/// A table with one row per item.
fn table<'a, T: 'a>(items: impl IntoIterator<Item = &'a T>, columns: &[Column<T>]) -> Table {
    let headings: Vec<&str> = columns.iter().map(|(heading, _)| *heading).collect();
    let row = |item| columns.iter().map(|(_, cell)| cell(item)).collect();
    Table::of(&headings, &items.into_iter().map(row).collect::<Vec<Vec<String>>>())
}

/// A report that begins with the verdict and with what was run.
fn report(title: &str, verdict: &str, setting: &str) -> Report {
    Report::new(title).lead(&sentence(verdict)).section("What was run").text(setting)
}

/// The section with what theory expects and what was observed.
fn compared(report: Report, expectation: &str, observation: &str) -> Report {
    report.section("Expectation and observation").text(&format!("Expected: {expectation} Observed: {observation}"))
}

/// What an experiment expected and found, in words.
struct Findings<'a> {
    title: &'a str,
    /// What was run.
    setting: String,
    expectation: &'a str,
    observation: String,
    verdict: String,
}

impl Findings<'_> {
    /// The report up to the comparison of expectation and observation.
    fn report(&self, formulas: &[&str]) -> Report {
        let begun = report(self.title, &self.verdict, &self.setting);
        let begun = formulas.iter().fold(begun, |report, formula| report.formula(formula));
        compared(begun, self.expectation, &self.observation)
    }

    /// The results as text.
    fn text(&self, tables: &[&Table]) -> String {
        let tables: Vec<String> = tables.iter().map(|table| table.text()).collect();
        let Findings { expectation, observation, verdict, .. } = self;
        let (tables, verdict) = (tables.join("\n"), sentence(verdict));
        format!("{tables}\nExpected: {expectation}\n\nObserved: {observation}\n\n{verdict}\n")
    }
}

/// Points in the coordinates of two functions of `values` `[n, k]`, coloured by class.
fn coordinates(title: String, values: &Array2<f64>, [a, b]: [usize; 2], labels: &[usize], classes: &[String]) -> Plot {
    let [xs, ys] = [a, b].map(|j| values.column(j).iter().copied().take(labels.len()).collect::<Vec<f64>>());
    let [x, y] = [a, b].map(|j| format!("ψ_{{{}}}", j + 1));
    Plot::new(title).x(x).y(y).classes(&xs, &ys, labels, classes)
}

/// A verdict as a sentence with a capital letter and a full stop.
fn sentence(verdict: &str) -> String {
    let mut letters = verdict.chars();
    // Symbols such as κ stay as they are.
    let first = letters.next().map(|c| c.to_ascii_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// A set of this name, and the numbers of the rows of two parts of it of these sizes, drawn at random.
fn two_parts(name: &str, [first, second]: [usize; 2], mut rng: Rng) -> Result<(Dataset, [Vec<usize>; 2])> {
    let (set, wanted) = (open(name, &ReadOptions::default())?, first + second);
    fail_if!(set.n() < wanted, "{name} has {} rows, and {first} + {second} = {wanted} are needed", set.n());
    let mut rows = rng.sample(set.n(), wanted);
    let rest = rows.split_off(first);
    Ok((set, [rows, rest]))
}

/// `1, …, n`.
fn indices(n: usize) -> Vec<f64> {
    (1..=n).map(|j| j as f64).collect()
}
