"""OpenVINO GenAI's continuous batching on a GGUF file, prefix caching on."""

from __future__ import annotations

import numpy as np
import openvino
import openvino_genai
from protocol import Prompts, options, serve


class OpenVino:
    def __init__(self) -> None:
        args = options(__doc__).parse_args()
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = 1  # GiB
        scheduler.max_num_seqs = args.seqs
        scheduler.enable_prefix_caching = True
        self._pipe = openvino_genai.ContinuousBatchingPipeline(
            str(args.model), scheduler, "CPU", {"INFERENCE_NUM_THREADS": args.threads}
        )
        self.about = f"OpenVINO GenAI {openvino_genai.__version__}, weights as it reads the GGUF file, 8-bit KV"
        self.kv_item_bytes = 1
        self.kv_pool_tokens: int | None = None

    def run(self, prompts: Prompts, out: int) -> Prompts:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = out, True, False
        ids = [openvino.Tensor(np.array([prompt], np.int64)) for prompt in prompts]
        results = self._pipe.generate(ids, [config] * len(prompts))
        return [list(result.m_generation_ids[0]) for result in results]


if __name__ == "__main__":
    serve(OpenVino)
