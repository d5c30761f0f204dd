//! Vectors of a panel in single precision, as networks take them.

use super::Panel;
use crate::Result;
use crate::compute::Storage::{Cuda, Host};
use crate::compute::Tensor;
use crate::compute::cuda::panel as cuda;

impl Panel {
    /// `factor` times one vector in single precision, `[n]`, on the same device.
    pub fn rounded(&self, column: usize, factor: f64) -> Result<Tensor> {
        assert!(column < self.b, "there is no vector {column} of {}", self.b);
        match &self.storage {
            Host(a) => {
                let rounded: Vec<f32> = a.column(column).iter().map(|v| (factor * v) as f32).collect();
                Tensor::from_host(self.device(), &[self.n], &rounded)
            }
            Cuda(a) => {
                let out = Tensor::zeros(self.device(), &[self.n])?;
                cuda::round_column([self.n, self.b], (a, column), factor, out.address());
                Ok(out)
            }
        }
    }

    /// Makes `factor` times the numbers `[n]`, on the same device, one of the vectors.
    pub fn put(&mut self, column: usize, factor: f64, values: &Tensor) {
        assert!(column < self.b, "there is no vector {column} of {}", self.b);
        assert_eq!(
            (self.n, self.device()),
            (values.len(), values.device()),
            "a number for each row, on the same device"
        );
        match &mut self.storage {
            Host(a) => {
                let targets = a.column_mut(column).into_iter().zip(values.host());
                targets.for_each(|(v, value)| *v = factor * f64::from(*value));
            }
            Cuda(a) => cuda::put_column([self.n, self.b], (a, column), factor, values.address()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn a_vector_is_rounded_and_put_back() {
        let mut v = Panel::from(array![[1.0, 2.0], [3.0, 4.0]]);
        let rounded = v.rounded(1, 0.5).unwrap();
        assert_eq!(rounded.host(), [1.0, 2.0]);
        v.put(0, 10.0, &rounded);
        assert_eq!(v.to_host().unwrap(), array![[10.0, 2.0], [20.0, 4.0]]);
    }
}
