"""The child process of a `LocalEngine`."""

from contextpilot_integrations.serving.local.server import serve_parent

serve_parent()
