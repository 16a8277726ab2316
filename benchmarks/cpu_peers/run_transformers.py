"""transformers' `generate`: one padded batch, nothing kept from one call to the next."""

from __future__ import annotations

import torch
import transformers
from protocol import Prompts, options, serve


class Transformers:
    def __init__(self) -> None:
        args = options(__doc__).parse_args()
        torch.set_num_threads(args.threads)
        self._model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
        self.about = f"transformers {transformers.__version__}, torch {torch.__version__}, bfloat16"
        self.kv_item_bytes = 2
        self.kv_pool_tokens: int | None = 0  # gone when a call returns

    @torch.inference_mode()
    def run(self, prompts: Prompts, out: int) -> Prompts:
        ids = torch.tensor(prompts)  # the prompts of a line are of one length, so nothing is padded
        made = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=out,
            max_new_tokens=out,
            pad_token_id=0,
        )
        answers: Prompts = made[:, ids.shape[1] :].tolist()
        return answers


if __name__ == "__main__":
    serve(Transformers)
