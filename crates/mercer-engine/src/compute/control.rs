//! The state of a sequence of optimization steps, kept on the device: the number of the step, its results, and whether all
//! numbers were finite. The host reads it once after many steps.

use super::cuda::control::{self as cuda, DeviceControl};
use super::cuda::gpu;
use super::small::{Small, Vector};
use super::tensor::{Device, Tensor};
use super::update::{Clip, Rule, check_lengths, update};
use super::{Indices, sum_squares};
use crate::Result;

/// What was not finite in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonFinite {
    /// The value of a function.
    Output = 1,
    /// The image of a function under an operator.
    Image = 2,
    /// The gradient.
    Gradient = 3,
    /// The loss, or a value recorded with it.
    Loss = 4,
    /// The solution of a linear-algebra problem.
    Problem = 5,
}

/// The state of a sequence of steps. From the first step on that is not finite, parameters and averages do not change.
#[derive(Debug)]
pub struct Control {
    steps: usize,
    values: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Host(Host),
    Cuda(DeviceControl),
}

#[derive(Debug)]
struct Host {
    step: usize,
    failure: Option<(usize, NonFinite)>,
    /// Learning rate, and the number of the step from one.
    rates: Vec<(f32, u64)>,
    record: Vec<f64>,
    /// `[1]`: the squared norm of the gradient.
    norm: Tensor,
}

/// What a sequence of steps found.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The first step that was not finite (from zero), and what was not.
    pub failure: Option<(usize, NonFinite)>,
    /// `[steps][1 + values]`: loss and values of each step; meaningful for the steps before a failure.
    pub record: Vec<f64>,
}

impl Control {
    /// For at most `steps` steps, each of which records a loss and `values` values.
    pub fn new(device: Device, steps: usize, values: usize) -> Result<Control> {
        let state = match device {
            Device::Cpu => State::Host(Host {
                step: 0,
                failure: None,
                rates: vec![],
                record: vec![0.0; steps * (1 + values)],
                norm: Tensor::zeros(device, &[1])?,
            }),
            Device::Cuda(ordinal) => State::Cuda(DeviceControl::new(gpu(ordinal)?, steps, values)?),
        };
        Ok(Control { steps, values, state })
    }

    /// Starts a sequence: the next step is the first one, and none has failed. The optimizer has made `made` steps with
    /// `rule`; `learning` gives the rates of the next ones, at most as many as there is room for.
    pub fn start(&mut self, rule: Rule, made: u64, learning: impl Iterator<Item = f64>) {
        let rates: Vec<(f32, u64)> = learning.take(self.steps).map(|eta| eta as f32).zip(made + 1..).collect();
        match &mut self.state {
            State::Host(host) => (host.step, host.failure, host.rates) = (0, None, rates),
            State::Cuda(device) => device.start(rule, &rates),
        }
    }

    /// Waits for the device and reads what `steps` steps found.
    pub fn report(&self, steps: usize) -> Result<Report> {
        let length = steps * (1 + self.values);
        match &self.state {
            State::Host(host) => Ok(Report { failure: host.failure, record: host.record[..length].to_vec() }),
            State::Cuda(device) => device.report(length),
        }
    }

    /// Notes what is not finite among `matrices`, the first one first.
    pub fn check_finite<const N: usize>(&mut self, matrices: [(&Small, NonFinite); N]) {
        if let State::Cuda(device) = &self.state {
            return cuda::check_finite(device, &matrices);
        }
        for (matrix, what) in matrices {
            if matrix.host().iter().any(|v| !v.is_finite()) {
                self.note(what);
            }
        }
    }

    /// Records the loss `[1, 1]` and the values of a step that has not failed; if one is not finite, notes [`NonFinite::Loss`].
    pub fn record(&mut self, loss: &Small, values: Vector<'_>) {
        assert!(loss.shape() == [1, 1] && values.len == self.values, "a record of {} values", self.values);
        let host = match &mut self.state {
            State::Cuda(device) => return cuda::record(device, loss, values),
            State::Host(host) => host,
        };
        let row: Vec<f64> = loss.host().iter().chain(values.host()).copied().collect();
        if !row.iter().all(|v| v.is_finite()) {
            return self.note(NonFinite::Loss);
        }
        if host.failure.is_none() {
            host.record[host.step * row.len()..][..row.len()].copy_from_slice(&row);
        }
    }

    /// Ends a step: moves `theta` along `gradient` by `rule`, with the gradient's norm bounded by `clip`, unless this or an
    /// earlier step was not finite. A gradient whose squared norm is not finite is noted.
    pub fn end_step(
        &mut self,
        rule: Rule,
        clip: Option<f32>,
        theta: &mut Tensor,
        gradient: &Tensor,
        [m, v]: &mut [Tensor; 2],
    ) {
        check_lengths(rule, theta, gradient, [m, v]);
        let host = match &mut self.state {
            State::Cuda(device) => return cuda::end_step(device, rule, clip, theta, gradient, [m, v]),
            State::Host(host) => host,
        };
        sum_squares(gradient, &mut host.norm);
        if host.failure.is_none() && !host.norm.host()[0].is_finite() {
            host.failure = Some((host.step, NonFinite::Gradient));
        }
        if host.failure.is_none() {
            let (eta, t) = host.rates[host.step];
            let clip = clip.map(|max_norm| Clip { max_norm, norm_squared: &host.norm });
            update(rule, eta, t, clip, theta, gradient, m, v);
        }
        host.step += 1;
    }

    /// `rows ← table_s` and `out ← x[rows]` for the step s; `table` `[steps, B]`, `rows` `[B]`, `x` `[n, d]`, `out` `[B, d]`.
    pub fn begin_step(&self, table: &Indices, x: &Tensor, rows: &mut Indices, out: &mut Tensor) -> Result<()> {
        let (b, d) = (rows.len(), x.shape()[1]);
        out.reshape(&[b, d])?;
        match &self.state {
            State::Cuda(device) => {
                cuda::begin_step(device, table, x, rows, out);
                Ok(())
            }
            State::Host(host) => {
                rows.write(0, &table.host()[host.step * b..][..b]);
                super::gather(x, rows, out)
            }
        }
    }

    /// Notes that something was not finite in this step, unless an earlier failure was noted.
    pub(super) fn note(&mut self, what: NonFinite) {
        match &mut self.state {
            State::Host(host) => drop(host.failure.get_or_insert((host.step, what))),
            State::Cuda(_) => unreachable!("kernels note failures on a GPU"),
        }
    }

    /// Whether this or an earlier step was not finite; on a GPU only kernels know.
    pub(super) fn failed(&self) -> bool {
        match &self.state {
            State::Host(host) => host.failure.is_some(),
            State::Cuda(_) => unreachable!("kernels see failures on a GPU"),
        }
    }

    /// Where the control words lie on a GPU: the step, the first failed step from one (0: none), what failed.
    pub fn address(&self) -> u64 {
        match &self.state {
            State::Host(_) => panic!("a control on the CPU was used on a GPU"),
            State::Cuda(device) => device.address(),
        }
    }
}
