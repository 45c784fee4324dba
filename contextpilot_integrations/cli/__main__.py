"""Run the command line as a module."""

from contextpilot_integrations.cli.main import main

main()
