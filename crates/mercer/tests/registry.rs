//! Every family of the registry: an entry is built by its name, takes its own options, and refuses all others by name.

use mercer::apply::{EmbeddingTask, ProcessTask, Regression, RegressionTask};
use mercer::kernel::Expression;
use mercer::laplace::NetworkKind;
use mercer::learn::{self, Snapshots};
use mercer::operator::{Budget, Precision};
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

fn regression_task() -> RegressionTask {
    RegressionTask { kernel: None, ..RegressionTask::default() }
}

#[test]
fn regressions_keep_the_contract() {
    keeps_the_contract(learn::regressions(), &regression_task());
}

fn regression(entry: &str, options: Value, task: &RegressionTask) -> Result<Regression, String> {
    let Value::Object(values) = options else { panic!("options are an object") };
    learn::regressions().build(entry, Options::new(values, Spelling::Program), task).map_err(|e| e.to_string())
}

/// Options that go together with others, or not at all, are refused by name.
#[test]
fn regressions_refuse_what_does_not_go_together() {
    for (entry, options, words) in [
        ("ridge", json!({"solver": "direct", "rank": 5}), "--rank is for --solver cg; --solver direct takes none"),
        ("auto", json!({"solver": "direct", "tolerance": 1e-3}), "--tolerance is for --solver cg"),
        ("auto", json!({"iterations": 5}), "--iterations is for iterative solvers; give --solver cg"),
        ("falkon", json!({"cv": 3, "alpha": 0.5}), "--cv chooses --alpha; leave one of them out, or give --alpha auto"),
        ("ridge", json!({"loss": "logistic"}), "--loss logistic is for methods on features"),
        ("auto", json!({"loss": "logistic", "solver": "cg"}), "--loss logistic is for methods on features"),
        (
            "ridge",
            json!({"solver": "askotch"}),
            "--solver askotch is not known, as askotch is a method; write --method askotch",
        ),
        ("nystrom", json!({"search": "rbf,lapl"}), "--search: unknown kernel 'lapl'"),
    ] {
        let said = regression(entry, options, &regression_task()).err().unwrap();
        assert!(said.starts_with(words), "{said}");
    }
    let kernel = RegressionTask { kernel: Some("rbf(1)".into()), ..regression_task() };
    let said = regression("ridge", json!({"search": "rbf"}), &kernel).err().unwrap();
    assert_eq!(said, "--search names the kernels to choose among; leave it or --kernel out");
}

/// What an entry cannot do is refused before it is built, and what it can depends on its options.
#[test]
fn regressions_do_what_they_say() {
    let refusal = |entry: &str, task: RegressionTask| regression(entry, json!({}), &task).err().unwrap();
    let single = || RegressionTask { precision: Precision::F32, ..regression_task() };
    let matrix = || RegressionTask { matrix: true, ..regression_task() };
    for entry in &learn::regressions().entries {
        if !entry.can.precision {
            assert!(refusal(entry.name, single()).starts_with("precision f32 is for methods on kernel values"));
        }
        match entry.can.matrix {
            true => assert!(regression(entry.name, json!({"alpha": 0.5}), &matrix()).is_ok()),
            false => assert!(refusal(entry.name, matrix()).contains("needs a kernel expression")),
        }
        let built = regression(entry.name, json!({}), &regression_task()).unwrap();
        assert_eq!(built.in_blocks().is_ok(), entry.can.blocks, "{}", entry.name);
        let alone = RegressionTask { intercept: Some(false), ..regression_task() };
        assert_eq!(regression(entry.name, json!({}), &alone).is_ok(), entry.can.no_intercept, "{}", entry.name);
    }
    let with = |entry: &str, options: Value| regression(entry, options, &regression_task()).unwrap();
    assert!(with("ridge", json!({"solver": "cg"})).shards() && !with("ridge", json!({})).shards());
    assert!(with("eigenpro", json!({})).shards() && !with("eigenpro", json!({"rank": 5})).shards());
    assert!(!with("askotch", json!({"criterion": "likelihood"})).shards());
    assert!(with("auto", json!({"solver": "cg"})).in_blocks().is_err());
    let said = regression("ridge", json!({"rank": 5}), &matrix()).err().unwrap();
    assert!(said.starts_with("--rank is for points and a kernel expression"), "{said}");
}

fn process_task(n: usize, classes: bool, functions: bool) -> ProcessTask {
    let kernel = Expression::parse("rbf(lengthscale=auto)").unwrap();
    ProcessTask { kernel, n, d: 50, classes, functions, budget: Budget::of(8 << 30) }
}

#[test]
fn processes_keep_the_contract() {
    keeps_the_contract(learn::processes(), &process_task(300, false, false));
}

#[test]
fn embeddings_keep_the_contract() {
    keeps_the_contract(learn::embeddings(), &EmbeddingTask::new(2, None));
}

/// What an embedding has no use for beside what it was given is refused by name.
#[test]
fn embeddings_refuse_what_does_not_go_together() {
    let refusal = |task: &EmbeddingTask, name: &str, options| refused(learn::embeddings(), task, name, options);
    let kernel = EmbeddingTask::new(2, Some(Expression::parse("rbf(2)").unwrap()));
    let said = refusal(&kernel, "laplacian", given("neighbours", json!(5), Spelling::Program));
    assert_eq!(said, "--neighbours and --kernel cannot be given together");
    let both = Map::from_iter([("solver".to_owned(), json!("exact")), ("tolerance".to_owned(), json!(1e-8))]);
    let said = refusal(&kernel, "kpca", Options::new(both, Spelling::Python));
    assert!(said.starts_with("tolerance is for the solver krylov"), "{said}");
    let said = refusal(&EmbeddingTask::of_matrix(2), "diffusion", Options::none());
    assert!(said.contains("diffusion needs points"), "{said}");
}

/// The choice of a process follows the rows, the target and the memory, and says why in the words of the face.
#[test]
fn the_posterior_suits_the_rows() {
    let why = |task: &ProcessTask, options| learn::processes().build("auto", options, task).unwrap().why;
    let by_rows = |n| why(&process_task(n, false, false), Options::none()).unwrap();
    assert_eq!(by_rows(8000), "method exact: 8000 rows are few enough for the posterior given all of them");
    assert_eq!(
        by_rows(8001),
        "method nystrom: 8001 rows are too many for the exact posterior in seconds (--method cg takes all of them); 1000 landmarks stand for them"
    );
    let small = ProcessTask { budget: Budget::of(1 << 20), ..process_task(600, false, false) };
    assert_eq!(
        why(&small, Options::new(Map::new(), Spelling::Python)).unwrap(),
        "method nystrom: the matrix of 600 rows does not fit the memory (method='cg' takes all without it); 600 landmarks stand for them"
    );
    let rank = || given("rank", json!(20), Spelling::Python);
    assert_eq!(
        why(&process_task(300, false, false), rank()).unwrap(),
        "method nystrom: rank was given; 20 landmarks stand for them"
    );
    assert_eq!(why(&process_task(9000, true, false), Options::none()), None);
    let sampled = |n| why(&process_task(n, false, true), Options::none()).unwrap();
    assert!(sampled(50).starts_with("method linear: 50 rows are more than the 50 functions"), "{}", sampled(50));
    assert_eq!(sampled(49), "method exact: 49 rows are fewer than the 50 functions");
    for task in [process_task(300, true, false), process_task(300, false, true)] {
        let said = refused(learn::processes(), &task, "auto", rank());
        assert!(said.starts_with("rank is for numbers under a kernel"), "{said}");
        let said = refused(learn::processes(), &task, "nystrom", Options::none());
        assert!(said.contains("the method nystrom ") && said.contains("; use "), "{said}");
    }
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
