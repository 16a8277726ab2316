"""The tree of the prefix cache over HTTP: what is told, to whom, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.asgi import Api
from support.scripted_link import tokens

from minisgl.core.picture import NodeUse, TreePath, TreePicture
from minisgl.message import NodeMsg, PathMsg, TreeMsg
from minisgl.server.config import ServerConfig
from minisgl.server.records import RequestRecord

TREE = "/inspect/tree"
SHOWING = ServerConfig(ui_show_text=True)


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def picture(head: str = "") -> TreePicture:
    """A root, a node below it, and another namespace's root, whose child is folded."""
    rows = ids(-1, 0, 9, 3, 0, 0, 0, 0, 0), ids(0, 4, 9, 2, 1, 5, 0, 1, 5), ids(-1, 0, 2, 2, 0, 0, 3, 1, 2)
    heads = tokens(head)
    return TreePicture(
        clock=20,
        page_size=2,
        num_nodes=3,
        num_tokens=11,
        num_namespaces=2,
        above=[],
        ids=[1, 7, 4],
        rows=np.concatenate(rows),
        head_lens=ids(0, len(heads), 0) if head else ids(),
        heads=ids(*heads),
        salts=["", "team"] if head else [],
    )


def use() -> NodeUse:
    return NodeUse(9, 4, 1, 5, [11, 12], [13], ids(*tokens("<end>\n")), ["prefill", "decode"])


def test_the_tree_is_told_with_what_is_folded_and_without_any_text() -> None:
    api = Api()
    api.link.picture = picture()
    answer = api.get(TREE).json()
    nodes = answer.pop("nodes")
    assert answer == {
        "clock": 20, "page_size": 2, "num_nodes": 3, "num_tokens": 11, "num_namespaces": 2, "root": 1, "above": [],
    }  # fmt: skip
    assert [(node["id"], node["parent"], node["namespace"]) for node in nodes] == [
        (1, None, 0),
        (7, 1, 0),
        (4, None, 3),
    ]
    assert nodes[1] == {
        "id": 7, "parent": 1, "tokens": 4, "subtree_tokens": 9, "subtree_nodes": 2, "locks": 1, "age": 5,
        "namespace": 0, "folded_nodes": 1, "folded_tokens": 5,
    }  # fmt: skip
    (asked,) = api.link.asked
    assert isinstance(asked, TreeMsg)
    assert (asked.node, asked.max_nodes, asked.head_len) == (None, 1500, 0)


def test_texts_and_salts_are_told_with_ui_show_text_whatever_is_in_them() -> None:
    text = '</script>"\x1b[31m\u2028é🦀'
    api = Api(config=SHOWING)
    api.link.picture = picture(text)
    answer = api.get(f"{TREE}?node=7&max_nodes=3").json()
    assert [node["text"] for node in answer["nodes"]] == ["", text, ""]
    assert answer["salts"] == {"1": "", "4": "team"}
    (asked,) = api.link.asked
    assert isinstance(asked, TreeMsg)
    assert (asked.node, asked.max_nodes) == (7, 3)
    assert asked.head_len > 0


def test_a_node_is_told_with_who_uses_it() -> None:
    api = Api()
    api.link.node_use = use()
    api.state.book.open(RequestRecord("req-1", uids=(12, 13)))
    assert api.get(f"{TREE}/7").json() == {
        "id": 7,
        "path_tokens": 9,
        "tokens": 4,
        "locks": 1,
        "age": 5,
        "users": [
            {"uid": 11, "request_id": None, "state": "prefill"},
            {"uid": 12, "request_id": "req-1", "state": "decode"},
        ],
        "waiting": [{"uid": 13, "request_id": "req-1", "state": "waiting"}],
    }
    (asked,) = api.link.asked
    assert isinstance(asked, NodeMsg)
    assert (asked.node, asked.tail_len) == (7, 0)


def test_the_end_of_a_nodes_path_is_told_with_ui_show_text() -> None:
    api = Api(config=SHOWING)
    api.link.node_use = use()
    assert api.get(f"{TREE}/7").json()["text"] == "<end>\n"


@pytest.mark.parametrize(
    "path", ["?node=7", "/7", "/0", "/x", "/7x", "/-1", "/99999999999999999999999", "/%F0%9F%A6%80"]
)
def test_a_node_that_is_not_there_is_404(path: str) -> None:
    response = Api().get(TREE + path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "node_not_found"


@pytest.mark.parametrize(
    "query",
    ["max_nodes=0", "max_nodes=5001", "max_nodes=x", "max_nodes=", "max_nodes=1&max_nodes=2", "node=0", "node=-1"],
)
def test_a_wrong_number_is_400_and_named(query: str) -> None:
    api = Api()
    response = api.get(f"{TREE}?{query}")
    assert response.status_code == 400
    assert response.json()["error"]["param"] == query.partition("=")[0]
    assert not api.link.asked


@pytest.mark.parametrize("prompt", [{"prompt": "abc"}, {"input_ids": [1, 2, 3]}])
def test_a_prompt_is_found(prompt: dict[str, Any]) -> None:
    api = Api()
    api.link.path = TreePath([1, 7], 2)
    answer = api.whole("/inspect/path", **prompt, cache_salt="s")
    assert answer == {"prompt_tokens": 3, "matched_tokens": 2, "nodes": [1, 7]}
    (asked,) = api.link.asked
    assert isinstance(asked, PathMsg)
    assert asked.cache_salt == "s"


def test_a_prompt_that_is_none_is_refused() -> None:
    api = Api()
    assert api.post("/inspect/path", input_ids=[10**6]).status_code == 400
    assert api.post("/inspect/path").status_code == 400


def test_nothing_is_told_while_the_model_loads_or_without_the_key() -> None:
    for path in (TREE, f"{TREE}/1"):
        assert Api(engine=None).get(path).status_code == 503
        assert Api(config=ServerConfig(api_key="k")).get(path).status_code == 401
