"""What carries lines: stdin and stdout, and the trace file."""
