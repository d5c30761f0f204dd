//! Sets that go by a name: embedded, generated, or files of known layout in the folder `$MERCER_DATA`.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::call::Call;
use super::dataset::Dataset;
use super::{ReadOptions, cifar, csv, embedded, generate, idx};
use crate::error::nearest;
use crate::{Error, Result};

/// One line of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// What [`open`](super::open) calls it.
    pub name: &'static str,
    /// One line on what it is.
    pub help: &'static str,
    /// Parameters and their defaults, as they are written after the name; empty where there are none.
    pub parameters: &'static str,
    /// Where it comes from.
    pub origin: Origin,
    /// Whether it can be opened here and now.
    pub present: bool,
    /// Rows, where they are fixed.
    pub n: Option<usize>,
    /// Features.
    pub d: usize,
}

/// Where a named set comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Compiled into the library.
    Embedded,
    /// Drawn from a seed.
    Generated,
    /// Read from the folder that the environment variable `MERCER_DATA` names.
    Folder,
}

/// How a named set is made.
enum Recipe {
    Digits,
    Circles,
    Moons,
    SwissRoll,
    Uniform,
    /// A folder of four IDX files.
    Idx(&'static str),
    /// A folder of CIFAR-10 binary files.
    Cifar(&'static str),
    /// A CSV, target last.
    Table {
        file: &'static str,
        classes: bool,
        splits: Splits,
    },
}

/// How a table comes with its train and test rows.
#[derive(Clone, Copy)]
enum Splits {
    None,
    /// The first rows are for training.
    First(usize),
    /// A text file: line k lists the test rows of split k, counted from 0.
    Lists(&'static str),
    /// A CSV of zeros and ones: column k marks the test rows of split k.
    Masks(&'static str),
}

struct Named {
    name: &'static str,
    help: &'static str,
    n: Option<usize>,
    d: usize,
    recipe: Recipe,
}

const fn named(name: &'static str, n: usize, d: usize, recipe: Recipe, help: &'static str) -> Named {
    Named { name, help, n: Some(n), d, recipe }
}

const fn drawn(name: &'static str, d: usize, recipe: Recipe, help: &'static str) -> Named {
    Named { name, help, n: None, d, recipe }
}

const fn table(file: &'static str, classes: bool, splits: Splits) -> Recipe {
    Recipe::Table { file, classes, splits }
}

macro_rules! uci {
    ($name:literal, $n:literal, $d:literal, $help:literal) => {
        named(
            $name,
            $n,
            $d,
            table(concat!("uci/", $name, ".csv"), false, Splits::Lists(concat!("uci/splits/", $name, ".test.txt"))),
            $help,
        )
    };
}

macro_rules! uci_gp {
    ($name:literal, $n:literal, $d:literal, $help:literal) => {
        named(
            $name,
            $n,
            $d,
            table(
                concat!("tabular/uci_gp/", $name, ".data.csv.gz"),
                false,
                Splits::Masks(concat!("tabular/uci_gp/", $name, ".test_mask.csv.gz")),
            ),
            $help,
        )
    };
}

static SETS: &[Named] = &[
    named("digits", 1797, 64, Recipe::Digits, "handwritten digits, 8×8 pixels, 10 classes"),
    drawn("circles", 2, Recipe::Circles, "two concentric circles, 2 classes"),
    drawn("moons", 2, Recipe::Moons, "two interleaved half circles, 2 classes"),
    drawn("swiss-roll", 3, Recipe::SwissRoll, "a rolled-up sheet; the target is the way along the roll"),
    drawn("uniform", 1, Recipe::Uniform, "uniform points on an interval, no target"),
    named("mnist", 60_000, 784, Recipe::Idx("mnist"), "handwritten digits, 28×28 pixels in [0, 1], 10 classes"),
    named("fashion-mnist", 60_000, 784, Recipe::Idx("fashion-mnist"), "clothes, 28×28 pixels in [0, 1], 10 classes"),
    named("cifar-10", 50_000, 3072, Recipe::Cifar("cifar-10"), "photographs, 3×32×32 in [0, 1], 10 classes"),
    uci!("boston", 506, 13, "house prices by district"),
    uci!("concrete", 1030, 8, "compressive strength of concrete mixtures"),
    uci!("energy", 768, 8, "heating load of buildings"),
    uci!("kin8nm", 8192, 8, "forward kinematics of an 8-link arm"),
    uci!("naval", 11_934, 16, "compressor decay of a naval turbine"),
    uci!("power-plant", 9568, 4, "output of a combined-cycle power plant"),
    uci!("protein", 45_730, 9, "size of the residue of protein structures"),
    uci!("wine", 1599, 11, "quality of red wine"),
    uci!("yacht", 308, 6, "resistance of yacht hulls"),
    named(
        "covtype",
        581_012,
        54,
        table("tabular/covtype.data.gz", true, Splits::None),
        "forest cover type from maps, 7 classes",
    ),
    named(
        "flights",
        273_853,
        8,
        table("tabular/flights_delay.csv.gz", false, Splits::None),
        "arrival delay of flights in minutes",
    ),
    named(
        "higgs",
        7500,
        28,
        table("tabular/higgs7500_3dp.csv.gz", true, Splits::First(7000)),
        "signal or background in particle collisions, 2 classes",
    ),
    uci_gp!("bike", 17_379, 17, "bicycles hired by the hour"),
    uci_gp!("elevators", 16_599, 18, "control of an aircraft's elevators"),
    uci_gp!("keggdirected", 48_827, 20, "metabolic reaction network; most test rows also occur in training"),
    uci_gp!("keggundirected", 63_608, 27, "metabolic relation network; most test rows also occur in training"),
    uci_gp!("kin40k", 40_000, 8, "forward kinematics of an 8-link arm, long edition"),
    uci_gp!("pol", 15_000, 26, "telecommunications"),
    uci_gp!("pumadyn32nm", 8192, 32, "dynamics of a robot arm, 32 inputs"),
];

impl Recipe {
    fn origin(&self) -> Origin {
        match self {
            Recipe::Digits => Origin::Embedded,
            Recipe::Circles | Recipe::Moons | Recipe::SwissRoll | Recipe::Uniform => Origin::Generated,
            Recipe::Idx(_) | Recipe::Cifar(_) | Recipe::Table { .. } => Origin::Folder,
        }
    }

    /// Parameters with their defaults.
    fn parameters(&self) -> &'static str {
        match self {
            Recipe::Circles => "n=1000, noise=0.05, factor=0.5, seed=0",
            Recipe::Moons | Recipe::SwissRoll => "n=1000, noise=0.05, seed=0",
            Recipe::Uniform => "n=1000, low=-2, high=2, seed=0",
            Recipe::Idx(_) | Recipe::Cifar(_) => "part=train",
            Recipe::Table { splits: Splits::First(_), .. } => "part=all",
            Recipe::Table { splits: Splits::Lists(_) | Splits::Masks(_), .. } => "split=none, part=train",
            Recipe::Digits | Recipe::Table { splits: Splits::None, .. } => "",
        }
    }

    /// The file or folder below `$MERCER_DATA` that must be there.
    fn place(&self) -> Option<String> {
        match self {
            Recipe::Idx(folder) => Some(format!("{folder}/train-images-idx3-ubyte.gz")),
            Recipe::Cifar(folder) => Some(format!("{folder}/data_batch_1.bin")),
            Recipe::Table { file, .. } => Some(file.to_string()),
            _ => None,
        }
    }
}

fn data_folder() -> Option<PathBuf> {
    std::env::var_os("MERCER_DATA").filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// Every set that has a name, and whether it is at hand.
///
/// ```
/// let names: Vec<_> = mercer::data::catalogue().iter().map(|entry| entry.name).collect();
/// assert!(names.contains(&"digits") && names.contains(&"moons"));
/// ```
pub fn catalogue() -> Vec<Entry> {
    catalogue_in(data_folder().as_deref())
}

fn catalogue_in(folder: Option<&Path>) -> Vec<Entry> {
    let entry = |set: &Named| Entry {
        name: set.name,
        help: set.help,
        parameters: set.recipe.parameters(),
        origin: set.recipe.origin(),
        present: set.recipe.place().is_none_or(|place| folder.is_some_and(|f| f.join(place).is_file())),
        n: set.n,
        d: set.d,
    };
    SETS.iter().map(entry).collect()
}

/// Whether `name` is in the catalogue.
pub(super) fn exists(name: &str) -> bool {
    SETS.iter().any(|s| s.name == name)
}

/// The error on a name that is not in the catalogue.
pub(super) fn unknown(name: &str) -> Error {
    let hint = match nearest(name, SETS.iter().map(|s| s.name)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "it is not a file either; named sets are {}",
            SETS.iter().map(|s| s.name).collect::<Vec<_>>().join(", ")
        ),
    };
    Error::input(format!("there is no data set called `{name}`; {hint}"))
}

/// Opens a set of the catalogue.
pub(super) fn open(call: &Call, options: &ReadOptions) -> Result<Dataset> {
    open_in(data_folder().as_deref(), call, options)
}

fn open_in(folder: Option<&Path>, call: &Call, options: &ReadOptions) -> Result<Dataset> {
    let set = SETS.iter().find(|s| s.name == call.name).ok_or_else(|| unknown(call.name))?;
    let parameters = set.recipe.parameters();
    let known: Vec<&str> = parameters.split(", ").filter_map(|p| p.split_once('=')).map(|(key, _)| key).collect();
    call.only(&known)?;
    let is_table = matches!(set.recipe, Recipe::Table { .. });
    if options.key.is_some() || (!is_table && (options.target.is_some() || options.header.is_some())) {
        return Err(Error::input(format!("`{}` is read as it is: target, header and key are for files", set.name)));
    }
    // Read from the text that the catalogue shows, so that the two cannot differ.
    let default = |key: &str| parameters.split(", ").filter_map(|p| p.split_once('=')).find(|(k, _)| *k == key);
    let number = |key: &str| -> Result<f64> {
        let value = default(key).and_then(|(_, v)| v.parse().ok()).expect("each default is a number");
        Ok(call.number(key)?.unwrap_or(value))
    };
    let n = || call.number("n").map(|n| n.unwrap_or(1000));
    let seed = || call.number("seed").map(|s| s.unwrap_or(0));
    match &set.recipe {
        Recipe::Digits => Ok(embedded::digits()),
        Recipe::Circles => generate::circles(n()?, number("noise")?, number("factor")?, seed()?),
        Recipe::Moons => generate::moons(n()?, number("noise")?, seed()?),
        Recipe::SwissRoll => generate::swiss_roll(n()?, number("noise")?, seed()?),
        Recipe::Uniform => generate::uniform(n()?, number("low")?, number("high")?, seed()?),
        Recipe::Idx(name) => {
            let prefix = if part(call)?.unwrap_or(Part::Train) == Part::Train { "train" } else { "t10k" };
            idx::read(&at(folder, set, &format!("{name}/{prefix}-images-idx3-ubyte.gz"))?, set.name)
        }
        Recipe::Cifar(name) => match part(call)?.unwrap_or(Part::Train) {
            Part::Train => cifar::read(
                at(folder, set, &format!("{name}/data_batch_1.bin"))?.parent().expect("a file has a folder"),
                set.name,
            ),
            Part::Test => cifar::read(&at(folder, set, &format!("{name}/test_batch.bin"))?, set.name),
        },
        Recipe::Table { file, classes, splits } => {
            let target = options.target.clone().or_else(|| Some("-1".into()));
            let mut data = csv::read(&at(folder, set, file)?, set.name, &ReadOptions { target, ..options.clone() })?;
            if *classes && options.target.is_none() {
                data.y = data.y.map(|y| y.as_classes()).transpose()?;
            }
            match test_rows(folder, set, call, *splits, data.n())? {
                None => Ok(data),
                Some((test, part)) => {
                    let wanted = part == Part::Test;
                    let rows: Vec<usize> = (0..data.n()).filter(|&i| test[i] == wanted).collect();
                    Ok(data.select(&rows))
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Train,
    Test,
}

fn part(call: &Call) -> Result<Option<Part>> {
    match call.text("part") {
        None => Ok(None),
        Some("train") => Ok(Some(Part::Train)),
        Some("test") => Ok(Some(Part::Test)),
        Some(other) => Err(Error::input(format!("`{}`: part must be train or test, not `{other}`", call.name))),
    }
}

/// The path of a file of the set, which must exist.
fn at(folder: Option<&Path>, set: &Named, file: &str) -> Result<PathBuf> {
    let Some(folder) = folder else {
        return Err(Error::input(format!(
            "`{}` is read from a folder of data sets; set the environment variable MERCER_DATA to that folder",
            set.name
        )));
    };
    let path = folder.join(file);
    if !path.is_file() {
        return Err(Error::file(
            &path,
            format!("is missing; `{}` needs it in the folder that MERCER_DATA names", set.name),
        ));
    }
    Ok(path)
}

/// Which of the `n` rows are for testing `[n]`, and which part is wanted; `None` for the whole table.
fn test_rows(
    folder: Option<&Path>,
    set: &Named,
    call: &Call,
    splits: Splits,
    n: usize,
) -> Result<Option<(Vec<bool>, Part)>> {
    if call.text("part") == Some("all") && call.text("split").is_none() && matches!(splits, Splits::First(_)) {
        return Ok(None);
    }
    let part = part(call)?;
    let split: Option<usize> = call.number("split")?;
    let test = match splits {
        Splits::None => return Ok(None),
        Splits::First(train) => match part {
            None => return Ok(None),
            Some(_) => (0..n).map(|i| i >= train).collect(),
        },
        Splits::Lists(_) | Splits::Masks(_) if split.is_none() => {
            return match part {
                None => Ok(None),
                Some(_) => Err(Error::input(format!(
                    "`{0}` has several splits; choose one, as in {0}(split=1, part=test)",
                    set.name
                ))),
            };
        }
        Splits::Lists(file) => listed(&at(folder, set, file)?, split.unwrap_or(0), n)?,
        Splits::Masks(file) => masked(&at(folder, set, file)?, split.unwrap_or(0), n)?,
    };
    Ok(Some((test, part.unwrap_or(Part::Train))))
}

fn no_split(path: &Path, split: usize, count: usize) -> Error {
    Error::file(path, format!("has the splits 1 to {count}, not {split}"))
}

/// Line `split` (from 1) of the file lists the test rows, counted from 0.
fn listed(path: &Path, split: usize, n: usize) -> Result<Vec<bool>> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
    let lines: Vec<&str> = text.lines().collect();
    let line = split.checked_sub(1).and_then(|k| lines.get(k)).ok_or_else(|| no_split(path, split, lines.len()))?;
    let mut test = vec![false; n];
    for word in line.split_whitespace() {
        let row = word.parse::<usize>().ok().and_then(|i| test.get_mut(i));
        *row.ok_or_else(|| {
            Error::file(path, format!("line {split} lists `{word}`, which is not a row from 0 to {}", n - 1))
        })? = true;
    }
    Ok(test)
}

/// Column `split` (from 1) of the file marks the test rows by 1.
fn masked(path: &Path, split: usize, n: usize) -> Result<Vec<bool>> {
    let masks = csv::read(path, "mask", &ReadOptions { header: Some(false), ..Default::default() })?;
    if masks.n() != n {
        return Err(Error::file(path, format!("has {} rows, but the table has {n}", masks.n())));
    }
    let column = split.checked_sub(1).filter(|&k| k < masks.d()).ok_or_else(|| no_split(path, split, masks.d()))?;
    Ok(masks.x.column(column).iter().map(|&v| v != 0.0).collect())
}
