//! Broken files of every kind: random bytes, valid files cut short, bits turned, pieces put in. A reader may refuse or
//! accept them, but it never panics, never allocates what only a header promises, and never lets a bad value through.

#[path = "common/files.rs"]
mod files;

use files::{Scratch, gzip, idx, npy, npz, target, written};
use mercer::data::{Dataset, ReadOptions, Target, open};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Remembers the largest piece of memory that was ever asked for.
struct Watch;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Watch {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Ordering::Relaxed);
        unsafe { System.realloc(ptr, layout, size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static WATCH: Watch = Watch;

/// The files below are a few kilobytes, and gzip unpacks a byte to a thousand at most.
const MOST_MEMORY: usize = 64 << 20;

/// What befalls a file.
#[derive(Clone, Debug)]
enum Damage {
    Replace(Vec<u8>),
    KeepStart(Index, Vec<u8>),
    Cut(Index),
    Flip(Vec<(Index, u8)>),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
}

impl Damage {
    fn strategy() -> impl Strategy<Value = Damage> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
        prop_oneof![
            bytes().prop_map(Damage::Replace),
            (any::<Index>(), bytes()).prop_map(|(at, b)| Damage::KeepStart(at, b)),
            any::<Index>().prop_map(Damage::Cut),
            proptest::collection::vec((any::<Index>(), any::<u8>()), 1..6).prop_map(Damage::Flip),
            (any::<Index>(), bytes()).prop_map(|(at, b)| Damage::Insert(at, b)),
            (any::<Index>(), 1..40usize).prop_map(|(at, k)| Damage::Remove(at, k)),
        ]
    }

    fn apply(&self, valid: &[u8]) -> Vec<u8> {
        // Half of the places fall into the first hundred bytes, where the headers are.
        let place = |at: &Index| {
            let i = at.index(2 * valid.len());
            if i < valid.len() { i } else { i % valid.len().min(100) }
        };
        let mut bytes = valid.to_vec();
        match self {
            Damage::Replace(other) => bytes.clone_from(other),
            Damage::KeepStart(at, other) => {
                bytes.truncate(place(at));
                bytes.extend(other);
            }
            Damage::Cut(at) => bytes.truncate(at.index(valid.len())),
            Damage::Flip(flips) => flips.iter().for_each(|(at, mask)| bytes[place(at)] ^= mask),
            Damage::Insert(at, other) => drop(bytes.splice(place(at)..place(at), other.iter().copied())),
            Damage::Remove(at, k) => drop(bytes.drain(place(at)..(place(at) + k).min(valid.len()))),
        }
        bytes
    }
}

/// What every accepted set must be.
fn assert_sound(set: &Dataset) {
    assert!(set.n() > 0 && set.d() > 0);
    assert!(set.x.to_f64().is_standard_layout() && set.x.to_f64().iter().all(|v| v.is_finite()));
    assert_eq!(set.columns.len(), set.d());
    assert!(set.shape.is_none_or(|[c, h, w]| c * h * w == set.d()));
    match &set.y {
        None => {}
        Some(Target::Values(values)) => assert!(values.len() == set.n() && values.iter().all(|v| v.is_finite())),
        Some(Target::Classes { labels, names }) => {
            assert!(labels.len() == set.n() && labels.iter().all(|&l| l < names.len()));
        }
    }
}

/// Damages `valid` in many ways and reads it under `name`; where `whole` is set, a cut file must be refused.
fn fuzz(name: &str, valid: &[u8], whole: bool) {
    let scratch = Scratch::new();
    assert_sound(&scratch.read(name, valid).expect("the undamaged file is read"));
    let options = [ReadOptions::default(), target("-1"), target("a")];
    let mut runner = TestRunner::new(Config { cases: 600, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&(Damage::strategy(), 0..options.len()), |(damage, option)| {
        match scratch.read_with(name, damage.apply(valid), &options[option]) {
            Ok(set) => {
                assert_sound(&set);
                prop_assert!(!(whole && matches!(damage, Damage::Cut(_))), "a cut file was accepted");
            }
            Err(e) => prop_assert!(!e.to_string().is_empty() && e.to_string().len() < 2000, "{}", e),
        }
        prop_assert!(LARGEST.load(Ordering::Relaxed) < MOST_MEMORY, "asked for too much memory");
        Ok(())
    });
    if let Err(e) = outcome {
        panic!("{name}: {e}");
    }
}

const TABLE: &str = "a,b,kind\n1,2.5,7\n-3e2,4,8\n0.001,5,9\n6,-7,10\n";

#[test]
fn arrays_survive_damage() {
    let array = written(&ndarray::Array2::from_shape_fn((12, 5), |(i, j)| i as f64 - 0.5 * j as f64));
    fuzz("a.npy", &array, true);
    fuzz("a.npy.gz", &gzip(&array), true);
    fuzz("a.npz", &npz(false), true);
    fuzz("b.npz", &npz(true), true);
}

#[test]
fn tables_survive_damage() {
    fuzz("a.csv", TABLE.as_bytes(), false);
    fuzz("b.csv", TABLE.replace(',', ";").as_bytes(), false);
    fuzz("a.csv.gz", &gzip(TABLE), true);
}

#[test]
fn images_survive_damage() {
    let images = idx(&[5, 4, 3], &(0..60).collect::<Vec<u8>>());
    fuzz("a.idx", &images, true);
    fuzz("a-idx3-ubyte.gz", &gzip(&images), true);
    let label_or_pixel = |i: usize| if i.is_multiple_of(3073) { (i / 3073) as u8 } else { (i % 251) as u8 };
    let cifar: Vec<u8> = (0..2 * 3073).map(label_or_pixel).collect();
    fuzz("a.bin", &cifar, false);
    fuzz("a.bin.gz", &gzip(&cifar), true);
}

/// A table of 40 rows in two row groups: a number, a number that may be missing, a whole number.
#[cfg(feature = "parquet")]
fn parquet(compressed: bool) -> Vec<u8> {
    use files::tables::{Group, column, file};
    use parquet::basic::Compression;
    use parquet::data_type::{DoubleType, FloatType, Int32Type};
    let group = |g: i32| {
        move |group: &mut Group| {
            let a: Vec<f64> = (0..20).map(|i| f64::from(i + g) * 0.25).collect();
            column::<DoubleType>(group, &a, None);
            column::<FloatType>(group, &a.iter().map(|&v| v as f32).collect::<Vec<_>>(), Some(&[1; 20]));
            column::<Int32Type>(group, &(0..20).map(|i| i % 3).collect::<Vec<_>>(), None);
        }
    };
    let compression = if compressed { Compression::SNAPPY } else { Compression::UNCOMPRESSED };
    file("REQUIRED DOUBLE a; OPTIONAL FLOAT b; REQUIRED INT32 kind;", compression, &[&group(0), &group(1)])
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_survives_damage() {
    fuzz("a.parquet", &parquet(false), true);
    fuzz("b.parquet", &parquet(true), true);
}

/// Headers that are well formed and promise anything at all.
#[test]
fn promises_do_not_allocate() {
    let scratch = Scratch::new();
    let mut runner = TestRunner::new(Config { cases: 500, failure_persistence: None, ..Config::default() });
    let size = prop_oneof![0..20u64, any::<u32>().prop_map(u64::from), any::<u64>()];
    let dims = proptest::collection::vec(size, 1..5);
    let outcome = runner.run(&(dims, any::<bool>(), 0..200usize), |(dims, packed, length)| {
        let shape: String = dims.iter().map(|d| format!("{d}, ")).collect();
        let fortran = if packed { "True" } else { "False" };
        let header = format!("{{'descr': '<f8', 'fortran_order': {fortran}, 'shape': ({shape})}}");
        let content = vec![0; length];
        let sizes: Vec<u32> = dims.iter().map(|&d| d as u32).collect();
        for (name, bytes) in [("a.npy", npy(&header, &content)), ("a.idx", idx(&sizes, &content))] {
            let (name, bytes) = if packed { (format!("{name}.gz"), gzip(&bytes)) } else { (name.into(), bytes) };
            if let Ok(set) = scratch.read(&name, bytes) {
                assert_sound(&set);
            }
        }
        prop_assert!(LARGEST.load(Ordering::Relaxed) < MOST_MEMORY, "asked for too much memory");
        Ok(())
    });
    outcome.unwrap();
}

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
