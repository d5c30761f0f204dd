//! A data set: rows of numbers, perhaps with one target per row.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::ReadOptions;
use super::matrix::{MOST_MAGNITUDE, Matrix, Rows};
use crate::rng::Rng;
use crate::{Error, Result, fail_if};
use ndarray::{ArrayView1, ArrayView2};

/// Rows of features, perhaps with a target per row.
///
/// Every value is finite. `x` is in row-major order and keeps the type of its source; `x.to_f64()` gives doubles.
///
/// ```
/// use mercer::data::{open, ReadOptions};
/// let digits = open("digits", &ReadOptions::default())?;
/// assert_eq!((digits.n(), digits.d()), (1797, 64));
/// let (train, test) = digits.split(0.2, 0)?;
/// assert_eq!((train.n(), test.n()), (1438, 359));
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// Shown in tables and plots: the name of the set, or of the file without its folder and extension.
    pub name: String,
    /// Features, `[n, d]`.
    pub x: Matrix,
    /// One target per row, where there is one.
    pub y: Option<Target>,
    /// The targets of some rows, where others lack it; `y` is none then.
    pub some_y: Option<SomeTargets>,
    /// A name per feature, `[d]`, no two alike (`a` and `a.2` where a table has two columns `a`); `x0`, `x1`, … where the source
    /// gives none.
    pub columns: Vec<String>,
    /// Channels, height and width, where each row is an image (`d` is their product, channel by channel, row by row).
    pub shape: Option<[usize; 3]>,
}

/// The targets of some rows. Example: [`Dataset::known`].
#[derive(Clone, Debug, PartialEq)]
pub struct SomeTargets {
    /// The rows that have a target, in ascending order, `[m]`.
    pub rows: Vec<usize>,
    /// Their targets, `[m]`.
    pub y: Target,
}

impl SomeTargets {
    /// The targets of the given rows of `n`, in the given order.
    pub(super) fn select(&self, rows: &[usize], n: usize) -> SomeTargets {
        let mut places = vec![None; n];
        self.rows.iter().enumerate().for_each(|(place, &row)| places[row] = Some(place));
        let (rows, places): (Vec<usize>, Vec<usize>) =
            rows.iter().enumerate().filter_map(|(new, &row)| Some((new, places[row]?))).unzip();
        SomeTargets { rows, y: self.y.select(&places) }
    }
}

/// The quantity to predict, one per row. Example: [`crate::apply::Ridge`].
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// Numbers, for regression.
    Values(Vec<f64>),
    /// Classes: row `i` belongs to `names[labels[i]]`.
    Classes {
        /// Class of each row, `[n]`, each below `names.len()`.
        labels: Vec<usize>,
        /// Name of each class.
        names: Vec<String>,
    },
}

impl Dataset {
    /// A set from arrays: `x` is `[n, d]`, `y` has one entry per row. Refuses empty and non-finite arrays.
    pub fn new(name: impl Into<String>, x: impl Into<Matrix>, y: Option<Target>) -> Result<Self> {
        let (name, x) = (name.into(), x.into());
        let (n, d) = (x.n(), x.d());
        fail_if!(n == 0 || d == 0, "`{name}` is empty: {n} rows of {d} columns");
        if let Some(targets) = y.as_ref().map(Target::len).filter(|&targets| targets != n) {
            return Err(Error::input(format!("`{name}` has {n} rows but {targets} targets")));
        }
        if let Some(what) = non_finite(x.rows()).or_else(|| y.as_ref()?.non_finite()) {
            return Err(Error::input(format!("`{name}`: {what}")));
        }
        Ok(Dataset { name, x: x.into_standard_layout(), y, some_y: None, columns: generated_columns(d), shape: None })
    }

    /// Number of rows.
    pub fn n(&self) -> usize {
        self.x.n()
    }

    /// Number of features.
    pub fn d(&self) -> usize {
        self.x.d()
    }

    /// The given rows, in the given order, repeats allowed. Panics on a row that does not exist.
    pub fn select(&self, rows: &[usize]) -> Dataset {
        Dataset {
            name: self.name.clone(),
            x: self.x.select(rows),
            y: self.y.as_ref().map(|y| y.select(rows)),
            some_y: self.some_y.as_ref().map(|some| some.select(rows, self.n())),
            columns: self.columns.clone(),
            shape: self.shape,
        }
    }

    /// The known targets, and the rows that they belong to where these are not all.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// use mercer::data::{Missing, ReadOptions, Scaling, Schema, Table};
    /// let [train, test] = ["train.csv", "test.csv"].map(|name| folder.path().join(name));
    /// std::fs::write(&train, "x,y\n1,2\n3,4\n")?;
    /// std::fs::write(&test, "x,y\n5,\n6,7\n")?;
    /// let options = ReadOptions { target: Some("y".into()), ..Default::default() };
    /// let schema = Schema::fit(&Table::open(train.to_str().unwrap(), &options)?, Missing::Refuse, Scaling::None)?;
    /// let (data, _) = schema.encode(Table::open_like(test.to_str().unwrap(), &options, &schema)?)?;
    /// let (y, rows) = data.known().expect("row 2 has a target");
    /// assert_eq!((data.n(), y.values(), rows), (2, vec![7.0], Some(&[1][..])));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn known(&self) -> Option<(&Target, Option<&[usize]>)> {
        let some = || self.some_y.as_ref().map(|some| (&some.y, Some(&some.rows[..])));
        self.y.as_ref().map(|y| (y, None)).or_else(some)
    }

    /// The rows that have a target; all of them where none has one.
    pub fn labelled(self) -> Dataset {
        let Some(SomeTargets { rows, y }) = &self.some_y else { return self };
        Dataset { y: Some(y.clone()), some_y: None, ..self.select(rows) }
    }

    /// Two parts, `(rest, held-out)`: a random `fraction` of the rows is held out. Both keep the order of the rows,
    /// and the same seed gives the same parts.
    pub fn split(&self, fraction: f64, seed: u64) -> Result<(Dataset, Dataset)> {
        let [rest, test] = self.split_rows(fraction, seed)?;
        Ok((self.select(&rest), self.select(&test)))
    }

    /// The rows of the two parts of [`Self::split`], in ascending order.
    pub fn split_rows(&self, fraction: f64, seed: u64) -> Result<[Vec<usize>; 2]> {
        split_rows(self.n(), fraction, seed)
    }

    /// The target, which must be there. Example: [`Target::labels_for`].
    pub fn target(&self) -> Result<&Target> {
        self.y
            .as_ref()
            .ok_or_else(|| Error::input(format!("`{}` has no target; {}", self.name, crate::advice!(NameClasses))))
    }

    /// The same rows with whole numbers in the target read as classes ([`Target::as_classes`]). Before a split, so that both parts
    /// know the same classes. Refuses rows too large to compute with.
    pub fn with_classes(mut self) -> Result<Dataset> {
        self.y = Some(self.target()?.as_classes()?);
        self.x.rows().check_magnitude()?;
        Ok(self)
    }

    /// The same rows, whose target must be numbers. Refuses rows and targets too large to compute with.
    pub fn with_numbers(self) -> Result<Dataset> {
        let Target::Values(numbers) = self.target()? else {
            return Err(Error::input(format!("the target of `{}` is a class, not a number", self.name)));
        };
        if let Some(i) = numbers.iter().position(|y| y.is_nan() || y.abs() > MOST_MAGNITUDE) {
            return Err(Error::Numerical(format!(
                "the target of row {} (counted from 1) of `{}` is {:e}, too large to compute with; scale the target",
                i + 1,
                self.name,
                numbers[i]
            )));
        }
        self.x.rows().check_magnitude()?;
        Ok(self)
    }

    /// Moves the column called (or at) `target` from `x` into `y`; see [`ReadOptions::target`](super::ReadOptions::target).
    pub fn take_target(mut self, target: &str) -> Result<Dataset> {
        let j = find_column(&self.columns, target)?;
        fail_if!(self.d() == 1, "`{}` has one column only; as a target it leaves no feature", self.name);
        self.y = Some(Target::Values(self.x.column(j)));
        let rest: Vec<usize> = (0..self.d()).filter(|&c| c != j).collect();
        self.x = self.x.select_columns(&rest);
        self.columns.remove(j);
        self.shape = None;
        Ok(self)
    }
}

impl Target {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Target::Values(v) => v.len(),
            Target::Classes { labels, .. } => labels.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The given rows, in the given order. Panics on a row that does not exist.
    pub fn select(&self, rows: &[usize]) -> Target {
        match self {
            Target::Values(v) => Target::Values(rows.iter().map(|&i| v[i]).collect()),
            Target::Classes { labels, names } => {
                Target::Classes { labels: rows.iter().map(|&i| labels[i]).collect(), names: names.clone() }
            }
        }
    }

    /// The target as numbers, `[n]`: values as they are, classes as their position among the names.
    pub fn values(&self) -> Vec<f64> {
        match self {
            Target::Values(v) => v.clone(),
            Target::Classes { labels, .. } => labels.iter().map(|&l| l as f64).collect(),
        }
    }

    /// Reads whole numbers as classes: the distinct values, in increasing order, become the classes and name them.
    pub fn as_classes(&self) -> Result<Target> {
        let Target::Values(values) = self else { return Ok(self.clone()) };
        // Above 2^53, neighbouring whole numbers have the same f64.
        if let Some(i) = values.iter().position(|v| v.fract() != 0.0 || v.abs() > 9_007_199_254_740_992.0) {
            let (row, value) = (i + 1, values[i]);
            return Err(Error::input(format!(
                "row {row} (counted from 1) has the target {value}, which is not a whole number; classes must be whole numbers or text"
            )));
        }
        let whole: Vec<i64> = values.iter().map(|&v| v as i64).collect();
        let mut distinct = whole.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let labels = whole.iter().map(|v| distinct.binary_search(v).expect("each value is in its own list")).collect();
        Ok(Target::Classes { labels, names: distinct.iter().map(i64::to_string).collect() })
    }

    /// The class with the largest score of every row of scores `[n, C]`, the first of equals; without classes, the numbers of one column.
    ///
    /// ```
    /// use mercer::data::Target;
    /// let scores = ndarray::array![[0.1, 2.0], [3.0, 3.0]];
    /// let names = ["a", "b"].map(String::from);
    /// assert_eq!(Target::of_scores(scores.view(), &names).values(), [1.0, 0.0]);
    /// assert_eq!(Target::of_scores(scores.view(), &[]), Target::Values(vec![0.1, 3.0]));
    /// ```
    pub fn of_scores(scores: ArrayView2<f64>, names: &[String]) -> Target {
        if names.is_empty() {
            return Target::Values(scores.column(0).to_vec());
        }
        let largest =
            |row: ArrayView1<f64>| (0..row.len()).fold(0, |best, c| if row[c] > row[best] { c } else { best });
        Target::Classes { labels: scores.rows().into_iter().map(largest).collect(), names: names.to_vec() }
    }

    /// Names of the classes; none of numbers.
    pub fn names(&self) -> &[String] {
        if let Target::Classes { names, .. } = self { names } else { &[] }
    }

    /// The classes `[n]` as places among `learnt`, found by name.
    ///
    /// ```
    /// let digits = mercer::data::digits().with_classes()?;
    /// let few = digits.select(&[0, 3]); // a zero and a three
    /// let learnt = ["3", "1", "0"].map(String::from);
    /// assert_eq!(few.target()?.labels_for(&learnt)?, [2, 0]);
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn labels_for(&self, learnt: &[String]) -> Result<Vec<usize>> {
        let Target::Classes { labels, names } = self else {
            return Err(Error::input("the network tells classes apart, but the rows have numbers"));
        };
        let places: Vec<Option<usize>> = names.iter().map(|name| learnt.iter().position(|c| c == name)).collect();
        if let Some(c) = (0..places.len()).find(|c| places[*c].is_none() && labels.contains(c)) {
            let (name, learnt) = (&names[c], learnt.join(", "));
            return Err(Error::input(format!("the class `{name}` is not one of those that were learnt ({learnt})")));
        }
        Ok(labels.iter().map(|&l| places[l].unwrap_or(0)).collect())
    }

    /// The numbers `[n]` of a network that predicts one.
    pub(crate) fn numbers(&self) -> Result<&[f64]> {
        let Target::Values(numbers) = self else {
            return Err(Error::input("the network predicts a number, but the rows have classes"));
        };
        Ok(numbers)
    }

    fn non_finite(&self) -> Option<String> {
        let Target::Values(values) = self else { return None };
        let i = values.iter().position(|v| !v.is_finite())?;
        Some(format!("the target of row {} (counted from 1) is {}; drop the row or fill the value", i + 1, values[i]))
    }
}

/// The rows to fit and the rows to certify a spectrum on, a random `fraction` of `n` and at most 2000; none where the fraction is 0
/// or fewer than 50 rows are all there is.
#[doc(hidden)]
pub fn held_out_rows(n: usize, fraction: f64, seed: u64) -> Result<Option<[Vec<usize>; 2]>> {
    let holds_out = fraction != 0.0 && n >= FEW;
    holds_out.then(|| split_rows(n, fraction.min(MOST / n as f64), seed)).transpose()
}

/// Rows that certify a spectrum at most, and rows of which none are held out.
const MOST: f64 = 2000.0;
const FEW: usize = 50;

/// How many rows [`held_out_rows`] holds out.
#[doc(hidden)]
pub fn held_out_count(n: usize, fraction: f64) -> usize {
    if n < FEW { 0 } else { (fraction.min(MOST / n as f64) * n as f64).round() as usize }
}

/// The rows that stay and the rows that are held out, a random `fraction` of `n`, both in ascending order.
#[doc(hidden)]
pub fn split_rows(n: usize, fraction: f64, seed: u64) -> Result<[Vec<usize>; 2]> {
    fail_if!(!(fraction > 0.0 && fraction < 1.0), "the held-out fraction must lie between 0 and 1, not {fraction}");
    let m = (fraction * n as f64).round() as usize;
    fail_if!(
        m == 0 || m == n,
        "holding out {fraction} of {n} rows leaves one part empty; use another fraction or more rows"
    );
    let mut held_out = vec![false; n];
    for i in Rng::new(seed).sample(n, m) {
        held_out[i] = true;
    }
    let (test, rest): (Vec<usize>, Vec<usize>) = (0..n).partition(|&i| held_out[i]);
    Ok([rest, test])
}

/// `x0`, `x1`, …, `x{d-1}`.
pub(super) fn generated_columns(d: usize) -> Vec<String> {
    (0..d).map(|j| format!("x{j}")).collect()
}

/// The names with a number behind each that occurs for the second time or more: `a`, `a`, `b` become `a`, `a.2`, `b`. Names find the
/// columns of another table, where the first `a` is then the first, and the second the second.
pub(super) fn distinct(names: Vec<String>) -> Vec<String> {
    let mut given: HashSet<String> = names.iter().cloned().collect();
    let mut seen: HashMap<String, usize> = HashMap::new();
    let unique = |name: String| {
        let count = seen.entry(name.clone()).and_modify(|count| *count += 1).or_insert(1);
        if *count == 1 {
            return name;
        }
        // A column may be called `a.2` by itself.
        while !given.insert(format!("{name}.{count}")) {
            *count += 1;
        }
        format!("{name}.{count}")
    };
    names.into_iter().map(unique).collect()
}

/// What is wrong with the first NaN or infinity of `x` `[n, d]`, if there is one.
pub(super) fn non_finite(x: Rows) -> Option<String> {
    let (i, j, v) = x.non_finite()?;
    Some(unfit(i, j, v))
}

/// What is wrong with a cell that is `v`, NaN or infinite.
pub(super) fn unfit(row: usize, column: usize, v: f64) -> String {
    format!("{} is {v}; drop the row or fill the value", cell(row, column))
}

/// A cell of a table, counted from 1: `row 3, column 5 (counted from 1)`.
pub(super) fn cell(row: usize, column: usize) -> String {
    format!("row {}, column {} (counted from 1)", row + 1, column + 1)
}

/// The position of the target among the `columns` of a file, where the options name one.
pub(super) fn find_target(path: &Path, columns: &[String], options: &ReadOptions) -> Result<Option<usize>> {
    let Some(target) = &options.target else { return Ok(None) };
    let j = find_column(columns, target).map_err(|e| Error::file(path, e.to_string()))?;
    fail_if!(columns.len() == 1; Error::file(path, "has one column only; as a target it leaves no feature"));
    Ok(Some(j))
}

/// The position of the column called `target`, or at position `target`: 1 is the first, −1 the last.
pub(super) fn find_column(columns: &[String], target: &str) -> Result<usize> {
    let d = columns.len();
    match (0..d).filter(|&j| columns[j] == target).collect::<Vec<_>>()[..] {
        [] => {}
        [j] => return Ok(j),
        [j, k, ..] => {
            let (j, k) = (j + 1, k + 1);
            return Err(Error::input(format!(
                "columns {j} and {k} (counted from 1) are both called `{target}`; name the target by its position"
            )));
        }
    }
    if let Ok(position) = target.parse::<i64>() {
        let distance = usize::try_from(position.unsigned_abs()).unwrap_or(usize::MAX);
        fail_if!(
            position == 0 || distance > d,
            "there is no column {position}: there are {d}, counted 1 to {d} from the left or -1 to -{d} from the right"
        );
        return Ok(if position > 0 { distance - 1 } else { d - distance });
    }
    Err(Error::unknown("column", target, columns.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, array};

    fn small() -> Dataset {
        Dataset::new("small", array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], None).unwrap()
    }

    #[test]
    fn constructor_names_the_bad_value() {
        let message = Dataset::new("s", array![[1.0, 2.0], [3.0, f64::NAN]], None).unwrap_err().to_string();
        assert_eq!(message, "`s`: row 2, column 2 (counted from 1) is NaN; drop the row or fill the value");
        assert!(Dataset::new("s", Array2::<f64>::zeros((0, 3)), None).is_err());
        assert!(Dataset::new("s", Array2::<f64>::zeros((3, 0)), None).is_err());
        let short = Dataset::new("s", Array2::<f64>::zeros((3, 1)), Some(Target::Values(vec![1.0])));
        assert!(short.unwrap_err().to_string().contains("3 rows but 1 targets"));
        let infinite = Dataset::new("s", Array2::<f64>::zeros((2, 1)), Some(Target::Values(vec![1.0, f64::INFINITY])));
        assert!(infinite.unwrap_err().to_string().contains("target of row 2"));
    }

    #[test]
    fn columns_are_found_by_name_position_and_from_the_end() {
        let columns: Vec<String> = ["age", "price", "2", "age"].map(String::from).to_vec();
        assert_eq!(find_column(&columns, "price").unwrap(), 1);
        assert_eq!(find_column(&columns, "1").unwrap(), 0);
        assert_eq!(find_column(&columns, "2").unwrap(), 2, "a name has priority over a position");
        assert_eq!(find_column(&columns, "-1").unwrap(), 3);
        assert_eq!(find_column(&columns, "-4").unwrap(), 0);
        for (target, part) in [
            ("0", "no column 0"),
            ("5", "counted 1 to 4"),
            ("-5", "no column -5"),
            ("age", "columns 1 and 4"),
            ("prise", "did you mean 'price'?"),
            ("zzzzzz", "(known: age, price"),
            ("-9223372036854775808", "no column"),
        ] {
            let message = find_column(&columns, target).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn equal_names_are_numbered() {
        let numbered = |names: &str| distinct(names.split(' ').map(String::from).collect()).join(" ");
        assert_eq!(numbered("a b c"), "a b c");
        assert_eq!(numbered("a a b a b"), "a a.2 b a.3 b.2");
        assert_eq!(numbered("a a.2 a"), "a a.2 a.3");
        assert_eq!(numbered("a.2 a a"), "a.2 a a.3");
        assert_eq!(numbered("a a a.2 a.2"), "a a.3 a.2 a.2.2");
    }

    #[test]
    fn both_parts_of_a_split_know_the_same_classes() {
        let y = Target::Values((0..40).map(|i| f64::from(u8::from(i == 7))).collect());
        let set = Dataset::new("s", Array2::<f64>::zeros((40, 1)), Some(y)).unwrap().with_classes().unwrap();
        let (rest, held_out) = set.split(0.2, 0).unwrap();
        for part in [rest, held_out] {
            let Some(Target::Classes { names, .. }) = part.y else { panic!("not classes") };
            assert_eq!(names, ["0", "1"]);
        }
    }

    #[test]
    fn a_target_is_taken_out_of_the_features() {
        let set = small().take_target("2").unwrap();
        assert_eq!(set.x, array![[1.0, 3.0], [4.0, 6.0]].into());
        assert_eq!(set.y, Some(Target::Values(vec![2.0, 5.0])));
        assert_eq!(set.columns, ["x0", "x2"]);
        assert!(set.x.to_f64().is_standard_layout());
        let one = Dataset::new("one", array![[1.0]], None).unwrap();
        assert!(one.take_target("1").unwrap_err().to_string().contains("leaves no feature"));
    }

    #[test]
    fn split_refuses_empty_parts_and_bad_fractions() {
        for bad in [0.0, 1.0, -0.1, 1.5, f64::NAN, 0.1, 0.9] {
            assert!(small().split(bad, 0).is_err(), "{bad}");
        }
        let (a, b) = small().split(0.5, 0).unwrap();
        assert_eq!((a.n(), b.n()), (1, 1));
    }

    #[test]
    fn classes_are_numbered_in_increasing_order() {
        let y = Target::Values(vec![10.0, 9.0, 10.0, -3.0]).as_classes().unwrap();
        let Target::Classes { labels, names } = &y else { panic!("not classes") };
        assert_eq!((labels.as_slice(), names.join(" ")), ([2, 1, 2, 0].as_slice(), "-3 9 10".to_string()));
        assert_eq!(y.as_classes().unwrap(), y);
        assert_eq!(y.values(), [2.0, 1.0, 2.0, 0.0]);
        let message = Target::Values(vec![1.0, 2.5]).as_classes().unwrap_err().to_string();
        assert!(message.contains("row 2") && message.contains("2.5"), "{message}");
        assert!(Target::Values(vec![f64::NAN]).as_classes().is_err());
        assert!(Target::Values(vec![1e300]).as_classes().is_err());
    }
}
