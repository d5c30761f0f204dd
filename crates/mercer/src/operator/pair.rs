//! Two sets of points that are multiplied again and again.

use super::cuda::{CudaPair, Kept};
use super::kinds::matrix_free::gpu_for;
use super::{Precision, cross_apply, gram_cross};
use crate::Result;
use crate::compute::Device;
use crate::compute::ledger::ran;
use crate::data::{CowRows, Rows};
use crate::kernel::Kernel;
use crate::linalg::{Panel, Part};

/// The points X `[n, d]` and Z `[m, d]` where the device wants them. On a GPU they are prepared and sent once, whatever number of
/// products follows, and parts of them are gathered there; vectors are panels on the same device. On the CPU each product is
/// [`cross_apply`] on these points.
pub(crate) struct Pair<'a> {
    kernel: &'a Kernel,
    sets: [Rows<'a>; 2],
    precision: Precision,
    device: Device,
    on_gpu: Option<CudaPair>,
}

/// Which of the sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    X,
    Z,
}

impl<'a> Pair<'a> {
    pub fn new(
        kernel: &'a Kernel,
        x: impl Into<Rows<'a>>,
        z: impl Into<Rows<'a>>,
        precision: Precision,
        device: Device,
    ) -> Result<Pair<'a>> {
        let sets = [x.into(), z.into()];
        // A pair of images takes far longer than its transfer.
        let gpu = gpu_for(kernel, device)?.filter(|_| !kernel.sees_images());
        let on_gpu = gpu.map(|gpu| CudaPair::new(gpu, kernel, sets, precision)).transpose()?;
        Ok(Pair { kernel, sets, precision, device, on_gpu })
    }

    /// `κ(A, B) V` `[a, k]` for parts A and B of the sets and `V` `[b, k]`, on the device of `V`.
    pub fn product(&self, a: (Side, Part<'_>), b: (Side, Part<'_>), v: &Panel) -> Result<Panel> {
        let (a, b) = ((a.0 as usize, a.1), (b.0 as usize, b.1));
        match &self.on_gpu {
            Some(gpu) if gpu.device() == v.device() => {
                ran("products of two sets of points", gpu.device(), 1);
                gpu.product(&a, &b, v)
            }
            _ => v.through_host(|v| {
                let (a, b) = (self.part(&a), self.part(&b));
                cross_apply(self.kernel, a.rows(), b.rows(), v, self.precision, self.device)
            }),
        }
    }

    /// κ(A, B) for products with it and with its transpose. On a GPU, what both need is computed once where it is worth its memory.
    pub fn both_ways<'p>(&'p self, a: (Side, Part<'p>), b: (Side, Part<'p>)) -> Result<BothWays<'p>> {
        let kept = match &self.on_gpu {
            Some(gpu) => gpu.keep(&(a.0 as usize, a.1.clone()), &(b.0 as usize, b.1.clone()))?,
            None => None,
        };
        Ok(BothWays { pair: self, a, b, kept })
    }

    /// Whether a block is better multiplied with both ways ([`Self::both_ways`]) before the next one than the whole matrix twice.
    pub fn keeps(&self) -> bool {
        self.on_gpu.as_ref().is_some_and(CudaPair::keeps)
    }

    /// `κ(X, Z) V` `[n, k]` for `V` `[m, k]`.
    pub fn apply(&self, v: &Panel) -> Result<Panel> {
        self.product((Side::X, Part::All), (Side::Z, Part::All), v)
    }

    /// `κ(Z, X) V` `[m, k]` for `V` `[n, k]`.
    pub fn apply_transpose(&self, v: &Panel) -> Result<Panel> {
        self.product((Side::Z, Part::All), (Side::X, Part::All), v)
    }

    /// `κ(A, B)` `[a, b]` on the device, in f64. On a GPU its values have the precision of the pair.
    pub fn block(&self, a: (Side, Part<'_>), b: (Side, Part<'_>)) -> Result<Panel> {
        let (a, b) = ((a.0 as usize, a.1), (b.0 as usize, b.1));
        match &self.on_gpu {
            Some(gpu) => {
                ran("kernel matrices", gpu.device(), 1);
                gpu.block(&a, &b)
            }
            None => {
                let block = gram_cross::<f64>(self.kernel, self.part(&a).rows(), self.part(&b).rows(), self.device)?;
                Panel::from_host(self.device, block)
            }
        }
    }

    fn part(&self, (set, part): &(usize, Part<'_>)) -> CowRows<'a> {
        let x = self.sets[*set];
        match part.range(x.n()) {
            Some(range) => CowRows::Borrowed(x.slice(range)),
            None => CowRows::Owned(x.select(&part.list(x.n()))),
        }
    }
}

/// κ(A, B) of two parts, see [`Pair::both_ways`].
pub(crate) struct BothWays<'p> {
    pair: &'p Pair<'p>,
    a: (Side, Part<'p>),
    b: (Side, Part<'p>),
    kept: Option<Kept<'p>>,
}

impl BothWays<'_> {
    /// `κ(A, B) V` `[a, k]` for `V` `[b, k]`.
    pub fn product(&self, v: &Panel) -> Result<Panel> {
        match self.kept(v) {
            Some(kept) => kept.product(false, v),
            None => self.pair.product(self.a.clone(), self.b.clone(), v),
        }
    }

    /// `κ(B, A) V` `[b, k]` for `V` `[a, k]`.
    pub fn transposed_product(&self, v: &Panel) -> Result<Panel> {
        match self.kept(v) {
            Some(kept) => kept.product(true, v),
            None => self.pair.product(self.b.clone(), self.a.clone(), v),
        }
    }

    fn kept(&self, v: &Panel) -> Option<&Kept<'_>> {
        self.kept.as_ref().inspect(|_| ran("products of two sets of points", v.device(), 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{KernelOperator, Operator, gram};
    use crate::rng::Rng;
    use ndarray::{Axis, concatenate};

    /// Parts of both sets against the kernel matrix of all points; Z is a part of X, so that points are equal.
    #[test]
    fn products_of_parts_are_those_of_the_matrix() {
        let mut rng = Rng::new(3);
        let x = rng.normals((60, 3));
        let z = x.select(Axis(0), &(0..20).map(|i| 2 * i).collect::<Vec<_>>());
        let all = concatenate(Axis(0), &[x.view(), z.view()]).unwrap();
        let kernel = Kernel::parse("matern12(1.5)").unwrap();
        let k = gram::<f64>(&kernel, all.view(), Device::Cpu).unwrap();
        let pair = Pair::new(&kernel, x.view(), z.view(), Precision::F64, Device::Cpu).unwrap();
        let listed = [7usize, 3, 41];
        let parts =
            [(Side::X, Part::All), (Side::Z, Part::All), (Side::X, Part::Rows(&listed)), (Side::Z, Part::Range(4..9))];
        let places = |(side, part): &(Side, Part<'_>)| match side {
            Side::X => part.list(60).to_vec(),
            Side::Z => part.list(20).iter().map(|i| 60 + i).collect::<Vec<_>>(),
        };
        for a in &parts {
            for b in &parts {
                let want = k.select(Axis(0), &places(a)).select(Axis(1), &places(b));
                let v = rng.normals((want.ncols(), 2));
                let got = pair.product(a.clone(), b.clone(), &v.clone().into()).unwrap().into_host().unwrap();
                assert!((&got - &want.dot(&v)).iter().all(|d| d.abs() < 1e-12), "{a:?} {b:?}");
                let block = pair.block(a.clone(), b.clone()).unwrap().into_host().unwrap();
                assert!((&block - &want).iter().all(|d| d.abs() < 1e-12), "{a:?} {b:?}");
                let both = pair.both_ways(a.clone(), b.clone()).unwrap();
                assert_eq!(both.product(&v.clone().into()).unwrap().into_host().unwrap(), got);
                let w = rng.normals((want.nrows(), 2));
                let back = both.transposed_product(&w.clone().into()).unwrap().into_host().unwrap();
                assert!((&back - &want.t().dot(&w)).iter().all(|d| d.abs() < 1e-12), "{a:?} {b:?}");
            }
        }
        let operator = KernelOperator::new(&kernel, x.view(), Precision::F64, Device::Cpu).unwrap();
        let v = rng.normals((3, 2));
        let (rows, columns) = (Part::Range(10..30), Part::Rows(&listed));
        let want = k.select(Axis(0), &(10..30).collect::<Vec<_>>()).select(Axis(1), &listed);
        let got = operator.product_panel(&rows, &columns, &v.clone().into()).unwrap().into_host().unwrap();
        assert!((got - want.dot(&v)).iter().all(|d| d.abs() < 1e-12));
        let got = operator.block_panel(&rows, &columns, Device::Cpu).unwrap().into_host().unwrap();
        assert!((got - want).iter().all(|d| d.abs() < 1e-12));
    }
}
