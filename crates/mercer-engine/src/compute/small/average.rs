//! Moving averages.

use super::Small;
use crate::compute::control::Control;
use crate::compute::cuda::{Arg, Buffer, args, small as cuda};
use crate::compute::tensor::{Device, Tensor};
use crate::compute::{axpy, scale};
use crate::{Result, fail_if};
use ndarray::Array2;

/// A moving average `v̄ ← β v̄ + (1 − β) v` that starts at its first value.
#[derive(Debug)]
pub struct Average {
    decay: f64,
    value: Small,
    state: State,
}

#[derive(Debug)]
enum State {
    Host {
        begun: bool,
        /// How much of the old value stayed at the last update, and how much the new one counted.
        shares: [f32; 2],
    },
    /// The same as one word and two floats.
    Cuda(Buffer),
}

impl Average {
    /// Of matrices of this shape; the share `decay` (β) of the old value stays at each update.
    pub fn new(device: Device, decay: f64, shape: [usize; 2]) -> Result<Average> {
        let value = Small::zeros(device, shape)?;
        let state = match value.gpu() {
            None => State::Host { begun: false, shares: [1.0, 0.0] },
            Some(gpu) => State::Cuda(super::allocate(gpu, 2)?),
        };
        let mut average = Average { decay, value, state };
        average.set(None)?;
        Ok(average)
    }

    /// β
    pub fn decay(&self) -> f64 {
        self.decay
    }

    /// Takes a new value into account, unless this or an earlier step of `control` was not finite.
    pub fn update(&mut self, new: &Small, control: &Control) {
        new.expect(self.value.shape());
        match &mut self.state {
            State::Cuda(state) => {
                let [m, n] = new.shape();
                let arguments = args![Arg::size(m * n), self.decay, new, control, state, self.value];
                cuda::one_block(state.gpu(), "average", m, &arguments);
            }
            State::Host { shares, .. } if control.failed() => *shares = [1.0, 0.0],
            State::Host { begun: begun @ false, shares } => {
                (*begun, *shares) = (true, [0.0, 1.0]);
                self.value.set(new.host().clone());
            }
            State::Host { shares, .. } => {
                *shares = [self.decay as f32, (1.0 - self.decay) as f32];
                let value = self.value.host() * self.decay + new.host() * (1.0 - self.decay);
                self.value.set(value);
            }
        }
    }

    /// The average; zero before the first update.
    pub fn value(&self) -> &Small {
        &self.value
    }

    /// Updates row `row` of `means` `[k, P]` with `new` `[P]`, with the weights of the last [`Average::update`].
    pub fn blend(&self, new: &Tensor, row: usize, means: &mut Tensor) -> Result<()> {
        let length = new.len();
        assert!((row + 1) * length <= means.len(), "row {row} of {:?} with {length} numbers", means.shape());
        match &self.state {
            State::Cuda(state) => {
                let mean = means.address() + 4 * (row * length) as u64;
                cuda::over(state.gpu(), "blend", length, &args![length, state.pointer() + 4, new, mean]);
            }
            State::Host { shares: [_, 0.0], .. } => {}
            State::Host { shares: [stays, counts], .. } => {
                let range = row * length..(row + 1) * length;
                let mut mean = Tensor::from_host(Device::Cpu, &[length], &means.host()[range])?;
                if *stays == 0.0 {
                    mean.host_mut().copy_from_slice(new.host());
                } else {
                    scale(*stays, &mut mean);
                    axpy(*counts, new, &mut mean);
                }
                means.write(row * length, mean.host());
            }
        }
        Ok(())
    }

    /// The average on the host, `None` before the first update; waits for the device.
    pub fn get(&self) -> Result<Option<Array2<f64>>> {
        let begun = match &self.state {
            State::Host { begun, .. } => *begun,
            State::Cuda(state) => {
                let mut word = [0u32];
                state.read(0, &mut word)?;
                word[0] != 0
            }
        };
        begun.then(|| self.value.to_host()).transpose()
    }

    /// Continues from an average, or starts anew. An average of another shape, as a damaged checkpoint may hold, is an error.
    pub fn set(&mut self, value: Option<&Array2<f64>>) -> Result<()> {
        if let Some(value) = value {
            let ([m, n], (rows, columns)) = (self.value.shape(), value.dim());
            fail_if!([rows, columns] != [m, n], "a moving average of {rows}×{columns} numbers was given, not {m}×{n}");
            self.value.copy_from_host(value);
        }
        match &mut self.state {
            State::Host { begun, shares } => (*begun, *shares) = (value.is_some(), [1.0, 0.0]),
            State::Cuda(state) => state.write(0, &[u32::from(value.is_some()), 1.0f32.to_bits(), 0]),
        }
        Ok(())
    }
}
