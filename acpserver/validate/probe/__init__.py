"""`acp-validate probe`: an active conformance run against any agent, many small scenarios."""
