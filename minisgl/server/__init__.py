"""The HTTP server: OpenAI's API, and SGLang's `/generate`, in front of an engine process."""
