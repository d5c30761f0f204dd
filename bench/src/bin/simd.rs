//! Milliseconds of each function on ten million f32 (and f64) numbers, on one thread, for each instruction set:
//! `cargo run --release -p mercer-bench --bin simd`

use mercer::simd::{Lane, Level, Num, SimdJob, dispatch_at};
use std::time::Instant;

macro_rules! job {
    ($name:ident, $t:ty, $method:ident) => {
        struct $name<'a>(&'a [$t], &'a mut [$t]);
        impl SimdJob for $name<'_> {
            type Output = ();
            #[inline(always)]
            fn run<const FMA: bool>(self) {
                for (y, &x) in self.1.iter_mut().zip(self.0) {
                    *y = Lane::<$t, FMA>(x).$method().0;
                }
            }
        }
    };
}

macro_rules! measure {
    ($t:ty, $($method:ident $scale:expr),*) => {$({
        job!(Job, $t, $method);
        let n = 10_000_000;
        let x: Vec<$t> = (0..n).map(|i| ((i % 2000) as $t / 2000.0 - 0.5) * $scale).collect();
        let mut y = vec![0.0; n];
        print!("{:5} {:5}", stringify!($t), stringify!($method));
        for level in [Level::Baseline, Level::Avx2, Level::Avx512] {
            let best = (0..5).map(|_| {
                let start = Instant::now();
                dispatch_at(level, Job(&x, &mut y));
                start.elapsed().as_secs_f64() * 1e3
            }).fold(f64::INFINITY, f64::min);
            print!("  {level:?} {best:6.1} ms");
        }
        println!("   (sum {:.3})", y.iter().map(|&v| f64::from(v)).sum::<f64>());
    })*};
}

fn main() {
    println!("best level here: {:?}", Level::best());
    measure!(f32, abs 1.0, exp 20.0, sin 20.0, cos 20.0, tanh 8.0, erf 8.0, acos 1.99);
    measure!(f64, abs 1.0, exp 20.0, sin 20.0, cos 20.0, tanh 8.0, erf 8.0, acos 1.99);
}
