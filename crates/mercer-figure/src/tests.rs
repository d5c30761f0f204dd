//! Tests of every kind of figure: well-formed output for any data, and marks in the right place.

use super::*;
use mercer_engine::rng::Rng;

/// Fails unless every tag is closed in order and no attribute is left open. HTML's void elements count as closed.
pub fn check_balanced(markup: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = markup;
    while let Some(start) = rest.find('<') {
        assert!(!rest[..start].contains('>'), "stray '>' in {:?}", &rest[..start]);
        let end = start + rest[start..].find('>').expect("a tag is not closed");
        let tag = &rest[start + 1..end];
        assert!(!tag.contains('<') && tag.matches('"').count().is_multiple_of(2), "bad tag {tag:?}");
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap_or("");
        let void = tag.ends_with('/') || tag.starts_with('!') || ["meta", "br"].contains(&name);
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes the wrong element");
        } else if !void {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "left open: {open:?}");
    for reference in markup.split('&').skip(1) {
        assert!(["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|r| reference.starts_with(r)), "bare '&'");
    }
}

fn axis(n: usize, f: impl Fn(f64) -> f64) -> Vec<f64> {
    (0..n).map(|i| f(i as f64)).collect()
}

/// Three noisy rings of points with their class.
fn rings(n: usize, classes: usize) -> (Vec<f64>, Vec<f64>, Vec<usize>) {
    let mut rng = Rng::new(3);
    let class: Vec<usize> = (0..n).map(|i| i % classes).collect();
    let mut point = |c: usize| {
        let (radius, angle) = (1.0 + c as f64 + 0.25 * rng.normal(), std::f64::consts::TAU * rng.uniform());
        (radius * angle.cos(), radius * angle.sin())
    };
    let (xs, ys) = class.iter().map(|&c| point(c)).unzip();
    (xs, ys, class)
}

/// One figure of every kind.
pub fn samples() -> Vec<(&'static str, String)> {
    let js = axis(200, |i| i + 1.0);
    let decay = |p: f64| js.iter().map(|j| j.powf(-p)).collect::<Vec<_>>();
    let spectrum = Plot::new("Spectrum of the arc-cosine kernel on the sphere")
        .x_log("index j")
        .y_log("eigenvalue μ_j")
        .line("closed form", &js, &decay(2.0))
        .band(&decay(2.1), &decay(1.9))
        .line("Nyström, m = 100", &js, &decay(2.2))
        .markers()
        .line("slope −3", &js, &decay(3.0))
        .dashed()
        .line("slope −4", &js, &decay(4.0))
        .dotted()
        .svg();

    let names: Vec<String> = (0..10).map(|d| format!("digit {d}")).collect();
    let (xs, ys, class) = rings(60_000, 10);
    let classes = Plot::new("Kernel principal components of 60 000 digits")
        .x("first component")
        .y("second component")
        .equal()
        .classes(&xs, &ys, &class, &names)
        .svg();

    let methods = ["RBF", "Laplace", "arc-cosine, depth 3", "NTK, depth 3"];
    let bars = Plot::new("Test error by kernel")
        .y("test error, %")
        .bars("n = 1000", &methods, &[8.2, 7.9, 6.5, 6.1])
        .bars("n = 10 000", &methods, &[3.9, 3.4, 2.9, 2.8])
        .svg();

    let wave = axis(6400, |i| (9.0 * (i % 80.0) / 80.0).sin() * (9.0 * (i / 80.0).floor() / 80.0).cos());
    let (xs, ys, _) = rings(60, 1);
    let field = Plot::new("An eigenfunction and its samples")
        .x("x_1")
        .y("x_2")
        .field("φ_7(x)", (-1.5, 1.5), (-1.5, 1.5), [80, 80], &wave)
        .diverging()
        .scatter("samples", &xs, &ys)
        .y_range(-1.5, 1.5)
        .equal()
        .size(480.0, 420.0)
        .svg();

    let mut grid = Grid::new("Powers of the index", 4).shared();
    for j in 1..=7 {
        grid = grid.panel(Plot::new(format!("φ_{j}")).x("t").y("φ_j(t)").line("exact", &js, &decay(f64::from(j))));
    }
    let ragged = Grid::new("A grid whose panels have their own axes", 2)
        .panel(Plot::new("Small numbers").x("n").y("error").line("error", &[1e6, 4e6, 9e6], &[1e-7, 4e-7, 2e-7]))
        .panel(Plot::new("Leverage scores").x("x_1").y("x_2").equal().values("score ℓ_i", &xs, &ys, &xs))
        .panel(Plot::new("Kernel matrix").matrix("k(x, y)", [80, 80], &wave))
        .panel(Plot::new("Confusion").x("predicted").y("true").matrix("images", [3, 3], &axis(9, |i| i)))
        .panel(Plot::new("Long names").y_log("seconds").bars("", &methods, &[412.0, 9.7, 38.0, 4.1]))
        .panel_size(250.0, 170.0);
    let gallery = Gallery::new("Pre-images", [28, 28])
        .row("noisy", &wave[..2 * 784])
        .row("denoised", &wave[784..3 * 784])
        .captions(&["7 → 1", "2 → 7"])
        .svg();

    let plots = [("spectrum", spectrum), ("classes", classes), ("bars", bars), ("field", field)];
    let others = [("grid", grid.svg()), ("ragged", ragged.svg()), ("gallery", gallery)];
    plots.into_iter().chain(others).collect()
}

#[test]
fn every_kind_of_figure_is_well_formed() {
    for (name, svg) in samples() {
        check_balanced(&svg);
        assert!(!svg.contains(" id=") && !svg.contains(">NaN"), "{name}");
    }
}

#[test]
fn large_data_stay_small() {
    let (_, points) = samples().into_iter().find(|s| s.0 == "classes").unwrap();
    assert!(points.len() < 400_000 && points.matches("h0").count() > 19_000, "{}", points.len());
    let matrix = Plot::new("").matrix("", [3000, 2000], &vec![1.0; 6_000_000]).svg();
    assert!(matrix.len() < 1_000_000, "{}", matrix.len());
}

#[test]
fn odd_data_never_fails() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let few: [&[f64]; 4] = [&[], &[1.0], &[nan], &[0.0, 0.0]];
    let more: [&[f64]; 5] = [&[nan, 1.0, inf], &[-1.0, 0.0], &[f64::MAX, f64::MIN], &[1e-320, 1e308], &[3.0; 5]];
    let oddities = [&few[..], &more].concat();
    for &xs in &oddities {
        for &ys in &oddities {
            let every = |plot: Plot| {
                plot.line("<line>", xs, ys)
                    .band(ys, xs)
                    .markers()
                    .scatter("s", xs, ys)
                    .classes(xs, ys, &[4, 0, usize::MAX], &["a"])
                    .values("v", xs, ys, ys)
            };
            let wide = every(Plot::new("& odd").x("x").y("y").equal().y_range(nan, inf));
            let logs = every(Plot::new("").x_log("x").y_log("y").size(0.0, nan));
            let bars = Plot::new("b").bars("b", &["one"], ys).bars("c", &["one", "two"], xs);
            let heat =
                Plot::new("h").matrix("m", [2, 1], ys).diverging().field("f", (1.0, 0.0), (nan, 1.0), [0, 3], xs);
            for plot in [wide, logs, bars, heat] {
                check_balanced(&plot.svg());
                check_balanced(&Grid::new("g", 0).panel(plot.clone()).panel(plot).shared().svg());
            }
            check_balanced(&Gallery::new("g", [1, 2]).row("r", xs).captions(&["c"]).row("s", ys).svg());
        }
    }
    check_balanced(&Grid::new("", 3).svg());
    check_balanced(&Gallery::new("", [0, 0]).row("", &[1.0]).svg());
}

#[test]
fn a_grid_has_one_palette_and_one_scale_where_it_is_asked_for() {
    let dots = |values: &[f64]| Plot::new("").values("own", &[0.0, 1.0], &[0.0, 1.0], values).diverging();
    let strokes = |svg: &str| -> Vec<String> {
        svg.split("stroke=\"").skip(1).map(|s| s.split('"').next().unwrap().to_owned()).collect()
    };
    let grid = |one: bool| {
        let grid = Grid::new("", 2).panel(dots(&[-1.0, 1.0])).panel(dots(&[-4.0, 2.0]));
        if one { grid.one_scale("ψ").svg() } else { grid.svg() }
    };
    // Of itself, each panel has the full range of colours, of −1 to 1 and of −4 to 4, and a bar of its own.
    let (own, one) = (grid(false), grid(true));
    let darkest = palette::Map::Diverging.hex(0.0);
    let count = |svg: &str| strokes(svg).iter().filter(|s| **s == darkest).count();
    assert_eq!([count(&own), count(&one)], [2, 1]);
    assert_eq!([own.matches(">own<").count(), own.matches("<image").count()], [2, 2]);
    assert_eq!([one.matches(">own<").count(), one.matches(">ψ<").count(), one.matches("<image").count()], [0, 1, 1]);
    check_balanced(&one);

    // A line has its colour in every panel, whatever else is there; from the eighth on lines are dashed, too.
    let line = |plot: Plot, i: usize| plot.line(format!("m{i}"), &[0.0, 1.0], &[0.0, 1.0]).colour(i);
    let many = (0..8).fold(Plot::new(""), line);
    let svg = Grid::new("", 2).panel(many).panel(line(Plot::new(""), 2)).svg();
    assert_eq!(strokes(&svg).iter().filter(|s| **s == palette::category(2)).count(), 3, "two lines, one legend");
    assert_eq!(svg.matches("stroke-dasharray").count(), 2, "the eighth line and its legend");
}

#[test]
fn values_beyond_the_scale_have_the_colours_of_its_ends() {
    let svg = Plot::new("").values("v", &[0.0, 1.0], &[0.0, 1.0], &[-9.0, 9.0]).scale(-1.0, 1.0).svg();
    assert!(svg.contains(&palette::Map::Viridis.hex(0.0)) && svg.contains(&palette::Map::Viridis.hex(1.0)));
}

#[test]
fn values_that_cannot_be_shown_break_the_line() {
    let strokes = |ys: &[f64]| {
        let svg = Plot::new("").y_log("y").line("", &[1.0, 2.0, 3.0, 4.0, 5.0], ys).svg();
        let path = svg.split("<path d=\"").find(|p| p.contains("stroke-width=\"1.8\"")).unwrap().to_owned();
        path.split('"').next().unwrap().matches('M').count()
    };
    assert_eq!(strokes(&[1.0, 2.0, 3.0, 4.0, 5.0]), 1);
    assert_eq!(strokes(&[1.0, 2.0, 0.0, 4.0, 5.0]), 2);
    assert_eq!(strokes(&[1.0, f64::NAN, 3.0, -1.0, 5.0]), 3);
}

#[test]
fn text_is_escaped() {
    let svg = Plot::new("<script>").x("a & b").y("\"q\"").line("x < y", &[0.0, 1.0], &[0.0, 1.0]).svg();
    assert!(svg.contains("&lt;script&gt;") && svg.contains("a &amp; b") && svg.contains("x &lt; y"));
    assert!(!svg.contains("<script"));
}

#[test]
fn the_legend_keeps_clear_of_the_data() {
    let text_x = |svg: &str| -> f64 {
        let before = svg.split(">name<").next().unwrap();
        before.rsplit("<text x=\"").next().unwrap().split('"').next().unwrap().parse().unwrap()
    };
    let xs = axis(50, |i| i);
    let rising = Plot::new("").line("name", &xs, &xs).svg();
    assert!(text_x(&rising) < 200.0, "top left is free under a rising line");
    let falling = Plot::new("").line("name", &xs, &axis(50, |i| -i)).svg();
    assert!(text_x(&falling) > 400.0, "top right is free over a falling line");
    let (xs, ys, _) = rings(5000, 6);
    let everywhere = Plot::new("").scatter("name", &xs, &ys).y_range(-3.0, 3.0).svg();
    assert!(text_x(&everywhere) > 560.0, "no corner is free, so it stands outside");
}
