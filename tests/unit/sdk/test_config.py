"""The clients' configuration: documented, typed, and the same everywhere."""

import ast
import dataclasses
import inspect
import typing

import pytest

from kraftlog.proto.errors import InvalidConfigError
from kraftlog.sdk import config, options

CLASSES = [
    (config.ProducerConfig, options.ProducerOptions),
    (config.ConsumerConfig, options.ConsumerOptions),
    (config.AdminConfig, options.AdminOptions),
]
PATHS = {"ssl_cafile", "ssl_certfile", "ssl_keyfile"}
WIDER = {"bootstrap_servers", "acks", "partition_assignment_strategy", *PATHS}  # keywords take more than what is kept


@pytest.mark.parametrize(("kept", "typed"), CLASSES)
def test_keyword_options_are_those_of_the_configuration(kept: type, typed: type) -> None:
    """What a type checker knows is what the class checks: same names, same types."""
    fields = typing.get_type_hints(kept)
    fields.pop("where")
    keywords = typing.get_type_hints(typed)
    assert set(keywords) == set(fields)
    assert {k: v for k, v in keywords.items() if k not in WIDER} == {k: v for k, v in fields.items() if k not in WIDER}


@pytest.mark.parametrize("name", ["ClientConfig", "ProducerConfig", "ConsumerConfig"])
def test_every_field_says_what_it_means(name: str) -> None:
    """STYLE 26: a docstring after each field."""
    (tree,) = ast.parse(inspect.getsource(getattr(config, name))).body
    assert isinstance(tree, ast.ClassDef)
    fields = {field.name for field in dataclasses.fields(getattr(config, name))}
    for node, following in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in fields:
            assert isinstance(following, ast.Expr), node.target.id
            assert isinstance(following.value, ast.Constant), node.target.id


def test_servers_are_text_or_a_sequence() -> None:
    assert config.parse_servers("a:1, b:2 ,") == ("a:1", "b:2")
    assert config.parse_servers(["a:1"]) == ("a:1",)
    for wrong in ("", [], "a", "a:b", ":1", "a:0", "a:70000"):
        with pytest.raises(InvalidConfigError):
            config.parse_servers(wrong)


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("PT1H", 3_600_000), ("P1DT1M", 86_460_000), ("PT0.5S", 500), ("P2D", 172_800_000)]
)
def test_durations(text: str, milliseconds: int) -> None:
    assert config.duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "PT1", "P1H", "PT-1S"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidConfigError, match="is not a duration such as PT1H"):
        config.duration_ms(text)


def test_values_are_checked_for_their_type() -> None:
    for options_, text in [
        ({"linger_ms": None}, "linger_ms"),
        ({"linger_ms": True}, "linger_ms"),
        ({"linger_ms": 1.5}, "linger_ms"),
        ({"enable_idempotence": 1}, "enable_idempotence"),
    ]:
        with pytest.raises(InvalidConfigError, match=text):
            config.ProducerConfig.of(options_)
    assert config.ProducerConfig.of({"linger.ms": 5.0, "request.timeout.ms": "7"}).request_timeout_ms == 7
