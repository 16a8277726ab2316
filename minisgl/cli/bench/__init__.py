"""Measuring a server from outside: what is sent, how it is sent, what came back, and the report."""
