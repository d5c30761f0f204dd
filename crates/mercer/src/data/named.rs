//! Data sets with a name: embedded, generated, or files of known layout in the folder `$MERCER_DATA`.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::dataset::Dataset;
use super::splits::{Splits, asks_for_test};
use super::{ReadOptions, cifar, csv, embedded, generate, idx};
use crate::syntax::Call;
use crate::{Error, Result, fail_if};

/// One line of the catalogue. Example: [`catalogue`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its name for [`open`](super::open).
    pub name: &'static str,
    /// A short description.
    pub help: &'static str,
    /// Parameters and their defaults, as they are written after the name; empty where there are none. With a `split`
    /// (counted from 1), the default of `part` is `train`; `n` without a default is the number of first rows to take, of all.
    pub parameters: &'static str,
    /// Where it comes from.
    pub origin: Origin,
    /// Whether it can be opened now.
    pub present: bool,
    /// Rows, where they are fixed.
    pub n: Option<usize>,
    /// Features.
    pub d: usize,
}

/// Where a named set comes from. Example: [`catalogue`].
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

use Recipe::{Cifar, Circles, Digits, Idx, Moons, SwissRoll, Table, Uniform};

/// How a named set is made.
enum Recipe {
    Digits,
    Circles,
    Moons,
    SwissRoll,
    Uniform,
    /// A folder of four IDX files, called like the set.
    Idx,
    /// A folder of CIFAR-10 binary files, called like the set.
    Cifar,
    /// A CSV with the target last: its file (`NAME` is the name of the set), whether the target holds classes, its splits.
    Table(&'static str, bool, Splits),
}

const UCI: Recipe = Table("uci/NAME.csv", false, Splits::Lists);
const UCI_GP: Recipe = Table("tabular/uci_gp/NAME.data.csv.gz", false, Splits::Masks);
const COVTYPE: Recipe = Table("tabular/covtype.data.gz", true, Splits::None);
const FLIGHTS: Recipe = Table("tabular/flights_delay.csv.gz", false, Splits::None);
const HIGGS: Recipe = Table("tabular/higgs7500_3dp.csv.gz", true, Splits::First(7000));

pub(super) struct Named {
    name: &'static str,
    /// Rows; 0 where the caller chooses.
    n: usize,
    d: usize,
    recipe: Recipe,
    help: &'static str,
}

const fn named(name: &'static str, n: usize, d: usize, recipe: Recipe, help: &'static str) -> Named {
    Named { name, n, d, recipe, help }
}

static SETS: &[Named] = &[
    named("digits", 1797, 64, Digits, "handwritten digits, 8×8 pixels, 10 classes"),
    named("circles", 0, 2, Circles, "two concentric circles, 2 classes"),
    named("moons", 0, 2, Moons, "two interleaved half circles, 2 classes"),
    named("swiss-roll", 0, 3, SwissRoll, "a rolled-up sheet; the target is the way along the roll"),
    named("uniform", 0, 1, Uniform, "uniform points on an interval, no target"),
    named("mnist", 60_000, 784, Idx, "handwritten digits, 28×28 pixels in [0, 1], 10 classes"),
    named("fashion-mnist", 60_000, 784, Idx, "clothes, 28×28 pixels in [0, 1], 10 classes"),
    named("cifar-10", 50_000, 3072, Cifar, "photographs, 3×32×32 in [0, 1], 10 classes"),
    named("boston", 506, 13, UCI, "house prices by district"),
    named("concrete", 1030, 8, UCI, "compressive strength of concrete mixtures"),
    named("energy", 768, 8, UCI, "heating load of buildings"),
    named("kin8nm", 8192, 8, UCI, "forward kinematics of an 8-link arm"),
    named("naval", 11_934, 16, UCI, "compressor decay of a naval turbine"),
    named("power-plant", 9568, 4, UCI, "output of a combined-cycle power plant"),
    named("protein", 45_730, 9, UCI, "size of the residue of protein structures"),
    named("wine", 1599, 11, UCI, "quality of red wine"),
    named("yacht", 308, 6, UCI, "resistance of yacht hulls"),
    named("covtype", 581_012, 54, COVTYPE, "forest cover type from maps, 7 classes"),
    named("flights", 273_853, 8, FLIGHTS, "arrival delay of flights in minutes"),
    named("higgs", 7500, 28, HIGGS, "signal or background in particle collisions, 2 classes"),
    named("bike", 17_379, 17, UCI_GP, "bicycles hired by the hour"),
    named("elevators", 16_599, 18, UCI_GP, "control of an aircraft's elevators"),
    named("keggdirected", 48_827, 20, UCI_GP, "metabolic reaction network; most test rows also occur in training"),
    named("keggundirected", 63_608, 27, UCI_GP, "metabolic relation network; most test rows also occur in training"),
    named("kin40k", 40_000, 8, UCI_GP, "forward kinematics of an 8-link arm, long edition"),
    named("pol", 15_000, 26, UCI_GP, "telecommunications"),
    named("pumadyn32nm", 8192, 32, UCI_GP, "dynamics of a robot arm, 32 inputs"),
];

impl Named {
    /// Where the set comes from, its parameters with their defaults, and the file below `$MERCER_DATA` that must exist.
    fn layout(&self) -> (Origin, &'static str, Option<String>) {
        match self.recipe {
            Digits => (Origin::Embedded, "", None),
            Circles => (Origin::Generated, "n=1000, noise=0.05, factor=0.5, seed=0", None),
            Moons | SwissRoll => (Origin::Generated, "n=1000, noise=0.05, seed=0", None),
            Uniform => (Origin::Generated, "n=1000, low=-2, high=2, seed=0", None),
            Idx => (Origin::Folder, "n, part=train", Some(format!("{}/train-images-idx3-ubyte.gz", self.name))),
            Cifar => (Origin::Folder, "n, part=train", Some(format!("{}/data_batch_1.bin", self.name))),
            Table(file, _, splits) => {
                let parameters = match splits {
                    Splits::None => "n",
                    Splits::First(_) => "n, part=all",
                    Splits::Lists | Splits::Masks => "n, split, part=all",
                };
                (Origin::Folder, parameters, Some(file.replace("NAME", self.name)))
            }
        }
    }

    /// Whether it is a table, whose columns have units of their own.
    pub fn is_table(&self) -> bool {
        matches!(self.recipe, Table(..))
    }

    /// Opens the set with the parameters of `call`.
    pub fn open(&self, call: &Call, options: &ReadOptions) -> Result<Dataset> {
        self.open_in(data_folder().as_deref(), call, options)
    }

    fn open_in(&self, folder: Option<&Path>, call: &Call, options: &ReadOptions) -> Result<Dataset> {
        let (_, parameters, place) = self.layout();
        let known = parameters.split(", ").filter_map(|p| p.split('=').next()).filter(|key| !key.is_empty());
        call.check(0, &known.collect::<Vec<&str>>())?;
        fail_if!(
            options.key.is_some() || (!self.is_table() && (options.target.is_some() || options.header.is_some())),
            "`{}` has no options: target, header and key are for files",
            self.name
        );
        let budget = options.budget();
        let n = || -> Result<usize> {
            let n = call.number("n")?.unwrap_or(1000);
            let bytes = (8 * (self.d as u64 + 2)).saturating_mul(n as u64);
            budget.require(format!("{n} points of `{}`", self.name), bytes, "ask for fewer points")?;
            Ok(n)
        };
        let seed = || call.number("seed").map(|s| s.unwrap_or(0));
        let real = |key: &str, default: f64| call.number(key).map(|v| v.unwrap_or(default));
        let file = |file: &str| at(folder, self.name, &format!("{}/{file}", self.name));
        let test = || asks_for_test(call).map(|test| test == Some(true));
        let data = match self.recipe {
            Digits => Ok(embedded::digits()),
            Circles => generate::circles(n()?, real("noise", 0.05)?, real("factor", 0.5)?, seed()?),
            Moons => generate::moons(n()?, real("noise", 0.05)?, seed()?),
            SwissRoll => generate::swiss_roll(n()?, real("noise", 0.05)?, seed()?),
            Uniform => generate::uniform(n()?, real("low", -2.0)?, real("high", 2.0)?, seed()?),
            Idx => {
                let prefix = if test()? { "t10k" } else { "train" };
                idx::read(&file(&format!("{prefix}-images-idx3-ubyte.gz"))?, self.name, budget)
            }
            Cifar if test()? => cifar::read(&file("test_batch.bin")?, self.name, budget),
            Cifar => {
                let first = file("data_batch_1.bin")?;
                cifar::read(first.parent().unwrap_or(&first), self.name, budget)
            }
            Table(_, classes, splits) => {
                let target = options.target.clone().or_else(|| Some("-1".into()));
                let path = at(folder, self.name, place.as_deref().unwrap_or_default())?;
                let mut data = csv::read_numbers(&path, self.name, &ReadOptions { target, ..options.clone() })?;
                if classes && options.target.is_none() {
                    data = data.with_classes()?;
                }
                match splits.rows(folder, call, data.n())? {
                    None => Ok(data),
                    Some(rows) if rows.is_empty() => Err(Error::file(&path, "has no rows in that part of that split")),
                    Some(rows) => Ok(data.select(&rows)),
                }
            }
        }?;
        if place.is_none() { Ok(data) } else { self.first_rows(data, call) }
    }

    /// The first `n` rows of a set of files, where the call asks for so many.
    fn first_rows(&self, data: Dataset, call: &Call) -> Result<Dataset> {
        let (Some(n), all) = (call.number::<usize>("n")?, data.n()) else { return Ok(data) };
        fail_if!(
            n == 0 || n > all,
            "`{}` has {all} rows here, so that n must lie between 1 and {all}, not {n}",
            self.name
        );
        Ok(data.select(&(0..n).collect::<Vec<_>>()))
    }
}

fn data_folder() -> Option<PathBuf> {
    std::env::var_os("MERCER_DATA").filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// All named sets, and whether they can be opened.
///
/// ```
/// use mercer::data::{Origin, catalogue};
/// let digits = catalogue().into_iter().find(|entry| entry.name == "digits").unwrap();
/// assert_eq!((digits.origin, digits.n, digits.present), (Origin::Embedded, Some(1797), true));
/// ```
pub fn catalogue() -> Vec<Entry> {
    catalogue_in(data_folder().as_deref())
}

fn catalogue_in(folder: Option<&Path>) -> Vec<Entry> {
    let entry = |set: &Named| {
        let (origin, parameters, place) = set.layout();
        let present = place.is_none_or(|place| folder.is_some_and(|f| f.join(place).is_file()));
        let n = (set.n > 0).then_some(set.n);
        Entry { name: set.name, help: set.help, parameters, origin, present, n, d: set.d }
    };
    SETS.iter().map(entry).collect()
}

/// The set of that name; `cifar10` is accepted for `cifar-10`.
pub(super) fn find(name: &str) -> Result<&'static Named> {
    let name = if name == "cifar10" { "cifar-10" } else { name };
    let unknown = || Error::unknown("file or data set", name, SETS.iter().map(|s| s.name));
    SETS.iter().find(|s| s.name == name).ok_or_else(unknown)
}

/// The path of a file of the set, which must exist.
pub(super) fn at(folder: Option<&Path>, name: &str, file: &str) -> Result<PathBuf> {
    let Some(folder) = folder else {
        return Err(Error::input(format!(
            "`{name}` is read from a folder of data sets; set the environment variable MERCER_DATA to that folder"
        )));
    };
    let path = folder.join(file);
    if !path.is_file() {
        return Err(Error::file(&path, format!("is missing; `{name}` needs it in the folder that MERCER_DATA names")));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Target;

    /// A folder with a four-row `yacht` and `bike` and their splits.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, bytes: &[u8]| {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        let rows = b"1,2,10\n3,4,20\n5,6,30\n7,8,40\n";
        write("uci/yacht.csv", rows);
        write("uci/splits/yacht.test.txt", b"0 2\n3\n9\n");
        write("tabular/uci_gp/bike.data.csv.gz", &gzip(rows));
        write("tabular/uci_gp/bike.test_mask.csv.gz", &gzip(b"0,1\n1,0\n0,0\n0,1\n"));
        write("tabular/higgs7500_3dp.csv.gz", &gzip(b"0.5,1\n0.25,0\n"));
        folder
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn open_at(folder: Option<&Path>, source: &str, target: Option<&str>) -> Result<Dataset> {
        let call = Call::parse("data set", source).unwrap();
        let options = ReadOptions { target: target.map(String::from), ..Default::default() };
        find(call.name).unwrap().open_in(folder, &call, &options)
    }

    #[test]
    fn tables_have_their_target_last_and_their_published_splits() {
        let folder = folder();
        let target = |source: &str, column| open_at(Some(folder.path()), source, column).unwrap().y.unwrap();
        for (source, column, want) in [
            ("yacht", None, vec![10.0, 20.0, 30.0, 40.0]),
            ("yacht", Some("1"), vec![1.0, 3.0, 5.0, 7.0]),
            ("yacht(n=3)", None, vec![10.0, 20.0, 30.0]),
            ("yacht(split=1, n=1)", None, vec![20.0]),
            ("yacht(split=1, part=test)", None, vec![10.0, 30.0]),
            ("yacht(split=1)", None, vec![20.0, 40.0]),
            ("yacht(split=2, part=train)", None, vec![10.0, 20.0, 30.0]),
            ("bike(split=2, part=test)", None, vec![10.0, 40.0]),
            ("bike(split=1, part=train)", None, vec![10.0, 30.0, 40.0]),
        ] {
            assert_eq!(target(source, column), Target::Values(want), "{source}");
        }
        let classes = Target::Classes { labels: vec![1, 0], names: vec!["0".into(), "1".into()] };
        assert_eq!(target("higgs(part=all)", None), classes);
    }

    #[test]
    fn errors_name_their_cause() {
        let folder = folder();
        let message = |folder, source: &str| open_at(folder, source, None).unwrap_err().to_string();
        let at = Some(folder.path());
        assert!(message(None, "mnist").contains("set the environment variable MERCER_DATA"));
        assert!(message(at, "mnist").contains("train-images-idx3-ubyte.gz: is missing"));
        assert!(message(at, "cifar-10(part=test)").contains("test_batch.bin: is missing"));
        assert!(message(at, "cifar10(part=test)").contains("test_batch.bin: is missing"));
        assert!(message(at, "mnist(part=tset)").contains("train or test, not `tset`"));
        assert!(message(at, "yacht(part=test)").contains("yacht(split=1, part=test)"));
        assert!(message(at, "yacht(split=0)").contains("splits 1 to 3, not 0"));
        assert!(message(at, "yacht(split=4)").contains("splits 1 to 3, not 4"));
        assert!(message(at, "yacht(split=3)").contains("line 3 lists `9`"));
        assert!(message(at, "bike(split=3)").contains("splits 1 to 2, not 3"));
        assert!(message(at, "higgs(part=test)").contains("no rows"));
        assert!(message(at, "digits(n=3)").contains("takes no arguments"));
        assert!(message(at, "yacht(n=5)").contains("between 1 and 4, not 5"));
    }

    #[test]
    fn the_catalogue_says_which_sets_are_present() {
        let folder = folder();
        for entry in catalogue_in(Some(folder.path())) {
            let here = ["yacht", "bike", "higgs"].contains(&entry.name) || entry.origin != Origin::Folder;
            assert_eq!(entry.present, here, "{}", entry.name);
        }
        let without = catalogue_in(None);
        assert!(without.iter().all(|e| e.present == (e.origin != Origin::Folder)));
        let names: std::collections::HashSet<&str> = without.iter().map(|e| e.name).collect();
        assert_eq!(names.len(), without.len(), "no name twice");
    }

    #[test]
    fn generated_sets_agree_with_the_catalogue() {
        for entry in catalogue_in(None).into_iter().filter(|e| e.present) {
            let plain = open_at(None, entry.name, None).unwrap();
            assert_eq!(plain.d(), entry.d);
            assert_eq!(plain.name, entry.name);
            assert!(entry.n.is_none_or(|n| n == plain.n()));
            // The defaults written out give the same set.
            let written_out = format!("{}({})", entry.name, entry.parameters);
            assert_eq!(open_at(None, &written_out, None).unwrap(), plain);
        }
    }
}
