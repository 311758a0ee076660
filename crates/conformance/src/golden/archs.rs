//! One golden case or more of every architecture, from files that say how the models are made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ::models::architecture;
use serde_json::Value;

use super::recipe::{Recipe, digest};
use super::{Case, EXACT_BOUND, GoldenFile, Index, index};
use crate::Family;

/// F32 models of every architecture of a family, in this crate: recipes, prompts, and logits of the last positions.
/// Prompts of those named `-long` go beyond windows.
///
/// # Panics
/// If a model that is made is not the one whose logits are here, or a file is no recipe.
pub fn archs(family: Family) -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, model) in recipes() {
        if family_of(&model) == family {
            cases.extend(cases_of(&name, &model).unwrap_or_else(|e| panic!("{name}: {e}")));
        }
    }
    let names: Vec<_> = cases.iter().map(|case| case.name.as_str()).collect();
    testing::covered(&format!("golden: of the repository, {}", names.join(", ")));
    cases
}

/// The files of all models of [`archs`], by name.
///
/// # Panics
/// As [`archs`].
pub fn models() -> BTreeMap<String, Vec<u8>> {
    let cases = Family::ALL.into_iter().flat_map(archs);
    // long ones are of the same models
    let files = cases.filter(|case| !case.name.ends_with("-long")).filter_map(|case| {
        let GoldenFile::Bytes(bytes) = case.model else { return None };
        Some((case.name, bytes))
    });
    files.collect()
}

/// The file of one model of [`archs`].
///
/// # Panics
/// As [`archs`], and if there is none of that name.
pub fn model(name: &str) -> Vec<u8> {
    let recipes = recipes();
    let recipe = recipes.iter().find(|(known, _)| known == name);
    let (name, model) = recipe.unwrap_or_else(|| panic!("no recipe is called {name}"));
    let cases = cases_of(name, model).unwrap_or_else(|e| panic!("{name}: {e}"));
    let file = cases.into_iter().find_map(|case| match case.model {
        GoldenFile::Bytes(bytes) => Some(bytes),
        GoldenFile::Path(_) => None,
    });
    file.expect("recipes make bytes")
}

/// Cases of `shared/golden/archs` whose architectures are supported, with more positions than [`archs`] has.
///
/// # Errors
/// Why they cannot be had, for [`testing::golden_skipped`].
///
/// # Panics
/// If one of them is not among those in this crate.
pub fn shared_archs(family: Family) -> Result<Vec<Case>, String> {
    let (folder, models, index) = shared()?;
    let supported =
        |entry: &Value| entry["arch"].as_str().is_some_and(|arch| architecture(arch).is_ok());
    let mut cases = Vec::new();
    for (name, entry) in index.iter().filter(|(_, entry)| supported(entry)) {
        let of = entry["model_name"].as_str().unwrap_or(name);
        assert!(
            data().join(format!("{name}.f32")).exists(),
            "{name} is supported: take it with data/archs/take.py SHARED {of}"
        );
        if family_of(&models[of]) == family {
            let recipe = Recipe { name: of, model: &models[of] };
            cases.push(case(&folder, name, entry, recipe).map_err(|e| format!("{name}: {e}"))?);
        }
    }
    testing::covered(&format!("golden: of shared/golden/archs, {} of {family:?}", cases.len()));
    Ok(cases)
}

/// Cases of `folder`, else of `shared/golden/archs`, by the names of their models, or all: of architectures that are not
/// supported, too.
///
/// # Errors
/// Why they cannot be had.
pub fn shared_named(folder: Option<&Path>, names: &[String]) -> Result<Vec<Case>, String> {
    let (folder, models, index) = folder.map_or_else(shared, of_folder)?;
    let of = |name: &str, entry: &Value| entry["model_name"].as_str().unwrap_or(name).to_owned();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let cases = index.iter().map(|(name, entry)| (name, entry, of(name, entry)));
    let read = |(name, entry, of): (&String, &Value, String)| {
        case(&folder, name, entry, Recipe { name: &of, model: &models[&of] })
            .map_err(|e| format!("{name}: {e}"))
    };
    cases.filter(|(_, _, of)| wanted(of)).map(read).collect()
}

/// Make every model of `shared/golden/archs`, of architectures that are not supported too, and compare digests. Returns
/// the names of those that differ, and how many do not.
///
/// # Errors
/// Why they cannot be had, for [`testing::golden_skipped`].
pub fn every_recipe() -> Result<(Vec<String>, usize), String> {
    let (_, models, index) = shared()?;
    let (mut differ, mut same) = (Vec::new(), 0);
    for (name, model) in &models {
        let mut entries =
            index.iter().map(|(case, entry)| (entry["model_name"].as_str().unwrap_or(case), entry));
        let Some((_, entry)) = entries.find(|(of, _)| of == name) else { continue };
        match made(entry, Recipe { name, model }) {
            Ok(_) => same += 1,
            Err(e) => differ.push(format!("{name}: {e}")),
        }
    }
    Ok((differ, same))
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/archs")
}

/// The recipes in this crate, by name.
fn recipes() -> Vec<(String, Value)> {
    let files = std::fs::read_dir(data()).expect("the crate holds its data");
    let mut recipes = Vec::new();
    for path in files.map(|entry| entry.expect("the crate holds its data").path()) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_some_and(|e| e == "json") && name != "vocabulary" {
            let text = std::fs::read(&path).expect("the crate holds its data");
            let model = serde_json::from_slice(&text);
            recipes.push((name, model.unwrap_or_else(|e| panic!("{}: {e}", path.display()))));
        }
    }
    recipes.sort_by(|a, b| a.0.cmp(&b.0));
    recipes
}

/// The folder, `models.json` and `index.json`.
fn shared() -> Result<(PathBuf, Index, Index), String> {
    of_folder(&testing::shared()?.join("golden/archs"))
}

fn of_folder(folder: &Path) -> Result<(PathBuf, Index, Index), String> {
    let read = || {
        let models = serde_json::from_slice(&std::fs::read(folder.join("models.json"))?)?;
        std::io::Result::Ok((models, index(folder)?))
    };
    let (models, index) = read().map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok((folder.to_owned(), models, index))
}

fn cases_of(name: &str, model: &Value) -> Result<Vec<Case>, String> {
    let entries = model["cases"].as_object().ok_or("no `cases`")?;
    let read = |(case_name, entry): (&String, &Value)| {
        case(&data(), case_name, entry, Recipe { name, model })
    };
    entries.iter().map(read).collect()
}

fn case(folder: &Path, name: &str, entry: &Value, recipe: Recipe<'_>) -> Result<Case, String> {
    let model = GoldenFile::Bytes(made(entry, recipe)?);
    let case = super::case(folder, name, entry, PathBuf::new()).map_err(|e| e.to_string())?;
    let bound = entry["nmse"].as_f64().unwrap_or(EXACT_BOUND);
    Ok(Case { model, bound, same_greedy: true, ..case })
}

/// The model's file, which must be the one that the other program read.
fn made(entry: &Value, recipe: Recipe<'_>) -> Result<Vec<u8>, String> {
    let file = recipe.file(entry["seed"].as_u64().unwrap_or(0))?;
    let (made, wanted) = (digest(&file), entry["sha256"].as_str().unwrap_or_default());
    if made == wanted {
        Ok(file)
    } else {
        Err(format!("the model's SHA-256 is {made}, not {wanted}"))
    }
}

/// What its keys ask of an executor.
fn family_of(model: &Value) -> Family {
    let has = |part: &str| {
        model["kv"].as_object().is_some_and(|keys| keys.keys().any(|key| key.ends_with(part)))
    };
    if has(".attention.kv_lora_rank") {
        Family::Latent
    } else if has(".expert_count") {
        Family::Experts
    } else if has(".attention.sliding_window") {
        Family::Windows
    } else {
        Family::Dense
    }
}
