//! When a server that failed is asked again.

use std::time::{Duration, Instant};

use hub::HubPatience;
use hub::internals::Backoff;

const SECOND: Duration = Duration::from_secs(1);

/// The pause after a failure without `Retry-After`.
const PAUSE: Duration = Duration::from_secs(15);

/// Records a failure `at` seconds after `start` with a `Retry-After` of `asked` seconds. Returns whether the tries go on.
fn goes_on(backoff: &mut Backoff, start: Instant, at: u32, asked: Option<u32>) -> bool {
    let asked = asked.map(|seconds| seconds * SECOND);
    backoff.postpone(start + at * SECOND, asked, PAUSE).is_ok()
}

#[test]
fn what_a_server_asks_for_is_no_outage() {
    let patience = HubPatience::default();
    assert_eq!(patience.outage, 600 * SECOND);
    let start = Instant::now();
    let begun = || Backoff::new(start, patience.outage);
    let mut busy = begun();
    // four connections get the answer, a second apart
    for i in 0..4 {
        assert!(goes_on(&mut busy, start, i, Some(900 - i)));
    }
    assert!(busy.not_before() >= start + 900 * SECOND);
    assert!(goes_on(&mut busy, start, 900, None), "it was left alone for as long as it asked");
    assert!(goes_on(&mut busy, start, 1499, None));
    assert!(!goes_on(&mut busy, start, 1500, None), "ten minutes of its own");
    // however long nothing was tried, as while the process was stopped, trouble begins with the first one
    let mut stopped = begun();
    assert!(
        goes_on(&mut stopped, start, 10_000, None) && goes_on(&mut stopped, start, 10_599, None)
    );
    assert!(!goes_on(&mut stopped, start, 10_600, None));
    // one that puts off for ever is given up
    let mut never = begun();
    let mut at = 0;
    while goes_on(&mut never, start, at, Some(60)) {
        at += 60;
    }
    assert!((3600..5000).contains(&at), "{at}");
    assert!(!goes_on(&mut begun(), start, 0, Some(3601)), "too long at once");
    // nor does one that asks for no wait at all get more requests than one that says nothing
    let mut hasty = begun();
    assert!(goes_on(&mut hasty, start, 0, Some(0)));
    assert!(hasty.not_before() >= start + PAUSE);
}
