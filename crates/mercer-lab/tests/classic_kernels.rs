//! The classic kernels by every method: the laboratory's own figures must be right before anything is read off them.

use mercer::FitContext;
use mercer_lab::classic_kernels::{Config, Family, Setting, run};

fn settings() -> Vec<Setting> {
    run(&Config { sizes: vec![300], ..Config::quick(1) }, &FitContext::default()).unwrap()
}

#[test]
fn every_method_is_measured_against_both_spectra() {
    let settings = settings();
    let [poly, rbf] = &settings[..] else { panic!("two kernels") };
    let brief = |errors: &mut dyn Iterator<Item = f64>| errors.map(|e| format!("{e:.0e} ")).collect::<String>();
    for (setting, a) in settings.iter().flat_map(|s| s.attempts.iter().map(move |a| (s, a))) {
        let (name, pairs, cost) = (setting.case.name, a.pairs_found(), a.multiply_adds);
        eprintln!("{name}, {}: {pairs} pairs, {:.2} s, {cost} multiply-adds", a.name, a.seconds);
        eprintln!("    eigenvalues {}", brief(&mut a.to_points.eigenvalue.iter().copied()));
        eprintln!("    functions   {}", brief(&mut a.to_points.function.iter().flatten().copied()));
    }

    // 300 random points are some percent away from their distribution; a method that solves for the points is close to
    // theirs and far from the distribution's.
    let nystrom = rbf.attempts.iter().find(|a| a.family == Family::Landmarks).unwrap();
    assert!(nystrom.pairs_found() >= 8 && nystrom.to_points.eigenvalue[0] < 1e-8);
    assert!(nystrom.to_population.eigenvalue[0] > 1e-4 && nystrom.to_population.eigenvalue[0] < 0.2);
    assert!((rbf.of_population[0] - 0.5212157).abs() < 1e-7);

    // Random features with Rayleigh–Ritz find most of the spectrum without a step of training.
    let (trained, random) = rbf.trained_and_random();
    assert!(random.unwrap().pairs_found() >= 6);
    assert!(trained.unwrap().steps > 0 && trained.unwrap().pairs_found() >= 2);

    // Of rank five; whoever does not find the rest to be zero has not found ten pairs.
    assert!(poly.of_points[4] > 0.0 && poly.of_points[5] == 0.0);
    for attempt in &poly.attempts {
        assert!(attempt.to_points.function[..5].iter().all(Option::is_some));
        assert!(attempt.eigenvalues[5..].iter().all(|μ| *μ == 0.0), "{}: {:?}", attempt.name, attempt.eigenvalues);
        assert_eq!(attempt.pairs_found() > 5, attempt.pairs_found() == 10, "{}", attempt.name);
    }
    assert!(poly.unsuited.iter().any(|(name, why)| name.contains("Fourier") && why.contains("poly")));
}

#[test]
fn figures_show_the_functions_that_were_measured() {
    for setting in settings() {
        for attempt in &setting.attempts {
            assert_eq!(attempt.functions.dim(), setting.exact.dim());
            // Where the function is right on the points, its curve lies on the exact one, sign and size included.
            for j in (0..10).filter(|j| attempt.to_points.function[*j].is_some_and(|e| e < 1e-6)) {
                let gap = &attempt.functions.column(j) - &setting.exact.column(j);
                let worst = gap.iter().fold(0.0f64, |worst, g| worst.max(g.abs()));
                assert!(worst < 0.05, "{} {} ψ_{}: {worst}", setting.case.name, attempt.name, j + 1);
            }
        }
        let best = &setting.ranking()[0].name;
        assert!(setting.verdict().contains(&format!("best was {best}")), "{}", setting.verdict());
        let ranking = setting.ranking();
        assert!(ranking.windows(2).all(|w| w[0].pairs_found() >= w[1].pairs_found()));
    }
}
