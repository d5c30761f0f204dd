//! The methods by name, and the options that posteriors take.

use super::baselines::{Map, Temperature};
use super::cost::{Sizes, Work};
use super::diagonal::Diagonal;
use super::eigenfunctions::Eigenfunctions;
use super::ella::Ella;
use super::fit::{Fit, Rows};
use super::fixed_mean::FixedMean;
use super::given_functions::GivenFunctions;
use super::kfac::{Kfac, LastLayerKfac};
use super::last_layer::LastLayer;
use super::{Laplace, Prior, Structure};
use crate::bundle::Bundle;
use crate::classifier::Classifier;
use crate::options::{Caps, Kind, Opt, Options};
use crate::{Error, FitContext, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use std::fmt::Debug;
use std::sync::Arc;

pub(crate) static PRIOR: Opt = Opt::new(
    "prior",
    "PRIOR",
    Kind::Word(|| Prior::NAMED.map(|(word, _)| word).to_vec()),
    "How the precision of the prior, and the noise of a number, are found: by the NLL on the validation rows, or by the marginal likelihood, which may give posteriors far worse than the network alone [default: validation]",
);
pub(crate) static DRAWS: Opt = Opt::new(
    "draws",
    "N",
    Kind::Between(1, 1_000_000),
    "Draws of the outputs for each row whose mean probabilities are taken [default: the probit approximation]",
);
pub(crate) static TEMPERED: Opt =
    Opt::flag("tempered", "Divide the scores of every posterior by a temperature, too, found on the validation rows");
/// An option of the methods that have few functions.
pub(super) static FUNCTIONS: Opt = Opt::new(
    "functions",
    "N",
    Kind::Count(1),
    "Functions of ella and eigenfunctions [default: ella 20, eigenfunctions 64]",
);

/// The options of every posterior.
pub(super) const POSTERIOR: [&Opt; 3] = [&PRIOR, &DRAWS, &TEMPERED];

/// What kind of network a posterior is of. Example: [`learn::posteriors`](crate::learn::posteriors).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkKind {
    /// Whether it predicts a number; otherwise classes.
    pub number: bool,
    /// Whether it is known by its outputs and functions alone, without its parameters.
    pub functions: bool,
}

impl NetworkKind {
    /// That of a network with its parameters.
    pub fn of(network: &Classifier) -> NetworkKind {
        NetworkKind { number: network.number.is_some(), functions: false }
    }
}

/// Which of the functions of a network of another program a posterior is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// None: the network alone.
    Empty,
    /// All of them.
    Whole,
    /// That of so many leading eigenfunctions.
    Leading(usize),
}

/// How H is approximated, or a baseline: one file. `last_layer.rs` is a short one.
pub trait Recipe: Debug {
    /// Its name in the program, in Python and in files.
    fn name(&self) -> &'static str;

    /// What it does, in a few words.
    fn about(&self) -> &'static str;

    /// What it is for.
    fn can(&self) -> Caps {
        Caps { networks: true, numbers: true, classes: true, ..Caps::default() }
    }

    /// The options that it takes.
    fn options(&self) -> Vec<&'static Opt> {
        POSTERIOR.to_vec()
    }

    /// It as the options want it, where they change it.
    fn with_options(&self, _: &mut Options) -> Result<Option<Method>> {
        Ok(None)
    }

    /// Refuses a kind of network.
    fn check(&self, _: NetworkKind) -> Result<()> {
        Ok(())
    }

    /// Whether it has a covariance of the outputs.
    fn has_posterior(&self) -> bool {
        true
    }

    /// Whether something is found on validation rows.
    fn looks_at_validation(&self, laplace: &Laplace, number: bool) -> bool {
        laplace.prior == Prior::Validation || laplace.tempered && !number
    }

    /// Whether its scores are divided by a temperature that is found on validation rows.
    fn tempers(&self, laplace: &Laplace, number: bool) -> bool {
        laplace.tempered && !number
    }

    /// What else to use where there is too little memory.
    fn instead(&self) -> &'static str {
        "use last-layer-kfac, or fewer rows"
    }

    /// What a fit takes beside the outputs and the features of the last layer.
    fn work(&self, sizes: &Sizes) -> Result<Work>;

    /// Its structure at rows, all but what is found on validation rows.
    fn fit(&self, rows: &Rows, context: &FitContext) -> Result<Fit>;

    /// The structure that a file holds.
    fn unpack(&self, bundle: &Bundle, network: &Classifier) -> Result<Option<Arc<dyn Structure>>>;

    /// The functions of a network of another program that it is over, where it can be fitted to such a network.
    fn span(&self) -> Option<Span> {
        None
    }
}

/// Declares the methods. One is one file, with its [`Recipe`], and its name in the list.
macro_rules! methods {
    ($($(#[$condition:meta])? $method:ident),*) => {
        /// How the Gauss–Newton matrix H is approximated, or a baseline without it. Example: [the module](super).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the variants have the names of the methods")]
        pub enum Method {
            $($(#[$condition])? $method($method)),*
        }

        impl Method {
            /// All methods, with their usual settings, the baselines first.
            pub(crate) fn all() -> Vec<Method> {
                vec![$($(#[$condition])? $method::default().into()),*]
            }

            pub(crate) fn recipe(&self) -> &dyn Recipe {
                match self {
                    $($(#[$condition])? Method::$method(recipe) => recipe),*
                }
            }

            /// Its numbers, as files hold them; null where it has none.
            fn numbers(&self) -> Value {
                match self {
                    $($(#[$condition])? Method::$method(recipe) => json!(recipe)),*
                }
            }

            /// The method of that name with these numbers.
            fn with_numbers(name: &str, numbers: Value) -> Result<Method> {
                $($(#[$condition])? if $method::default().name() == name {
                    let read = serde_json::from_value::<$method>(numbers);
                    return read.map(Method::from).map_err(|e| Error::input(format!("the method {name}: {e}")));
                })*
                Err(Error::unknown("method", name, Method::all().iter().map(|method| method.name())))
            }
        }

        $($(#[$condition])? impl From<$method> for Method {
            fn from(recipe: $method) -> Method {
                Method::$method(recipe)
            }
        })*
    };
}
methods!(
    Map,
    Temperature,
    LastLayer,
    LastLayerKfac,
    Kfac,
    Diagonal,
    Ella,
    Eigenfunctions,
    FixedMean,
    GivenFunctions,
    #[cfg(test)]
    Bias
);
#[cfg(test)]
use super::bias::Bias;

impl Method {
    /// Its name, such as `last-layer`.
    pub fn name(&self) -> &'static str {
        self.recipe().name()
    }

    /// Whether it has a covariance of the outputs.
    pub fn has_posterior(&self) -> bool {
        self.recipe().has_posterior()
    }

    /// All methods for that kind of network, with their usual settings, the baselines first.
    pub fn all_for(kind: NetworkKind) -> Vec<Method> {
        Method::all().into_iter().filter(|method| method.is_for(kind)).collect()
    }

    /// Whether it is for that kind of network.
    fn is_for(&self, kind: NetworkKind) -> bool {
        let can = self.recipe().can();
        let known = if kind.functions { can.functions } else { can.networks };
        known && self.recipe().check(kind).is_ok()
    }
}

/// A name, or a name with its numbers.
impl Serialize for Method {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.numbers() {
            Value::Null => serializer.serialize_str(self.name()),
            numbers => serializer.collect_map([(self.name(), numbers)]),
        }
    }
}

impl<'de> Deserialize<'de> for Method {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Method, D::Error> {
        let (name, numbers) = match Value::deserialize(deserializer)? {
            Value::String(name) => (name, Value::Null),
            Value::Object(named) => named.into_iter().next().unwrap_or_default(),
            _ => (String::new(), Value::Null),
        };
        Method::with_numbers(&name, numbers).map_err(serde::de::Error::custom)
    }
}
