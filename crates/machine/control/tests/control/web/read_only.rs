// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tokens that may only look.

use colony_control_api::api::{DrainRequest, Holder, JobRequest, RightsRequest, Threshold};
use colony_control_api::{Client, ClientError, Server, Trust};
use serde_json::{Value, json};

use super::stub::Daemon;

/// A client on the network with this token.
fn far(daemon: &Daemon, token: &str) -> Client {
    let network = daemon.client.token(false).expect("a token").network.expect("open");
    let file = daemon.folder.path().join("own-token");
    colony_node::file::replace(&file, token.as_bytes()).expect("written");
    let trust = Trust::fingerprint(&network.fingerprint).expect("a fingerprint");
    Client::far(Server::new(&network.url, &file, &trust).expect("a server")).expect("a client")
}

fn job(daemon: &Daemon) -> JobRequest {
    let partition = &daemon.client.machine().expect("a machine").partitions[0].name;
    let job = json!({ "partition": partition, "executable": "/bin/x", "directory": "/", "environment": { "A": "secret" } });
    serde_json::from_value(job).expect("right")
}

#[test]
fn a_read_only_token_sees_the_machine_and_changes_nothing() {
    let daemon = Daemon::ready("2x2x2", 8);
    daemon.listen();
    let (request, id) = (job(&daemon), daemon.client.submit(&job(&daemon)).expect("added").id);
    let token = daemon.client.read_only_token(false).expect("a token");
    assert!(token.read_only && token.token != daemon.token());
    let looks = far(&daemon, &token.token);
    assert!(
        looks.caller().expect("known").read_only
            && !far(&daemon, &daemon.token()).caller().expect("known").read_only
    );
    let machine = looks.machine().expect("seen");
    let name = machine.partitions[0].name.clone();
    assert_eq!(looks.nodes(&name).expect("seen").len(), 8);
    assert!(
        looks.jobs(9).is_ok()
            && looks.ras(&[]).is_ok()
            && looks.drains().is_ok()
            && looks.thresholds().is_ok()
    );
    assert!(looks.job(id).expect("seen").request.environment.is_empty(), "secrets stay with their owner");
    assert!(!daemon.client.job(id).expect("seen").request.environment.is_empty());
    let node = "R00-M0-N00-J03".to_owned();
    let rights = RightsRequest { holder: Holder::User("root".to_owned()), may_run: true };
    let drain = DrainRequest { location: node.clone(), reason: "x".to_owned() };
    let threshold = Threshold { code: "node-died".to_owned(), events: 1, within_s: 60.0 };
    let refused: [Result<(), ClientError>; 12] = [
        looks.submit(&request).map(drop),
        looks.signal(id, 15),
        looks.send_input(id, 0, b"x", true).map(drop),
        looks.boot(&name).map(drop),
        looks.free(&name).map(drop),
        looks.remove_partition(&name),
        looks.set_rights(&name, &rights).map(drop),
        looks.drain(&drain).map(drop),
        looks.undrain(&node).map(drop),
        looks.set_threshold(&threshold).map(drop),
        looks.down(),
        // the output of a job may be as secret as its environment
        looks.follow(id, std::io::sink(), std::io::sink()),
    ];
    for (n, result) in refused.into_iter().enumerate() {
        let text = result.expect_err("refused").to_string();
        assert!(text.contains("this token may only look"), "{n}: {text}");
    }
    let after = daemon.client.machine().expect("as before");
    assert_eq!(
        (after.partitions[0].state, after.jobs.len(), after.drains.len()),
        (machine.partitions[0].state, 1, 0)
    );
    // each token is replaced by itself
    let newer = daemon.client.read_only_token(true).expect("a token").token;
    assert!(looks.machine().is_err() && far(&daemon, &newer).machine().is_ok());
    assert!(far(&daemon, &daemon.token()).machine().is_ok());
    daemon.client.revoke_token().expect("revoked");
    assert!(far(&daemon, &newer).machine().is_err());
}

/// Every path and method of the interface, also those that are added later.
#[test]
fn whatever_is_described_and_changes_something_is_refused() {
    let daemon = Daemon::ready("2x2x2", 8);
    let network = daemon.listen();
    let token = daemon.client.read_only_token(false).expect("a token").token;
    let head = |method: &str, path: &str| {
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nauthorization: Bearer {token}\r\ncontent-length: 0\r\n\r\n",
            network.listen
        );
        super::network::raw(&network, text.as_bytes())
    };
    let answer = head("GET", "/v1/openapi.json");
    let body = answer.split_once("\r\n\r\n").expect("a head").1;
    let described: Value = serde_json::from_str(body).expect("JSON");
    let mut changes = 0;
    for (path, methods) in described["paths"].as_object().expect("paths") {
        let path = path
            .replace("{id}", "1")
            .replace("{name}", "A")
            .replace("{number}", "0")
            .replace("{location}", "R00");
        let changing = methods.as_object().expect("methods").keys().filter(|method| *method != "get");
        for method in changing {
            let answer = head(&method.to_uppercase(), &path);
            assert!(
                answer.starts_with("HTTP/1.1 403") && answer.contains("may only look"),
                "{method} {path}: {answer}"
            );
            changes += 1;
        }
    }
    assert!(changes >= 12, "{changes}");
}
