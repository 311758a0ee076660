//! How two texts begin.

/// With how many equal things both begin.
pub(crate) fn alike<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
