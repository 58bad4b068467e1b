"""Scenarios: the first message, versions, what is announced, credentials."""

from __future__ import annotations

from acpserver.validate.probe.stage import AUTH_REQUIRED, Stage, offers, scenario
from acpserver.validate.probe.verdict import advise, demand, need


@scenario("I2", "handshake/version-1")
def _version_1(stage: Stage) -> None:
    answer = stage.initialize(stage.start())
    demand(answer.result is not None, f"initialize with version 1 got {answer.told()}")
    version = (answer.result or {}).get("protocolVersion")
    demand(version == 1 and not isinstance(version, bool), f"asked for version 1, answered {version!r}")


def _other_version(stage: Stage, version: int) -> None:
    link = stage.start()
    answer = stage.initialize(link, version)
    demand(answer.result is not None, f"version {version} got {answer.told()}, not the latest known one")
    said = (answer.result or {}).get("protocolVersion")
    demand(isinstance(said, int) and said != version, f"asked for version {version}, answered {said!r}")


@scenario("I2", "handshake/version-0")
def _version_0(stage: Stage) -> None:
    _other_version(stage, 0)


@scenario("I2", "handshake/version-from-the-future")
def _version_future(stage: Stage) -> None:
    _other_version(stage, 65_535)


@scenario("I2", "handshake/version-only")
def _minimal(stage: Stage) -> None:
    link = stage.start()
    answer = link.request("initialize", {"protocolVersion": 1}, stage.options.start_timeout)
    demand(answer.result is not None, f"initialize with nothing but the version got {answer.told()}")


@scenario("I5", "handshake/agent-info", advice=True)
def _agent_info(stage: Stage) -> None:
    info = stage.shared().initialized.get("agentInfo")
    demand(isinstance(info, dict) and info.get("name"), "initialize was answered without agentInfo")


@scenario("I6", "handshake/odd-optional-fields")
def _odd_fields(stage: Stage) -> None:
    answer = stage.initialize(stage.start(), clientInfo=5)
    demand(answer.result is not None, f"a malformed clientInfo got {answer.told()}, not a default")


@scenario("J12", "handshake/unknown-fields")
def _unknown_fields(stage: Stage) -> None:
    link = stage.start()
    more = {"_meta": {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}, "fromTheFuture": [1]}
    answer = stage.initialize(link, **more)
    demand(answer.result is not None, f"unknown fields in initialize got {answer.told()}")


@scenario("I1", "handshake/session-before-initialize")
def _too_early(stage: Stage) -> None:
    link = stage.start()
    params = {"cwd": stage.folder(), "mcpServers": []}
    answer = link.request("session/new", params, stage.options.start_timeout)
    advise(answer.code == -32600, f"session/new before initialize got {answer.told()}, not error -32600")
    demand(stage.initialize(link).result is not None, "initialize did not work after that")


@scenario("I1", "handshake/pipelined")
def _pipelined(stage: Stage) -> None:
    link = stage.start()
    first = link.expect("initialize", "a")
    second = link.expect("session/new", "b")
    new = {"cwd": stage.folder(), "mcpServers": []}
    link.send({"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": {"protocolVersion": 1}})
    link.send({"jsonrpc": "2.0", "id": "b", "method": "session/new", "params": new})
    link.finish(first, stage.options.start_timeout)
    link.finish(second, stage.options.start_timeout)
    demand(first.result is not None, f"initialize got {first.told()}")
    expected = second.result is not None or second.code == AUTH_REQUIRED
    if not expected:
        stage.session(link)  # skips where sessions do not work at all
    demand(expected, f"session/new right behind initialize got {second.told()}")


@scenario("A1", "handshake/credentials")
def _credentials(stage: Stage) -> None:
    link = stage.shared()
    answer = link.request(
        "session/new", {"cwd": stage.folder(), "mcpServers": []}, stage.options.start_timeout
    )
    if answer.result is None:
        demand(answer.code == AUTH_REQUIRED, f"session/new got {answer.told()}, not error -32000")
        demand(link.initialized.get("authMethods"), "credentials are needed, but there are no authMethods")


@scenario("A3", "handshake/unknown-auth-method")
def _unknown_auth(stage: Stage) -> None:
    link = stage.shared()
    answer = link.request("authenticate", {"methodId": "no-such-method"})
    advise(
        answer.code is not None or link.initialized.get("authMethods"),
        "authenticate succeeds with any method",
    )
    demand(answer.code is not None, "authenticate with an unknown method succeeded")
    advise(answer.code in (-32602, -32601), f"an unknown auth method got {answer.told()}, not -32602")


@scenario("A4", "handshake/logout")
def _logout(stage: Stage) -> None:
    link = stage.fresh()
    need(offers(link, "auth", "logout"), "auth.logout is not announced")
    need(not stage.options.own_home, "with --own-home it would log you out")
    stage.session(link)
    answer = link.request("logout", {})
    demand(answer.result is not None, f"logout got {answer.told()}")
    new = link.request("session/new", {"cwd": stage.folder(), "mcpServers": []})
    demand(new.code == AUTH_REQUIRED, f"session/new after logout got {new.told()}, not error -32000")
