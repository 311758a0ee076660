//! Where redirects lead, and whose addresses are whose.

use hub::HubOptions;
use hub::internals::{origin, target};

#[test]
fn redirects_stay_where_they_may_lead() {
    let to = |from: &str, location: &str| target(from, location).ok();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(to("https://a/b", "/c?d"), some("https://a/c?d"));
    assert_eq!(to("https://a/b", "/c?to=https://d"), some("https://a/c?to=https://d"));
    assert_eq!(to("https://a/b", "/c?to=http://d"), some("https://a/c?to=http://d"));
    assert_eq!(to("https://a/b", "//c/d"), some("https://c/d"));
    assert_eq!(to("https://a/b", "https://c/d"), some("https://c/d"));
    assert_eq!(to("http://a:1/b", "http://c/d"), some("http://c/d"));
    assert_eq!(to("https://a/b", "http://a/b"), None);
    assert_eq!(to("https://a/b", "file:///etc/passwd"), None);
    assert_eq!(to("https://a/b", "c"), None);
}

#[test]
fn servers_are_told_apart() {
    assert_eq!(origin("https://A.co/x"), origin("https://a.co:443/y?z"));
    assert_ne!(origin("https://a.co/x"), origin("http://a.co/x"));
    assert_ne!(origin("https://a.co/x"), origin("https://a.co.evil.com/x"));
    assert_ne!(origin("https://a.co/x"), origin("https://a.co@evil.com/x"));
    let taken = |endpoint: &str| {
        let variable = |name: &str| (name == "HF_ENDPOINT").then(|| endpoint.into());
        HubOptions::from_variables(&variable, Some("/home".into())).is_ok()
    };
    assert!(taken("http://127.0.0.1:9"));
    assert!(!taken("ftp://x") && !taken("x"));
}

#[test]
fn tokens_that_are_sent_in_clear_are_known() {
    let in_clear = |endpoint: &str, token: &str| {
        let variable = |name: &str| match name {
            "HF_ENDPOINT" => Some(endpoint.into()),
            "HF_TOKEN" => Some(token.into()),
            "HF_TOKEN_PATH" => Some("/nowhere".into()),
            _ => None,
        };
        HubOptions::from_variables(&variable, Some("/home".into())).unwrap().sends_token_in_clear()
    };
    for endpoint in [
        "http://hub.example",
        "http://10.0.0.1:80/x",
        "http://localhost.evil.com",
        "http://[2001:db8::1]:9",
    ] {
        assert!(in_clear(endpoint, "hf_x"), "{endpoint}");
        assert!(!in_clear(endpoint, ""), "{endpoint} without a token");
    }
    let offline = |name: &str| match name {
        "HF_ENDPOINT" => Some("http://hub.example".into()),
        "HF_TOKEN" | "HF_HUB_OFFLINE" => Some("1".into()),
        _ => None,
    };
    let offline = HubOptions::from_variables(&offline, Some("/home".into())).unwrap();
    assert!(!offline.sends_token_in_clear(), "nothing is sent");
    for endpoint in
        ["https://hub.example", "http://localhost:9", "http://127.0.0.1:9/x", "http://[::1]:9"]
    {
        assert!(!in_clear(endpoint, "hf_x"), "{endpoint}");
    }
}
