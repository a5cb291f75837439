"""Routes, and the document that is written from them."""

from __future__ import annotations

from collections.abc import Callable

from support.running_server import Running


def test_the_document_says_what_routes_take_and_answer(fake: Callable[..., Running]) -> None:
    document = fake().client.get("/openapi.json").json()
    operations = {
        (method, path): said for path, methods in document["paths"].items() for method, said in methods.items()
    }
    assert {path for _, path in operations} >= {"/v1/completions", "/v1/models/{name}", "/v1/kv/events", "/metrics"}
    assert not {"/", "/page/{name}", "/openapi.json"} & document["paths"].keys()
    assert len({said["operationId"] for said in operations.values()}) == len(operations)
    for (method, path), said in operations.items():
        assert ("requestBody" in said) == (method == "post"), path
        assert said["summary"] and {"200", "400", "401", "500"} <= said["responses"].keys()
    body = operations["post", "/v1/completions"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"prompt", "max_tokens", "stream"} <= body["properties"].keys()
    assert [each["name"] for each in operations["get", "/v1/models/{name}"]["parameters"]] == ["name"]


def test_a_route_takes_its_own_method_only(fake: Callable[..., Running]) -> None:
    client = fake().client
    for method, path in (("HEAD", "/v1/kv/events"), ("POST", "/v1/models"), ("GET", "/v1/completions")):
        answer = client.request(method, path)
        assert answer.status_code == 405 and answer.headers["allow"] in ("GET", "POST")
