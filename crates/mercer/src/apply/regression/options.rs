//! The options that several regressions share.

use crate::apply::{Alpha, Checkpoint, ClassWeights, Criterion};
use crate::data::Target;
use crate::kernel::{Expression, Kind as ParameterKind, Median, catalogue};
use crate::options::{Kind, Opt, Options, Spelling};
use crate::{Error, Result, fail_if};

/// The largest count that an option takes.
pub(crate) const MOST: u64 = u32::MAX as u64;

static LOSS: Opt = Opt::new(
    "loss",
    "LOSS",
    Kind::Word(|| Loss::NAMED.map(|(word, _)| word).to_vec()),
    "What is minimised; logistic is for classes, on features (nystrom, random-features, spectrum, linear) [default: squared]",
);
static ALPHA: Opt = Opt::new(
    "alpha",
    "NUMBER",
    Kind::Or(&Kind::NonNegative, &["auto"]),
    "Number added to the kernel matrix's diagonal, or auto for the least left-out error; with a logistic loss, the factor on half the \
     squared weights [default: auto]",
);
static CV: Opt = Opt::new(
    "cv",
    "N",
    Kind::Between(2, MOST),
    "Choose alpha by the error of N-fold cross-validation instead of leave-one-out [with a logistic loss: 5]",
);
pub(crate) static RANK: Opt = Opt::new(
    "rank",
    "N",
    Kind::Between(1, MOST),
    "nystrom, rfm: landmarks [default: 1000, or 1.7√n up to 2000; rfm: none up to 4000 points]; random-features: features [default: 2000]; \
     falkon, krill: landmarks [default: 5000]; eigenpro: landmarks [default: all points]; spectrum: eigenpairs [default: 200]; ridge by cg: \
     rank of the preconditioner [default: 200, or 2√n where that is more]",
)
.also(&["landmarks", "features"]);
static TOLERANCE: Opt = Opt::new(
    "tolerance",
    "NUMBER",
    Kind::Positive,
    "Iterative solvers: relative residual to reach [default: cg 1e-8, in f32 1e-4; falkon, krill 1e-6; askotch, eigenpro, richardson 1e-3; \
     eigenpro on landmarks 1e-2]",
);
static ITERATIONS: Opt = Opt::new(
    "iterations",
    "N",
    Kind::Between(1, MOST),
    "Iterative solvers: most products with the matrix, or epochs [default: cg 1000; falkon, krill 200; askotch, eigenpro, richardson 300; \
     eigenpro on landmarks 20]",
)
.also(&["epochs"]);
static SEARCH: Opt = Opt::new(
    "search",
    "KERNELS",
    Kind::Text,
    "Kernels to choose among, such as rbf,matern32,laplacian; their lengthscales are found too, unless they are given [instead of a kernel]",
);
static CRITERION: Opt = Opt::new(
    "criterion",
    "CRITERION",
    Kind::Word(|| CRITERIA.map(|(word, _)| word).to_vec()),
    "What kernels and lengthscales (auto, ard) are chosen by [default: left-out]",
);

const CRITERIA: [(&str, Criterion); 2] = [("left-out", Criterion::LeftOut), ("likelihood", Criterion::Likelihood)];

/// What the error of a prediction costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Squared errors: ridge regression.
    #[default]
    Squared,
    /// The log loss of classes: logistic regression.
    Logistic,
}

impl Loss {
    const NAMED: [(&'static str, Loss); 2] = [("squared", Loss::Squared), ("logistic", Loss::Logistic)];
}

/// What is minimised: the loss, α times the squared norm, and how much each class counts.
#[derive(Clone, Debug)]
pub(crate) struct Objective {
    pub loss: Loss,
    pub alpha: Alpha,
    pub class_weights: ClassWeights,
    spelling: Spelling,
}

impl Objective {
    /// The options of [`Objective::of`].
    pub const OPTIONS: [&'static Opt; 4] = [&LOSS, &ALPHA, ClassWeights::OPTION, &CV];

    /// The objective that the options ask for, of a method on features.
    pub fn of(o: &mut Options) -> Result<Objective> {
        let loss = o.take_word(&LOSS, &Loss::NAMED)?.unwrap_or_default();
        let (given, folds) = (o.take_number(&ALPHA)?.flatten(), o.take::<usize>(&CV)?);
        let alpha = match (given, folds) {
            (Some(_), Some(_)) => {
                return Err(Error::input(format!(
                    "{} chooses {}; leave one of them out, or give {}",
                    o.option(&CV),
                    o.option(&ALPHA),
                    o.spelling().set(ALPHA.name, "auto")
                )));
            }
            (Some(value), None) => Alpha::Fixed(value),
            (None, Some(folds)) => Alpha::CrossValidation { folds },
            (None, None) => Alpha::LeaveOneOut,
        };
        Ok(Objective { loss, alpha, class_weights: ClassWeights::of(o)?, spelling: o.spelling() })
    }

    /// The objective of a method that minimises squared errors only.
    pub fn squared(o: &mut Options) -> Result<Objective> {
        let objective = Objective::of(o)?;
        fail_if!(
            objective.is_logistic(),
            "{} is for methods on features: nystrom, random-features, spectrum, linear; leave it out",
            objective.logistic_in_words()
        );
        Ok(objective)
    }

    pub fn is_logistic(&self) -> bool {
        self.loss == Loss::Logistic
    }

    /// The logistic loss as the user writes it.
    pub fn logistic_in_words(&self) -> String {
        self.spelling.set(LOSS.name, "logistic")
    }

    /// Refuses numbers as the target of a loss of classes.
    pub fn check(&self, y: &Target) -> Result<()> {
        fail_if!(
            self.is_logistic() && matches!(y, Target::Values(_)),
            "{} is for classes, and the target is numbers; {take_classes}, or leave {} out",
            self.logistic_in_words(),
            self.spelling.option(LOSS.name),
            take_classes = crate::advice!(TakeClasses)
        );
        Ok(())
    }
}

/// How an iterative solver runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct IterationOptions {
    pub tolerance: Option<f64>,
    /// Most products, or epochs.
    pub most: Option<usize>,
    pub checkpoint: Option<Checkpoint>,
}

impl IterationOptions {
    /// The options of [`IterationOptions::of`].
    pub const OPTIONS: [&'static Opt; 6] = {
        let [file, every, resume, overwrite] = Checkpoint::OPTIONS;
        [&TOLERANCE, &ITERATIONS, file, every, resume, overwrite]
    };

    pub fn of(o: &mut Options) -> Result<IterationOptions> {
        let (tolerance, most) = (o.take(&TOLERANCE)?, o.take(&ITERATIONS)?);
        Ok(IterationOptions { tolerance, most, checkpoint: Checkpoint::of(o)? })
    }

    pub fn is_given(&self) -> bool {
        self.tolerance.is_some() || self.most.is_some() || self.checkpoint.is_some()
    }
}

/// The kernels that are tried, and what the best is chosen by.
pub(crate) struct KernelOptions {
    pub kernels: Vec<Expression>,
    pub criterion: Criterion,
}

impl KernelOptions {
    /// The options of [`KernelOptions::of`].
    pub const OPTIONS: [&'static Opt; 2] = [&SEARCH, &CRITERION];

    /// The kernels of a search, or the `kernel` that is given, or else the usual one.
    pub fn of(o: &mut Options, kernel: Option<&str>, usual: &str) -> Result<KernelOptions> {
        let search: Option<String> = o.take(&SEARCH)?;
        fail_if!(
            search.is_some() && kernel.is_some(),
            "{} names the kernels to choose among; leave it or {} out",
            o.option(&SEARCH),
            o.spelling().option("kernel")
        );
        let kernels = match search {
            None => vec![Expression::parse(kernel.unwrap_or(usual))?],
            Some(list) => {
                let named = |e: Error| Error::input(format!("{}: {e}", o.option(&SEARCH)));
                let kernels = parts(&list).into_iter().map(|text| Expression::parse(&automatic(&text)).map_err(named));
                kernels.collect::<Result<_>>()?
            }
        };
        Ok(KernelOptions { kernels, criterion: o.take_word(&CRITERION, &CRITERIA)?.unwrap_or_default() })
    }
}

/// The parts of a list between commas that are in no bracket and no quotes.
fn parts(list: &str) -> Vec<String> {
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

/// A kernel that is only named, with the lengthscale to be found where it is a kernel of a distance. Others are taken as they are: dividing
/// the inputs of `linear` only changes α.
fn automatic(text: &str) -> String {
    let entries = catalogue();
    let entry = entries.iter().find(|entry| entry.name == text && entry.median == Median::Distance);
    match entry.filter(|entry| entry.parameters.iter().any(|p| p.kind == ParameterKind::Lengthscale)) {
        Some(entry) => format!("{}(lengthscale=auto)", entry.name),
        None => text.to_owned(),
    }
}
