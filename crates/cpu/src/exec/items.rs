//! Items of a section that are those of several owners, one after another.

/// Which owner has item `item` of all, and which of its own it is; `count`: how many one has.
///
/// # Panics
/// If there are not so many.
#[inline]
pub(super) fn owner_of<T>(
    owners: &[T],
    mut item: usize,
    count: impl Fn(&T) -> usize,
) -> (usize, usize) {
    for (index, owner) in owners.iter().enumerate() {
        let own = count(owner);
        if item < own {
            return (index, item);
        }
        item -= own;
    }
    panic!("items are those of all owners");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_one_owner_after_another() {
        let found: Vec<_> = (0..5).map(|item| owner_of(&[2, 0, 3], item, |n| *n)).collect();
        assert_eq!(found, [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]);
    }
}
