//! Data that stay in their file: the same schema, features and fits as in memory, and each way in which a file can be unfit.

mod common;
#[path = "common/files.rs"]
mod files;

use common::*;
use files::Scratch;
use mercer::apply::{Alpha, ClassWeights, FeatureLogistic, FeatureMap, FeatureRidge, Fit, FittedFeatureRidge, Predict};
use mercer::data::{
    BlockDataset, BlockOptions, Dataset, Matrix, Missing, ReadOptions, Scaling, Schema, Table, TableBlocks, Target,
    Task, write_npy,
};
use mercer::group::on_threads;
use mercer::spectrum::{BlockProblem, Fourier, Landmarks, Nystrom, Sampling};
use mercer::{Group, Result, Silent};

fn with_target(target: &str) -> ReadOptions {
    ReadOptions { target: Some(target.into()), ..ReadOptions::default() }
}

/// The table in blocks, with every row that a fit needs in memory.
fn in_blocks(file: &str, read: &ReadOptions, options: &BlockOptions) -> Result<BlockDataset> {
    let keep = |n| FeatureRidge::rows_in_memory(n, 60, 0);
    BlockDataset::fit(TableBlocks::open(file, read)?, options, &keep, Group::SINGLE, &Silent)
}

/// The same in memory: its schema, the rows to fit and those that are held out.
fn in_memory(file: &str, read: &ReadOptions, options: &BlockOptions) -> (Schema, Dataset, Option<Dataset>) {
    let table = Table::open(file, read).unwrap().with_task(options.task).unwrap();
    let share = options.held_out as f64 / table.n() as f64;
    let (train, held_out) = table.held_out(share, options.seed).unwrap();
    let scaling = options.scaling.unwrap_or_else(|| train.default_scaling());
    let schema = Schema::fit(&train, options.missing, scaling).unwrap();
    let encode = |table| schema.encode(table).unwrap().0;
    (schema.clone(), encode(train), held_out.map(encode))
}

/// All rows of the blocks.
fn collected(data: &BlockDataset) -> (Array2<f64>, Vec<f64>) {
    let (mut x, mut y) = (vec![], vec![]);
    let n = data.pass("rows", Group::SINGLE, &Silent, &mut |block| {
        x.extend(block.x.to_f64().iter());
        y.extend(block.y.unwrap().values());
        Ok(true)
    });
    assert_eq!(n.unwrap(), data.n());
    (Array2::from_shape_vec((data.n(), data.d()), x).unwrap(), y)
}

#[track_caller]
fn close(a: &Array2<f64>, b: &Array2<f64>, tolerance: f64) {
    assert_eq!(a.dim(), b.dim());
    let scale = b.iter().fold(1.0f64, |m, v| m.max(v.abs()));
    let worst = a.iter().zip(b).fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
    assert!(worst <= tolerance * scale, "{worst:e} of {scale:e}");
}

/// Points of several blocks, and a function of them as the last column.
fn points(n: usize) -> Array2<f32> {
    let mut x = normal(n, 4, 1).mapv(|v| v as f32);
    for mut row in x.rows_mut() {
        row[1] = 40.0 + 3.0 * row[1];
        row[3] = row[0].sin() + 0.1 * row[1] * row[2];
    }
    x
}

fn maps() -> [(FeatureMap, f64); 3] {
    let kernel = kernel("matern12(2)");
    let nystrom = FeatureMap::Nystrom { kernel: kernel.clone(), landmarks: 60, choice: Landmarks::KMeansPlusPlus };
    let random = FeatureMap::Random { kernel, features: 80, sampling: Sampling::default() };
    // In memory the sums are those of kernel values; waves about a mean that was rounded otherwise are turned a little.
    [(FeatureMap::Linear { scale: 1.0 }, 0.0), (nystrom, 1e-10), (random, 1e-10)]
}

#[track_caller]
fn same_fit(a: &FittedFeatureRidge, b: &FittedFeatureRidge, x: &Array2<f64>, tolerance: f64) {
    let relative = |a: f64, b: f64| (a / b - 1.0).abs();
    assert!(relative(a.alpha, b.alpha) <= tolerance.max(1e-10), "{} {}", a.alpha, b.alpha);
    let worst = a.tried.iter().zip(&b.tried).map(|(a, b)| relative(a.error, b.error)).fold(0.0, f64::max);
    assert!(worst <= 100.0 * tolerance && a.tried.len() == b.tried.len(), "{worst:e}");
    close(&a.scores(x.view()).unwrap(), &b.scores(x.view()).unwrap(), tolerance);
    assert_eq!((a.origin().n, a.origin().d, a.rank()), (b.origin().n, b.origin().d, b.rank()));
}

/// As they are, the rows of a file give the same bits as in memory; standardised, the same to rounding.
#[test]
fn fits_are_those_in_memory() {
    let scratch = Scratch::new();
    let file = scratch.file("xy.npy", files::written(&points(7000)));
    let (file, read) = (file.to_str().unwrap(), with_target("-1"));
    for scaling in [Scaling::None, Scaling::Standard, Scaling::MinMax] {
        let options = BlockOptions { scaling: Some(scaling), ..BlockOptions::default() };
        let data = in_blocks(file, &read, &options).unwrap();
        let (_, train, _) = in_memory(file, &read, &options);
        let x = train.x.to_f64().into_owned();
        if scaling == Scaling::None {
            assert_eq!(collected(&data), (x.clone(), train.y.as_ref().unwrap().values()));
            assert!(matches!(data.sample().1.x, Matrix::F64(_)));
        }
        for (map, tolerance) in maps() {
            let by_folds =
                FeatureRidge { alpha: Alpha::CrossValidation { folds: 4 }, ..FeatureRidge::new(map.clone()) };
            let [folds, one] = [&by_folds, &FeatureRidge::new(map.clone())]
                .map(|ridge| ridge.fit_blocks(&data, &FitContext::default()).unwrap());
            // A fit to three quarters of the rows is somewhat worse than one to all but one row.
            let least =
                |fitted: &FittedFeatureRidge| fitted.tried.iter().map(|t| t.error).fold(f64::INFINITY, f64::min);
            let ratio = least(&folds) / least(&one);
            assert!((0.9..1.2).contains(&ratio) && folds.tried.len() == one.tried.len(), "{ratio}");
            for alpha in [Alpha::LeaveOneOut, Alpha::Fixed(0.3)] {
                let ridge = FeatureRidge { alpha, ..FeatureRidge::new(map.clone()) };
                let context = FitContext::default();
                let (a, b) =
                    (ridge.fit_blocks(&data, &context), ridge.fit(x.view(), train.y.as_ref().unwrap(), &context));
                // Rounding of the columns' scaling grows with the condition of the equations.
                let tolerance = if scaling == Scaling::None { tolerance } else { 1e-8 };
                same_fit(&a.unwrap(), &b.unwrap(), &x, tolerance);
            }
        }
    }
}

/// Logistic regression reads the rows for every product: the weights are those in memory, and α is found from rows in memory.
#[test]
fn logistic_regression_is_that_in_memory() {
    let scratch = Scratch::new();
    let mut x = points(6000);
    x.column_mut(3).mapv_inplace(|y| (y.clamp(-1.0, 1.0) * 1.4 + 1.5).floor());
    let file = scratch.file("xy.npy", files::written(&x));
    let (file, read) = (file.to_str().unwrap(), with_target("-1"));
    let options = BlockOptions {
        scaling: Some(Scaling::Standard),
        task: Some(Task::Classification),
        held_out: 300,
        ..BlockOptions::default()
    };
    let data = in_blocks(file, &read, &options).unwrap();
    let (_, train, _) = in_memory(file, &read, &options);
    let (points, y, context) = (train.x.to_f64().into_owned(), train.y.as_ref().unwrap(), FitContext::default());
    for (map, _) in maps() {
        let alpha = Alpha::Fixed(0.5);
        let logistic = FeatureLogistic { alpha, class_weights: ClassWeights::Balanced, ..FeatureLogistic::new(map) };
        let before = data.passes();
        let [a, b] = [logistic.fit_blocks(&data, &context), logistic.fit(points.view(), y, &context)];
        let [a, b] = [a.unwrap(), b.unwrap()];
        assert!(data.passes() > before + 3 && a.notes().is_empty(), "{} {:?}", data.passes(), a.notes());
        close(&a.scores(points.view()).unwrap(), &b.scores(points.view()).unwrap(), 1e-3);
        let found = FeatureLogistic::new(logistic.map).fit_blocks(&data, &context).unwrap();
        assert!(found.tried.len() > 3 && found.accuracy(points.view(), y).unwrap() > 0.6);
    }
    let numbers = BlockOptions { task: Some(Task::Regression), ..options };
    let data = in_blocks(file, &read, &numbers).unwrap();
    let refused = FeatureLogistic::new(FeatureMap::Linear { scale: 1.0 }).fit_blocks(&data, &context);
    assert!(refused.err().expect("numbers are no classes").to_string().contains("needs classes"));
}

/// Singles stay singles on their way, and bytes bytes.
#[test]
fn blocks_keep_the_type_of_the_file() {
    let scratch = Scratch::new();
    let bytes = Array2::from_shape_fn((5000, 2), |(i, j)| ((i + 3 * j) % 251) as u8);
    let whole = bytes.mapv(i64::from);
    for (written, kept) in
        [(files::written(&points(5000)), "F32"), (files::written(&bytes), "U8"), (files::written(&whole), "F64")]
    {
        let file = scratch.file("x.npy", written);
        let file = file.to_str().unwrap();
        let options = BlockOptions { scaling: Some(Scaling::None), ..BlockOptions::default() };
        let data = in_blocks(file, &ReadOptions::default(), &options).unwrap();
        let want = Table::open(file, &ReadOptions::default()).unwrap().x.to_f64().into_owned();
        let mut rows = 0;
        data.pass("rows", Group::SINGLE, &Silent, &mut |block| {
            let kind = match block.x {
                Matrix::F64(_) => "F64",
                Matrix::F32(_) => "F32",
                Matrix::U8 { .. } => "U8",
            };
            assert_eq!(kind, kept);
            assert_eq!(block.x.to_f64(), want.slice(s![rows..rows + block.n(), ..]));
            rows += block.n();
            Ok(true)
        })
        .unwrap();
        assert_eq!(rows, 5000);
    }
}

/// Classes from a second file, weights, rows held out, a part of the rows and of the columns.
#[test]
fn classes_parts_and_held_out_rows_are_those_in_memory() {
    let scratch = Scratch::new();
    let x = points(9000);
    let labels = Array1::from_shape_fn(9000, |i| if x[[i, 3]] > 2.0 { 7i64 } else { -i64::from(x[[i, 0]] > 0.0) });
    let target = scratch.file("y.npy", files::written(&labels));
    let file = scratch.file("x.npy", files::written(&x));
    let file = file.to_str().unwrap();
    let read = ReadOptions { rows: Some(500..8500), drop: vec!["3".into()], ..with_target(target.to_str().unwrap()) };
    let options = BlockOptions { held_out: 800, seed: 3, ..BlockOptions::default() };
    let data = in_blocks(file, &read, &options).unwrap();
    let (schema, train, held_out) = in_memory(file, &read, &options);
    assert_eq!((data.n(), data.d(), data.unlabelled()), (7200, 3, 0));
    assert_eq!(data.schema().target, schema.target);
    let held_out = held_out.unwrap();
    let (x, y) = collected(&data);
    close(&x, &train.x.to_f64().into_owned(), 1e-13);
    assert_eq!(y, train.y.as_ref().unwrap().values());
    assert_eq!(data.held_out().unwrap().y, held_out.y);
    close(&data.held_out().unwrap().x.to_f64().into_owned(), &held_out.x.to_f64().into_owned(), 1e-13);
    for class_weights in [ClassWeights::Equal, ClassWeights::Balanced, ClassWeights::Given(vec![("7".into(), 3.0)])] {
        let ridge = FeatureRidge { class_weights, ..FeatureRidge::new(maps()[1].0.clone()) };
        let context = FitContext::default();
        let a = ridge.fit_blocks(&data, &context).unwrap();
        let b = ridge.fit(train.x.to_f64().view(), train.y.as_ref().unwrap(), &context).unwrap();
        let new = held_out.x.to_f64().into_owned();
        same_fit(&a, &b, &new, 1e-9);
        let p = |f: &FittedFeatureRidge| f.probabilities(f.scores(new.view()).unwrap().view()).unwrap();
        close(&p(&a), &p(&b), 1e-8);
        assert!(a.accuracy(new.view(), held_out.y.as_ref().unwrap()).unwrap() > 0.9);
    }
    // Taken as numbers.
    let numbers = BlockOptions { task: Some(Task::Regression), ..options };
    let data = in_blocks(file, &read, &numbers).unwrap();
    assert_eq!(data.schema().target.as_ref().unwrap().classes, None);
    assert!(collected(&data).1.contains(&7.0));
}

/// Of more rows than candidates for landmarks, some are looked at; the fit is as good.
#[test]
fn landmarks_of_many_rows_are_chosen_among_a_sample() {
    let scratch = Scratch::new();
    let file = scratch.file("xy.npy", files::written(&points(13_000)));
    let (file, read) = (file.to_str().unwrap(), with_target("4"));
    let options = BlockOptions { held_out: 1000, ..BlockOptions::default() };
    let data = in_blocks(file, &read, &options).unwrap();
    assert!(data.sample().0.len() < 13_000);
    let (_, train, held_out) = in_memory(file, &read, &options);
    let (ridge, held_out) = (FeatureRidge::new(maps()[1].0.clone()), held_out.unwrap());
    let error = |f: FittedFeatureRidge| {
        let wrong = f.scores(held_out.x.to_f64().view()).unwrap().column(0).to_owned()
            - Array1::from(held_out.y.as_ref().unwrap().values());
        wrong.dot(&wrong) / 1000.0
    };
    let a = error(ridge.fit_blocks(&data, &FitContext::default()).unwrap());
    let b = error(ridge.fit(train.x.to_f64().view(), train.y.as_ref().unwrap(), &FitContext::default()).unwrap());
    assert!(a < 1.3 * b && b < 0.5, "{a} {b}");
}

#[test]
fn unfit_arrays_are_named() {
    let scratch = Scratch::new();
    #[track_caller]
    fn refused(scratch: &Scratch, bytes: &[u8], read: &ReadOptions, task: Option<Task>, words: &[&str]) {
        let file = scratch.file("x.npy", bytes);
        let options = BlockOptions { task, ..BlockOptions::default() };
        let message = in_blocks(file.to_str().unwrap(), read, &options).err().expect("refused").to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    let none = ReadOptions::default();
    let mut x = points(9000);
    let fortran = x.t().as_standard_layout().into_owned();
    refused(
        &scratch,
        &files::written(&fortran.t().to_owned()),
        &none,
        None,
        &["x.npy", "Fortran order", "ascontiguousarray"],
    );
    refused(&scratch, &files::gzip(files::written(&x)), &none, None, &["gzipped", "unpack"]);
    let whole = files::written(&x);
    refused(&scratch, &whole[..whole.len() - 2], &none, None, &["truncated"]);
    refused(&scratch, &whole, &with_target("9"), None, &["no column 9"]);
    refused(
        &scratch,
        &whole,
        &ReadOptions { rows: Some(9000..9001), ..none.clone() },
        None,
        &["9000 rows", "no row 9001"],
    );
    refused(&scratch, &whole, &with_target("4"), Some(Task::Classification), &["row 1 ", "not a whole number"]);
    let short = scratch.file("y.npy", files::written(&Array1::<f64>::zeros(8999)));
    refused(&scratch, &whole, &with_target(short.to_str().unwrap()), None, &["y.npy", "[8999]", "9000 rows"]);
    x[[8200, 2]] = f32::NAN;
    refused(&scratch, &files::written(&x), &none, None, &["row 8201, column 3", "NaN"]);
    assert!(!TableBlocks::can_open("digits") && !TableBlocks::can_open("x.csv"));
    assert!(TableBlocks::open("x.csv", &none).is_err());
}

/// What each of `size` ranks learns of a file, each from a file of its own.
fn on_ranks(size: usize, files: &[&str], read: &ReadOptions, options: &BlockOptions) -> Vec<Result<BlockDataset>> {
    let keep = |n| FeatureRidge::rows_in_memory(n, 60, 0);
    on_threads(size, |group| {
        let blocks = TableBlocks::open(files[group.rank() % files.len()], read)?;
        BlockDataset::fit(blocks, options, &keep, group, &Silent)
    })
}

/// The first pass of several ranks is that of one, to the bit.
#[track_caller]
fn same_first_pass(file: &str, read: &ReadOptions, options: &BlockOptions) {
    let one = in_blocks(file, read, options).unwrap();
    for size in [2, 3, 4] {
        for rank in on_ranks(size, &[file], read, options) {
            let rank = rank.unwrap();
            assert_eq!((rank.n(), rank.drawn_of(), rank.mean()), (one.n(), one.drawn_of(), one.mean()));
            assert_eq!(rank.schema(), one.schema());
            assert_eq!(rank.sample(), one.sample());
            assert_eq!(rank.held_out(), one.held_out());
        }
    }
}

#[test]
fn ranks_share_the_first_pass() {
    let scratch = Scratch::new();
    let file = scratch.0.path().join("x.npy");
    let mut x = points(9001);
    write_npy(&file, x.view()).unwrap();
    let (path, read) = (file.to_str().unwrap(), with_target("4"));
    same_first_pass(path, &read, &BlockOptions::default());
    let held_out = BlockOptions { held_out: 900, seed: 3, ..BlockOptions::default() };
    same_first_pass(path, &read, &held_out);
    same_first_pass(path, &ReadOptions { rows: Some(1500..8777), ..with_target("1") }, &held_out);
    // Classes of which the first ranks have a part, and a column of categories.
    x.column_mut(3).iter_mut().enumerate().for_each(|(i, v)| *v = ((i / 1000) % 7) as f32);
    x.column_mut(2).iter_mut().enumerate().for_each(|(i, v)| *v = ((9001 - i) / 900) as f32);
    write_npy(&file, x.view()).unwrap();
    let read = ReadOptions { categories: vec!["3".into()], ..read };
    same_first_pass(path, &read, &held_out);
    let ranks = on_ranks(3, &[path], &read, &BlockOptions { missing: Missing::Impute, ..held_out });
    assert!(ranks.iter().all(|rank| rank.as_ref().unwrap().schema().target.as_ref().unwrap().classes.is_some()));

    // The message of the rank that has the first bad row ends all.
    (x[[6500, 0]], x[[8000, 1]]) = (f32::NAN, f32::NAN);
    let bytes: Vec<u8> = x.iter().flat_map(|v| v.to_le_bytes()).collect();
    scratch.file("x.npy", files::npy("{'descr': '<f4', 'fortran_order': False, 'shape': (9001, 4)}\n", &bytes));
    for rank in on_ranks(3, &[path], &read, &held_out) {
        let message = rank.err().expect("a value is missing").to_string();
        assert!(message.contains("row 6501, column 1"), "{message}");
    }
    // More different whole numbers than classes may have, of which no rank has so many.
    let many = Array2::from_shape_fn((12_000, 2), |(i, j)| (i * (j + 1)) as f32);
    write_npy(&file, many.view()).unwrap();
    let classify = BlockOptions { task: Some(Task::Classification), ..BlockOptions::default() };
    let want = in_blocks(path, &with_target("2"), &classify).err().unwrap().to_string();
    assert!(want.contains("more than 10000 different whole numbers"), "{want}");
    for rank in on_ranks(3, &[path], &with_target("2"), &classify) {
        assert_eq!(rank.err().unwrap().to_string(), want);
    }

    let other = scratch.0.path().join("y.npy");
    write_npy(&other, many.mapv(|v| v + 1.0).view()).unwrap();
    for rank in on_ranks(3, &[path, path, other.to_str().unwrap()], &ReadOptions::default(), &held_out) {
        let message = rank.err().expect("other data").to_string();
        assert!(message.contains("rank 2 has another data file than rank 0"), "{message}");
    }
    // Ranks without rows.
    write_npy(&file, many.slice(ndarray::s![..300, ..])).unwrap();
    same_first_pass(path, &with_target("2"), &BlockOptions { held_out: 20, ..BlockOptions::default() });
}

/// A pass that is asked to end does, after the rows so far.
#[test]
fn passes_can_end_early() {
    let scratch = Scratch::new();
    let file = scratch.file("x.npy", files::written(&points(13_000)));
    let data = in_blocks(file.to_str().unwrap(), &with_target("4"), &BlockOptions::default()).unwrap();
    let mut blocks = 0;
    let seen = data.pass("rows", Group::SINGLE, &Silent, &mut |_| {
        blocks += 1;
        Ok(blocks < 2)
    });
    assert_eq!((seen.unwrap(), blocks), (8192, 2));
    // A request that is there from the start: the fit is to the first block.
    let interrupt = mercer::Interrupt::new();
    interrupt.request();
    let context = FitContext { interrupt: Some(&interrupt), ..FitContext::default() };
    let fitted = FeatureRidge::new(FeatureMap::Linear { scale: 1.0 }).fit_blocks(&data, &context).unwrap();
    assert!(fitted.notes()[0].contains("interrupted after 4096 of 13000 rows"), "{:?}", fitted.notes());
}

/// The spectrum of rows in blocks is that in memory, and so is its certificate: n is small enough for all rows to be in the sample.
#[test]
fn spectra_are_those_in_memory() {
    let scratch = Scratch::new();
    let file = scratch.file("x.npy", files::written(&points(7000)));
    let (file, read, k) = (file.to_str().unwrap(), ReadOptions::default(), 5);
    let kernel = kernel("matern32(3)");
    for (held_out, precision) in [(600, Precision::F64), (0, Precision::F64), (600, Precision::F32)] {
        let options = BlockOptions { held_out, ..BlockOptions::default() };
        let keep = |n| BlockProblem::rows_in_memory(n, 60, 0);
        let blocks = TableBlocks::open(file, &read).unwrap();
        let data = BlockDataset::fit(blocks, &options, &keep, Group::SINGLE, &Silent).unwrap();
        let (_, train, fresh) = in_memory(file, &read, &options);
        let context = FitContext { precision, ..FitContext::default() };
        let operator = context.kernel_operator(&kernel, &train.x).unwrap();
        let nystrom = Nystrom { landmarks: 60, choice: Landmarks::KMeansPlusPlus };
        let fourier = Fourier { features: 200, ..Fourier::usual(k) };
        for method in [&nystrom as &dyn Method, &fourier] {
            let points = fresh.as_ref().map(|fresh| fresh.x.rows().into());
            let b = Spectrum::fit(method, &Problem { operator: &operator, k, context }, points).unwrap();
            let points = data.held_out().map(|fresh| fresh.x.rows().into());
            let problem = BlockProblem { data: &data, kernel: &kernel, k, context };
            let a = Spectrum::fit_blocks(method, &problem, points).unwrap();
            let tolerance = if precision == Precision::F64 { 1e-10 } else { 1e-4 };
            let [mu, nu] = [&a, &b].map(|s| Array2::from_shape_vec((1, k), s.eigenvalues.clone()).unwrap());
            close(&mu, &nu, tolerance);
            let at = train.x.select(&[3, 5000, 77]);
            let [f, g] = [&a, &b].map(|s| s.transform(at.rows()).unwrap().mapv(f64::abs));
            close(&f, &g, 1e4 * tolerance);
            assert_eq!((a.origin.n, a.origin.d, a.certificate.held_out), (b.origin.n, b.origin.d, held_out));
            assert_eq!(a.certificate.standing, b.certificate.standing);
            assert!((a.certificate.trace / b.certificate.trace - 1.0).abs() < 1e-6);
            // Without held-out points, 2000 of the fitted ones stand in, of which memory has all.
            let loose = if held_out == 0 { 0.5 } else { 1e-3 };
            for (a, b) in a.certificate.residual.iter().zip(&b.certificate.residual) {
                assert!((a.unwrap() / b.unwrap() - 1.0).abs() < loose, "{a:?} {b:?}");
            }
        }
        let refused = |method: &dyn Method| {
            let problem = BlockProblem { data: &data, kernel: &kernel, k, context };
            Spectrum::fit_blocks(method, &problem, None).err().expect("refused").to_string()
        };
        assert!(refused(&Krylov::default()).contains("the method krylov needs all points in memory"));
        assert!(refused(&Fourier { ritz: true, ..fourier }).contains("Rayleigh–Ritz needs all points in memory"));
    }
}

#[cfg(feature = "parquet")]
#[path = "blocks/parquet_files.rs"]
mod parquet_files;
