"""``python -m devtools.vllm``: set up vLLM's environment where there is none, and print its folder."""

import sys

from devtools.vllm.environment import EnvironmentSetupError, default_folder, prepare


def main() -> None:
    """Print the folder; what the set-up says goes to standard error."""
    folder = default_folder()
    sys.stderr.write(f"vLLM's environment: {folder} (made once: 1 GB to download, some minutes) ...\n")
    try:
        sys.stdout.write(f"{prepare(folder).folder}\n")
    except EnvironmentSetupError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
