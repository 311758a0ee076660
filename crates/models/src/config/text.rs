//! [`TextHead`]: what models that embed or rank texts make of the rows of one.

use program::OutputRows;

use crate::keys::Keys;
use crate::{Error, ModelConfig, Result};

/// How the rows of a text become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// They stay as they are: a vector for each token.
    None,
    /// Their mean.
    Mean,
    /// The first one.
    Cls,
    /// The last one.
    Last,
    /// One of them, from which a classifier makes scores: the last where queries see nothing behind them, else the first.
    Rank,
}

impl Pooling {
    /// All of them: where each stands is its number in files.
    pub const ALL: [Pooling; 5] =
        [Pooling::None, Pooling::Mean, Pooling::Cls, Pooling::Last, Pooling::Rank];

    /// Its name, as llama.cpp has it.
    pub fn name(self) -> &'static str {
        match self {
            Pooling::None => "none",
            Pooling::Mean => "mean",
            Pooling::Cls => "cls",
            Pooling::Last => "last",
            Pooling::Rank => "rank",
        }
    }
}

/// What a model yields of a text in place of logits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextHead {
    /// How rows become one.
    pub pooling: Pooling,
    /// Outputs of the matrices that follow when texts are embedded, `dense_2` and `dense_3`, where there are some.
    pub dense: [Option<usize>; 2],
    /// Outputs of the classifier's first matrix, `cls`, where it has one.
    pub classifier: Option<usize>,
    /// Outputs of its last, `cls.output`, where it has one: a score for each label.
    pub labels: Option<usize>,
}

impl ModelConfig {
    /// Whether a text must go through at once: queries see later rows, or a mean of all rows is taken.
    pub fn reads_at_once(&self) -> bool {
        let mean = self.text.as_ref().is_some_and(|text| text.pooling == Pooling::Mean);
        mean || self.layers.iter().any(|layer| layer.score.mask.looks_ahead())
    }

    /// Which rows of a text a step is to yield: of means any one; `None` of a model that yields logits.
    pub fn text_rows(&self) -> Option<OutputRows> {
        let ahead = self.layers.iter().any(|layer| layer.score.mask.looks_ahead());
        Some(match self.text.as_ref()?.pooling {
            Pooling::None => OutputRows::All,
            Pooling::Mean | Pooling::Last => OutputRows::Last,
            Pooling::Cls => OutputRows::First,
            Pooling::Rank if ahead => OutputRows::First,
            Pooling::Rank => OutputRows::Last,
        })
    }
}

/// What the file says, where it says that its rows are pooled.
///
/// # Errors
/// A kind of pooling that nobody knows; [`Error::MissingTensor`] of a classifier that is not there.
pub(super) fn read(keys: &Keys<'_>) -> Result<Option<TextHead>> {
    let most = Pooling::ALL.len() as u64 - 1;
    let pooling = keys.count("pooling_type", 0..=most)?.map(|n| Pooling::ALL[n]);
    pooling
        .filter(|pooling| *pooling != Pooling::None)
        .map(|pooling| head(keys, pooling))
        .transpose()
}

/// The same of a model that yields no logits: where the file does not say how rows are pooled, they are not.
///
/// # Errors
/// None today: what is not pooled has no classifier.
pub(crate) fn read_encoder(keys: &Keys<'_>, c: &mut ModelConfig) -> Result<()> {
    if c.text.is_none() {
        if keys.get("pooling_type").is_none() {
            let key = keys.name("pooling_type");
            keys.note(format!(
                "key `{key}` is missing: a text has a vector for each of its tokens"
            ));
        }
        c.text = Some(head(keys, Pooling::None)?);
    }
    Ok(())
}

/// With this pooling.
///
/// # Errors
/// [`Error::MissingTensor`] of a classifier that is not there.
pub(crate) fn pool(keys: &Keys<'_>, c: &mut ModelConfig, pooling: Pooling) -> Result<()> {
    c.text = Some(head(keys, pooling)?);
    Ok(())
}

fn head(keys: &Keys<'_>, pooling: Pooling) -> Result<TextHead> {
    // a matrix of one row may be written as a vector
    let rows = |name: &str| {
        let dims = keys.dims(&format!("{name}.weight"))?;
        Some(dims.get(1).and_then(|rows| usize::try_from(*rows).ok()).unwrap_or(1))
    };
    let (classifier, labels) = (rows("cls"), rows("cls.output"));
    if pooling == Pooling::Rank && classifier.is_none() && labels.is_none() {
        return Err(Error::MissingTensor { name: "cls.output.weight".into() });
    }
    Ok(TextHead { pooling, dense: ["dense_2", "dense_3"].map(rows), classifier, labels })
}
