//! What the article says beside its tables, against numbers computed by hand and against recorded programs.

use planner::article::{ArticleTable, ArticleValue, beside};
use planner::devices::DEVICES;
use planner::formula::{Head, Units};
use planner::{Cost, CostOptions};
use program::Program;
use quant::GgmlType;

fn table(section: &str, units: Units) -> ArticleTable {
    beside(units).into_iter().find(|table| table.section == section).expect("a table")
}

fn row(section: &str, name: &str) -> Vec<ArticleValue> {
    let rows = table(section, Units::Article).rows;
    rows.into_iter().find(|(of, _)| *of == name).expect("a row").1
}

fn texts(section: &str, name: &str) -> Vec<String> {
    row(section, name).iter().map(ToString::to_string).collect()
}

#[test]
fn every_row_has_every_column() {
    for units in [Units::Article, Units::Decimal] {
        for table in beside(units) {
            assert!(!table.rows.is_empty());
            for (name, values) in &table.rows {
                assert_eq!(values.len(), table.columns.len(), "{} {name}", table.section);
            }
        }
    }
}

/// S0.3. By hand: 0.5B has 155,582,464 weights in its head and 24 layers of 12,848,128; 72B 1,245,708,288 and 80 of
/// 872,439,808.
#[test]
fn head_shares() {
    let by_hand = |head: f64, layers: f64| {
        let part = |all: f64| format!("{:.1}%", 100.0 * head / all);
        vec![part(layers + head), part(layers + 2.0 * head)]
    };
    assert_eq!(texts("3.1-head", "0.5B"), by_hand(155_582_464.0, 24.0 * 12_848_128.0));
    assert_eq!(texts("3.1-head", "0.5B"), ["33.5%", "25.1%"]);
    assert_eq!(texts("3.1-head", "72B"), by_hand(1_245_708_288.0, 80.0 * 872_439_808.0));
    assert_eq!(texts("3.1-head", "72B")[0], "1.8%");
    let share = |name| match row("3.1-head", name)[0] {
        ArticleValue::Part(share) => share,
        ref other => panic!("{other:?}"),
    };
    assert!(share("0.5B") > 0.3 && share("72B") < 0.02, "the article's 30 % and 2 %");
}

/// S0.6. The article cuts what it prints: 40, 82, 147, 590.
#[test]
fn flop_per_byte_of_machines() {
    let balance = |name| match row("4.2-machines", name)[..] {
        [
            ArticleValue::PerByte(f32),
            ArticleValue::PerByte(bf16),
            _,
            ArticleValue::PerByte(int8),
            _,
        ] => [f32, bf16, int8].map(f64::floor),
        ref other => panic!("{other:?}"),
    };
    assert_eq!(balance("H100 SXM"), [147.0, 295.0, 590.0]);
    // 82.58 and 660.6 TFLOP/s by 1.008 TB/s; the article takes 83
    assert_eq!(balance("RTX 4090"), [81.0, 163.0, 655.0]);
    // 2735 GFLOP/s by 67 GB/s
    assert_eq!(balance("Ryzen 9 7950X")[0], 40.0);
    assert_eq!(table("4.2-machines", Units::Article).rows.len(), DEVICES.len());
}

/// Qwen1.5-7B, recorded.
fn seven() -> Program {
    let mut outline = models::Outline::new("qwen2", 151_936);
    for (key, count) in [
        ("block_count", 32u32),
        ("embedding_length", 4096),
        ("feed_forward_length", 11008),
        ("attention.head_count", 32),
        ("attention.head_count_kv", 32),
        ("context_length", 32768),
    ] {
        outline.set(key, count);
    }
    outline.set("attention.layer_norm_rms_epsilon", 1e-6f32).tensor("output.weight");
    let config = outline.config().expect("a valid outline");
    let ty = |name: &str, dims: &[u64]| match dims.len() {
        1 if name.starts_with("rope_freqs") => None,
        1 => Some(GgmlType::F32),
        _ => Some(GgmlType::F16),
    };
    Program::clone(&models::from_config(&config, &ty).expect("whole blocks").program)
}

/// S0.6, counted a second time from the recorded program, op by op.
#[test]
fn flop_per_byte_of_models() {
    let program = seven();
    let options = CostOptions { query_tile: 1, narrow: false, ..CostOptions::default() };
    let cost = Cost::of(&program, &options);
    let passes = [cost.step(0), cost.step(4095), cost.prefill(512, Head::LastToken)];
    for (pass, printed) in passes.iter().zip(row("4.2-models", "7B")) {
        let ArticleValue::PerByte(printed) = printed else { panic!("{printed:?}") };
        let work = pass.total();
        let counted = work.flop() as f64 / work.bytes() as f64;
        // the writes to the cache are in the count only
        assert!((counted / printed - 1.0).abs() < 0.01, "{counted} {printed}");
    }
    assert_eq!(texts("4.2-models", "7B")[0], "1.00");
    assert_eq!(texts("4.2-models", "7B")[6], "4.00");
}

/// S0.8. By hand, 7B: q_proj 4097 x 4096 x 2 bytes; 512 queries of 4096 x 2 bytes.
#[test]
fn queries_kept_or_computed_again() {
    let mb = |bytes: u64| format!("{:.1}MB", bytes as f64 / 1e6);
    let (matrix, kept) = (4097 * 4096 * 2, 512 * 4096 * 2);
    let want = [matrix, kept, 2 * kept, 511 * matrix, 7 * matrix].map(mb);
    assert_eq!(texts("4.3-queries", "7B")[..5], want);
    // the same in the recorded program
    let program = seven();
    let value = program.values.iter().find(|value| value.name == "blk.0.attn_q").expect("queries");
    let weight = |name| program.weights.iter().find(|spec| spec.name == name).expect(name);
    let (q, bias) = (weight("blk.0.attn_q.weight"), weight("blk.0.attn_q.bias"));
    assert_eq!(q.bytes() + 2 * bias.rows.max(bias.cols) as u64, matrix);
    assert_eq!(512 * value.shape.cols() as u64 * 2, kept);
    // 4097 / 2
    assert_eq!(texts("4.3-queries", "7B")[5], "2048");
    // so many queries to a read of q_proj move as many bytes either way, whatever the prompt
    let n = 1 << 20;
    let (kept, again) = (2 * n * 4096 * 2, (n / 2048 - 1) * matrix);
    assert!((again as f64 / kept as f64 - 1.0).abs() < 0.01);
}

/// S0.18: theory and files come out as the article prints them.
#[test]
fn memory_of_weights() {
    let near = |text: &str, printed: &str| {
        let number = |text: &str| text.trim_end_matches("GB").parse::<f64>().expect("a number");
        (number(text) / number(printed) - 1.0).abs() < 2e-3
    };
    let table = table("6.1.1", Units::Article);
    assert_eq!(table.rows.len(), 8);
    for (name, _) in &table.rows {
        let cells = texts("6.1.1", name);
        assert!(near(&cells[1], &cells[2]), "{name}: {cells:?}");
        assert!(near(&cells[3], &cells[4]), "{name}: {cells:?}");
    }
    assert_eq!(texts("6.1.1", "7B")[1], "14.38GB");
    assert_eq!(texts("6.1.1", "14B")[5], "oom");
}
