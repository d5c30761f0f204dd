//! What a fit takes, before it starts.

use super::passes::points_at_a_time;
use super::{Laplace, Method, fixed_mean, fixed_mean_loss};
use crate::Result;
use crate::classifier::Classifier;
use crate::net::ntk::EmpiricalNtk;
use serde::Serialize;

/// What a fit takes, estimated before it starts. Example: [`Laplace::cost`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Bytes of the largest arrays.
    pub bytes: u64,
    /// Multiply-adds of a fit.
    pub fit: f64,
    /// Multiply-adds of a prediction, in those of the network alone.
    pub predict: f64,
}

impl Laplace {
    /// An estimate of what a fit to `n` rows takes.
    ///
    /// ```
    /// use mercer::classifier::Classifier;
    /// use mercer::laplace::{Laplace, Method};
    /// let data = mercer::data::digits().with_classes()?;
    /// let network = Classifier::new("dense(100) relu dense(10)", &data, mercer::Device::Cpu, 0)?;
    /// let cost = Laplace::new(Method::LastLayer).cost(&network, data.n())?;
    /// assert!(cost.bytes > 1_010 * 1_010 * 8); // H is 1010×1010
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn cost(&self, network: &Classifier, n: usize) -> Result<Cost> {
        let (net, rows) = (&network.network, n);
        let [n, c, p, pass] = [n, net.outputs(), net.parameters(), net.multiply_adds()].map(|count| count as f64);
        let layers: Vec<[f64; 2]> = net.affine_layers().iter().map(|layer| layer.map(|units| units as f64)).collect();
        let sum = |of: fn([f64; 2]) -> f64| layers.iter().map(|layer| of(*layer)).sum::<f64>();
        let hidden = layers.last().map_or(0.0, |[inputs, _]| inputs + 1.0);
        let (weights, squares) = (sum(|[i, o]| i * o), sum(|[i, o]| i * i + o * o));
        // Derivatives of dense layers stay factors, those of convolutions are written out.
        let dense = pass <= weights;
        let kernel = |m: f64, c: f64| m * m * if dense { sum(|[i, _]| i) + c * sum(|[_, o]| o) } else { c * p };
        let functions = |order: f64| (32.0 * order * order, 10.0 * order.powi(3));
        let backward = (1.0 + 2.0 * c) * pass;
        // Of a batch that goes back from every output: cotangents [C, b, C] in both precisions, and signals of the widest layer.
        let batch = || -> Result<f64> {
            let b = points_at_a_time(&EmpiricalNtk::new(net, &network.parameters)?, net.outputs()).min(rows) as f64;
            let widest = layers.iter().fold(c, |m, [i, o]| m.max(if dense { i + o } else { i + o + i * o }));
            Ok(b * c * (12.0 * c + 8.0 * widest))
        };
        let (bytes, fit, predict) = match self.method {
            Method::Map | Method::Temperature => (0.0, n * pass, pass),
            Method::LastLayer => {
                let (bytes, algebra) = functions(hidden * c);
                (bytes, n * (pass + (c * hidden).powi(2) / 2.0) + algebra, pass + c * hidden * hidden)
            }
            Method::LastLayerKfac => {
                let factors = hidden * hidden + c * c;
                (
                    32.0 * factors,
                    n * (pass + factors) + 10.0 * (hidden.powi(3) + c.powi(3)),
                    pass + factors + hidden * c,
                )
            }
            Method::Kfac => {
                let rotations = if dense { squares } else { c * sum(|[i, o]| i * o * (i + o)) };
                let fit =
                    n * (backward + pass * c * squares / weights.max(1.0)) + 10.0 * sum(|[i, o]| i.powi(3) + o.powi(3));
                (8.0 * (3.0 * squares + weights) + batch()?, fit, backward + rotations + c * p)
            }
            Method::Diagonal => (32.0 * p + batch()?, n * (backward + c * p), backward + c * p),
            Method::Ella { samples, rank } => {
                let (m, k) = ((samples as f64).min(n), rank as f64);
                // Back from every output, or forward along every function, whichever are fewer.
                let along =
                    if c <= k { backward + k * p * if dense { 1.0 } else { c } } else { (1.0 + 2.0 * k) * pass };
                let fit = kernel(m, 1.0) + 10.0 * m.powi(3) + m * (3.0 * pass + k * p) + n * along;
                (12.0 * k * p + 32.0 * m * m + 8.0 * n * c * k, fit, along + c * k * k)
            }
            Method::Eigenfunctions { functions: k, rows } => {
                let (m, k) = ((rows as f64).min(n), k as f64);
                let (bytes, algebra) = functions(k * c);
                let units = sum(|[_, o]| o);
                let ritz = m * m * units + 10.0 * units.powi(3);
                let fit = kernel(m, c) + m * backward + ritz + n * (pass + (c * k).powi(2) / 2.0) + algebra;
                (bytes + 20.0 * m * m + 8.0 * n * units, fit, pass + units * k + c * k * k)
            }
            Method::FixedMean => (
                8.0 * n * hidden,
                n.min(fixed_mean::SEEN as f64) * pass,
                pass + sum(|[_, o]| o) + fixed_mean_loss::DRAWS as f64 * c,
            ),
        };
        Ok(Cost { bytes: (bytes + 8.0 * n * (hidden + 2.0 * c)) as u64, fit, predict: predict / pass.max(1.0) })
    }
}
