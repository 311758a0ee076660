//! The closed forms against the tables of the article they come from, in its units, with its errata corrected.

use planner::article::FAMILY;
use planner::formula::{
    Head, ModelShape, Roofline, Units, longest_context, positions_read, triangle,
};
use proptest::prelude::*;

/// Qwen1.5 as the article has it. Erratum 2: the intermediate size of 110B without GQA is 49152.
fn family() -> impl Iterator<Item = (&'static str, ModelShape)> {
    FAMILY.iter().map(|model| (model.name, model.shape))
}

fn named(name: &str) -> ModelShape {
    family().find(|(n, _)| *n == name).expect("in the family").1
}

/// RTX 4090 in the given units.
fn rtx4090(shape: &ModelShape, units: Units) -> Roofline {
    Roofline::new(shape, units.giga(1008.0), units.tera(82.58))
}

fn two(x: f64) -> String {
    format!("{x:.2}")
}

#[test]
fn parameters() {
    // Lp, Hp, Ap, Tp in units of 2^30. Erratum 3: Ap of 14B, 32B and 110B without GQA is 12.47, 32.05 and 111.16.
    let want = [
        "0.29 0.14 0.43 0.58",
        "1.13 0.29 1.42 1.71",
        "2.95 0.36 3.32 3.68",
        "6.03 0.58 6.61 7.19",
        "11.74 0.73 12.47 13.19",
        "31.33 0.73 32.05 32.78",
        "28.83 0.73 29.55 30.28",
        "65.00 1.16 66.16 67.32",
        "110.00 1.16 111.16 112.32",
        "101.25 1.16 102.41 103.57",
    ];
    for ((name, shape), want) in family().zip(want) {
        let p = shape.parameters();
        let got = [p.layers, p.head, p.active(), p.total()]
            .map(|x| two(x as f64 / Units::Article.giga(1.0)));
        assert_eq!(got.join(" "), want, "{name}");
        assert_eq!(p.resident(), p.total());
    }
    let small = named("0.5B").parameters();
    // Erratum 7: 442.375M is activated, and the head is 33.5 % of that, 25.1 % of the total.
    // The article's own sum of section 3.1 leaves the biases out.
    let plain = ModelShape { qkv_bias: false, ..named("0.5B") }.parameters();
    assert_eq!(plain.active() as f64, Units::Article.mega(442.375));
    assert_eq!(plain.total() as f64, Units::Article.mega(590.75));
    assert_eq!((1000 * small.head) / small.active(), 335);
    assert_eq!(1000 * small.head / small.total(), 251);
    // Erratum 9: the weights of 72B in 16 bits, in decimal bytes. Erratum 10: 14B alone exceeds 24 GiB.
    let bytes = |parameters: u64| 2.0 * parameters as f64;
    assert_eq!(two(bytes(named("72B").parameters().total()) / 1e9), "144.57");
    let gib = Units::Article.giga(1.0);
    assert_eq!(two(bytes(named("14B").parameters().active()) / gib), "24.94");
    let tied = ModelShape { tied_embeddings: true, ..named("0.5B") }.parameters();
    assert_eq!(tied.resident(), tied.active());
}

/// The article's own expression, with its floor, is the general one.
#[test]
fn the_general_count_is_the_articles() {
    for (name, s) in family() {
        let (h, g) = (s.hidden_size, s.n_heads / s.n_kv_heads);
        let layer = (h + 1) * h + 2 * ((h + 1) * h / g) + h * h + 3 * h * s.intermediate_size;
        assert_eq!(s.parameters().layers, s.n_layers * layer, "{name}");
        assert_eq!(s.cache_elements_per_token(), s.n_layers * 2 * (h / g), "{name}");
    }
}

#[test]
fn cache_elements() {
    // In units of 2^20. Erratum 1: 0.15625 for 110B, not 0.125.
    let want = [0.046875, 0.09375, 0.1953125, 0.25, 0.390625, 0.625, 0.125, 1.25, 1.25, 0.15625];
    for ((name, shape), want) in family().zip(want) {
        assert_eq!(shape.cache_elements_per_token() as f64, Units::Article.mega(want), "{name}");
    }
}

#[test]
fn longest_contexts_in_24_gib() {
    // (weight bits, cache bits): w16kv16, w8kv16, w4kv16, w6kv16, w4kv8; 0 for "out of memory".
    let columns = [(16.0, 16.0), (8.0, 16.0), (4.0, 16.0), (6.0, 16.0), (4.0, 8.0)];
    let want: [[u64; 5]; 10] = [
        [252_705, 257_424, 259_784, 258_604, 519_568],
        [115_553, 123_312, 127_192, 125_252, 254_384],
        [45_525, 54_220, 58_567, 56_393, 117_134],
        [22_072, 35_612, 42_382, 38_997, 84_764],
        [0, 15_114, 23_285, 19_199, 46_571],
        [0, 0, 6_531, 0, 13_062],
        [0, 0, 37_778, 7_515, 75_556],
        [0; 5],
        [0; 5],
        [0; 5],
    ];
    let context = |parameters: u64, elements: u64, (w, kv): (f64, f64)| {
        let memory = Units::Article.giga(24.0);
        longest_context(memory, parameters as f64 * w / 8.0, elements as f64 * kv / 8.0)
    };
    for ((name, shape), want) in family().zip(want) {
        for (column, want) in columns.iter().zip(want) {
            let got =
                context(shape.parameters().active(), shape.cache_elements_per_token(), *column);
            assert_eq!(got.unwrap_or(0), want, "{name} {column:?}");
            assert_eq!(got.is_none(), want == 0, "{name} {column:?}");
        }
    }
    // With the embedding table resident, 7B in 16 bits has room for less.
    let s = named("7B");
    let got = context(s.parameters().total(), s.cache_elements_per_token(), (16.0, 16.0));
    assert_eq!(got, Some(19_698));
}

/// Cells of 5.1.4: `first\second`, floors; `-` for none. Erratum 4: the fifth column is w4 *rough*.
#[test]
fn all_sixty_inflection_cells() {
    let want = [
        r"- - 55\170 - 23\203 44\106",
        r"127\245 - 48\325 68\228 22\351 29\268",
        r"116\302 - 47\371 55\317 22\396 25\347",
        r"99\553 113\481 45\607 50\544 21\630 23\571",
        r"95\692 103\638 44\743 47\694 21\766 22\718",
        r"90\1175 92\1144 43\1222 44\1192 21\1244 21\1215",
        r"85\6051 87\5898 42\6094 43\5942 21\6115 21\5964",
        r"90\1216 92\1191 43\1263 44\1239 21\1285 21\1262",
        r"87\2108 88\2084 42\2153 43\2130 21\2175 21\2151",
        r"84\17602 85\17400 42\17644 42\17443 20\17665 21\17464",
    ];
    let mut cells = 0;
    for ((name, shape), row) in family().zip(want) {
        for (column, want) in row.split(' ').enumerate() {
            let roof = rtx4090(&shape, Units::Article).weight_bits([16.0, 8.0, 4.0][column / 2]);
            let head = [Head::EveryToken, Head::LastToken][column % 2];
            let got = roof
                .inflections(head)
                .map_or("-".to_owned(), |i| format!("{}\\{}", i.first.floor(), i.second.floor()));
            assert_eq!(got, want, "{name}, column {column}");
            cells += 1;
        }
    }
    assert_eq!(cells, 60);
}

#[test]
fn inflections_to_more_digits() {
    use Head::{EveryToken, LastToken};
    let check = |name, bits, head, units, want: &str| {
        let i = rtx4090(&named(name), units).weight_bits(bits).inflections(head).unwrap();
        assert_eq!(format!("{:.2} {:.1}", i.first, i.second), want, "{name} {bits} {head:?}");
    };
    let article = Units::Article;
    check("7B", 16.0, LastToken, article, "113.75 481.3");
    check("7B", 16.0, EveryToken, article, "99.06 553.3");
    check("4B", 8.0, LastToken, article, "55.29 317.4");
    check("0.5B", 8.0, EveryToken, article, "55.92 170.8");
    check("14B", 4.0, LastToken, article, "22.95 718.9");
    check("32B", 16.0, LastToken, article, "87.26 5898.8");
    check("110B", 4.0, EveryToken, article, "21.00 17665.5");
    assert_eq!(rtx4090(&named("1.8B"), article).inflections(LastToken), None);
    let si = rtx4090(&named("7B"), Units::Decimal).inflections(LastToken).unwrap();
    assert_eq!(format!("{:.1} {:.2}", si.first, si.second), "109.5 500.05");
    // 82.58 TFLOP/s is the shader rate; with that of the tensor cores arithmetic never binds.
    let tensor = Roofline { flops: 165.2e12, ..rtx4090(&named("7B"), Units::Decimal) };
    assert_eq!(tensor.inflections(LastToken), None);
    // With little cache the first inflection is `F wb / 2 BW`, whatever the model.
    for (bits, want) in [(16.0, "83.9"), (8.0, "41.9"), (4.0, "21.0")] {
        let roof = Roofline { cache_elements: 0, ..rtx4090(&named("7B"), article) };
        let i = roof.weight_bits(bits).inflections(EveryToken).unwrap();
        assert_eq!(format!("{:.1}", i.first), want);
        assert_eq!(i.second, f64::INFINITY);
    }
    // Attention in tiles of 64 queries moves the second inflection out of sight.
    let tiled = Roofline { query_tile: 64, ..rtx4090(&named("7B"), article) };
    assert_eq!(tiled.inflections(LastToken).unwrap().second.floor(), 158_624.0);
}

#[test]
fn prefill_times() {
    // Erratum 6: the article's table of section 6.1.2 is compute alone, for every token through the head.
    let seven = rtx4090(&named("7B"), Units::Article);
    let ratio = |a: f64, b: f64| format!("{:.4}", a / b);
    let compute = |roof: &Roofline, n| two(1000.0 * roof.prefill_compute(n, Head::EveryToken));
    assert_eq!([25, 100, 500].map(|n| compute(&seven, n)), ["3.91", "15.67", "78.91"]);
    assert_eq!(compute(&rtx4090(&named("0.5B"), Units::Article), 500), "5.25");
    assert_eq!(format!("{:.1}", 1000.0 * seven.prefill_read(1)), "13.1");
    let first = seven.time_to_first_token(25, Head::EveryToken);
    assert_eq!(first, seven.prefill_read(25), "the weights bind below the inflection");
    // S0.12: below the inflection two halves of a prompt take twice as long as the whole, if attention has tiles.
    let tiled = Roofline { query_tile: 64, ..seven };
    let halves = 2.0 * tiled.time_to_first_token(40, Head::LastToken);
    assert!(halves / tiled.time_to_first_token(80, Head::LastToken) > 1.98);
    let (read, compute) =
        (|n| seven.prefill_read(n), |n| seven.prefill_compute(n, Head::LastToken));
    assert!(read(113) > compute(113) && read(114) < compute(114));
    assert!(read(481) < compute(481) && read(482) > compute(482));
    // S0.9: through the head once or n times differs by (n - 1) Hp.
    let differ =
        seven.prefill_flop(100, Head::EveryToken) - seven.prefill_flop(100, Head::LastToken);
    assert_eq!(differ, 2.0 * 99.0 * seven.parameters.head as f64);
    // Erratum 8: decimal units.
    let si = rtx4090(&named("7B"), Units::Decimal);
    assert_eq!(ratio(si.prefill_read(25), seven.prefill_read(25)), "1.0737");
    let compute = |roof: &Roofline| roof.prefill_compute(25, Head::LastToken);
    assert_eq!(ratio(compute(&si), compute(&seven)), "1.0995");
}

#[test]
fn steps() {
    // W, and B for weights of 16, 8 and 4 bits. Two last digits of the article are rounded otherwise: it prints 6.19 for
    // 6.1849 (14B) and 131.28 for 131.2738 (72B).
    let want = [
        "11010 0.86 0.43 0.21",
        "5505 2.82 1.41 0.70",
        "2642 6.58 3.29 1.65",
        "2064 13.12 6.56 3.28",
        "1321 24.74 12.37 6.18",
        "826 63.60 31.80 15.90",
        "4129 58.64 29.32 14.66",
        "413 131.27 65.64 32.82",
        "413 220.56 110.28 55.14",
        "3303 203.20 101.60 50.80",
    ];
    for ((name, shape), want) in family().zip(want) {
        let roof = rtx4090(&shape, Units::Article);
        let b = [16.0, 8.0, 4.0].map(|bits| two(roof.weight_bits(bits).first_step_milliseconds()));
        let got = format!("{:.0} {}", roof.tokens_per_millisecond(), b.join(" "));
        assert_eq!(got, want, "{name}");
        // S0.14: steps are bound by memory, checked and not assumed.
        for bits in [16.0, 8.0, 4.0] {
            let roof = roof.weight_bits(bits);
            assert!(roof.step_compute(1) < roof.step_read(1), "{name}");
            assert_eq!(roof.step(10_000), roof.step_read(10_000), "{name}");
        }
    }
    let seven = rtx4090(&named("7B"), Units::Article);
    assert_eq!(format!("{:.1}", seven.tokens_per_millisecond()), "2064.4");
    assert_eq!(two(seven.weight_bits(8.0).step_milliseconds(10_000)), "11.40");
    let si = |name| rtx4090(&named(name), Units::Decimal);
    assert_eq!(format!("{:.1}", si("7B").tokens_per_millisecond()), "1922.6");
    let b = ["0.5B", "7B", "14B", "72B"].map(|name| two(si(name).first_step_milliseconds()));
    assert_eq!(b, ["0.92", "14.08", "26.56", "140.95"]);
}

/// Erratum 5: what section 4.4 gives for the table of section 6.1.3.
#[test]
fn cumulative_steps() {
    let seven = rtx4090(&named("7B"), Units::Article);
    let want = [27_880, 57_792, 89_735, 123_710, 159_717, 197_756, 237_826, 279_929];
    for (i, want) in want.iter().enumerate() {
        let n = 2048 * (i as u64 + 1);
        assert_eq!(seven.cumulative_milliseconds(1, n).round() as i64, *want, "{n}");
    }
    let small = rtx4090(&named("0.5B"), Units::Article);
    let sums = [2048, 16384].map(|n| small.cumulative_milliseconds(1, n).round());
    assert_eq!(sums, [1946.0, 26236.0]);
    let one_by_one: f64 = (25..=2048).map(|n| seven.step_milliseconds(n)).sum();
    assert!((seven.cumulative_milliseconds(25, 2048) / one_by_one - 1.0).abs() < 1e-12);
    assert_eq!(seven.cumulative_milliseconds(3, 2), 0.0);
}

prop_compose! {
    fn any_roofline()(
        (n_layers, heads, kv_heads) in (1..40u64, 1..64u64, 1..5u64),
        (hidden, intermediate, vocab) in (64..4096u64, 64..8192u64, 1000..160_000u64),
        (bandwidth, flops) in (1e9..3e12, 1e10..1e15),
        (weight_bits, cache_bytes) in (2.0..32.0, 1.0..4.0),
    ) -> Roofline {
        let shape = ModelShape {
            n_layers, hidden_size: hidden, intermediate_size: intermediate, vocab_size: vocab,
            n_heads: heads * kv_heads, n_kv_heads: kv_heads, head_dim: 64,
            tied_embeddings: false, qkv_bias: true, norms: true, qk_norms: false,
        };
        Roofline { cache_bytes, ..Roofline::new(&shape, bandwidth, flops) }.weight_bits(weight_bits)
    }
}

proptest! {
    /// The first prompt length past each crossing, found by trying, is the floor of the root plus one.
    #[test]
    fn crossings_found_by_trying(roof in any_roofline(), last in any::<bool>()) {
        const TRIED: u64 = 5000;
        let head = if last { Head::LastToken } else { Head::EveryToken };
        let computes = |n: &u64| roof.prefill_compute(*n, head) > roof.prefill_read(*n);
        let first = (1..=TRIED).find(computes);
        let Some(i) = roof.inflections(head) else {
            prop_assert_eq!(first, None);
            return Ok(());
        };
        let near_integer = |x: f64| (x - x.round()).abs() < 1e-6;
        prop_assume!(!near_integer(i.first) && !near_integer(i.second) || i.first == 0.0);
        prop_assume!(i.first.floor() < i.second.floor());
        let expected = i.first.floor() as u64 + 1;
        prop_assert_eq!(first, (expected <= TRIED).then_some(expected));
        if let Some(first) = first {
            let second = (first..=TRIED).find(|n| !computes(n));
            let expected = i.second.floor() + 1.0;
            prop_assert_eq!(second, (expected <= TRIED as f64).then_some(expected as u64));
        }
    }

    /// Positions read in tiles, against the sum over tiles; a tile of 1 is no tile.
    #[test]
    fn tiles_are_counted(n in 0..2000u64, tile in 1..200u64) {
        let ends = (0..n).step_by(tile as usize).map(|start| (start + tile).min(n));
        prop_assert_eq!(positions_read(n, tile), ends.sum::<u64>());
        prop_assert_eq!(positions_read(n, 1), triangle(n));
        prop_assert_eq!(triangle(n), (1..=n).sum::<u64>());
    }
}
