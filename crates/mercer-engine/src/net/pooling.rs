//! Pooling layers: the largest number or the mean of each window of an image.

use super::{Gradient, Layer, Pass, Trace, Weights};
use crate::Result;
use crate::compute::{self, Pool, Tensor};

/// What is taken of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolingKind {
    /// The largest number.
    Max,
    /// The mean; of the whole plane, where the window is the plane.
    Average,
}

/// Windows side by side, each turned into one number.
#[derive(Clone, Debug)]
pub struct Pooling {
    /// The geometry.
    pub pool: Pool,
    /// What is taken.
    pub kind: PoolingKind,
}

impl Layer for Pooling {
    fn outputs(&self) -> usize {
        self.pool.image[0] * self.pool.out().iter().product::<usize>()
    }

    fn sees_images(&self) -> bool {
        true
    }

    fn forward(&self, _: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        if self.kind == PoolingKind::Max {
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
            Some(dx) if self.kind == PoolingKind::Max => compute::max_pool_vjp(&self.pool, &trace.slope, g, dx),
            Some(dx) => compute::average_pool_vjp(&self.pool, g, dx),
            None => {}
        }
        Ok(())
    }

    fn jvp(&self, pass: Pass<'_>, _: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()> {
        let trace = pass.trace;
        match dx {
            Some(dx) if self.kind == PoolingKind::Max => compute::max_pool_jvp(&self.pool, &trace.slope, dx, t),
            Some(dx) => compute::average_pool(&self.pool, dx, t),
            None => compute::fill(t, 0.0),
        }
        Ok(())
    }
}
