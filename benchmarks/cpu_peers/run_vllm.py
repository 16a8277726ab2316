"""vLLM's CPU build, bfloat16, its own choice of everything else; prefix caching on."""

from __future__ import annotations

import os

from protocol import Prompts, options, serve


class Vllm:
    def __init__(self) -> None:
        args = options(__doc__).parse_args()
        os.environ |= {
            "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB, and no less can be asked for
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        import vllm

        self._params = vllm.SamplingParams
        self._llm = vllm.LLM(
            str(args.model),
            dtype="bfloat16",
            skip_tokenizer_init=True,
            max_model_len=2048,
            max_num_seqs=args.seqs,
            enable_prefix_caching=True,
            seed=0,
        )
        self.about = f"vLLM {vllm.__version__}, bfloat16 weights, activations and KV"
        self.kv_item_bytes = 2
        self.kv_pool_tokens: int | None = None

    def run(self, prompts: Prompts, out: int) -> Prompts:
        params = self._params(temperature=0, max_tokens=out, ignore_eos=True, detokenize=False)
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        return [list(output.outputs[0].token_ids) for output in self._llm.generate(given, params, use_tqdm=False)]


if __name__ == "__main__":
    serve(Vllm)
