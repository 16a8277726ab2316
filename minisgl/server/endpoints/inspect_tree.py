"""GET /inspect/tree, GET /inspect/tree/{id} and POST /inspect/path."""

from __future__ import annotations

from functools import partial

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from minisgl.core.picture import COLUMNS, NodeUse, TreePicture
from minisgl.llm.text_threads import LONG, in_thread
from minisgl.server.endpoints.cache import ask_about_prompt
from minisgl.server.endpoints.common import (
    ANSWER_TIMEOUT_S,
    engine_answers,
    json_response,
    read_query,
    ready_state,
    request_ids,
)
from minisgl.server.errors import ApiError
from minisgl.server.schema.api import MAX_NODES, NODE
from minisgl.server.schema.tree import NodeUser, PromptPath, Tree, TreeNode, TreeNodeUse
from minisgl.server.state import ServerState
from minisgl.server.stream.events import encode
from minisgl.tokenizer import Tokenizer

HEAD_LEN, TAIL_LEN = 16, 64  # tokens whose text is shown


async def show_tree(request: Request) -> Response:
    """The prefix cache's trees, folded; or what is below a node. 404 if it is gone."""
    state = ready_state(request)
    node, max_nodes = read_query(request, NODE), read_query(request, MAX_NODES) or 1
    async with engine_answers(ANSWER_TIMEOUT_S):
        tree = await state.trees.ask(("tree", node, max_nodes), partial(_tree, state, node, max_nodes))
    if tree is None:
        raise _gone(node)
    return Response(tree, media_type="application/json")


async def show_node(request: Request) -> Response:
    """One node and who uses it. 404 if it is gone."""
    state = ready_state(request)
    text = request.path_params["id"]
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise _gone(text)
    node = int(text)
    async with engine_answers(ANSWER_TIMEOUT_S):
        use = await state.trees.ask(("node", node), partial(_node, state, node))
    if use is None:
        raise _gone(node)
    return json_response(use)


async def _tree(state: ServerState, node: int | None, max_nodes: int) -> bytes | None:
    engine, shows_text = state.ready_engine(), state.config.ui_show_text
    picture = await engine.tree(node, max_nodes, HEAD_LEN if shows_text else 0)
    if picture is None:
        return None
    return await in_thread(LONG, encode_tree, picture, engine.tokenizer if shows_text else None)


async def _node(state: ServerState, node: int) -> TreeNodeUse | None:
    engine, shows_text = state.ready_engine(), state.config.ui_show_text
    use = await engine.node_use(node, TAIL_LEN if shows_text else 0)
    if use is None:
        return None
    shown = _use(node, use, request_ids(state.book))
    if shows_text:
        shown.text = (await in_thread(TAIL_LEN, _texts, [use.tail.tolist()], engine.tokenizer))[0]
    return shown


async def find_prompt(request: Request) -> Response:
    """Where a prompt lies in the tree. Nothing is kept longer for it."""
    engine = ready_state(request).ready_engine()
    place = await ask_about_prompt(request, engine.place, engine.place_chat)
    return json_response(PromptPath(place.prompt_tokens, place.path.matched_tokens, place.path.ids))


def encode_tree(picture: TreePicture, tokenizer: Tokenizer | None) -> bytes:
    """As JSON. tokenizer: to show texts with."""
    ids, columns = picture.ids, picture.columns()
    parents = [ids[row] if row >= 0 else None for row in columns.pop("parent")]
    rows = zip(*(columns[name] for name in COLUMNS[1:]), strict=True)
    nodes = [
        TreeNode(
            id=number,
            parent=parent,
            tokens=tokens,
            subtree_tokens=subtree_tokens,
            subtree_nodes=subtree_nodes,
            locks=locks,
            age=age,
            namespace=namespace,
            folded_nodes=folded,
            folded_tokens=folded_tokens,
        )
        for number, parent, (
            tokens, subtree_tokens, subtree_nodes, locks, age, namespace, folded, folded_tokens,
        ) in zip(ids, parents, rows, strict=True)
    ]  # fmt: skip
    tree = Tree(
        clock=picture.clock,
        page_size=picture.page_size,
        num_nodes=picture.num_nodes,
        num_tokens=picture.num_tokens,
        num_namespaces=picture.num_namespaces,
        root=ids[0],
        above=picture.above,
        nodes=nodes,
    )
    if tokenizer is not None:
        _add_texts(tree, picture, tokenizer)
    return encode(tree)


def _add_texts(tree: Tree, picture: TreePicture, tokenizer: Tokenizer) -> None:
    ends = np.cumsum(picture.head_lens)[:-1]
    heads = [head.tolist() for head in np.split(picture.heads, ends)]
    for node, text in zip(tree.nodes, _texts(heads, tokenizer), strict=True):
        node.text = text
    roots = (node.id for node in tree.nodes if node.parent is None and not node.tokens)
    tree.salts = {str(root): salt for root, salt in zip(roots, picture.salts, strict=True)}


def _texts(runs: list[list[int]], tokenizer: Tokenizer) -> list[str]:
    """All at once: that lets go of the interpreter lock."""
    texts: list[str] = tokenizer.backend.decode_batch(runs, skip_special_tokens=False)
    return texts


def _use(node: int, use: NodeUse, ids: dict[int, str]) -> TreeNodeUse:
    """ids: of requests, by uid."""
    users = zip(use.users, use.states, strict=True)
    return TreeNodeUse(
        id=node,
        path_tokens=use.path_tokens,
        tokens=use.tokens,
        locks=use.locks,
        age=use.age,
        users=[NodeUser(uid=uid, request_id=ids.get(uid), state=state) for uid, state in users],
        waiting=[NodeUser(uid=uid, request_id=ids.get(uid), state="waiting") for uid in use.waiting],
    )


def _gone(node: int | str | None) -> ApiError:
    return ApiError(404, f"there is no node {node}; it may have been evicted", param="node", code="node_not_found")
