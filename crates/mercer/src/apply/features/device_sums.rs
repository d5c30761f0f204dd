//! The sums of ridge regression on features, by the GPU that computes them.

use crate::apply::features::feature_map::DeviceFeatures;
use crate::apply::features::ridge_head::{BLOCK, Head, Sums};
use crate::compute::ledger::ran;
use crate::linalg::Panel;
use crate::{Error, Result};
use ndarray::{Array1, Array2, Axis, s};

impl Head<'_> {
    /// The sums over some rows, on the device of their features: one product of `√w (φ − shift, y, 1)` with itself has all of them.
    pub(crate) fn sums_on_device(&self, features: &DeviceFeatures, rows: &[usize]) -> Result<Sums> {
        /// Rows at a time: enough to fill a GPU.
        const MANY: usize = 4 * BLOCK;
        let (m, mut shift, mut sum) = (self.y.ncols(), None, None::<Panel>);
        for (i, few) in rows.chunks(MANY).enumerate() {
            let mut phi = features(few)?;
            let device = phi.device();
            let column = |values: Array1<f64>| Panel::from_host(device, values.insert_axis(Axis(1)));
            let ones = column(Array1::ones(few.len()))?;
            let mean =
                || Ok::<_, Error>(phi.t_matmul(&ones)? * (f64::from(u8::from(self.intercept)) / few.len() as f64));
            let shift = match &shift {
                Some(shift) => shift,
                None => shift.insert(mean()?),
            };
            phi.add_product(-1.0, &ones, shift.t())?;
            let beside = Panel::from_host(device, self.y.select(Axis(0), few))?.joined(&ones)?;
            let mut all = phi.joined(&beside)?;
            all.scale_rows(&column(self.weights_of(few).mapv(f64::sqrt))?);
            let product = all.t_times(&all)?;
            match &mut sum {
                Some(sum) => sum.axpy(&vec![1.0; all.ncols()], &product)?,
                None => sum = Some(product),
            }
            self.context.progress.step("ridge on features", (i * MANY + few.len()).min(rows.len()), rows.len(), "");
        }
        let (shift, all) = (shift.expect("there are rows"), sum.expect("there are rows").into_host()?);
        ran("passes over features", self.context.device, 1);
        let p = shift.nrows();
        let part =
            |rows: std::ops::Range<usize>, columns: std::ops::Range<usize>| all.slice(s![rows, columns]).to_owned();
        Ok(Sums {
            shift: shift.column(0).to_owned(),
            gram: part(0..p, 0..p),
            cross: part(0..p, p..p + m),
            phi: all.slice(s![..p, p + m]).to_owned(),
            y: all.slice(s![p..p + m, p + m]).to_owned(),
            total: all[[p + m, p + m]],
            product: Array2::default((0, 0)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FitContext;
    use crate::apply::Alpha;
    use crate::rng::Rng;

    /// The sums of panels are those of blocks of rows, with weights and an intercept or without.
    #[test]
    fn features_on_a_device_give_the_same_solution() {
        let mut rng = Rng::new(4);
        let mut random = |n: usize, m: usize| Array2::from_shape_simple_fn((n, m), || 3.0 + rng.normal());
        let (phi, y) = (random(300, 6), random(300, 2));
        let weights: Vec<f64> = random(300, 1).iter().map(|w| w.abs() + 0.1).collect();
        let context = FitContext::default();
        let at_rows = |rows: &[usize]| Ok(phi.select(Axis(0), rows));
        for (intercept, weights) in [(true, Some(&weights[..])), (false, None), (true, None)] {
            let head = |on_device| Head {
                features: &at_rows,
                combined: None,
                on_device,
                y: y.view(),
                weights,
                intercept,
                context: &context,
            };
            let panels: DeviceFeatures = Box::new(|rows: &[usize]| Ok(at_rows(rows)?.into()));
            let [want, got] = [None, Some(&panels)].map(|on_device| head(on_device).solve(Alpha::Fixed(0.3)).unwrap());
            let off =
                (&want.weights - &got.weights).mapv(f64::abs).sum() + (&want.offset - &got.offset).mapv(f64::abs).sum();
            assert!(off < 1e-9, "{intercept}: {off}");
        }
    }
}
