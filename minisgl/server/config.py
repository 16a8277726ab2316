"""What the HTTP server is built from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minisgl.utils.options import check_choices, check_minimum, option


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """A wrong value is a ValueError here. Times are in seconds."""

    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 or :: is every one")
    port: int = option(8000, "port to listen on; 0 takes a free one", minimum=0)
    api_key: str | None = option(
        None,
        "what clients must send as `Authorization: Bearer KEY`; MINISGL_API_KEY says it unseen in the process list "
        "(default: none is asked for)",
    )
    served_model_name: str | None = option(None, "the model's name in the API (default: as in --model)")
    generation_config: str = option(
        "auto",
        "how to sample where a request does not say: as the model's files advise, or by OpenAI's defaults",
        choices=("auto", "none"),
    )
    max_queued: int = option(1024, "sequences that may wait beside those that run; beyond, 429", minimum=0)
    request_timeout: float | None = option(
        None, "seconds after which a request that still generates is aborted (default: never)"
    )
    stream_ping_interval: float = option(
        10.0,
        "seconds without a byte after which a stream gets a comment line, so that no proxy takes it for dead; 0: none",
    )
    drain_timeout: float = option(30.0, "seconds that open requests get to end after SIGTERM")
    max_body_bytes: int = option(16 * 2**20, "largest request body; beyond, 413", minimum=1)
    cors_origins: Sequence[str] = option(
        (), "an origin whose pages may call the server, * for all (default: none)", flag="cors-origin"
    )
    allowed_hosts: Sequence[str] = option(
        (),
        "a host name that requests may be sent to when there is no key, * for any (default: this machine's at a "
        "loopback address, any at another)",
        flag="allowed-hosts",
    )
    log_requests: bool = option(True, "one line a request on stderr")
    log_json: bool = option(False, "every line of the log as a JSON object")
    metrics: bool = option(True, "GET /metrics for Prometheus")
    ui: bool = option(True, "a page at / to chat with the model and to watch the engine")
    ui_show_text: bool = option(
        False,
        "show texts there and under /inspect, of anybody's prompts and answers, to everybody who may use the server",
    )
    otlp_endpoint: str | None = option(
        None,
        "address of a collector that gets a trace span a request, by OTLP over HTTP"
        " (default: OTEL_EXPORTER_OTLP_ENDPOINT, else no traces)",
    )

    def __post_init__(self) -> None:
        check_choices(self)
        check_minimum(self)
        if self.port > 65535:
            raise ValueError(f"port={self.port} is over 65535")
        self._check_seconds()
        self._check_texts()

    def _check_seconds(self) -> None:
        if self.request_timeout is not None and not 0 < self.request_timeout < float("inf"):
            raise ValueError(f"request_timeout={self.request_timeout} is not a number of seconds above 0")
        if not 0 <= self.stream_ping_interval < 60:
            raise ValueError(f"stream_ping_interval={self.stream_ping_interval} is not a number of seconds below 60")
        if not 0 <= self.drain_timeout < float("inf"):
            raise ValueError(f"drain_timeout={self.drain_timeout} is not a number of seconds, 0 or more")

    def _check_texts(self) -> None:
        for name in ("host", "api_key", "served_model_name", "otlp_endpoint"):
            if getattr(self, name) == "":
                raise ValueError(f"{name}='' is empty")
        for name, what in (("cors_origins", "origins"), ("allowed_hosts", "host names")):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name}={getattr(self, name)!r} is a text, not a list of {what}")
        for host in self.allowed_hosts:
            if not host or "/" in host:
                raise ValueError(f"allowed_hosts: {host!r} is not a host name")
        if self.otlp_endpoint is not None and not self.otlp_endpoint.startswith(("http://", "https://")):
            raise ValueError(f"otlp_endpoint={self.otlp_endpoint!r} is not an http:// or https:// address")
