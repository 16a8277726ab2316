"""Quick start: generate, stream, chat. The model is SmolLM2-135M-Instruct, on the CPU, in float32."""

from minisgl import LLM, SamplingParams

with LLM("smollm2", dtype="float32") as llm:
    prompts = ["The capital of France is", "The alphabet is A, B, C,"]
    for output in llm.generate(prompts, SamplingParams(max_tokens=8)):
        print(repr(output["text"]), output["finish_reason"])

    for delta in llm.generate("Once upon a time", SamplingParams(max_tokens=12), stream=True):
        print(delta["text"], end="|")
    print()

    question = [{"role": "user", "content": "What is the capital of Japan?"}]
    reply = llm.chat(question, SamplingParams(temperature=0, max_tokens=32))
    print(reply["text"], f"({reply['prompt_tokens']} prompt tokens, {len(reply['token_ids'])} generated)")

    print(llm.probe("The capital of France is Paris. It is"))  # how much of it would not be computed again
