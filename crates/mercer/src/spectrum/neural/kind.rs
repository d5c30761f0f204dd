//! The objectives by name.

use super::{
    BarlowTwins, Eigenmap, Functions, Nested, NeuralEf, Objective, Omm, Ritz, SimClr, SpectralContrastive, Spin, VicReg,
};
use crate::Result;
use crate::compute::Device;
use crate::options::{Opt, Options};
use crate::rng::Rng;
use std::ops::Deref;

/// An objective with its constants, before there are functions to train. `omm.rs` is a short one.
pub trait Recipe {
    /// Its name in the program and in saved models.
    fn name(&self) -> &'static str;

    /// What it does, in a few words.
    fn about(&self) -> &'static str;

    /// The options that it takes beside those of training.
    fn options(&self) -> Vec<&'static Opt> {
        vec![]
    }

    /// It as the options want it, where they change it.
    fn with_options(&self, _: &mut Options) -> Result<Option<Kind>> {
        Ok(None)
    }

    /// The objective for the top `k` pairs by `functions`, which [`Recipe::functions`] made.
    fn objective(&self, functions: &Functions, k: usize) -> Result<Box<dyn Objective>>;

    /// The functions that it trains, by networks of one architecture on points of `d` columns: one network for each of k.
    fn functions(&self, architecture: &str, d: usize, k: usize, device: Device, rng: &Rng) -> Result<Functions> {
        Functions::networks(architecture, d, k, self.normalises(), device, rng)
    }

    /// Whether the functions are normalised; otherwise their norm is trained, too.
    fn normalises(&self) -> bool {
        true
    }

    /// Whether, on pairs of views, the mean over the batch is subtracted from the functions. The constant function has the eigenvalue
    /// zero there, and its image is zero: a function that came to it would stay.
    fn centres(&self) -> bool {
        true
    }

    /// Whether its functions are the hidden units of one network, whose last layer is solved and not trained.
    fn solves_last_layer(&self) -> bool {
        false
    }

    /// Numbers for each parameter that it remembers between steps.
    fn memory(&self, _k: usize) -> usize {
        0
    }
}

/// Declares a choice of objectives. An objective is one file, with its [`Recipe`], and its name below.
macro_rules! kinds {
    ($(#[$about:meta])* $Kind:ident: $($objective:ident),*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[allow(missing_docs, reason = "the variants have the names of the objectives")]
        pub enum $Kind {
            $($objective($objective)),*
        }

        impl $Kind {
            /// Every objective with its usual constants.
            pub fn all() -> Vec<$Kind> {
                vec![$($objective::default().into()),*]
            }
        }

        impl Deref for $Kind {
            type Target = dyn Recipe;

            fn deref(&self) -> &Self::Target {
                match self {
                    $($Kind::$objective(recipe) => recipe),*
                }
            }
        }

        $(impl From<$objective> for $Kind {
            fn from(recipe: $objective) -> $Kind {
                $Kind::$objective(recipe)
            }
        })*
    };
}
kinds!(
    /// Which objective trains the networks. Example: [the module](super).
    Kind: NeuralEf, Spin, Nested, Omm, Ritz
);
kinds!(
    /// Which objective trains one network on pairs of views. Example: [`ViewPairs`](super::ViewPairs).
    PairObjective: Eigenmap, NeuralEf, Nested, SpectralContrastive, BarlowTwins, VicReg, SimClr
);

impl PairObjective {
    /// Every objective by the name that programs give it, the unordered eigenmap among them.
    ///
    /// ```
    /// use mercer::spectrum::neural::PairObjective;
    /// assert!(PairObjective::named().iter().any(|(name, _)| *name == "eigenmap-unordered"));
    /// ```
    pub fn named() -> Vec<(&'static str, PairObjective)> {
        let mut named: Vec<_> =
            PairObjective::all().into_iter().map(|objective| (objective.name(), objective)).collect();
        named.insert(1, ("eigenmap-unordered", Eigenmap { ordered: false, ..Eigenmap::default() }.into()));
        named
    }
}
