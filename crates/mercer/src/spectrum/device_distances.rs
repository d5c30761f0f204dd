//! The distances of k-means++ on a GPU.

use crate::Result;
use crate::compute::Device;
use crate::linalg::{Panel, Part};
use crate::operator::Operator;
use ndarray::{Array1, Array2, Axis};

/// Where k-means++ computes its distances: on the GPU that computes the kernel, if it sees points.
pub(super) fn seeding_device(operator: &dyn Operator) -> Device {
    let kernel = operator.kernel().filter(|kernel| !kernel.formula().sees_images());
    kernel.map_or(Device::Cpu, |kernel| kernel.runs_on())
}

/// The distances on the GPU that computes the kernel of the points.
pub(super) struct DeviceDistances {
    /// D² and `κ(x,x)`, `[n, 1]` each.
    distance: Panel,
    diagonal: Panel,
    roundoff: f64,
}

impl DeviceDistances {
    pub fn new(operator: &dyn Operator, diagonal: &Array1<f64>) -> Result<Option<Self>> {
        let device = seeding_device(operator);
        if device == Device::Cpu {
            return Ok(None);
        }
        let infinite = Array2::from_elem((operator.n(), 1), f64::INFINITY);
        Ok(Some(DeviceDistances {
            distance: Panel::from_host(device, infinite)?,
            diagonal: Panel::from_host(device, diagonal.clone().insert_axis(Axis(1)))?,
            roundoff: operator.roundoff(),
        }))
    }

    /// The distances `[n]` after those to the new landmarks.
    pub fn lower(&mut self, operator: &dyn Operator, diagonal: &Array1<f64>, new: &[usize]) -> Result<Vec<f64>> {
        let block = operator.block_panel(&Part::All, &Part::Rows(new), self.distance.device())?;
        let of_new: Vec<f64> = new.iter().map(|&j| diagonal[j]).collect();
        self.distance.lower_to_distances(&block, &self.diagonal, &of_new, 10.0 * self.roundoff)?;
        Ok(self.distance.to_host()?.into_raw_vec_and_offset().0)
    }
}
