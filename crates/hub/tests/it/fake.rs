//! What all tests ask of a hub on this machine.

use std::path::Path;
use std::time::Duration;

use hub::{Hub, HubOptions, HubPatience, ModelName, PullProgress};
pub(crate) use testing::{
    FakeHub, HUB_COMMIT as COMMIT, HUB_REPOSITORY as REPOSITORY, Mischief, made_up as content,
    sha256,
};

/// A hub's options for a cache in this folder.
pub(crate) fn options(fake: &FakeHub, cache: &Path) -> HubOptions {
    let endpoint = fake.address.clone();
    let patience = HubPatience { silence: Duration::from_secs(30), outage: Duration::from_secs(3) };
    HubOptions { cache: cache.to_owned(), endpoint, token: None, offline: false, patience }
}

pub(crate) fn hub(fake: &FakeHub, cache: &Path) -> Hub {
    Hub::new(options(fake, cache))
}

pub(crate) fn name(text: &str) -> ModelName {
    ModelName::parse(text).unwrap().unwrap()
}

pub(crate) fn silent(_: PullProgress<'_>) -> bool {
    true
}
