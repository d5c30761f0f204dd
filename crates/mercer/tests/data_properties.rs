//! Laws of data sets: what is written comes back, and a split is a partition. `fuzz/` has the broken files.

#[path = "common/files.rs"]
mod files;

use files::Scratch;
use mercer::data::{Dataset, ReadOptions, Target, open};
use proptest::prelude::*;
use proptest::test_runner::Config;

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    /// What is written comes back, through every way of laying it out.
    #[test]
    fn tables_survive_a_round_trip(rows in proptest::collection::vec(proptest::array::uniform3(proptest::num::f64::NORMAL), 1..20)) {
        let scratch = Scratch::new();
        let x = ndarray::Array2::from_shape_fn((rows.len(), 3), |(i, j)| rows[i][j]);
        let text: String = rows.iter().map(|r| format!("{:e},{:?},{}\n", r[0], r[1], r[2])).collect();
        prop_assert_eq!(scratch.read("x.csv", text).unwrap().x.into_f64(), &x);
        let npy = scratch.0.path().join("x.npy");
        mercer::data::write_npy(&npy, x.view()).unwrap();
        prop_assert_eq!(open(npy.to_str().unwrap(), &ReadOptions::default()).unwrap().x.into_f64(), &x);
    }

    /// A split is a partition, and the seed decides it.
    #[test]
    fn splits_partition_the_rows(n in 2..300usize, fraction in 0.01..0.99f64, seed in any::<u64>()) {
        let x = ndarray::Array2::from_shape_fn((n, 1), |(i, _)| i as f64);
        let set = Dataset::new("rows", x, Some(Target::Values((0..n).map(|i| i as f64).collect()))).unwrap();
        let m = (fraction * n as f64).round() as usize;
        match set.split(fraction, seed) {
            Err(_) => prop_assert!(m == 0 || m == n),
            Ok((rest, held_out)) => {
                prop_assert_eq!(held_out.n(), m);
                let mut all: Vec<f64> = [rest.x.column(0), held_out.x.column(0)].concat();
                all.sort_by(f64::total_cmp);
                prop_assert_eq!(all, (0..n).map(|i| i as f64).collect::<Vec<_>>());
                prop_assert_eq!(held_out.y.as_ref().unwrap().values(), held_out.x.column(0));
                prop_assert_eq!(set.split(fraction, seed).unwrap(), (rest, held_out));
            }
        }
    }
}
