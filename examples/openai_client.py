"""The same question, streamed by openai-python, which finds the server in OPENAI_BASE_URL."""

from openai import OpenAI

stream = OpenAI().chat.completions.create(
    model="smollm2",
    messages=[{"role": "user", "content": "What is the capital of France?"}],
    temperature=0,
    max_tokens=16,
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="")
    else:
        usage = chunk.usage
        print(f"\n{usage.prompt_tokens_details.cached_tokens} of {usage.prompt_tokens} prompt tokens were cached")
