"""From deltas of the engine to the bytes that clients read, whole answers and events of a stream."""
