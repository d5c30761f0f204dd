//! Operators on data: kernels, stored matrices, samples of functions.

use super::finish::within_span;
use super::function_operator::sample_rows;
use super::rows::Rows;
use super::{Batches, FunctionOperator, Functions, Layout, Pairs, Points, Sample, Standardizer};
use crate::compute::{Control, Device, Math, Small, Tensor, small};
use crate::linalg::matmul;
use crate::operator::{BatchOperator, Operator, Sizes, batch_operator, block_product};
use crate::rng::Rng;
use crate::training::Fingerprint;
use crate::{Error, Result, data, fail_if};
use ndarray::{Array2, ArrayView2, s};

/// A matrix `κ` between the values of functions at n points, c of each: `(Kψ)_o(x) = (1/ncτ) Σ_{n,o'} κ_oo'(x,x_n) ψ_o'(x_n)`.
/// With τ, the mean of the diagonal, eigenvalues lie between 0 and 1 whatever the kernel's units.
///
/// Batches take `(Bc)²` entries at most; nothing grows with n. Example: [the module](super), with this operator.
pub struct OnData<'a> {
    operator: &'a dyn Operator,
    x: data::Rows<'a>,
    standardizer: Standardizer,
    trace: f64,
    identity: String,
}

/// Points of a kernel's diagonal that its mean is taken over.
const DIAGONAL: usize = 4096;

impl<'a> OnData<'a> {
    /// `operator`, whose points must have coordinates: the networks are functions of them.
    pub fn new(operator: &'a dyn Operator) -> Result<Self> {
        let x = operator.points().ok_or_else(|| {
            Error::input(format!("networks need coordinates of the points, and {} has none", operator.describe()))
        })?;
        let (n, d) = x.dim();
        let (trace, name) = match operator.kernel() {
            Some(kernel) => {
                let trace = kernel.formula().diagonal(x.slice(0..n.min(DIAGONAL))).mean();
                (trace, format!("{} in {}", kernel.formula(), format!("{:?}", kernel.precision()).to_lowercase()))
            }
            None => {
                let (diagonal, entries) = (operator.diagonal()?, entries(operator)?);
                (diagonal.mean(), format!("operator {entries} of {} outputs", operator.outputs()))
            }
        };
        let points = Fingerprint::of((0..n).flat_map(|i| (0..d).map(move |j| x.get(i, j).to_bits())));
        let identity = format!("{name} on {n} points of {d} columns, {points}");
        let trace = trace.unwrap_or(0.0);
        fail_if!(!trace.is_finite(), "{} is not finite at these points; scale the data", operator.describe());
        let trace = if trace > 0.0 { trace } else { 1.0 };
        Ok(OnData { operator, x, standardizer: Standardizer::of(x), trace, identity })
    }

    /// τ, the mean of the diagonal.
    pub fn trace(&self) -> f64 {
        self.trace
    }

    /// `K[rows, rows] Q/(Bcτ)` in double precision for `Q` `[B·c, r]`.
    fn act(&self, sample: &Sample, q: ArrayView2<f64>) -> Result<Array2<f64>> {
        let (size, c) = (q.nrows() as f64 * self.trace, self.operator.outputs());
        let image = match (&sample.kernel, self.operator.low_rank()) {
            (Some(kernel), _) => kernel.apply(q)?,
            (None, f) => {
                let rows: Vec<usize> = sample.rows.iter().flat_map(|i| i * c..(i + 1) * c).collect();
                match f {
                    Some(f) if c > 1 => {
                        let f = f.columns(&rows);
                        matmul(f.t(), matmul(f.view(), q).view())
                    }
                    _ => block_product(self.operator, &rows, &rows, q)?,
                }
            }
        };
        Ok(image / size)
    }

    /// Rayleigh–Ritz within `φ_p(x) e_o`: every hidden unit of a network in every output, `h·c` functions. The
    /// coefficients `A` `[h·c, k]` are in that order.
    pub fn ritz_of_units(&self, units: &mut Functions, sample: &Sample, k: usize) -> Result<Pairs> {
        fail_if!(
            units.layout() != Layout::Units,
            "networks are functions with outputs of their own; give hidden units"
        );
        units.calibrate(&sample.x)?;
        let (phi, c) = (units.columns(&sample.x)?, self.operator.outputs());
        let mut spread = Array2::zeros((phi.nrows() * c, phi.ncols() * c));
        (0..c).for_each(|output| spread.slice_mut(s![output..;c, output..;c]).assign(&phi));
        within_span(spread.view(), k, |q, _| self.act(sample, q))
    }
}

/// What tells an operator without a formula from others: all entries, or those of its factor, where they are at hand, else
/// the diagonal.
fn entries(operator: &dyn Operator) -> Result<Fingerprint> {
    const ROWS: usize = 256;
    let mut print = Fingerprint::of([]);
    if let Some(f) = operator.low_rank() {
        f.for_each_strip(|_, strip| print = print.then(strip.iter().map(|v| v.to_bits())));
    } else if operator.is_stored() {
        let all: Vec<usize> = (0..operator.n()).collect();
        for rows in all.chunks(ROWS) {
            print = print.then(operator.block(rows, &all)?.iter().map(|v| v.to_bits()));
        }
    } else {
        print = print.then(operator.diagonal()?.iter().map(|v| v.to_bits()));
    }
    Ok(print)
}

impl FunctionOperator for OnData<'_> {
    fn inputs(&self) -> usize {
        self.x.d()
    }

    fn outputs(&self) -> usize {
        self.operator.outputs()
    }

    fn standardizer(&self) -> Standardizer {
        self.standardizer.clone()
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn batches<'a>(&'a self, functions: &Functions, batch: usize, math: Math) -> Result<Box<dyn Batches + 'a>> {
        let (n, device) = (self.x.n(), functions.device());
        let sizes =
            Sizes { functions: functions.count(), batch: batch.min(n), outputs: self.operator.outputs(), points: n };
        let k = sizes.functions;
        Ok(Box::new(DataBatches {
            rows: Rows::new(self.x, self.standardizer.clone(), functions, sizes.batch)?,
            operator: batch_operator(self.operator, self.trace, device, sizes, math)?,
            weighted: Tensor::zeros(device, &[0])?,
            own: Small::zeros(device, [k, k])?,
            sizes,
        }))
    }

    fn sample(&self, device: Device, rng: &mut Rng, points: usize) -> Result<Sample> {
        let rows = sample_rows(rng, self.x.n(), points);
        let kernel = self.operator.kernel().map(|kernel| kernel.select(&rows)).transpose()?;
        Ok(Sample { x: self.standardizer.gather(device, self.x, rows.iter().copied())?, rows, kernel })
    }

    fn image(&self, sample: &Sample, q: ArrayView2<f64>, _: ArrayView2<f64>, _: &mut Functions) -> Result<Array2<f64>> {
        self.act(sample, q)
    }

    fn eigenvalue(&self, mu: f64) -> f64 {
        self.trace * mu
    }

    fn roundoff(&self) -> f64 {
        self.operator.roundoff()
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
}

impl Batches for DataBatches<'_> {
    fn size(&self) -> usize {
        self.sizes.batch
    }

    fn most(&self) -> usize {
        self.rows.most()
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
        self.operator.begin(&self.rows.now)
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
