"""The terminal client: `acpserver chat`. It starts the real server and speaks ACP to it over pipes."""
