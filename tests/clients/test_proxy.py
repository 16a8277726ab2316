"""nginx before a server that is silent for three times as long as nginx waits; openai-python and httpx behind it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai
import pytest
from support.asgi import Api, ids_of
from support.live_server import free_port
from support.scripted_link import Item
from support.tiny_model import EOS

from minisgl.message import UserMsg
from minisgl.server.config import ServerConfig
from minisgl.server.http import HttpServer
from minisgl.server.listener import listen

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
pytestmark = [pytest.mark.clients, pytest.mark.skipif(NGINX is None, reason="no nginx here")]
READ_TIMEOUT_S = 1
CONFIG = """
daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://127.0.0.1:{server}; proxy_http_version 1.1; proxy_read_timeout {timeout}s; }}
  }}
}}
"""


def late(request: UserMsg) -> Iterable[Item]:
    """Silent before the first token, and in the middle."""
    for text in ("Hel", "lo"):
        yield 3.0 * READ_TIMEOUT_S
        yield from ids_of(text)
    yield EOS


@contextmanager
def behind_nginx(interval: float, folder: Path) -> Iterator[str]:
    """The proxy's address."""
    port = free_port()
    with listen("127.0.0.1", 0) as listener:
        api = Api(late, config=ServerConfig(stream_ping_interval=interval))
        server = HttpServer(api.app, listener)
        thread = threading.Thread(target=lambda: asyncio.run(serve(server)))
        thread.start()
        file = folder / "nginx.conf"
        file.write_text(
            CONFIG.format(folder=folder, port=port, server=listener.getsockname()[1], timeout=READ_TIMEOUT_S)
        )
        nginx = subprocess.Popen([NGINX or "nginx", "-c", file, "-p", folder])
        try:
            wait_for(f"http://127.0.0.1:{port}/health")
            yield f"http://127.0.0.1:{port}"
        finally:
            nginx.terminate()
            nginx.wait(10)
            server.should_exit = True
            thread.join(30)


async def serve(server: HttpServer) -> None:
    await server.start()


def wait_for(address: str) -> None:
    for _ in range(200):
        try:
            if httpx.get(address).status_code == 200:
                return
        except httpx.TransportError:
            threading.Event().wait(0.05)
    raise AssertionError("nginx does not answer")


def test_a_stream_lives_through_silence_behind_nginx(tmp_path: Path) -> None:
    with behind_nginx(READ_TIMEOUT_S / 4, tmp_path) as url:
        with (
            openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client,
            client.completions.create(model="", prompt="Hi", stream=True, extra_body={"explain": True}) as stream,
        ):
            assert "".join(chunk.choices[0].text for chunk in stream) == "Hello"
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=30) as response:
            lines = [line for line in response.iter_lines() if line]
        assert lines.count(": ping") >= 2
        assert lines[-1] == "data: [DONE]"


def test_without_comments_nginx_hangs_up(tmp_path: Path) -> None:
    """So the test above can fail."""
    with behind_nginx(0, tmp_path) as url:
        body = {"prompt": "Hi", "stream": True}
        assert httpx.post(f"{url}/v1/completions", json=body, timeout=30).status_code == 504
