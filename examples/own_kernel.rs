//! A kernel written outside the crate: its formula, once, over any type of number. It then works in sums and products, in every
//! method and estimator, in single and double precision. `cargo run --release -p mercer --example own_kernel`

use mercer::apply::{Fit, Predict, Ridge};
use mercer::data::generate;
use mercer::kernel::{Formula, Kernel, Kind, Pair, Parameter, Statistic};
use mercer::{FitContext, Num, operator::Precision};

/// The rational quadratic kernel `(1 + ‖x−x'‖²/2ℓ²)⁻¹`, a mixture of RBF kernels of all lengthscales.
#[derive(Clone, Debug, PartialEq)]
struct RationalQuadratic {
    lengthscale: f64,
}

impl Formula for RationalQuadratic {
    const NAME: &'static str = "rational-quadratic";
    const HELP: &'static str = "1/(1 + ‖x−x'‖²/(2·lengthscale²))";
    const PARAMETERS: &'static [Parameter] = &[Parameter::new("lengthscale", 1.0, Kind::Positive, "ℓ")];
    const STATISTIC: Statistic = Statistic::SquaredDistance;

    fn arguments(&self) -> Vec<String> {
        vec![format!("lengthscale={}", self.lengthscale)]
    }

    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        let one = R::of(1.0);
        one / (one + pair.s * R::of(0.5 / (self.lengthscale * self.lengthscale)))
    }
}

fn main() -> mercer::Result<()> {
    let (train, test) = generate::moons(400, 0.15, 0)?.split(0.5, 0)?;
    let (x, new) = (train.x.to_f64(), test.x.to_f64());
    let (y, truth) = (train.y.as_ref().expect("has classes"), test.y.as_ref().expect("has classes"));
    let own = Kernel::from_formula(RationalQuadratic { lengthscale: 0.5 });
    let sum = Kernel::Sum(vec![own.clone(), Kernel::parse("0.1*linear")?]);
    for kernel in [own, sum] {
        for precision in [Precision::F64, Precision::F32] {
            let context = FitContext { precision, ..FitContext::default() };
            let fitted = Ridge::new(kernel.clone()).fit(x.view(), y, &context)?;
            let accuracy = fitted.accuracy(new.view(), truth)?;
            println!("{kernel} in {precision:?}: {:.1} % of the classes are right", 100.0 * accuracy);
            assert!(accuracy > 0.95);
        }
    }
    Ok(())
}
