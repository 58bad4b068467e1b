"""JSON-RPC 2.0 and the ACP schema: messages, checking, and one live connection."""
