//! A kernel written outside the crate: its formula, once, over any type of number. It then works in sums and products, in every
//! method and estimator, in single and double precision, and models that hold it are saved and loaded.
//! `cargo run --release -p mercer --example own_kernel`

use mercer::apply::{Fit, FittedRidge, Predict, Ridge, Saved};
use mercer::data::generate;
use mercer::kernel::{Formula, Kernel, Kind, Pair, Parameter, Statistic, Value};
use mercer::{Device, FitContext, Num, Registry, operator::Precision};

/// The rational quadratic kernel `(1 + ‖x−x'‖²/2ℓ²)⁻¹`, a mixture of RBF kernels of all lengthscales.
#[derive(Clone, Debug, PartialEq)]
struct RationalQuadratic {
    lengthscale: f64,
}

impl Formula for RationalQuadratic {
    const NAME: &'static str = "rational_quadratic";
    const HELP: &'static str = "1/(1 + ‖x−x'‖²/(2·lengthscale²))";
    const PARAMETERS: &'static [Parameter] = &[Parameter::new("lengthscale", 1.0, Kind::Positive, "ℓ")];
    const STATISTIC: Statistic = Statistic::SquaredDistance;

    // The two halves of the kernel's name in expressions and files: `rational_quadratic(lengthscale=0.5)`.
    fn from_arguments(arguments: &[Option<Value>], _inputs: Option<usize>) -> mercer::Result<Self> {
        Ok(RationalQuadratic { lengthscale: Self::PARAMETERS[0].number(&arguments[0]) })
    }

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
    let registry = Registry::new().kernel::<RationalQuadratic>()?;
    let sum = registry.parse("rational_quadratic(0.5) + 0.1*linear")?;
    let file = std::env::temp_dir().join(format!("mercer-own-kernel-{}.mercer", std::process::id()));
    for kernel in [own, sum] {
        for precision in [Precision::F64, Precision::F32] {
            let context = FitContext { precision, ..FitContext::default() };
            let fitted = Ridge::new(kernel.clone()).fit(x.view(), y, &context)?;
            let accuracy = fitted.accuracy(new.view(), truth)?;
            println!("{kernel} in {precision:?}: {:.1} % of the classes are right", 100.0 * accuracy);
            assert!(accuracy > 0.95);
            // A file holds the kernel's name and numbers; the registry says what the name means.
            fitted.save(&file)?;
            let loaded = FittedRidge::load_with(&file, Device::Cpu, &registry)?;
            assert_eq!(loaded.predict(new.view())?, fitted.predict(new.view())?);
        }
    }
    // Without it, the error says which name is missing.
    println!("{}", FittedRidge::load(&file, Device::Cpu).err().expect("the kernel is not known"));
    std::fs::remove_file(&file).expect("it was written");
    Ok(())
}
