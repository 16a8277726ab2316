"""A trace of requests through the real scheduler and prefix cache, with a clock and a model of the engine."""
