"""Listeners: names, protocols, and which of them serve whom."""

import pytest

from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.security import SecurityProtocol
from kraftlog.server.config import NodeConfig
from kraftlog.server.listeners import MAX_LISTENERS, Listener


def config(**pairs: str) -> NodeConfig:
    """Keys with `_` for dots."""
    return NodeConfig.from_properties({key.replace("_", "."): value for key, value in pairs.items()})


def names(listeners: tuple[Listener, ...]) -> list[str]:
    return [listener.name for listener in listeners]


def test_one_listener_serves_all() -> None:
    """The quick start: one port for clients, brokers and the quorum."""
    for more in ({}, {"controller_listener_names": "PLAINTEXT"}):
        plan = config(listeners="PLAINTEXT://:9092", **more).listener_plan
        assert names(plan.broker_listeners) == names(plan.controller_listeners) == ["PLAINTEXT"]
        assert plan.controller_name == plan.inter_broker.name == "PLAINTEXT"


def test_a_listener_for_each() -> None:
    """Kafka's usual layout: names of the user's choice, in any case, with the protocol of each in the map."""
    plan = config(
        listeners="external://0.0.0.0:9094, INTERNAL://10.0.0.1:9092, controller://10.0.0.1:9093",
        advertised_listeners="EXTERNAL://kraftlog.example:9094",
        listener_security_protocol_map="external:ssl,INTERNAL:PLAINTEXT,CONTROLLER:SSL",
        controller_listener_names="CONTROLLER",
        inter_broker_listener_name="internal",
    ).listener_plan
    assert names(plan.broker_listeners) == ["EXTERNAL", "INTERNAL"]
    assert names(plan.controller_listeners) == ["CONTROLLER"]
    assert plan.inter_broker == Listener("INTERNAL", "10.0.0.1", 9092)
    assert plan.controller_name == "CONTROLLER"
    assert [plan.protocol(name) for name in ("EXTERNAL", "INTERNAL", "CONTROLLER")] == ["SSL", "PLAINTEXT", "SSL"]
    assert plan.advertised_of("EXTERNAL") == Listener("EXTERNAL", "kraftlog.example", 9094)
    assert plan.advertised_of("INTERNAL") is None


def test_brokers_use_the_first_listener_for_clients_unless_told() -> None:
    plan = config(
        listeners="CONTROLLER://:1,PLAINTEXT://:2,SSL://:3",
        controller_listener_names="CONTROLLER",
        listener_security_protocol_map="CONTROLLER:PLAINTEXT",
    ).listener_plan
    assert plan.inter_broker.name == "PLAINTEXT"
    assert plan.protocol("SSL") is SecurityProtocol.SSL


def test_nodes_of_one_role() -> None:
    """A controller serves no clients; a broker opens no listener for the quorum, but knows how to dial one."""
    plan = config(
        process_roles="controller", listeners="CONTROLLER://:9093", controller_listener_names="CONTROLLER"
    ).listener_plan
    assert (plan.broker_listeners, names(plan.controller_listeners)) == ((), ["CONTROLLER"])
    assert plan.protocol("CONTROLLER") is SecurityProtocol.PLAINTEXT  # as in Kafka, while nothing is secured
    plan = config(
        process_roles="broker",
        controller_quorum_bootstrap_servers="c:9093",
        listeners="SSL://:9092",
        controller_listener_names="CONTROLLER,OLD",
        listener_security_protocol_map="CONTROLLER:SSL,OLD:PLAINTEXT",
    ).listener_plan
    assert (names(plan.broker_listeners), plan.controller_listeners) == (["SSL"], ())
    assert plan.controller_name == "CONTROLLER"
    assert plan.protocol(plan.controller_name) is SecurityProtocol.SSL


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (
            {"listeners": "CONTROLLER://:1,SSL://:2", "controller_listener_names": "CONTROLLER"},
            "CONTROLLER has no protocol: set listener.security.protocol.map=CONTROLLER:SSL",
        ),
        (
            {"process_roles": "broker", "listeners": "A://:1,B://:2", "controller_listener_names": "B"},
            "a node with process.roles=broker opens none",
        ),
        (
            {"listeners": "PLAINTEXT://:1,SSL://:2", "controller_listener_names": "PLAINTEXT,SSL"},
            "none is left for clients",
        ),
        (
            {
                "listeners": "PLAINTEXT://:1,SSL://:2",
                "controller_listener_names": "SSL",
                "inter_broker_listener_name": "SSL",
            },
            "inter.broker.listener.name=SSL is a controller's listener",
        ),
        ({"listeners": ",".join(f"L{n}://:{n + 1}" for n in range(MAX_LISTENERS + 1))}, "100 at most"),
        ({"listeners": "PLAINTEXT://h:1,SSL://h:1"}, "has address h:1 twice"),
        ({"listeners": "SSL://h:1,ssl://h:2"}, "has name SSL twice"),
    ],
)
def test_keys_that_do_not_fit_together(pairs: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        config(**pairs)


def test_ports_of_the_kernels_choice_may_be_many() -> None:
    assert len(config(listeners="PLAINTEXT://h:0,SSL://h:0").listeners) == 2
