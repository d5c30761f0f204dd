//! From ψ and Kψ to the gradient with respect to ψ, on the device.

use crate::Result;
use crate::compute::cuda::resident::Coefficients;
use crate::compute::cuda::resident_small::{self as small, Jacobian, Masks};
use crate::compute::cuda::{Buffer, Gpu, resident};
use crate::compute::{Device, Tensor};
use crate::spectrum::neural::neuralef::TINY;
use crate::spectrum::neural::ritz::FLOOR;
use crate::spectrum::neural::{Functions, Nesting, OnDevice};
use ndarray::Array2;

/// An objective that a device can follow by itself, and its `[k, k]` matrices.
pub(super) enum Formed {
    NeuralEf {
        coefficients: Coefficients,
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
    Spin(Box<Spin>),
    Ritz {
        /// Pairs that are wanted, of as many functions as the matrices `[p, p]` have rows.
        k: usize,
        covariance: Tensor,
        /// Factors of Kφ and of φ.
        m: [Tensor; 2],
        work: Buffer,
    },
}

/// SpIN on the device.
pub(super) struct Spin {
    /// Share of the old values that the moving averages keep.
    decay: f64,
    covariance: Tensor,
    /// `κ(x,x)ψ` `[k, B, c]` and `⟨κ(x,x)ψ_i,ψ_j⟩` `[k, k]`, where κ(x,x) varies.
    own: [Tensor; 2],
    masks: Masks,
    work: Buffer,
    /// `J̄_b` `[P]` for each b; the objective's own, for the length of a chunk.
    jacobian: Vec<Tensor>,
    addresses: Jacobian,
    /// A cotangent `[k, B, c]` and what comes of it, `[P]`.
    cotangent: Tensor,
    fresh: Tensor,
}

impl Spin {
    fn new(gpu: &'static Gpu, decay: f64, k: usize, parameters: usize) -> Result<Spin> {
        let zeros = |shape: &[usize]| Tensor::zeros(Device::Cuda(gpu.ordinal), shape);
        Ok(Spin {
            decay,
            covariance: zeros(&[k, k])?,
            own: [zeros(&[0])?, zeros(&[k, k])?],
            masks: Masks { image: zeros(&[k, k])?, mask: zeros(&[k, k])?, share: zeros(&[2])? },
            work: small::spin_room(gpu, k)?,
            jacobian: vec![],
            addresses: Jacobian::new(gpu, k)?,
            cotangent: zeros(&[0])?,
            fresh: zeros(&[parameters])?,
        })
    }

    /// Σ, its moving average and what follows from it.
    fn factor(
        &mut self,
        gpu: &'static Gpu,
        chunk: &mut resident::Chunk,
        estimate: resident::Estimate<'_>,
        psi: &Tensor,
        r: &Tensor,
    ) -> Result<()> {
        let all = 0..values(psi);
        resident::form(gpu, psi, psi, all.clone(), &mut self.covariance);
        let [weighted, own] = &mut self.own;
        let varies = !estimate.constant && estimate.drawn > 1;
        if varies {
            weighted.reshape(psi.shape())?;
            small::weigh(gpu, estimate.gram, psi, weighted);
            resident::form(gpu, weighted, psi, all.clone(), own);
        }
        let own = varies.then_some(&*own);
        chunk.spin(estimate, all.len(), self.decay, own, [&self.covariance, r], &mut self.work, &mut self.masks);
        Ok(())
    }

    /// `J̄_b ← β J̄_b + (1 − β) ⟨∂ψ_i,ψ_b⟩` for each b, and `gradient ← gradient + 2 Σ_b G_bi J̄_b`.
    fn add_jacobian(
        &mut self,
        gpu: &'static Gpu,
        functions: &mut Functions,
        x: &Tensor,
        psi: &Tensor,
        gradient: &mut Tensor,
    ) -> Result<()> {
        let mean = (1.0 / values(psi) as f64) as f32;
        for (b, jacobian) in self.jacobian.iter_mut().enumerate() {
            self.cotangent.reshape(psi.shape())?;
            small::spread(gpu, mean, psi, b, &mut self.cotangent);
            functions.vjp_in_place(x, psi, &mut self.cotangent, &mut self.fresh)?;
            small::blend(gpu, &self.masks.share, &self.fresh, jacobian);
        }
        self.addresses.add_masked(gpu, &self.masks.mask, gradient);
        Ok(())
    }
}

/// Values `B·c` of each function; `psi` `[k, B, c]`.
fn values(psi: &Tensor) -> usize {
    psi.shape()[1] * psi.shape()[2]
}

impl Formed {
    /// For `k` functions of `points` values each, with this many parameters in all.
    pub fn new(gpu: &'static Gpu, form: &OnDevice<'_>, k: usize, points: usize, parameters: usize) -> Result<Formed> {
        let device = Device::Cuda(gpu.ordinal);
        let square = || Tensor::zeros(device, &[k, k]);
        Ok(match form {
            OnDevice::NeuralEf { averaged } => Formed::NeuralEf {
                coefficients: averaged
                    .as_ref()
                    .map_or(Coefficients::Batch, |(decay, _)| Coefficients::Averaged(*decay)),
                covariance: square()?,
                m: square()?,
            },
            OnDevice::NeuralEfJoint => {
                Formed::NeuralEf { coefficients: Coefficients::Joint, covariance: square()?, m: square()? }
            }
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
            OnDevice::Spin(spin) => Formed::Spin(Box::new(Spin::new(gpu, spin.decay(), k, parameters)?)),
            OnDevice::Ritz { k: wanted } => Formed::Ritz {
                k: *wanted,
                covariance: square()?,
                m: [square()?, square()?],
                work: small::ritz_room(gpu, k)?,
            },
        })
    }

    /// Eigenvalues of a step with `functions` functions.
    pub fn eigenvalues(&self, functions: usize) -> usize {
        match self {
            Formed::Ritz { k, .. } => *k,
            _ => functions,
        }
    }

    /// Borrows for a chunk of steps what the objective remembers; the average `[k, k]` that has begun.
    pub fn borrow(&mut self, form: Option<OnDevice<'_>>) -> Result<Option<Vec<f64>>> {
        let numbers = |average: &Array2<f64>| average.iter().copied().collect();
        Ok(match (self, form) {
            (_, Some(OnDevice::NeuralEf { averaged: Some((_, average)) })) => average.as_ref().map(numbers),
            (Formed::Spin(here), Some(OnDevice::Spin(spin))) => {
                let (device, k) = (here.fresh.device(), here.covariance.shape()[0]);
                let (sigma, jacobian) = spin.lend(device, k, here.fresh.len())?;
                here.addresses.point_to(&jacobian);
                here.jacobian = jacobian;
                sigma.map(numbers)
            }
            _ => None,
        })
    }

    /// Gives it back, with the average of `k` functions as it is now.
    pub fn give_back(&mut self, form: Option<OnDevice<'_>>, average: Option<Vec<f64>>, k: usize) {
        let average = average.map(|values| Array2::from_shape_vec((k, k), values).expect("k² values"));
        match (self, form) {
            (_, Some(OnDevice::NeuralEf { averaged: Some((_, value)) })) if average.is_some() => *value = average,
            (Formed::Spin(here), Some(OnDevice::Spin(spin))) => {
                spin.take_back(average, std::mem::take(&mut here.jacobian));
            }
            _ => {}
        }
    }

    /// Where what was borrowed lies.
    pub fn places(&self) -> Vec<u64> {
        match self {
            Formed::Spin(spin) => spin.jacobian.iter().map(Tensor::address).collect(),
            _ => vec![],
        }
    }

    /// Ends a gradient `[P]` that [`Formed::gradient`] began and the functions carried back to their parameters.
    pub fn finish(
        &mut self,
        gpu: &'static Gpu,
        functions: &mut Functions,
        x: &Tensor,
        psi: &Tensor,
        gradient: &mut Tensor,
    ) -> Result<()> {
        match self {
            Formed::Spin(spin) => spin.add_jacobian(gpu, functions, x, psi, gradient),
            _ => Ok(()),
        }
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
    ) -> Result<()> {
        let b = chunk.values();
        match self {
            Formed::NeuralEf { coefficients, covariance, m } => {
                resident::form(gpu, psi, psi, 0..b, covariance);
                chunk.neuralef(estimate, psi, covariance, r, *coefficients, TINY, m);
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
            Formed::Spin(spin) => {
                spin.factor(gpu, chunk, estimate, psi, r)?;
                resident::mix(gpu, &spin.masks.image, kpsi, 0..values(psi), false, g);
            }
            Formed::Ritz { covariance, m: [image, own], work, .. } => {
                let all = 0..values(psi);
                resident::form(gpu, psi, psi, all.clone(), covariance);
                chunk.ritz(all.len(), FLOOR, [covariance, r], work, [image, own]);
                resident::mix(gpu, image, kpsi, all.clone(), false, g);
                resident::mix(gpu, own, psi, all, true, g);
            }
        }
        Ok(())
    }
}
