//! Parquet files in blocks: words, missing values and types as in memory.

use super::*;
use files::tables::{Group, column};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type};

const SCHEMA: &str = "OPTIONAL BYTE_ARRAY colour (UTF8); REQUIRED BYTE_ARRAY sold (UTF8); OPTIONAL FLOAT size; \
                      REQUIRED INT32 day (DATE); REQUIRED BYTE_ARRAY late (UTF8); REQUIRED INT64 zip; OPTIONAL DOUBLE y;";

/// Rows from `first` on. The word `maybe` occurs in the last rows only, and so does the colour `mauve`.
fn group(first: usize, rows: usize) -> impl Fn(&mut Group) {
    move |g: &mut Group| {
        let all = first..first + rows;
        let is_there = |rare: usize| all.clone().map(|i| i16::from(i % rare != 5)).collect::<Vec<_>>();
        let there = |rare: usize| all.clone().filter(move |i| i % rare != 5);
        let colour = |i: usize| if i > 9000 && i.is_multiple_of(3) { "mauve" } else { ["red", "blue"][i % 7 % 2] };
        let colours: Vec<ByteArray> = there(40).map(|i| colour(i).into()).collect();
        column::<ByteArrayType>(g, &colours, Some(&is_there(40)));
        let sold: Vec<ByteArray> = all.clone().map(|i| ["no", "yes"][i % 2].into()).collect();
        column::<ByteArrayType>(g, &sold, None);
        let sizes: Vec<f32> = there(30).map(|i| 100.0 + (i as f32).sin()).collect();
        column::<FloatType>(g, &sizes, Some(&is_there(30)));
        let days: Vec<i32> = all.clone().map(|i| 19_000 + (i % 365) as i32).collect();
        column::<Int32Type>(g, &days, None);
        let late = |i: usize| if i > 9500 { "maybe" } else { ["false", "true"][i % 5 % 2] };
        let lates: Vec<ByteArray> = all.clone().map(|i| late(i).into()).collect();
        column::<ByteArrayType>(g, &lates, None);
        let zips: Vec<i64> = all.clone().map(|i| 1000 + (i % 4) as i64).collect();
        column::<Int64Type>(g, &zips, None);
        let y = |i: usize| (i as f64).sin() + (i % 2) as f64 + if colour(i) == "mauve" { 2.0 } else { 0.0 };
        let ys: Vec<f64> = there(50).map(y).collect();
        column::<DoubleType>(g, &ys, Some(&is_there(50)));
    }
}

fn written() -> Vec<u8> {
    let groups = [group(0, 3000), group(3000, 5000), group(8000, 2000)];
    let groups: Vec<&dyn Fn(&mut Group)> = groups.iter().map(|g| g as &dyn Fn(&mut Group)).collect();
    files::tables::file(SCHEMA, parquet::basic::Compression::SNAPPY, &groups)
}

/// Words, dates, truth values and missing values over blocks that are no row groups: what is read, and the schema.
#[test]
fn tables_are_those_in_memory() {
    let scratch = Scratch::new();
    let file = scratch.file("t.parquet", written());
    let file = file.to_str().unwrap();
    let options = BlockOptions { missing: Missing::Impute, ..BlockOptions::default() };
    for (rows, held_out) in [(None, 0), (None, 700), (Some(2500..9800), 0)] {
        let read = ReadOptions {
            skip_unlabelled: true,
            categories: vec!["zip".into()],
            rows: rows.clone(),
            ..with_target("y")
        };
        let options = BlockOptions { held_out, ..options };
        let data = in_blocks(file, &read, &options).unwrap();
        // Rows are drawn among those with and without a target, so that others are held out than in memory.
        if held_out > 0 {
            let rows = data.held_out().unwrap().n();
            assert!((670..=700).contains(&rows) && data.n() == 9800 - rows, "{rows}");
            continue;
        }
        let (schema, train, _) = in_memory(file, &read, &options);
        assert_eq!(data.schema().features(), schema.features());
        assert_eq!(data.schema().columns, schema.columns);
        assert_eq!(data.schema().target, schema.target);
        assert_eq!(data.unlabelled(), if rows.is_some() { 146 } else { 200 });
        let ((x, y), want) = (collected(&data), train.x.to_f64().into_owned());
        close(&x, &want, 1e-12);
        assert_eq!(y, train.y.as_ref().unwrap().values());
        let mean = want.mean_axis(Axis(0)).unwrap();
        close(&data.mean().insert_axis(Axis(0)).to_owned(), &mean.insert_axis(Axis(0)), 1e-12);
        let (map, context) = (maps()[2].0.clone(), FitContext::default());
        // Others are left out than in memory, for the same reason: with an α of its own, the fit is the same.
        let ridge = FeatureRidge { alpha: Alpha::Fixed(0.2), ..FeatureRidge::new(map) };
        let a = ridge.fit_blocks(&data, &context).unwrap();
        let b = ridge.fit(want.view(), train.y.as_ref().unwrap(), &context).unwrap();
        same_fit(&a, &b, &want, 1e-9);
        let found = FeatureRidge { alpha: Alpha::LeaveOneOut, ..ridge }.fit_blocks(&data, &context).unwrap();
        assert!(found.tried.len() > 10, "{:?}", found.tried);
    }
}

/// The rows of a rank begin within row groups and pages, and words first appear in the rows of later ranks.
#[test]
fn ranks_share_the_first_pass_over_words() {
    let scratch = Scratch::new();
    let file = scratch.file("t.parquet", written());
    let file = file.to_str().unwrap();
    let options = BlockOptions { missing: Missing::Impute, held_out: 500, ..BlockOptions::default() };
    let read = ReadOptions { categories: vec!["zip".into()], drop: vec!["y".into()], ..with_target("late") };
    same_first_pass(file, &read, &options);
    same_first_pass(file, &ReadOptions { rows: Some(777..9800), ..read.clone() }, &options);
    same_first_pass(file, &ReadOptions { target: None, ..read }, &options);
    let missing = ReadOptions { skip_unlabelled: true, ..with_target("y") };
    for rank in on_ranks(2, &[file], &missing, &options) {
        let message = rank.err().expect("rows without a target").to_string();
        assert!(message.contains("200 rows have no target"), "{message}");
    }
    let size = ReadOptions { columns: Some(vec!["size".into()]), rows: Some(4006..9000), ..ReadOptions::default() };
    let want = in_blocks(file, &size, &BlockOptions::default()).err().expect("a value is missing").to_string();
    for rank in on_ranks(4, &[file], &size, &BlockOptions::default()) {
        assert_eq!(rank.err().unwrap().to_string(), want);
    }
}

/// A target of words, and words in it that a block does not have.
#[test]
fn words_are_classes() {
    let scratch = Scratch::new();
    let file = scratch.file("t.parquet", written());
    let file = file.to_str().unwrap();
    let read = ReadOptions { drop: vec!["colour".into(), "size".into(), "y".into()], ..with_target("late") };
    let data = in_blocks(file, &read, &BlockOptions::default()).unwrap();
    let (schema, train, _) = in_memory(file, &read, &BlockOptions::default());
    assert_eq!(schema.target.as_ref().unwrap().classes.as_ref().unwrap(), &["false", "maybe", "true"]);
    assert_eq!(data.schema().target, schema.target);
    assert_eq!(collected(&data).1, train.y.as_ref().unwrap().values());
    let Some(Target::Classes { labels, names }) = &data.sample().1.y else { panic!("classes") };
    assert_eq!((labels.len(), names.len()), (data.sample().0.len(), 3));
    let regress = BlockOptions { task: Some(Task::Regression), ..BlockOptions::default() };
    let message = in_blocks(file, &read, &regress).err().unwrap().to_string();
    assert!(message.contains("`late` holds words, such as `false`"), "{message}");
}

#[test]
fn unfit_tables_are_named() {
    let scratch = Scratch::new();
    let file = scratch.file("t.parquet", written());
    let file = file.to_str().unwrap();
    let refused = |read: &ReadOptions, words: &[&str]| {
        let message = in_blocks(file, read, &BlockOptions::default()).err().expect("refused").to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    };
    refused(&ReadOptions::default(), &["row 6, column 1 (counted from 1), `colour`", "missing", "impute"]);
    refused(&with_target("y"), &["row 6, column 7", "missing"]);
    let read = ReadOptions { rows: Some(8100..9000), columns: Some(vec!["size".into()]), ..ReadOptions::default() };
    refused(&read, &["row 8106, column 3 (counted from 1), `size`"]);
    refused(&with_target("z"), &["unknown column 'z'"]);
    let words: Vec<ByteArray> = (0..6000).map(|i| format!("w{i}").as_str().into()).collect();
    let fill = |g: &mut Group| column::<ByteArrayType>(g, &words, None);
    let many = files::tables::file("REQUIRED BYTE_ARRAY w (UTF8);", parquet::basic::Compression::SNAPPY, &[&fill]);
    let many = scratch.file("many.parquet", many);
    let message = in_blocks(many.to_str().unwrap(), &ReadOptions::default(), &BlockOptions::default()).err().unwrap();
    assert!(message.to_string().contains("more than 1000 different words"), "{message}");
}
