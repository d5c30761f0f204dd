//! What a training step needs beside the primitives so that nothing of it passes through the host.

use super::blas::{Matrix, Transposed};
use super::gpu::Gpu;
use super::launch::{Arg, BLOCK};
use super::memory::Buffer;
use super::module::Source;
use super::primitives::{scalars, square_sums, update_at};
use crate::Result;
use crate::compute::{Rule, Tensor};
use std::ops::Range;
use std::sync::OnceLock;

pub(super) fn source() -> String {
    concat!(include_str!("control.cuh"), include_str!("resident.cu")).into()
}

fn compiled() -> &'static Source {
    static SOURCE: OnceLock<Source> = OnceLock::new();
    SOURCE.get_or_init(|| Source::new(source()))
}

/// What was not finite in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoilt {
    Psi,
    Image,
    Gradient,
    Loss,
    Problem,
}

/// NeuralEF's factors of the earlier functions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Coefficients {
    /// `R_ij/R_ii`
    Batch,
    /// The same of a moving average that keeps this share of its value at each step.
    Averaged(f64),
    /// `R⁻¹r_j`
    Joint,
}

/// What the device keeps of a chunk of steps, and what the host brings for it.
pub struct Chunk {
    pub(super) gpu: &'static Gpu,
    /// Points of a batch.
    pub batch: usize,
    /// Outputs c of a function.
    pub outputs: usize,
    /// Eigenvalues; functions too, unless [`Chunk::ritz`] finds few among more of them.
    pub k: usize,
    /// The step, the first that was not finite (from one), what was not, whether the average has begun: u32 `[4]`.
    pub(super) control: Buffer,
    /// u32 `[most, batch]`
    rows: Buffer,
    /// The step's rows: u32 `[batch]`.
    now: Buffer,
    /// Learning rates and corrections: f32 `[most, 3]`.
    rates: Buffer,
    /// The gradient's squared norm and the step's rates: f32 `[4]`.
    current: Buffer,
    /// Loss and eigenvalues: f64 `[most, 1 + k]`.
    pub(super) record: Buffer,
    /// Moving average of R, or of Σ: f64 `[k, k]`.
    pub(super) average: Buffer,
    /// `(1/Bc) Σ_b ψ_i(x_b)ᵀ κ(x_b,x_b) ψ_i(x_b)`: f64 `[k]`.
    own: Buffer,
    /// Where [`Coefficients::Joint`] come about: f64 `[k + 1, k]`.
    joint: Buffer,
    /// Partial sums of the gradient's squares.
    squares: Buffer,
}

/// What the host reads after a chunk.
pub struct Report {
    /// The first step that was not finite.
    pub spoilt: Option<(usize, Spoilt)>,
    /// `[steps][1 + k]`: loss, eigenvalues.
    pub record: Vec<f64>,
    /// `[k, k]`, once it has begun.
    pub average: Option<Vec<f64>>,
}

/// A batch's pairs of a point with itself, and what its `R` is an estimate of.
#[derive(Clone, Copy)]
pub struct Estimate<'a> {
    /// The batch's kernel matrix `[B, B]`, with those pairs on its diagonal, or they alone, `[B, c, c]`.
    pub gram: &'a Tensor,
    /// Whether they are all one number.
    pub constant: bool,
    /// Points B of the batch; one where Kψ is exact at each of them, so that there is no bias to take out.
    pub drawn: usize,
    /// What it is to be divided by.
    pub trace: f64,
    /// All points n.
    pub points: usize,
}

/// Numbers from one point's pair with itself to the next one's, in [`Estimate::gram`].
pub(super) fn own_stride(gram: &Tensor) -> usize {
    match *gram.shape() {
        [b, _] => b + 1,
        ref blocks => blocks[1] * blocks[2],
    }
}

impl Chunk {
    /// For chunks of at most `most` steps on batches of `batch` points with `k` functions of `outputs` outputs.
    pub fn new(gpu: &'static Gpu, most: usize, batch: usize, k: usize, outputs: usize) -> Result<Chunk> {
        let bytes = |bytes: usize| gpu.allocate(bytes, &|| "the state of training".into(), "use a smaller batch");
        Ok(Chunk {
            gpu,
            batch,
            outputs,
            k,
            control: bytes(16)?,
            rows: bytes(4 * most * batch)?,
            now: bytes(4 * batch)?,
            rates: bytes(12 * most)?,
            current: bytes(16)?,
            record: bytes(8 * most * (1 + k))?,
            average: bytes(8 * k * k)?,
            own: bytes(8 * k)?,
            joint: bytes(8 * (k + 1) * k)?,
            squares: bytes(8 * 1024)?,
        })
    }

    /// Brings a chunk's row numbers `[steps, batch]`, rates `[steps, 3]` and the average `[k, k]` so far.
    pub fn start(&mut self, rows: &[u32], rates: &[f32], average: Option<&[f64]>) {
        self.control.write(0, &[0u32, 0, 0, u32::from(average.is_some())]);
        self.rows.write(0, rows);
        self.rates.write(0, rates);
        if let Some(average) = average {
            self.average.write(0, average);
        }
    }

    /// Waits for the chunk's `steps` steps.
    pub fn report(&self, steps: usize) -> Result<Report> {
        let mut control = [0u32; 4];
        let mut record = vec![0.0; steps * (1 + self.k)];
        let mut average = vec![0.0; self.k * self.k];
        self.control.read(0, &mut control)?;
        self.record.read(0, &mut record)?;
        let begun = control[3] != 0;
        if begun {
            self.average.read(0, &mut average)?;
        }
        let what = match control[2] {
            1 => Spoilt::Psi,
            2 => Spoilt::Image,
            3 => Spoilt::Gradient,
            4 => Spoilt::Loss,
            _ => Spoilt::Problem,
        };
        let spoilt = (control[1] > 0).then(|| (control[1] as usize - 1, what));
        Ok(Report { spoilt, record, average: begun.then_some(average) })
    }

    /// Row numbers of the step that has begun.
    pub fn step_rows(&self) -> u64 {
        self.now.pointer()
    }

    /// Begins a step: its row numbers, and `out[i] = x[rows[i]]`; `x` `[n, d]`, `out` `[batch, d]`.
    pub fn begin(&mut self, x: &Tensor, out: &mut Tensor) {
        let d = x.shape()[1];
        let [control, rows, now] = [&self.control, &self.rows, &self.now].map(Arg::from);
        let [x, out] = [x, &*out].map(|t| Arg::U64(t.address()));
        let arguments = [Arg::long(self.batch), Arg::long(d), control, rows, now, x, out];
        self.gpu.over(compiled(), "begin_step", self.batch * d, &arguments);
    }

    /// Values `B·c` of a function on a batch.
    pub fn values(&self) -> usize {
        self.batch * self.outputs
    }

    /// Where `(1/Bc) Σ_b ψ_i(x_b)ᵀ κ(x_b,x_b) ψ_i(x_b)` is, null where all κ(x,x) are one number; `psi` `[k, B, c]`.
    fn own(&self, estimate: Estimate<'_>, psi: &Tensor) -> Arg {
        if estimate.constant {
            return Arg::U64(0);
        }
        let (b, c, stride) = (self.batch, self.outputs, Arg::long(own_stride(estimate.gram)));
        let [gram, psi] = [estimate.gram, psi].map(|t| Arg::U64(t.address()));
        let arguments = [Arg::size(b), Arg::size(c), stride, gram, psi, Arg::from(&self.own)];
        self.gpu.launch(compiled(), "own_diagonal", [self.k as u32, 1, 1], BLOCK, 0, &arguments);
        Arg::from(&self.own)
    }

    /// NeuralEF's matrix `M` `[k, k]` with `g = M Kψ` from `C` and `R` `[k, k]`; nothing is divided by less than `tiny` of the
    /// largest `R_ii`.
    #[allow(clippy::too_many_arguments)]
    pub fn neuralef(
        &mut self,
        estimate: Estimate<'_>,
        psi: &Tensor,
        c: &Tensor,
        r: &Tensor,
        coefficients: Coefficients,
        tiny: f64,
        m: &mut Tensor,
    ) {
        let own = self.own(estimate, psi);
        let at = |t: &Tensor| Arg::U64(t.address());
        let arguments = [
            Arg::size(self.k),
            Arg::F64(self.values() as f64),
            Arg::F64(estimate.drawn as f64),
            Arg::F64(estimate.points as f64),
            Arg::F64(estimate.trace),
            Arg::F64(tiny),
            at(estimate.gram),
            own,
            at(c),
            at(r),
            Arg::F64(if let Coefficients::Averaged(decay) = coefficients { decay } else { 0.0 }),
            if matches!(coefficients, Coefficients::Averaged(_)) { Arg::from(&self.average) } else { Arg::U64(0) },
            if coefficients == Coefficients::Joint { Arg::from(&self.joint) } else { Arg::U64(0) },
            Arg::from(&self.control),
            Arg::from(&self.record),
            at(m),
        ];
        self.gpu.launch(compiled(), "neuralef", [1, 1, 1], BLOCK, 0, &arguments);
    }

    /// Nested's matrices `[k, k]` of g's parts in the two halves of the batch, of `halves` values, from `Λ`, `Λ'` over
    /// them and `R`.
    #[allow(clippy::too_many_arguments)]
    pub fn nested(
        &mut self,
        estimate: Estimate<'_>,
        psi: &Tensor,
        halves: [usize; 2],
        lambda: [&Tensor; 2],
        r: &Tensor,
        joint: bool,
        m: [&mut Tensor; 2],
    ) {
        let own = self.own(estimate, psi);
        let at = |t: &Tensor| Arg::U64(t.address());
        let arguments = [
            Arg::size(self.k),
            Arg::F64(halves[0] as f64),
            Arg::F64(halves[1] as f64),
            Arg::F64(estimate.drawn as f64),
            Arg::F64(estimate.points as f64),
            Arg::F64(estimate.trace),
            Arg::I32(i32::from(joint)),
            at(estimate.gram),
            own,
            at(lambda[0]),
            at(lambda[1]),
            at(r),
            Arg::from(&self.control),
            Arg::from(&self.record),
            at(m[0]),
            at(m[1]),
        ];
        self.gpu.launch(compiled(), "nested", [1, 1, 1], BLOCK, 0, &arguments);
    }

    /// Ends a step: moves `theta` along `grad` unless this or an earlier step of the chunk was not finite.
    pub fn end(&mut self, rule: Rule, clip: Option<f32>, theta: &mut Tensor, grad: &Tensor, moments: &mut [Tensor; 2]) {
        let blocks = square_sums(self.gpu, grad, self.squares.pointer());
        let [squares, rates, control, current] =
            [&self.squares, &self.rates, &self.control, &self.current].map(Arg::from);
        let arguments = [Arg::I32(blocks as i32), squares, rates, control, current];
        self.gpu.launch(compiled(), "judge", [1, 1, 1], BLOCK, 0, &arguments);
        let (norm, [m, v]) = (self.current.pointer(), moments);
        update_at(self.gpu, rule, norm + 4, clip, norm, theta, grad, m, v);
    }
}

/// The rates and corrections of the steps `first, first + 1, …` (counted from zero) with these learning rates.
pub fn rates(rule: Rule, first: u64, learning: impl Iterator<Item = f64>) -> Vec<f32> {
    learning.zip(first + 1..).flat_map(|(eta, t)| scalars(rule, eta as f32, t)).collect()
}

/// Columns `part` of `[k, B, c]` values as a matrix `[k, part]`.
fn columns(t: &Tensor, part: &Range<usize>) -> Matrix {
    let row_stride = t.shape()[1] * t.shape()[2];
    Matrix { pointer: t.address() + 4 * part.start as u64, row_stride, stride: 0, transposed: Transposed::No }
}

fn square(m: &Tensor) -> Matrix {
    Matrix { pointer: m.address(), row_stride: m.shape()[1], stride: 0, transposed: Transposed::No }
}

/// `out_ij = mean_{b in part} a_ib b_jb`; `a`, `b` `[k, B, c]`, `out` `[k, k]`.
pub fn form(gpu: &'static Gpu, a: &Tensor, b: &Tensor, part: Range<usize>, out: &mut Tensor) {
    let k = a.shape()[0];
    let turned = Matrix { transposed: Transposed::Yes, ..columns(b, &part) };
    gpu.gemm_f32([k, part.len(), k], 1, 1.0 / part.len() as f32, columns(a, &part), turned, 0.0, square(out));
}

/// `out_jb = Σ_i M_ji t_ib` for `b` in `part`, or that added; `m` `[k, k]`, `t`, `out` `[k, B, c]`.
pub fn mix(gpu: &'static Gpu, m: &Tensor, t: &Tensor, part: Range<usize>, add: bool, out: &mut Tensor) {
    let k = t.shape()[0];
    let beta = if add { 1.0 } else { 0.0 };
    gpu.gemm_f32([k, k, part.len()], 1, 1.0, square(m), columns(t, &part), beta, columns(out, &part));
}

/// `out = (alpha) ψ G` for symmetric `G` `[B, B]`; `psi`, `out` `[k, B, 1]`.
pub fn image(gpu: &'static Gpu, alpha: f32, psi: &Tensor, gram: &Tensor, out: &mut Tensor) {
    let (k, b) = (psi.shape()[0], gram.shape()[0]);
    let all = 0..b;
    gpu.gemm_f32([k, b, b], 1, alpha, columns(psi, &all), square(gram), 0.0, columns(out, &all));
}
