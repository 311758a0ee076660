//! Web pages: which of them may use the server, and the headers that browsers receive.

use rooflight_server::Access;
use serde_json::{Value, json};

use crate::client::{Answer, Served, head};

const CHAT: &str = "/v1/chat/completions";
const APP: &str = "app://obsidian.md";

fn served(keys: &[String]) -> Served {
    let origins = [APP, "https://chat.example"].map(|origin| origin.parse().unwrap());
    let access = Access::new(keys, Some(Vec::new())).with_origins(origins.into());
    Served::with(2, 4, access)
}

fn ask(served: &Served, method: &str, path: &str, headers: &str) -> Answer {
    let said = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 2 });
    let said = if method == "POST" { said.to_string() } else { String::new() };
    let headers = format!("{headers}Content-Length: {}\r\n", said.len());
    served.send((head(method, path, &headers) + &said).as_bytes())
}

/// H8: a page of an allowed origin may send preflights and requests, and may read the responses; no other page may.
#[test]
fn h8_pages_of_allowed_origins_alone_may_ask() {
    let served = served(&[]);
    let from = |origin: &str| format!("Origin: {origin}\r\nSec-Fetch-Site: cross-site\r\n");
    for origin in [APP, "https://chat.example"] {
        let page = from(origin);
        let asked = "Access-Control-Request-Method: POST\r\n\
                     Access-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n";
        for path in [CHAT, "/api/chat", "/v1/messages", "/nothing"] {
            let answer = ask(&served, "OPTIONS", path, &format!("{page}{asked}"));
            assert_eq!((answer.status, &*answer.body), (204, ""), "{path}: {answer:?}");
            let told = |name: &str| answer.header(&format!("access-control-allow-{name}"));
            assert_eq!(told("origin"), Some(origin));
            assert!(told("methods").is_some_and(|methods| methods.contains("post")), "{answer:?}");
            assert_eq!(told("headers"), Some("authorization,content-type,x-stainless-os"));
            assert_eq!((told("private-network"), told("credentials")), (None, None));
        }
        let private = format!("{page}{asked}Access-Control-Request-Private-Network: true\r\n");
        let answer = ask(&served, "OPTIONS", CHAT, &private);
        assert_eq!(answer.header("access-control-allow-private-network"), Some("true"));
        // the responses, including errors
        let json = "Content-Type: application/json\r\n";
        for (method, path, status) in [("POST", CHAT, 200), ("GET", CHAT, 405), ("GET", "/x", 404)]
        {
            let answer = ask(&served, method, path, &format!("{page}{json}"));
            assert_eq!(answer.status, status, "{answer:?}");
            assert_eq!(answer.header("access-control-allow-origin"), Some(origin), "{answer:?}");
            assert!(answer.header("vary").is_some_and(|vary| vary.contains("origin")));
            let exposed = answer.header("access-control-expose-headers").unwrap();
            assert!(exposed.contains("x-request-id") && answer.header("x-request-id").is_some());
        }
    }
    for other in [
        from("https://evil.com"),
        from("null"),
        from("https://chat.example.evil.com"),
        from("http://chat.example"),
        format!("{}Origin: https://evil.com\r\n", from(APP)),
        "Sec-Fetch-Site: cross-site\r\n".to_owned(),
    ] {
        for (method, asked) in
            [("POST", ""), ("OPTIONS", "Access-Control-Request-Method: POST\r\n")]
        {
            let answer = ask(&served, method, CHAT, &format!("{other}{asked}"));
            assert_eq!(answer.status, 403, "{other}: {answer:?}");
            assert_eq!(answer.header("access-control-allow-origin"), None, "{other}: {answer:?}");
        }
    }
    // a page that uses DNS rebinding is refused by its host name, whatever origin it claims
    let renamed = head("POST", CHAT, &from(APP)).replace("Host: localhost", "Host: evil.com");
    assert_eq!(served.send(renamed.as_bytes()).status, 403);
    // programs are not web pages
    let plain = ask(&served, "POST", CHAT, "");
    assert_eq!((plain.status, plain.header("access-control-allow-origin")), (200, None));
    assert_eq!(plain.header("vary"), Some("origin"), "a cache tells pages from programs");
}

/// A browser sends the preflight without the key; the request of the page needs it.
#[test]
fn h8_an_allowed_page_needs_the_key() {
    let served = served(&["secret".to_owned()]);
    let page = format!("Origin: {APP}\r\n");
    let preflight = format!("{page}Access-Control-Request-Method: POST\r\n");
    assert_eq!(ask(&served, "OPTIONS", CHAT, &preflight).status, 204);
    let refused = ask(&served, "POST", CHAT, &page);
    assert_eq!(
        (refused.status, refused.header("access-control-allow-origin")),
        (401, Some(APP)),
        "it can read why"
    );
    let key = format!("{page}Authorization: Bearer secret\r\n");
    assert_eq!(ask(&served, "POST", CHAT, &key).status, 200);
}

#[test]
fn a_refused_page_is_told_the_option() {
    let served = Served::new();
    let told = |headers: &str| -> Value { ask(&served, "GET", "/v1/models", headers).json() };
    let message = |told: Value| told["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(
        message(told("Origin: app://obsidian.md\r\n")),
        "browser requests are blocked; allow this one with --cors app://obsidian.md"
    );
    for unnamed in ["Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
        let message = message(told(unnamed));
        assert_eq!(message, "browser requests are blocked; allow one with --cors ORIGIN");
    }
}
