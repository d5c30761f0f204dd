//! The objectives by name.

use super::{Functions, Nested, Nesting, NeuralEf, Objective, Ritz, Spin};
use crate::compute::Device;
use crate::rng::Rng;
use crate::spectrum::by_name;
use crate::{Error, Result};

/// Which objective trains the networks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// [`NeuralEf`]
    NeuralEf {
        /// Moving averages for the Gram–Schmidt coefficients rather than the batch's own.
        averaged: bool,
    },
    /// [`NeuralEf::joint`]
    NeuralEfJoint,
    /// [`Spin`]
    Spin {
        /// Share of the old value that the moving averages keep at each step.
        decay: f64,
    },
    /// [`Nested`]
    Nested {
        /// Sequential or joint; without it joint where networks share a trunk and sequential where they do not.
        nesting: Option<Nesting>,
    },
    /// [`Ritz`]
    Ritz,
}

impl Kind {
    /// The objectives by name, each with its usual constants.
    pub const ALL: [(&'static str, Kind); 4] = [
        ("neuralef", Kind::NeuralEf { averaged: false }),
        ("spin", Kind::Spin { decay: 0.99 }),
        ("nested", Kind::Nested { nesting: None }),
        ("ritz", Kind::Ritz),
    ];

    /// The objective of that name, with its usual constants.
    ///
    /// ```
    /// use mercer::spectrum::neural::Kind;
    /// assert_eq!(Kind::parse("ritz")?, Kind::Ritz);
    /// assert!(Kind::parse("spim").unwrap_err().to_string().contains("did you mean 'spin'"));
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn parse(name: &str) -> Result<Kind> {
        by_name("objective", name, &Kind::ALL)
    }

    /// Its name in the program and in saved models.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NeuralEf { .. } | Kind::NeuralEfJoint => "neuralef",
            Kind::Spin { .. } => "spin",
            Kind::Nested { .. } => "nested",
            Kind::Ritz => "ritz",
        }
    }

    /// The objective for the top `k` pairs by `functions`, which [`Kind::functions`] made.
    pub fn objective(self, functions: &Functions, k: usize) -> Result<Box<dyn Objective>> {
        let shared = functions.network().shares_trunk();
        Ok(match self {
            Kind::NeuralEf { averaged } => Box::new(NeuralEf::new(functions, averaged)?),
            Kind::NeuralEfJoint => Box::new(NeuralEf::joint(functions)?),
            Kind::Spin { .. } if shared => {
                return Err(Error::input(format!(
                    "SpIN needs networks that share nothing, and \"{}\" has a shared trunk; leave out the | or use another objective",
                    functions.network().expression()
                )));
            }
            Kind::Spin { decay } => Box::new(Spin::new(functions, decay)?),
            Kind::Nested { nesting } => {
                let usual = if shared { Nesting::Joint } else { Nesting::Sequential };
                Box::new(Nested::new(functions, nesting.unwrap_or(usual))?)
            }
            Kind::Ritz => Box::new(Ritz::new(functions, k)?),
        })
    }

    /// The functions that this objective trains, by networks of one architecture on points of `d` columns: k
    /// normalised ones, k whose norm carries the eigenvalue (nested), or the last hidden units (Ritz).
    pub fn functions(self, architecture: &str, d: usize, k: usize, device: Device, rng: &Rng) -> Result<Functions> {
        match self {
            Kind::NeuralEf { .. } | Kind::NeuralEfJoint | Kind::Spin { .. } => {
                Functions::networks(architecture, d, k, true, device, rng)
            }
            Kind::Nested { .. } => Functions::networks(architecture, d, k, false, device, rng),
            Kind::Ritz => {
                let functions = Functions::hidden_units(architecture, d, device, rng)?;
                if functions.count() < k {
                    return Err(Error::input(format!(
                        "{} hidden units cannot give k = {k} functions; widen the last hidden layer of \"{architecture}\"",
                        functions.count()
                    )));
                }
                Ok(functions)
            }
        }
    }
}
