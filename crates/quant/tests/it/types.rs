//! The table of types.

use quant::GgmlType;

#[test]
fn numbers_and_names_are_unique_and_round_trip() {
    for ty in GgmlType::all() {
        assert_eq!(GgmlType::from_number(ty.number()), Some(ty));
        assert_eq!(GgmlType::from_name(&ty.name().to_lowercase()), Some(ty));
    }
}
