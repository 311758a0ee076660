//! What can go wrong between a session and its text.

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failure of a session, a sampler or a conversation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model failed.
    #[error(transparent)]
    Model(#[from] program::Error),
    /// A text or a template failed.
    #[error(transparent)]
    Text(#[from] tokenizer::Error),
    /// A prompt without tokens: there is nothing to continue.
    #[error("the prompt has no tokens")]
    EmptyPrompt,
    /// More tokens than the session may hold. Nothing was dropped and nothing was computed.
    #[error("the context is full: {wanted} tokens wanted, {capacity} fit")]
    ContextFull {
        /// Tokens the session would hold.
        wanted: usize,
        /// Tokens it may hold.
        capacity: usize,
    },
    /// A sampler or perplexity setting out of its range.
    #[error("{name}: expected {expected}, found {found}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its range.
        expected: &'static str,
        /// What was given.
        found: String,
    },
    /// NaN or infinity among the logits.
    #[error(
        "non-finite logit {value} for token {token} after {position} tokens: the weights or scales hold NaN or infinity"
    )]
    NonFinite {
        /// Tokens before the one to be chosen.
        position: usize,
        /// First token with such a logit.
        token: usize,
        /// The logit.
        value: f32,
    },
    /// A reply that must have a form, and cannot go on in it.
    #[error("the reply cannot go on in its form: {problem}")]
    Constraint {
        /// Why, in one line.
        problem: String,
    },
    /// A row of logits that does not have one number per token of the vocabulary.
    #[error("logits: expected a row of {expected}, found {found}")]
    Logits {
        /// Vocabulary size.
        expected: usize,
        /// Numbers in the row.
        found: usize,
    },
    /// As many turns wait as may.
    #[error("busy: {waiting} others are waiting")]
    Busy {
        /// How many.
        waiting: usize,
    },
    /// A turn whose session is of another model than the others'.
    #[error("the session is of another model")]
    OtherModel,
    /// Results of tools that are not those the last reply asked for.
    #[error("results of tools: expected {calls}, one for each call, found {results}")]
    Results {
        /// Calls without a result.
        calls: usize,
        /// Results given.
        results: usize,
    },
    /// A name of a saved session that is another's, or under which nothing is that could be had back.
    #[error("{name}: {problem}")]
    Saved {
        /// The name.
        name: String,
        /// What is wrong with it, in words.
        problem: String,
    },
    /// There is no reply to make anew.
    #[error("there is no reply yet to generate again")]
    NoReply,
    /// Too little text for one window.
    #[error(
        "perplexity over windows of {context} tokens needs at least {context} tokens, found {found}"
    )]
    TextTooShort {
        /// Tokens per window.
        context: usize,
        /// Tokens given.
        found: usize,
    },
    /// A length that no text of this kind has.
    #[error("{kind}: {length} tokens are too few for its texts")]
    RecallTooShort {
        /// Name of the kind.
        kind: String,
        /// Tokens that the prompt may have.
        length: usize,
    },
}
