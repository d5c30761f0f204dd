//! How `mercer regress` learns: the options of methods, the choice among them, and the fitted model.

mod blocks;

use crate::learnt::{Learnt, Model};
use crate::options::precomputed;
use crate::options::values::number;
use crate::solving::{Solved, Solving};
use crate::ways::{By, Form, Loss, Solver, Way, name};
use clap::Args;
use mercer::apply::{
    Alpha, Bandwidth, ClassWeights, Convergence, Criterion, FeatureLogistic, FeatureMap, FeatureRidge, Fit,
    KernelSearch, Learner, MetricForm, NadarayaWatson, NtkEnsemble, RecursiveFeatureMachine, SpectralRidge,
};
use mercer::data::{Dataset, Target};
use mercer::kernel::{Expression, Kernel, Kind, Median, catalogue};
use mercer::operator::{DenseOperator, OnPoints};
use mercer::spectrum::{Exact, Krylov, Problem, Spectrum};
use mercer::{Error, FitContext, Result, fail_if};
use ndarray::ArrayView2;

/// Pairs of a spectrum by default.
const PAIRS: usize = 200;

/// Random features by default.
const RANDOM_FEATURES: usize = 2000;

/// Options of the ways to learn.
#[derive(Args)]
pub struct Learning {
    /// How to learn
    #[arg(long, default_value = "auto")]
    pub(crate) method: Way,

    /// What is minimised; logistic is for classes, on features (nystrom, random-features, linear)
    #[arg(long, default_value = "squared")]
    loss: Loss,

    /// Number added to the kernel matrix's diagonal, or auto for the least left-out error; with --loss logistic, the factor on
    /// half the squared weights [default: auto]
    #[arg(long, value_name = "NUMBER", value_parser = auto_or_ridge, allow_negative_numbers = true)]
    alpha: Option<Choice>,

    /// nystrom, rfm: landmarks [default: 1000, or 1.7√n up to 2000; rfm: none up to 4000 points]; random-features: features [default: 2000]; falkon, krill: landmarks
    /// [default: 5000]; eigenpro: landmarks [default: all points]; spectrum: eigenpairs [default: 200];
    /// ridge by cg: rank of the preconditioner [default: 200, or 2√n where that is more]
    #[arg(long, visible_aliases = ["landmarks", "features"], value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rank: Option<u32>,

    /// Weights of the classes: balanced, or numbers such as rare=5,other=1 [default: all 1]
    #[arg(long, value_name = "WEIGHTS", value_parser = class_weights)]
    class_weight: Option<ClassWeights>,

    /// Choose alpha by the error of N-fold cross-validation instead of leave-one-out [with --loss logistic: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    cv: Option<u32>,

    /// Kernels to choose among, such as rbf,matern32,laplacian; their lengthscales are found too, unless they are given
    /// [instead of --kernel]
    #[arg(long, value_name = "KERNELS", conflicts_with = "kernel")]
    search: Option<String>,

    /// What kernels and lengthscales (auto, ard) are chosen by
    #[arg(long, default_value = "left-out")]
    criterion: By,

    /// ridge: how the linear system is solved [default: by size and memory]
    #[arg(long)]
    pub(crate) solver: Option<Solver>,

    #[command(flatten)]
    pub(crate) solving: Solving,

    /// rfm: the matrix of the metric [default: the one with the least left-out error]
    #[arg(long)]
    metric: Option<Form>,

    /// rfm: how often the metric is learnt anew [default: up to 5 times, by the left-out error]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100))]
    rounds: Option<u32>,

    /// nadaraya-watson: factor on the kernel's width, or auto for the least left-out error [default: auto where every lengthscale is
    /// median or auto, else 1]
    #[arg(long, value_name = "NUMBER", value_parser = auto_or_positive, allow_negative_numbers = true)]
    bandwidth: Option<Choice>,

    /// ntk-ensemble: how long the networks are trained; a rate of learning times a number of steps [default: inf]
    #[arg(long, value_name = "NUMBER", value_parser = time, allow_negative_numbers = true)]
    time: Option<f64>,
}

/// The kernel where none is given.
const KERNEL: &str = "rbf(lengthscale=median)";

/// The kernel of an ensemble of networks where none is given.
const ENSEMBLE_KERNEL: &str = "ntk(depth=3, b_var=0.1)";

/// A number, or `None` for whatever leaves the least error.
type Choice = Option<f64>;

fn auto_or_ridge(word: &str) -> Result<Choice, String> {
    if word == "auto" {
        Ok(None)
    } else {
        number(word, |v| v >= 0.0, "it must be a number of at least 0, or auto").map(Some)
    }
}

fn auto_or_positive(word: &str) -> Result<Choice, String> {
    if word == "auto" { Ok(None) } else { number(word, |v| v > 0.0, "it must be a number above 0, or auto").map(Some) }
}

fn time(word: &str) -> Result<f64, String> {
    match word {
        "inf" | "infinity" => Ok(f64::INFINITY),
        word => number(word, |v| v >= 0.0, "it must be a number of at least 0, or inf"),
    }
}

/// Reads `balanced`, or `name=number` for some classes.
fn class_weights(text: &str) -> Result<ClassWeights, String> {
    if text == "balanced" {
        return Ok(ClassWeights::Balanced);
    }
    let pair = |part: &str| {
        let (name, weight) = part.rsplit_once('=')?;
        let weight = weight.trim().parse().ok().filter(|w: &f64| w.is_finite() && *w > 0.0)?;
        Some((name.trim().to_owned(), weight))
    };
    let pairs: Option<Vec<(String, f64)>> = text.split(',').map(pair).collect();
    pairs
        .map(ClassWeights::Given)
        .ok_or_else(|| "it must be balanced, or numbers above 0 such as rare=5,other=1".into())
}

impl Learning {
    /// What can be refused before any work.
    pub fn check(&self) -> Result<()> {
        use Way::{
            Askotch, Auto, Eigenpro, Falkon, Krill, Linear, NadarayaWatson, NtkEnsemble, Nystrom, RandomFeatures, Rfm,
            Richardson, Ridge, Spectrum,
        };
        const RIDGE: &[Way] = &[
            Auto,
            Ridge,
            Nystrom,
            RandomFeatures,
            Spectrum,
            Linear,
            Rfm,
            Falkon,
            Krill,
            Askotch,
            Eigenpro,
            Richardson,
        ];
        const RANKED: &[Way] = &[Auto, Ridge, Nystrom, RandomFeatures, Spectrum, Rfm, Falkon, Krill, Eigenpro];
        const ITERATIVE: &[Way] = &[Ridge, Falkon, Krill, Askotch, Eigenpro, Richardson];
        let by_solver = self.method == Auto && self.solver.is_some();
        let iterative = |given: bool| given && !by_solver;
        self.check_direct()?;
        let rules: [(&str, bool, &[Way]); 13] = [
            ("time", self.time.is_some(), &[NtkEnsemble]),
            ("loss logistic", self.is_logistic(), &[Auto, Nystrom, RandomFeatures, Spectrum, Linear]),
            ("bandwidth", self.bandwidth.is_some(), &[NadarayaWatson]),
            ("alpha", self.alpha.is_some(), RIDGE),
            ("cv", self.cv.is_some(), RIDGE),
            ("solver", self.solver.is_some(), &[Auto, Ridge]),
            ("rank", self.rank.is_some(), RANKED),
            ("checkpoint", iterative(self.solving.checkpointing.checkpoint.is_some()), ITERATIVE),
            ("tolerance", iterative(self.solving.tolerance.is_some()), ITERATIVE),
            ("iterations", iterative(self.solving.iterations.is_some()), ITERATIVE),
            ("metric", self.metric.is_some(), &[Rfm]),
            ("rounds", self.rounds.is_some(), &[Rfm]),
            ("class-weight", self.class_weight.is_some(), RIDGE),
        ];
        for (option, given, ways) in rules {
            if given && !ways.contains(&self.method) {
                let names: Vec<String> = ways.iter().filter(|way| **way != Auto).map(|way| name(*way)).collect();
                return Err(Error::input(format!("--{option} is for --method {}; leave it out", names.join(", "))));
            }
        }
        fail_if!(
            matches!((self.alpha, self.cv), (Some(Some(_)), Some(_))),
            "--cv chooses --alpha; leave one of them out, or give --alpha auto"
        );
        fail_if!(
            self.is_logistic() && self.solver.is_some(),
            "--loss logistic is for methods on features, and --solver for ridge; leave one of them out"
        );
        self.solving.checkpointing.check()
    }

    /// Refuses options of iterative solvers where the solver is the direct one.
    fn check_direct(&self) -> Result<()> {
        let Solving { tolerance, iterations, checkpointing } = &self.solving;
        let given = [
            ("rank", self.rank.is_some()),
            ("tolerance", tolerance.is_some()),
            ("iterations", iterations.is_some()),
            ("checkpoint", checkpointing.checkpoint.is_some()),
        ];
        let ignored = given.into_iter().find(|(_, given)| *given && self.solver == Some(Solver::Direct));
        match ignored {
            Some((option, _)) => {
                Err(Error::input(format!("--{option} is for --solver cg; --solver direct takes none")))
            }
            None => Ok(()),
        }
    }

    /// Whether kernel values are computed in the precision that is asked for.
    pub fn takes_precision(&self) -> bool {
        !matches!(self.method, Way::NtkEnsemble | Way::Linear | Way::RandomFeatures)
    }

    /// Whether ranks share the products of the solver that was asked for, on all points and under a kernel that is known.
    pub fn solves_on_ranks(&self, candidates: &[Expression]) -> bool {
        let by_products = match self.method {
            Way::Auto | Way::Ridge => self.solver.is_some_and(|solver| solver != Solver::Direct),
            method => matches!(method, Way::Askotch | Way::Eigenpro | Way::Richardson) && self.rank.is_none(),
        };
        by_products && !self.searches(candidates) && !self.is_logistic()
    }

    pub(crate) fn weights(&self) -> ClassWeights {
        self.class_weight.clone().unwrap_or_default()
    }

    fn is_logistic(&self) -> bool {
        self.loss == Loss::Logistic
    }

    /// The kernels to choose among: those of --search, else `kernel` or that which the method has by itself.
    pub fn candidates(&self, kernel: Option<&str>) -> Result<Vec<Expression>> {
        let own = if self.method == Way::NtkEnsemble { ENSEMBLE_KERNEL } else { KERNEL };
        let candidates: Vec<Expression> = match &self.search {
            None => vec![Expression::parse(kernel.unwrap_or(own))?],
            Some(list) => split(list).iter().map(|text| Expression::parse(&automatic(text))).collect::<Result<_>>()?,
        };
        fail_if!(
            self.method == Way::Rfm && (self.search.is_some() || self.criterion == By::Likelihood),
            "--method rfm finds the lengthscale of one kernel by the left-out error; give --kernel \"matern12(auto)\" instead of \
             --search and --criterion"
        );
        fail_if!(
            self.method == Way::NtkEnsemble && (self.search.is_some() || self.criterion == By::Likelihood),
            "--method ntk-ensemble takes one kernel ntk(…) as it is given; leave --search and --criterion out"
        );
        fail_if!(
            self.method == Way::NadarayaWatson && (self.search.is_some() || self.criterion == By::Likelihood),
            "--method nadaraya-watson finds the width of one kernel by the left-out error; give --kernel \"rbf(auto)\" instead of --search and \
             --criterion"
        );
        Ok(candidates)
    }

    /// Fits the examples under the kernel that suits them best. Iterative solvers measure the error on `watched` along the way.
    pub fn learn(
        &self,
        candidates: &[Expression],
        train: &Dataset,
        watched: Option<&Dataset>,
        fit: &FitContext<'_>,
    ) -> Result<Learnt> {
        let (x, y) = (train.x.to_f64(), train.y.as_ref().expect("checked"));
        fail_if!(
            self.is_logistic() && matches!(y, Target::Values(_)),
            "--loss logistic is for classes, and the target is numbers; take whole numbers as classes by --classify, or leave \
             --loss out"
        );
        match (candidates, self.method) {
            ([one], Way::Rfm) => return self.machine(one, x.view(), y, fit),
            ([one], Way::NadarayaWatson) => return self.average(one, x.view(), y, fit),
            _ => {}
        }
        if let [one] = candidates
            && !self.searches(candidates)
        {
            return self.learn_under(one.resolve(&train.x, fit.seed)?, x.view(), y, watched, fit);
        }
        let found = self.kernel_search(candidates).best(x.view(), y, fit)?;
        let learnt = self.learn_under(found.kernel.clone(), x.view(), y, watched, fit)?;
        Ok(Learnt { search: Some(found), ..learnt })
    }

    /// Whether there is a kernel or a lengthscale to be found.
    fn searches(&self, candidates: &[Expression]) -> bool {
        candidates.len() > 1 || candidates.iter().any(Expression::is_automatic) || self.criterion == By::Likelihood
    }

    fn kernel_search(&self, candidates: &[Expression]) -> KernelSearch {
        let criterion = match self.criterion {
            By::LeftOut => Criterion::LeftOut,
            By::Likelihood => Criterion::Likelihood,
        };
        let (candidates, class_weights) = (candidates.to_vec(), self.weights());
        KernelSearch { candidates, criterion, alpha: self.alpha(), class_weights }
    }

    /// Whether the options suit a kernel matrix in place of points.
    pub fn takes_a_matrix(&self) -> bool {
        let Solving { tolerance, iterations, checkpointing } = &self.solving;
        let iterative = tolerance.is_some() || iterations.is_some() || checkpointing.checkpoint.is_some();
        let searched = self.search.is_some() || self.criterion == By::Likelihood;
        let none = self.solver.is_none() && self.rank.is_none() && !searched && !iterative;
        none && !self.is_logistic() && matches!(self.method, Way::Auto | Way::Ridge)
    }

    /// Ridge regression on all eigenfunctions of the kernel matrix `[n, n]` that the examples are.
    pub fn learn_matrix(&self, train: &Dataset, fit: &FitContext<'_>) -> Result<Learnt> {
        let matrix = precomputed::matrix(train)?;
        let dense = DenseOperator::new(matrix.clone());
        let operator = OnPoints::new(&dense, matrix.view())?;
        let spectrum = Spectrum::fit(&Exact, &Problem { operator: &operator, k: train.n(), context: *fit }, None)?;
        let (spectrum, alpha, class_weights) = (spectrum.into(), self.alpha(), self.weights());
        let ridge = SpectralRidge { spectrum, alpha, intercept: true, class_weights };
        let fitted = ridge.fit(matrix.view(), train.y.as_ref().expect("checked"), fit)?;
        let (alpha, tried) = (fitted.alpha, fitted.tried.clone());
        Ok(Learnt::new(fitted, alpha, tried))
    }

    fn learn_under(
        &self,
        kernel: Kernel,
        x: ArrayView2<f64>,
        y: &Target,
        watched: Option<&Dataset>,
        fit: &FitContext<'_>,
    ) -> Result<Learnt> {
        let iterative = |kernel| Solved { learning: self, kernel, x, y, watched, is_sharded: false, fit };
        match self.method {
            Way::Auto => self.by_choice(iterative(kernel)),
            Way::Rfm | Way::NadarayaWatson => unreachable!("they take an expression"),
            Way::Ridge | Way::Askotch | Way::Richardson | Way::Eigenpro | Way::Falkon | Way::Krill => {
                iterative(kernel).learn()
            }
            Way::NtkEnsemble => {
                let time = self.time.unwrap_or(f64::INFINITY);
                let fitted = NtkEnsemble { kernel, time }.fit(x, y, fit)?;
                Ok(Learnt { parameter: ("time", time), ..Learnt::new(fitted, 0.0, vec![]) })
            }
            Way::Spectrum => self.spectral(kernel, x, y, fit),
            Way::Linear | Way::Nystrom | Way::RandomFeatures => {
                self.on_features(self.feature_map(kernel, x.dim(), fit)?, x, y, fit)
            }
        }
    }

    /// The features of n points of d columns for a method on features; those that suit the kernel where none was asked for.
    fn feature_map(&self, kernel: Kernel, dim: (usize, usize), fit: &FitContext<'_>) -> Result<FeatureMap> {
        let rank = self.rank.map(|rank| rank as usize);
        if self.method == Way::RandomFeatures {
            let features = rank.unwrap_or(RANDOM_FEATURES).next_multiple_of(2);
            return Ok(FeatureMap::Random { kernel, features, sampling: Default::default() });
        }
        match (self.method, FeatureMap::of_kernel(&kernel, dim, rank, fit)) {
            (Way::Linear, map) if !matches!(map, FeatureMap::Linear { .. }) => {
                Err(Error::input(format!("--method linear is for the kernel linear, not for {kernel}")))
            }
            (Way::Nystrom, FeatureMap::Linear { .. }) => {
                Err(Error::input("a linear kernel needs no landmarks; use --method linear"))
            }
            (_, map) => Ok(map),
        }
    }

    /// By the method that suits the data.
    fn by_choice(&self, on: Solved) -> Result<Learnt> {
        if self.solver.is_some() {
            return on.ridge(None);
        }
        let (rank, dim) = (self.rank.map(|rank| rank as usize), on.x.dim());
        let (learner, why) = Learner::choose(&on.kernel, dim, rank, on.fit);
        let (learnt, why) = match learner {
            Learner::Features(map) => (self.on_features(map, on.x, on.y, on.fit)?, why),
            Learner::Ridge(_) if self.is_logistic() => {
                let map = FeatureMap::of_kernel(&on.kernel, dim, rank, on.fit);
                (self.on_features(map, on.x, on.y, on.fit)?, "logistic regression is for methods on features".into())
            }
            Learner::Ridge(solver) => (on.ridge(Some(solver))?, why),
        };
        Ok(Learnt { why: Some(format!("method {}: {why}", learnt.origin().method)), ..learnt })
    }

    pub(crate) fn alpha(&self) -> Alpha {
        match (self.alpha.flatten(), self.cv) {
            (Some(value), _) => Alpha::Fixed(value),
            (None, Some(folds)) => Alpha::CrossValidation { folds: folds as usize },
            (None, None) => Alpha::LeaveOneOut,
        }
    }

    fn on_features(&self, map: FeatureMap, x: ArrayView2<f64>, y: &Target, fit: &FitContext<'_>) -> Result<Learnt> {
        if self.is_logistic() {
            return self.logistic(map, x, y, fit);
        }
        let class_weights = self.weights();
        let fitted = FeatureRidge { map, alpha: self.alpha(), class_weights }.fit(x, y, fit)?;
        let (rank, alpha, tried) = (fitted.rank(), fitted.alpha, fitted.tried.clone());
        Ok(Learnt { rank: Some(rank), ..Learnt::new(fitted, alpha, tried) })
    }

    /// α of a logistic regression, which has no leave-one-out error in closed form.
    fn logistic_alpha(&self, map: &FeatureMap) -> Alpha {
        match self.alpha() {
            Alpha::LeaveOneOut => FeatureLogistic::new(map.clone()).alpha,
            alpha => alpha,
        }
    }

    fn logistic(&self, map: FeatureMap, x: ArrayView2<f64>, y: &Target, fit: &FitContext<'_>) -> Result<Learnt> {
        let alpha = self.logistic_alpha(&map);
        let fitted = FeatureLogistic { map, alpha, class_weights: self.weights() }.fit(x, y, fit)?;
        let (rank, alpha, tried) = (fitted.rank(), fitted.alpha, fitted.tried.clone());
        Ok(Learnt { rank: Some(rank), measure: "log loss", ..Learnt::new(fitted, alpha, tried) })
    }

    fn spectral(&self, kernel: Kernel, x: ArrayView2<f64>, y: &Target, fit: &FitContext<'_>) -> Result<Learnt> {
        let k = self.rank.map_or(PAIRS, |rank| rank as usize).min(x.nrows());
        if self.is_logistic() {
            let learnt = self.logistic(FeatureMap::Eigenfunctions { kernel, pairs: k }, x, y, fit)?;
            return Ok(Learnt { rank: Some(k), ..learnt });
        }
        let operator = fit.kernel_operator(&kernel, x)?;
        let problem = Problem { operator: &operator, k, context: *fit };
        let spectrum = Spectrum::fit(&Krylov::default(), &problem, None)?.into();
        let (alpha, class_weights) = (self.alpha(), self.weights());
        let fitted = SpectralRidge { spectrum, alpha, intercept: true, class_weights }.fit(x, y, fit)?;
        let (alpha, tried) = (fitted.alpha, fitted.tried.clone());
        Ok(Learnt { rank: Some(k), ..Learnt::new(fitted, alpha, tried) })
    }

    fn machine(&self, kernel: &Expression, x: ArrayView2<f64>, y: &Target, fit: &FitContext<'_>) -> Result<Learnt> {
        let metric = self.metric.map(|form| match form {
            Form::Diagonal => MetricForm::Diagonal,
            Form::Full => MetricForm::Full,
        });
        let [rounds, rank] = [self.rounds, self.rank].map(|count| count.map(|count| count as usize));
        let (kernel, alpha, class_weights) = (kernel.clone(), self.alpha(), self.weights());
        let fitted = RecursiveFeatureMachine { kernel, alpha, metric, rounds, rank, class_weights }.fit(x, y, fit)?;
        let (rank, alpha, tried) = (fitted.rank(), fitted.alpha(), fitted.tried().to_vec());
        let metrics = Some((fitted.metrics.clone(), fitted.form(), fitted.rounds));
        Ok(Learnt { rank, metrics, ..Learnt::new(fitted, alpha, tried) })
    }

    fn average(&self, kernel: &Expression, x: ArrayView2<f64>, y: &Target, fit: &FitContext<'_>) -> Result<Learnt> {
        let by_kernel = Bandwidth::of(kernel)?;
        let asked = |choice: Choice| choice.map_or(Bandwidth::LeaveOneOut, Bandwidth::Fixed);
        let bandwidth = self.bandwidth.map_or(by_kernel, asked);
        // The bandwidth is the factor on the median that `auto` stands for.
        let kernel = kernel.resolve_scaled(x, fit.seed, 1.0)?;
        let average = NadarayaWatson { kernel, bandwidth }.fit(x, y, fit)?;
        Ok(Learnt {
            why: None,
            tried: average.tried.clone(),
            measure: "mean squared error",
            parameter: ("bandwidth", average.bandwidth),
            convergence: Convergence::default(),
            rank: None,
            search: None,
            metrics: None,
            blocks: None,
            expected: None,
            model: Model::Average(Box::new(average)),
        })
    }
}

/// The parts of a list between commas that are in no bracket and no quotes.
fn split(list: &str) -> Vec<String> {
    let (mut depth, mut quoted, mut parts) = (0i32, false, vec![String::new()]);
    for c in list.chars() {
        quoted ^= c == '"';
        depth += i32::from(matches!(c, '(' | '[')) - i32::from(matches!(c, ')' | ']'));
        match c {
            ',' if depth == 0 && !quoted => parts.push(String::new()),
            c => parts.last_mut().expect("one part at least").push(c),
        }
    }
    parts.into_iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// A kernel that is only named, with the lengthscale to be found where it is a kernel of a distance. Others are taken as they are: dividing the inputs
/// of `linear` only changes α.
fn automatic(text: &str) -> String {
    let entries = catalogue();
    let entry = entries.iter().find(|entry| entry.name == text && entry.median == Median::Distance);
    match entry.filter(|entry| entry.parameters.iter().any(|p| p.kind == Kind::Lengthscale)) {
        Some(entry) => format!("{}(lengthscale=auto)", entry.name),
        None => text.to_owned(),
    }
}
