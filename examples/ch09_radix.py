"""Chapter 9: the radix cache's tree structure, and what prefix reuse buys end to end."""

import torch
from minisgl.core import Context, SamplingParams, set_global_ctx
from minisgl.env import ENV
from minisgl.kvcache.radix_cache import RadixPrefixCache


def show(node, depth=0):
    for child in sorted(node.children.values(), key=lambda n: n._key.tolist()):
        print(f"{'    ' * depth}└─ key={child._key.tolist()} value={child.value.tolist()} ref={child.ref_count}")
        show(child, depth + 1)


def t(*xs):
    return torch.tensor(xs, dtype=torch.int32)


set_global_ctx(Context(page_size=1))
cache = RadixPrefixCache(torch.device("cpu"))
cache.insert_prefix(t(1, 2, 3, 4), t(10, 11, 12, 13))
cache.insert_prefix(t(1, 2, 5, 6), t(10, 11, 20, 21))
cache.insert_prefix(t(7, 8), t(30, 31))
print("after inserting [1,2,3,4], [1,2,5,6], [7,8]:")
show(cache.root_node)
handle = cache.match_prefix(t(1, 2, 3, 9)).cuda_handle
cache.lock_handle(handle)
print(f"match [1,2,3,9]: {handle.cached_len} hit at {handle.get_matched_indices().tolist()}; after locking:")
show(cache.root_node)
print("evictable / protected:", tuple(cache.size_info))
print("evict 2 tokens, locations freed:", cache.evict(2).tolist())
print("evict 1 more token, locations freed:", cache.evict(1).tolist())
print("the tree that is left:")
show(cache.root_node)
cache.check_integrity()

# end to end: one long "system prompt" plus different questions
from minisgl.core import reset_global_ctx
from minisgl.llm import LLM

reset_global_ctx()  # the global context was set by hand above, and the engine sets it again

ENV.DISABLE_OVERLAP_SCHEDULING.value = True
system = "You are a helpful assistant. Answer concisely and accurately. " * 4
questions = ["What is 2 + 2?", "Name a primary color.", "What is the capital of Japan?", "Spell cat."]
for cache_type in ("naive", "radix"):
    llm = LLM("models/Qwen3-0.6B", dtype=torch.float32, max_running_req=8, num_page_override=1024,
              max_seq_len_override=256, cache_type=cache_type)
    computed = []
    orig = llm._forward
    llm._forward = lambda fi: (computed.append(sum(r.extend_len for r in fi.batch.reqs))
                               if fi.batch.is_prefill else None, orig(fi))[1]
    first = llm.generate([system + questions[0]], SamplingParams(max_tokens=4))  # one request first
    rest = llm.generate([system + q for q in questions[1:]], SamplingParams(max_tokens=4))
    total = sum(len(llm.tokenizer(system + q).input_ids) for q in questions)
    print(f"{cache_type:<5}: {total} prompt tokens in all, prefill actually computed {sum(computed)}")
    llm.shutdown()
