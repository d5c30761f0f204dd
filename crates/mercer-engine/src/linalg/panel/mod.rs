//! Panels: a few tall vectors in f64 that stay on their device, whole or sharded over ranks. Solvers are written with them once for CPU and GPU.

mod rows;
mod sharded;
mod single;

use super::{Sharding, Shares, eigh, matmul, matmul_into};
use crate::Result;
use crate::compute::Storage::{self, Cuda, Host};
use crate::compute::cuda::{Buffer, gpu, panel as cuda};
use crate::compute::{Device, ledger};
use faer::Accum;
use ndarray::{Array1, Array2, ArrayView2, Axis, Zip, aview1, concatenate, s};
use std::ops::Range;

/// A few long vectors as the columns of a matrix `[n, b]` in f64, on the CPU or on a GPU. Block Krylov iteration and
/// conjugate gradients compute with panels.
///
/// Panels stay on their device; only small results, `[b, b]` or `[b]`, are copied to the host. On the CPU a panel is an
/// `ndarray` array. Panels that are used together must be on the same device.
///
/// The rows of a panel may be sharded over the ranks of a group ([`Sharding`]). It is then used as any other: what is summed over rows is summed over the
/// ranks, in their order, and has the same bits on all of them. All ranks do the same with it.
///
/// ```
/// use mercer_engine::linalg::Panel;
/// use ndarray::array;
/// let v = Panel::from(array![[3.0, 1.0], [4.0, 1.0]]);
/// assert_eq!(v.norms()?[0], 5.0);
/// assert_eq!(v.t_matmul(&v)?, array![[25.0, 7.0], [7.0, 2.0]]);
/// let q = v.orthonormal_basis()?;
/// assert!((q.t_matmul(&q)? - ndarray::Array2::<f64>::eye(2)).iter().all(|d| d.abs() < 1e-14));
/// # Ok::<(), mercer_engine::Error>(())
/// ```
#[derive(Debug)]
pub struct Panel {
    /// Rows that this process has.
    n: usize,
    b: usize,
    storage: Storage<Array2<f64>>,
    sharding: Sharding,
}

/// A panel on the CPU.
impl From<Array2<f64>> for Panel {
    fn from(array: Array2<f64>) -> Panel {
        Panel { n: array.nrows(), b: array.ncols(), storage: Host(array), sharding: Sharding::WHOLE }
    }
}

impl Panel {
    /// The vectors `[n, b]` on `device`.
    pub fn from_host(device: Device, array: Array2<f64>) -> Result<Panel> {
        match device {
            Device::Cpu => Ok(Panel::from(array)),
            Device::Cuda(ordinal) => {
                let (n, b) = array.dim();
                let rows = array.as_standard_layout();
                let buffer = cuda::upload(gpu(ordinal)?, [n, b], rows.as_slice().expect("row by row"))?;
                Ok(Panel::from_buffer([n, b], buffer))
            }
        }
    }

    /// Zeros `[n, b]` on `device`.
    pub fn zeros(device: Device, [n, b]: [usize; 2]) -> Result<Panel> {
        match device {
            Device::Cpu => Ok(Panel::from(Array2::zeros((n, b)))),
            Device::Cuda(ordinal) => {
                let mut buffer = cuda::allocate(gpu(ordinal)?, [n, b])?;
                buffer.zero(0, 8 * n * b);
                Ok(Panel::from_buffer([n, b], buffer))
            }
        }
    }

    /// A panel `[n, b]` in a row-major device buffer.
    pub fn from_buffer([n, b]: [usize; 2], buffer: Buffer) -> Panel {
        assert!(buffer.bytes() >= 8 * n * b, "{} bytes are too few for a panel [{n}, {b}]", buffer.bytes());
        Panel { n, b, storage: Cuda(buffer), sharding: Sharding::WHOLE }
    }

    /// The row-major device buffer; `None` on the CPU.
    pub fn buffer(&self) -> Option<&Buffer> {
        self.storage.buffer()
    }

    /// Its device buffer; `None` on the CPU.
    pub fn into_buffer(self) -> Option<Buffer> {
        match self.storage {
            Host(_) => None,
            Cuda(buffer) => Some(buffer),
        }
    }

    /// The device that holds the panel.
    pub fn device(&self) -> Device {
        self.storage.device()
    }

    /// n, the length of each vector.
    pub fn nrows(&self) -> usize {
        self.sharding.shares().map_or(self.n, Shares::n)
    }

    /// b, the number of vectors.
    pub fn ncols(&self) -> usize {
        self.b
    }

    /// A copy `[n, b]` of all rows on the host; waits for the device.
    pub fn to_host(&self) -> Result<Array2<f64>> {
        self.sharding.gathered(self.own_rows()?)
    }

    /// A copy of the rows that this process has, on the host.
    pub fn own_rows(&self) -> Result<Array2<f64>> {
        match &self.storage {
            Host(array) => Ok(array.clone()),
            Cuda(buffer) => {
                let mut array = Array2::zeros((self.n, self.b));
                buffer.read(0, array.as_slice_mut().expect("own array"))?;
                Ok(array)
            }
        }
    }

    /// [`Panel::to_host`] without a copy if the panel is on the CPU.
    pub fn into_host(self) -> Result<Array2<f64>> {
        let sharding = self.sharding.clone();
        sharding.gathered(self.into_own_rows()?)
    }

    /// [`Panel::own_rows`] without a copy if the panel is on the CPU.
    pub fn into_own_rows(self) -> Result<Array2<f64>> {
        match self.storage {
            Host(array) => Ok(array),
            Cuda(_) => self.own_rows(),
        }
    }

    /// Applies `f` to the vectors `[n, b]` on the host and moves the result to the device of this panel.
    pub fn through_host(&self, f: impl FnOnce(ArrayView2<f64>) -> Result<Array2<f64>>) -> Result<Panel> {
        if self.sharding.is_whole() {
            return self.own_through_host(f);
        }
        let whole = f(self.to_host()?.view())?;
        Panel::sharded(self.device(), &self.sharding, self.sharding.own(whole.view()).to_owned())
    }

    fn moved_through_host(&self, f: impl FnOnce(ArrayView2<f64>) -> Result<Array2<f64>>) -> Result<Panel> {
        match &self.storage {
            Host(array) => Ok(Panel::from(f(array.view())?)),
            Cuda(_) => {
                ledger::ran("steps with vectors from the GPU", Device::Cpu, 1);
                Panel::from_host(self.device(), f(self.own_rows()?.view())?)
            }
        }
    }

    /// A copy on the same device.
    pub fn try_clone(&self) -> Result<Panel> {
        self.columns(0..self.b)
    }

    /// The vectors of this panel and then those of `other`, `[n, b + b']`.
    pub fn joined(&self, other: &Panel) -> Result<Panel> {
        self.check_height(other);
        match (&self.storage, &other.storage) {
            (Host(a), Host(b)) => {
                let both = concatenate(Axis(1), &[a.view(), b.view()]).expect("equal heights");
                Ok(Panel::from(both).over(&self.sharding))
            }
            (Cuda(a), Cuda(b)) => {
                let (n, width) = (self.n, self.b + other.b);
                let mut out = cuda::allocate(a.gpu(), [n, width])?;
                cuda::copy_columns(n, (a, self.b), 0..self.b, (&mut out, width), 0);
                cuda::copy_columns(n, (b, other.b), 0..other.b, (&mut out, width), self.b);
                Ok(Panel::from_buffer([n, width], out).over(&self.sharding))
            }
            _ => self.different_devices(other),
        }
    }

    /// The vectors of all panels side by side, `[n, Σb]`; at least one panel.
    pub fn concatenated(parts: &[Panel]) -> Result<Panel> {
        let (first, width) = (&parts[0], parts.iter().map(|part| part.b).sum());
        parts.iter().for_each(|part| first.check_height(part));
        match &first.storage {
            Host(_) => {
                let arrays: Vec<Array2<f64>> = parts.iter().map(Panel::own_rows).collect::<Result<_>>()?;
                let views: Vec<ArrayView2<f64>> = arrays.iter().map(|array| array.view()).collect();
                let all = concatenate(Axis(1), &views).expect("equal heights");
                Ok(Panel::from(all.as_standard_layout().into_owned()).over(&first.sharding))
            }
            Cuda(a) => {
                let (n, mut place) = (first.n, 0);
                let mut out = cuda::allocate(a.gpu(), [n, width])?;
                for part in parts {
                    let Cuda(from) = &part.storage else { first.different_devices(part) };
                    cuda::copy_columns(n, (from, part.b), 0..part.b, (&mut out, width), place);
                    place += part.b;
                }
                Ok(Panel::from_buffer([n, width], out).over(&first.sharding))
            }
        }
    }

    /// The vectors `range`, `[n, range]`.
    pub fn columns(&self, range: Range<usize>) -> Result<Panel> {
        match &self.storage {
            Host(a) => Ok(Panel::from(a.slice(s![.., range]).to_owned()).over(&self.sharding)),
            Cuda(a) => {
                let width = range.len();
                let mut out = cuda::allocate(a.gpu(), [self.n, width])?;
                cuda::copy_columns(self.n, (a, self.b), range, (&mut out, width), 0);
                Ok(Panel::from_buffer([self.n, width], out).over(&self.sharding))
            }
        }
    }

    /// `VᵀW` `[b, b']`, on the host.
    pub fn t_matmul(&self, other: &Panel) -> Result<Array2<f64>> {
        self.check_height(other);
        let mut product = match (&self.storage, &other.storage) {
            (Host(a), Host(b)) => matmul(a.t(), b.view()),
            (Cuda(a), Cuda(b)) => {
                let product = cuda::t_matmul(self.n, (a, self.b), (b, other.b))?;
                Array2::from_shape_vec((self.b, other.b), product).expect("b·b' numbers")
            }
            _ => self.different_devices(other),
        };
        self.sharding.sum(product.as_slice_mut().expect("own array"))?;
        Ok(product)
    }

    /// `V S` `[n, m]` for a small `S` `[b, m]`.
    pub fn matmul(&self, small: ArrayView2<f64>) -> Result<Panel> {
        self.sharding.check_same(small)?;
        match &self.storage {
            Host(a) => Ok(Panel::from(matmul(a.view(), small)).over(&self.sharding)),
            Cuda(a) => {
                let shape = [self.n, small.ncols()];
                let mut out = Panel::from_buffer(shape, cuda::allocate(a.gpu(), shape)?).over(&self.sharding);
                // With β = 0, cuBLAS does not read `out`.
                out.product(1.0, self, small, 0.0)?;
                Ok(out)
            }
        }
    }

    /// `self ← self + α T S` for `T` `[n, p]` and a small `S` `[p, b]`.
    pub fn add_product(&mut self, alpha: f64, tall: &Panel, small: ArrayView2<f64>) -> Result<()> {
        self.check_height(tall);
        self.sharding.check_same(small)?;
        match (&mut self.storage, &tall.storage) {
            (Host(a), Host(t)) => {
                matmul_into(a.view_mut(), Accum::Add, t.view(), small, alpha, faer::get_global_parallelism());
                Ok(())
            }
            _ => self.product(alpha, tall, small, 1.0),
        }
    }

    /// `self ← α T S + β self` on a GPU.
    fn product(&mut self, alpha: f64, tall: &Panel, small: ArrayView2<f64>, beta: f64) -> Result<()> {
        assert_eq!((tall.b, self.b), small.dim(), "shapes of a product");
        let rows = small.as_standard_layout();
        match (&mut self.storage, &tall.storage) {
            (Cuda(out), Cuda(t)) => {
                let small = (rows.as_slice().expect("row by row"), small.ncols());
                cuda::matmul(self.n, alpha, (t, tall.b), small, beta, out)
            }
            _ => self.different_devices(tall),
        }
    }

    /// `self ← self − other`.
    pub fn subtract(&mut self, other: &Panel) {
        self.check_shape(other);
        match (&mut self.storage, &other.storage) {
            (Host(a), Host(b)) => *a -= b,
            // SAFETY: both panels hold n·b doubles, as `from_buffer` and `check_shape` have checked.
            (Cuda(a), Cuda(b)) => unsafe { a.gpu().add_f64(self.n * self.b, -1.0, b.pointer(), a.pointer()) },
            _ => self.different_devices(other),
        }
    }

    /// `v_j ← v_j + step_j w_j` for each column, `steps` `[b]`.
    pub fn axpy(&mut self, steps: &[f64], other: &Panel) -> Result<()> {
        self.check_shape(other);
        assert_eq!(steps.len(), self.b, "a step for each column");
        match (&mut self.storage, &other.storage) {
            (Host(a), Host(b)) => *a += &(b * &aview1(steps)),
            (Cuda(a), Cuda(b)) => cuda::axpy_columns(self.n, steps, b, a)?,
            _ => self.different_devices(other),
        }
        Ok(())
    }

    /// `v_j ← factor_j v_j` for each column, `factors` `[b]`.
    pub fn scale(&mut self, factors: &[f64]) -> Result<()> {
        assert_eq!(factors.len(), self.b, "a factor for each column");
        match &mut self.storage {
            Host(a) => *a *= &aview1(factors),
            Cuda(a) => cuda::scale_columns(self.n, factors, a)?,
        }
        Ok(())
    }

    /// `v_j·w_j` of each column `[b]`.
    pub fn dots(&self, other: &Panel) -> Result<Array1<f64>> {
        self.check_shape(other);
        let mut sums = match (&self.storage, &other.storage) {
            (Host(a), Host(b)) => {
                let mut sums = Array1::zeros(self.b);
                for (a, b) in a.rows().into_iter().zip(b.rows()) {
                    Zip::from(&mut sums).and(a).and(b).for_each(|s, a, b| *s += a * b);
                }
                sums
            }
            (Cuda(a), Cuda(b)) => cuda::column_sums([self.n, self.b], a, cuda::Sum::Products(b))?.into(),
            _ => self.different_devices(other),
        };
        self.sharding.sum(sums.as_slice_mut().expect("own array"))?;
        Ok(sums)
    }

    /// `‖v_j‖` of each column `[b]`.
    pub fn norms(&self) -> Result<Array1<f64>> {
        match &self.storage {
            Host(a) => {
                let mut squares = a.map_axis(Axis(0), |column| column.dot(&column));
                self.sharding.sum(squares.as_slice_mut().expect("own array"))?;
                Ok(squares.mapv(f64::sqrt))
            }
            Cuda(_) => Ok(self.dots(self)?.mapv(f64::sqrt)),
        }
    }

    /// `‖w_j − θ_j v_j‖` for each θ_j, with `w_j` column j of this panel and `v_j` column j of `vectors`.
    pub fn residual_norms(&self, vectors: &Panel, θ: &[f64]) -> Result<Vec<f64>> {
        self.check_shape(vectors);
        assert!(θ.len() <= self.b, "{} eigenvalues for {} vectors", θ.len(), self.b);
        let mut squares: Vec<f64> = match (&self.storage, &vectors.storage) {
            (Host(w), Host(v)) => {
                let square = |(j, θ): (usize, &f64)| (&w.column(j) - &(*θ * &v.column(j))).mapv(|r| r * r).sum();
                θ.iter().enumerate().map(square).collect()
            }
            (Cuda(w), Cuda(v)) => {
                let mut all = θ.to_vec();
                all.resize(self.b, 0.0);
                let sums = cuda::column_sums([self.n, self.b], w, cuda::Sum::Residuals(v, &all))?;
                sums[..θ.len()].to_vec()
            }
            _ => self.different_devices(vectors),
        };
        self.sharding.sum(&mut squares)?;
        Ok(squares.into_iter().map(f64::sqrt).collect())
    }

    /// Whether the magnitude of every element is at most `bound`. False if an element is NaN.
    pub fn all_within(&self, bound: f64) -> Result<bool> {
        let own = match &self.storage {
            Host(a) => a.iter().all(|v| v.abs() <= bound),
            Cuda(a) => cuda::all_within(self.n * self.b, bound, a)?,
        };
        let mut outside = [f64::from(u8::from(!own))];
        self.sharding.sum(&mut outside)?;
        Ok(outside == [0.0])
    }

    /// Subtracts from each vector its mean.
    pub fn centre(&mut self) -> Result<()> {
        if !self.sharding.is_whole() {
            let ones = Panel::from_host(self.device(), Array2::ones((self.n, 1)))?.over(&self.sharding);
            let means = ones.t_matmul(self)? / self.nrows() as f64;
            return self.add_product(-1.0, &ones, means.view());
        }
        match &mut self.storage {
            Host(a) => {
                if let Some(means) = a.mean_axis(Axis(0)) {
                    *a -= &means;
                }
            }
            Cuda(a) => cuda::centre([self.n, self.b], a)?,
        }
        Ok(())
    }

    /// `V − Q QᵀV`: the part of each vector that is orthogonal to the columns of the orthonormal `Q` `[n, r]`.
    pub fn outside(mut self, q: &Panel) -> Result<Panel> {
        self.subtract(&q.matmul(q.t_matmul(&self)?.view())?);
        Ok(self)
    }

    /// An orthonormal basis `[n, r]` of the span of the vectors, with `r < b` if they are linearly dependent.
    ///
    /// Applies `V ← V Q Λ^{−1/2}` with `VᵀV = Q Λ Qᵀ` twice. The first pass drops the null directions; the second restores
    /// the orthogonality that the first lost to rounding. It needs only products of panels and a small eigendecomposition.
    pub fn orthonormal_basis(mut self) -> Result<Panel> {
        self.normalize()?;
        for _ in 0..2 {
            let (values, q) = eigh(self.device(), self.t_matmul(&self)?.view())?;
            let kept = values.iter().take_while(|&&λ| λ > 1e-13 * values[0].max(1e-300)).count();
            let mut rotation = q.slice(s![.., ..kept]).to_owned();
            for (mut column, λ) in rotation.axis_iter_mut(Axis(1)).zip(&values) {
                column /= λ.sqrt();
            }
            self = self.matmul(rotation.view())?;
        }
        Ok(self)
    }

    /// Scales each vector to norm 1; a zero vector stays zero.
    fn normalize(&mut self) -> Result<()> {
        if let Host(a) = &mut self.storage
            && self.sharding.is_whole()
        {
            for mut column in a.axis_iter_mut(Axis(1)) {
                let norm = column.dot(&column).sqrt();
                column.mapv_inplace(|x| if norm > 0.0 { x / norm } else { 0.0 });
            }
            return Ok(());
        }
        let factors = self.norms()?.mapv(|norm| if norm > 0.0 { 1.0 / norm } else { 0.0 });
        self.scale(factors.as_slice().expect("own array"))
    }

    fn check_height(&self, other: &Panel) {
        assert_eq!(self.n, other.n, "vectors of different lengths");
        assert!(self.sharding.is(&other.sharding), "vectors that are sharded differently");
    }

    fn check_shape(&self, other: &Panel) {
        assert_eq!((self.n, self.b), (other.n, other.b), "panels of different shapes");
        assert!(self.sharding.is(&other.sharding), "vectors that are sharded differently");
    }

    fn different_devices(&self, other: &Panel) -> ! {
        panic!("a panel on {} was used with one on {}", self.device(), other.device())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{close, random};
    use super::*;

    #[test]
    fn operations_are_their_formulas() {
        let (v, w, small) = (random(40, 5, 1), random(40, 5, 2), random(5, 3, 3));
        let [pv, pw] = [&v, &w].map(|a| Panel::from(a.clone()));
        close(&pv.t_matmul(&pw).unwrap(), &v.t().dot(&w));
        close(&pv.matmul(small.view()).unwrap().into_host().unwrap(), &v.dot(&small));
        assert_eq!(pv.joined(&pw).unwrap().columns(3..7).unwrap().to_host().unwrap().column(2), w.column(0));

        let steps = [1.0, -2.0, 0.0, 0.5, 3.0];
        let mut moved = pv.try_clone().unwrap();
        moved.axpy(&steps, &pw).unwrap();
        moved.scale(&steps).unwrap();
        moved.subtract(&pw);
        moved.add_product(-0.5, &pv, random(5, 5, 4).view()).unwrap();
        let want = (&v + &(&w * &aview1(&steps))) * aview1(&steps) - &w - 0.5 * v.dot(&random(5, 5, 4));
        close(&moved.into_host().unwrap(), &want);

        let all = Panel::concatenated(&[pv.try_clone().unwrap(), pw.columns(0..2).unwrap()]).unwrap();
        assert_eq!((all.ncols(), all.to_host().unwrap().column(6)), (7, w.column(1)));
        let dots = (&v * &w).sum_axis(Axis(0));
        assert!((pv.dots(&pw).unwrap() - dots).iter().all(|d| d.abs() < 1e-12));
        let norms = pw.residual_norms(&pv, &[0.5, 2.0]).unwrap();
        let want = |j: usize, θ: f64| (&w.column(j) - &(θ * &v.column(j))).mapv(|r| r * r).sum().sqrt();
        assert!((norms[0] - want(0, 0.5)).abs() < 1e-12 && (norms[1] - want(1, 2.0)).abs() < 1e-12);
        assert_eq!(norms.len(), 2);

        let mut centred = Panel::from(&v + 3.0);
        centred.centre().unwrap();
        assert!(centred.into_host().unwrap().sum_axis(Axis(0)).iter().all(|s| s.abs() < 1e-12));
    }

    #[test]
    fn vectors_in_the_span_have_no_part_outside() {
        let v = random(60, 4, 5);
        let q = Panel::from(v.clone()).orthonormal_basis().unwrap();
        let left = Panel::from(v.dot(&random(4, 2, 6))).outside(&q).unwrap();
        assert!(left.all_within(1e-13).unwrap() && !left.all_within(-1.0).unwrap());
        let broken = Panel::from(Array2::from_elem((2, 1), f64::NAN));
        assert!(!broken.all_within(f64::INFINITY).unwrap(), "NaN is within no bound");
    }

    #[test]
    #[should_panic(expected = "vectors of different lengths")]
    fn vectors_of_different_lengths_are_rejected() {
        Panel::from(random(3, 1, 0)).t_matmul(&Panel::from(random(4, 1, 0))).ok();
    }
}
