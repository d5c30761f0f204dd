//! The parquet reader: what it accepts, and each way in which a table can be unfit.
#![cfg(feature = "parquet")]

#[path = "common/files.rs"]
mod files;

use files::Scratch;
use files::tables::{Group, column};
use mercer::data::{Dataset, Kind, ReadOptions, Table, Target};
use ndarray::array;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type};

fn file(schema: &str, groups: &[&dyn Fn(&mut Group)]) -> Vec<u8> {
    files::tables::file(schema, parquet::basic::Compression::SNAPPY, groups)
}

fn read(bytes: &[u8], target: Option<&str>) -> mercer::Result<Dataset> {
    let options = ReadOptions { target: target.map(String::from), ..Default::default() };
    Scratch::new().read_with("t.parquet", bytes, &options)
}

#[track_caller]
fn refused(bytes: &[u8], target: Option<&str>, part: &str) {
    let message = read(bytes, target).expect_err(part).to_string();
    assert!(message.contains("t.parquet") && message.contains(part), "{message}");
}

#[test]
fn numbers_of_every_type_and_several_row_groups() {
    let schema = "REQUIRED DOUBLE a; OPTIONAL FLOAT b; REQUIRED INT32 c; REQUIRED INT64 d; REQUIRED BOOLEAN e; \
                  REQUIRED INT32 f (INTEGER(32, false)); REQUIRED INT64 g (UINT_64);";
    let fill = |shift: f64| {
        move |g: &mut Group| {
            column::<DoubleType>(g, &[1.5 + shift, 2.0], None);
            column::<FloatType>(g, &[0.25, -1.0], Some(&[1, 1]));
            column::<Int32Type>(g, &[-3, 4], None);
            column::<Int64Type>(g, &[-5, 1 << 40], None);
            column::<BoolType>(g, &[true, false], None);
            column::<Int32Type>(g, &[-1, 1], None);
            column::<Int64Type>(g, &[-1, 1], None);
        }
    };
    let bytes = file(schema, &[&fill(0.0), &fill(10.0)]);
    let set = read(&bytes, None).unwrap();
    let top = u64::MAX as f64;
    let second = [2.0, -1.0, 4.0, (1u64 << 40) as f64, 0.0, 1.0, 1.0];
    assert_eq!(
        set.x.to_f64(),
        array![
            [1.5, 0.25, -3.0, -5.0, 1.0, 4294967295.0, top],
            second,
            [11.5, 0.25, -3.0, -5.0, 1.0, 4294967295.0, top],
            second
        ]
    );
    assert_eq!(set.columns, ["a", "b", "c", "d", "e", "f", "g"]);
    assert_eq!((set.name.as_str(), set.y), ("t", None));
    let set = read(&bytes, Some("c")).unwrap();
    assert_eq!((set.d(), set.y), (6, Some(Target::Values(vec![-3.0, 4.0, -3.0, 4.0]))));
    refused(&bytes, Some("nothing"), "(known: a, b, c, d, e, f, g)");
    refused(&bytes, Some("8"), "no column 8");
}

#[test]
fn text_is_a_class_as_the_target_and_refused_otherwise() {
    let bytes = file(
        "REQUIRED BYTE_ARRAY kind (UTF8); REQUIRED DOUBLE x;",
        &[&|g: &mut Group| {
            column::<ByteArrayType>(g, &["b", "a", "b"].map(ByteArray::from), None);
            column::<DoubleType>(g, &[1.0, 2.0, 3.0], None);
        }],
    );
    let set = read(&bytes, Some("kind")).unwrap();
    assert_eq!(set.x.to_f64(), array![[1.0], [2.0], [3.0]]);
    assert_eq!(set.y, Some(Target::Classes { labels: vec![1, 0, 1], names: vec!["a".into(), "b".into()] }));
    refused(&bytes, None, "column 1 (counted from 1), `kind`, holds text");
}

/// Words, truth values, dates, times and missing values; a column that is left out may be nested or anything else.
#[test]
fn tables_are_read_as_they_are() {
    let bytes = file(
        "OPTIONAL BYTE_ARRAY colour (UTF8); OPTIONAL DOUBLE size; REQUIRED BOOLEAN sold; REQUIRED INT32 day (DATE); \
         REQUIRED INT64 time (TIMESTAMP_MILLIS); REQUIRED INT32 zip; REQUIRED INT32 money (DECIMAL(9, 2));",
        &[&|g: &mut Group| {
            column::<ByteArrayType>(g, &["red", "blue"].map(ByteArray::from), Some(&[1, 0, 1]));
            column::<DoubleType>(g, &[1.5, f64::NAN], Some(&[1, 1, 0]));
            column::<BoolType>(g, &[true, false, true], None);
            column::<Int32Type>(g, &[0, 19874, -1], None);
            column::<Int64Type>(g, &[0, 43_200_000, 86_400_000], None);
            column::<Int32Type>(g, &[501, 90210, 501], None);
            column::<Int32Type>(g, &[1, 2, 3], None);
        }],
    );
    let scratch = Scratch::new();
    let path = scratch.file("t.parquet", bytes);
    let words = |word: &str| vec![word.to_owned()];
    let options = ReadOptions { drop: words("money"), categories: words("zip"), ..Default::default() };
    let table = Table::open(path.to_str().unwrap(), &options).unwrap();
    let category = |levels: [&str; 2]| Kind::Category(levels.map(String::from).to_vec());
    let kinds: Vec<Kind> = table.columns.into_iter().map(|column| column.kind).collect();
    let zip = category(["501", "90210"]);
    assert_eq!(kinds, [category(["blue", "red"]), Kind::Number, Kind::TrueFalse, Kind::Date, Kind::Date, zip]);
    // −7 stands for a missing value.
    let x = table.x.to_f64().mapv(|v| if v.is_nan() { -7.0 } else { v });
    let want =
        array![[1.0, 1.5, 1.0, 0.0, 0.0, 0.0], [-7.0, -7.0, 0.0, 19874.0, 0.5, 1.0], [0.0, -7.0, 1.0, -1.0, 1.0, 0.0]];
    assert_eq!(x, want);
}

/// As in a `.csv`.
#[test]
fn rows_without_a_target_are_errors_or_are_left_out_and_counted() {
    let bytes = file(
        "REQUIRED DOUBLE a; OPTIONAL DOUBLE y; OPTIONAL BYTE_ARRAY kind (UTF8);",
        &[&|g: &mut Group| {
            column::<DoubleType>(g, &[1.0, 2.0, 3.0, 4.0, 5.0], None);
            column::<DoubleType>(g, &[10.0, 30.0, f64::NAN, 50.0], Some(&[1, 0, 1, 1, 1]));
            column::<ByteArrayType>(g, &["b", "a"].map(ByteArray::from), Some(&[0, 1, 1, 0, 0]));
        }],
    );
    let scratch = Scratch::new();
    let path = scratch.file("t.parquet", bytes).to_str().unwrap().to_owned();
    let kept = ReadOptions { target: Some("y".into()), drop: vec!["kind".into()], ..Default::default() };
    assert!(Table::open(&path, &kept).unwrap_err().to_string().contains("row 2, column 2 (counted from 1) is missing"));
    let skip = |target: &str, drop: &str, rows| ReadOptions {
        skip_unlabelled: true,
        target: Some(target.into()),
        drop: vec![drop.into()],
        rows,
        ..Default::default()
    };
    let table = Table::open(&path, &skip("y", "kind", None)).unwrap();
    assert_eq!((table.n(), table.unlabelled), (3, 2));
    assert_eq!(table.x.to_f64(), array![[1.0], [3.0], [5.0]]);
    assert_eq!(table.target.unwrap().values, Target::Values(vec![10.0, 30.0, 50.0]));
    let table = Table::open(&path, &skip("kind", "y", None)).unwrap();
    let classes = Target::Classes { labels: vec![1, 0], names: vec!["a".into(), "b".into()] };
    assert_eq!(table.x.to_f64(), array![[2.0], [3.0]]);
    assert_eq!(table.target.unwrap().values, classes);
    // Positions of rows are those of the file.
    let first = Table::open(&path, &skip("y", "kind", Some(0..2))).unwrap();
    assert_eq!((first.n(), first.unlabelled), (1, 1));
    let error = |rows| Table::open(&path, &skip("kind", "y", Some(rows))).unwrap_err().to_string();
    assert!(error(3..5).contains("no row with a target") && error(7..9).contains("there is no row 8"));
}

#[test]
fn unfit_tables_are_refused() {
    let pair =
        |values: [f64; 2]| file("REQUIRED DOUBLE x;", &[&move |g: &mut Group| column::<DoubleType>(g, &values, None)]);
    refused(b"", None, "is empty");
    refused(b"not parquet at all", None, "not a parquet file");
    let good = pair([1.0, 2.0]);
    refused(&good[..good.len() - 1], None, "truncated or corrupt");
    refused(&good, Some("x"), "leaves no feature");
    refused(&pair([1.0, f64::NAN]), None, "row 2, column 1 (counted from 1) is NaN");
    refused(&file("REQUIRED DOUBLE x;", &[]), None, "is empty: 0 rows");
    let missing = |g: &mut Group| column::<DoubleType>(g, &[1.0, 3.0], Some(&[1, 0, 1]));
    let full = |g: &mut Group| column::<DoubleType>(g, &[1.0, 3.0], Some(&[1, 1]));
    refused(&file("OPTIONAL DOUBLE x;", &[&missing]), None, "row 2, column 1 (counted from 1) is missing");
    refused(&file("OPTIONAL DOUBLE x;", &[&full, &missing]), None, "row 4, column 1 (counted from 1) is missing");
    let day = |g: &mut Group| column::<Int32Type>(g, &[1], None);
    refused(&file("REQUIRED INT32 day (DATE);", &[&day]), None, "not a plain number");
    refused(&file("REQUIRED INT32 money (DECIMAL(9, 2));", &[&day]), None, "not a plain number");
    refused(&file("REQUIRED GROUP g { REQUIRED INT32 x; }", &[&day]), None, "is nested");
}

/// A page header that promises a list of some 10^9 items, which the decoder would count through beyond the end of the
/// file. Found by the fuzz test.
#[test]
fn an_endless_list_ends_with_the_file() {
    refused(include_bytes!("data_endless.parquet"), None, "is corrupt");
}

/// A page header that promises 262 MiB in a file of 1679 bytes, for which the decoder would ask at once. Found by the fuzz test.
#[test]
fn a_page_cannot_promise_what_its_file_cannot_hold() {
    refused(include_bytes!("data_promised_page.parquet"), None, "a page promises 262 MiB");
}

/// Written by pyarrow and Polars, whose default is zstd: 90 rows of 1.5, 2.5, -3 and red, blue, red.
#[test]
fn every_common_compression_is_read() {
    let scratch = Scratch::new();
    for (name, bytes) in [
        ("zstd", &include_bytes!("data_zstd.parquet")[..]),
        ("lz4", include_bytes!("data_lz4.parquet")),
        ("brotli", include_bytes!("data_brotli.parquet")),
    ] {
        let path = scratch.file(&format!("{name}.parquet"), bytes);
        let table = Table::open(path.to_str().unwrap(), &ReadOptions::default()).unwrap();
        assert_eq!(table.columns[1].kind, Kind::Category(vec!["blue".into(), "red".into()]), "{name}");
        let first = table.select(&[0, 1, 2]).x.to_f64().into_owned();
        assert_eq!((table.n(), first), (90, array![[1.5, 1.0], [2.5, 0.0], [-3.0, 1.0]]), "{name}");
    }
}

/// Written by pyarrow: to parquet, a duration is a whole number, and only the schema of Arrow tells.
#[test]
fn durations_are_refused_by_name() {
    let bytes = include_bytes!("data_duration.parquet");
    refused(bytes, None, "the column `wait` holds durations");
    let options = ReadOptions { drop: vec!["wait".into()], ..Default::default() };
    let set = Scratch::new().read_with("t.parquet", bytes, &options).unwrap();
    assert_eq!(set.x.to_f64(), array![[1.5, 1.0], [2.5, 2.0]]);
}

/// Words that are not UTF-8 would become one another.
#[test]
fn bytes_that_are_not_text_are_refused() {
    let words = [&b"\xff\xfe"[..], b"\xff\xfd", b"x"].map(|word| ByteArray::from(word.to_vec()));
    let bytes = file(
        "REQUIRED BYTE_ARRAY kind; REQUIRED DOUBLE x;",
        &[&|g: &mut Group| {
            column::<ByteArrayType>(g, &words, None);
            column::<DoubleType>(g, &[1.0, 2.0, 3.0], None);
        }],
    );
    refused(&bytes, Some("kind"), "row 1, column 1 (counted from 1) holds bytes that are not UTF-8 text");
}

/// Ten words of 2 MB each in some kB, with and without a dictionary.
#[test]
fn words_count_against_the_budget() {
    let words: Vec<ByteArray> = (0..10).map(|i| ByteArray::from(&*("x".repeat(2_000_000) + &i.to_string()))).collect();
    let bytes = files::tables::file(
        "REQUIRED BYTE_ARRAY w (UTF8);",
        parquet::basic::Compression::SNAPPY,
        &[&|g: &mut Group| column::<ByteArrayType>(g, &words, None)],
    );
    let scratch = Scratch::new();
    let path = scratch.file("t.parquet", bytes);
    let open = |bytes: &str| {
        let memory = mercer::operator::Budget::parse(bytes).ok();
        Table::open(path.to_str().unwrap(), &ReadOptions { memory, ..Default::default() })
    };
    assert_eq!(open("200MB").unwrap().n(), 10);
    let refused = open("15MB").unwrap_err().to_string();
    assert!(refused.contains("memory budget"), "{refused}");
}
