//! What models that embed and rank texts say of some, by the formulas they were published with.

use std::path::Path;

use ::models::GgufWeights;
use gguf::Gguf;
use program::{Executor, Outputs, Sequence, Step, StepOut, Wanted};
use serde_json::Value;

use super::recipe::Recipe;
use crate::made::EXACT;
use crate::nmse;

/// One model and what it says of some texts.
#[derive(Clone, Debug)]
pub struct TextModel {
    /// Its name.
    pub name: String,
    /// The GGUF file's bytes.
    pub file: Vec<u8>,
    /// Token ids of texts, and what the model says of each before that is normalized.
    pub texts: Vec<(Vec<u32>, Vec<f32>)>,
}

/// Models of this crate: `data/texts/make.py` made the recipes, and computed what they say in double precision.
///
/// # Panics
/// If a file is no recipe.
pub fn texts() -> Vec<TextModel> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/texts");
    let files = std::fs::read_dir(folder).expect("the crate holds its data");
    let paths = files.map(|entry| entry.expect("the crate holds its data").path());
    let recipes = paths.filter(|path| path.extension().is_some_and(|e| e == "json"));
    let mut models: Vec<_> = recipes.map(|path| model(&path)).collect();
    models.sort_by(|a, b| a.name.cmp(&b.name));
    models
}

fn model(path: &Path) -> TextModel {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let read = || -> Result<TextModel, String> {
        let text = std::fs::read(path).map_err(|e| e.to_string())?;
        let model: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
        let file = Recipe { name: &name, model: &model }.file(0)?;
        let case = |case: &Value| {
            let numbers = |key: &str| case[key].as_array().ok_or_else(|| format!("no `{key}`"));
            let tokens = numbers("tokens")?.iter().filter_map(|id| Some(id.as_u64()? as u32));
            let said = numbers("said")?.iter().filter_map(|x| Some(x.as_f64()? as f32));
            Ok((tokens.collect(), said.collect()))
        };
        let texts = model["cases"].as_array().ok_or("no `cases`")?.iter().map(case);
        let texts = texts.collect::<Result<_, String>>()?;
        Ok(TextModel { name: name.clone(), file, texts })
    };
    read().unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

impl TextModel {
    /// The NMSE of what an executor says of all texts, one by one and together in a step, which yields the same bits.
    ///
    /// # Panics
    /// If the model does not load, a step fails, or bits differ.
    pub fn nmse(&self, executor: &dyn Executor) -> f64 {
        let name = &self.name;
        let gguf = Gguf::from_bytes(self.file.clone()).expect("a valid file");
        let loaded = ::models::load(&gguf).unwrap_or_else(|e| panic!("{name}: {e}"));
        let rows = loaded.config.text_rows().expect("it says something of texts");
        let outputs = Outputs { rows, what: Wanted::Hidden };
        let model = executor
            .load(loaded.program, &GgufWeights(&gguf), &mut |_| ())
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let open = |_| model.open(&EXACT).expect("a session opens");
        let sessions: Vec<_> = (0..self.texts.len()).map(open).collect();
        let sequences: Vec<_> = (sessions.iter().zip(&self.texts))
            .map(|(&session, (tokens, _))| Sequence {
                session,
                tokens,
                outputs,
                prompt: None,
                rows: &[],
            })
            .collect();
        let mut alone = Vec::new();
        for sequence in &sequences {
            let out = model.step(&Step { sequences: &[*sequence] }).and_then(StepOut::single);
            alone.push(out.unwrap_or_else(|e| panic!("{name}: {e}")).into_hidden());
            assert_eq!(model.truncate(sequence.session, 0), Ok(0), "{name}: the next text");
        }
        let together = model.step(&Step { sequences: &sequences }).and_then(StepOut::all);
        let together = together.unwrap_or_else(|e| panic!("{name}: {e}"));
        let together: Vec<_> = together.into_iter().map(|rows| rows.into_hidden()).collect();
        assert_eq!(alone, together, "{name}: texts in one step");
        let found: Vec<f32> = alone.into_iter().flat_map(|rows| rows.hidden).collect();
        let want: Vec<f32> = self.texts.iter().flat_map(|(_, said)| said).copied().collect();
        assert_eq!(found.len(), want.len(), "{name}: numbers that it says");
        nmse(&found, &want)
    }
}
