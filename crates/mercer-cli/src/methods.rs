//! The registry of methods: a method that has its line here is offered by `fit` and runs in `demo`.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use mercer::operator::Precision;
use mercer::spectrum::{Exact, Krylov, Method};
use mercer::{Error, Result};

/// A way of finding eigenpairs, as the program offers it.
pub struct Entry {
    pub name: &'static str,
    pub help: &'static str,
    /// The options of [`Options`] that it listens to.
    pub options: &'static [&'static str],
    pub make: fn(&Options) -> Box<dyn Method>,
}

/// Every method there is.
pub const METHODS: &[Entry] = &[
    Entry {
        name: "exact",
        help: "dense eigendecomposition; time grows like n³",
        options: &[],
        make: |_| Box::new(Exact),
    },
    Entry {
        name: "krylov",
        help: "the leading pairs to the tolerance, without storing the kernel matrix",
        options: &["tolerance"],
        make: |o| Box::new(o.tolerance.map_or_else(Krylov::default, |tolerance| Krylov { tolerance })),
    },
];

/// Options of single methods.
#[derive(Args, Default)]
#[command(next_help_heading = "Options of methods")]
pub struct Options {
    /// krylov: residual at which a pair is done [default: 1e-6]
    #[arg(long, value_name = "RESIDUAL", value_parser = positive)]
    pub tolerance: Option<f64>,
}

impl Options {
    /// The options that were given.
    fn given(&self) -> Vec<&'static str> {
        [("tolerance", self.tolerance.is_some())]
            .into_iter()
            .filter(|(_, given)| *given)
            .map(|(name, _)| name)
            .collect()
    }
}

/// The method, unless it has no use for an option that was given.
pub fn make(entry: &Entry, options: &Options) -> Result<Box<dyn Method>> {
    if let Some(useless) = options.given().into_iter().find(|o| !entry.options.contains(o)) {
        let others = METHODS.iter().filter(|m| m.options.contains(&useless)).map(|m| m.name);
        let others: Vec<&str> = others.collect();
        return Err(Error::input(format!(
            "--method {} has no use for --{useless}, which is for {}; leave it out",
            entry.name,
            others.join(" and ")
        )));
    }
    Ok((entry.make)(options))
}

/// Reads the name of a method.
pub fn by_name() -> impl TypedValueParser<Value = &'static Entry> {
    PossibleValuesParser::new(METHODS.iter().map(|m| PossibleValue::new(m.name).help(m.help)))
        .map(|name| METHODS.iter().find(|m| m.name == name).expect("one of the possible values"))
}

/// Reads a precision.
pub fn precision() -> impl TypedValueParser<Value = Precision> {
    PossibleValuesParser::new(["f32", "f64"]).map(|word| if word == "f32" { Precision::F32 } else { Precision::F64 })
}

/// Reads a finite number above zero.
pub fn positive(word: &str) -> Result<f64, String> {
    match word.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("it must be a number above 0".into()),
    }
}
