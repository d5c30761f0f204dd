//! The registry of methods: a method that has its line here is offered by `fit` and runs in `demo`.

use crate::training::{self, TrainingOptions};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use mercer::compute::Math;
use mercer::operator::Precision;
use mercer::spectrum::neural::Kind;
use mercer::spectrum::{Exact, Fourier, Krylov, Landmarks, Method, Nystrom, Positive, Sampling};
use mercer::{Error, Result, fail_if};
use std::sync::LazyLock;

/// A way of finding eigenpairs, as the program offers it.
pub struct Entry {
    pub name: &'static str,
    pub help: &'static str,
    /// The options of [`Options`] that it takes.
    pub options: Vec<&'static str>,
    pub make: Box<Make>,
}

impl Entry {
    /// Whether it trains networks.
    pub fn trains(&self) -> bool {
        self.options.contains(&"steps")
    }
}

/// Makes a method from the options, the number n of points and the number k of pairs.
pub type Make = dyn Fn(&Options, usize, usize) -> Box<dyn Method> + Send + Sync;

/// Every method there is: the exact one first, those that train networks last.
pub fn methods() -> &'static [Entry] {
    static METHODS: LazyLock<Vec<Entry>> =
        LazyLock::new(|| untrained().into_iter().chain(Kind::all().into_iter().map(training::entry)).collect());
    &METHODS
}

fn untrained() -> [Entry; 5] {
    [
        Entry {
            name: "exact",
            help: "dense eigendecomposition; time grows like n³",
            options: vec![],
            make: Box::new(|_, _, _| Box::new(Exact)),
        },
        Entry {
            name: "krylov",
            help: "the leading pairs to the tolerance, without storing the kernel matrix",
            options: vec!["tolerance", "checkpoint", "checkpoint-every", "resume", "overwrite"],
            make: Box::new(|o, _, _| {
                let usual = o.tolerance.map_or_else(Krylov::default, Krylov::to);
                Box::new(Krylov { checkpoint: o.training.keeping.checkpoint(), ..usual })
            }),
        },
        Entry {
            name: "nystrom",
            help: "approximate, from a few landmark points; time grows like n",
            options: vec!["landmarks", "choice"],
            make: Box::new(|o, n, k| {
                let usual = Nystrom::usual(n, k);
                let (landmarks, choice) = (o.landmarks.unwrap_or(usual.landmarks), o.choice.unwrap_or(usual.choice));
                Box::new(Nystrom { landmarks, choice })
            }),
        },
        Entry {
            name: "rff",
            help: "approximate, from random Fourier features; for shift-invariant kernels",
            options: vec!["features", "sampling", "ritz"],
            make: Box::new(|o, _, k| {
                let usual = Fourier::usual(k);
                let (features, sampling) = (o.features.unwrap_or(usual.features), o.sampling.unwrap_or(usual.sampling));
                Box::new(Fourier { features, sampling, ritz: o.ritz })
            }),
        },
        Entry {
            name: "positive",
            help: "approximate, from positive random features; for the kernel expdot",
            options: vec!["features", "sampling"],
            make: Box::new(|o, _, k| {
                let usual = Positive::usual(k);
                let (features, sampling) = (o.features.unwrap_or(usual.features), o.sampling.unwrap_or(usual.sampling));
                Box::new(Positive { features, sampling })
            }),
        },
    ]
}

/// Options of single methods.
#[derive(Args, Default)]
#[command(next_help_heading = "Options of methods")]
pub struct Options {
    // The first field, because parsing takes the options out one by one.
    #[command(flatten)]
    given: Given,

    /// krylov: residual at which a pair is done [default: 1e-6]
    #[arg(long, value_name = "RESIDUAL", value_parser = positive, allow_negative_numbers = true)]
    pub tolerance: Option<f64>,

    /// nystrom: number of landmarks [default: 500, or twice --k where that is more]
    #[arg(long, value_name = "N")]
    pub landmarks: Option<usize>,

    /// nystrom: how the landmarks are chosen among the points [default: kmeans++]
    #[arg(long, value_parser = words::<Landmarks>(&["uniform", "kmeans++", "leverage", "cholesky"]))]
    pub choice: Option<Landmarks>,

    /// rff, positive: number of random features [default: 1000, or twice --k where that is more]
    #[arg(long, value_name = "N")]
    pub features: Option<usize>,

    /// rff, positive: how their frequencies are drawn [default: orthogonal]
    #[arg(long, value_parser = words::<Sampling>(&["plain", "orthogonal", "qmc"]))]
    pub sampling: Option<Sampling>,

    /// rff: solve for the kernel itself within the span of the features (Rayleigh–Ritz)
    #[arg(long)]
    pub ritz: bool,

    #[command(flatten)]
    pub training: TrainingOptions,
}

/// The names of the options on the command line.
#[derive(Default)]
struct Given(Vec<String>);

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Given, clap::Error> {
        let given = |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        Ok(Given(matches.ids().filter(given).map(|id| id.as_str().replace('_', "-")).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Given::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

/// An error if an option was given that is for other methods.
pub fn check(entry: &Entry, options: &Options) -> Result<()> {
    for option in options.given.0.iter().filter(|option| !entry.options.contains(&option.as_str())) {
        let others: Vec<&str> =
            methods().iter().filter(|m| m.options.contains(&option.as_str())).map(|m| m.name).collect();
        fail_if!(
            !others.is_empty(),
            "--method {} does not take --{option}, which is for {}; leave it out",
            entry.name,
            others.join(" and ")
        );
    }
    Ok(())
}

/// Features, and landmarks among them, of a method that finds the k pairs of n points in blocks; none where it needs all points in memory.
pub fn size_in_blocks(entry: &Entry, options: &Options, n: usize, k: usize) -> Option<(usize, usize)> {
    match entry.name {
        "rff" if !options.ritz => Some((options.features.unwrap_or(Fourier::usual(k).features), 0)),
        "nystrom" => {
            let landmarks = options.landmarks.unwrap_or(Nystrom::usual(n, k).landmarks);
            Some((landmarks, landmarks))
        }
        _ => None,
    }
}

/// Another name of a method: that of random features in `mercer regress`.
const ALIAS: (&str, &str) = ("rff", "random-features");

/// Reads the name of a method.
pub fn by_name() -> impl TypedValueParser<Value = &'static Entry> {
    let value = |m: &'static Entry| {
        let value = PossibleValue::new(m.name).help(m.help);
        if m.name == ALIAS.0 { value.alias(ALIAS.1) } else { value }
    };
    PossibleValuesParser::new(methods().iter().map(value)).map(|name| {
        let name = if name == ALIAS.1 { ALIAS.0 } else { &*name };
        methods().iter().find(|m| m.name == name).expect("one of the possible values")
    })
}

/// Reads a precision.
pub fn precision() -> impl TypedValueParser<Value = Precision> {
    choice(&[("tf32", Precision::Tf32), ("f32", Precision::F32), ("f64", Precision::F64)])
}

/// Precision of kernel values, and how a GPU rounds the factors of the networks' products in training.
#[derive(Clone, Copy)]
pub struct Precisions {
    pub kernel: Precision,
    pub networks: Math,
}

/// Reads a precision for kernels and networks.
pub fn precisions() -> impl TypedValueParser<Value = Precisions> {
    choice(&[
        ("bf16", Precisions { kernel: Precision::F64, networks: Math::Bf16 }),
        ("tf32", Precisions { kernel: Precision::Tf32, networks: Math::Tf32 }),
        ("f32", Precisions { kernel: Precision::F32, networks: Math::F32 }),
        ("f64", Precisions { kernel: Precision::F64, networks: Math::F32 }),
    ])
}

/// Reads one of a few words, each with its value.
pub fn choice<T: Copy + Send + Sync + 'static>(
    choices: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(choices.iter().map(|(word, _)| *word))
        .map(|word| choices.iter().find(|(known, _)| *known == word).expect("one of the possible values").1)
}

/// Reads one of `words`, each of which the library knows.
fn words<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err = Error> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse::<T>())
}

/// Reads a finite number above zero.
pub fn positive(word: &str) -> Result<f64, String> {
    number(word, |v| v > 0.0, "it must be a number above 0")
}

/// Reads a finite number from zero.
pub fn non_negative(word: &str) -> Result<f64, String> {
    number(word, |v| v >= 0.0, "it must be a number from 0")
}

/// Reads a finite number that keeps a rule.
pub fn number(word: &str, allowed: fn(f64) -> bool, rule: &str) -> Result<f64, String> {
    word.parse().ok().filter(|v: &f64| v.is_finite() && allowed(*v)).ok_or_else(|| rule.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_goes_by_its_name_and_every_option_has_a_method() {
        for entry in methods() {
            assert_eq!((entry.make)(&Options::default(), 100, 3).name(), entry.name);
        }
        let command = Options::augment_args(Command::new("fit"));
        let options: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        for option in &options {
            assert!(methods().iter().any(|m| m.options.contains(option)), "{option}");
        }
        assert!(methods().iter().flat_map(|m| &m.options).all(|o| options.contains(o)));
    }
}
