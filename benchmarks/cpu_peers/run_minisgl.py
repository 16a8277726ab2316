"""minisgl, as it comes: `LLM` in one process."""

from __future__ import annotations

from importlib.metadata import version

from protocol import Prompts, options, serve

from minisgl import LLM, SamplingParams


class Minisgl:
    def __init__(self) -> None:
        parser = options(__doc__)
        parser.add_argument("--dtype", default="auto")
        args = parser.parse_args()
        self._llm = LLM(str(args.model), dtype=args.dtype, num_page_override=args.tokens, max_running_req=args.seqs)
        spec = self._llm.spec
        dtype = str(spec.dtype).removeprefix("torch.")
        self.about = f"minisgl {version('minisgl')}, {dtype} activations and KV"
        self.kv_item_bytes = spec.dtype.itemsize
        self.kv_pool_tokens: int | None = None

    def run(self, prompts: Prompts, out: int) -> Prompts:
        params = SamplingParams(temperature=0, max_tokens=out, ignore_eos=True)
        return [output["token_ids"] for output in self._llm.generate(prompts, params, use_tqdm=False)]


if __name__ == "__main__":
    serve(Minisgl)
