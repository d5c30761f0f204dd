//! Operators on data: kernels, stored matrices, samples of functions.

use super::finish::within_span;
use super::function_operator::sample_rows;
use super::rows::{Rows, most_ahead};
use super::{Batches, FunctionOperator, Functions, Layout, Pairs, Points, Sample, Standardizer};
use crate::compute::{Control, Device, Math, Small, Tensor, small};
use crate::kernel::Kernel;
use crate::linalg::matmul;
use crate::operator::{BatchOperator, Entries, KernelOperator, Operator, Precision, Sizes, Stored, batch_operator};
use crate::rng::Rng;
use crate::{Error, FitContext, Result};
use ndarray::{Array2, ArrayView2, Axis, s};

/// A matrix `κ` between the values of functions at n points, c of each: `(Kψ)_o(x) = (1/ncτ) Σ_{n,o'} κ_oo'(x,x_n) ψ_o'(x_n)`.
/// With τ, the mean of the diagonal, eigenvalues lie between 0 and 1 whatever the kernel's units.
///
/// Batches take `(Bc)²` entries at most; nothing grows with n.
pub struct OnData<'a> {
    entries: Entries<'a>,
    x: ArrayView2<'a, f64>,
    outputs: usize,
    standardizer: Standardizer,
    trace: f64,
    precision: Precision,
    device: Device,
    identity: String,
}

/// Points of a kernel's diagonal that its mean is taken over.
const DIAGONAL: usize = 4096;

impl<'a> OnData<'a> {
    /// `kernel` on the points `x` `[n, d]`; quadratic forms over large samples use the context's precision and device.
    pub fn kernel(kernel: &'a Kernel, x: ArrayView2<'a, f64>, context: &FitContext<'_>) -> Result<Self> {
        let few = x.slice(s![..x.nrows().min(DIAGONAL), ..]);
        let trace = kernel.diagonal(few).mean().unwrap_or(0.0);
        if !trace.is_finite() {
            return Err(Error::input(format!("the kernel {kernel} is not finite at these points; scale the data")));
        }
        let (n, d) = x.dim();
        let identity = format!("{kernel} on {n} points of {d} columns, checksum {:016x}", checksum(x));
        let entries = Entries::Kernel(kernel, x);
        Ok(OnData { precision: context.precision, device: context.device, ..new(entries, x, 1, trace, identity) })
    }

    /// Any operator on functions with `outputs` outputs at the points `x` `[n, d]`, of which the networks are functions.
    pub fn operator(operator: &'a dyn Operator, x: ArrayView2<'a, f64>, outputs: usize) -> Result<Self> {
        let (n, d) = x.dim();
        if operator.n() != n * outputs {
            let points = operator.n() / outputs.max(1);
            return Err(Error::input(format!("an operator on {points} points was given {n} points")));
        }
        let diagonal = operator.diagonal()?;
        let trace = diagonal.mean().unwrap_or(0.0);
        if !trace.is_finite() {
            return Err(Error::input(format!("the operator's trace is {trace}; its entries must be finite")));
        }
        let here = checksum(diagonal.view().insert_axis(Axis(0)));
        let identity = format!(
            "operator {here:016x} of {outputs} outputs on {n} points of {d} columns, checksum {:016x}",
            checksum(x)
        );
        Ok(new(Entries::Operator(operator), x, outputs, trace, identity))
    }

    /// τ, the mean of the diagonal.
    pub fn trace(&self) -> f64 {
        self.trace
    }

    /// `K[rows, rows] Q/(Bcτ)` in double precision for `Q` `[B·c, r]`.
    fn act(&self, sample: &Sample, q: ArrayView2<f64>) -> Result<Array2<f64>> {
        let size = q.nrows() as f64 * self.trace;
        let c = self.outputs;
        let image = match (self.entries, &sample.kernel) {
            (_, Some(kernel)) => kernel.apply(q)?,
            (Entries::Kernel(..), None) => return Err(Error::input("this is the sample of another operator")),
            (Entries::Operator(operator), None) => {
                let rows: Vec<usize> = sample.rows.iter().flat_map(|i| i * c..(i + 1) * c).collect();
                match operator.stored() {
                    Some(Stored::Samples(f)) if c > 1 => {
                        let f = f.columns(&rows);
                        matmul(f.t(), matmul(f.view(), q).view())
                    }
                    _ => through_blocks(operator, &rows, q)?,
                }
            }
        };
        Ok(image / size)
    }

    /// Rayleigh–Ritz within `φ_p(x) e_o`: every hidden unit of a network in every output, `h·c` functions. The
    /// coefficients `A` `[h·c, k]` are in that order.
    pub fn ritz_of_units(&self, units: &mut Functions, sample: &Sample, k: usize) -> Result<Pairs> {
        if units.layout() != Layout::Units {
            return Err(Error::input("networks are functions with outputs of their own; give hidden units"));
        }
        units.calibrate(&sample.x)?;
        let (phi, c) = (units.columns(&sample.x)?, self.outputs);
        let mut spread = Array2::zeros((phi.nrows() * c, phi.ncols() * c));
        (0..c).for_each(|output| spread.slice_mut(s![output..;c, output..;c]).assign(&phi));
        within_span(spread.view(), k, |q, _| self.act(sample, q))
    }
}

fn new<'a>(entries: Entries<'a>, x: ArrayView2<'a, f64>, outputs: usize, trace: f64, identity: String) -> OnData<'a> {
    OnData {
        entries,
        x,
        outputs,
        standardizer: Standardizer::of(x),
        trace: if trace > 0.0 { trace } else { 1.0 },
        precision: Precision::F64,
        device: Device::Cpu,
        identity,
    }
}

/// `K[rows, rows] Q`, a strip of rows at a time, so that a large sample's block is never whole in memory.
fn through_blocks(operator: &dyn Operator, rows: &[usize], q: ArrayView2<f64>) -> Result<Array2<f64>> {
    const STRIP: usize = 1024;
    let mut image = Array2::zeros(q.dim());
    for (strip, mut out) in rows.chunks(STRIP).zip(image.axis_chunks_iter_mut(Axis(0), STRIP)) {
        out.assign(&matmul(operator.block(strip, rows)?.view(), q));
    }
    Ok(image)
}

/// A number that changes when any bit of the data does (FNV-1a over the values).
fn checksum(x: ArrayView2<f64>) -> u64 {
    x.iter().fold(0xcbf2_9ce4_8422_2325, |hash, v| (hash ^ v.to_bits()).wrapping_mul(0x0000_0100_0000_01b3))
}

impl FunctionOperator for OnData<'_> {
    fn inputs(&self) -> usize {
        self.x.ncols()
    }

    fn outputs(&self) -> usize {
        self.outputs
    }

    fn standardizer(&self) -> Standardizer {
        self.standardizer.clone()
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn batches<'a>(&'a self, functions: &Functions, batch: usize, math: Math) -> Result<Box<dyn Batches + 'a>> {
        let (n, device) = (self.x.nrows(), functions.device());
        let sizes = Sizes { functions: functions.count(), batch: batch.min(n), outputs: self.outputs, points: n };
        let k = sizes.functions;
        Ok(Box::new(DataBatches {
            rows: Rows::new(self.x, self.standardizer.clone(), functions, sizes.batch)?,
            operator: batch_operator(self.entries, self.trace, device, sizes, math)?,
            weighted: Tensor::zeros(device, &[0])?,
            own: Small::zeros(device, [k, k])?,
            sizes,
            most: most_ahead(device),
        }))
    }

    fn sample(&self, device: Device, rng: &mut Rng, points: usize) -> Result<Sample> {
        let rows = sample_rows(rng, self.x.nrows(), points);
        let kernel = match self.entries {
            Entries::Operator(_) => None,
            Entries::Kernel(kernel, x) => {
                let points = x.select(Axis(0), &rows);
                Some(KernelOperator::new(kernel, points.view(), self.precision, self.device)?)
            }
        };
        Ok(Sample { x: self.standardizer.gather(device, self.x, rows.iter().copied())?, rows, kernel })
    }

    fn image(&self, sample: &Sample, q: ArrayView2<f64>, _: ArrayView2<f64>, _: &mut Functions) -> Result<Array2<f64>> {
        self.act(sample, q)
    }

    fn eigenvalue(&self, mu: f64) -> f64 {
        self.trace * mu
    }

    fn roundoff(&self) -> f64 {
        match self.entries {
            Entries::Kernel(..) => self.precision.roundoff(self.device),
            Entries::Operator(operator) => operator.roundoff(),
        }
    }
}

/// Batches of the data.
struct DataBatches<'a> {
    rows: Rows<'a>,
    operator: Box<dyn BatchOperator + 'a>,
    /// `G_b ψ(x_b)` `[k, B, c]`, with `G_b` the entries of a point with itself.
    weighted: Tensor,
    /// Pairs of a point with itself in R, `[k, k]`.
    own: Small,
    sizes: Sizes,
    most: usize,
}

impl Batches for DataBatches<'_> {
    fn size(&self) -> usize {
        self.sizes.batch
    }

    fn most(&self) -> usize {
        self.most
    }

    fn draw(&mut self, rng: &mut Rng) {
        self.rows.push(sample_rows(rng, self.sizes.points, self.sizes.batch));
    }

    fn bring(&mut self) -> Result<()> {
        self.rows.bring();
        Ok(())
    }

    fn begin(&mut self, control: &Control, points: &mut Points) -> Result<()> {
        self.rows.begin(control, points)?;
        self.operator.begin(self.rows.now())
    }

    fn apply(&mut self, _: &Control, _: &Points, _: &Functions, psi: &Tensor, out: &mut Tensor) -> Result<()> {
        self.operator.apply(psi, out)
    }

    /// `(1 − 1/n) (R − D) B/(B−1) + D B/n` with `D = (1/(Bc)²τ) Σ_b ψ_i(x_b)ᵀ κ(x_b,x_b) ψ_j(x_b)`.
    fn unbiased<'m>(
        &mut self,
        psi: &Tensor,
        covariance: &Small,
        r: &'m Small,
        out: &'m mut Small,
    ) -> Result<&'m Small> {
        let Sizes { batch, points, outputs, .. } = self.sizes;
        if batch < 2 {
            return Ok(r);
        }
        let own = self.operator.own();
        if own.constant {
            small::without_bias(r, covariance, Some(own.entries), own.size, [batch, points], out);
        } else {
            small::weigh(own.entries, psi, &mut self.weighted)?;
            small::form(&self.weighted, psi, 0..batch * outputs, &mut self.own)?;
            small::without_bias(r, &self.own, None, own.size, [batch, points], out);
        }
        Ok(out)
    }

    fn recordable(&self) -> bool {
        self.operator.recordable()
    }
}
