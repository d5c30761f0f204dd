//! The CUDA implementation of [`crate::compute::Control`].

use super::gpu::Gpu;
use super::launch::{Arg, args};
use super::memory::Buffer;
use super::primitives::{scalars, square_sums, update_at};
use super::small::{one_block, over, vector};
use crate::Result;
use crate::compute::control::{NonFinite, Report};
use crate::compute::small::{Small, Vector};
use crate::compute::{Indices, Rule, Tensor};

/// The state of a sequence of steps in device memory.
#[derive(Debug)]
pub struct DeviceControl {
    gpu: &'static Gpu,
    values: usize,
    /// The step, the first that was not finite (from one), what was not: u32 `[4]`.
    words: Buffer,
    /// Learning rates and corrections: f32 `[steps, 3]`.
    rates: Buffer,
    /// The gradient's squared norm and the step's rates: f32 `[4]`.
    current: Buffer,
    /// Loss and values: f64 `[steps, 1 + values]`.
    record: Buffer,
    /// Partial sums of the gradient's squares.
    squares: Buffer,
}

impl DeviceControl {
    pub fn new(gpu: &'static Gpu, steps: usize, values: usize) -> Result<DeviceControl> {
        let bytes = |bytes: usize| gpu.allocate(bytes, &|| "the record of training".into(), "use a smaller batch");
        let mut words = bytes(16)?;
        words.zero(0, 16);
        Ok(DeviceControl {
            gpu,
            values,
            words,
            rates: bytes(12 * steps)?,
            current: bytes(16)?,
            record: bytes(8 * steps * (1 + values))?,
            squares: bytes(8 * 1024)?,
        })
    }

    pub fn start(&mut self, rule: Rule, rates: &[(f32, u64)]) {
        let rates: Vec<f32> = rates.iter().flat_map(|&(eta, t)| scalars(rule, eta, t)).collect();
        self.words.zero(0, 16);
        self.rates.write(0, &rates);
    }

    /// Reads `length` numbers of the record.
    pub fn report(&self, length: usize) -> Result<Report> {
        let (mut words, mut record) = ([0u32; 3], vec![0.0; length]);
        self.words.read(0, &mut words)?;
        self.record.read(0, &mut record)?;
        let what = match words[2] {
            1 => NonFinite::Output,
            2 => NonFinite::Image,
            3 => NonFinite::Gradient,
            4 => NonFinite::Loss,
            _ => NonFinite::Problem,
        };
        Ok(Report { failure: (words[1] > 0).then(|| (words[1] as usize - 1, what)), record })
    }

    pub fn address(&self) -> u64 {
        self.words.pointer()
    }
}

pub(in crate::compute) fn begin_step(
    control: &DeviceControl,
    table: &Indices,
    x: &Tensor,
    rows: &mut Indices,
    out: &mut Tensor,
) {
    let (b, d) = (rows.len(), x.shape()[1]);
    over(control.gpu, "begin_step", b * d, &args![b, d, control.words, table, rows, x, out]);
}

pub(in crate::compute) fn check_finite(control: &DeviceControl, matrices: &[(&Small, NonFinite)]) {
    for three in matrices.chunks(3) {
        let order = three.iter().map(|(matrix, _)| matrix.shape()[0]).max().unwrap_or(0);
        let mut arguments = args![control.words];
        for (matrix, what) in three {
            arguments.extend(args![Arg::size(matrix.shape().iter().product()), matrix, *what as i32]);
        }
        arguments.resize_with(10, || Arg::U64(0));
        one_block(control.gpu, "check_finite", order, &arguments);
    }
}

pub(in crate::compute) fn record(control: &DeviceControl, loss: &Small, values: Vector<'_>) {
    let arguments = args![Arg::size(control.values), loss, vector(values), control.words, control.record];
    one_block(control.gpu, "record_step", 1, &arguments);
}

pub(in crate::compute) fn end_step(
    control: &DeviceControl,
    rule: Rule,
    clip: Option<f32>,
    theta: &mut Tensor,
    gradient: &Tensor,
    [m, v]: [&mut Tensor; 2],
) {
    let gpu = control.gpu;
    let blocks = square_sums(gpu, gradient, control.squares.pointer());
    let arguments = args![blocks as i32, control.squares, control.rates, control.words, control.current];
    one_block(gpu, "end_step", 1, &arguments);
    let norm = control.current.pointer();
    update_at(gpu, rule, norm + 4, clip, norm, theta, gradient, m, v);
}
