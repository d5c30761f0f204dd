//! Tables as they are, and the features that a schema makes of them: every kind of column, and every error.

use mercer::Result;
use mercer::data::{
    ColumnValues, Dataset, Kind, Matrix, Missing, ReadOptions, Scaling, Schema, Table, Target, Task, open, write_npy,
};
use ndarray::{Array2, array};
use std::path::PathBuf;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    fn table(&self, text: &str, options: &ReadOptions) -> Result<Table> {
        Table::open(&self.write("t.csv", text), options)
    }

    /// The table `text`, encoded by the schema of the table `fitted`.
    fn encoded(&self, fitted: &str, text: &str, missing: Missing) -> Result<(Dataset, Vec<String>)> {
        let schema = Schema::fit(&self.table(fitted, &ReadOptions::default())?, missing, Scaling::None)?;
        schema.encode(Table::open_like(&self.write("new.csv", text), &ReadOptions::default(), &schema)?)
    }
}

fn with_target(column: &str) -> ReadOptions {
    ReadOptions { target: Some(column.into()), ..Default::default() }
}

#[track_caller]
fn says<T>(result: Result<T>, words: &[&str]) {
    let message = result.err().expect("an error").to_string();
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
}

const MIXED: &str =
    "colour,size,sold,when\nred,1,yes,2024-01-01\nblue,NA,no,2024-01-03\nred,4,NO,2024-01-02T12:00\n?,1,,2024-01-01\n";

#[test]
fn every_kind_of_column_is_recognised() {
    let folder = Folder::new();
    let table = folder.table(MIXED, &ReadOptions::default()).unwrap();
    let kinds: Vec<&Kind> = table.columns.iter().map(|column| &column.kind).collect();
    let colours = Kind::Category(vec!["blue".into(), "red".into()]);
    assert_eq!(kinds, [&colours, &Kind::Number, &Kind::TrueFalse, &Kind::Date]);
    let x = table.x.to_f64();
    let missing = [(1, 1), (3, 0), (3, 2)];
    for ((i, j), v) in x.indexed_iter() {
        assert_eq!(v.is_nan(), missing.contains(&(i, j)), "{i} {j}");
    }
    assert_eq!(x.column(0).to_vec()[..3], [1.0, 0.0, 1.0]);
    assert_eq!(x.column(2).to_vec()[..3], [1.0, 0.0, 0.0]);
    // 2024-01-01 is day 19723.
    assert_eq!(x.column(3).to_vec(), [19723.0, 19725.0, 19724.5, 19723.0]);
}

/// The features by hand, imputed: sizes have the mean 2, truth values 1/3, and a category that is missing is no level.
#[test]
fn features_are_those_by_hand() {
    let folder = Folder::new();
    let table = folder.table(MIXED, &ReadOptions::default()).unwrap();
    says(
        Schema::fit(&table, Missing::Refuse, Scaling::Standard),
        &["row 4, column 1", "`colour`", "missing", "impute"],
    );
    let schema = Schema::fit(&table, Missing::Impute, Scaling::MinMax).unwrap();
    let names = ["colour=blue", "colour=red", "colour=missing", "size", "size=missing", "sold", "sold=missing", "when"];
    assert_eq!((schema.features(), schema.d(), schema.with_missing()), (names.map(String::from).to_vec(), 8, 3));
    let (data, notes) = schema.encode(table).unwrap();
    let third = 1.0 / 3.0;
    let want = array![
        [0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
        [1.0, 0.0, 0.0, third, 1.0, 0.0, 0.0, 1.0],
        [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.75],
        [0.0, 0.0, 1.0, 0.0, 0.0, third, 1.0, 0.0]
    ];
    assert!((data.x.to_f64().to_owned() - want).iter().all(|d| d.abs() < 1e-12), "{:?}", data.x);
    assert_eq!((notes.len(), data.columns), (0, schema.features()));
}

#[test]
fn columns_are_found_by_name_and_else_by_position() {
    let folder = Folder::new();
    let fitted = "a,b\n1,x\n2,y\n";
    let want = array![[7.0, 0.0, 1.0]];
    for text in ["b,a\ny,7\n", "c,b,a\noops,y,7\n", "a,b\n7,y\n"] {
        let (data, _) = folder.encoded(fitted, text, Missing::Refuse).unwrap();
        assert_eq!(data.x.to_f64(), want, "{text}");
    }
    // Without names, by position.
    let options = ReadOptions { header: Some(false), ..Default::default() };
    let schema =
        Schema::fit(&folder.table(fitted, &ReadOptions::default()).unwrap(), Missing::Refuse, Scaling::None).unwrap();
    let unnamed = |text: &str| schema.encode(Table::open_like(&folder.write("n.csv", text), &options, &schema)?);
    assert_eq!(unnamed("7,y\n").unwrap().0.x.to_f64(), want);
    says(unnamed("7,y,1\n"), &["has 3 columns, where 2 were fitted", "if one of them is the target"]);
}

#[test]
fn what_does_not_fit_the_schema_is_an_error() {
    let folder = Folder::new();
    let fitted = "size,colour,sold,when\n1,red,yes,2024-01-01\n2,blue,no,2024-01-02\n";
    for (text, words) in [
        ("sizes,colour,sold,when\n1,red,yes,2024-01-01\n", &["no column `size`", "did you mean 'sizes'"][..]),
        (
            "size,colour,sold,when\nbig,red,yes,2024-01-01\n",
            &["row 1, column 1", "`big`, a word", "numbers were fitted"],
        ),
        ("size,colour,sold,when\n1,red,maybe,2024-01-01\n", &["column 3", "`maybe`", "true or false"]),
        ("size,colour,sold,when\n1,red,5,2024-01-01\n", &["column 3", "one of numbers"]),
        ("size,colour,sold,when\n1,red,yes,7\n", &["column 4", "one of numbers", "dates were fitted"]),
        (
            "size,colour,sold,when\n1,red,yes,2024-01-01\nNA,red,yes,2024-01-01\n",
            &["row 2, column 1", "`size`", "missing"],
        ),
        (
            "size,colour,sold,when\n1,red,yes,2024-01-01\n1,,yes,2024-01-01\n",
            &["row 2, column 2", "`colour`", "missing"],
        ),
    ] {
        says(folder.encoded(fitted, text, Missing::Refuse), words);
    }
    // Truth values may be numbers, and a category may look like anything.
    let (data, notes) = folder
        .encoded(fitted, "size,colour,sold,when\n1,7,0,2024-01-01\n3,yes,1,2024-01-02\n", Missing::Refuse)
        .unwrap();
    assert_eq!(data.x.to_f64().column(3).to_vec(), [0.0, 1.0]);
    assert_eq!(notes.len(), 1);
    assert!(["row 1, column 2", "`7`", "1 more"].iter().all(|word| notes[0].contains(word)), "{}", notes[0]);
    assert!(data.x.to_f64().column(1).iter().chain(&data.x.to_f64().column(2)).all(|v| *v == 0.0));
}

#[test]
fn a_missing_value_in_a_new_column_is_imputed_too() {
    let folder = Folder::new();
    let (data, _) = folder.encoded("a,b\n1,2\n3,4\n", "a,b\nNA,5\n", Missing::Impute).unwrap();
    assert_eq!(data.x.to_f64(), array![[2.0, 5.0]]);
}

/// The mean of numbers whose sum overflows is finite, and a number that overflows when it is scaled is refused.
#[test]
fn numbers_near_the_largest_stay_finite() {
    let folder = Folder::new();
    let (data, _) = folder.encoded("a,b\n1.6e308,2\n1.6e308,4\nNA,5\n", "a,b\nNA,5\n", Missing::Impute).unwrap();
    assert!((data.x.to_f64()[[0, 0]] / 1.6e308 - 1.0).abs() < 1e-12);
    let table = |text: &str| folder.table(text, &ReadOptions::default()).unwrap();
    let schema = Schema::fit(&table("a\n0\n1e-9\n"), Missing::Refuse, Scaling::MinMax).unwrap();
    says(schema.encode(table("a\n1\n1e300\n")), &["row 2", "`a`", "too large"]);
}

#[test]
fn columns_that_are_no_features_are_refused() {
    let folder = Folder::new();
    let fit = |text: &str| Schema::fit(&folder.table(text, &ReadOptions::default())?, Missing::Impute, Scaling::None);
    let names: String = (0..30).map(|i| format!("{i},name{i}\n")).collect();
    says(fit(&format!("a,name\n{names}")), &["`name`", "30 different words in 30 rows", "leave the column out"]);
    says(fit("a,b\n1,NA\n2,\n"), &["`b`", "no values"]);
    says(fit("a,b\n1,2\n3,four\n"), &["row 2, column 2", "`four`", "numbers", "category"]);
    says(fit("a,b\nx,2\n3,5\n"), &["row 2, column 1", "`3`", "words"]);
    says(fit("a,b\n1,2024-01-01\n2,later\n"), &["`later`", "dates"]);
    says(fit("a,b\n1,inf\n"), &["column 2", "inf"]);
    // As a category, a column may hold both.
    let options = ReadOptions { categories: vec!["b".into()], ..Default::default() };
    let table = folder.table("a,b\n1,2\n3,four\n", &options).unwrap();
    assert_eq!(table.columns[1].kind, Kind::Category(vec!["2".into(), "four".into()]));
}

#[test]
fn columns_and_rows_are_chosen() {
    let folder = Folder::new();
    let text = "a,b,c,y\n1,x,5,0\n2,z,6,1\n3,x,7,0\n";
    let read = |options: ReadOptions| {
        let table = folder.table(text, &options)?;
        Ok::<_, mercer::Error>((table.columns.iter().map(|c| c.name.clone()).collect::<Vec<_>>(), table.n()))
    };
    let words = |list: &[&str]| list.iter().map(|word| word.to_string()).collect::<Vec<String>>();
    let all = ReadOptions::default();
    let columns = |list: &[&str]| ReadOptions { columns: Some(words(list)), ..all.clone() };
    assert_eq!(read(columns(&["c", "1"])).unwrap(), (words(&["a", "c"]), 3));
    assert_eq!(read(ReadOptions { drop: words(&["b"]), ..with_target("y") }).unwrap(), (words(&["a", "c"]), 3));
    assert_eq!(read(ReadOptions { rows: Some(1..9), ..all.clone() }).unwrap().1, 2);
    says(read(ReadOptions { rows: Some(3..9), ..all.clone() }), &["has 3 rows", "no row 4"]);
    says(read(columns(&["d"])), &["unknown column 'd'"]);
    says(read(ReadOptions { drop: words(&["a", "b", "c", "y"]), ..all.clone() }), &["no column left"]);
    // A column that is left out may hold anything.
    assert!(open(&folder.write("m.csv", "a,b\n1,2\n3,four\n"), &ReadOptions { drop: words(&["b"]), ..all }).is_ok());
}

#[test]
fn a_target_may_be_a_file_of_its_own() {
    let folder = Folder::new();
    let x = Array2::from_shape_fn((12, 2), |(i, j)| (i * (j + 1)) as f64);
    let y: Vec<f64> = (0..12).map(|i| f64::from(i % 2)).collect();
    write_npy(folder.path("x.npy"), x.view()).unwrap();
    write_npy(folder.path("y.npy"), ndarray::aview1(&y)).unwrap();
    let path = |name: &str| folder.path(name).to_str().unwrap().to_owned();
    let options = ReadOptions { rows: Some(2..5), ..with_target(&path("y.npy")) };
    let table = Table::open(&path("x.npy"), &options).unwrap();
    assert_eq!((table.n(), table.columns.len()), (3, 2));
    assert_eq!(table.target.unwrap().values, Target::Values(vec![0.0, 1.0, 0.0]));
    write_npy(folder.path("y.npy"), ndarray::aview1(&y[1..])).unwrap();
    says(Table::open(&path("x.npy"), &options), &["y.npy", "[11]", "12 rows"]);
}

#[test]
fn whole_numbers_become_classes_by_a_rule() {
    let folder = Folder::new();
    let read = |values: &[f64], task| {
        let rows: String = values.iter().map(|v| format!("1,{v}\n")).collect();
        let table = folder.table(&format!("x,y\n{rows}"), &with_target("y"))?.with_task(task)?;
        Ok::<_, mercer::Error>(matches!(table.target.unwrap().values, Target::Classes { .. }))
    };
    let few = [1.0, 0.0, 2.0].repeat(5);
    assert!(read(&few, None).unwrap());
    assert!(!read(&few, Some(Task::Regression)).unwrap());
    assert!(!read(&few[..12], None).unwrap(), "four rows each");
    assert!(read(&few[..12], Some(Task::Classification)).unwrap());
    let many: Vec<f64> = (0..210).map(|i| f64::from(i % 21)).collect();
    assert!(!read(&many, None).unwrap(), "21 values");
    assert!(!read(&[0.5, 1.0].repeat(10), None).unwrap());
    says(read(&[0.5, 1.0], Some(Task::Classification)), &["not a whole number"]);
    let words = folder.table("x,y\n1,a\n2,b\n", &with_target("y")).unwrap();
    says(words.with_task(Some(Task::Regression)), &["`y`", "words", "`a`"]);
}

#[test]
fn unlabelled_rows_are_read_by_a_schema() {
    let folder = Folder::new();
    let table = folder.table("a,y\n1,2.5\n2,3.5\n", &with_target("y")).unwrap();
    let schema = Schema::fit(&table, Missing::Refuse, Scaling::None).unwrap();
    let read = |text: &str| {
        let table = Table::open_like(&folder.write("n.csv", text), &ReadOptions::default(), &schema)?;
        schema.encode(table).map(|(data, _)| (data.n(), data.y))
    };
    assert_eq!(read("a\n1\n").unwrap(), (1, None));
    assert_eq!(read("y,a\n4.5,1\n").unwrap(), (1, Some(Target::Values(vec![4.5]))));
    assert_eq!(read("a,y\n1,2\n2,NA\n").unwrap(), (2, None));
    says(folder.table("a,y\n1,2\n2,NA\n", &with_target("y")), &["row 2, column 2", "`y`"]);
}

/// Columns without names that were chosen by position: a table that lacks others, or the target before them, has something else there.
#[test]
fn columns_are_chosen_by_position_where_all_of_them_are() {
    let folder = Folder::new();
    let columns = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    let chosen = |target: &str, of: &[&str]| ReadOptions { columns: columns(of), ..with_target(target) };
    let fitted = |options: &ReadOptions| {
        let table = folder.table("9,1,2,3\n8,4,5,6\n", options).unwrap();
        Schema::fit(&table, Missing::Refuse, Scaling::None).unwrap()
    };
    let read = |text: &str, options: &ReadOptions, schema: &Schema| {
        let (data, _) = schema.encode(Table::open_like(&folder.write("n.csv", text), options, schema)?)?;
        Ok::<_, mercer::Error>((data.x.to_f64().into_owned(), data.y))
    };
    let first = chosen("1", &["2", "3"]);
    let schema = fitted(&first);
    let whole = (array![[1.0, 2.0]], Some(Target::Values(vec![9.0])));
    assert_eq!(read("9,1,2,3\n", &first, &schema).unwrap(), whole);
    assert_eq!(read("9,1,2,3\n", &ReadOptions { target: None, ..first.clone() }, &schema).unwrap(), whole);
    // The target is missing: the second column is another one.
    says(read("1,2,3\n", &first, &schema), &["has 3 columns, where the fitted table has 4", "header"]);
    // Not taken for a target and the features.
    says(read("1,2,3\n", &ReadOptions::default(), &schema), &["has 3 columns, where 2 were fitted"]);
    assert_eq!(read("1,2\n", &ReadOptions::default(), &schema).unwrap(), (array![[1.0, 2.0]], None));
    // A target at the end changes no position.
    let last = chosen("-1", &["1", "3"]);
    let schema = fitted(&last);
    assert_eq!(read("9,1,2\n", &last, &schema).unwrap(), (array![[9.0, 2.0]], None));
    assert_eq!(read("9,1,2,3\n", &last, &schema).unwrap(), (array![[9.0, 2.0]], Some(Target::Values(vec![3.0]))));
}

/// Numbers are what they were without a schema, in the type of their source, and are not copied.
#[test]
fn plain_numbers_stay_as_they_are() {
    let folder = Folder::new();
    let x = Array2::from_shape_fn((6, 3), |(i, j)| (i as f32) - 0.1 * j as f32);
    write_npy(folder.path("x.npy"), x.view()).unwrap();
    let path = folder.path("x.npy").to_str().unwrap().to_owned();
    let table = Table::open(&path, &ReadOptions::default()).unwrap();
    assert_eq!(table.default_scaling(), Scaling::Standard);
    let schema = Schema::fit(&table, Missing::Refuse, Scaling::None).unwrap();
    let (data, _) = schema.encode(table).unwrap();
    assert_eq!(data, open(&path, &ReadOptions::default()).unwrap());
    for generated in ["digits", "moons(n=20)"] {
        let table = Table::open(generated, &ReadOptions::default()).unwrap();
        assert_eq!(table.default_scaling(), Scaling::None, "{generated}");
    }
}

#[test]
fn rows_without_a_target_are_errors_or_are_left_out_and_counted() {
    let folder = Folder::new();
    let text = "a,y\n1,10\n2,NA\n3,30\n4,\n5,50\n";
    says(folder.table(text, &with_target("y")), &["row 2, column 2", "`NA`, a missing value"]);
    let skip = ReadOptions { skip_unlabelled: true, ..with_target("y") };
    let table = folder.table(text, &skip).unwrap();
    assert_eq!((table.n(), table.unlabelled), (3, 2));
    assert_eq!(table.x.to_f64(), array![[1.0], [3.0], [5.0]]);
    assert_eq!(table.target.unwrap().values, Target::Values(vec![10.0, 30.0, 50.0]));
    // Positions of rows are those of the file.
    let first = folder.table(text, &ReadOptions { rows: Some(0..2), ..skip.clone() }).unwrap();
    assert_eq!((first.n(), first.unlabelled), (1, 1));
    says(folder.table("a,y\n1,NA\n", &skip), &["no row with a target"]);
}

#[test]
fn columns_that_the_schema_does_not_need_are_named() {
    let folder = Folder::new();
    let fitted = folder.table("a,y\n1,10\n2,20\n", &with_target("y")).unwrap();
    let schema = Schema::fit(&fitted, Missing::Refuse, Scaling::None).unwrap();
    let text = "id,a,y,when\n7,1,10,2024-01-02\n8,2,20,2024-01-03\n";
    let path = folder.path("new.csv");
    std::fs::write(&path, text).unwrap();
    let ignored = |options: &ReadOptions| Table::open_like(path.to_str().unwrap(), options, &schema).unwrap().ignored;
    assert_eq!(ignored(&ReadOptions::default()), ["id", "when"]);
    // Not those that the user left out, by name or by position.
    let drop = vec!["id".into(), "-1".into()];
    assert!(ignored(&ReadOptions { drop, ..Default::default() }).is_empty());
    assert!(folder.table(text, &with_target("y")).unwrap().ignored.is_empty());
}

/// The columns of a table without quotes, as text and by their names.
fn columns(text: &str) -> (Vec<ColumnValues>, Option<Vec<String>>) {
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let cell = |row: &Vec<&str>, j: usize| Some(row[j].to_owned()).filter(|cell| !cell.is_empty());
    let column = |j: usize| ColumnValues::Text(rows[1..].iter().map(|row| cell(row, j)).collect());
    ((0..rows[0].len()).map(column).collect(), Some(rows[0].iter().map(|name| (*name).to_owned()).collect()))
}

#[test]
fn a_table_in_memory_is_that_of_its_file() {
    let folder = Folder::new();
    let options = ReadOptions { categories: vec!["shop".into()], ..with_target("y") };
    let fitted = "colour,size,sold,when,shop,y\nred,1,yes,2024-01-01,3,1\nblue,NA,no,2024-01-03,2,2\nred,4,NO,2024-01-02T12:00,3,3\n?,1,,2024-01-01,3,4\n";
    let schema = Schema::fit(&folder.table(fitted, &options).unwrap(), Missing::Impute, Scaling::Standard).unwrap();
    let new = "when,extra,shop,colour,size,sold\n2024-02-01,x,2,red,7,no\n,y,9,violet,NA,yes\n2023-12-31,z,3,,-1,\n";
    let path = folder.write("new.csv", new);
    let (want, want_notes) = schema.encode(Table::open_like(&path, &ReadOptions::default(), &schema).unwrap()).unwrap();
    let (values, names) = columns(new);
    let table = Table::of_columns_like(values.clone(), names.clone(), &schema).unwrap();
    assert_eq!(table.ignored, ["extra"]);
    let (found, notes) = schema.encode(table).unwrap();
    assert_eq!((&found.x, &found.columns), (&want.x, &want.columns));
    assert_eq!(notes.len(), want_notes.len());
    assert!(notes.iter().any(|note| note.contains("`violet`")) && notes.iter().any(|note| note.contains("`9`")));
    // Numbers as numbers, NaN where one is missing; those of a category are words.
    let mut numbers = values;
    numbers[4] = ColumnValues::Numbers(vec![7.0, f64::NAN, -1.0]);
    numbers[2] = ColumnValues::Numbers(vec![2.0, 9.0, 3.0]);
    let again = schema.encode(Table::of_columns_like(numbers, names, &schema).unwrap()).unwrap();
    assert_eq!(again.0.x, want.x);
}

#[test]
fn a_matrix_in_memory_has_its_columns_by_name_or_order() {
    let folder = Folder::new();
    let options = ReadOptions { categories: vec!["shop".into()], ..Default::default() };
    let table = folder.table("shop,size\n3,10\n2,30\n3,NA\n", &options).unwrap();
    let schema = Schema::fit(&table, Missing::Impute, Scaling::Standard).unwrap();
    let want = schema.encode(folder.table("shop,size\n2,50\n,NA\n", &options).unwrap()).unwrap().0.x;
    let x = array![[2.0, 50.0], [f64::NAN, f64::NAN]];
    let turned = Matrix::F64(array![[50.0, 2.0], [f64::NAN, f64::NAN]]);
    let names = Some(vec!["size".to_owned(), "shop".to_owned()]);
    for table in [
        Table::of_matrix_like(Matrix::F64(x.clone()), None, &schema),
        Table::of_matrix_like(Matrix::F32(x.mapv(|v| v as f32)), None, &schema),
        Table::of_matrix_like(turned, names, &schema),
    ] {
        assert_eq!(schema.encode(table.unwrap()).unwrap().0.x, want);
    }
    let plain = Schema::of_numbers(vec!["a".into(), "b".into()]);
    let f32s = Matrix::F32(array![[1.5f32, 2.5]]);
    assert_eq!(plain.encode(Table::of_matrix_like(f32s.clone(), None, &plain).unwrap()).unwrap().0.x, f32s);
}

#[test]
fn what_is_wrong_with_a_table_in_memory_is_said() {
    let schema = Schema::of_numbers(vec!["size".into(), "weight".into()]);
    let names = |a: &str, b: &str| Some(vec![a.to_owned(), b.to_owned()]);
    let text = |cells: &[&str]| ColumnValues::Text(cells.iter().map(|cell| Some((*cell).to_owned())).collect());
    let numbers = || ColumnValues::Numbers(vec![1.0, 2.0]);
    let columns = |a, b, names| Table::of_columns_like(vec![a, b], names, &schema);
    says(columns(numbers(), text(&["1", "big"]), None), &["row 2", "column 2", "`big`", "hold numbers"]);
    says(columns(numbers(), ColumnValues::Numbers(vec![f64::INFINITY, 0.0]), None), &["row 1", "column 2", "infinite"]);
    says(columns(numbers(), ColumnValues::Numbers(vec![0.0]), None), &["has 2 rows", "`x1` has 1"]);
    says(columns(numbers(), numbers(), names("size", "wieght")), &["no column `weight`", "did you mean 'wieght'"]);
    let encoded = |table: Result<Table>| schema.encode(table?);
    says(encoded(columns(numbers(), text(&["big", "small"]), None)), &["`big`, a word", "numbers were fitted"]);
    says(encoded(columns(numbers(), ColumnValues::Numbers(vec![f64::NAN, 0.0]), None)), &["row 1", "is missing"]);
    let matrix = |x| Table::of_matrix_like(Matrix::F64(x), None, &schema);
    says(encoded(matrix(array![[1.0, 2.0, 3.0]])), &["has 3 columns, where 2 were fitted"]);
    says(matrix(array![[1.0, 2.0], [f64::NEG_INFINITY, 2.0]]), &["row 2", "infinite"]);
}
