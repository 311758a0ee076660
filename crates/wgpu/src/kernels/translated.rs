//! Every shader becomes what drivers take: SPIR-V, MSL and HLSL, each validated by naga. No device is needed.

use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use program::{Gating, GroupScore, Groups, NormKind, Router, ScanRule};
use quant::GgmlType;

use super::recurrence::SCAN_INPUTS;
use super::*;
use crate::formats::{FORMATS, device_format};
use crate::plan::{Place, ValueBuffer};

/// Every shader that plans may ask for, with a few widths of heads.
fn all() -> Vec<Shader> {
    let mut all = Vec::new();
    for format in FORMATS {
        all.push(Shader::embed(format));
        all.extend([64, 4096].map(|dim| Shader::embed_normed(format, dim)));
        for product in ProductType::ALL.into_iter().filter(|product| format.multiplies(*product)) {
            let shape = TeamShape { product, ..TeamShape::USUAL };
            all.push(Shader::matmat(format, shape, Abilities::default()));
            all.push(Shader::grouped(format, shape, Abilities::default()));
            for (at_once, rows, teams) in [(1, 2, 2), (1, 8, 8), (4, 2, 2), (4, 4, 8), (4, 8, 4)] {
                let subgroups = rows == 2;
                let shape = TeamShape { rows, teams, product, ..TeamShape::USUAL };
                assert!(shape.is_possible(at_once), "{shape:?}");
                let shapes = [shape, TeamShape { subgroups, ..shape }];
                for shape in &shapes[..1 + usize::from(subgroups)] {
                    all.push(Shader::matvec(format, at_once, shape.over(64)));
                    all.push(Shader::matvec(format, at_once, *shape));
                    all.push(Shader::pieces(format, at_once, *shape));
                }
            }
        }
        let products = [ProductType::F32, ProductType::F16].into_iter();
        for product in products.filter(|product| Matrices::suit(format, *product)) {
            for (side, lanes) in [(16, 32), (16, 64), (16, 8), (8, 32)] {
                let matrices = [Some(Matrices { side, lanes, played: false }); 2];
                let able = Abilities { f16: true, subgroups: true, matrices, roomy: true };
                let shape = TeamShape { product, subgroups: true, ..TeamShape::USUAL };
                assert!(shape.is_able(format, MATMAT_TILE, able));
                all.push(Shader::matmat(format, shape, able));
                all.push(Shader::grouped(format, shape, able));
            }
        }
        if Matrices::suit(format, ProductType::F16) {
            all.push(Shader::wide(format));
        }
        all.push(Shader::mixed(format));
        all.push(Shader::turned(format));
        all.push(Shader::grams(format));
    }
    all.extend(element::ALL.map(Shader::rows));
    let norms = [NormKind::Rms, NormKind::Layer].map(group::norm);
    let bodies = [norms[0], norms[1], group::RESIZE, group::EXCESS, group::SOFTMAX];
    all.extend([64, 4096].iter().flat_map(|dim| bodies.map(|body| Shader::groups(body, *dim))));
    for keys in [Stored::F32, Stored::F16] {
        for values in [Stored::F32, Stored::F16] {
            let kept = StoredTypes { keys, values };
            all.push(Shader::keys(kept));
            all.push(Shader::latents(kept));
            all.push(Shader::index_keys(kept));
            all.push(Shader::index_scores(kept));
            let sizes =
                [(1, 1, false), (32, 32, false), (64, 20, false), (6, 4, true), (144, 128, true)];
            all.extend(sizes.map(|(key_quads, value_quads, are_latents)| {
                Shader::attend(kept, HeadWidths { key_quads, value_quads, are_latents })
            }));
        }
    }
    all.extend([64, 4096].map(Shader::rounded));
    all.push(Shader::combine());
    let most = [ceiling::floats().text, ceiling::bytes().text];
    all.extend([ceiling::READ, &most[0], &most[1]].map(Shader::ceiling));
    all.push(Shader::sorted(256));
    all.extend([None, Some(8)].map(|groups| Shader::route(&routing(groups))));
    all.push(Shader::conv());
    for rule in ScanRule::ALL {
        let buffers = [[0; SCAN_INPUTS], [0, 1, 2, 3, 1, 2]];
        let sizes = [1, 33, 128];
        let each = buffers.iter().flat_map(|buffers| sizes.map(|n| Shader::scan(rule, n, buffers)));
        all.extend(each);
    }
    all.extend([lists::STRETCHES, lists::FOUND].map(Shader::best));
    all.extend([Shader::told(), Shader::index_choose(), Shader::marks(), Shader::balance()]);
    all
}

/// A choice of 8 of 256 experts.
fn routing(groups: Option<usize>) -> RouteWork {
    let groups = groups.map(|n_groups| Groups { n_groups, n_used: 4, score: GroupScore::Max });
    let router = Router {
        n_used: 8,
        gating: Gating::Sigmoid,
        bias: None,
        groups,
        normalize: true,
        scale: 1.0,
        factors: None,
        per_chunk: 1,
    };
    let place = Place { buffer: ValueBuffer(0), offset: 0 };
    let (scores, out) = (place, place);
    RouteWork { router, n_experts: 256, bias: None, factors: None, scores, out }
}

/// Metal of macOS 11 on, which matrices want.
fn metal() -> msl::Options {
    let default = msl::Options::default();
    msl::Options { fake_missing_bindings: true, lang_version: (2, 3), ..default }
}

/// What a device must have for a shader: half floats in words, which all have, and what its text says. The usual shapes say
/// nothing.
fn needed(shader: &Shader) -> Capabilities {
    let text = shader.text(true);
    let every = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    let f16 = if text.contains("enable f16") { Capabilities::SHADER_FLOAT16 } else { every };
    let subgroups = if text.contains("@builtin(subgroup") { Capabilities::SUBGROUP } else { every };
    let is_matrices = text.contains("enable wgpu_cooperative_matrix");
    let matrices = if is_matrices { Capabilities::COOPERATIVE_MATRIX } else { every };
    every | f16 | subgroups | matrices
}

#[test]
fn usual_shapes_need_what_every_device_has() {
    let usual = FORMATS.iter().flat_map(|format| {
        let of_teams = [1, 4].map(|at_once| Shader::matvec(format, at_once, TeamShape::USUAL));
        let pieces = [1, 4].map(|at_once| Shader::pieces(format, at_once, TeamShape::USUAL));
        let able = Abilities { f16: true, subgroups: true, ..Abilities::default() };
        let shape = TeamShape::USUAL;
        let tiles = [Shader::matmat(format, shape, able), Shader::grouped(format, shape, able)];
        [of_teams, pieces, tiles].concat()
    });
    for shader in usual {
        assert_eq!(needed(&shader), Capabilities::SHADER_FLOAT16_IN_FLOAT32, "{shader:?}");
    }
}

#[test]
fn every_shader_is_valid_everywhere() {
    for shader in all() {
        let (name, text) = (shader.kernel.name, shader.text(true));
        let module = naga::front::wgsl::parse_str(&text)
            .unwrap_or_else(|e| panic!("{name}: {}\n{text}", e.emit_to_string(&text)));
        let checked = Validator::new(ValidationFlags::all(), needed(&shader)).validate(&module);
        let found = checked.unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(&text)));
        let spirv = spv::Options { lang_version: (1, 3), ..spv::Options::default() };
        let spirv = spv::write_vec(&module, &found, &spirv, None);
        assert!(spirv.is_ok_and(|words| words.len() > 100), "{name}: SPIR-V");
        let metal = msl::write_string(&module, &found, &metal(), &msl::PipelineOptions::default());
        assert!(metal.is_ok_and(|(text, _)| text.contains("kernel")), "{name}: MSL");
        let mut direct = String::new();
        let options =
            hlsl::Options { shader_model: hlsl::ShaderModel::V6_2, ..hlsl::Options::default() };
        let pipeline = hlsl::PipelineOptions::default();
        let written =
            hlsl::Writer::new(&mut direct, &options, &pipeline).write(&module, &found, None);
        if needed(&shader).contains(Capabilities::COOPERATIVE_MATRIX) {
            // Direct3D has no adapter that says it has them
            assert!(written.is_err(), "{name}: HLSL");
            continue;
        }
        assert!(written.is_ok() && direct.contains("numthreads"), "{name}: HLSL");
    }
}

/// For reading: SPIR-V and MSL of the products that steps are made of, in the folder `ROOFLIGHT_SHADERS`.
#[test]
fn products_are_written_for_reading() {
    let Some(folder) = std::env::var_os("ROOFLIGHT_SHADERS") else { return };
    let folder = std::path::PathBuf::from(folder);
    let write = |name: String, bytes: &[u8]| {
        std::fs::write(folder.join(&name), bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
    };
    let types = [GgmlType::Q4_0, GgmlType::Q8_0, GgmlType::Q4K];
    let all = types.iter().flat_map(|ty| ProductType::ALL.map(|product| (*ty, product)));
    for ((ty, product), rows) in all.flat_map(|its| [2, 8].map(|rows| (its, rows))) {
        let format = device_format(ty).expect("every type has a form");
        let shader = Shader::matvec(format, 1, TeamShape { rows, product, ..TeamShape::USUAL });
        let module = naga::front::wgsl::parse_str(&shader.text(true)).expect("it is valid");
        let found = Validator::new(ValidationFlags::all(), needed(&shader)).validate(&module);
        let found = found.expect("it is valid");
        let words = spv::write_vec(&module, &found, &spv::Options::default(), None);
        let bytes = words.expect("it becomes SPIR-V").into_iter().flat_map(u32::to_le_bytes);
        write(format!("matvec-{ty}-{}-{rows}.spv", product.name()), &bytes.collect::<Vec<u8>>());
        let metal = msl::write_string(&module, &found, &metal(), &msl::PipelineOptions::default());
        write(
            format!("matvec-{ty}-{}-{rows}.metal", product.name()),
            metal.expect("it becomes MSL").0.as_bytes(),
        );
    }
}

/// What a kernel binds is what its text declares, and its constants fit where they are put.
#[test]
fn bindings_are_those_of_the_text() {
    for shader in all() {
        let (kernel, text) = (shader.kernel, shader.text(true));
        let declared = text.lines().filter(|line| line.starts_with("@group(0) @binding(")).count();
        assert_eq!(declared, 2 + (kernel.reads + kernel.writes) as usize, "{}", kernel.name);
        assert!(kernel.n_consts() * 4 <= crate::dispatch::CONSTS, "{}", kernel.name);
    }
}
