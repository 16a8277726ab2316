"""The whole HTTP application on a scripted engine, in a process of its own: python -m support.scripted_server PORT"""

from __future__ import annotations

import sys

import uvicorn
from support.scripted_link import make_engine_client
from support.server_app import make_app, make_state

if __name__ == "__main__":
    app = make_app(make_state(engine=make_engine_client()))
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[-1]), lifespan="off", access_log=False, log_level="warning")
