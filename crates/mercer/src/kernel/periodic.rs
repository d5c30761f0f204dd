//! The periodic kernel.

use super::lift::{Circles, Lift};
use super::parameter::one_for_each;
use super::{Formula, Kind, Median, Pair, Parameter, Result, Statistic, Value, text};
use crate::simd::Num;
use crate::special::normal_cdf;
use std::f64::consts::TAU;
use std::sync::Arc;

/// `κ(x,x') = exp(−2 Σ_i sin²(π(x_i−x'_i)/p_i) / ℓ²)`
///
/// With `φ(x) = (cos(2πx/p), sin(2πx/p))`, `2 sin²(π(x−x')/p) = ½‖φ(x)−φ(x')‖²` in each coordinate: the
/// periodic kernel is the RBF kernel of the lifted points. With a lengthscale for each column the term of column i is divided by its ℓ_i².
#[derive(Clone, Debug, PartialEq)]
pub struct Periodic {
    /// p, where `periods` does not have one for each column.
    pub(crate) period: f64,
    pub(crate) lengthscale: f64,
    /// The period of each column.
    pub(crate) periods: Option<Arc<[f64]>>,
    /// The lengthscale of each column.
    pub(crate) columns: Option<Arc<[f64]>>,
}

const PERIOD: Parameter = Parameter::new(
    "period",
    1.0,
    Kind::Period,
    "distance after which it repeats, in the unit of the column; [1, 7]: that of each column",
);

const SMOOTHNESS: Parameter = Parameter::new(
    "lengthscale",
    1.0,
    Kind::Lengthscale,
    "smoothness within a period; [1, 2]: that of each column; auto, ard: from the data; median: 1",
);

impl Formula for Periodic {
    const NAME: &'static str = "periodic";
    const HELP: &'static str = "exp(−2·Σ sin²(π(x_i−x'_i)/period) / lengthscale²)";
    const PARAMETERS: &'static [Parameter] = &[PERIOD, SMOOTHNESS];
    const STATISTIC: Statistic = Statistic::SquaredDistance;
    const SHIFT_INVARIANT: bool = true;
    const MEDIAN: Median = Median::One;

    fn from_arguments(arguments: &[Option<Value>], inputs: Option<usize>) -> Result<Self> {
        let [period, lengthscale] = arguments else { unreachable!("one argument for each parameter") };
        Ok(Periodic {
            period: PERIOD.number(period),
            lengthscale: SMOOTHNESS.number(lengthscale),
            periods: one_for_each(Self::NAME, &PERIOD, period, inputs)?,
            columns: one_for_each(Self::NAME, &SMOOTHNESS, lengthscale, inputs)?,
        })
    }

    fn arguments(&self) -> Vec<String> {
        let period = match &self.periods {
            Some(each) => format!("period={}", text::list(each)),
            None => format!("period={}", text::written(self.period)),
        };
        [Some(period), text::argument(self, SMOOTHNESS.name, self.lengthscale)].into_iter().flatten().collect()
    }

    fn columns(&self) -> Option<&[f64]> {
        self.columns.as_deref()
    }

    #[inline(always)]
    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        (pair.s * R::of(-0.5 / (self.lengthscale * self.lengthscale))).exp()
    }

    fn lift(&self, _d: usize) -> Lift<'_> {
        let (periods, lengthscales) = (self.periods.as_deref(), self.columns.as_deref());
        Lift::Circles(Circles { period: self.period, periods, lengthscales })
    }

    /// In each coordinate `exp(a(cos t − 1)) = Σ_{m∈Z} e^{−a} I_m(a) e^{imt}` with `a = 1/ℓ²`, `t = 2π(x−x')/p`: the
    /// frequencies are the harmonics `2πm/p`, drawn with probability `e^{−a} I_m(a)` by their quantile at `Φ(z)`.
    fn frequency(&self, normals: &mut [f64]) {
        let weights_at = |lengthscale: f64| scaled_bessel(1.0 / (lengthscale * lengthscale));
        let mut weights = weights_at(self.lengthscale);
        let period_of = |column: usize| self.periods.as_ref().map_or(self.period, |each| each[column]);
        for (column, z) in normals.iter_mut().enumerate() {
            if let Some(each) = &self.columns {
                weights = weights_at(each[column]);
            }
            let u = normal_cdf(*z);
            // Φ(z) below one half gives −m, above it m: each of the two holds I_m, and half of m = 0.
            let (sign, mut rest) = if u < 0.5 { (-1.0, 0.5 - u) } else { (1.0, u - 0.5) };
            rest -= 0.5 * weights[0];
            let mut m = 0;
            while rest > 0.0 && m + 1 < weights.len() {
                m += 1;
                rest -= weights[m];
            }
            *z = sign * TAU * m as f64 / period_of(column);
        }
    }
}

/// `e^{−a} I_m(a)` for m = 0, 1, … until it vanishes, by Miller's downward recurrence
/// `I_{m−1} = I_{m+1} + (2m/a) I_m`, normalised by `I_0 + 2 Σ I_m = e^a`.
fn scaled_bessel(a: f64) -> Vec<f64> {
    let top = 20 + (2.0 * a + 12.0 * a.sqrt()).min(1e5) as usize;
    let mut i = vec![0.0; top + 2];
    i[top] = 1e-280;
    for m in (1..=top).rev() {
        i[m - 1] = i[m + 1] + 2.0 * m as f64 / a * i[m];
        if i[m - 1] > 1e250 {
            i[m - 1..].iter_mut().for_each(|v| *v *= 1e-250);
        }
    }
    let total = i[0] + 2.0 * i[1..].iter().sum::<f64>();
    i.iter().map(|v| v / total).collect()
}

#[cfg(test)]
mod tests {
    use super::scaled_bessel;

    #[test]
    fn bessel_values() {
        // e^{-1} I_0(1), I_1(1), I_2(1) and e^{-20} I_0(20), from tables.
        let w = scaled_bessel(1.0);
        assert!((w[0] - 0.465_759_607_593_640_4).abs() < 1e-14);
        assert!((w[1] - 0.207_910_415_349_708_4).abs() < 1e-14);
        assert!((w[2] - 0.049_938_776_894_223_55).abs() < 1e-13);
        assert!((scaled_bessel(20.0)[0] - 0.089_780_311_884_826_73).abs() < 1e-13);
    }
}
