//! What can be made of snapshots, by name, and its options.

use super::{Method, Predictive, Settings};
use crate::options::{Kind, Opt, Options};
use crate::{Result, fail_if};

static K: Opt = Opt::new(
    "k",
    "K",
    Kind::Count(1),
    "Eigenfunctions of the trajectory's kernel [default: 10, or as many as the snapshots span]",
);
static DRAWS: Opt = Opt::new(
    "draws",
    "N",
    Kind::Between(1, 1_000_000),
    "Draws of functions whose mean probabilities are taken [default: 100]",
);
static PROBIT: Opt = Opt::flag("probit", "Take the probit approximation of these means instead");

/// Something that is made of snapshots.
pub(crate) struct Made {
    pub name: &'static str,
    /// Its name where scores are divided by a temperature.
    pub tempered: &'static str,
    pub about: &'static str,
    /// By k eigenfunctions.
    pub method: fn(usize) -> Method,
    /// Whether it is made of networks of several runs.
    pub of_ensemble: bool,
}

impl Made {
    /// All of them, the baseline first.
    pub const ALL: [Made; 7] = [
        Made::of("map", "temperature", "the last snapshot", |_| Method::Last),
        Made::of("swa", "swa-tempered", "the network at the mean of the weights", |_| Method::Swa),
        Made::of("swag", "swag-tempered", "networks at draws from the weights' normal distribution", |_| Method::SWAG),
        Made::of("snapshots", "snapshots-tempered", "the mean of all snapshots' probabilities", |_| Method::Networks),
        Made {
            of_ensemble: true,
            ..Made::of(
                "ensemble",
                "ensemble-tempered",
                "the mean of the probabilities of networks of several runs",
                |_| Method::Networks,
            )
        },
        Made::of(
            "eigenfunctions",
            "eigenfunctions-tempered",
            "eigenfunctions of the trajectory's kernel, by all snapshots",
            |functions| Method::Eigenfunctions { functions },
        ),
        Made::of("ritz", "ritz-tempered", "the same in the span of the averaged network's hidden units", |functions| {
            Method::Ritz { functions }
        }),
    ];

    const fn of(name: &'static str, tempered: &'static str, about: &'static str, method: fn(usize) -> Method) -> Made {
        Made { name, tempered, about, method, of_ensemble: false }
    }

    /// Its options.
    pub fn options(&self) -> &'static [&'static Opt] {
        const OF_FUNCTIONS: [&Opt; 3] = [&K, &DRAWS, &PROBIT];
        if (self.method)(1).functions().is_some() { &OF_FUNCTIONS } else { &[] }
    }

    /// Its settings for so many snapshots.
    pub fn settings(&self, o: &mut Options, snapshots: usize) -> Result<Settings> {
        let functions = o.take(&K)?.unwrap_or(10.min(snapshots.saturating_sub(1)));
        let usual = Settings::new((self.method)(functions));
        let (draws, probit) = (o.take(&DRAWS)?, o.flag(&PROBIT)?);
        fail_if!(draws.is_some() && probit, "{} and {} cannot be given together", o.option(&PROBIT), o.option(&DRAWS));
        let predictive = match draws {
            _ if probit => Predictive::Probit,
            Some(count) => Predictive::Sampling { count },
            None => usual.predictive,
        };
        Ok(Settings { predictive, ..usual })
    }
}
