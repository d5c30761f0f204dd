//! Every family of the registry: an entry is built by its name, takes its own options, and refuses all others by name.

use mercer::laplace::NetworkKind;
use mercer::learn::{self, Snapshots};
use mercer::options::{Builds, Family, Kind, Opt, Options, Spelling};
use mercer::spectrum::Size;
use serde_json::{Map, Value, json};

const SIZE: Size = Size { n: 300, k: 3, math: None };

fn given(option: &str, value: Value, spelling: Spelling) -> Options {
    Options::new(Map::from_iter([(option.to_owned(), value)]), spelling)
}

fn refused<T: Builds>(family: &Family<T>, known: &T, entry: &str, options: Options) -> String {
    family.build(entry, options, known).err().unwrap_or_else(|| panic!("{entry} took it")).to_string()
}

fn refusal(entry: &str, options: Options) -> String {
    refused(learn::spectra(), &SIZE, entry, options)
}

/// A value that the option takes.
fn taken(option: &Opt) -> Value {
    match option.kind {
        Kind::Count(least) => json!(least.max(7)),
        Kind::Between(least, most) => json!(7.clamp(least, most)),
        Kind::Positive | Kind::NonNegative => json!(0.25),
        Kind::Or(_, words) => json!(words[0]),
        Kind::Word(words) => json!(words()[0]),
        Kind::Text => json!("dense(8) relu dense(1)"),
        Kind::File => json!("state.checkpoint"),
        Kind::Flag => json!(true),
        Kind::ClassWeights => json!("balanced"),
    }
}

/// Values that the option does not take.
fn out_of_range(option: &Opt) -> Vec<Value> {
    match option.kind {
        Kind::Count(least) => vec![json!(-1), json!(1.5), json!("ten"), json!(least as i64 - 1)],
        Kind::Between(least, most) => vec![json!(least as i64 - 1), json!(most + 1), json!("ten")],
        Kind::Positive => vec![json!(0), json!(-0.5), json!("fast")],
        Kind::NonNegative => vec![json!(-0.5), json!("fast")],
        Kind::Or(..) => vec![json!("no-such-word"), json!(-1)],
        Kind::Word(_) => vec![json!("no-such-word"), json!(3)],
        Kind::Text | Kind::File => vec![json!(3)],
        Kind::Flag => vec![json!("yes"), json!(1)],
        Kind::ClassWeights => vec![json!("rare"), json!([["rare", 0]])],
    }
}

#[test]
fn every_method_goes_by_its_name_and_by_its_aliases() {
    for entry in &learn::spectra().entries {
        for name in entry.aliases.iter().chain([&entry.name]) {
            assert_eq!(learn::spectra().build(name, Options::none(), &SIZE).unwrap().name(), entry.name);
        }
    }
    assert!(refusal("nystroem", Options::none()).contains("did you mean 'nystrom'?"));
}

/// The contract of a family: the entries that are for what is known take their own options, and refuse all others and values out of range by name.
fn keeps_the_contract<T: Builds>(family: &Family<T>, known: &T) {
    keeps_the_contract_where(family, known, |_| true);
}

/// The same of the entries of some names.
fn keeps_the_contract_where<T: Builds>(family: &Family<T>, known: &T, of: impl Fn(&str) -> bool) {
    for entry in family.entries.iter().filter(|entry| of(entry.name) && known.check(entry).is_ok()) {
        for option in family.options() {
            for spelling in [Spelling::Program, Spelling::Python] {
                let options = given(option.name, taken(option), spelling);
                let name = spelling.option(option.name);
                if entry.options.iter().any(|own| own.name == option.name) {
                    let built = family.build(entry.name, options, known).err().map(|e| e.to_string());
                    // What goes with another option only is refused without it, by name.
                    assert!(built.as_ref().is_none_or(|e| e.contains(&name)), "{}: {built:?}", entry.name);
                } else {
                    let said = refused(family, known, entry.name, options);
                    let start = format!("the {} {} does not take {name}, which is for", family.noun, entry.name);
                    assert!(said.starts_with(&start), "{said}");
                }
            }
        }
        for option in &entry.options {
            for value in out_of_range(option) {
                let name = Spelling::Python.option(option.name);
                let said = refused(family, known, entry.name, given(option.name, value.clone(), Spelling::Python));
                let refuses = said.starts_with(&format!("{name} cannot be `{value}`"));
                assert!(refuses || said.contains("needs checkpoint"), "{}: {said}", entry.name);
            }
        }
    }
}

#[test]
fn methods_for_eigenpairs_keep_the_contract() {
    keeps_the_contract(learn::spectra(), &SIZE);
}

#[test]
fn posteriors_keep_the_contract_for_every_kind_of_network() {
    for (number, functions) in [(false, false), (true, false), (false, true), (true, true)] {
        keeps_the_contract_where(learn::posteriors(), &NetworkKind { number, functions }, |entry| {
            !(number && entry == "temperature")
        });
    }
    let said = |name: &str, number: bool, functions: bool| {
        refused(learn::posteriors(), &NetworkKind { number, functions }, name, Options::none())
    };
    assert!(said("temperature", true, false).contains("scales logits of classes"));
    assert!(
        said("kfac", false, true)
            .contains("needs the network itself; for its outputs and functions alone there are auto, map")
    );
    assert!(said("functions", false, false).contains("given by its outputs and functions"));
    assert!(said("laplace", false, false).contains("last-layer-kfac"));
    let options = given("prior", json!("likelihood"), Spelling::Python);
    let kind = NetworkKind { number: false, functions: true };
    assert!(refused(learn::posteriors(), &kind, "functions", options).ends_with("use prior='validation'"));
    let options = given("count", json!(5), Spelling::Python);
    assert_eq!(refused(learn::posteriors(), &kind, "auto", options), "there is no option count; it is functions now");
}

#[test]
fn what_is_made_of_snapshots_keeps_the_contract() {
    let snapshots = Snapshots { count: 8, members: 3, hidden: true };
    keeps_the_contract(learn::trajectories(), &snapshots);
    let none = Snapshots { members: 0, ..snapshots };
    let said = refused(learn::trajectories(), &none, "ensemble-tempered", Options::none());
    assert_eq!(said, "--method ensemble-tempered needs the networks of several runs; name their files by --ensemble");
    let both = [("draws".to_owned(), json!(5)), ("probit".to_owned(), json!(true))];
    let both = Options::new(Map::from_iter(both), Spelling::Program);
    assert_eq!(refused(learn::trajectories(), &none, "auto", both), "--probit and --draws cannot be given together");
    let names = |known: &Snapshots| {
        let built = learn::trajectories().build("auto", Options::none(), known).unwrap();
        built.all.iter().map(|candidate| candidate.names[0]).collect::<Vec<_>>()
    };
    assert_eq!(names(&none), ["map", "swa", "swag", "snapshots", "eigenfunctions", "ritz"]);
    assert_eq!(names(&Snapshots { hidden: false, ..none }), ["map", "swa", "swag", "snapshots", "eigenfunctions"]);
}

#[test]
fn unknown_and_renamed_options_are_refused_with_what_to_write() {
    let said = refusal("nystrom", given("landmark", json!(40), Spelling::Program));
    assert_eq!(
        said,
        "the method nystrom has no option --landmark; did you mean '--landmarks'? (known: --landmarks, --choice)"
    );
    let said = refusal("neuralef", given("finish", json!(false), Spelling::Python));
    assert_eq!(said, "there is no option finish; it is no_finish now");
    let both = [("optimiser".to_owned(), json!("sgd")), ("optimizer".to_owned(), json!("adam"))];
    let said = refusal("neuralef", Options::new(Map::from_iter(both), Spelling::Python));
    assert_eq!(said, "optimiser is given twice; leave one of them out");
}

#[test]
fn options_reach_the_method() {
    let blocks = |name: &str, option: &str, value: Value| {
        let options = given(option, value, Spelling::Python);
        learn::spectra().build(name, options, &SIZE).unwrap().blocks()
    };
    assert_eq!(blocks("nystrom", "landmarks", json!(40)).unwrap().landmarks, 40);
    assert_eq!(blocks("rff", "features", json!(80)).unwrap().features, 80);
    assert!(blocks("rff", "ritz", json!(true)).is_none());
    assert!(blocks("rff", "ritz", json!(false)).is_some());
}
