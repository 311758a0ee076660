//! Names of files on a hub, and in addresses.

use hub::internals::{escaped, is_model_file, part_of};

#[test]
fn files_are_models_that_stay_in_their_folder() {
    for good in ["m.gguf", "Q4/m.GGUF", "m-00001-of-00002.gguf"] {
        assert!(is_model_file(good), "{good}");
    }
    for bad in [
        "../m.gguf",
        "/m.gguf",
        "a//m.gguf",
        "m.bin",
        "mmproj-f16.gguf",
        "a\\m.gguf",
        "a/../m.gguf",
        "m\n.gguf",
        "imatrix.gguf",
    ] {
        assert!(!is_model_file(bad), "{bad}");
    }
    assert_eq!(part_of("x/m-00002-of-00003.gguf"), Some(("x/m", 2, 3)));
    for whole in ["m.gguf", "m-2-of-3.gguf", "m-00004-of-00003.gguf", "m-00000-of-00003.gguf"] {
        assert_eq!(part_of(whole), None, "{whole}");
    }
    assert_eq!("a b/ü".chars().map(escaped).collect::<String>(), "a%20b/%C3%BC");
}
