"""Compiling all kernels before anybody waits for them: `dibs warm`, and the child process behind a first matcher."""
