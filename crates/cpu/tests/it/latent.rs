//! Latent attention in every form: the suite, logits of another program, and the forms against each other.

use conformance::golden::{self, golden_case};
use conformance::{Family, LATENT};
use cpu::{Cpu, MlaChoice, Options};
use kernels::Isa;

fn cpu(mla: MlaChoice, threads: usize, isa: Isa) -> Cpu {
    Cpu::new(&Options { threads: Some(threads), isa: Some(isa), mla, ..Options::default() })
}

/// Runs `test` in every form; in `cargo xtask full`, one of the forms with every instruction set this CPU has.
fn in_every_form(test: impl Fn(&Cpu, &str)) {
    let isas = testing::isas("cpu: latent", Isa::NAMES, |isa| Isa::detect().contains(isa));
    let full = testing::full("cpu: latent attention on instruction sets but the best");
    for choice in MlaChoice::all() {
        for (isa_name, isa) in &isas {
            if *isa == Isa::detect() || (full && choice == MlaChoice::Auto) {
                test(&cpu(choice, 2, *isa), &format!("{}, {isa_name}", choice.name()));
            }
        }
    }
}

/// Checks with thousands of steps: minutes without vectors. In the gate only the form that is chosen by itself runs them; that the
/// forms agree is tested in `latent_forms`.
const LONG: [&str; 2] = ["op/latent_attention_of_prompts", "session/latent"];

#[test]
fn suite() {
    let full = testing::full("cpu: long checks of latent attention in forms that are not chosen");
    in_every_form(|cpu, what| {
        for check in LATENT {
            let is_long = LONG.contains(&check.name);
            if is_long && what.ends_with("scalar") {
                testing::skipped(&format!("cpu: {} on scalar takes minutes", check.name));
            } else if full || !is_long || what.starts_with(MlaChoice::Auto.name()) {
                (check.run)(cpu);
            }
        }
    });
}

/// Golden cases that the gate runs in every form; others only in the one that is chosen by itself.
const IN_EVERY_FORM: usize = 2;

#[test]
fn golden_latent() {
    match golden::plain(Family::Latent) {
        Err(why) => testing::golden_skipped(&why),
        Ok(cases) => {
            let full = testing::full("cpu: golden cases of latent attention in every form");
            for (i, case) in cases.iter().enumerate() {
                in_every_form(|cpu, what| {
                    let is_chosen = what.starts_with(MlaChoice::Auto.name());
                    if !(full || is_chosen || i < IN_EVERY_FORM) {
                        return;
                    }
                    let outcome = golden_case(cpu, case);
                    eprintln!("{} {what}: NMSE {:.2e}", case.name, outcome.nmse);
                    outcome.assert(case);
                });
            }
        }
    }
}
