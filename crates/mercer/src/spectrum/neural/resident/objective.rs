//! From ψ and Kψ to the gradient with respect to ψ, on the device.

use crate::Result;
use crate::compute::cuda::{Gpu, resident};
use crate::compute::{Device, Tensor};
use crate::spectrum::neural::neuralef::TINY;
use crate::spectrum::neural::{Nesting, OnDevice};

/// An objective that a device can follow by itself, and its `[k, k]` matrices.
pub(super) enum Formed {
    NeuralEf {
        /// Share of the old value that R's moving average keeps, where there is one.
        decay: Option<f64>,
        covariance: Tensor,
        m: Tensor,
    },
    Nested {
        joint: bool,
        /// Λ and Λ'
        lambda: [Tensor; 2],
        /// Factors of Kψ, which never change, and of ψ in the two halves.
        image: Tensor,
        m: [Tensor; 2],
    },
}

impl Formed {
    /// For `k` functions of `points` values each.
    pub fn new(device: Device, form: &OnDevice<'_>, k: usize, points: usize) -> Result<Formed> {
        let square = || Tensor::zeros(device, &[k, k]);
        Ok(match form {
            OnDevice::NeuralEf { averaged } => Formed::NeuralEf {
                decay: averaged.as_ref().map(|(decay, _)| *decay),
                covariance: square()?,
                m: square()?,
            },
            OnDevice::Nested(nesting) => {
                let joint = *nesting == Nesting::Joint;
                // −(4/m) m_l on the diagonal
                let weight = |l: usize| if joint { (k - l) as f64 / k as f64 } else { 1.0 };
                let mut image = vec![0.0; k * k];
                (0..k).for_each(|l| image[l * k + l] = (weight(l) * (-4.0 / points as f64)) as f32);
                Formed::Nested {
                    joint,
                    lambda: [square()?, square()?],
                    image: Tensor::from_host(device, &[k, k], &image)?,
                    m: [square()?, square()?],
                }
            }
        })
    }

    /// `g ← ∂ℓ/∂ψ` from `psi`, `kpsi` and `r = ⟨ψ,Kψ⟩`; loss and eigenvalues go into the chunk's record.
    /// `psi`, `kpsi`, `g` `[k, B, c]`, `r` `[k, k]`.
    #[allow(clippy::too_many_arguments)]
    pub fn gradient(
        &mut self,
        gpu: &'static Gpu,
        chunk: &mut resident::Chunk,
        estimate: resident::Estimate<'_>,
        psi: &Tensor,
        kpsi: &Tensor,
        r: &Tensor,
        g: &mut Tensor,
    ) {
        let b = chunk.values();
        match self {
            Formed::NeuralEf { decay, covariance, m } => {
                resident::form(gpu, psi, psi, 0..b, covariance);
                chunk.neuralef(estimate, psi, covariance, r, *decay, TINY, m);
                resident::mix(gpu, m, kpsi, 0..b, false, g);
            }
            Formed::Nested { joint, lambda: [one, two], image, m: [first, second] } => {
                let half = chunk.batch / 2 * chunk.outputs;
                let (near, far) = (0..half, half..b);
                resident::form(gpu, psi, psi, near.clone(), one);
                resident::form(gpu, psi, psi, far.clone(), two);
                let halves = [near.len(), far.len()];
                chunk.nested(estimate, psi, halves, [one, two], r, *joint, [first, second]);
                resident::mix(gpu, image, kpsi, 0..b, false, g);
                resident::mix(gpu, first, psi, near, true, g);
                resident::mix(gpu, second, psi, far, true, g);
            }
        }
    }
}
