from __future__ import annotations

import socket

import pytest

from minisgl.server.listener import address_of, listen


def test_port_0_is_a_free_one_and_the_address_says_which() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert address_of(listener) == f"http://127.0.0.1:{port}"
        with socket.create_connection(("127.0.0.1", port)):
            pass


def test_a_name_is_resolved_and_every_address_is_shown_as_one_that_can_be_opened() -> None:
    with listen("localhost", 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
    with listen("0.0.0.0", 0) as listener:
        assert address_of(listener).startswith("http://127.0.0.1:")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_ipv6_has_brackets_and_every_ipv6_address_takes_ipv4_too() -> None:
    with listen("::1", 0) as listener:
        assert address_of(listener) == f"http://[::1]:{listener.getsockname()[1]}"
    with listen("::", 0) as listener, socket.create_connection(("127.0.0.1", listener.getsockname()[1])):
        assert address_of(listener).startswith("http://127.0.0.1:")


def test_a_port_in_use_and_a_foreign_address_are_named() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} on 127.0.0.1 is in use"):
            listen("127.0.0.1", port)
    with pytest.raises(ValueError, match=r"cannot listen on 192\.0\.2\.1, port 8000"):
        listen("192.0.2.1", 8000)


@pytest.mark.parametrize("host", ["é" * 70, "x\udcff", "a..b"])
def test_what_no_host_can_be_called_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match=r"cannot listen on '.*': no host"):
        listen(host, 0)
