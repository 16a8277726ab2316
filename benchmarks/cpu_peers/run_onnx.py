"""onnxruntime-genai: one batch a call, nothing kept from one call to the next."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime_genai
from protocol import Prompts, options, serve


class OnnxRuntime:
    def __init__(self) -> None:
        args = options(__doc__).parse_args()
        config = onnxruntime_genai.Config(str(args.model))
        session = {"intra_op_num_threads": args.threads}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
        self._model = onnxruntime_genai.Model(config)
        version = onnxruntime_genai.__version__
        self.about = f"onnxruntime-genai {version}, 4-bit weights in blocks of 32, the head too, float32 KV"
        self.kv_item_bytes = 4
        self.kv_pool_tokens: int | None = 0  # gone when a call returns

    def run(self, prompts: Prompts, out: int) -> Prompts:
        length = len(prompts[0])  # the prompts of a line are of one length
        params = onnxruntime_genai.GeneratorParams(self._model)
        # No end token may come before min_length.
        params.set_search_options(
            batch_size=len(prompts), do_sample=False, min_length=length + out, max_length=length + out
        )
        generator = onnxruntime_genai.Generator(self._model, params)
        generator.append_tokens(np.array(prompts, np.int32))
        while not generator.is_done():
            generator.generate_next_token()
        return [generator.get_sequence(row)[length:].tolist() for row in range(len(prompts))]


if __name__ == "__main__":
    serve(OnnxRuntime)
