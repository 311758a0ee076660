//! Texts that stand in kernels for what they compute, by which some kernels are many.

/// Bodies of [`GROUPS`](super::GROUPS): what is done to a group `a` (beside a group `b`).
pub(crate) mod group {
    use program::NormKind;

    /// Source: `program::Op::Resize`.
    pub(crate) const RESIZE: &str = include_str!("groups/resize.wgsl");
    /// Source: `program::Op::Excess`.
    pub(crate) const EXCESS: &str = include_str!("groups/excess.wgsl");
    /// Source: `program::Op::Softmax`.
    pub(crate) const SOFTMAX: &str = include_str!("groups/softmax.wgsl");

    /// Source: `program::NormKind`.
    pub(crate) fn norm(kind: NormKind) -> &'static str {
        match kind {
            NormKind::Rms => include_str!("groups/rms.wgsl"),
            NormKind::Layer => include_str!("groups/layer.wgsl"),
        }
    }
}

/// Lists of tokens of which [`BEST`](super::BEST) finds the likeliest.
pub(crate) mod lists {
    /// Stretches of a row of logits.
    pub(crate) const STRETCHES: &str = include_str!("best/stretches.wgsl");
    /// What was found of all stretches of a row.
    pub(crate) const FOUND: &str = include_str!("best/found.wgsl");
}

/// What elements of [`ROWS`](super::ROWS) are. `program::Op` says what each op means.
pub(crate) mod element {
    pub(crate) const COPY: &str = "a(row, i)";
    pub(crate) const ACT: &str = "finished(a(row, i), 1.0)";
    pub(crate) const GATE: &str = "finished(a(row, i / c.p), b(row, i))";
    pub(crate) const ADD: &str = "a(row, i) + b(row, i)";
    pub(crate) const SCALE: &str = "a(row, i) * c.factor";
    pub(crate) const MULTIPLY: &str = "a(row, i) * vectors[c.p + (i / c.q) % c.r]";
    pub(crate) const SPREAD: &str =
        "select(0.0, a(row, i / c.q * c.r + min(i % c.q, c.p - 1u)), i % c.q < c.p)";
    pub(crate) const SLICE: &str = "a(row, i / c.q * c.r + c.p + i % c.q)";
    pub(crate) const MIX: &str = "mixed(row, i)";
    pub(crate) const SELECT: &str = "a(step[step[SELECTED] + row], i)";
    pub(crate) const MEAN: &str = "mean(row, i)";
    pub(crate) const JOINED: &str = "joined(row, i)";
    pub(crate) const SUM: &str = "summed(row, i)";
    pub(crate) const SHIFT: &str = "a(row, i) + c.factor";
    pub(crate) const SIGNED_ROOT: &str = "signed_root(a(row, i), c.factor)";
    pub(crate) const TURN: &str = "a(row, i % c.p * c.q + i / c.p)";
    pub(crate) const ID: &str = "f32(step[step[TOKENS] + row] + 1u)";

    #[cfg(test)]
    pub(crate) const ALL: [&str; 17] = [
        COPY,
        ACT,
        GATE,
        ADD,
        SCALE,
        MULTIPLY,
        SPREAD,
        SLICE,
        MIX,
        SELECT,
        MEAN,
        JOINED,
        SUM,
        SHIFT,
        SIGNED_ROOT,
        TURN,
        ID,
    ];
}
