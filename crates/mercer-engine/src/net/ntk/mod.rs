//! The empirical neural tangent kernel `Θ(x,x') = ∂_θ g(x) ∂_θ g(x')ᵀ` of a finite network.
//!
//! | form | what it takes |
//! |---|---|
//! | [`EmpiricalNtk::exact`], [`EmpiricalNtk::mean`] | one pass forward, one back with all outputs together, and a product a layer; never an N×P Jacobian |
//! | [`EmpiricalNtk::apply`] | `Θv = J(Jᵀv)`: one vjp and one jvp |
//! | [`EmpiricalNtk::directions`] | `Θ ≈ (1/S) Σ_s (Jv_s)(Jv_s)ᵀ`, `E[vvᵀ] = I`: one jvp, or one more forward pass, a direction |
//!
//! [`sample_networks`] is the kernel of the prior by the same means: values of freshly drawn networks.
//!
//! `Layer::jacobian` takes c cotangents at once and returns a `Jacobian` in factors: for an affine map its input a and its signal δ, whose
//! products are `(δ·δ')(a·a')`; for a convolution the same, written out in products; else the derivatives in full.

mod directions;
mod empirical;
mod jacobian;
mod sampled;

pub use directions::{Derivative, Directions, Law};
pub use empirical::EmpiricalNtk;
pub use jacobian::Parameterisation;
#[doc(hidden)]
pub use jacobian::{Convolved, Jacobian};
pub(super) use jacobian::{Evaluated, written_out};
pub use sampled::sample_networks;

#[cfg(test)]
mod tests;
