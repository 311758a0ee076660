//! Requests to model servers over TCP ports and Unix domain sockets.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use hub::{AskError, ask_server};

/// Answers one request with `answer`, and returns the request.
fn answers(mut stream: impl Read + Write, answer: &str) -> String {
    let mut asked = vec![0; 4096];
    let n = stream.read(&mut asked).unwrap();
    stream.write_all(answer.as_bytes()).unwrap();
    String::from_utf8(asked[..n].to_vec()).unwrap()
}

#[test]
fn a_socket_is_asked_as_a_port_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s");
    let url = format!("unix:{}", file.display());
    assert!(matches!(ask_server(&url, "/x", None), Err(AskError::NotRunning { .. })));
    let listener = UnixListener::bind(&file).unwrap();
    for (answer, key, status) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"a\": [1]}", Some("k"), 200),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{\"a\"\r\n6\r\n: [1]}\r\n0\r\n\r\n",
            None,
            200,
        ),
        ("HTTP/1.1 401 Unauthorized\r\n\r\n", None, 401),
        ("HTTP/1.1 503 Busy\r\n\r\n", None, 503),
        ("SSH-2.0\r\n\r\n", None, 0),
    ] {
        std::thread::scope(|scope| {
            let serves = scope.spawn(|| answers(listener.accept().unwrap().0, answer));
            let told = ask_server(&url, "/api/ps", key);
            let asked = serves.join().unwrap();
            assert!(asked.starts_with("GET /api/ps HTTP/1.1\r\nHost: localhost\r\n"), "{asked}");
            assert_eq!(asked.contains("Authorization: Bearer k\r\n"), key.is_some(), "{asked}");
            match (status, told) {
                (200, told) => assert_eq!(told.unwrap()["a"][0], 1),
                (401, Err(AskError::Unauthorized { with_key: false, .. })) => {}
                (_, Err(AskError::Failed { url: at, .. })) if status != 401 => {
                    assert_eq!(at, url)
                }
                (_, other) => panic!("{answer}: {other:?}"),
            }
        });
    }
    let wrong = ask_server(&url, "/x", Some("a\r\nb")).unwrap_err();
    assert!(wrong.to_string().contains("no header can have"), "{wrong}");
    drop(listener);
    assert!(matches!(ask_server(&url, "/x", None), Err(AskError::NotRunning { .. })));
}

/// Chunks of a body with and without extensions and trailers; one that is incomplete or has an invalid size is no answer.
#[test]
fn bodies_come_whole_or_in_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s");
    let url = format!("unix:{}", file.display());
    let listener = UnixListener::bind(&file).unwrap();
    for (sent, want) in [
        ("2\r\n{}\r\n0\r\n\r\n", Some("{}")),
        (
            "5;a=b\r\n{\"a\":\r\n00A\r\n[1,\r\n2,3]}\r\n0\r\nTrailer: x\r\n\r\n",
            Some("{\"a\":[1,2,3]}"),
        ),
        // no body is no JSON
        ("0\r\n\r\n", None),
        ("2\r\n{}\r\n", None),
        ("5\r\n{}\r\n0\r\n\r\n", None),
        ("2\r\n{}x\r\n0\r\n\r\n", None),
        ("-1\r\n{}\r\n0\r\n\r\n", None),
        ("ffffffffffffffff\r\n{}\r\n0\r\n\r\n", None),
        ("fffffffffffffffff\r\n{}\r\n0\r\n\r\n", None),
        ("{}", None),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n{sent}");
        let told = std::thread::scope(|scope| {
            let serves = scope.spawn(|| answers(listener.accept().unwrap().0, &answer));
            let told = ask_server(&url, "/x", None);
            serves.join().unwrap();
            told
        });
        assert_eq!(told.ok().map(|value| value.to_string()).as_deref(), want, "{sent:?}");
    }
}

#[test]
fn a_server_that_is_not_there_is_told_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
    std::thread::scope(|scope| {
        let serves = scope.spawn(|| answers(listener.accept().unwrap().0, answer));
        // an address without a scheme is accepted, too
        let told = ask_server(&format!("127.0.0.1:{port}/"), "/api/ps", Some("k"));
        assert!(matches!(told, Err(AskError::Unauthorized { with_key: true, .. })), "{told:?}");
        serves.join().unwrap();
    });
    drop(listener);
    let told = ask_server(&format!("http://127.0.0.1:{port}"), "/api/ps", None).unwrap_err();
    assert_eq!(told.to_string(), format!("no server runs at http://127.0.0.1:{port}"));
    for wrong in ["ftp://x", "http://", "://x"] {
        let told = ask_server(wrong, "/x", None);
        assert!(matches!(told, Err(AskError::Address { .. })), "{wrong}: {told:?}");
    }
}
