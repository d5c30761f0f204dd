//! Things from outside the crate, by name, so that models which hold them can be loaded.

use std::any::Any;
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
pub struct Registry(Vec<Named>);

/// A thing that a room of the library knows how to use, and its name.
#[derive(Clone)]
struct Named {
    name: &'static str,
    thing: Arc<dyn Any + Send + Sync>,
}

impl Registry {
    /// With nothing in it.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// With one thing more.
    pub(crate) fn with<T: Any + Send + Sync>(mut self, name: &'static str, thing: T) -> Registry {
        self.0.push(Named { name, thing: Arc::new(thing) });
        self
    }

    /// The things of type `T`, with their names.
    pub(crate) fn all<T: Any>(&self) -> impl Iterator<Item = (&'static str, &T)> {
        self.0.iter().filter_map(|named| Some((named.name, named.thing.downcast_ref()?)))
    }
}

/// The names in it.
impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|named| named.name)).finish()
    }
}
