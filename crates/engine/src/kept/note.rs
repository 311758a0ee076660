//! What is written beside a conversation on disk.

/// Whose a conversation is, as a digest: nobody else finds it.
pub type Owner = [u8; 16];

const VERSION: u8 = 1;

/// Whose it is, and how long it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Note {
    pub(super) owner: Owner,
    /// Seconds for a token of a prompt, where that was measured.
    pub(super) pace: Option<f64>,
}

impl Note {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let pace = self.pace.unwrap_or(f64::NAN).to_le_bytes();
        [&[VERSION][..], &self.owner, &pace].concat()
    }

    /// Read what [`to_bytes`](Self::to_bytes) wrote; `None`: it is something else.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Note> {
        let (version, rest) = bytes.split_first()?;
        let (owner, pace) = rest.split_first_chunk()?;
        let pace = f64::from_le_bytes(pace.try_into().ok()?);
        let pace = Some(pace).filter(|pace| pace.is_finite() && *pace >= 0.0);
        (*version == VERSION).then_some(Note { owner: *owner, pace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_mean_themselves() {
        for pace in [None, Some(0.0), Some(1.5e-3)] {
            let note = Note { owner: [7; 16], pace };
            let bytes = note.to_bytes();
            assert_eq!(Note::from_bytes(&bytes), Some(note));
            assert_eq!(Note::from_bytes(&bytes[1..]), None);
            assert_eq!(Note::from_bytes(&[&bytes[..], &[0]].concat()), None);
        }
        assert_eq!(Note::from_bytes(&[]), None);
        let endless = Note { owner: [0; 16], pace: Some(f64::INFINITY) }.to_bytes();
        assert_eq!(Note::from_bytes(&endless).and_then(|note| note.pace), None);
    }
}
