//! The sets in the folder `$MERCER_DATA`, against figures that were published with them.

use std::path::PathBuf;

use mercer::data::{Dataset, Origin, ReadOptions, Target, catalogue, digits, open};

fn folder() -> PathBuf {
    std::env::var_os("MERCER_DATA").expect("MERCER_DATA names the folder of the data sets").into()
}

fn read(source: &str) -> Dataset {
    open(source, &ReadOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn counts(set: &Dataset) -> Vec<usize> {
    let Some(Target::Classes { labels, names }) = &set.y else { panic!("{} has no classes", set.name) };
    let mut counts = vec![0; names.len()];
    labels.iter().for_each(|&l| counts[l] += 1);
    counts
}

#[test]
#[ignore = "needs the data sets in MERCER_DATA"]
fn every_set_that_is_present_has_the_size_of_the_catalogue() {
    let mut present = 0;
    for entry in catalogue().into_iter().filter(|e| e.origin == Origin::Folder) {
        if !entry.present {
            eprintln!("{} is not in {}", entry.name, folder().display());
            continue;
        }
        present += 1;
        let start = std::time::Instant::now();
        let set = read(entry.name);
        eprintln!("{:>15}: {} x {} in {:.2} s", entry.name, set.n(), set.d(), start.elapsed().as_secs_f64());
        assert_eq!((Some(set.n()), set.d()), (entry.n, entry.d), "{}", entry.name);
        assert_eq!(set.y.as_ref().unwrap().len(), set.n());
        match entry.name {
            "mnist" => assert_eq!(counts(&set), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]),
            "fashion-mnist" => assert_eq!(counts(&set), [6000; 10]),
            "cifar-10" => assert_eq!(counts(&set), [5000; 10]),
            "covtype" => assert_eq!(counts(&set), [211_840, 283_301, 35_754, 2747, 9493, 17_367, 20_510]),
            "flights" => assert_eq!(set.columns[0], "aircraft_age"),
            "energy" => assert_eq!(set.y.as_ref().unwrap().values()[0], 15.55),
            _ => {}
        }
        if ["mnist", "fashion-mnist", "cifar-10"].contains(&entry.name) {
            assert!(set.x.to_f64().iter().all(|v| (0.0..=1.0).contains(v)));
            assert_eq!(set.shape.unwrap().iter().product::<usize>(), set.d());
        }
    }
    assert!(present > 0, "there is no set in {}", folder().display());
}

#[test]
#[ignore = "needs the data sets in MERCER_DATA"]
fn digits_equal_both_of_their_source_files() {
    let folder = folder();
    let embedded = digits();
    let (pixels, labels) = (embedded.x.to_f64(), embedded.y.as_ref().unwrap().values());
    let csv = folder.join("digits/digits.csv");
    let last = ReadOptions { target: Some("-1".into()), ..Default::default() };
    let csv = open(csv.to_str().unwrap(), &last).unwrap();
    assert_eq!((csv.x.to_f64(), csv.y.unwrap().values()), (pixels.clone(), labels.clone()));
    let npz = read(folder.join("digits/digits.npz").to_str().unwrap());
    assert_eq!((npz.x.to_f64(), npz.y.unwrap().values()), (pixels, labels));
}

#[test]
#[ignore = "needs the data sets in MERCER_DATA"]
fn test_parts_and_splits_are_those_published() {
    let present = |name: &str| catalogue().iter().any(|e| e.name == name && e.present);
    if present("mnist") {
        assert_eq!(counts(&read("mnist(part=test)")), [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]);
    }
    for (name, n) in [("boston", 506), ("yacht", 308), ("bike", 17_379)].into_iter().filter(|(name, _)| present(name)) {
        let (train, test) = (read(&format!("{name}(split=1)")), read(&format!("{name}(split=1, part=test)")));
        assert_eq!(train.n() + test.n(), n);
        assert!((test.n() as f64 / n as f64 - 0.1).abs() < 0.01, "a tenth is held out");
    }
    if present("boston") {
        // The first line of the splits names row 431 first and row 1 among others; both counted from 0.
        let (all, test) = (read("boston"), read("boston(split=1, part=test)"));
        assert_eq!(test.x.to_f64().row(0), all.x.to_f64().row(1));
    }
    if present("higgs") {
        assert_eq!((read("higgs(part=train)").n(), read("higgs(part=test)").n()), (7000, 500));
    }
}
