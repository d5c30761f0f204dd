//! Kernels from outside the crate, by name.

use super::{Base, Entry, Formula, Kernel, Value, catalogue};
use crate::{Registry, Result, fail_if};

/// A kernel from outside: its entry, and what makes it of checked values ([`Formula::from_arguments`]).
struct Registered {
    entry: Entry,
    make: fn(&[Option<Value>], Option<usize>) -> Result<Kernel>,
}

impl Registry {
    /// With the kernel `F`, under its name, which must be a word that no other kernel has. It needs
    /// [`Formula::from_arguments`] and [`Formula::arguments`], its inverse.
    pub fn kernel<F: Formula + 'static>(self) -> Result<Registry> {
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
        let make = |values: &[Option<Value>], inputs| F::from_arguments(values, inputs).map(Kernel::from_formula);
        Ok(self.with(name, Registered { entry, make }))
    }

    /// Reads a kernel expression with the registered kernels in it.
    pub fn parse(&self, text: &str) -> Result<Kernel> {
        Kernel::parse_with(text, self)
    }

    /// Every kernel that has a name: those of the crate, then the registered ones.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let registered = self.all::<Registered>().map(|(_, registered)| registered.entry);
        catalogue().into_iter().chain(registered).collect()
    }

    /// The base kernel of that name from checked values.
    pub(super) fn base(&self, name: &str, values: &[Option<Value>], inputs: Option<usize>) -> Result<Base> {
        match self.all::<Registered>().find(|(known, _)| *known == name) {
            None => Base::from_arguments(name, values, inputs),
            Some((_, registered)) => match (registered.make)(values, inputs)? {
                Kernel::Base(base) => Ok(base),
                _ => unreachable!("a formula is a base kernel"),
            },
        }
    }
}
