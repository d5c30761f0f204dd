//! Nested low-rank approximation (NeuralSVD): the best rank-1, rank-2, … approximations of K, all at once.

use super::entries::NO_FINISH;
use super::objective::{Objective, Own, Step};
use super::{Functions, Kind, Layout, Recipe};
use crate::Result;
use crate::compute::{Small, Store, Tensor, small};
use crate::options::{self, Opt, Options};
use ndarray::Array2;

/// How the k nested problems are joined. Example: [`Neural`](super::Neural) takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nesting {
    /// Function l follows the gradient of the rank-l problem alone: for networks that share nothing.
    Sequential,
    /// All follow the gradient of the mean of the k problems: for a shared trunk.
    Joint,
    /// All follow the gradient of the rank-k problem: the span, in no order. This is the spectral contrastive loss.
    Flat,
}

impl Nesting {
    /// The ways that can be asked for, by name.
    const NAMED: [(&'static str, Nesting); 2] = [("sequential", Nesting::Sequential), ("joint", Nesting::Joint)];
}

static NESTING: Opt = Opt::new(
    "nesting",
    "NESTING",
    options::Kind::Word(|| Nesting::NAMED.map(|(word, _)| word).to_vec()),
    "how the problems of rank 1 to k are nested [default: joint with a shared trunk, else sequential]",
);

/// Minimises `‖K − Σ_l f_l f_lᵀ‖²`, up to a constant `−2 Σ_l ⟨f_l,Kf_l⟩ + Σ_lm Λ_lm²` with `Λ = ⟨f,fᵀ⟩`, for every rank
/// at once: `−2 Σ_l m_l ⟨f_l,Kf_l⟩ + Σ_lm M_lm Λ_lm Λ'_lm`.
///
/// Λ and Λ' come from two independent halves of the batch, so that their product has no bias. Functions are not
/// normalised; at the minimum `⟨f_l,f_l⟩ = μ_l`. Joint nesting weighs the ranks alike: `m_l = (k−l)/k` counted from
/// zero and `M_lm = m_max(l,m)`.
///
/// Function l sees K less `f_o f_oᵀ` of the functions before it, so an error ε of `f_1`, in its norm or its direction, leaves some
/// `ε μ_1` of K. Where the first eigenvalue dominates, that is more than `μ_l` until the first functions are known to a percent, and
/// the later ones converge last. NeuralEF and SpIN take away the whole span of the earlier functions in whatever state these are,
/// and are more accurate there. Nested low-rank is useful where eigenvalues are of similar size, and for functions that carry
/// their eigenvalue as their norm.
/// Example: [`Neural`](super::Neural) takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Nested {
    /// Sequential or joint; without it joint where functions share a trunk or a network and sequential where they do not.
    pub nesting: Option<Nesting>,
}

struct Run {
    nesting: Nesting,
    /// `m` as a diagonal matrix, and `M` `[k, k]`; for sequential nesting the part of `M` that function l (row) sees.
    weights: [Small; 2],
    /// Λ and Λ' `[k, k]`.
    halves: [Small; 2],
    /// `M ∘ Λ` and `M ∘ Λ'` `[k, k]`.
    masked: [Small; 2],
    loss: Small,
    /// `[1, k]`
    eigenvalues: Small,
    g: Tensor,
}

impl Recipe for Nested {
    fn name(&self) -> &'static str {
        "nested"
    }

    fn about(&self) -> &'static str {
        "trained networks, the best approximations of every rank up to k at once"
    }

    fn options(&self) -> Vec<&'static Opt> {
        vec![&NO_FINISH, &NESTING]
    }

    fn with_options(&self, o: &mut Options) -> Result<Option<Kind>> {
        Ok(Some(Nested { nesting: o.take_word(&NESTING, &Nesting::NAMED)? }.into()))
    }

    fn normalises(&self) -> bool {
        false
    }

    fn objective(&self, functions: &Functions, _: usize) -> Result<Box<dyn Objective>> {
        let (device, k) = (functions.device(), functions.count());
        let shared = functions.network().shares_trunk() || functions.layout() == Layout::Units;
        let usual = if shared { Nesting::Joint } else { Nesting::Sequential };
        let nesting = self.nesting.unwrap_or(usual);
        let m = |l: usize| (k - l) as f64 / k as f64;
        let (diagonal, mask) = match nesting {
            Nesting::Sequential => {
                (Array2::eye(k), Array2::from_shape_fn((k, k), |(l, o)| f64::from(u8::from(o <= l))))
            }
            Nesting::Joint => (
                Array2::from_shape_fn((k, k), |(l, o)| if l == o { m(l) } else { 0.0 }),
                Array2::from_shape_fn((k, k), |(l, o)| m(l.max(o))),
            ),
            Nesting::Flat => (Array2::eye(k), Array2::ones((k, k))),
        };
        let square = || Small::zeros(device, [k, k]);
        Ok(Box::new(Run {
            nesting,
            weights: [Small::from_host(device, &diagonal)?, Small::from_host(device, &mask)?],
            halves: [square()?, square()?],
            masked: [square()?, square()?],
            loss: Small::zeros(device, [1, 1])?,
            eigenvalues: Small::zeros(device, [1, k])?,
            g: Tensor::zeros(device, &[0])?,
        }))
    }
}

impl Objective for Run {
    fn describe(&self) -> String {
        match self.nesting {
            Nesting::Flat => "spectral-contrastive".into(),
            nesting => format!("nested ({nesting:?})"),
        }
    }

    fn own(&self) -> Own {
        if self.nesting == Nesting::Flat { Own::Span } else { Own::Networks }
    }

    fn step(&mut self, step: &mut Step<'_, '_>) -> Result<()> {
        let Run { weights: [m, mask], halves: [one, two], masked: [m_one, m_two], loss, eigenvalues, g, .. } = self;
        let (psi, all, outputs) = (step.psi, step.all(), step.psi.shape()[2]);
        let middle = step.psi.shape()[1] / 2 * outputs;
        let (near, far) = (0..middle, middle..all.end);
        small::mix(m.times(-4.0 / all.len() as f64), step.kpsi, all.clone(), Store::Replace, g)?;
        if near.is_empty() {
            // One point has no halves: ∂/∂f_l Σ M Λ² = (4/m) Σ_o (M ∘ C)_lo f_o.
            small::multiply(mask, step.covariance, m_one);
            small::mix(m_one.times(4.0 / all.len() as f64), psi, all, Store::Add, g)?;
            small::inner(&*m_one, step.covariance, Store::Replace, loss);
        } else {
            small::form(psi, psi, near.clone(), one)?;
            small::form(psi, psi, far.clone(), two)?;
            small::multiply(mask, one, m_one);
            small::multiply(mask, two, m_two);
            small::mix(m_two.times(2.0 / near.len() as f64), psi, near, Store::Add, g)?;
            small::mix(m_one.times(2.0 / far.len() as f64), psi, far, Store::Add, g)?;
            small::inner(&*m_one, &*two, Store::Replace, loss);
        }
        small::inner(m.times(-2.0), step.r, Store::Add, loss);
        step.backward(g)?;
        small::divide(step.unbiased.diagonal(), step.covariance.diagonal(), eigenvalues);
        step.control.record(loss, eigenvalues.row(0));
        Ok(())
    }
}
