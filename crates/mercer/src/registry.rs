//! Kernels and feature maps from outside the crate, by name, so that models which hold them can be loaded.

use crate::compute::Device;
use crate::kernel::{Base, Entry, Formula, Kernel, Value, catalogue};
use crate::model::Bundle;
use crate::operator::Features;
use crate::{Error, Result, fail_if};
use std::fmt;
use std::sync::Arc;

/// Kernels and feature maps from outside the crate.
///
/// A model file holds a kernel as its expression and a feature map as the name of its kind. Those of the crate are known by name;
/// others are registered and handed to what loads: [`Spectrum::load_with`](crate::spectrum::Spectrum::load_with),
/// [`Saved::load_with`](crate::apply::Saved::load_with), [`Fitted::load_with`](crate::apply::Fitted::load_with). A method from
/// outside needs no entry: what it found is kept as coefficients of features. Nor does an operator, unless its features are its
/// own. `examples/own_kernel.rs` and `examples/own_features.rs` save and load.
///
/// ```
/// use mercer::kernel::{Formula, Kernel, Pair, Parameter, Statistic, Value};
/// use mercer::{Num, Registry, Result};
/// /// 1/(1 + ‖x−x'‖²)
/// #[derive(Clone, Debug, PartialEq)]
/// struct Cauchy;
/// impl Formula for Cauchy {
///     const NAME: &'static str = "cauchy";
///     const HELP: &'static str = "1/(1 + ‖x−x'‖²)";
///     const PARAMETERS: &'static [Parameter] = &[];
///     const STATISTIC: Statistic = Statistic::SquaredDistance;
///     fn from_arguments(_: &[Option<Value>], _: Option<usize>) -> Result<Self> {
///         Ok(Cauchy)
///     }
///     fn eval<R: Num>(&self, pair: Pair<R>) -> R {
///         R::of(1.0) / (R::of(1.0) + pair.s)
///     }
/// }
/// let registry = Registry::new().kernel::<Cauchy>()?;
/// let kernel = registry.parse("2*cauchy + linear")?;
/// assert_eq!(kernel.value(&[0.0], &[1.0]), 1.0);
/// assert!(Kernel::parse("cauchy").is_err());
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    kernels: Vec<(Entry, MakeKernel)>,
    features: Vec<(&'static str, LoadFeatures)>,
}

/// Makes a kernel from checked values ([`Formula::from_arguments`]).
type MakeKernel = fn(&[Option<Value>], Option<usize>) -> Result<Kernel>;

/// Reads features back.
type LoadFeatures = Arc<dyn Fn(&Bundle, Device) -> Result<Box<dyn Features>> + Send + Sync>;

impl Registry {
    /// With nothing in it.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// With the kernel `F`, under its name, which must be a word that no other kernel has. It needs
    /// [`Formula::from_arguments`] and [`Formula::arguments`], its inverse.
    pub fn kernel<F: Formula + 'static>(mut self) -> Result<Registry> {
        let name = F::NAME;
        let word = name.starts_with(char::is_alphabetic) && name.chars().all(|c| c.is_alphanumeric() || c == '_');
        fail_if!(!word, "the kernel `{name}` cannot be registered: its name must be letters, digits and _");
        fail_if!(self.entries().iter().any(|entry| entry.name == name), "there is a kernel called `{name}` already");
        let entry = Entry {
            name,
            help: F::HELP,
            parameters: F::PARAMETERS,
            shift_invariant: false,
            statistic: F::STATISTIC,
            median: F::MEDIAN,
        };
        self.kernels.push((entry, |values, inputs| F::from_arguments(values, inputs).map(Kernel::from_formula)));
        Ok(self)
    }

    /// With features of the kind `name`, which [`Features::save`] returns; `load` is the counterpart of that method.
    pub fn features(
        mut self,
        name: &'static str,
        load: impl Fn(&Bundle, Device) -> Result<Box<dyn Features>> + Send + Sync + 'static,
    ) -> Result<Registry> {
        let taken = crate::spectrum::FEATURES.iter().chain(self.features.iter().map(|(known, _)| known));
        fail_if!(taken.into_iter().any(|known| *known == name), "there are features called `{name}` already");
        self.features.push((name, Arc::new(load)));
        Ok(self)
    }

    /// Reads a kernel expression with the registered kernels in it.
    pub fn parse(&self, text: &str) -> Result<Kernel> {
        Kernel::parse_with(text, self)
    }

    /// Every kernel that has a name: those of the crate, then the registered ones.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        catalogue().into_iter().chain(self.kernels.iter().map(|(entry, _)| *entry)).collect()
    }

    /// The base kernel of that name from checked values.
    pub(crate) fn base(&self, name: &str, values: &[Option<Value>], inputs: Option<usize>) -> Result<Base> {
        match self.kernels.iter().find(|(entry, _)| entry.name == name) {
            None => Base::from_arguments(name, values, inputs),
            Some((_, make)) => match make(values, inputs)? {
                Kernel::Base(base) => Ok(base),
                _ => unreachable!("a formula is a base kernel"),
            },
        }
    }

    /// The registered features of that kind, read from a model.
    pub(crate) fn load_features(&self, kind: &str, bundle: &Bundle, device: Device) -> Result<Box<dyn Features>> {
        match self.features.iter().find(|(name, _)| *name == kind) {
            Some((_, load)) => load(bundle, device),
            None => Err(Error::input(format!(
                "the model holds features of kind `{kind}`, which are none of this crate's; register them by \
                 `Registry::features(\"{kind}\", …)`, and load the model with that registry (`load_with`)"
            ))),
        }
    }
}

/// The names in it.
impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernels: Vec<&str> = self.kernels.iter().map(|(entry, _)| entry.name).collect();
        let features: Vec<&str> = self.features.iter().map(|(name, _)| *name).collect();
        f.debug_struct("Registry").field("kernels", &kernels).field("features", &features).finish()
    }
}
