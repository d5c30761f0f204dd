//! Pooling layers: the largest number or the mean of each window of an image.

use super::{Facts, Gradient, Layer, Part, Pass, Trace, Weights};
use crate::Result;
use crate::compute::{self, Pool, Tensor};

/// Windows side by side, each turned into one number.
#[derive(Clone, Debug)]
pub struct Pooling {
    pub pool: Pool,
    /// Whether the largest number of each window is taken, not the mean.
    pub max: bool,
}

impl Layer for Pooling {
    fn facts(&self) -> Facts {
        let outputs = self.pool.image[0] * self.pool.out().iter().product::<usize>();
        Facts { outputs, sees_images: true, ..Facts::default() }
    }

    fn part(&self) -> Part<'_> {
        if self.max { Part::Other } else { Part::Mean(self.pool) }
    }

    fn forward(&self, _: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        if self.max {
            trace.slope.reshape(trace.y.shape())?;
            compute::max_pool(&self.pool, x, &mut trace.y, &mut trace.slope);
        } else {
            compute::average_pool(&self.pool, x, &mut trace.y);
        }
        Ok(())
    }

    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, _: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()> {
        let trace = pass.trace;
        match dx {
            Some(dx) if self.max => compute::max_pool_vjp(&self.pool, &trace.slope, g, dx),
            Some(dx) => compute::average_pool_vjp(&self.pool, g, dx),
            None => {}
        }
        Ok(())
    }

    fn jvp(&self, pass: Pass<'_>, _: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()> {
        let trace = pass.trace;
        match dx {
            Some(dx) if self.max => compute::max_pool_jvp(&self.pool, &trace.slope, dx, t),
            Some(dx) => compute::average_pool(&self.pool, dx, t),
            None => compute::fill(t, 0.0),
        }
        Ok(())
    }
}
